/* SPDX-License-Identifier: MIT */
/*
 * pair.c - the fused all_reduce + norm between two ranks that are streams of one process on one
 * GPU. Kernels of one process run side by side, so this measures the kernels themselves, where the
 * wire is the GPU's second level cache: what part of a call is no transfer.
 *
 * Two heaps with the library's layout lie in plain device memory. Kernels come from the library's
 * images, or from SYMM_KERNELS, with arguments and launches like those of symm/cuda/launch.c.
 * Each contender's calls lie in a graph for each rank; the two graphs begin together. Results are
 * checked against expect.h. Every wait has a deadline, except for TensorRT-LLM's kernels: for
 * those a watchdog ends the program.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cuda_launch.h"
#include "norm/contenders.h"
#include "norm/gpu.h"

#define RANKS     2
#define CHANNEL   0
#define TIMEOUT   UINT64_C(2000000000) /* nanoseconds */
#define MODULES   24
#define FUNCTIONS 64
#define SCALE     0.03125f

struct rank {
    char *heap;
    struct symm_cuda_state *state;
    struct symm_cuda_record *record;
    void *stream, *begin, *end;
    void *in, *first, *residual, *weight, *norm, *quant, *sum;
    float *scale;
    void *sums, *flags, *packets, *counters, **words; /* of TensorRT-LLM's kernel */
};

struct pair {
    struct norm_bench bench;
    struct rank ranks[RANKS];
    struct symm_cuda_scratch scratch[SYMM_CHANNELS];
    size_t heap_bytes;
    void *gate, *open; /* a stream, and the event after the wait in it */
    atomic_int released;
    struct {
        const char *name;
        void *module;
    } modules[MODULES];
    int module_count;
    struct {
        const char *name;
        void *function;
    } functions[FUNCTIONS];
    int function_count;
    const struct norm_shape *shape;
    bool dry;   /* functions are looked up, and nothing is launched */
    bool early; /* the kernel before on the stream that is captured: SYMM_CUDA_EARLY */
};

/* ---- Kernels ------------------------------------------------------------------------- */

static void *read_kernels(const char *folder, const char *name)
{
    char path[4096];
    FILE *file;
    char *image = calloc(1, (size_t)64 << 20);

    snprintf(path, sizeof path, "%s/%s.fatbin", folder, name);
    file = fopen(path, "re");
    if (!file || !image || fread(image, 1, ((size_t)64 << 20) - 1, file) == 0) {
        fprintf(stderr, "%s cannot be read\n", path);
        exit(3);
    }
    fclose(file);
    return image;
}

static const void *image_of(const char *name)
{
    const char *folder = getenv("SYMM_KERNELS");

    if (folder)
        return read_kernels(folder, name);
    for (const struct symm_cuda_image *image = symm__cuda_images; image->module;
         image++)
        if (strcmp(image->module, name) == 0)
            return image->data;
    fprintf(stderr, "this build has no kernels of module %s\n", name);
    exit(3);
}

static void *module_of(struct pair *pair, const char *name)
{
    int m = 0;

    while (m < pair->module_count && strcmp(pair->modules[m].name, name) != 0)
        m++;
    if (m == MODULES)
        abort();
    if (m == pair->module_count) {
        pair->modules[m].name = name;
        pair->modules[m].module = gpu_module(image_of(name), name);
        pair->module_count++;
    }
    return pair->modules[m].module;
}

/* The first look-up may wait for all kernels that run. */
static void *function_of(struct pair *pair, const struct symm_cuda_kernel *kernel)
{
    int f = 0;

    while (f < pair->function_count &&
           strcmp(pair->functions[f].name, kernel->name) != 0)
        f++;
    if (f == FUNCTIONS)
        abort();
    if (f == pair->function_count) {
        pair->functions[f].name = kernel->name;
        pair->functions[f].function =
            gpu_function(module_of(pair, kernel->module), kernel->name);
        pair->function_count++;
    }
    return pair->functions[f].function;
}

/* As symm/cuda/launch.c launches it. */
static void start(struct pair *pair, int rank, const struct symm_cuda_kernel *kernel,
                  struct symm_cuda_shape shape, struct symm_cuda_args *args, bool early)
{
    const int processors = pair->bench.processors;
    const bool depends = early || !pair->early || (int)shape.blocks <= processors / 4;
    void *function = function_of(pair, kernel);

    if (pair->dry)
        return;
    args->flags |= early ? SYMM_CUDA_EARLY : 0;
    args->flags |= depends ? SYMM_CUDA_DEPENDENT : 0;
    pair->early = early;
    args->cluster = shape.cluster;
    args->each = shape.each;
    gpu_launch(function, shape.blocks, shape.threads, 1u << shape.cluster, depends,
               args, pair->ranks[rank].stream);
}

static struct symm_cuda_args args_of(struct pair *pair, int rank, const symm_norm *norm)
{
    const struct rank *own = &pair->ranks[rank];
    struct symm_cuda_args args = {
        .team = {.layout = SYMM_DEVICE_LAYOUT,
                 .rank = rank,
                 .size = RANKS,
                 .timeout = TIMEOUT,
                 .state = &own->state->device,
                 .record = &own->record->device},
        .scratch = pair->scratch[CHANNEL],
        .in = norm->in,
        .out = norm->sum_out,
        .count = norm->rows * norm->hidden,
        .bytes = 2 * norm->rows * norm->hidden,
        .tag = 1 + (uint32_t)(norm->rows * 16411 + norm->hidden),
        .channel = CHANNEL,
        .flags = SYMM_CUDA_ENTRY_BARRIER | SYMM_CUDA_EXIT_BARRIER,
        .dtype = SYMM_BFLOAT16,
        .op = SYMM_SUM,
        .peer = -1,
        .signal = -1,
        .limit = TIMEOUT,
        .norm = *norm,
        .scale_step = norm->rows,
    };

    for (int r = 0; r < RANKS; r++)
        args.team.base[r] = pair->ranks[r].heap;
    return args;
}

static bool find(const struct pair *pair, enum symm_kind kind, const symm_norm *norm,
                 struct symm_cuda_kernel *kernel, struct symm_cuda_shape *shape)
{
    struct symm_cuda_query query = {.kind = kind,
                                    .algorithm = SYMM_ALGORITHM_LAMPORT_PUSH,
                                    .dtype = SYMM_BFLOAT16,
                                    .op = SYMM_SUM,
                                    .size = RANKS,
                                    .bytes = 2 * norm->rows * norm->hidden,
                                    .processors = pair->bench.processors,
                                    .clusters = true,
                                    .scratch = pair->scratch[CHANNEL]};

    if (kind == SYMM_KIND_ALL_REDUCE_NORM) {
        query.rows = norm->rows;
        query.hidden = (uint32_t)norm->hidden;
    }
    return symm__cuda_kernel_find(&query, kernel, shape);
}

static bool is_early(const struct pair *pair, struct symm_cuda_shape shape)
{
    return shape.blocks * shape.threads <=
           (uint32_t)pair->bench.processors * SYMM_EARLY_THREADS;
}

/* ---- Calls: false: there is no kernel for the size ------------------------------------- */

static bool plain_call(struct pair *pair, int rank, const symm_norm *norm)
{
    struct symm_cuda_args args = args_of(pair, rank, norm);
    struct symm_cuda_kernel kernel;
    struct symm_cuda_shape shape;

    if (!find(pair, SYMM_KIND_ALL_REDUCE, norm, &kernel, &shape))
        return false;
    args.kind = SYMM_KIND_ALL_REDUCE;
    memset(&args.norm, 0, sizeof args.norm);
    start(pair, rank, &kernel, shape, &args, is_early(pair, shape));
    return true;
}

/* Launches the norm after a plain call, whose output is norm->sum_out. */
static bool rest_call(struct pair *pair, int rank, const symm_norm *norm)
{
    struct symm_cuda_args args = {.in = norm->in,
                                  .out = norm->sum_out,
                                  .count = norm->rows * norm->hidden,
                                  .bytes = 2 * norm->rows * norm->hidden,
                                  .dtype = SYMM_BFLOAT16,
                                  .kind = SYMM_KIND_ALL_REDUCE_NORM,
                                  .norm = *norm,
                                  .scale_step = norm->rows};
    struct symm_cuda_kernel kernel;
    struct symm_cuda_shape shape;

    args.norm.sum_out = NULL;
    symm__cuda_norm_find(norm->rows, (uint32_t)norm->hidden, SYMM_BFLOAT16,
                         pair->bench.processors, &kernel, &shape);
    start(pair, rank, &kernel, shape, &args, false);
    return true;
}

/* Launches the fused kernel as many times as the library would, on parts of the rows. */
static bool fused_call(struct pair *pair, int rank, const symm_norm *whole)
{
    const size_t row = 2 * whole->hidden;
    struct symm_cuda_kernel kernel;
    struct symm_cuda_shape shape;
    symm_norm part = *whole;

    while (!find(pair, SYMM_KIND_ALL_REDUCE_NORM, &part, &kernel, &shape)) {
        if (part.rows == 1)
            return false;
        part.rows = (part.rows + 1) / 2;
    }
    for (size_t first = 0, most = part.rows; first < whole->rows; first += most) {
        struct symm_cuda_args args;

        part.rows = whole->rows - first < most ? whole->rows - first : most;
        part.in = (const char *)whole->in + first * row;
        part.residual_in = (const char *)whole->residual_in + first * row;
        part.residual_out = (char *)whole->residual_out + first * row;
        part.norm_out = whole->norm_out ? (char *)whole->norm_out + first * row : NULL;
        part.quant_out =
            whole->quant_out ? (char *)whole->quant_out + first * whole->hidden : NULL;
        args = args_of(pair, rank, &part);
        args.kind = SYMM_KIND_ALL_REDUCE_NORM;
        args.scale_step = whole->rows;
        start(pair, rank, &kernel, shape, &args, is_early(pair, shape));
    }
    return true;
}

static bool call(struct pair *pair, int rank, const struct norm_contender *contender)
{
    const struct rank *own = &pair->ranks[rank];
    symm_norm norm = norm_call_of(contender, pair->shape);

    norm.in = own->in;
    norm.residual_in = norm.residual_out = own->residual;
    norm.weight = own->weight;
    norm.norm_out = contender->fp8 ? NULL : own->norm;
    norm.quant_out = contender->fp8 ? own->quant : NULL;
    norm.scale = contender->fp8 ? own->scale : NULL;
    switch (contender->what) {
    case NORM_PLAIN:
    case NORM_UNFUSED:
        norm.sum_out = own->sum;
        return plain_call(pair, rank, &norm) &&
               (contender->what == NORM_PLAIN || rest_call(pair, rank, &norm));
    case NORM_PEER:
        return norm_bench_peer(&pair->bench, contender, &norm, RANKS, rank, own->words,
                               own->stream, true);
    default:
        return fused_call(pair, rank, &norm);
    }
}

/* ---- Memory -------------------------------------------------------------------------- */

/* Sets the scratch to that of a new team, and TensorRT-LLM's workspace to what its kernel expects
 * before the first call of a size. */
static void reset(struct pair *pair)
{
    const struct symm_cuda_scratch *scratch = &pair->scratch[CHANNEL];
    const size_t bytes = 2 * pair->shape->rows * pair->shape->hidden;
    const int32_t counters[5] = {0, 0, 0, (int32_t)(RANKS * bytes), 0};
    uint16_t *packets = NULL;

    for (int r = 0; r < RANKS; r++) {
        struct rank *own = &pair->ranks[r];

        gpu_fill(own->heap, 0, pair->heap_bytes);
        gpu_fill(own->heap + scratch->lamport, 0xff, scratch->lamport_bytes);
        gpu_fill(own->state, 0, sizeof *own->state);
        memset(own->record, 0, sizeof *own->record);
        if (!pair->bench.launch_peer)
            continue;
        if (!packets)
            packets = malloc(NORM_PEER_PACKETS(RANKS, bytes));
        for (size_t i = 0; packets && i < NORM_PEER_PACKETS(RANKS, bytes) / 2; i++)
            packets[i] = 0x8000;
        gpu_copy(own->packets, packets, NORM_PEER_PACKETS(RANKS, bytes));
        gpu_fill(own->flags, 0, NORM_PEER_FLAGS(RANKS));
        gpu_copy(own->counters, counters, sizeof counters);
    }
    free(packets);
}

static void fill(struct pair *pair, void *to, int rank, char array, size_t rows)
{
    const size_t bytes = 2 * rows * pair->shape->hidden;
    void *values = malloc(bytes);

    if (!values)
        abort();
    norm_fill_rows(pair->shape, rank, array, 1, rows, values);
    gpu_copy(to, values, bytes);
    free(values);
}

static void fill_inputs(struct pair *pair)
{
    for (int r = 0; r < RANKS; r++) {
        const struct rank *own = &pair->ranks[r];

        gpu_alive("inputs");
        fill(pair, own->in, r, 'i', pair->shape->rows);
        fill(pair, own->first, 0, 'r', pair->shape->rows);
        fill(pair, own->weight, 0, 'w', 1);
    }
}

/* Writes the first residual, and outputs that no call would leave. */
static void rewind_rank(const struct pair *pair, int rank)
{
    const size_t count = pair->shape->rows * pair->shape->hidden;
    const struct rank *own = &pair->ranks[rank];

    gpu_copy(own->residual, own->first, 2 * count);
    gpu_fill(own->norm, 0xff, 2 * count);
    gpu_fill(own->quant, 0xff, count);
    gpu_fill(own->sum, 0xff, 2 * count);
}

static void open_peer_memory(struct pair *pair, size_t most)
{
    void *words[NORM_PEER_WORDS(RANKS)];

    for (int r = 0; r < RANKS; r++) {
        struct rank *own = &pair->ranks[r];

        own->sums = gpu_alloc(NORM_PEER_SUMS(most), 0);
        own->flags = gpu_alloc(NORM_PEER_FLAGS(RANKS), 0);
        own->packets = gpu_alloc(NORM_PEER_PACKETS(RANKS, most), 0);
        own->counters = gpu_alloc(4096, 0);
        own->words = gpu_alloc(sizeof words, 0);
    }
    for (int r = 0; r < RANKS; r++) {
        for (int p = 0; p < RANKS; p++) {
            words[p] = pair->ranks[p].sums;
            words[RANKS + p] = pair->ranks[p].flags;
            words[2 * RANKS + p] = pair->ranks[p].packets;
        }
        words[3 * RANKS] = pair->ranks[r].counters;
        gpu_copy(pair->ranks[r].words, words, sizeof words);
    }
}

static void open_ranks(struct pair *pair)
{
    const size_t most = norm_bench_most(&pair->bench);

    pair->heap_bytes = symm__cuda_scratch_layout(SYMM_PAD_BYTES, 2, pair->scratch);
    for (int r = 0; r < RANKS; r++) {
        struct rank *own = &pair->ranks[r];
        const float scale = SCALE;

        own->heap = gpu_alloc(pair->heap_bytes, 0);
        own->state = gpu_alloc(sizeof *own->state, 0);
        own->record = gpu_host(sizeof *own->record);
        own->in = gpu_alloc(most, 0);
        own->first = gpu_alloc(most, 0);
        own->residual = gpu_alloc(most, 0);
        own->weight = gpu_alloc(2 * SYMM_NORM_MAX_HIDDEN, 0);
        own->norm = gpu_alloc(most, 0);
        own->quant = gpu_alloc(most, 0);
        own->sum = gpu_alloc(most, 0);
        own->scale = gpu_alloc(sizeof scale, 0);
        gpu_copy(own->scale, &scale, sizeof scale);
        own->stream = gpu_stream();
        own->begin = gpu_event();
        own->end = gpu_event();
    }
    if (pair->bench.launch_peer)
        open_peer_memory(pair, most);
    pair->gate = gpu_stream();
    pair->open = gpu_event();
}

/* ---- Replays ------------------------------------------------------------------------- */

static void wait_for_release(void *arg)
{
    const struct pair *pair = arg;

    while (!atomic_load(&pair->released))
        usleep(1);
}

/* Replays both ranks' graphs, which begin at one moment. Returns the slower rank's time of a
 * call. */
static double replay(struct pair *pair, const struct norm_contender *contender)
{
    double most = 0;

    gpu_alive(contender->name);
    atomic_store(&pair->released, 0);
    gpu_call_later(wait_for_release, pair, pair->gate);
    gpu_mark(pair->open, pair->gate);
    for (int r = 0; r < RANKS; r++) {
        struct rank *own = &pair->ranks[r];

        gpu_await(pair->open, own->stream);
        gpu_mark(own->begin, own->stream);
        gpu_replay(contender->graphs[r], own->stream);
        gpu_mark(own->end, own->stream);
    }
    atomic_store(&pair->released, 1);
    for (int r = 0; r < RANKS; r++)
        gpu_wait(pair->ranks[r].stream);
    for (int r = 0; r < RANKS; r++) {
        const double us = gpu_us(pair->ranks[r].begin, pair->ranks[r].end);

        most = us > most ? us : most;
    }
    return most / pair->bench.calls;
}

static void drop(struct norm_contender *contender)
{
    contender->dropped = true;
    for (int r = 0; r < RANKS; r++)
        if (contender->graphs[r])
            gpu_graph_free(contender->graphs[r]);
    memset(contender->graphs, 0, sizeof contender->graphs);
}

/* Whether all kernels have met their peer; else says which one has not. */
static bool alive(struct pair *pair, struct norm_contender *contender)
{
    for (int r = 0; r < RANKS; r++) {
        const struct symm_device_record *record = &pair->ranks[r].record->device;

        if (record->state == 0)
            continue;
        fprintf(stderr, "%zux%zu, %s: rank %d: a kernel has stopped with status %d\n",
                pair->shape->rows, pair->shape->hidden, contender->name, r,
                -(int)record->state);
        drop(contender);
        reset(pair);
        return false;
    }
    return true;
}

static void capture(struct pair *pair, struct norm_contender *contender)
{
    bool can = true;

    gpu_alive(contender->name);
    if (contender->what != NORM_PEER) { /* whose functions are loaded at the start */
        pair->dry = true;
        can = call(pair, 0, contender);
        pair->dry = false;
    }
    for (int r = 0; r < RANKS && can; r++) { /* once outside of a graph */
        pair->early = false;
        can = call(pair, r, contender);
    }
    for (int r = 0; r < RANKS; r++)
        gpu_wait(pair->ranks[r].stream);
    for (int r = 0; r < RANKS && can; r++) {
        gpu_capture(pair->ranks[r].stream);
        pair->early = false;
        for (int i = 0; i < pair->bench.calls && can; i++)
            can = call(pair, r, contender);
        contender->graphs[r] = gpu_captured(pair->ranks[r].stream);
    }
    if (!can)
        drop(contender);
    else
        (void)alive(pair, contender);
}

static void check(struct pair *pair, struct norm_contender *contender)
{
    const size_t count = pair->shape->rows * pair->shape->hidden;
    const enum norm_what what = contender->what;
    char *host = malloc(6 * count);

    if (!host)
        abort();
    for (int r = 0; r < RANKS; r++)
        rewind_rank(pair, r);
    (void)replay(pair, contender);
    for (int r = 0; r < RANKS && alive(pair, contender); r++) {
        const struct rank *own = &pair->ranks[r];
        symm_norm found = {0};

        gpu_alive("a check");
        if (what == NORM_PLAIN || what == NORM_UNFUSED)
            gpu_copy(found.sum_out = host, own->sum, 2 * count);
        if (what != NORM_PLAIN)
            gpu_copy(found.residual_out = host + 2 * count, own->residual, 2 * count);
        if (what != NORM_PLAIN && contender->fp8)
            gpu_copy(found.quant_out = host + 4 * count, own->quant, count);
        else if (what != NORM_PLAIN)
            gpu_copy(found.norm_out = host + 4 * count, own->norm, 2 * count);
        norm_contender_check(contender, pair->shape, RANKS, pair->bench.calls, &found,
                             SCALE);
    }
    free(host);
}

static void run_shape(struct pair *pair, const struct norm_shape *shape)
{
    struct norm_bench *bench = &pair->bench;

    pair->shape = shape;
    norm_bench_begin(bench);
    reset(pair);
    fill_inputs(pair);
    for (int i = 0; i < bench->count; i++)
        capture(pair, &bench->contenders[i]);
    for (int i = 0; i < bench->count; i++)
        if (!bench->contenders[i].dropped)
            check(pair, &bench->contenders[i]);
    for (int round = 0; round < bench->replays; round++)
        for (int i = 0; i < bench->count; i++) {
            struct norm_contender *contender = norm_bench_turn(bench, round, i);

            if (contender) {
                contender->times[round] = replay(pair, contender);
                (void)alive(pair, contender);
            }
        }
    for (int i = 0; i < bench->count; i++) {
        struct norm_contender *contender = &bench->contenders[i];

        if (contender->dropped)
            continue;
        norm_contender_finish(contender, bench->replays);
        for (int r = 0; r < RANKS; r++)
            gpu_graph_free(contender->graphs[r]);
    }
    norm_bench_row(bench, shape, true);
}

int main(int argc, char **argv)
{
    static struct pair pair;
    int result = norm_bench_parse(&pair.bench, "norm_pair", argc, argv);

    if (result != 0)
        return result;
    setenv("CUDA_MODULE_LOADING", "EAGER", 1); /* loading waits for kernels that run */
    if (!gpu_open(0)) {
        fprintf(stderr, "norm_pair: no driver, or no GPU\n");
        return 77;
    }
    gpu_watch(pair.bench.seconds);
    if (pair.bench.processors == 0)
        pair.bench.processors = gpu_processors();
    open_ranks(&pair);
    for (int i = 0; i < pair.bench.shape_count; i++)
        run_shape(&pair, &pair.bench.shapes[i]);
    return norm_bench_end(&pair.bench, true);
}
