/* SPDX-License-Identifier: MIT */
/*
 * test_host_sight.c - the page that tools read: another process finds it by its name, maps it for
 * reading alone, and sees teams, sites, calls with their states, who waits for whom, and
 * failures. SYMM_SIGHT=0: there is none. A ring that has gone round keeps the last calls.
 */
#include "harness.h"
#include "sight/read.h"
#include "sight/sight.h"
#include "sight_page.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define RANKS 3
#define COUNT ((size_t)8)

struct job {
    _Atomic int pid[RANKS], go, looked;
    const char *level; /* SYMM_SIGHT; NULL: not set */
    bool slow;         /* a wait lasts until it has been looked at */
};

static struct job *job;

/* The last call of the site; NULL: none. */
static const struct symm_sight_call *call_of(const struct symm_sight_page *page,
                                             const struct symm_sight_site *site)
{
    const struct symm_sight_call *last = NULL;

    for (int i = 0; site && i < SYMM_SIGHT_CALLS; i++) {
        const struct symm_sight_call *call = &page->call[i];

        if (call->word != 0 && call->site == site->id &&
            (!last || call->word >> 8 > last->word >> 8))
            last = call;
    }
    return last;
}

static int state_of(const struct symm_sight_page *page, const char *op,
                    const char *name)
{
    const struct symm_sight_call *call = call_of(page, sight_page_site(page, op, name));

    return call ? (int)(call->word & 0xff) : 0;
}

static symm_status reduce(symm_ctx *ctx, float *data, const char *site, void *stream,
                          double timeout)
{
    const symm_call call = {
        .size = sizeof(call), .site = site, .stream = stream, .timeout = timeout};

    return symm_all_reduce(symm_team_world(ctx), data, data, COUNT, SYMM_FLOAT32,
                           SYMM_SUM, &call, NULL);
}

/* ---- What is there --------------------------------------------------------------------- */

static int body_seen(symm_ctx *ctx, void *arg)
{
    float data[COUNT] = {0};
    int me = harness_rank();

    (void)arg;
    CHECK_OK(symm_team_set_name(symm_team_world(ctx), "all of us"));
    for (int i = 0; i < 5; i++)
        CHECK_OK(reduce(ctx, data, "layer 1", NULL, 0));
    CHECK_OK(symm_signal(symm_team_world(ctx), (me + 1) % RANKS, 3,
                         &(symm_call){.size = sizeof(symm_call), .site = "next"},
                         NULL));
    CHECK_OK(symm_signal_wait(symm_team_world(ctx), (me + RANKS - 1) % RANKS, 3,
                              &(symm_call){.size = sizeof(symm_call), .site = "next"},
                              NULL));
    atomic_store(&job->pid[me], (int)getpid());
    CHECK(harness_until(&job->go, 1));
    if (me != 2 || !job->slow)
        CHECK_OK(reduce(ctx, data, "late", NULL, 0));
    if (me == 2 && job->slow) {
        CHECK(harness_until(&job->looked, 1));
        CHECK_OK(reduce(ctx, data, "late", NULL, 0));
    }
    return 0;
}

/* Until rank 0 waits for rank 2 in its call. */
static bool await_wait(const struct symm_sight_page *page)
{
    for (int i = 0; i < 20000; i++, harness_sleep(0.001))
        for (int w = 0; w < SYMM_SIGHT_WAITS; w++)
            if (page->wait[w].since != 0 && page->wait[w].missing == 1)
                return page->wait[w].awaited[0] == 2 &&
                       strcmp(page->wait[w].name, "late") == 0 &&
                       strcmp(page->wait[w].op, "all_reduce") == 0;
    return false;
}

static void direct_seen(const pid_t *ranks, int count, void *arg)
{
    const struct symm_sight_page *page;
    const struct symm_sight_site *site;
    const struct symm_sight_call *call;
    char name[256];
    int *bad = arg;

    for (int r = 0; r < count; r++)
        (void)harness_until(&job->pid[r], (int)ranks[r]);
    page = sight_page_open((int)ranks[0], name, sizeof(name));
    if (!page || page->magic != SYMM_SIGHT_MAGIC || page->layout != SYMM_SIGHT_LAYOUT ||
        page->rank != 0 || page->size != RANKS || page->pid != (int)ranks[0] ||
        strncmp(name + 7, "symm-", 5) != 0 || !strstr(name, "-0 (deleted)"))
        *bad = __LINE__;
    if (*bad) {
        atomic_store(&job->looked, 1);
        atomic_store(&job->go, 1);
        return;
    }
    if (page->team[0].uid == 0 || strcmp(page->team[0].name, "all of us") != 0 ||
        page->team[0].size != RANKS || page->team[0].member[2] != 2)
        *bad = __LINE__;
    site = sight_page_site(page, "all_reduce", "layer 1");
    call = call_of(page, site);
    if (!site || site->calls != 5 || site->count != COUNT ||
        site->bytes != COUNT * sizeof(float) || strcmp(site->dtype, "float32") != 0 ||
        strcmp(site->reduction, "sum") != 0 || !*site->reason || !*site->algorithm ||
        (page->times ? site->timed != 5 || site->ticks == 0 : site->timed != 0))
        *bad = __LINE__;
    else if (!call || (call->word & 0xff) != SYMM_SIGHT_DONE || call->epoch == 0 ||
             (page->times ? call->end <= call->begin : call->end != 0))
        *bad = __LINE__;
    if (state_of(page, "signal", "next") != SYMM_SIGHT_DONE ||
        state_of(page, "signal_wait", "next") != SYMM_SIGHT_DONE ||
        sight_page_site(page, "signal", "next")->root != 1 ||
        sight_page_site(page, "signal", "next")->signal != 3)
        *bad = __LINE__;
    atomic_store(&job->go, 1);
    if (job->slow && (!await_wait(page) ||
                      state_of(page, "all_reduce", "late") != SYMM_SIGHT_RUNNING))
        *bad = __LINE__;
    atomic_store(&job->looked, 1);
    munmap((void *)(uintptr_t)page, sizeof(*page));
}

static int run_seen(const char *level, bool slow)
{
    int bad = 0;
    struct harness h = {
        .ranks = RANKS, .body = body_seen, .arg = &bad, .direct = direct_seen};

    memset(job, 0, sizeof(*job));
    job->slow = slow;
    if (level)
        setenv("SYMM_SIGHT", level, 1);
    else
        unsetenv("SYMM_SIGHT");
    if (harness_run(&h) != 0)
        return -1;
    unsetenv("SYMM_SIGHT");
    return bad;
}

static void test_seen(void **state)
{
    (void)state;
    assert_int_equal(run_seen(NULL, true), 0);
}

static void test_timed(void **state)
{
    (void)state;
    assert_int_equal(run_seen("1", false), 0);
}

/* ---- What is not ------------------------------------------------------------------------- */

static void direct_hidden(const pid_t *ranks, int count, void *arg)
{
    char name[256];

    for (int r = 0; r < count; r++) {
        (void)harness_until(&job->pid[r], (int)ranks[r]);
        if (sight_page_open((int)ranks[r], name, sizeof(name)))
            *(int *)arg = __LINE__;
    }
    atomic_store(&job->go, 1);
}

static void test_hidden(void **state)
{
    int bad = 0;
    struct harness h = {
        .ranks = RANKS, .body = body_seen, .arg = &bad, .direct = direct_hidden};

    (void)state;
    memset(job, 0, sizeof(*job));
    setenv("SYMM_SIGHT", "0", 1);
    assert_int_equal(harness_run(&h), 0);
    unsetenv("SYMM_SIGHT");
    assert_int_equal(bad, 0);
}

static int body_refused(symm_ctx *ctx, void *arg)
{
    symm_config config = harness_config();

    (void)arg;
    CHECK_STATUS(symm_init(&config, &ctx), SYMM_ERR_INVALID);
    CHECK(strstr(symm_last_error(), "SYMM_SIGHT") != NULL);
    return 0;
}

static void test_refused(void **state)
{
    struct harness h = {.ranks = 1, .body = body_refused, .without_ctx = true};

    (void)state;
    setenv("SYMM_SIGHT", "much", 1);
    assert_int_equal(harness_run(&h), 0);
    unsetenv("SYMM_SIGHT");
}

/* ---- Many calls and sites, streams, failures --------------------------------------------- */

/* The own page, as this process has it. */
static const struct symm_sight_page *own_page(void)
{
    char name[256];

    return sight_page_open((int)getpid(), name, sizeof(name));
}

static int body_many(symm_ctx *ctx, void *arg)
{
    float data[COUNT] = {0}, queued[COUNT] = {0};
    const struct symm_sight_page *page = own_page();
    const struct symm_sight_site *site;
    char name[32];
    void *stream;

    (void)arg;
    CHECK(page != NULL);
    CHECK_OK(symm_stream_create(ctx, &stream));
    for (int i = 0; i < SYMM_SIGHT_SITES + 100; i++) {
        snprintf(name, sizeof(name), "site %d", i);
        CHECK_OK(reduce(ctx, data, name, NULL, 0));
    }
    CHECK(sight_page_site(page, "all_reduce", "site 5") == NULL);
    /* Its description has gone, and comes again. */
    CHECK_OK(reduce(ctx, data, "site 5", NULL, 0));
    site = sight_page_site(page, "all_reduce", "site 5");
    CHECK(site && site->calls == 1);
    for (int i = 0; i < 3000; i++)
        CHECK_OK(reduce(ctx, i % 2 ? queued : data, "again", i % 2 ? stream : NULL, 0));
    CHECK_OK(symm_stream_synchronize(ctx, stream, 0));
    for (int i = 0; i < SYMM_SIGHT_CALLS;
         i++) /* for the places of calls that were queued */
        CHECK_OK(reduce(ctx, data, "again", NULL, 0));
    for (int i = 0; i < SYMM_SIGHT_CALLS; i++) {
        const uint64_t word = page->call[i].word;

        CHECK((word >> 8) % SYMM_SIGHT_CALLS == (uint64_t)i);
        CHECK(word >> 8 > page->calls - SYMM_SIGHT_CALLS);
        CHECK((word & 0xff) == SYMM_SIGHT_DONE);
    }
    symm_stream_destroy(ctx, stream);
    return 0;
}

static void test_many(void **state)
{
    struct harness h = {.ranks = 2, .body = body_many};

    (void)state;
    assert_int_equal(harness_run(&h), 0);
}

static int body_fails(symm_ctx *ctx, void *arg)
{
    float data[COUNT] = {0};
    const struct symm_sight_page *page = own_page();

    (void)arg;
    CHECK(page != NULL);
    if (harness_rank() == 1) {
        CHECK(harness_until(&job->go, 1));
        return 0;
    }
    CHECK_STATUS(reduce(ctx, data, "alone", NULL, 0.05), SYMM_ERR_TIMEOUT);
    atomic_store(&job->go, 1);
    CHECK(state_of(page, "all_reduce", "alone") == SYMM_SIGHT_FAILED);
    CHECK(page->failures == 1 && page->failure[0].status == SYMM_ERR_TIMEOUT);
    CHECK(strstr(symm_last_error(), page->failure[0].sentence) == symm_last_error());
    CHECK(page->failure[0].team_uid == page->team[0].uid);
    for (int w = 0; w < SYMM_SIGHT_WAITS; w++)
        CHECK(page->wait[w].since == 0 && page->wait[w].claimed == 0);
    return 0;
}

static void test_fails(void **state)
{
    struct harness h = {.ranks = 2, .body = body_fails};

    (void)state;
    memset(job, 0, sizeof(*job));
    assert_int_equal(harness_run(&h), 0);
}

/* ---- Calls between two ranks ------------------------------------------------------------- */

/* The step of the site's last call; 0: there is none. */
static uint32_t step_of(const struct symm_sight_page *page, const char *op,
                        const char *name)
{
    const struct symm_sight_site *site = sight_page_site(page, op, name);
    const struct symm_sight_call *call = call_of(page, site);

    return call && site->channel == SYMM_SIGHT_PAIRS ? call->epoch : 0;
}

static int send_all(symm_team *team, void *stream)
{
    const symm_call call = {.size = sizeof(call), .site = "m", .stream = stream};
    const symm_p2p_op both[] = {
        {.size = sizeof(both[0]), .peer = 1, .dtype = SYMM_INT8},
        {.size = sizeof(both[0]), .peer = 1, .dtype = SYMM_INT8}};

    CHECK_OK(symm_send(team, NULL, 0, SYMM_INT8, 1, &call, NULL));
    CHECK_OK(symm_p2p_batch(team, both, 2, &call, NULL));
    CHECK_OK(symm_send(team, NULL, 0, SYMM_INT8, 1, &call, NULL));
    return 0;
}

static int receive_all(symm_ctx *ctx, symm_team *team, void *stream)
{
    symm_call call = {.size = sizeof(call), .site = "any", .stream = stream};

    CHECK_OK(symm_recv(team, NULL, 0, SYMM_INT8, SYMM_ANY_PEER, &call, NULL));
    /* The sender is known, and the message counted with it, when it has come. */
    if (stream)
        CHECK_OK(symm_stream_synchronize(ctx, stream, 0));
    call.site = "m";
    for (int i = 0; i < 3; i++)
        CHECK_OK(symm_recv(team, NULL, 0, SYMM_INT8, 0, &call, NULL));
    return 0;
}

static int body_pairs(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    const symm_call call = {.size = sizeof(call), .site = "c"};
    const struct symm_sight_page *page = own_page();
    const int peer = 1 - harness_rank();
    void *stream = NULL;

    CHECK(page != NULL);
    if (*(bool *)arg)
        CHECK_OK(symm_stream_create(ctx, &stream));
    for (int i = 0; i < 3; i++)
        CHECK_OK(symm_put(team, NULL, NULL, 0, peer, &call, NULL));
    CHECK_OK(symm_put(team, NULL, NULL, 0, harness_rank(),
                      &(symm_call){.size = sizeof(call), .site = "self"}, NULL));
    CHECK(step_of(page, "put", "self") == 1 && step_of(page, "put", "c") == 3);
    CHECK_OK(symm_put(team, NULL, NULL, 0, peer, &call, NULL));
    CHECK_OK(symm_get(team, NULL, NULL, 0, peer, &call, NULL));
    CHECK(step_of(page, "get", "c") == 1);
    for (int i = 0; i < 2; i++)
        CHECK_OK(symm_put_signal(team, NULL, NULL, 0, peer, 9, &call, NULL));
    CHECK_OK(symm_signal(team, peer, 8, &call, NULL));
    CHECK_OK(symm_signal(team, peer, 9, &call, NULL));
    for (int i = 0; i < 3; i++)
        CHECK_OK(symm_signal_wait(team, peer, 9, &call, NULL));
    CHECK(step_of(page, "put_signal", "c") == 2);
    CHECK(step_of(page, "signal_wait", "c") == 3);
    CHECK_ZERO(harness_rank() == 0 ? send_all(team, stream)
                                   : receive_all(ctx, team, stream));
    if (stream)
        CHECK_OK(symm_stream_synchronize(ctx, stream, 0));
    if (harness_rank() == 0)
        CHECK(step_of(page, "send", "m") == 4 && step_of(page, "p2p_batch", "m") == 1);
    else
        CHECK(step_of(page, "recv", "any") == 1 && step_of(page, "recv", "m") == 4);
    CHECK_OK(symm_barrier(team, NULL, NULL));
    if (stream)
        symm_stream_destroy(ctx, stream);
    munmap((void *)(uintptr_t)page, sizeof(*page));
    return 0;
}

static void test_pairs(void **state)
{
    bool queued = false;
    struct harness h = {.ranks = 2, .body = body_pairs, .arg = &queued};

    (void)state;
    assert_int_equal(harness_run(&h), 0);
    queued = true;
    assert_int_equal(harness_run(&h), 0);
}

/* ---- Calls under way, and threads ---------------------------------------------------------- */

#define QUEUED 1200 /* more than there are places */

#define BEFORE (3 * SYMM_SIGHT_CALLS)

/* Each entry is of one call: puts at "queued" have the steps after BEFORE. */
static int check_list(const struct symm_sight_page *page, uint64_t *kept)
{
    *kept = 0;
    for (int i = 0; i < SYMM_SIGHT_CALLS; i++) {
        const struct symm_sight_call *call = &page->call[i];
        const struct symm_sight_site *site = &page->site[call->site % SYMM_SIGHT_SITES];

        if (call->word == 0)
            continue;
        CHECK((call->word >> 8) % SYMM_SIGHT_CALLS == (uint64_t)i);
        CHECK(call->word >> 8 <= page->calls && site->id == call->site);
        CHECK(call->epoch >= 1);
        if (strcmp(site->op, "put") == 0 && strcmp(site->name, "both") != 0)
            CHECK((strcmp(site->name, "queued") == 0) == (call->epoch > BEFORE));
        *kept += (call->word & 0xff) <= SYMM_SIGHT_RUNNING;
    }
    return 0;
}

static int body_kept(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    const struct symm_sight_page *page = own_page();
    const int me = harness_rank();
    symm_call call = {.size = sizeof(call), .site = "blocked"};
    uint64_t kept;

    (void)arg;
    CHECK(page != NULL);
    CHECK_OK(symm_stream_create(ctx, &call.stream));
    CHECK_OK(symm_signal_wait(team, 1 - me, 0, &call, NULL));
    call.site = "put";
    for (int i = 0; i < BEFORE; i++)
        CHECK_OK(symm_put(team, NULL, NULL, 0, me,
                          &(symm_call){.size = sizeof(call), .site = "put"}, NULL));
    /* It was overtaken three times, and has its place. */
    CHECK(step_of(page, "signal_wait", "blocked") == 1);
    for (int i = 0; state_of(page, "signal_wait", "blocked") == SYMM_SIGHT_QUEUED; i++)
        CHECK(i < 20000 && (harness_sleep(0.001), true));
    CHECK(state_of(page, "signal_wait", "blocked") == SYMM_SIGHT_RUNNING);
    CHECK(page->left_out == 0);
    CHECK_ZERO(check_list(page, &kept));
    CHECK(kept == 1);
    call.site = "queued";
    for (int i = 0; i < QUEUED; i++)
        CHECK_OK(symm_put(team, NULL, NULL, 0, me, &call, NULL));
    CHECK_ZERO(check_list(page, &kept));
    CHECK(kept == SYMM_SIGHT_CALLS);
    CHECK(page->left_out == QUEUED - (SYMM_SIGHT_CALLS - 1));
    CHECK(page->whole == page->calls);
    CHECK(sight_page_site(page, "put", "queued")->calls == QUEUED);
    CHECK_OK(symm_barrier(team, NULL, NULL)); /* left out, too */
    CHECK_OK(symm_signal(team, 1 - me, 0, NULL, NULL));
    CHECK_OK(symm_stream_synchronize(ctx, call.stream, 0));
    CHECK_ZERO(check_list(page, &kept));
    CHECK(kept == 0); /* the signal had a place if the peer's had come before it */
    CHECK(page->left_out - (QUEUED - (SYMM_SIGHT_CALLS - 1)) - 1 <= 1);
    CHECK(state_of(page, "signal_wait", "blocked") == SYMM_SIGHT_DONE);
    CHECK_OK(symm_barrier(team, NULL, NULL));
    CHECK(page->calls > page->whole);
    symm_stream_destroy(ctx, call.stream);
    munmap((void *)(uintptr_t)page, sizeof(*page));
    return 0;
}

static void test_kept(void **state)
{
    struct harness h = {.ranks = 2, .body = body_kept};

    (void)state;
    assert_int_equal(harness_run(&h), 0);
}

#define THREADS      2
#define THREAD_CALLS 300000

/* Calls of the site and step of the thread, and of one that all threads share. */
struct caller {
    pthread_t thread;
    struct symm_sight *sight;
    uint32_t own;
    long wrong;
    _Atomic int *running;
};

static void *call_often(void *arg)
{
    struct caller *c = arg;

    for (int i = 0; i < THREAD_CALLS; i++) {
        const uint32_t site = i % 2 ? c->own : THREADS + 1;
        const uint64_t number =
            symm__sight_begin(c->sight, site, site, SYMM_SIGHT_QUEUED);
        const struct symm_sight_call *call;

        symm__sight_run(c->sight, number, site);
        call = symm__sight_call(c->sight, number);
        c->wrong += !call || call->site != site || call->epoch != site;
        symm__sight_end(c->sight, number, SYMM_SIGHT_DONE);
    }
    atomic_fetch_sub(c->running, 1);
    return NULL;
}

/* As a tool reads it: the entries are whole, and page->calls is the newest. */
static long read_often(int fd, struct symm_sight_page *copy, _Atomic int *running)
{
    long wrong = 0;

    do {
        wrong += symm__sight_read(fd, copy) != NULL;
        for (int i = 0; i < SYMM_SIGHT_CALLS; i++) {
            const struct symm_sight_call *call = &copy->call[i];

            wrong += call->word != 0 && (call->site != call->epoch || call->site == 0 ||
                                         call->word >> 8 > copy->calls);
        }
    } while (atomic_load(running) > 0);
    return wrong;
}

/* Threads make calls of one site at a time, while the page is read. */
static void test_threads(void **state)
{
    struct symm_sight sight = {.untimed = UINT64_MAX, .fd = memfd_create("page", 0)};
    struct symm_sight_page *copy = malloc(sizeof(*copy));
    struct caller caller[THREADS];
    _Atomic int running = THREADS;
    long wrong;

    (void)state;
    assert_non_null(copy);
    assert_int_equal(ftruncate(sight.fd, sizeof(*copy)), 0);
    sight.page =
        mmap(NULL, sizeof(*copy), PROT_READ | PROT_WRITE, MAP_SHARED, sight.fd, 0);
    assert_ptr_not_equal(sight.page, MAP_FAILED);
    sight.page->magic = SYMM_SIGHT_MAGIC;
    sight.page->layout = SYMM_SIGHT_LAYOUT;
    sight.page->bytes = sizeof(*copy);
    sight.page->size = 1;
    for (uint32_t i = 1; i <= THREADS + 1; i++) {
        sight.page->site[i].id = i;
        sight.page->site[i].channel = SYMM_SIGHT_PAIRS;
    }
    for (uint32_t t = 0; t < THREADS; t++) {
        caller[t] = (struct caller){.sight = &sight, .own = t + 1, .running = &running};
        assert_int_equal(
            pthread_create(&caller[t].thread, NULL, call_often, &caller[t]), 0);
    }
    wrong = read_often(sight.fd, copy, &running);
    for (int t = 0; t < THREADS; t++) {
        pthread_join(caller[t].thread, NULL);
        wrong += caller[t].wrong;
    }
    assert_int_equal(wrong, 0);
    assert_int_equal(sight.page->left_out, 0);
    assert_int_equal(sight.page->site[THREADS + 1].calls, THREADS * THREAD_CALLS / 2);
    munmap(sight.page, sizeof(*copy));
    close(sight.fd);
    free(copy);
}

/* ---- Names of files ------------------------------------------------------------------------ */

static void test_names(void **state)
{
    const struct symm_sight_config config = {.job = "slurm:7/a b%r\xc3\xa9", .rank = 3};
    struct symm_sight sight = {.fd = -1};
    char name[64], folder[] = "/tmp/symm-sight-XXXXXX", path[128];

    (void)state;
    symm__sight_job("pmix-1.2:prterun@9", name, sizeof(name));
    assert_string_equal(name, "pmix-1.2_prterun_9");
    assert_non_null(mkdtemp(folder));
    setenv("SYMM_DUMP", folder, 1);
    assert_int_equal(symm__sight_save_open(&sight, &config), SYMM_OK);
    unsetenv("SYMM_DUMP");
    symm__sight_job(config.job, name, sizeof(name));
    snprintf(path, sizeof(path), "%s/%s.rank3.json", folder, name);
    assert_string_equal(sight.dump, path);
    assert_string_equal(name, "slurm_7_a_b_r__");
    free(sight.dump);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seen),    cmocka_unit_test(test_timed),
        cmocka_unit_test(test_hidden),  cmocka_unit_test(test_refused),
        cmocka_unit_test(test_many),    cmocka_unit_test(test_fails),
        cmocka_unit_test(test_pairs),   cmocka_unit_test(test_kept),
        cmocka_unit_test(test_threads), cmocka_unit_test(test_names),
    };

    job = mmap(NULL, sizeof(*job), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
               -1, 0);
    if (job == MAP_FAILED)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
