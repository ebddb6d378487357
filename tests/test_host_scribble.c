/* SPDX-License-Identifier: MIT */
/*
 * test_host_scribble.c - shared control memory into which another process writes garbage.
 * ctest: cost 10
 *
 * While two or three ranks make calls in a loop, another process writes random values of
 * 1, 4 and 8 bytes at random offsets of their control pages, or of a team's pads. Every
 * call returns in time, with SYMM_OK or an error with a sentence; no rank crashes; the
 * error of a failed team does not change; then a new job works, until all writes are made.
 * With damaged control pages a call that returns SYMM_OK has the right result; pads also
 * carry data, which is not protected.
 *
 * SYMM_TEST_SCRIBBLES=N sets the number of writes of each test (default 1000000, half with a
 * sanitizer), SYMM_TEST_SEED the first job's seed (default: random). Both are printed.
 */
#include "harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/team.h"
#include "symm/device.h"

#define WRITES       (HARNESS_FEW ? 500000 : 1000000)
#define JOBS_MIN     (HARNESS_FEW ? 40 : 80)
#define COUNT        1000 /* elements */
#define CALL_SECONDS 0.3

enum target { CONTROL_PAGES, PADS };

struct shared {
    enum target target;
    int area;
    uint64_t seed;
    long writes; /* of this job */
    struct harness_sync sync;
    _Atomic long written;           /* of this job, so far */
    _Atomic bool over;              /* the scribbler has ended */
    _Atomic long calls, errors[32]; /* of all jobs; errors by -status */
};

/* ---- The scribbler --------------------------------------------------------------- */

static uint64_t xorshift(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Half of all values are such as could be there. */
static uint64_t pick_value(uint64_t *random, const void *at)
{
    static const uint64_t usual[] = {0,
                                     1,
                                     UINT64_MAX,
                                     SYMM_LIVE_DIED,
                                     SYMM_LIVE_FINISHED,
                                     (uint64_t)SYMM_ERR_DAMAGED};
    uint64_t value = xorshift(random), old;
    switch (value >> 8 & 7) {
    case 0:
        return usual[value % (sizeof(usual) / sizeof(*usual))];
    case 1:
        memcpy(&old, at, sizeof(old));
        return old + 1;
    case 2:
        memcpy(&old, at, sizeof(old));
        return old - 1;
    case 3:
        return value >> 16 & 0xff;
    default:
        return value;
    }
}

/* Where a job is hit: some damage is noticed at once, some should never matter. */
enum { ANYWHERE, NOT_LIVE, RECORDS, WAITING, CONTROL_AREAS };
enum { WHOLE_PAD, WORDS, SITES, COUNTERS, PAD_AREAS };

static char *pick_in_control(uint64_t *random, const symm_ctx *ctx, int area)
{
    struct symm_control *page =
        symm__control(ctx, (int)(xorshift(random) % (uint64_t)ctx->size));
    char *at = (char *)page;
    size_t most = SYMM_CONTROL_HOST_BYTES;
    switch (area) {
    case NOT_LIVE:
        at = (char *)page->reserved1;
        most -= offsetof(struct symm_control, reserved1);
        break;
    case RECORDS:
        at = (char *)page->record;
        most = 2 * sizeof(page->record[0]);
        break;
    case WAITING:
        at = (char *)&page->waiting;
        most = sizeof(page->waiting) + 8;
        break;
    default:
        if (xorshift(random) % 2 == 0)
            most = offsetof(struct symm_control, record);
        break;
    }
    return at + xorshift(random) % (most - 8);
}

static char *pick_in_pad(uint64_t *random, const symm_ctx *ctx, int area)
{
    const symm_team *team = ctx->teams[0];
    struct symm_pad *pad = team->pad[xorshift(random) % (uint64_t)team->size];
    struct symm_slot *slot = &pad->channel[0].slot[xorshift(random) % 2];
    char *at = (char *)pad;
    size_t most = sizeof(*pad);
    switch (area) {
    case WORDS:
        at = (char *)&slot->word;
        most = sizeof(slot->word) + 8;
        if (xorshift(random) % 2 == 0)
            at = (char *)&pad->signals[xorshift(random) % (uint64_t)team->size][2];
        break;
    case SITES:
        at = (char *)&slot->site;
        most = sizeof(slot->site);
        break;
    case COUNTERS:
        at = (char *)pad->wake;
        most = sizeof(pad->wake);
        break;
    default:
        break;
    }
    return at + xorshift(random) % (most - 8);
}

static void scribble(struct shared *s, const symm_ctx *ctx)
{
    static const size_t sizes[] = {1, 4, 8};
    uint64_t random = s->seed | 1;
    for (long i = 0; i < s->writes; i++) {
        char *at = s->target == CONTROL_PAGES ? pick_in_control(&random, ctx, s->area)
                                              : pick_in_pad(&random, ctx, s->area);
        size_t bytes = sizes[xorshift(&random) % 3];
        /* Aligned as the program's own accesses, three times out of four. */
        if (xorshift(&random) % 4 != 0)
            at -= (uintptr_t)at % bytes;
        uint64_t value = pick_value(&random, at);
        memcpy(at, &value, bytes);
        atomic_fetch_add(&s->written, 1);
        if (xorshift(&random) % 512 == 0)
            harness_sleep(1e-4);
    }
    atomic_store(&s->over, true);
}

/* A process of its own with this rank's mappings; it uses nothing else of it. */
static pid_t start_scribbler(struct shared *s, const symm_ctx *ctx)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    (void)close_range(3, ~0u, 0); /* its ends of the sockets would outlive the rank */
    /* Peers' pages are read-only here, but not for a process that wants to harm. */
    for (int r = 0; r < ctx->size; r++)
        if (mprotect(symm__control(ctx, r), SYMM_CONTROL_HOST_BYTES,
                     PROT_READ | PROT_WRITE) != 0)
            _exit(1);
    scribble(s, ctx);
    _exit(0);
}

/* ---- The ranks ------------------------------------------------------------------- */

/* What a rank works with. */
struct work {
    symm_team *team;
    int me, n;
    float *symmetric; /* 2 * COUNT elements */
    float in[COUNT], out[COUNT];
};

static symm_status reduce(struct work *w, float *in, float *out, size_t count,
                          const char *algorithm, bool *right)
{
    const symm_call call = {.size = sizeof(call),
                            .site = "scribbled",
                            .algorithm = algorithm,
                            .timeout = CALL_SECONDS};
    for (size_t i = 0; i < count; i++)
        in[i] = (float)(w->me + 1 + (int)i % 3);
    symm_status status =
        symm_all_reduce(w->team, in, out, count, SYMM_FLOAT32, SYMM_SUM, &call, NULL);
    for (size_t i = 0; status == SYMM_OK && i < count; i++)
        *right &= out[i] == (float)(w->n * (w->n + 1) / 2 + w->n * ((int)i % 3));
    return status;
}

static symm_status act(struct work *w, long step, bool *right)
{
    const symm_call call = {
        .size = sizeof(call), .site = "signalled", .timeout = CALL_SECONDS};
    int to = (w->me + 1) % w->n, from = (w->me + w->n - 1) % w->n;
    symm_status status;
    switch (step % 7) {
    case 0:
        return reduce(w, w->in, w->out, 8, NULL, right);
    case 1:
        return reduce(w, w->in, w->out, COUNT, "copy_in", right);
    case 2:
        return reduce(w, w->symmetric, w->symmetric + COUNT, COUNT, "one_shot_pull",
                      right);
    case 3:
        return reduce(w, w->symmetric, w->symmetric, COUNT, "two_shot_inplace", right);
    case 4:
        return symm_barrier(w->team, &call, NULL);
    case 5:
        status = symm_signal(w->team, to, 2, &call, NULL);
        return status != SYMM_OK ? status
                                 : symm_signal_wait(w->team, from, 2, &call, NULL);
    default:
        return symm_rendezvous(w->team);
    }
}

/* The failed call's error, and what calls after it say. */
static int check_error(struct work *w, struct shared *s, long step, symm_status status,
                       double took)
{
    static const symm_status allowed[] = {SYMM_ERR_TIMEOUT, SYMM_ERR_PEER_DEAD,
                                          SYMM_ERR_MISMATCH, SYMM_ERR_DAMAGED,
                                          SYMM_ERR_ABORTED};
    bool fine = false;
    char sentence[512];
    for (size_t i = 0; i < sizeof(allowed) / sizeof(*allowed); i++)
        fine |= status == allowed[i];
    CHECK_MESSAGE(fine, "step %ld: %s: %s", step, symm_status_name(status),
                  symm_last_error());
    CHECK_MESSAGE(took < HARNESS_SOON, "step %ld took %.3f s", step, took);
    snprintf(sentence, sizeof(sentence), "%s", symm_last_error());
    CHECK(sentence[0] != '\0');
    for (const char *c = sentence; *c != '\0'; c++)
        CHECK_MESSAGE(*c >= ' ' && *c <= '~', "an unprintable byte %d", *c);
    atomic_fetch_add(&s->errors[-(int)status & 31], 1);
    if (step % 7 == 6)
        return 0; /* a rendezvous that fails leaves the team as it was */
    double start = harness_now();
    CHECK_STATUS(symm_barrier(w->team, NULL, NULL), status);
    CHECK(strcmp(sentence, symm_last_error()) == 0);
    CHECK(harness_now() - start < HARNESS_SOON);
    return 0;
}

static int loop(struct work *w, struct shared *s)
{
    bool right = true;
    for (long step = 0;; step++) {
        /* Ranks that see it at different steps find each other gone: an error, too. */
        bool last = step % 64 == 63 && atomic_load(&s->over);
        double start = harness_now();
        symm_status status = act(w, step, &right);
        atomic_fetch_add(&s->calls, 1);
        if (status != SYMM_OK)
            return check_error(w, s, step, status, harness_now() - start);
        CHECK_MESSAGE(right || s->target == PADS, "step %ld: a sum is wrong", step);
        CHECK(harness_now() - start < HARNESS_SOON);
        if (last)
            return 0;
    }
}

static int body(symm_ctx *ctx, void *arg)
{
    struct shared *s = arg;
    const int64_t count = 2 * COUNT, stride = 1;
    static struct work w;
    symm_buffer *buffer = NULL;
    pid_t scribbler = 0;
    w.team = symm_team_world(ctx);
    w.me = symm_team_rank(w.team);
    w.n = symm_team_size(w.team);
    CHECK_OK(
        symm_empty_strided_p2p(w.team, 1, &count, &stride, SYMM_FLOAT32, 1, &buffer));
    CHECK_OK(symm_rendezvous(w.team));
    w.symmetric = symm_buffer_ptr(buffer);
    CHECK_ZERO(harness_sync_wait(&s->sync, w.n));
    if (w.me == 0)
        scribbler = start_scribbler(s, ctx);
    CHECK(scribbler >= 0);
    int failed = loop(&w, s);
    if (scribbler > 0) {
        int status;
        CHECK(waitpid(scribbler, &status, 0) == scribbler);
        CHECK_MESSAGE(status == 0, "the scribbler ended with %d", status);
    }
    symm_buffer_release(buffer);
    return failed;
}

/* ---- Jobs ------------------------------------------------------------------------ */

static void run_jobs(enum target target)
{
    struct shared *s = harness_shared(sizeof(*s));
    uint64_t seed = (uint64_t)harness_env("SYMM_TEST_SEED", 0);
    long total = (long)harness_env("SYMM_TEST_SCRIBBLES", WRITES), left = total;
    double start = harness_now();
    int jobs = 0, failed = 0;
    if (seed == 0)
        seed = (uint64_t)(start * 1e9) | 1;
    printf("seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    for (; failed == 0 && (left > 0 || jobs < JOBS_MIN); jobs++) {
        struct harness h = {.body = body, .arg = s};
        s->target = target;
        s->seed = seed + (uint64_t)jobs * UINT64_C(0x9e3779b97f4a7c15);
        uint64_t random = harness_random(&(uint64_t){s->seed});
        s->area = jobs % (target == CONTROL_PAGES ? CONTROL_AREAS : PAD_AREAS);
        s->writes = 1L << (random % 18); /* few: other errors than of many */
        if (random >> 32 & 1)
            s->writes = total / 16 + 1;
        memset(&s->sync, 0, sizeof(s->sync));
        atomic_store(&s->written, 0);
        atomic_store(&s->over, false);
        h.ranks = 2 + (int)(random >> 40 & 1);
        failed = harness_run(&h);
        left -= atomic_load(&s->written);
    }
    printf("%d jobs, %ld writes, %ld calls, %.1f s; errors:", jobs, total - left,
           atomic_load(&s->calls), harness_now() - start);
    for (int i = 0; i < 32; i++) {
        if (atomic_load(&s->errors[i]) > 0)
            printf(" %s %ld", symm_status_name((symm_status)-i),
                   atomic_load(&s->errors[i]));
    }
    printf("\n");
    harness_shared_free(s, sizeof(*s));
    assert_int_equal(failed, 0);
}

static void control_pages(void **state)
{
    (void)state;
    run_jobs(CONTROL_PAGES);
}

static void pads(void **state)
{
    (void)state;
    run_jobs(PADS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(control_pages),
                                       cmocka_unit_test(pads)};
    harness_clear_environment();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
