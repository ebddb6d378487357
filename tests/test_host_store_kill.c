/* SPDX-License-Identifier: MIT */
/*
 * test_host_store_kill.c - a bootstrap over a launcher's store whose process is killed while
 * the ranks wait, is killed at a random moment of their start, or is stopped.
 * ctest: cost 10
 *
 * Every rank ends by its deadline with an error that names the store, or the rank that it
 * waited for; or the bootstrap succeeds on all ranks and they work. Nothing is left.
 */
#include "harness.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tools/symmrun/store.c" /* the server itself: its process is to be killed */
#include "util/status.h"

#define RANKS  4
#define SECRET "000102030405060708090a0b0c0d0e0f"

enum fate { KILLED, KILLED_ANY_TIME, STOPPED };

struct shared {
    enum fate fate;
    double timeout; /* of symm_init */
    int blocks;     /* KILLED_ANY_TIME: the store ends itself when it has so many, */
    double delay;   /* or (0) is killed so many seconds after the first rank is there */
    _Atomic int port; /* the store listens */
    _Atomic int came; /* ranks whose blocks the store has */
    _Atomic int ready, gone;
    pid_t store;
    symm_status status[RANKS];
    double took[RANKS];
    char sentence[RANKS][SYMM_ERROR_BYTES];
    char directory[64];
};

/* Of jobs over several nodes: none is made here. */
void symmrun_nodes_blocks(struct symmrun_nodes *nodes, uint32_t number,
                          const void *data, size_t bytes)
{
    (void)nodes, (void)number, (void)data, (void)bytes;
    abort();
}

/* ---- The store's process ------------------------------------------------------------- */

static _Noreturn void serve(struct shared *s)
{
    static const uint8_t secret[SYMMRUN_SECRET_BYTES] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                         8, 9, 10, 11, 12, 13, 14, 15};
    struct symmrun_store *store = symmrun_store_create(0, RANKS, RANKS, secret, NULL);
    static struct pollfd fds[2000];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!store)
        _exit(1);
    atomic_store(&s->port, symmrun_store_port(store));
    for (;;) {
        size_t count;

        symmrun_store_watch(store, fds, &count);
        poll(fds, count, 100);
        symmrun_store_serve(store, fds, count);
        atomic_store(&s->came, (int)store->arrived);
        if (s->blocks > 0 && store->arrived >= (size_t)s->blocks)
            raise(SIGKILL);
    }
}

static void store_start(struct shared *s)
{
    pid_t pid;

    fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        serve(s);
    s->store = pid; /* shared memory: the child must not write it */
    assert_true(harness_until(&s->port, 1));
}

static void store_kill(struct shared *s)
{
    kill(s->store, SIGKILL);
    waitpid(s->store, NULL, 0);
    atomic_store(&s->gone, 1);
}

/* ---- Ranks --------------------------------------------------------------------------- */

/* As a launcher's environment. */
static void set_environment(const struct shared *s, int rank)
{
    char text[32];

    snprintf(text, sizeof(text), "%d", rank);
    setenv("RANK", text, 1);
    setenv("LOCAL_RANK", text, 1);
    snprintf(text, sizeof(text), "%d", RANKS);
    setenv("WORLD_SIZE", text, 1);
    setenv("LOCAL_WORLD_SIZE", text, 1);
    snprintf(text, sizeof(text), "127.0.0.1:%d", s->port);
    setenv("SYMM_STORE", text, 1);
    setenv("SYMM_SECRET", SECRET, 1);
    setenv("SYMM_JOB_ID", text, 1);
    setenv("SYMM_BOOTSTRAP", "store", 1);
}

static int body(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    int me = harness_rank();
    symm_config config = {.size = sizeof(config),
                          .backend = "host",
                          .heap_bytes = (size_t)1 << 30,
                          .team_bytes = (size_t)64 << 20,
                          .timeout = HARNESS_AMPLE,
                          .init_timeout = s->timeout};
    double begin;

    set_environment(s, me);
    if (s->fate == KILLED && me == RANKS - 1)
        CHECK(harness_until(&s->gone, 1));
    atomic_fetch_add(&s->ready, 1);
    begin = harness_now();
    s->status[me] = symm_init(&config, &ctx);
    s->took[me] = harness_now() - begin;
    if (s->status[me] == SYMM_OK)
        CHECK_OK(symm_barrier(symm_team_world(ctx), NULL, NULL));
    else
        snprintf(s->sentence[me], sizeof(s->sentence[me]), "%s", symm_last_error());
    symm_finalize(ctx);
    return 0;
}

/* In the parent, while the ranks run. */
static void direct(const pid_t *ranks, int count, void *arg)
{
    struct shared *s = arg;

    (void)ranks;
    if (s->fate == STOPPED || s->blocks > 0)
        return;
    if (s->fate == KILLED) { /* all but the last wait for its block */
        if (!harness_until(&s->came, count - 1))
            return;
    } else {
        if (!harness_until(&s->ready, 1))
            return;
        harness_sleep(s->delay);
    }
    store_kill(s);
}

static void run(struct shared *s, enum fate fate, double timeout, int blocks,
                double delay)
{
    struct harness h = {
        .ranks = RANKS, .body = body, .arg = s, .direct = direct, .without_ctx = true};
    char directory[sizeof(s->directory)];
    int failed;

    memcpy(directory, s->directory, sizeof(directory));
    memset(s, 0, sizeof(*s));
    memcpy(s->directory, directory, sizeof(directory));
    s->fate = fate;
    s->timeout = timeout;
    s->blocks = blocks;
    s->delay = delay;
    store_start(s);
    if (fate == STOPPED)
        kill(s->store, SIGSTOP);
    failed = harness_run(&h);
    if (!s->gone)
        store_kill(s);
    assert_int_equal(failed, 0);
    assert_int_equal(harness_leftovers(s->directory), 0);
}

/* status SYMM_OK: any error. */
static void says(const struct shared *s, int rank, symm_status status, const char *text)
{
    char name[64];

    snprintf(name, sizeof(name), "%s", text);
    if (strstr(text, "the store at"))
        snprintf(name, sizeof(name), "%s 127.0.0.1:%d", text, s->port);
    if ((status != SYMM_OK && s->status[rank] != status) ||
        strstr(s->sentence[rank], name) == NULL || s->took[rank] > HARNESS_SOON)
        fail_msg("rank %d after %.3f s: %s, \"%s\"; expected %s, \"%s\"", rank,
                 s->took[rank], symm_status_name(s->status[rank]), s->sentence[rank],
                 symm_status_name(status), name);
}

/* ---- Tests --------------------------------------------------------------------------- */

static void killed_while_they_wait(void **state)
{
    struct shared *s = *state;

    run(s, KILLED, HARNESS_AMPLE, 0, 0);
    for (int r = 0; r < RANKS; r++)
        says(s, r, SYMM_ERR_SYSTEM, "cannot reach the store at");
}

static void killed_at_any_time(void **state)
{
    struct shared *s = *state;
    int kills = (int)harness_env("SYMM_TEST_KILLS", 30), met = 0;
    uint64_t random = 5;

    for (int k = 0; k < kills; k++) {
        int good = 0;

        run(s, KILLED_ANY_TIME, 2, k % RANKS,
            (double)(harness_random(&random) % 1500) * 1e-6);
        for (int r = 0; r < RANKS; r++)
            good += s->status[r] == SYMM_OK;
        met += good == RANKS;
        for (int r = 0; r < RANKS && good < RANKS; r++)
            says(s, r, SYMM_OK,
                 strstr(s->sentence[r], "store") ? "the store at" : "rank ");
        assert_true(good == 0 || good == RANKS);
    }
    fprintf(stderr, "the store was killed %d times: %d jobs had met, %d were told\n",
            kills, met, kills - met);
}

static void stopped(void **state)
{
    struct shared *s = *state;

    run(s, STOPPED, 0.5, 0, 0);
    for (int r = 0; r < RANKS; r++)
        says(s, r, SYMM_ERR_TIMEOUT, "the store at");
}

int main(void)
{
    struct CMUnitTest tests[] = {cmocka_unit_test(killed_while_they_wait),
                                 cmocka_unit_test(killed_at_any_time),
                                 cmocka_unit_test(stopped)};
    struct shared *shared = harness_shared(sizeof(*shared));
    int failed;

    harness_clear_environment();
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        tests[i].initial_state = shared;
    harness_directory(shared->directory, sizeof(shared->directory));
    setenv("SYMM_RUNTIME_DIR", shared->directory, 1);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    harness_remove(shared->directory);
    return failed;
}
