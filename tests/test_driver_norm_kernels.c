/* SPDX-License-Identifier: MIT */
/*
 * test_driver_norm_kernels.c - the kernels of all_reduce_norm, run on the processor by the shim of
 * simt.h: ranks are threads, heaps are plain memory, without the library's runtime.
 *
 * Random calls against bench/norm/expect.c: every kernel, all options and outputs, rows of 1 to
 * 16,384 columns, arrays aligned differently on each rank, in place, NaN and infinities, one round
 * and two of a small scratch, cut grids, clusters of blocks, two packets a thread, counters at their
 * wrap, delays. Outputs have the same bits on all ranks, with clusters and without, and nothing is
 * written beside them.
 * After a failure: the error records, later calls return at once. A planted bug must be detected.
 * ctest: cost 11
 * ctest: load 3
 */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <cmocka.h>

#include "kernels_rig.h"
#include "norm/expect.h"
#include "norm_case.h"
#include "reference.h"
#include "util/hash.h"

/* What a call does. */
struct norm_call {
    uint64_t number; /* of its case */
    enum symm_algorithm algorithm;
    size_t most;     /* elements of its rows, at most */
    uint32_t blocks; /* of the grid at most; 0: no such limit */
    uint32_t shift;  /* arrays of rank r lie r x shift bytes after a multiple of 64 */
    bool rest;       /* the sums are made by the test, the rest by the kernel for it */
    bool clusters;   /* the device has clusters of blocks */
    bool again;      /* the call before again: its outputs have the same bits */
};

struct norm_rank {
    struct norm_rig *rig;
    struct rank *rank;
    struct norm_case drawn;
    char *block;
    bool doubled; /* the last call's threads have two packets */
    uint64_t
        outputs; /* hash of the last call's; 0: of none, or with two packets a thread */
    int bad;
    char what[400]; /* the first bad call */
};

struct norm_rig {
    struct rig base;
    const struct norm_call *calls;
    int count;
    bool
        behind; /* calls follow each other at once; ranks do not compare their outputs */
    struct norm_rank ranks[SYMM_DEVICE_RANKS];
};

/* Kernels, and how often one was launched; how often a call took two rounds. */
static struct {
    const char *name;
    atomic_int launches;
} kernels[] = {{"symm_all_reduce_norm_lamport_bfloat16_n2", 0},
               {"symm_all_reduce_norm_lamport_bfloat16_n4", 0},
               {"symm_all_reduce_norm_lamport_bfloat16_n8", 0},
               {"symm_all_reduce_norm_lamport_float16_n2", 0},
               {"symm_all_reduce_norm_lamport_float16_n4", 0},
               {"symm_all_reduce_norm_lamport_float16_n8", 0},
               {"symm_all_reduce_norm_lamport_float32_n2", 0},
               {"symm_all_reduce_norm_lamport_float32_n4", 0},
               {"symm_all_reduce_norm_lamport_float32_n8", 0},
               {"symm_all_reduce_norm_two_shot_bfloat16_n4", 0},
               {"symm_all_reduce_norm_two_shot_bfloat16_n8", 0},
               {"symm_all_reduce_norm_two_shot_float16_n4", 0},
               {"symm_all_reduce_norm_two_shot_float16_n8", 0},
               {"symm_all_reduce_norm_two_shot_float32_n4", 0},
               {"symm_all_reduce_norm_two_shot_float32_n8", 0},
               {"symm_norm_bfloat16", 0},
               {"symm_norm_float16", 0},
               {"symm_norm_float32", 0}};
static atomic_int two_rounds[2], left_out; /* two_rounds: in one shot, in two */
static atomic_int
    clustered[1 + SYMM_CLUSTER_MOST]; /* launches, by log2 of the blocks */
static atomic_int doubled;            /* launches with two packets a thread */

__attribute__((format(printf, 3, 4))) static void
bad(struct norm_rank *self, const struct norm_call *call, const char *format, ...)
{
    va_list list;
    char text[240];

    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    if (self->bad++ == 0)
        snprintf(self->what, sizeof(self->what), "call %d of rank %d: algorithm %d: %s",
                 (int)(call - self->rig->calls), self->rank->rank, (int)call->algorithm,
                 text);
}

/* ---- One call of one rank ---------------------------------------------------------- */

static void *find(struct norm_rank *self, const char *name)
{
    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++)
        if (strcmp(kernels[i].name, name) == 0)
            atomic_fetch_add(&kernels[i].launches, 1);
    return dlsym(self->rig->base.library, name);
}

static struct symm_cuda_args args_of(struct norm_rank *self,
                                     const struct norm_call *call)
{
    const struct rank *rank = self->rank;
    const symm_norm *norm = &self->drawn.norm;
    struct symm_cuda_args args = rig_args(self->rank);

    args.in = norm->in;
    args.count = norm->rows * norm->hidden;
    args.bytes = args.count * symm_dtype_size(norm->dtype);
    args.tag = 40 + (uint32_t)call->number % 9 + (rank->rank == rank->rig->odd);
    args.kind = SYMM_KIND_ALL_REDUCE_NORM;
    args.dtype = (int32_t)norm->dtype;
    args.norm = *norm;
    args.scale_step = norm->rows;
    return args;
}

static void launch(struct norm_rank *self, const struct norm_call *call)
{
    struct rig *rig = self->rank->rig;
    const symm_norm *norm = &self->drawn.norm;
    struct symm_cuda_args args = args_of(self, call);
    struct symm_cuda_query query = {.kind = SYMM_KIND_ALL_REDUCE_NORM,
                                    .algorithm = call->algorithm,
                                    .dtype = norm->dtype,
                                    .op = SYMM_SUM,
                                    .size = rig->size,
                                    .bytes = args.bytes,
                                    .processors = 2 + 2 * (int)(call->number & 1),
                                    .clusters = call->clusters,
                                    .blocks = call->blocks,
                                    .scratch = rig->scratch,
                                    .rows = norm->rows,
                                    .hidden = (uint32_t)norm->hidden};
    struct symm_cuda_kernel kernel;
    struct symm_cuda_shape shape;
    const uint32_t before = self->rank->state->block[CHANNEL][0].round;
    kernel_fn function;

    if (call->clusters)
        query.processors = 80;
    if (!symm__cuda_kernel_find(&query, &kernel, &shape)) {
        atomic_fetch_add(&left_out, 1);
        self->drawn.rows = 0; /* nothing to check */
        return;
    }
    *(void **)&function = find(self, kernel.name);
    if (!function) {
        bad(self, call, "no %s", kernel.name);
        return;
    }
    args.cluster = shape.cluster;
    args.each = shape.each;
    atomic_fetch_add(&clustered[shape.cluster], 1);
    self->doubled = shape.each == 2;
    if (self->doubled)
        atomic_fetch_add(&doubled, 1);
    rig->launch(function, &args, shape.blocks, shape.threads);
    if (self->rank->state->block[CHANNEL][0].round - before == 2)
        atomic_fetch_add(&two_rounds[call->algorithm == SYMM_ALGORITHM_TWO_SHOT_PUSH],
                         1);
}

/* The sums of all ranks into an array of the call's, as an all_reduce would; then the kernel. */
static void launch_rest(struct norm_rank *self, const struct norm_call *call)
{
    struct rig *rig = self->rank->rig;
    const symm_norm *norm = &self->drawn.norm;
    struct symm_cuda_args args = args_of(self, call);
    void *outs[] = {norm->sum_out, norm->norm_out, self->rank->out + 64};
    struct symm_cuda_kernel kernel;
    struct symm_cuda_shape shape;
    const void *in[SYMM_DEVICE_RANKS];
    kernel_fn function;

    args.out = outs[call->number % 2] ? outs[call->number % 2] : outs[2];
    pthread_barrier_wait(
        &rig->start); /* all inputs are there, and then no longer needed */
    for (int r = 0; r < rig->size; r++)
        in[r] = self->rig->ranks[r].drawn.norm.in;
    reference_combine(norm->dtype, SYMM_SUM, in, rig->size, args.count,
                      self->rank->want);
    pthread_barrier_wait(&rig->start);
    memcpy(args.out, self->rank->want, args.bytes);
    symm__cuda_norm_find(norm->rows, (uint32_t)norm->hidden, norm->dtype, 2, &kernel,
                         &shape);
    *(void **)&function = find(self, kernel.name);
    if (!function)
        bad(self, call, "no %s", kernel.name);
    else
        rig->launch(function, &args, shape.blocks, shape.threads);
}

/* ---- Checks ------------------------------------------------------------------------- */

static struct {
    const void *array;
    symm_dtype dtype;
    size_t count;
} outputs[SYMM_DEVICE_RANKS][5];

static void note_outputs(struct norm_rank *self)
{
    const symm_norm *norm = &self->drawn.norm;
    const size_t count = self->drawn.rows * norm->hidden;
    const void *arrays[] = {norm->sum_out, norm->residual_out, norm->norm_out,
                            norm->quant_out, norm->scale};

    for (int i = 0; i < 5; i++) {
        outputs[self->rank->rank][i].array = arrays[i];
        outputs[self->rank->rank][i].dtype = i < 3    ? norm->dtype
                                             : i == 3 ? SYMM_FLOAT8_E4M3
                                                      : SYMM_FLOAT32;
        outputs[self->rank->rank][i].count =
            i < 4 ? count
                  : symm_norm_scales(norm->quant, norm->rows, norm->hidden) *
                        (self->drawn.rows > 0);
    }
}

/* As rank 0 has them, and nothing beside them. */
static void compare_outputs(struct norm_rank *self, const struct norm_call *call)
{
    for (int i = 0; i < 5; i++) {
        const symm_dtype dtype = outputs[0][i].dtype;
        const size_t count = outputs[0][i].count,
                     bytes = count * symm_dtype_size(dtype);
        const unsigned char *own = outputs[self->rank->rank][i].array;
        size_t where = 0;

        if (!own || count == 0)
            continue;
        if (!reference_same(dtype, own, outputs[0][i].array, count, &where))
            bad(self, call, "output %d differs from rank 0's at %zu", i, where);
        for (size_t g = 1; g <= 32; g++)
            if (own[-(ptrdiff_t)g] != UNTOUCHED || own[bytes + g - 1] != UNTOUCHED)
                bad(self, call, "written beside output %d", i);
    }
}

static uint64_t hash_outputs(const struct norm_rank *self)
{
    uint64_t hash = SYMM_FNV_BASIS;

    for (int i = 0; i < 5; i++)
        if (outputs[self->rank->rank][i].array)
            hash = symm__fnv(hash, outputs[self->rank->rank][i].array,
                             outputs[self->rank->rank][i].count *
                                 symm_dtype_size(outputs[self->rank->rank][i].dtype));
    return hash;
}

static void run_call(struct norm_rank *self, const struct norm_call *call)
{
    struct rank *rank = self->rank;
    const size_t shift = (size_t)rank->rank * call->shift % 64;
    const uint64_t before = self->outputs;

    norm_case_draw(&self->drawn, call->number, call->most, rank->rank, shift,
                   self->block);
    if (call->rest) { /* these sums are rounded once */
        self->drawn.norm.flags &= ~SYMM_NORM_ROUND_PARTIAL;
        launch_rest(self, call);
    } else {
        self->doubled = false;
        launch(self, call);
    }
    if (rank->record->state != 0)
        bad(self, call, "state %u, missing %x", rank->record->state,
            rank->record->missing[0]);
    else if (self->drawn.rows > 0 && norm_case_check(&self->drawn, rank->rig->size) > 0)
        bad(self, call, "%s", self->drawn.text);
    else if (!call->rest && !rig_counters_agree(rank))
        bad(self, call, "blocks have other counters");
    note_outputs(self);
    self->outputs = self->drawn.rows > 0 && !self->doubled ? hash_outputs(self) : 0;
    if (call->again && before != 0 && self->outputs != 0 && self->outputs != before)
        bad(self, call, "outputs have other bits than the time before");
}

static void *run_rank(void *arg)
{
    struct norm_rank *self = arg;
    struct rig *rig = self->rank->rig;

    for (int c = 0; c < self->rig->count; c++) {
        struct timespec pause = {0, 0};

        if (self->rank->rank == rig->dead)
            break;
        if (rig->slow && kernel_call_random(&self->rank->random) % 8 == 0) {
            pause.tv_nsec = (long)(kernel_call_random(&self->rank->random) % 3000000);
            nanosleep(&pause, NULL);
        }
        run_call(self, &self->rig->calls[c]);
        if (rig->dead >= 0 || self->rig->behind)
            continue;
        pthread_barrier_wait(&rig->start);
        if (self->bad == 0)
            compare_outputs(self, &self->rig->calls[c]);
        pthread_barrier_wait(&rig->start);
    }
    return NULL;
}

/* ---- The rig ------------------------------------------------------------------------ */

/* lamport: bytes of scratch. */
static void open_rig(struct norm_rig *rig, int size, const char *library,
                     size_t lamport, uint32_t round, uint32_t call)
{
    memset(rig, 0, sizeof(*rig));
    rig_open(&rig->base, size, library, round, call);
    rig->base.scratch.lamport = 2 * MEGA + (256 << 10);
    rig->base.scratch.lamport_bytes = lamport;
    for (int r = 0; r < size; r++) {
        struct norm_rank *self = &rig->ranks[r];

        self->rig = rig;
        self->rank = &rig->base.ranks[r];
        self->block = mmap(NULL, NORM_CASE_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(self->block != MAP_FAILED);
        memset(self->rank->heap + rig->base.scratch.lamport, 0xff, lamport);
    }
    rig_guard(&rig->base);
}

static void close_rig(struct norm_rig *rig)
{
    for (int r = 0; r < rig->base.size; r++)
        munmap(rig->ranks[r].block, NORM_CASE_BYTES);
    rig_close(&rig->base);
}

/* Runs the calls on all ranks; returns how many ranks saw something wrong. */
static int run(struct norm_rig *rig, const struct norm_call *calls, int count)
{
    pthread_t threads[SYMM_DEVICE_RANKS];
    int wrong = 0;

    rig->calls = calls;
    rig->count = count;
    for (int r = 0; r < rig->base.size; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &rig->ranks[r]),
                         0);
    for (int r = 0; r < rig->base.size; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < rig->base.size; r++)
        wrong += rig->ranks[r].bad != 0;
    return wrong;
}

static void run_well(struct norm_rig *rig, const struct norm_call *calls, int count)
{
    if (run(rig, calls, count) == 0)
        return;
    for (int r = 0; r < rig->base.size; r++)
        if (rig->ranks[r].bad != 0)
            print_error("%s\n", rig->ranks[r].what);
    fail();
}

/* ---- Tests -------------------------------------------------------------------------- */

#define CALLS 90
#define WIDE  26 /* a case of 2,048 columns */

static void draw_calls(struct norm_call *calls, int count, int size, uint64_t seed,
                       size_t most)
{
    for (int i = 0; i < count; i++) {
        const uint32_t shifts[] = {0, 0, 16, 4, 12};

        calls[i] = (struct norm_call){.number = seed * 1000 + (uint64_t)i,
                                      .algorithm = size > 2 && i % 2
                                                       ? SYMM_ALGORITHM_TWO_SHOT_PUSH
                                                       : SYMM_ALGORITHM_LAMPORT_PUSH,
                                      .most = i % 4 == 0 ? 4 * most : most,
                                      .blocks = i % 3 == 0 ? 1 + (uint32_t)i % 2 : 0,
                                      .clusters = i % 3 == 1,
                                      .shift = shifts[i % 5]};
    }
}

static void test_fused(void **unused)
{
    static struct norm_call calls[CALLS];
    const int count = harness_env("SYMM_TEST_LONG", 0) ? CALLS : 2 * CALLS / 3;

    (void)unused;
    atomic_store(&left_out, 0);
    for (int size = 2; size <= 8; size *= 2)
        for (int k = 0; k < 2; k++) { /* much scratch, then little */
            struct norm_rig rig;

            draw_calls(calls, count, size, (uint64_t)(size + k), k ? 8000 : 16384);
            open_rig(&rig, size, SYMM_FAKE_CUDA,
                     k ? (size_t)size * 48 << 10 : 1740 << 10, 0, 0);
            run_well(&rig, calls, count);
            close_rig(&rig);
        }
    /* each counts on every rank */
    if (atomic_load(&left_out) > 600 || atomic_load(&two_rounds[0]) < 20)
        fail_msg("%d calls found no kernel, %d took two rounds", atomic_load(&left_out),
                 atomic_load(&two_rounds[0]));
}

/* Two shots in two rounds: wide rows, and a grid of one block. */
static void test_two_shots(void **unused)
{
    static struct norm_call calls[CALLS];

    (void)unused;
    for (int size = 4; size <= 8; size *= 2) {
        struct norm_rig rig;

        draw_calls(calls, CALLS / 2, size, (uint64_t)(40 + size), 32000);
        for (int i = 0; i < CALLS / 2; i++) {
            calls[i].algorithm = SYMM_ALGORITHM_TWO_SHOT_PUSH;
            calls[i].most = (size_t)size * 8000;
            calls[i].blocks = 1;
            calls[i].clusters = false;
        }
        atomic_store(&two_rounds[1], 0);
        open_rig(&rig, size, SYMM_FAKE_CUDA, (size_t)(size * size) * 8 << 10, 0, 0);
        rig.behind = true;
        run_well(&rig, calls, CALLS / 2);
        close_rig(&rig);
        if (atomic_load(&two_rounds[1]) < 2 * size)
            fail_msg("%d calls of %d ranks took two rounds",
                     atomic_load(&two_rounds[1]), size);
    }
}

/* Each call with clusters, then without. Arrays that are not aligned take the code that loops. */
static void test_clusters(void **unused)
{
    static struct norm_call calls[2 * CALLS];
    const int count = harness_env("SYMM_TEST_LONG", 0) ? CALLS : CALLS / 2;

    (void)unused;
    for (int size = 2; size <= 8; size *= 2) {
        const int before[] = {atomic_load(&clustered[1]), atomic_load(&clustered[2])};
        struct norm_rig rig;

        draw_calls(calls, count, size, (uint64_t)(60 + size), 30000);
        for (int i = count - 1; i >= 0; i--) {
            calls[i].algorithm = SYMM_ALGORITHM_LAMPORT_PUSH;
            calls[i].blocks = 0;
            calls[i].clusters = true;
            calls[2 * i] = calls[2 * i + 1] = calls[i];
            calls[2 * i + 1].clusters = false;
            calls[2 * i + 1].again = true;
        }
        open_rig(&rig, size, SYMM_FAKE_CUDA, 1740 << 10, 0, 0);
        run_well(&rig, calls, 2 * count);
        close_rig(&rig);
        assert_true(atomic_load(&clustered[1]) > before[0]);
        if (size == 2)
            assert_true(atomic_load(&clustered[2]) > before[1]);
    }
}

/* Grids in which all rows are under way at once by two packets a thread. Some ranks' arrays are not
 * aligned. */
static void test_doubled(void **unused)
{
    static struct norm_call calls[CALLS];
    struct norm_rig rig;

    (void)unused;
    atomic_store(&doubled, 0);
    draw_calls(calls, CALLS, 2, 91, 12000);
    for (int i = 0; i < CALLS; i++) {
        calls[i].blocks = 0;
        calls[i].clusters = false;
    }
    open_rig(&rig, 2, SYMM_FAKE_CUDA, 1740 << 10, 0, 0);
    run_well(&rig, calls, CALLS);
    close_rig(&rig);
    assert_true(atomic_load(&doubled) >= 10);
}

/* Calls at once behind each other, on ranks that are late: what has not been consumed there is not
 * overwritten. */
static void test_late(void **unused)
{
    static struct norm_call calls[CALLS];

    (void)unused;
    setenv("SIMT_PAUSE", "1000", 1);
    for (int size = 2; size <= 4; size *= 2) {
        struct norm_rig rig;

        draw_calls(calls, CALLS / 3, size, 33, 12000);
        for (int i = 0; i < CALLS / 3; i++)
            calls[i].clusters = false;
        open_rig(&rig, size, SYMM_FAKE_CUDA, (size_t)size * 48 << 10, 0, 0);
        rig.behind = true;
        run_well(&rig, calls, CALLS / 3);
        close_rig(&rig);
    }
    unsetenv("SIMT_PAUSE");
}

static void test_rest(void **unused)
{
    static struct norm_call calls[CALLS];
    struct norm_rig rig;

    (void)unused;
    draw_calls(calls, CALLS, 2, 77, 12000);
    for (int i = 0; i < CALLS; i++)
        calls[i].rest = true;
    open_rig(&rig, 2, SYMM_FAKE_CUDA, 192 << 10, 0, 0);
    run_well(&rig, calls, CALLS);
    close_rig(&rig);
}

static void test_launched(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++)
        if (atomic_load(&kernels[i].launches) < 4)
            fail_msg("only %d launches of %s", atomic_load(&kernels[i].launches),
                     kernels[i].name);
}

/* Counters at their wrap, and ranks that come late. */
static void test_wrap(void **unused)
{
    static struct norm_call calls[24];

    (void)unused;
    for (int size = 2; size <= 4; size *= 2) {
        struct norm_rig rig;

        draw_calls(calls, 24, size, 5, 3000);
        open_rig(&rig, size, SYMM_FAKE_CUDA, 192 << 10, SYMM_ROUND_LIMIT - 9,
                 UINT32_MAX - 9);
        rig.base.slow = true;
        run_well(&rig, calls, 24);
        assert_in_range(rig.base.ranks[0].state->block[CHANNEL][159].call, 5, 14);
        close_rig(&rig);
    }
}

#define PLAIN 3
static const struct norm_call plain[PLAIN] = {
    {.number = 1, .algorithm = SYMM_ALGORITHM_LAMPORT_PUSH, .most = 4000},
    {.number = 1, .algorithm = SYMM_ALGORITHM_TWO_SHOT_PUSH, .most = 4000},
    {.number = WIDE,
     .algorithm = SYMM_ALGORITHM_LAMPORT_PUSH,
     .most = 4000,
     .clusters = true}};

/* Rank 2 of 4 makes no call. Again until the deadline is long enough for the others. */
static void run_without_one(struct norm_rig *rig, const struct norm_call *call)
{
    double patience;

    HARNESS_PATIENCE(patience, 0.5)
    {
        bool alone = true;

        open_rig(rig, 4, SYMM_FAKE_CUDA, 192 << 10, 0, 0);
        rig->base.timeout = (uint64_t)(patience * 1e9);
        rig->base.dead = 2;
        assert_int_equal(run(rig, call, 1), 3);
        for (int r = 0; r < 4; r++)
            alone &= r == 2 || rig->base.ranks[r].record->missing[0] == 1u << 2;
        if (alone)
            return;
        close_rig(rig);
    }
    fail_msg("others than rank 2 are missing");
}

static void test_dead(void **unused)
{
    (void)unused;
    for (int a = 0; a < PLAIN; a++) {
        const int before = atomic_load(&clustered[1]);
        struct norm_rig rig;

        run_without_one(&rig, &plain[a]);
        assert_int_equal(atomic_load(&clustered[1]) > before, plain[a].clusters);
        for (int r = 0; r < 4; r++) {
            struct rank *rank = &rig.base.ranks[r];

            if (r == 2)
                continue;
            assert_int_equal(rank->record->state, -SYMM_ERR_TIMEOUT);
            assert_int_equal(rank->result, -SYMM_ERR_TIMEOUT);
            assert_int_equal(rank->record->channel, CHANNEL);
            assert_int_equal(rank->record->counter, 1);
            assert_int_equal(rank->state->failed[16 * CHANNEL], -SYMM_ERR_TIMEOUT);
            rank->result = 0; /* a later call returns at once */
            rig.base.timeout = UINT64_MAX / 2;
            launch(&rig.ranks[r], &plain[a]);
            assert_int_equal(rank->result, -SYMM_ERR_TIMEOUT);
        }
        /* A rank that comes late learns it at once. */
        norm_case_draw(&rig.ranks[2].drawn, plain[a].number, plain[a].most, 2, 0,
                       rig.ranks[2].block);
        launch(&rig.ranks[2], &plain[a]);
        assert_int_equal(rig.base.ranks[2].record->state, -SYMM_ERR_ABORTED);
        assert_int_equal(rig.base.ranks[2].record->missing[0], 0xb);
        close_rig(&rig);
    }
}

static void test_mismatch(void **unused)
{
    (void)unused;
    for (int a = 0; a < PLAIN; a++) {
        struct norm_rig rig;

        open_rig(&rig, 4, SYMM_FAKE_CUDA, 192 << 10, 0, 0);
        rig.base.odd = 1;
        assert_int_equal(run(&rig, &plain[a], 1), 4);
        for (int r = 0; r < 4; r++) {
            assert_int_equal(rig.base.ranks[r].record->state, -SYMM_ERR_MISMATCH);
            assert_int_equal(
                rig.base.ranks[r].record->missing[0] & ~(r == 1 ? 13u : 2u), 0);
            assert_int_equal(rig.base.ranks[r].result, -SYMM_ERR_MISMATCH);
        }
        close_rig(&rig);
    }
}

static void test_planted(void **unused)
{
    static struct norm_call calls[CALLS];
    struct norm_rig rig;

    (void)unused;
    draw_calls(calls, CALLS, 2, 2, 8000);
    open_rig(&rig, 2, SYMM_PLANT_DIR "/libkernels_plant_norm.so", 1740 << 10, 0, 0);
    assert_true(run(&rig, calls, CALLS) > 0);
    close_rig(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fused),    cmocka_unit_test(test_two_shots),
        cmocka_unit_test(test_clusters), cmocka_unit_test(test_doubled),
        cmocka_unit_test(test_rest),     cmocka_unit_test(test_late),
        cmocka_unit_test(test_launched), cmocka_unit_test(test_wrap),
        cmocka_unit_test(test_dead),     cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_planted),
    };

    if (HARNESS_TSAN) /* it knows nothing of fibers */
        return 77;
    reference_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
