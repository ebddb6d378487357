/* SPDX-License-Identifier: MIT */
/*
 * test_host_liveness.c - a peer's live word: the process lives, has finalized, was killed, has
 * replaced its program by exec, or the word was overwritten.
 */
#include "oob/liveness.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "harness.h"
#include "oob/control_page.h"

enum fate { LIVES, FINALIZES, IS_KILLED, EXECUTES, DAMAGES };

/* The peer: a process of one word. */
struct page {
    uint32_t live;
    _Atomic int ready; /* its thread holds the word */
    _Atomic int go;    /* its fate may come */
    _Atomic int done;  /* ... and has, where the process can say so */
};

static void meet(struct page *page, enum fate fate)
{
    struct symm_liveness *liveness = NULL;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (symm__liveness_create(&page->live, &liveness) != SYMM_OK)
        _exit(1);
    page->ready = 1;
    if (!harness_until(&page->go, 1))
        _exit(1);
    switch (fate) {
    case FINALIZES:
        symm__liveness_destroy(liveness);
        break;
    case IS_KILLED:
        kill(getpid(), SIGKILL);
        break;
    case EXECUTES:
        execl("/bin/sleep", "sleep", "1000", (char *)NULL);
        _exit(1);
    case DAMAGES:
        __atomic_store_n(&page->live, 7u, __ATOMIC_RELEASE);
        break;
    case LIVES:
        break;
    }
    page->done = 1;
    for (;;)
        pause();
}

/* Until the word says that the process is gone, or the process that its fate has come. */
static void wait_for(struct page *page, uint32_t tid, bool says)
{
    double begin = harness_now();

    while (says ? !page->done : __atomic_load_n(&page->live, __ATOMIC_ACQUIRE) == tid) {
        assert_true(harness_now() - begin < HARNESS_AMPLE);
        harness_sleep(0.001);
    }
}

static void assert_tells(enum fate fate, symm_status check, symm_status died,
                         const char *wanted)
{
    struct page *page = harness_shared(sizeof(*page));
    struct symm_process process = {.pidfd = -1};
    const char *why = "";
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0)
        meet(page, fate);
    assert_true(harness_until(&page->ready, 1));
    process.pid = child;
    process.tid = page->live;
    assert_int_equal(symm__process_check(&process, &page->live, &why), SYMM_OK);
    assert_int_equal(symm__process_died(&process, &page->live, &why), SYMM_OK);
    page->go = 1;
    wait_for(page, process.tid, fate != IS_KILLED && fate != EXECUTES);
    assert_int_equal(symm__process_check(&process, &page->live, &why), check);
    assert_string_equal(why, wanted);
    why = "";
    assert_int_equal(symm__process_died(&process, &page->live, &why), died);
    assert_string_equal(why, died == SYMM_OK ? "" : wanted);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    harness_shared_free(page, sizeof(*page));
}

static void test_fates(void **state)
{
    (void)state;
    assert_tells(LIVES, SYMM_OK, SYMM_OK, "");
    assert_tells(FINALIZES, SYMM_ERR_PEER_DEAD, SYMM_OK, "has finalized its context");
    assert_tells(IS_KILLED, SYMM_ERR_PEER_DEAD, SYMM_ERR_PEER_DEAD, "has died");
    assert_tells(EXECUTES, SYMM_ERR_PEER_DEAD, SYMM_ERR_PEER_DEAD,
                 "has replaced its program (exec)");
    assert_tells(DAMAGES, SYMM_ERR_DAMAGED, SYMM_ERR_DAMAGED,
                 "is alive but its control page is damaged");
}

struct leaving {
    struct symm_process process;
    uint32_t live;
    bool enough;
};

/* Finalizes at every moment; that it comes back is for the number of moments only. */
static void *leave(void *arg)
{
    struct leaving *l = arg;

    while (!__atomic_load_n(&l->enough, __ATOMIC_RELAXED)) {
        __atomic_store_n(&l->live, SYMM_LIVE_FINISHED, __ATOMIC_RELEASE);
        for (volatile int i = 0; i < 20; i++)
            ;
        __atomic_store_n(&l->live, l->process.tid, __ATOMIC_RELEASE);
        for (volatile int i = 0; i < 20; i++)
            ;
    }
    return NULL;
}

/* One that finalizes while somebody asks whether it has died has not. */
static void test_leaves_meanwhile(void **state)
{
    struct leaving l = {.process = {.pidfd = -1, .pid = getpid(), .tid = 41},
                        .live = 41};
    int finished = 0, dead = 0;
    double begin = harness_now();
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, leave, &l), 0);
    /* Both states were seen many times, in some 10 ms on two cores. */
    while (finished < 10000 && harness_now() - begin < HARNESS_SOON)
        for (int i = 0; i < 1000; i++) {
            const char *why;

            dead += symm__process_died(&l.process, &l.live, &why) != SYMM_OK;
            finished += symm__process_check(&l.process, &l.live, &why) != SYMM_OK;
        }
    __atomic_store_n(&l.enough, true, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    assert_true(finished > 0);
    assert_int_equal(dead, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fates),
        cmocka_unit_test(test_leaves_meanwhile),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
