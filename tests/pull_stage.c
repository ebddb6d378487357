/* SPDX-License-Identifier: MIT */
/* pull_stage.c - see pull_stage.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pull_stage.h"
#include "reference.h"

#define MOST_BYTES ((size_t)160 << 10) /* of one rank's block */
#define AREA       ((uint64_t)2 << 20) /* room for an input, or an output */

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
    const struct symm_cuda_query query =
        kernel_call_query(call, heaps->size, 132, &args->scratch);
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
        shape =
            (struct symm_cuda_shape){.blocks = call->blocks, .threads = call->threads};
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

int run(struct heaps *heaps, struct job *job)
{
    int wrong = 0;

    heaps_run(heaps, run_rank, job);
    for (int r = 0; r < heaps->size; r++)
        wrong += job->wrong[r] != 0;
    return wrong;
}

void run_well(struct heaps *heaps, const struct kernel_call *calls, int count)
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
_Static_assert(sizeof(ways) / sizeof(ways[0]) == WAYS, "WAYS");

static size_t some_count(uint32_t *random, symm_dtype dtype)
{
    static const size_t counts[] = {0, 1, 2, 3, 7, 8, 15, 17, 64, 129, 511, 1001, 2048};
    size_t count =
        counts[kernel_call_random(random) % (sizeof(counts) / sizeof(counts[0]))];

    if (kernel_call_random(random) % 48 ==
        0) /* several rounds; all_reduce in two steps */
        /* an odd or an even number of rounds */
        count =
            (MOST_BYTES - kernel_call_random(random) % 28000) / reference_size(dtype);
    return count;
}

bool has_pointers(enum symm_algorithm algorithm)
{
    return algorithm == SYMM_ALGORITHM_ONE_SHOT_PULL ||
           algorithm == SYMM_ALGORITHM_TWO_SHOT_PULL ||
           algorithm == SYMM_ALGORITHM_TWO_SHOT_INPLACE;
}

struct kernel_call some_call(uint32_t *random, int size, int way, symm_dtype dtype,
                             symm_op op)
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

struct heaps *open_heaps(int size, double timeout, uint32_t round, uint32_t call)
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
