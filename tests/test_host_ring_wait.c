/* SPDX-License-Identifier: MIT */
/*
 * test_host_ring_wait.c - how calls wait for messages: what comes at the last moment before a
 * timeout, a wake for a message that comes just before a sleep, and a sender that has finalized
 * while another thread has the ring's end.
 * ctest: cost 2
 *
 * The test stands in for clock_gettime and syscall, and so acts between two steps of a wait.
 */
#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/team.h"
#include "harness.h"

#define MOST_LOOKS  6 /* at the clock between two sleeps */
#define MOST_SLEEPS 10

struct shared {
    _Atomic int asked, sent; /* the message that rank 1 is to send, or has sent */
    _Atomic int ended;       /* ranks that have finalized */
};

/* What the library's clock and its sleeps do on this thread. */
struct hook {
    struct shared *shared; /* NULL: nothing */
    double ahead;          /* seconds that the clock is ahead */
    double jump;           /* its jump at look `at`, for a message, too; 0: none */
    int looks;             /* at the clock, since the last sleep began */
    int at;                /* at which of them a message comes; 0: it has come */
    int sleeps;            /* so far */
    bool inside;           /* the hook itself */
    int missed;            /* sleeps that begin although the message is there */
};

static _Thread_local struct hook hook;

/* Rank 1 has sent one more message when this returns. */
static void let_send(void)
{
    const int wanted = hook.shared->asked + 1;

    hook.inside = true;
    hook.shared->asked = wanted;
    (void)harness_until(&hook.shared->sent, wanted);
    hook.inside = false;
}

static void look(void)
{
    hook.looks++;
    if (hook.at != hook.looks || (hook.jump == 0 && hook.sleeps == 0))
        return;
    hook.at = 0;
    hook.ahead = hook.jump;
    let_send();
}

/* The function that this program's own one hides; *at keeps it. */
static void *hidden(void **at, const char *name)
{
    void *found = __atomic_load_n(at, __ATOMIC_RELAXED);

    if (found)
        return found;
    found = dlsym(RTLD_NEXT, name);
    __atomic_store_n(at, found, __ATOMIC_RELAXED);
    return found;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static void *kept;
    int (*real)(clockid_t, struct timespec *), result;

    *(void **)&real = hidden(&kept, "clock_gettime");
    if (hook.shared && !hook.inside)
        look();
    result = real(clock, now);
    if (!hook.inside)
        now->tv_sec += (time_t)hook.ahead;
    return result;
}

long syscall(long number, ...)
{
    static void *kept;
    long (*real)(long, ...), a[6];
    va_list list;

    *(void **)&real = hidden(&kept, "syscall");
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    if (hook.shared && !hook.inside && number == SYS_futex && a[1] == FUTEX_WAIT) {
        const uint32_t *word = (const uint32_t *)(uintptr_t)a[0];

        hook.missed += hook.sleeps > 0 && hook.at == 0 &&
                       __atomic_load_n(word, __ATOMIC_ACQUIRE) == (uint32_t)a[2];
        hook.looks = 0;
        if (++hook.sleeps == MOST_SLEEPS && hook.at > 0) { /* there is no such look */
            hook.at = 0;
            let_send();
        }
    }
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* Rank 1: sends message i when it is asked to. */
static int send_when_asked(symm_team *team, struct shared *shared, int i)
{
    CHECK(harness_until(&shared->asked, i));
    CHECK_OK(symm_send(team, &i, 1, SYMM_INT32, 0, NULL, NULL));
    shared->sent = i;
    return 0;
}

static symm_p2p_op receive_of(int peer, int *value)
{
    return (symm_p2p_op){.size = sizeof(symm_p2p_op),
                         .kind = SYMM_P2P_RECV,
                         .ptr = value,
                         .count = 1,
                         .dtype = SYMM_INT32,
                         .peer = peer};
}

/* ---- The timeout -------------------------------------------------------------------- */

/* The first of two messages comes when the time has passed, at any look at the clock; the second a
 * while later. */
static int late_body(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    struct shared *shared = arg;

    for (int i = 1; i <= MOST_LOOKS; i++) {
        int value[2] = {0, 0}, last = -i;
        symm_p2p_op ops[2] = {receive_of(1, &value[0]), receive_of(1, &value[1])};
        symm_status status;

        if (symm_team_rank(team) == 1) {
            CHECK_ZERO(send_when_asked(team, shared, i));
            harness_sleep(0.02);
            CHECK_OK(symm_send(team, &last, 1, SYMM_INT32, 0, NULL, NULL));
            continue;
        }
        hook = (struct hook){.shared = shared, .jump = 2 * HARNESS_AMPLE, .at = i};
        status = symm_p2p_batch(team, ops, 2, NULL, NULL);
        hook.shared = NULL;
        CHECK_STATUS(status, SYMM_OK);
        CHECK(hook.ahead > 0 && value[0] == i && value[1] == last);
        hook.ahead = 0;
    }
    return 0;
}

static void test_late(void **unused)
{
    struct shared *shared = harness_shared(sizeof(*shared));

    (void)unused;
    assert_int_equal(
        harness_run(&(struct harness){.ranks = 2, .body = late_body, .arg = shared}),
        0);
    harness_shared_free(shared, sizeof(*shared));
}

/* ---- Wakes -------------------------------------------------------------------------- */

/* A message that comes at any look at the clock after a sleep ends the wait without another one. */
static int wake_body(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    struct shared *shared = arg;

    for (int i = 1; i <= MOST_LOOKS; i++) {
        int value = 0;
        symm_status status;

        if (symm_team_rank(team) == 1) {
            CHECK_ZERO(send_when_asked(team, shared, i));
            continue;
        }
        hook = (struct hook){.shared = shared, .at = i};
        status = symm_recv(team, &value, 1, SYMM_INT32, 1, NULL, NULL);
        hook.shared = NULL;
        CHECK_STATUS(status, SYMM_OK);
        CHECK_MESSAGE(hook.missed == 0 && value == i,
                      "%d sleeps with the message there, sent at look %d", hook.missed,
                      i);
    }
    return 0;
}

static void test_wake(void **unused)
{
    struct shared *shared = harness_shared(sizeof(*shared));

    (void)unused;
    assert_int_equal(
        harness_run(&(struct harness){.ranks = 2, .body = wake_body, .arg = shared}),
        0);
    harness_shared_free(shared, sizeof(*shared));
}

/* ---- A ring's end that another thread has -------------------------------------------- */

struct holder {
    symm_team *team;
    pthread_t thread;
};

/* The other thread comes to its message's end. */
static void *give_end(void *arg)
{
    const struct holder *holder = arg;

    harness_sleep(0.1);
    __atomic_store_n(&holder->team->ring_ends[2 * 1 + 1], 0, __ATOMIC_RELEASE);
    return NULL;
}

/* Rank 1 sends and finalizes; rank 0 asks for the message while another of its threads receives. */
static int busy_body(symm_ctx *none, void *arg)
{
    struct shared *shared = arg;
    symm_config config = harness_config();
    int value = 0, peer = shared->asked ? SYMM_ANY_PEER : 1;
    struct holder holder;
    symm_p2p_op op = receive_of(peer, &value);
    symm_status status;
    symm_ctx *ctx;

    (void)none;
    CHECK_OK(symm_init(&config, &ctx));
    holder.team = symm_team_world(ctx);
    if (harness_rank() != 0) {
        value = harness_rank();
        if (value == 1)
            CHECK_OK(symm_send(holder.team, &value, 1, SYMM_INT32, 0, NULL, NULL));
        symm_finalize(ctx);
        shared->ended++;
        return 0;
    }
    CHECK(harness_until(&shared->ended, 2));
    __atomic_store_n(&holder.team->ring_ends[2 * 1 + 1], 1, __ATOMIC_RELAXED);
    CHECK(pthread_create(&holder.thread, NULL, give_end, &holder) == 0);
    status = symm_p2p_batch(holder.team, &op, 1, NULL, NULL);
    pthread_join(holder.thread, NULL);
    CHECK_STATUS(status, SYMM_OK);
    CHECK(value == 1);
    /* with the end free the next one fails at once */
    CHECK_STATUS(symm_p2p_batch(holder.team, &op, 1, NULL, NULL), SYMM_ERR_PEER_DEAD);
    symm_finalize(ctx);
    return 0;
}

static void test_busy(void **unused)
{
    (void)unused;
    for (int any = 0; any < 2; any++) {
        struct shared *shared = harness_shared(sizeof(*shared));

        shared->asked = any;
        assert_int_equal(
            harness_run(&(struct harness){
                .ranks = 3, .body = busy_body, .arg = shared, .without_ctx = true}),
            0);
        harness_shared_free(shared, sizeof(*shared));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_wake),
        cmocka_unit_test(test_busy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
