/* SPDX-License-Identifier: MIT */
/*
 * test_driver_pull.c - kernels that read peers' memory or the stage, on the processor: every
 * collective by every such algorithm, compared bit for bit with tests/reference.c.
 *
 * Ranks are threads with heaps in plain memory (heaps.h). A rank fills its input, sometimes
 * waits, launches, compares its output, and at once overwrites its input: without a barrier a
 * peer would read that. Calls follow each other without any other order between ranks, with
 * changing algorithms, grids, sizes and alignments over one scratch, so that a slot reused
 * too early gives a wrong result. A planted missing exit barrier must be detected. Half of the
 * calls that read or write peers' arrays go by pointer: each rank's arrays lie where they like,
 * with an alignment of their own. A call whose pointers are not ready fails on all ranks.
 * ctest: cost 40
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"
#include "heaps.h"
#include "kernel_call.h"
#include "reference.h"

#define MOST_BYTES ((size_t)160 << 10) /* of one rank's block */
#define AREA       ((uint64_t)2 << 20) /* room for an input, or an output */

struct job {
    const struct kernel_call *calls;
    int count, calm; /* calm: no delays */
    int odd;         /* this rank's tags differ; -1: nobody's */
    int dead;        /* this rank makes no call */
    bool late;       /* it makes it now, and nobody else */
    int unready;     /* 1 + the rank whose pointers are not ready; 0: nobody's */
    struct symm_cuda_pointers pointers[SYMM_DEVICE_RANKS];
    int wrong[SYMM_DEVICE_RANKS];
    uint32_t result[SYMM_DEVICE_RANKS];
    char what[SYMM_DEVICE_RANKS][160];
};

/* ---- One call of one rank -------------------------------------------------------- */

/* By pointer: where a rank's arrays lie, which every rank knows. */
static uint64_t in_at(const struct heaps *heaps, int rank,
                      const struct kernel_call *call)
{
    size_t element = reference_size(call->dtype), bytes = call->count * element;
    uint64_t at = heaps->buffers + GUARD +
                  (call->seed + 7u * (uint32_t)rank) % 20 * call->shift * element;

    if (call->in_place && call->kind == SYMM_KIND_ALL_GATHER)
        return at + (uint64_t)rank * bytes;
    return at;
}

static uint64_t out_at(const struct heaps *heaps, int rank,
                       const struct kernel_call *call)
{
    size_t element = reference_size(call->dtype), bytes = call->count * element;

    if (call->in_place && call->kind == SYMM_KIND_ALL_GATHER)
        return in_at(heaps, rank, call) - (uint64_t)rank * bytes;
    if (call->in_place)
        return in_at(heaps, rank, call);
    return heaps->buffers + AREA + GUARD +
           (call->seed / 20 + 3u * (uint32_t)rank) % 20 * call->shift * element;
}

static void place_by_pointer(struct heaps *heaps, int rank,
                             const struct kernel_call *call,
                             struct symm_cuda_pointers *entry,
                             struct symm_cuda_args *args)
{
    memset(entry, 0, sizeof(*entry));
    for (int r = 0; r < heaps->size; r++) {
        entry->in[r] = (uintptr_t)heaps_at(heaps, r, in_at(heaps, r, call));
        entry->out[r] = (uintptr_t)heaps_at(heaps, r, out_at(heaps, r, call));
        entry->in_bits |= (uint32_t)entry->in[r];
        entry->out_bits |= (uint32_t)entry->out[r];
    }
    entry->call = call->seed % 1000;
    args->in = heaps_at(heaps, rank, in_at(heaps, rank, call));
    args->out = heaps_at(heaps, rank, out_at(heaps, rank, call));
    args->in_offset = args->out_offset = UINT64_MAX / 2; /* no heap is so large */
    args->pointers = entry;
}

/* Where the arrays lie, and what a kernel is told of them. */
static void place(struct heaps *heaps, int rank, const struct kernel_call *call,
                  uint32_t *random, struct symm_cuda_args *args)
{
    size_t element = reference_size(call->dtype);
    bool staged = call->algorithm == SYMM_ALGORITHM_COPY_IN;
    bool both = call->algorithm == SYMM_ALGORITHM_TWO_SHOT_INPLACE ||
                call->kind == SYMM_KIND_BROADCAST || call->in_place;
    /* Only this rank's: memory that peers do not reach may lie anywhere. */
    uint64_t own = kernel_call_random(random) % 20 * element;

    args->in_offset = heaps->buffers + GUARD + (staged ? own : call->shift * element);
    args->out_offset = heaps->buffers + AREA + GUARD +
                       (!staged && both ? call->shift % 3 * element
                                        : kernel_call_random(random) % 20 * element);
    if (call->in_place && call->kind == SYMM_KIND_ALL_GATHER) {
        args->in_step = (int64_t)args->bytes;
        args->in_offset = args->out_offset + (uint64_t)rank * args->bytes;
    } else if (call->in_place) {
        args->out_offset = args->in_offset;
    }
    if (call->kind == SYMM_KIND_REDUCE_SCATTER && call->in_place && call->seed % 2)
        args->out_offset += (uint64_t)rank * args->bytes;
    args->in = heaps_at(heaps, rank, args->in_offset);
    args->out = heaps_at(heaps, rank, args->out_offset);
}

__attribute__((format(printf, 4, 5))) static void
complain(struct job *job, int rank, const struct kernel_call *call, const char *format,
         ...)
{
    va_list list;
    char text[64];

    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    if (job->wrong[rank]++ == 0)
        snprintf(job->what[rank], sizeof(job->what[rank]),
                 "call %d of rank %d: %s by %s, %s %s, count %zu, in place %d: %s",
                 (int)(call - job->calls), rank, symm__kind_name(call->kind),
                 symm_algorithm_name(call->algorithm), symm_dtype_name(call->dtype),
                 symm_op_name(call->op), call->count, call->in_place, text);
}

static bool launch(struct heaps *heaps, const struct kernel_call *call,
                   const struct symm_cuda_args *args)
{
    struct symm_cuda_query query = {.kind = call->kind,
                                    .algorithm = call->algorithm,
                                    .dtype = call->dtype,
                                    .op = call->op,
                                    .size = heaps->size,
                                    .bytes = args->bytes,
                                    .processors = 132,
                                    .by_pointer = call->by_pointer,
                                    .scratch = args->scratch};
    struct symm_cuda_kernel kernel;
    struct symm_cuda_shape shape;
    char name[112];

    if (!symm__cuda_kernel_find(&query, &kernel, &shape))
        return false;
    snprintf(name, sizeof(name), "%s", kernel.name);
    if (call->generic) { /* ..._bfloat16_n8 -> ..._any */
        char ending[32];

        snprintf(ending, sizeof(ending), "_%s_n%d", symm_dtype_name(call->dtype),
                 heaps->size);
        if (strstr(name, ending))
            strcpy(strstr(name, ending), "_any");
    }
    if (call->stream) /* the kernel of much data, with little */
        snprintf(name, sizeof(name), "symm_%s_stream_%s_n%d",
                 symm__kind_name(call->kind), symm_dtype_name(call->dtype),
                 heaps->size);
    if (call->by_pointer && !strstr(name, "_by_pointer"))
        strcat(name, "_by_pointer");
    if (call->kind != SYMM_KIND_BARRIER)
        shape = (struct symm_cuda_shape){call->blocks, call->threads};
    if (!heaps_find(name))
        return false;
    heaps_launch(heaps_find(name), args, shape.blocks, shape.threads);
    return true;
}

static void run_call(struct heaps *heaps, int rank, struct job *job,
                     const struct kernel_call *call, uint32_t *random, char *want)
{
    struct symm_cuda_args args = heaps_args(heaps, rank, CHANNEL);
    size_t in_count = kernel_call_in_count(call, heaps->size), where = 0;
    size_t out_count = kernel_call_out_count(call, heaps->size);
    size_t element = reference_size(call->dtype), out_bytes = out_count * element;
    uint64_t delay = *random;
    unsigned char *out;
    char *in;

    kernel_call_args(call, &args);
    args.tag = 1 + call->seed % 1000 + (rank == job->odd);
    args.flags = call->flags;
    args.result = &job->result[rank];
    if (call->by_pointer)
        place_by_pointer(heaps, rank, call, &job->pointers[rank], &args);
    else
        place(heaps, rank, call, random, &args);
    if (job->unready != 1 + rank)
        job->pointers[rank].state = SYMM_CUDA_POINTERS_READY;
    out = args.out;
    if (!call->in_place)
        memset(out - GUARD, UNTOUCHED, out_bytes + 2 * GUARD);
    in = (char *)(uintptr_t)args.in;
    reference_fill(call->dtype, call->op, call->seed, rank, 0, in_count, in);
    kernel_call_expect(call, heaps->size, rank, want);
    if (!job->calm)
        heaps_delay(&delay, 800);
    if (!launch(heaps, call, &args))
        complain(job, rank, call, "no kernel");
    else if (args.team.record->state != 0)
        complain(job, rank, call, "state %u, missing %#x", args.team.record->state,
                 args.team.record->missing[0]);
    else if (!reference_same(call->dtype, out, want, out_count, &where))
        complain(job, rank, call, "element %zu is wrong", where);
    for (size_t i = 1; i <= GUARD && !call->in_place; i++)
        if (out[-(ptrdiff_t)i] != UNTOUCHED || out[out_bytes + i - 1] != UNTOUCHED)
            complain(job, rank, call, "written beside the output");
    memset(in, 0x77, in_count * element);
}

static void run_rank(struct heaps *heaps, int rank, void *arg)
{
    struct job *job = arg;
    uint32_t random = 99u + 7u * (uint32_t)rank;
    char *want = malloc(SYMM_FEW_RANKS * MOST_BYTES);

    for (int i = 0; i < job->count && (rank == job->dead) == job->late; i++)
        if (job->wrong[rank] == 0)
            run_call(heaps, rank, job, &job->calls[i], &random, want);
    free(want);
}

/* How many ranks saw something wrong. */
static int run(struct heaps *heaps, struct job *job)
{
    int wrong = 0;

    heaps_run(heaps, run_rank, job);
    for (int r = 0; r < heaps->size; r++)
        wrong += job->wrong[r] != 0;
    return wrong;
}

static void run_well(struct heaps *heaps, const struct kernel_call *calls, int count)
{
    struct job job = {.calls = calls, .count = count, .odd = -1, .dead = -1};

    if (run(heaps, &job) != 0) {
        for (int r = 0; r < heaps->size; r++)
            if (job.wrong[r] != 0)
                print_error("%s\n", job.what[r]);
        fail();
    }
    heaps_check(heaps, CHANNEL);
}

/* ---- What is called -------------------------------------------------------------- */

static const struct {
    enum symm_kind kind;
    enum symm_algorithm algorithm;
    bool in_place; /* may be */
} ways[] = {
    {SYMM_KIND_ALL_REDUCE, SYMM_ALGORITHM_ONE_SHOT_PULL, false},
    {SYMM_KIND_ALL_REDUCE, SYMM_ALGORITHM_TWO_SHOT_PULL, true},
    {SYMM_KIND_ALL_REDUCE, SYMM_ALGORITHM_TWO_SHOT_INPLACE, true},
    {SYMM_KIND_ALL_REDUCE, SYMM_ALGORITHM_COPY_IN, true},
    {SYMM_KIND_REDUCE_SCATTER, SYMM_ALGORITHM_ONE_SHOT_PULL, false},
    {SYMM_KIND_REDUCE_SCATTER, SYMM_ALGORITHM_COPY_IN, true},
    {SYMM_KIND_ALL_GATHER, SYMM_ALGORITHM_ONE_SHOT_PULL, true},
    {SYMM_KIND_ALL_GATHER, SYMM_ALGORITHM_TWO_SHOT_INPLACE, true},
    {SYMM_KIND_ALL_GATHER, SYMM_ALGORITHM_COPY_IN, true},
    {SYMM_KIND_BROADCAST, SYMM_ALGORITHM_ONE_SHOT_PULL, true},
    {SYMM_KIND_BROADCAST, SYMM_ALGORITHM_TWO_SHOT_INPLACE, true},
    {SYMM_KIND_BROADCAST, SYMM_ALGORITHM_COPY_IN, true},
    {SYMM_KIND_ALL_TO_ALL, SYMM_ALGORITHM_ONE_SHOT_PULL, false},
    {SYMM_KIND_ALL_TO_ALL, SYMM_ALGORITHM_TWO_SHOT_INPLACE, false},
    {SYMM_KIND_ALL_TO_ALL, SYMM_ALGORITHM_COPY_IN, true},
    {SYMM_KIND_BARRIER, SYMM_ALGORITHM_COPY_IN, false},
};
#define WAYS ((int)(sizeof(ways) / sizeof(ways[0])))

static size_t some_count(uint32_t *random, symm_dtype dtype)
{
    static const size_t counts[] = {0, 1, 2, 3, 7, 8, 15, 17, 64, 129, 511, 1001, 2048};
    size_t count =
        counts[kernel_call_random(random) % (sizeof(counts) / sizeof(counts[0]))];

    if (kernel_call_random(random) % 48 ==
        0) /* several rounds; all_reduce in two steps */
        count =
            (MOST_BYTES - kernel_call_random(random) % 5000) / reference_size(dtype);
    return count;
}

static bool has_pointers(enum symm_algorithm algorithm)
{
    return algorithm == SYMM_ALGORITHM_ONE_SHOT_PULL ||
           algorithm == SYMM_ALGORITHM_TWO_SHOT_PULL ||
           algorithm == SYMM_ALGORITHM_TWO_SHOT_INPLACE;
}

static struct kernel_call some_call(uint32_t *random, int size, int way,
                                    symm_dtype dtype, symm_op op)
{
    struct kernel_call call = {.kind = ways[way].kind,
                               .algorithm = ways[way].algorithm,
                               .dtype = dtype,
                               .op = op};

    call.count = call.kind == SYMM_KIND_BARRIER ? 0 : some_count(random, dtype);
    call.seed = kernel_call_random(random);
    call.root = (int)(kernel_call_random(random) % (uint32_t)size);
    call.blocks = 1 + kernel_call_random(random) % 6;
    call.threads = 32 * (1 + kernel_call_random(random) % 3);
    call.in_place = ways[way].in_place && kernel_call_random(random) % 3 == 0;
    call.generic = kernel_call_random(random) % 4 == 0;
    call.shift = kernel_call_random(random) % 2 ? 0 : kernel_call_random(random) % 19;
    call.flags = SYMM_CUDA_ENTRY_BARRIER | SYMM_CUDA_EXIT_BARRIER;
    call.by_pointer = has_pointers(call.algorithm) && kernel_call_random(random) % 2;
    return call;
}

static struct heaps *open_heaps(int size, double timeout, uint32_t round, uint32_t call)
{
    struct heaps_options options = {.size = size,
                                    .timeout = timeout,
                                    .ll = 4096,
                                    .lamport = 4096,
                                    .stage = 16384,
                                    .buffers = 2 * AREA,
                                    .first_round = round,
                                    .first_call = call};

    return heaps_create(&options);
}

/* Every way, dtype and op once for each size of a team, in a random order of shapes. */
static void test_all(void **unused)
{
    enum { COUNT = WAYS * REFERENCE_DTYPES };
    static struct kernel_call calls[COUNT + WAYS];

    (void)unused;
    for (int size = 1; size <= SYMM_FEW_RANKS; size++) {
        struct heaps *heaps = open_heaps(size, 0, 0, 0);
        uint32_t random = 1234u + (uint32_t)size;

        for (int i = 0; i < COUNT; i++)
            calls[i] =
                some_call(&random, size, i % WAYS, (symm_dtype)(i / WAYS),
                          reference_op((symm_dtype)(i / WAYS), (unsigned)(i + size)));
        for (int i = 0; i < COUNT; i++) { /* shuffled */
            int other = (int)(kernel_call_random(&random) % COUNT);
            struct kernel_call call = calls[i];

            calls[i] = calls[other];
            calls[other] = call;
        }
        run_well(heaps, calls, COUNT);
        heaps_destroy(heaps);
    }
}

/* The hot kernels of SUM, and counters that pass their limits. */
static void test_hot(void **unused)
{
    static const symm_dtype dtypes[] = {SYMM_BFLOAT16, SYMM_FLOAT16, SYMM_FLOAT32};
    struct kernel_call calls[60];

    (void)unused;
    for (int size = 2; size <= SYMM_FEW_RANKS; size *= 2) {
        struct heaps *heaps =
            open_heaps(size, 0, SYMM_ROUND_LIMIT - 20, UINT32_MAX - 20);
        uint32_t random = 77u + (uint32_t)size;

        for (int i = 0; i < 60; i++) {
            calls[i] = some_call(&random, size,
                                 i % 5 == 3   ? 4
                                 : i % 5 == 4 ? 3
                                              : i % 5,
                                 dtypes[i / 5 % 3], SYMM_SUM);
            calls[i].generic = false;
            if (i >= 45)
                calls[i].count = 30000 + 999 * (size_t)(i - 45);
        }
        run_well(heaps, calls, 60);
        heaps_destroy(heaps);
    }
}

/* all_reduce_stream.cu between calls that use the stage otherwise. */
static void test_stream(void **unused)
{
    static const symm_dtype dtypes[] = {SYMM_BFLOAT16, SYMM_FLOAT16, SYMM_FLOAT32};
    struct kernel_call calls[72];

    (void)unused;
    for (int size = 2; size <= SYMM_FEW_RANKS; size *= 2) {
        struct heaps *heaps = open_heaps(size, 0, 0, 0);
        uint32_t random = 55u + (uint32_t)size;

        for (int i = 0; i < 72; i++) {
            bool stream = i % 3 != 2;

            calls[i] = some_call(&random, size,
                                 !stream ? (int)(kernel_call_random(&random) % WAYS)
                                 : i % 3 == 0 ? 2
                                              : 5,
                                 dtypes[i / 3 % 3], SYMM_SUM);
            calls[i].stream = stream;
            calls[i].generic = !stream;
            calls[i].by_pointer = calls[i].by_pointer && (!stream || i % 3 == 0);
            if (stream && i % 4 == 0)
                calls[i].count =
                    (9000 + 1003 * (size_t)i) / (i % 3 == 0 ? 1 : (size_t)size);
        }
        run_well(heaps, calls, 72);
        heaps_destroy(heaps);
    }
}

/* All ops of a dtype at a size for which kernels are generic anyway. */
static void test_ops(void **unused)
{
    struct kernel_call calls[REFERENCE_DTYPES * REFERENCE_OPS];
    struct heaps *heaps = open_heaps(3, 0, 0, 0);
    uint32_t random = 5u;
    int count = 0;

    (void)unused;
    for (int i = 0; i < REFERENCE_DTYPES * REFERENCE_OPS; i++) {
        static const int reductions[] = {0, 1, 2, 3, 4, 5};
        const symm_dtype dtype = (symm_dtype)(i % REFERENCE_DTYPES);
        const symm_op op = (symm_op)(i / REFERENCE_DTYPES);

        if (!reference_takes(dtype, op))
            continue;
        calls[count] = some_call(&random, 3, reductions[i % 6], dtype, op);
        calls[count++].count = 200 + (size_t)i;
    }
    run_well(heaps, calls, count);
    heaps_destroy(heaps);
}

/* Many barriers and smallest calls, without a pause between them. */
static void test_torture(void **unused)
{
    static struct kernel_call calls[400];
    struct heaps *heaps = open_heaps(5, 0, SYMM_ROUND_LIMIT - 300, 0);
    uint32_t random = 8u;

    (void)unused;
    for (int i = 0; i < 400; i++) {
        calls[i] = some_call(
            &random, 5, i % 3 ? WAYS - 1 : (int)(kernel_call_random(&random) % WAYS),
            SYMM_FLOAT32, SYMM_SUM);
        if (calls[i].count > 100)
            calls[i].count = 40;
        calls[i].blocks = 1 + kernel_call_random(&random) % 12;
        calls[i].threads = 32;
    }
    run_well(heaps, calls, 400);
    heaps_destroy(heaps);
}

/* ---- Failures -------------------------------------------------------------------- */

/* The same again until the deadline is long enough for the two who come. */
static struct heaps *run_without_one(struct job *job)
{
    struct heaps *heaps = NULL;
    double patience;

    HARNESS_PATIENCE(patience, 0.3)
    {
        if (heaps)
            heaps_destroy(heaps);
        heaps = open_heaps(3, patience, 0, 0);
        assert_int_equal(run(heaps, job), 2);
        if (heaps->team[0].record->missing[0] == 2 &&
            heaps->team[2].record->missing[0] == 2)
            break;
    }
    return heaps;
}

/* Who comes when the others have given up does not succeed, even if all that it needs from
 * them is there. */
static void check_late(struct heaps *heaps, struct job *job)
{
    const struct symm_device_record *record = heaps->team[job->dead].record;

    job->late = true;
    assert_int_equal(run(heaps, job), 3);
    assert_int_equal(job->result[job->dead], -SYMM_ERR_ABORTED);
    assert_int_equal(record->state, -SYMM_ERR_ABORTED);
    assert_int_equal(record->missing[0], 5);
}

static void test_dead(void **unused)
{
    (void)unused;
    for (int way = 0; way < WAYS; way++) {
        uint32_t random = 21u + (uint32_t)way;
        struct kernel_call call = some_call(&random, 3, way, SYMM_BFLOAT16, SYMM_SUM);
        struct job job = {.calls = &call, .count = 1, .odd = -1, .dead = 1};
        struct heaps *heaps = run_without_one(&job);

        for (int r = 0; r < 3; r += 2) {
            const struct symm_device_record *record = heaps->team[r].record;

            assert_int_equal(record->state, -SYMM_ERR_TIMEOUT);
            assert_int_equal(record->missing[0], 1u << 1);
            assert_int_equal(record->channel, CHANNEL);
            assert_int_equal(record->tag, 1 + call.seed % 1000);
            assert_int_equal(record->counter, 1);
            assert_int_equal(heaps->team[r].state->failed[16 * CHANNEL],
                             -SYMM_ERR_TIMEOUT);
            assert_int_equal(job.result[r], -SYMM_ERR_TIMEOUT);
        }
        check_late(heaps, &job);
        heaps_destroy(heaps);
    }
}

static struct symm_device_channel *channel_of(struct heaps *heaps, int rank)
{
    const struct symm_device_team *team = &heaps->team[rank];
    struct symm_pad *pad = (struct symm_pad *)(void *)(team->base[rank] + team->pad);

    return &pad->device.channel[CHANNEL];
}

/* All words of rank 0 for rounds 1 and 2 at rank 1, and its arrival taken back: it has gone
 * into its last barrier and given up there, while rank 1 was on its way. */
static void leave(struct heaps *heaps, uint32_t tag)
{
    struct symm_device_channel *channel = channel_of(heaps, 1);

    for (int b = 0; b < SYMM_DEVICE_BLOCKS; b++)
        for (uint32_t e = 1; e <= 2; e++)
            channel->round[b][e & 1][0] = symm_device_word(tag, e);
    channel->call[1][0] = symm_device_word(0, 1);
}

static void test_left(void **unused)
{
    (void)unused;
    for (int way = 0; way < WAYS; way++) {
        struct heaps *heaps = open_heaps(2, 0, 0, 0);
        uint32_t random = 41u + (uint32_t)way;
        struct kernel_call call = some_call(&random, 2, way, SYMM_INT32, SYMM_SUM);
        struct job job = {
            .calls = &call, .count = 1, .odd = -1, .dead = 1, .late = true};

        leave(heaps, 1 + call.seed % 1000);
        assert_int_equal(run(heaps, &job), 1);
        assert_int_equal(job.result[1], -SYMM_ERR_ABORTED);
        assert_int_equal(heaps->team[1].record->missing[0], 1);
        heaps_destroy(heaps);
    }
}

struct cut {
    struct heaps *heaps;
    uint32_t tag;
    int rank;
};

/* When the rank has begun: a wait on another stream marks its channel, mostly before all
 * threads of its kernel have begun. */
static void *cut_short(void *arg)
{
    struct cut *cut = arg;
    const uint64_t *word = &channel_of(cut->heaps, 1)->call[1][cut->rank];
    double begin = harness_now();

    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != symm_device_word(cut->tag, 1) &&
           harness_now() - begin < HARNESS_SOON)
        ;
    __atomic_store_n(&cut->heaps->team[cut->rank].state->failed[16 * CHANNEL],
                     (uint32_t)-SYMM_ERR_ABORTED, __ATOMIC_RELAXED);
    return NULL;
}

/* They say so, and take their arrival back as if they had found out by themselves. */
static void cut_way(int way, unsigned threads)
{
    struct heaps *heaps = open_heaps(3, 0, 0, 0);
    uint32_t random = 51u + (uint32_t)way;
    struct kernel_call call = some_call(&random, 3, way, SYMM_INT32, SYMM_SUM);
    struct job job = {.calls = &call, .count = 1, .odd = -1, .dead = 1, .calm = 1};
    struct cut cut[3];
    pthread_t thread[3];

    if (threads != 0)
        call.threads = threads;
    for (int r = 0; r < 3; r += 2) {
        cut[r] = (struct cut){heaps, 1 + call.seed % 1000, r};
        assert_int_equal(pthread_create(&thread[r], NULL, cut_short, &cut[r]), 0);
    }
    (void)run(heaps, &job);
    for (int r = 0; r < 3; r += 2) { /* one may have seen the other's end first */
        pthread_join(thread[r], NULL);
        assert_true(job.result[r] == (uint32_t)-SYMM_ERR_ABORTED ||
                    job.result[r] == (uint32_t)-SYMM_ERR_TIMEOUT);
        assert_int_equal(channel_of(heaps, 1)->call[1][r], symm_device_word(0, 1));
    }
    heaps_destroy(heaps);
}

static void test_cut_short(void **unused)
{
    (void)unused;
    for (int way = 0; way < WAYS; way++) {
        cut_way(way, 0);
        for (int i = 0; i < 3; i++)
            cut_way(way, 512);
    }
}

static void test_mismatch(void **unused)
{
    (void)unused;
    for (int way = 0; way < WAYS; way++) {
        struct heaps *heaps = open_heaps(4, 0, 0, 0);
        uint32_t random = 31u + (uint32_t)way;
        struct kernel_call call = some_call(&random, 4, way, SYMM_INT32, SYMM_MAX);
        struct job job = {.calls = &call, .count = 1, .odd = 2, .dead = -1};

        assert_int_equal(run(heaps, &job), 4);
        for (int r = 0; r < 4; r++) {
            const struct symm_device_record *record = heaps->team[r].record;

            assert_int_equal(record->state, -SYMM_ERR_MISMATCH);
            assert_true(record->missing[0] != 0);
            assert_int_equal(record->missing[0] & ~(r == 2 ? 0xbu : 4u), 0);
            assert_int_equal(job.result[r], -SYMM_ERR_MISMATCH);
        }
        heaps_destroy(heaps);
    }
}

/* Pointers that are not ready on one rank: its call fails, and so do the others'. */
static void test_unready(void **unused)
{
    (void)unused;
    for (int way = 0; way < WAYS; way++) {
        uint32_t random = 61u + (uint32_t)way;
        struct kernel_call call = some_call(&random, 3, way, SYMM_FLOAT32, SYMM_SUM);
        struct job job = {
            .calls = &call, .count = 1, .odd = -1, .dead = -1, .unready = 2};
        struct heaps *heaps;

        if (!has_pointers(call.algorithm))
            continue;
        call.by_pointer = true;
        heaps = open_heaps(3, 0, 0, 0);
        assert_int_equal(run(heaps, &job), 3);
        for (int r = 0; r < 3; r++) {
            const struct symm_cuda_record *record =
                (const struct symm_cuda_record *)(const void *)heaps->team[r].record;

            assert_int_equal(record->device.state, -SYMM_ERR_ABORTED);
            assert_int_equal(record->pointers, r == 1 ? 1 + call.seed % 1000 : 0);
            assert_int_equal(job.result[r], -SYMM_ERR_ABORTED);
        }
        heaps_destroy(heaps);
    }
}

struct release {
    struct symm_cuda_pointers *entry;
    double delay;
};

static void *release_entry(void *arg)
{
    const struct release *release = arg;

    harness_sleep(release->delay);
    __atomic_store_n(&release->entry->state, SYMM_CUDA_POINTERS_RELEASED,
                     __ATOMIC_RELAXED);
    return NULL;
}

/* Whether rank r's call ended because `cause` cancelled its arrival. It may end as
 * SYMM_ERR_TIMEOUT: where another rank had not begun, or where block 0 of `cause` announced the
 * call after another block had cancelled it. */
static bool has_stopped(const struct heaps *heaps, int r, int cause)
{
    const int status = -(int)heaps->team[r].record->state;

    return status == SYMM_ERR_ABORTED || (r != cause && status == SYMM_ERR_TIMEOUT);
}

/* A rank's memory is released while its kernel begins: all ranks have the right result, or
 * none succeeds. */
static void test_release(void **unused)
{
    int failures = 0, successes = 0;

    (void)unused;
    for (int i = 0; i < 20 * WAYS; i++) {
        uint32_t random = 71u + (uint32_t)i;
        struct kernel_call call = some_call(&random, 3, i % WAYS, SYMM_INT32, SYMM_SUM);
        struct job job = {.calls = &call, .count = 1, .odd = -1, .dead = -1, .calm = 1};
        struct release release = {&job.pointers[1], 1e-6 * (double)(random % 2000)};
        struct heaps *heaps;
        pthread_t thread;
        int wrong;

        if (!has_pointers(call.algorithm))
            continue;
        call.by_pointer = true;
        call.threads = 512;
        heaps = open_heaps(3, 20, 0, 0);
        assert_int_equal(pthread_create(&thread, NULL, release_entry, &release), 0);
        wrong = run(heaps, &job);
        pthread_join(thread, NULL);
        for (int r = 0; r < 3; r++) /* wrong: by a failure alone */
            assert_true(job.wrong[r] == 0 || has_stopped(heaps, r, 1));
        assert_true(wrong == 0 || wrong == 3);
        successes += wrong == 0;
        failures += wrong == 3;
        heaps_destroy(heaps);
    }
    print_message("%d calls succeeded, %d failed\n", successes, failures);
}

/* Without an exit barrier a rank overwrites an input that a peer still reads. */
static void test_plant_exit(void **unused)
{
    static struct kernel_call calls[300];
    struct job job = {.calls = calls, .count = 300, .calm = 1, .odd = -1, .dead = -1};
    uint32_t random = 11u;

    (void)unused;
    for (int i = 0; i < 300; i++) {
        calls[i] = some_call(&random, 4, 0, SYMM_FLOAT32, SYMM_SUM);
        calls[i].count = 3000;
        calls[i].blocks = 1;
        calls[i].threads = 32;
        calls[i].flags = SYMM_CUDA_ENTRY_BARRIER;
    }
    for (int tries = 0, seen = 0; seen == 0; tries++) { /* it is a race */
        /* Who has seen it stops, and the others wait. */
        struct heaps *heaps = open_heaps(4, 2, 0, 0);
        assert_true(tries < 20);
        seen = run(heaps, &job);
        heaps_destroy(heaps);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all),      cmocka_unit_test(test_hot),
        cmocka_unit_test(test_stream),   cmocka_unit_test(test_ops),
        cmocka_unit_test(test_torture),  cmocka_unit_test(test_dead),
        cmocka_unit_test(test_left),     cmocka_unit_test(test_cut_short),
        cmocka_unit_test(test_mismatch), cmocka_unit_test(test_unready),
        cmocka_unit_test(test_release),  cmocka_unit_test(test_plant_exit),
    };

    reference_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
