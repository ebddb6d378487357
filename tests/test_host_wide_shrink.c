/* SPDX-License-Identifier: MIT */
/*
 * test_host_wide_shrink.c - the survivors of a team over several hosts make a new team
 * (symm_team_shrink): ranks of several hosts die, whole hosts do, also the coordinator and also
 * during the agreement; ranks and hosts come too late; the coordinator stops; a host is replaced by
 * a new job.
 *
 * One machine appears as several hosts; the test's own allgather gives them TCP connections.
 * SYMM_TEST_KILLS=N sets the number of deaths at random moments of the agreement (12).
 */
/* ctest: cost 15 */
/* ctest: sanitize-long */
/* ctest: replaces symm__team_complete */
/* ctest: replaces symm__relay_read */
#include "harness.h"
#include "shrink_stage.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define RANKS_MAX   8
#define ENTRY_BYTES 256
#define BIT(r)      (1u << (r))

struct shared {
    const char *host; /* by rank: a letter */
    int ranks;
    unsigned first, second; /* ranks that die before the call, in it */
    unsigned late;          /* ranks that come after all others have returned */
    bool aborts;            /* a rank that shrinks has aborted the team */
    bool opens;             /* the coordinator stops when it has made the team */
    double delay;           /* from the call of `second` to their death */
    double timeout;
    struct harness_sync sync[2];
    _Atomic int ready, made;
    uint64_t members[RANKS_MAX]; /* of the team that a rank got; 0: none */
    symm_status status[RANKS_MAX];
    double seconds[RANKS_MAX]; /* that the call took */
    char entries[2][RANKS_MAX][ENTRY_BYTES];
};

static char folder[64];

static int gather(struct shared *shared, int job, int rank, const void *in,
                  size_t bytes, void *out)
{
    if (bytes > ENTRY_BYTES)
        return 1;
    memcpy(shared->entries[job][rank], in, bytes);
    if (harness_sync_wait(&shared->sync[job], shared->ranks))
        return 1;
    for (int r = 0; r < shared->ranks; r++)
        memcpy((char *)out + (size_t)r * bytes, shared->entries[job][r], bytes);
    return harness_sync_wait(&shared->sync[job], shared->ranks);
}

static int allgather(void *arg, const void *in, size_t bytes, void *out)
{
    return gather(arg, 0, harness_rank(), in, bytes, out);
}

static void set_host(const struct shared *shared, int rank)
{
    char host[8] = {shared->host[rank], '\0'};

    setenv("SYMM_HOST_ID", host, 1);
    setenv("SYMM_HOST_ADDRESS", "127.0.0.1", 1);
    setenv("SYMM_ENGINE", SYMM_FAKE_ENGINE, 1);
    setenv("SYMM_FAKE_ENGINE_DIR", folder, 1);
}

static void configure(symm_config *config, int rank, void *arg)
{
    static symm_bootstrap bootstrap = {.size = sizeof(bootstrap),
                                       .allgather = allgather};
    const struct shared *shared = arg;

    set_host(shared, rank);
    bootstrap.arg = arg;
    config->bootstrap = &bootstrap;
    config->job_id = NULL;
    if (shared->timeout > 0)
        config->timeout = shared->timeout;
}

static struct harness job(struct shared *shared, const char *host, harness_body body)
{
    memset(shared, 0, sizeof(*shared));
    shared->host = host;
    shared->ranks = (int)strlen(host);
    return (struct harness){
        .ranks = shared->ranks, .body = body, .arg = shared, .configure = configure};
}

/* Every collective, in private and in symmetric memory. */
static int check_calls(symm_team *team)
{
    int n = symm_team_size(team), r = symm_team_rank(team), sum = 0;
    int me = symm_team_world_rank(team, r), in[RANKS_MAX * 3], out[RANKS_MAX * 3];

    for (int m = 0; m < n; m++) {
        sum += symm_team_world_rank(team, m) + 1;
        CHECK(m == 0 ||
              symm_team_world_rank(team, m - 1) < symm_team_world_rank(team, m));
    }
    for (int i = 0; i < 3 * n; i++)
        in[i] = 100 * me + i;
    CHECK_OK(symm_all_gather(team, in, out, 3, SYMM_INT32, NULL, NULL));
    for (int i = 0; i < 3 * n; i++)
        CHECK(out[i] == 100 * symm_team_world_rank(team, i / 3) + i % 3);
    CHECK_OK(symm_all_to_all(team, in, out, 3, SYMM_INT32, NULL, NULL));
    for (int i = 0; i < 3 * n; i++)
        CHECK(out[i] == 100 * symm_team_world_rank(team, i / 3) + 3 * r + i % 3);
    CHECK_OK(symm_reduce_scatter(team, in, out, 3, SYMM_INT32, SYMM_SUM, NULL, NULL));
    for (int i = 0; i < 3; i++)
        CHECK(out[i] == 100 * (sum - n) + n * (3 * r + i));
    CHECK_OK(symm_broadcast(team, in, out, 3, SYMM_INT32, n - 1, NULL, NULL));
    CHECK(out[2] == 100 * symm_team_world_rank(team, n - 1) + 2);
    CHECK_OK(symm_all_reduce(team, in, out, 3, SYMM_INT32, SYMM_SUM, NULL, NULL));
    CHECK(out[1] == 100 * (sum - n) + n);
    return 0;
}

static int check_works(symm_team *team)
{
    const int64_t count = 3000, stride = 1;
    int me = symm_team_world_rank(team, symm_team_rank(team)), *data;
    symm_buffer *buffer = NULL;
    symm_team *part = NULL;

    CHECK_ZERO(check_calls(team));
    CHECK_OK(symm_empty_strided_p2p(team, 1, &count, &stride, SYMM_INT32, 7, &buffer));
    CHECK_OK(symm_rendezvous(team));
    data = symm_buffer_ptr(buffer);
    for (int i = 0; i < count; i++)
        data[i] = me + i;
    CHECK_OK(symm_all_reduce(team, data, data, (size_t)count, SYMM_INT32, SYMM_MIN,
                             NULL, NULL));
    for (int i = 0; i < count; i++)
        CHECK(data[i] == symm_team_world_rank(team, 0) + i);
    symm_buffer_release(buffer);
    CHECK_OK(symm_team_split(team, symm_team_rank(team) % 2, 0, &part));
    CHECK_ZERO(check_calls(part));
    symm_team_destroy(part);
    return 0;
}

/* ---- Deaths before the call ------------------------------------------------------ */

static int body_death(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *team = NULL, *again = NULL;
    int me = symm_team_rank(world), left;
    unsigned all = BIT(s->ranks) - 1, wanted = all & ~s->first;
    double start;

    left = __builtin_popcount(wanted);
    CHECK_OK(symm_barrier(world, NULL, NULL));
    atomic_fetch_add(&s->ready, 1);
    if (s->first & BIT(me)) {
        CHECK(harness_until(&s->ready, s->ranks));
        raise(SIGKILL);
    }
    CHECK(shrink_until_failed(world) == SYMM_ERR_PEER_DEAD);
    CHECK(harness_until(&s->ready, s->ranks));
    start = harness_now();
    CHECK_OK(symm_team_shrink(world, &team));
    s->seconds[me] = harness_now() - start;
    CHECK(s->seconds[me] < HARNESS_SOON);
    for (int i = 0; shrink_members_of(team) != wanted;
         i++) { /* one died after it had begun */
        CHECK(i < 8 && (shrink_members_of(team) & wanted) == wanted);
        CHECK(shrink_until_failed(team) == SYMM_ERR_PEER_DEAD);
        CHECK_OK(symm_team_shrink(team, &again));
        symm_team_destroy(team);
        team = again;
    }
    CHECK_ZERO(check_works(team));
    /* The failed team stays failed; it can be shrunk once more, and so can the new one. */
    CHECK_STATUS(symm_barrier(world, NULL, NULL), SYMM_ERR_PEER_DEAD);
    CHECK_OK(symm_team_shrink(world, &again));
    CHECK(shrink_members_of(again) == wanted && again != team);
    CHECK_ZERO(check_calls(again));
    symm_team_destroy(team);
    CHECK_OK(symm_team_shrink(again, &team));
    symm_team_destroy(again);
    CHECK_ZERO(check_works(team));
    symm_team_destroy(team);
    atomic_fetch_add(&s->made, 1);
    CHECK(harness_until(&s->made, left));
    return 0;
}

static void survivors_go_on(void **state)
{
    static const struct {
        const char *host;
        unsigned dead;
    } cases[] = {
        {"aabbcc", BIT(4) | BIT(5)},                     /* a host, */
        {"aabbcc", BIT(0) | BIT(1)},                     /* the first one */
        {"aabbcc", BIT(1) | BIT(4)},                     /* ranks of several hosts, */
        {"aabbcc", BIT(0) | BIT(2)},                     /* which lead there */
        {"abcabc", BIT(0) | BIT(5)},                     /* hosts in turns */
        {"aabb", BIT(2) | BIT(3)},                       /* one host is left, */
        {"aabb", BIT(0) | BIT(1)},                       /* not the first one */
        {"aabbccdd", BIT(2) | BIT(3)},                   /* one of four, */
        {"aabbccdd", BIT(0) | BIT(1) | BIT(4) | BIT(7)}, /* and ranks, */
        {"aabbccdd", BIT(0) | BIT(1) | BIT(6) | BIT(7)}, /* two of four, */
        {"aabbccdd", 0xff & ~(BIT(5))},                  /* all but one rank */
    };
    struct shared *s = *state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct harness h = job(s, cases[i].host, body_death);
        double longest = 0;

        s->first = cases[i].dead;
        h.killed = s->first;
        assert_int_equal(harness_run(&h), 0);
        for (int r = 0; r < s->ranks; r++)
            longest = s->seconds[r] > longest ? s->seconds[r] : longest;
        fprintf(stderr, "%s without %#x: a team after %.1f ms\n", s->host, s->first,
                longest * 1e3);
    }
}

/* ---- Nobody has died ------------------------------------------------------------- */

/* Who has its team at once begins the next call while others sleep between two looks. */
static int body_healthy(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *first, *second;

    CHECK_STATUS(symm_team_shrink(world, NULL), SYMM_ERR_INVALID);
    for (int i = 0; i < 6; i++) {
        CHECK_OK(symm_team_shrink(world, &first));
        CHECK_OK(symm_team_shrink(world, &second));
        CHECK(symm_team_size(first) == s->ranks && symm_team_size(second) == s->ranks);
        CHECK_ZERO(check_calls(second));
        symm_team_destroy(first);
        CHECK_OK(symm_team_shrink(second, &first));
        CHECK_ZERO(check_calls(first));
        CHECK_OK(symm_barrier(world, NULL, NULL)); /* has not failed */
        symm_team_destroy(first);
        symm_team_destroy(second);
    }
    CHECK_OK(symm_barrier(world, NULL, NULL));
    return 0;
}

static void healthy_teams_shrink(void **state)
{
    struct harness h = job(*state, "aabbcc", body_healthy);

    assert_int_equal(harness_run(&h), 0);
}

/* A rank whose call has failed on it alone aborts the team or shrinks it, while those of another
 * host are in the next split: they do not wait for it. */
static int body_elsewhere(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *next;
    const int me = symm_team_rank(world);
    const double start = harness_now();

    if (me == 0 && s->aborts)
        CHECK_OK(symm_team_abort(world, "no memory"));
    if (me > 0) {
        CHECK_STATUS(symm_team_split(world, 0, 0, &next), SYMM_ERR_ABORTED);
        CHECK_ERROR(s->aborts ? "rank 0 has aborted world: no memory"
                              : "rank 0 has gone on to symm_team_shrink of world");
        CHECK(harness_now() - start < HARNESS_SOON);
        atomic_fetch_add(&s->ready, 1);
    }
    CHECK(!s->aborts || harness_until(&s->ready, s->ranks - 1));
    CHECK_OK(symm_team_shrink(world, &next));
    CHECK(symm_team_size(next) == s->ranks);
    CHECK_ZERO(check_calls(next));
    CHECK_STATUS(symm_barrier(world, NULL, NULL),
                 s->aborts ? SYMM_ERR_ABORTED : SYMM_OK);
    return 0;
}

static void nobody_awaits_a_rank_that_failed(void **state)
{
    struct shared *s = *state;

    for (int aborts = 0; aborts < 2; aborts++) {
        struct harness h = job(s, "abb", body_elsewhere);

        s->aborts = aborts;
        assert_int_equal(harness_run(&h), 0);
    }
}

/* ---- Deaths in the agreement ----------------------------------------------------- */

static void *die_later(void *arg)
{
    const struct shared *s = arg;

    harness_sleep(s->delay);
    raise(SIGKILL);
    return NULL;
}

static int body_dying(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *team = symm_team_world(ctx), *next = NULL;
    int me = symm_team_rank(team), left;
    unsigned wanted = (BIT(s->ranks) - 1) & ~(s->first | s->second);
    pthread_t thread;

    left = __builtin_popcount(wanted);
    CHECK_OK(symm_barrier(team, NULL, NULL));
    atomic_fetch_add(&s->ready, 1);
    CHECK(harness_until(&s->ready, s->ranks)); /* else a barrier may see the death, too */
    if (s->first & BIT(me))
        raise(SIGKILL);
    CHECK(shrink_until_failed(team) == SYMM_ERR_PEER_DEAD);
    if (s->second & BIT(me))
        CHECK(pthread_create(&thread, NULL, die_later, s) == 0);
    CHECK_OK(symm_team_shrink(team, &next));
    s->members[me] = shrink_members_of(next);
    if (s->second & BIT(me))
        harness_sleep(2 * HARNESS_AMPLE);
    atomic_fetch_add(&s->made, 1);
    CHECK(harness_until(&s->made, left)); /* what they got is to be compared */
    for (int r = 0; r < s->ranks; r++)
        CHECK(!(wanted & BIT(r)) || s->members[r] == s->members[me]);
    for (int i = 0; shrink_members_of(next) != wanted; i++) {
        CHECK(i < 8 && (shrink_members_of(next) & wanted) == wanted);
        CHECK(shrink_until_failed(next) == SYMM_ERR_PEER_DEAD);
        CHECK_OK(symm_team_shrink(next, &team));
        symm_team_destroy(next);
        next = team;
    }
    CHECK_ZERO(check_works(next));
    atomic_fetch_add(&s->made, 1);
    CHECK(harness_until(&s->made, 2 * left));
    return 0;
}

static void deaths_in_the_agreement(void **state)
{
    static const unsigned second[] = {BIT(1), BIT(0),          BIT(0) | BIT(1),
                                      BIT(2), BIT(2) | BIT(3), BIT(0) | BIT(3)};
    struct shared *s = *state;
    int kills = (int)harness_env("SYMM_TEST_KILLS", HARNESS_SLOW ? 4 : 12), out = 0;
    uint64_t random = 5;

    for (int k = 0; k < kills; k++) {
        struct harness h = job(s, "aabbcc", body_dying);
        int at = 2;

        s->first = k % 2 ? BIT(4) : BIT(4) | BIT(5);
        s->second = second[(size_t)k % (sizeof(second) / sizeof(second[0]))];
        s->delay = (double)(harness_random(&random) % 30000) * 1e-6;
        h.killed = s->first | s->second;
        while (s->second & BIT(at) || s->first & BIT(at))
            at = (at + 1) % s->ranks;
        assert_int_equal(harness_run(&h), 0);
        out += (s->members[at] & s->second) != s->second;
    }
    fprintf(stderr, "%d deaths in the agreement: %d were left out, %d came after it\n",
            kills, out, kills - out);
}

/* ---- Late ranks and hosts -------------------------------------------------------- */

static int body_late(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *team = NULL;
    int me = symm_team_rank(world), prompt;
    double start;

    prompt = s->ranks - __builtin_popcount(s->late);
    CHECK_OK(symm_barrier(world, NULL, NULL));
    if (s->late & BIT(me))
        CHECK(harness_until(&s->made, prompt));
    start = harness_now();
    s->status[me] = symm_team_shrink(world, &team);
    s->seconds[me] = harness_now() - start;
    s->members[me] = s->status[me] == SYMM_OK ? shrink_members_of(team) : 0;
    if (s->late & BIT(me)) {
        CHECK_STATUS(s->status[me], SYMM_ERR_TIMEOUT);
        CHECK_ERROR("too late");
        CHECK_STATUS(symm_team_shrink(world, &team), SYMM_ERR_TIMEOUT);
        CHECK_STATUS(symm_barrier(world, NULL, NULL), SYMM_ERR_TIMEOUT);
    } else {
        atomic_fetch_add(&s->made, 1);
        if (s->status[me] == SYMM_OK)
            CHECK_ZERO(check_works(team));
        CHECK_STATUS(symm_barrier(world, NULL, NULL), SYMM_ERR_TIMEOUT);
    }
    atomic_fetch_add(&s->ready, 1);
    CHECK(harness_until(&s->ready, s->ranks));
    return 0;
}

static void late_ranks_are_told(void **state)
{
    static const unsigned late[] = {BIT(5), BIT(0), BIT(0) | BIT(1), BIT(1) | BIT(3)};
    struct shared *s = *state;

    for (size_t k = 0; k < sizeof(late) / sizeof(late[0]); k++) {
        double timeout;

        HARNESS_PATIENCE(timeout, 0.6) /* the others must come within it */
        {
            struct harness h = job(s, "aabbcc", body_late);
            bool together = true;

            s->late = late[k];
            s->timeout = timeout;
            if (harness_run(&h) != 0)
                continue;
            for (int r = 0; r < s->ranks; r++)
                together = together &&
                           (s->late & BIT(r) || (s->members[r] == (0x3f & ~s->late) &&
                                                 s->seconds[r] < 3 * timeout));
            if (together)
                break;
        }
        assert_true(timeout <= HARNESS_SOON);
    }
}

/* Of two hosts one does not come: it may be cut off. */
static int body_half(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *team = NULL;
    int me = symm_team_rank(world);

    CHECK_OK(symm_barrier(world, NULL, NULL));
    if (s->late & BIT(me)) {
        CHECK(harness_until(&s->made, 2));
    } else if (s->late & BIT(0)) {
        CHECK_STATUS(symm_team_shrink(world, &team), SYMM_ERR_TIMEOUT);
        CHECK_ERROR("more hosts");
        atomic_fetch_add(&s->made, 1);
    } else {
        CHECK_OK(symm_team_shrink(world, &team));
        CHECK(symm_team_size(team) == 2);
        CHECK_ZERO(check_works(team));
        atomic_fetch_add(&s->made, 1);
    }
    atomic_fetch_add(&s->ready, 1);
    CHECK(harness_until(&s->ready, s->ranks));
    return 0;
}

static void halves_do_not_both_go_on(void **state)
{
    static const unsigned late[] = {BIT(0) | BIT(1), BIT(2) | BIT(3)};
    struct shared *s = *state;

    for (int k = 0; k < 2; k++) {
        double timeout;

        HARNESS_PATIENCE(timeout, 0.6)
        {
            struct harness h = job(s, "aabb", body_half);

            s->late = late[k];
            s->timeout = timeout;
            if (harness_run(&h) == 0)
                break;
        }
        assert_true(timeout <= HARNESS_SOON);
    }
}

/* ---- A coordinator that stops ---------------------------------------------------- */

/*
 * The coordinator stops when it has come, and waits for the last rank. It continues when the others
 * have given up, or (`late`) have a team without it: then it is rank 5 of a team in turned order,
 * since with rank 0 the relay of its host stops, too. `opens`: it stops when all have made the team
 * that it has proposed. When it continues it must not decide for that team before it hears the
 * others.
 */
static enum { GOES_ON, MAKES, HAS_MADE } coordinator;

symm_status __real_symm__team_complete(symm_team *made, uint32_t uid, int slot,
                                       int size, double timeout);
symm_status __wrap_symm__team_complete(symm_team *made, uint32_t uid, int slot,
                                       int size, double timeout);
symm_status __wrap_symm__team_complete(symm_team *made, uint32_t uid, int slot,
                                       int size, double timeout)
{
    const symm_status status =
        __real_symm__team_complete(made, uid, slot, size, timeout);

    if (coordinator == MAKES) {
        coordinator = HAS_MADE;
        harness_sleep(timeout / 4); /* the others' OPENED come */
    }
    return status;
}

typedef void read_cell(void *user, int rank, const void *bytes, size_t count);
struct symm_relay;
uint64_t __real_symm__relay_read(struct symm_relay *relay, uint64_t tag, uint64_t since,
                                 read_cell *each, void *user);
uint64_t __wrap_symm__relay_read(struct symm_relay *relay, uint64_t tag, uint64_t since,
                                 read_cell *each, void *user);
uint64_t __wrap_symm__relay_read(struct symm_relay *relay, uint64_t tag, uint64_t since,
                                 read_cell *each, void *user)
{
    const uint64_t read = __real_symm__relay_read(relay, tag, since, each, user);

    if (coordinator == HAS_MADE) {
        coordinator = GOES_ON;
        raise(SIGSTOP);
    }
    return read;
}

static void stop_coordinator(const pid_t *ranks, int count, void *arg)
{
    struct shared *s = arg;
    const int first = s->late ? count - 1 : 0;

    if (!s->opens) {
        if (!harness_until(&s->ready, count - 1))
            return;
        harness_sleep(s->timeout / 4); /* for their coming */
        kill(ranks[first], SIGSTOP);
        atomic_fetch_add(&s->ready, 1);
    }
    (void)harness_until(&s->made, (s->late ? 2 : 1) * (count - 1));
    kill(ranks[first], SIGCONT);
}

static int body_stopped(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *team = world, *next = NULL;
    const int me = symm_team_rank(world), first = s->late ? s->ranks - 1 : 0;
    char sentence[64];

    if (s->late)
        CHECK_OK(symm_team_split(world, 0, -me, &team));
    CHECK_OK(symm_barrier(team, NULL, NULL));
    coordinator = s->opens && me == first ? MAKES : GOES_ON;
    if (symm_team_rank(team) == s->ranks - 1 && !s->opens)
        CHECK(harness_until(&s->ready, s->ranks));
    atomic_fetch_add(&s->ready, 1);
    CHECK_STATUS(symm_team_shrink(team, &next), SYMM_ERR_TIMEOUT);
    snprintf(sentence, sizeof(sentence),
             me == first ? "rank %d was to decide, and other ranks have given up"
                         : "rank %d, which was to decide",
             first);
    CHECK_ERROR(sentence);
    atomic_fetch_add(&s->made, 1);
    if (!s->late)
        CHECK(harness_until(&s->made, s->ranks));
    s->status[me] = symm_team_shrink(team, &next);
    if (me == first && s->late) {
        CHECK_STATUS(s->status[me], SYMM_ERR_TIMEOUT);
        CHECK_ERROR("too late"); /* and they have gone on */
    } else {
        CHECK_STATUS(s->status[me], SYMM_OK);
        CHECK(shrink_members_of(next) == (s->late ? 0x1f : 0x3f));
        atomic_fetch_add(&s->made, 1);
    }
    CHECK_STATUS(symm_barrier(team, NULL, NULL), s->late ? SYMM_ERR_TIMEOUT : SYMM_OK);
    CHECK_ZERO(harness_sync_wait(&s->sync[1], s->ranks));
    return 0;
}

static void a_coordinator_stops(void **state)
{
    struct shared *s = *state;

    for (unsigned k = 0; k < 3; k++) {
        double timeout;

        HARNESS_PATIENCE(timeout, 0.6)
        {
            struct harness h = job(s, "aabbcc", body_stopped);

            s->late = k == 1;
            s->opens = k == 2;
            s->timeout = timeout;
            h.direct = stop_coordinator;
            if (harness_run(&h) == 0)
                break;
        }
        assert_true(timeout <= HARNESS_SOON);
    }
}

/* ---- A host is replaced ---------------------------------------------------------- */

static int gather_next(void *arg, const void *in, size_t bytes, void *out)
{
    int me = harness_rank();

    return gather(arg, 1, me < 6 ? me : me - 2, in, bytes, out);
}

/* Ranks 0 to 3 go on; 4 and 5, of host c, die; 6 and 7 take their places in a new job. */
static int body_replaced(symm_ctx *none, void *arg)
{
    struct shared *s = arg;
    symm_bootstrap next = {.size = sizeof(next), .allgather = gather_next, .arg = arg};
    symm_config config = harness_config();
    int me = harness_rank();
    symm_ctx *ctx = none;
    double start = 0;

    s->ranks = 6;
    set_host(s, me < 6 ? me : me - 2);
    config.size = sizeof(config);
    config.rank = me < 6 ? me : me - 2;
    config.world_size = 6;
    if (me < 6) {
        CHECK_OK(symm_init(&config, &ctx));
        CHECK_OK(symm_barrier(symm_team_world(ctx), NULL, NULL));
        atomic_fetch_add(&s->ready, 1);
        CHECK(harness_until(&s->ready, s->ranks));
        if (me > 3)
            raise(SIGKILL);
        CHECK(shrink_until_failed(symm_team_world(ctx)) == SYMM_ERR_PEER_DEAD);
        start = harness_now();
        symm_finalize(ctx);
        atomic_fetch_add(&s->made, 1);
    } else {
        CHECK(harness_until(&s->made, 4));
    }
    config.bootstrap = &next;
    CHECK_OK(symm_init(&config, &ctx));
    s->seconds[config.rank] = me < 4 ? harness_now() - start : 0;
    CHECK(symm_team_size(symm_team_world(ctx)) == 6);
    CHECK_ZERO(check_works(symm_team_world(ctx)));
    CHECK_OK(symm_barrier(symm_team_world(ctx), NULL, NULL));
    symm_finalize(ctx);
    return 0;
}

static void a_new_job_replaces_a_host(void **state)
{
    struct shared *s = *state;
    double best = HARNESS_AMPLE;

    for (int i = 0; i < 5 && best > 1; i++) {
        struct harness h = job(s, "aabbcc..", body_replaced);
        double longest = 0;

        h.without_ctx = true;
        h.killed = BIT(4) | BIT(5);
        assert_int_equal(harness_run(&h), 0);
        for (int r = 0; r < 4; r++)
            longest = s->seconds[r] > longest ? s->seconds[r] : longest;
        best = longest < best ? longest : best;
    }
    fprintf(stderr, "a new job after %.0f ms\n", best * 1e3);
    assert_true(best <= 1);
}

int main(void)
{
    struct shared *shared = harness_shared(sizeof(*shared));
    struct CMUnitTest tests[] = {
        cmocka_unit_test(healthy_teams_shrink),
        cmocka_unit_test(nobody_awaits_a_rank_that_failed),
        cmocka_unit_test(survivors_go_on),
        cmocka_unit_test(deaths_in_the_agreement),
        cmocka_unit_test(late_ranks_are_told),
        cmocka_unit_test(halves_do_not_both_go_on),
        cmocka_unit_test(a_coordinator_stops),
        cmocka_unit_test(a_new_job_replaces_a_host),
    };
    int failed;

    harness_directory(folder, sizeof(folder));
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        tests[i].initial_state = shared;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    harness_remove(folder);
    return failed;
}
