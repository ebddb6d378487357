/* SPDX-License-Identifier: MIT */
/*
 * test_host_team_create.c - teams of a list of ranks, made by those ranks alone. ctest: cost 25
 *
 * Lists overlap at random, ranks make them while others are elsewhere, from several threads and
 * in different orders; ranks are missing, disagree or die. SYMM_TEST_CREATES=N: random creations.
 */
#include "harness.h"

#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SHORT  0.5 /* seconds, of a deadline that is to expire */
#define COUNT  700
#define ALIVE  3
#define SERIAL 1 /* key of calls that are made in one order */

struct shared {
    struct harness_sync sync;
    int victim;
    double delay, timeout;
    uint64_t seed;
    _Atomic int come, passed;
    symm_status status[HARNESS_MAX_RANKS];
    double seconds[HARNESS_MAX_RANKS];
    char sentence[HARNESS_MAX_RANKS][512];
};

static struct harness job(struct shared *s, int ranks, harness_body body)
{
    struct harness h;
    memset(&h, 0, sizeof(h));
    memset(s, 0, sizeof(*s));
    s->victim = -1;
    h.ranks = ranks;
    h.timeout = HARNESS_SOON;
    h.body = body;
    h.arg = s;
    return h;
}

static void configure_timeout(symm_config *config, int rank, void *arg)
{
    (void)rank;
    config->timeout = ((struct shared *)arg)->timeout;
}

/* ---- What a team must do ------------------------------------------------------------- */

static bool lists(const int *ranks, int n, int rank)
{
    for (int i = 0; i < n; i++)
        if (ranks[i] == rank)
            return true;
    return false;
}

/* The members are the list's, in its order, and sums are those of their world ranks. */
static int check_sums(symm_team *team, const int *ranks, int n, void *stream, int salt)
{
    symm_call call = {.size = sizeof(call), .stream = stream};
    int64_t in[COUNT], out[COUNT], wanted = 0;
    symm_work *work = NULL;
    CHECK(symm_team_size(team) == n);
    for (int m = 0; m < n; m++) {
        CHECK(symm_team_world_rank(team, m) == ranks[m]);
        wanted += (int64_t)(ranks[m] + 1) << salt % 30;
    }
    for (int i = 0; i < COUNT; i++)
        in[i] = ((int64_t)(ranks[symm_team_rank(team)] + 1) << salt % 30) + i;
    CHECK_OK(symm_all_reduce(team, in, out, COUNT, SYMM_INT64, SYMM_SUM, &call, &work));
    CHECK_OK(symm_work_synchronize(work, 0));
    symm_work_release(work);
    for (int i = 0; i < COUNT; i++)
        CHECK_MESSAGE(out[i] == wanted + (int64_t)i * n, "element %d of %d ranks: %lld",
                      i, n, (long long)out[i]);
    return 0;
}

/* Memory of its own, and puts. */
static int check_memory(symm_team *team)
{
    symm_buffer *buffer;
    int n = symm_team_size(team), me = symm_team_rank(team);
    CHECK_OK(symm_buffer_alloc(team, 4096, &buffer));
    CHECK_OK(symm_rendezvous(team));
    int *ints = symm_buffer_ptr(buffer), value = 100 + me;
    CHECK_OK(symm_put_signal(team, ints, &value, sizeof(value), (me + 1) % n, 3, NULL,
                             NULL));
    CHECK_OK(symm_signal_wait(team, (me + n - 1) % n, 3, NULL, NULL));
    CHECK(ints[0] == 100 + (me + n - 1) % n);
    CHECK_OK(symm_barrier(team, NULL, NULL));
    symm_buffer_release(buffer);
    return 0;
}

static int random_list(uint64_t *seed, int of, int *ranks)
{
    int n = 1 + (int)(harness_random(seed) % (uint64_t)of);
    for (int i = 0; i < of; i++)
        ranks[i] = i;
    for (int i = 0; i < n; i++) {
        int k = i + (int)(harness_random(seed) % (uint64_t)(of - i)), kept = ranks[i];
        ranks[i] = ranks[k];
        ranks[k] = kept;
    }
    return n;
}

/* ---- Random lists -------------------------------------------------------------------- */

struct kept {
    symm_team *team;
    int ranks[HARNESS_MAX_RANKS], n;
};

/* Ranks go through one sequence of lists without waiting for each other anywhere else. */
static int body_random(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx);
    int me = symm_team_rank(world), n = symm_team_size(world), made = 0;
    int creations = (int)harness_env("SYMM_TEST_CREATES", HARNESS_SLOW ? 60 : 200);
    uint64_t seed = s->seed;
    struct kept kept[ALIVE] = {{0}};
    for (int i = 0; i < creations; i++) {
        int ranks[HARNESS_MAX_RANKS], size = random_list(&seed, n, ranks);
        int key = (int)(harness_random(&seed) % 3) - 1;
        struct kept *k = &kept[made % ALIVE];
        if (!lists(ranks, size, me))
            continue;
        symm_team_destroy(k->team);
        CHECK_OK(symm_team_create(world, ranks, size, key, &k->team));
        memcpy(k->ranks, ranks, sizeof(ranks));
        k->n = size;
        made++;
        CHECK_ZERO(check_sums(k->team, ranks, size, NULL, i));
        if (i % 16 == 0)
            CHECK_ZERO(check_memory(k->team));
    }
    CHECK_OK(symm_barrier(world, NULL, NULL));
    for (int i = 0; i < ALIVE; i++)
        symm_team_destroy(kept[i].team);
    return 0;
}

static void random_lists(void **state)
{
    static const int ranks[] = {1, 2, 3, 8};
    for (int i = 0; i < 4; i++) {
        struct shared *s = *state;
        struct harness h = job(s, ranks[i], body_random);
        h.heap_bytes = (size_t)4 << 30; /* room for ALIVE teams of each rank, all different */
        s->seed = 77 + (uint64_t)i;
        assert_int_equal(harness_run_both(h), 0);
    }
}

/* Lists of ranks of a parent that is not the world, in another order than the parent's. */
static int body_nested(symm_ctx *ctx, void *arg)
{
    symm_team *world = symm_team_world(ctx), *half, *pair, *again;
    int me = symm_team_rank(world), part = me / 3;
    int list[2] = {2, 0},
        wanted[2] = {part * 3, part * 3 + 2}; /* the parent is reversed */
    (void)arg;
    CHECK_OK(symm_team_split(world, part, -me, &half));
    if (symm_team_rank(half) != 1) {
        CHECK_OK(symm_team_create(half, list, 2, 0, &pair));
        CHECK_ZERO(check_sums(pair, wanted, 2, NULL, 1));
        CHECK_OK(symm_team_create(pair, (int[]){1, 0}, 2, 0, &again));
        symm_team_destroy(half);
        symm_team_destroy(pair);
        CHECK_ZERO(check_sums(again, (int[]){wanted[1], wanted[0]}, 2, NULL, 2));
        CHECK_ZERO(check_memory(again));
        symm_team_destroy(again);
    }
    CHECK_OK(symm_barrier(world, NULL, NULL));
    return 0;
}

static void lists_of_parts(void **state)
{
    assert_int_equal(harness_run_both(job(*state, 6, body_nested)), 0);
}

/* ---- Others are elsewhere ------------------------------------------------------------ */

/* Ranks 2 to 4 sit in a collective of the world, 5 and 6 split their own team. */
static int body_elsewhere(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *part, *team;
    int me = symm_team_rank(world), one = 1, sum = 0;
    CHECK_OK(symm_team_split(world, me >= 5, 0, &part));
    if (me < 2) {
        for (int i = 0; i < 20; i++) {
            CHECK_OK(symm_team_create(world, (int[]){1, 0}, 2, 0, &team));
            CHECK_ZERO(check_sums(team, (int[]){1, 0}, 2, NULL, i));
            symm_team_destroy(team);
        }
    } else if (me >= 5) {
        for (int i = 0; i < 20; i++) {
            CHECK_OK(symm_team_split(part, 0, 0, &team));
            CHECK_OK(symm_rendezvous(team));
            symm_team_destroy(team);
        }
    }
    atomic_fetch_add(&s->come, 1);
    CHECK_OK(symm_all_reduce(world, &one, &sum, 1, SYMM_INT32, SYMM_SUM, NULL, NULL));
    CHECK(sum == 7);
    return 0;
}

static void others_are_elsewhere(void **state)
{
    assert_int_equal(harness_run_both(job(*state, 7, body_elsewhere)), 0);
}

/* ---- Threads ------------------------------------------------------------------------- */

#define THREADS 3

struct worker {
    symm_ctx *ctx;
    struct shared *s;
    int rank, ranks, thread, failed;
};

/*
 * Thread 0 goes forward through the lists, thread 1 backward, each with a key of its own; odd
 * ranks' threads begin later. Thread 2 splits the world and has rendezvous meanwhile.
 */
static int work_of(struct worker *w)
{
    symm_team *world = symm_team_world(w->ctx), *team = NULL;
    const int creations = HARNESS_SLOW ? 12 : 30;
    void *stream = NULL;
    CHECK_OK(symm_stream_create(w->ctx, &stream));
    if (w->thread == 2) {
        for (int i = 0; i < creations; i++) {
            CHECK_OK(symm_team_split(world, 0, 0, &team));
            CHECK_OK(symm_rendezvous(team));
            symm_team_destroy(team);
        }
    }
    for (int i = 0; i < creations && w->thread < 2; i++) {
        uint64_t seed = 5 + (uint64_t)(w->thread == 0 ? i : creations - 1 - i);
        int ranks[HARNESS_MAX_RANKS], size = random_list(&seed, w->ranks, ranks);
        if (!lists(ranks, size, w->rank))
            continue;
        if (w->rank % 2 == 1 && i % 5 == 0)
            harness_sleep(1e-3 * w->thread);
        CHECK_OK(symm_team_create(world, ranks, size, SERIAL + w->thread, &team));
        CHECK_ZERO(check_sums(team, ranks, size, stream, i));
        symm_team_destroy(team);
    }
    symm_stream_destroy(w->ctx, stream);
    return 0;
}

static void *work_thread(void *arg)
{
    struct worker *w = arg;
    w->failed = work_of(w);
    return NULL;
}

static int body_threads(symm_ctx *ctx, void *arg)
{
    struct worker w[THREADS];
    pthread_t threads[THREADS];
    int ranks = symm_team_size(symm_team_world(ctx));
    for (int t = 0; t < THREADS; t++) {
        w[t] = (struct worker){ctx,   arg, symm_team_rank(symm_team_world(ctx)),
                               ranks, t,   0};
        CHECK(pthread_create(&threads[t], NULL, work_thread, &w[t]) == 0);
    }
    for (int t = 0; t < THREADS; t++)
        CHECK(pthread_join(threads[t], NULL) == 0);
    for (int t = 0; t < THREADS; t++)
        CHECK(!w[t].failed);
    CHECK_OK(symm_barrier(symm_team_world(ctx), NULL, NULL));
    return 0;
}

static void threads_with_keys(void **state)
{
    static const int ranks[] = {2, 5};
    for (int i = 0; i < 2; i++)
        assert_int_equal(harness_run_both(job(*state, ranks[i], body_threads)), 0);
}

/* A second thread with the same key is refused, and harms nobody. */
static void *wait_thread(void *arg)
{
    struct worker *w = arg;
    symm_team *team = NULL;
    do
        w->failed =
            symm_team_create(symm_team_world(w->ctx), (int[]){0, 1}, 2, 7, &team);
    while (w->failed == SYMM_ERR_BUSY); /* the other thread was first */
    symm_team_destroy(team);
    return NULL;
}

static int body_busy(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *team = NULL;
    int me = symm_team_rank(world);
    if (me == 0) {
        struct worker w = {.ctx = ctx};
        pthread_t thread;
        symm_status status;
        CHECK(pthread_create(&thread, NULL, wait_thread, &w) == 0);
        do /* until the thread is there */
            status = symm_team_create(world, (int[]){0}, 1, 7, &team);
        while (status == SYMM_OK && (symm_team_destroy(team), true));
        CHECK_STATUS(status, SYMM_ERR_BUSY);
        CHECK_ERROR("key 7");
        CHECK_OK(symm_team_create(world, (int[]){0}, 1, 8, &team));
        symm_team_destroy(team);
        atomic_store(&s->come, 1);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(w.failed == SYMM_OK);
    } else {
        CHECK(harness_until(&s->come, 1));
        CHECK_OK(symm_team_create(world, (int[]){0, 1}, 2, 7, &team));
        symm_team_destroy(team);
    }
    return 0;
}

static void one_call_of_a_key(void **state)
{
    struct shared *s = *state;
    struct harness h = job(s, 2, body_busy);
    assert_int_equal(harness_run(&h), 0);
    h = job(s, 2, body_busy);
    h.mode = HARNESS_THREADS;
    assert_int_equal(harness_run(&h), 0);
}

/* ---- Errors -------------------------------------------------------------------------- */

static int body_arguments(symm_ctx *ctx, void *arg)
{
    symm_team *world = symm_team_world(ctx), *team = world;
    int me = symm_team_rank(world), all[] = {2, 1, 0};
    int beyond[] = {me, 3}, below[] = {-1, me}, twice[] = {me, 0, 0};
    int others[] = {(me + 1) % 3, (me + 2) % 3};
    (void)arg;
    for (int i = 0; i < 20; i++) {
        CHECK_STATUS(symm_team_create(NULL, all, 3, 0, &team), SYMM_ERR_INVALID);
        CHECK_ERROR("symm_team_create: the team is NULL");
        CHECK_STATUS(symm_team_create(world, NULL, 3, 0, &team), SYMM_ERR_INVALID);
        CHECK_ERROR("symm_team_create: ranks is NULL");
        CHECK_STATUS(symm_team_create(world, all, 3, 0, NULL), SYMM_ERR_INVALID);
        CHECK_ERROR("symm_team_create: team is NULL");
        for (int n = -1; n < 5; n += n == 0 ? 4 : 1)
            CHECK_STATUS(symm_team_create(world, all, n, 0, &team), SYMM_ERR_INVALID);
        CHECK_ERROR("4 ranks of a team of 3");
        CHECK_STATUS(symm_team_create(world, beyond, 2, 0, &team), SYMM_ERR_INVALID);
        CHECK_ERROR("ranks[1] is 3");
        CHECK_STATUS(symm_team_create(world, below, 2, 0, &team), SYMM_ERR_INVALID);
        CHECK_ERROR("ranks[0] is -1");
        CHECK_STATUS(symm_team_create(world, twice, 3, 0, &team), SYMM_ERR_INVALID);
        CHECK_ERROR("is 0, for a second time");
        CHECK_STATUS(symm_team_create(world, others, 2, 0, &team), SYMM_ERR_INVALID);
        CHECK_ERROR("is not among the 2 ranks");
        CHECK(team == world);
    }
    CHECK_OK(symm_team_create(world, all, 3, -5, &team));
    CHECK_ZERO(check_sums(team, all, 3, NULL, 0));
    symm_team_destroy(team);
    return 0;
}

static void wrong_arguments(void **state)
{
    assert_int_equal(harness_run_both(job(*state, 3, body_arguments)), 0);
}

/* One rank does not come; all the others are told which, and call again with it. */
static int body_missing(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *team = NULL;
    int me = symm_team_rank(world), list[] = {3, 0, 2};
    char name[16];
    snprintf(name, sizeof(name), "rank %d ", s->victim);
    CHECK_ZERO(harness_sync_wait(&s->sync, 4));
    for (int round = 0; me != 1 && round < 3; round++) {
        if (me != s->victim) {
            s->status[me] = symm_team_create(world, list, 3, 0, &team);
            snprintf(s->sentence[me], sizeof(s->sentence[me]), "%s", symm_last_error());
            CHECK_STATUS(s->status[me], SYMM_ERR_TIMEOUT);
            CHECK_ERROR("not come to symm_team_create of [3 0 2] of world with key 0");
            CHECK_MESSAGE(strstr(s->sentence[me], name), "%s", s->sentence[me]);
            atomic_fetch_add(&s->passed, 1);
        } else {
            CHECK(harness_until(&s->passed, 4 * round + 2));
        }
        if (me == s->victim)
            atomic_fetch_add(&s->passed, 2); /* the next round */
        else
            CHECK(harness_until(&s->passed, 4 * round + 4));
    }
    CHECK_ZERO(harness_sync_wait(&s->sync, 4));
    if (me != 1) {
        symm_status status = SYMM_ERR_TIMEOUT;
        for (int i = 0; i < 50 && status == SYMM_ERR_TIMEOUT; i++)
            status = symm_team_create(world, list, 3, 0, &team);
        CHECK_STATUS(status, SYMM_OK);
        CHECK_ZERO(harness_sync_wait(&s->sync, 4));
        symm_team_destroy(team);
    } else {
        CHECK_ZERO(harness_sync_wait(&s->sync, 4));
    }
    return 0;
}

static void missing_ranks_are_named(void **state)
{
    static const int victims[] = {0, 2, 3};
    struct shared *s = *state;
    for (int mode = 0; mode < 6; mode++) {
        struct harness h = job(s, 4, body_missing);
        s->victim = victims[mode / 2];
        s->timeout = SHORT;
        h.mode = mode % 2 ? HARNESS_THREADS : HARNESS_PROCESSES;
        h.configure = configure_timeout;
        assert_int_equal(harness_run(&h), 0);
    }
}

/* Ranks make other teams first, with another key, before the last one comes. */
static int body_late(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *team, *other;
    int me = symm_team_rank(world);
    if (me == 2)
        CHECK(harness_until(&s->come, 2));
    else
        for (int i = 0; i < 5; i++) {
            CHECK_OK(symm_team_create(world, (int[]){0, 1}, 2, 1, &other));
            symm_team_destroy(other);
        }
    atomic_fetch_add(&s->come, 1);
    CHECK_OK(symm_team_create(world, (int[]){0, 1, 2}, 3, 0, &team));
    CHECK_ZERO(check_sums(team, (int[]){0, 1, 2}, 3, NULL, 0));
    symm_team_destroy(team);
    return 0;
}

static void late_ranks_are_awaited(void **state)
{
    struct shared *s = *state;
    for (int mode = HARNESS_PROCESSES; mode <= HARNESS_THREADS; mode++) {
        struct harness h = job(s, 3, body_late);
        h.mode = (enum harness_mode)mode;
        assert_int_equal(harness_run(&h), 0);
    }
}

/* Ranks 0 and 1 give different lists; rank 2 waits with rank 1, rank 3 with rank 0. */
static int body_differ(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *team = NULL;
    int me = symm_team_rank(world);
    int one[] = {0, 1, 3}, other[] = {2, 1, 0};
    for (int i = 0; i < 5; i++) {
        CHECK_ZERO(harness_sync_wait(&s->sync, 4));
        CHECK_STATUS(symm_team_create(world, me % 3 == 0 ? one : other, 3, 4, &team),
                     SYMM_ERR_MISMATCH);
        CHECK_ERROR("[0 1 3] of world with key 4");
        CHECK_ERROR("[2 1 0] of world with key 4");
        CHECK(team == NULL);
        if (me < 2) /* they may agree at once */
            CHECK_OK(symm_team_create(world, (int[]){1, 0}, 2, 4, &team));
        symm_team_destroy(team);
        team = NULL;
    }
    /* The same ranks in another order. */
    CHECK_ZERO(harness_sync_wait(&s->sync, 4));
    CHECK_STATUS(symm_team_create(world, me ? (int[]){0, 1, 2, 3} : (int[]){0, 1, 3, 2},
                                  4, 4, &team),
                 SYMM_ERR_MISMATCH);
    CHECK_ERROR("[0 1 2 3]");
    CHECK_ERROR("[0 1 3 2]");
    CHECK_OK(symm_team_create(world, (int[]){0, 1, 2, 3}, 4, 4, &team));
    CHECK_ZERO(check_sums(team, (int[]){0, 1, 2, 3}, 4, NULL, 3));
    symm_team_destroy(team);
    CHECK_OK(symm_barrier(world, NULL, NULL));
    return 0;
}

static void different_lists(void **state)
{
    assert_int_equal(harness_run_both(job(*state, 4, body_differ)), 0);
}

/* ---- Deaths -------------------------------------------------------------------------- */

static void *die_later(void *arg)
{
    struct shared *s = arg;
    harness_sleep(s->delay);
    raise(SIGKILL);
    return NULL;
}

/* A member dies: before it comes, or at some moment of the call. */
static int body_death(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *team = NULL, *rest = NULL;
    int me = symm_team_rank(world), one = 1;
    char name[16];
    pthread_t thread;
    snprintf(name, sizeof(name), "rank %d ", s->victim);
    CHECK_ZERO(harness_sync_wait(&s->sync, 4));
    if (me == s->victim && s->delay < 0)
        raise(SIGKILL);
    if (me == s->victim)
        CHECK(pthread_create(&thread, NULL, die_later, s) == 0);
    double start = harness_now();
    symm_status status = SYMM_OK;
    for (int i = 0; status == SYMM_OK; i++) { /* over and over until it dies */
        symm_team_destroy(team);
        team = NULL;
        status = symm_team_create(world, (int[]){0, 1, 2, 3}, 4, 0, &team);
        if (status == SYMM_OK)
            status =
                symm_all_reduce(team, &one, &one, 1, SYMM_INT32, SYMM_MAX, NULL, NULL);
    }
    CHECK_STATUS(status, SYMM_ERR_PEER_DEAD);
    CHECK_ERROR(name);
    CHECK(harness_now() - start < HARNESS_SOON);
    /* The others make a team of their own, of the parent that has a dead rank. */
    int list[3], n = 0;
    for (int r = 0; r < 4; r++)
        if (r != s->victim)
            list[n++] = r;
    CHECK_OK(symm_team_create(world, list, 3, 0, &rest));
    CHECK_ZERO(check_sums(rest, list, 3, NULL, 2));
    CHECK_ZERO(check_memory(rest));
    CHECK_ZERO(harness_sync_wait(&s->sync, 3));
    symm_team_destroy(team);
    symm_team_destroy(rest);
    return 0;
}

static void members_die(void **state)
{
    struct shared *s = *state;
    uint64_t seed = 3;
    for (int i = 0; i < (HARNESS_SLOW ? 8 : 24); i++) {
        struct harness h = job(s, 4, body_death);
        s->victim = i % 4;
        s->delay = i < 4 ? -1 : 1e-5 * (double)(harness_random(&seed) % 3000);
        h.killed = 1u << s->victim;
        assert_int_equal(harness_run(&h), 0);
    }
}

/* The parent fails and a rank that is no member dies: the team goes on. */
static int body_parent(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *team = NULL, *later = NULL;
    int me = symm_team_rank(world), list[] = {2, 0};
    if (me != 1)
        CHECK_OK(symm_team_create(world, list, 2, 0, &team));
    CHECK_ZERO(harness_sync_wait(&s->sync, 3));
    if (me == 1)
        raise(SIGKILL);
    CHECK_STATUS(symm_barrier(world, NULL, NULL), SYMM_ERR_PEER_DEAD);
    for (int i = 0; i < 50; i++)
        CHECK_ZERO(check_sums(team, list, 2, NULL, i));
    CHECK_ZERO(check_memory(team));
    CHECK_OK(symm_team_create(world, list, 2, 0, &later)); /* of a failed parent */
    CHECK_ZERO(check_sums(later, list, 2, NULL, 1));
    CHECK_ZERO(harness_sync_wait(&s->sync, 2));
    symm_team_destroy(team);
    symm_team_destroy(later);
    return 0;
}

static void parents_fail(void **state)
{
    struct harness h = job(*state, 3, body_parent);
    h.killed = 1u << 1;
    assert_int_equal(harness_run(&h), 0);
}

/* A rank that has finalized is named at once. */
static int body_finalized(symm_ctx *ctx, void *arg)
{
    (void)arg;
    symm_config config = harness_config();
    symm_team *team = NULL;
    CHECK_OK(symm_init(&config, &ctx));
    if (symm_team_rank(symm_team_world(ctx)) == 1) {
        double start = harness_now();
        CHECK_STATUS(symm_team_create(symm_team_world(ctx), (int[]){0, 1}, 2, 0, &team),
                     SYMM_ERR_PEER_DEAD);
        CHECK_ERROR("rank 0 has finalized");
        CHECK(harness_now() - start < HARNESS_SOON);
    }
    symm_finalize(ctx);
    return 0;
}

static void finalized_ranks(void **state)
{
    struct harness h = job(*state, 2, body_finalized);
    h.without_ctx = true;
    assert_int_equal(harness_run_both(h), 0);
}

/* ---- Nothing is left ----------------------------------------------------------------- */

static int descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

static long resident_pages(void)
{
    long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%ld %ld", &size, &resident) != 2)
        resident = 0;
    if (file)
        fclose(file);
    return resident;
}

static int body_leaks(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    symm_team *world = symm_team_world(ctx), *team, *kept[8];
    symm_info info = {.size = sizeof(info)}, after = info;
    int me = symm_team_rank(world), fds = 0, made;
    const int creations = HARNESS_SLOW ? 100 : 500;
    long pages = 0;
    for (int i = 0; i < creations; i++) {
        CHECK_OK(symm_team_create(world, (int[]){1, 0, 2}, 3, i % 7, &team));
        if (i % 50 == 0)
            CHECK_ZERO(check_memory(team));
        symm_team_destroy(team);
        CHECK_ZERO(harness_sync_wait(&s->sync, 3));
        if (i == 20) {
            CHECK_OK(symm_ctx_info(ctx, &info));
            fds = me == 0 ? descriptors() : 0; /* threads have one table */
            pages = me == 0 ? resident_pages() : 0;
        }
        CHECK_ZERO(harness_sync_wait(&s->sync, 3));
    }
    CHECK_OK(symm_ctx_info(ctx, &after));
    CHECK_MESSAGE(after.committed_bytes == info.committed_bytes, "%zu bytes, then %zu",
                  info.committed_bytes, after.committed_bytes);
    CHECK_MESSAGE(me > 0 || descriptors() == fds, "not %d descriptors as before", fds);
    CHECK_ZERO(harness_sync_wait(&s->sync, 3));
    if (!HARNESS_SLOW && me == 0)
        CHECK_MESSAGE(resident_pages() < pages + 512, "%ld pages, then %ld", pages,
                      resident_pages());
    /* All of the heap's 8 ranges can be had, and no more: all ranks are told. */
    for (made = 0; made < 8; made++)
        CHECK_OK(symm_team_create(world, (int[]){0, 1, 2}, 3, 0, &kept[made]));
    CHECK_STATUS(symm_team_create(world, (int[]){0, 1, 2}, 3, 0, &team),
                 SYMM_ERR_NOMEM);
    CHECK_ERROR("no address range");
    CHECK_ZERO(harness_sync_wait(&s->sync, 3));
    for (made = 0; made < 8; made++)
        symm_team_destroy(kept[made]);
    CHECK(me < 3);
    return 0;
}

static void nothing_is_left(void **state)
{
    assert_int_equal(harness_run_both(job(*state, 3, body_leaks)), 0);
}

int main(void)
{
    struct CMUnitTest tests[] = {cmocka_unit_test(random_lists),
                                 cmocka_unit_test(lists_of_parts),
                                 cmocka_unit_test(others_are_elsewhere),
                                 cmocka_unit_test(threads_with_keys),
                                 cmocka_unit_test(one_call_of_a_key),
                                 cmocka_unit_test(wrong_arguments),
                                 cmocka_unit_test(missing_ranks_are_named),
                                 cmocka_unit_test(late_ranks_are_awaited),
                                 cmocka_unit_test(different_lists),
                                 cmocka_unit_test(members_die),
                                 cmocka_unit_test(parents_fail),
                                 cmocka_unit_test(finalized_ranks),
                                 cmocka_unit_test(nothing_is_left)};
    cmocka_set_test_filter(getenv("SYMM_TEST_ONLY"));
    struct shared *shared = harness_shared(sizeof(*shared));
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        tests[i].initial_state = shared;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
