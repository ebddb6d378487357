/* SPDX-License-Identifier: MIT */
/*
 * job.c - times the fused all_reduce + norm of a job's ranks, a process and a GPU each, as
 * "symmrun -n N -- norm_job ..." starts them. All contenders of a size, TensorRT-LLM's kernel on
 * libsymm's symmetric memory among them, take turns in one run. Uses the public API alone.
 *
 * A replay begins after a barrier on the stream, when all of the replay is queued. A contender's
 * times are the slowest rank's. TensorRT-LLM's waits have no deadline: a watchdog ends the
 * program.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "norm/contenders.h"
#include "norm/gpu.h"
#include "symm/symm.h"

#define SCALE 0.03125f
#define MOST  8 /* ranks */

enum array { IN, RESIDUAL, NORM, QUANT, SUM, SUMS, FLAGS, PACKETS, FIGURES, ARRAYS };

struct job {
    struct norm_bench bench;
    symm_ctx *ctx;
    symm_team *team;
    int rank, ranks;
    symm_buffer *buffers[ARRAYS];
    void *at[ARRAYS]; /* NULL: not needed */
    size_t bytes[ARRAYS];
    void *weight, *first, *counters, **words; /* first: the first call's residual */
    float *scale;
    void *stream, *begin, *end;
    atomic_int released;
    const struct norm_shape *shape;
};

static void ok(const struct job *job, symm_status status, const char *what)
{
    if (status == SYMM_OK)
        return;
    fflush(stdout);
    fprintf(stderr, "norm_job: rank %d: %s: %s\n", job->rank, what, symm_last_error());
    _exit(3);
}

/* ---- Calls --------------------------------------------------------------------------- */

static symm_norm norm_of(const struct job *job, const struct norm_contender *contender)
{
    symm_norm norm = norm_call_of(contender, job->shape);

    norm.in = job->at[IN];
    norm.residual_in = norm.residual_out = job->at[RESIDUAL];
    norm.weight = job->weight;
    norm.norm_out = contender->fp8 ? NULL : job->at[NORM];
    norm.quant_out = contender->fp8 ? job->at[QUANT] : NULL;
    norm.scale = contender->fp8 ? job->scale : NULL;
    return norm;
}

/* Makes the call by the library. False: the library cannot do it in one kernel, or not at all. */
static bool own_call(const struct job *job, const struct norm_contender *contender,
                     const symm_norm *norm)
{
    const char *unfused = norm->rows * norm->hidden > 64 << 10 ? "copy_in" : "ll_push";
    const symm_call call = {
        .size = sizeof call,
        .stream = job->stream,
        /* not a fused kernel: an all_reduce, and a kernel after it */
        .algorithm = contender->what == NORM_UNFUSED ? unfused : NULL};
    symm_status status = contender->what == NORM_PLAIN
                             ? symm_all_reduce(job->team, norm->in, job->at[SUM],
                                               norm->rows * norm->hidden, SYMM_BFLOAT16,
                                               SYMM_SUM, &call, NULL)
                             : symm_all_reduce_norm(job->team, norm, &call, NULL);

    if (status == SYMM_ERR_INVALID || status == SYMM_ERR_UNSUPPORTED) {
        if (job->rank == 0)
            fprintf(stderr, "%zux%zu, %s: %s\n", norm->rows, norm->hidden,
                    contender->name, symm_last_error());
        return false;
    }
    ok(job, status, contender->name);
    return true;
}

static bool call(const struct job *job, const struct norm_contender *contender)
{
    symm_norm norm = norm_of(job, contender);

    if (contender->what != NORM_PEER)
        return own_call(job, contender, &norm);
    return norm_bench_peer(&job->bench, contender, &norm, job->ranks, job->rank,
                           job->words, job->stream, job->rank == 0);
}

/* ---- Replays ------------------------------------------------------------------------- */

static void wait_for_release(void *arg)
{
    const struct job *job = arg;

    while (!atomic_load(&job->released))
        usleep(1);
}

static void barrier(const struct job *job)
{
    const symm_call call = {.size = sizeof call, .stream = job->stream};

    ok(job, symm_barrier(job->team, &call, NULL), "symm_barrier");
}

static double replay(struct job *job, const struct norm_contender *contender)
{
    gpu_alive(contender->name);
    atomic_store(&job->released, 0);
    gpu_call_later(wait_for_release, job, job->stream);
    barrier(job);
    gpu_mark(job->begin, job->stream);
    gpu_replay(contender->graphs[0], job->stream);
    gpu_mark(job->end, job->stream);
    atomic_store(&job->released, 1);
    gpu_wait(job->stream);
    return gpu_us(job->begin, job->end) / job->bench.calls;
}

/* The ranks' `count` figures (at most 3 for each contender): the largest of each. */
static void largest(struct job *job, double *figures, int count)
{
    double all[MOST * 3 * NORM_CONTENDERS];
    double *mine = job->at[FIGURES];
    const size_t bytes = (size_t)count * sizeof(double);
    const symm_call call = {.size = sizeof call, .stream = job->stream};

    gpu_copy(mine, figures, bytes);
    ok(job,
       symm_all_gather(job->team, mine, mine + 3 * NORM_CONTENDERS, (size_t)count,
                       SYMM_FLOAT64, &call, NULL),
       "symm_all_gather");
    gpu_wait(job->stream);
    gpu_copy(all, mine + 3 * NORM_CONTENDERS, (size_t)job->ranks * bytes);
    for (int i = 0; i < count; i++)
        for (int r = 0; r < job->ranks; r++)
            if (all[r * count + i] > figures[i])
                figures[i] = all[r * count + i];
}

/* A contender that one rank has dropped is dropped by all. */
static void agree(struct job *job, struct norm_contender *contender, bool can)
{
    double dropped = !can;

    largest(job, &dropped, 1);
    contender->dropped = dropped > 0;
}

static void capture(struct job *job, struct norm_contender *contender)
{
    bool can;

    gpu_alive(contender->name);
    can = call(job, contender); /* once outside of a graph: lazy set-up */
    agree(job, contender, can);
    if (contender->dropped)
        return;
    gpu_wait(job->stream);
    barrier(job);
    gpu_wait(job->stream);
    gpu_capture(job->stream);
    for (int i = 0; i < job->bench.calls && can; i++)
        can = call(job, contender);
    contender->graphs[0] = gpu_captured(job->stream);
    agree(job, contender, can);
}

/* ---- Inputs and results -------------------------------------------------------------- */

static void fill(const struct job *job, void *to, int rank, char array, size_t rows)
{
    const size_t bytes = 2 * rows * job->shape->hidden;
    void *values = malloc(bytes);

    if (!values)
        abort();
    norm_fill_rows(job->shape, rank, array, 1, rows, values);
    gpu_copy(to, values, bytes);
    free(values);
}

static void fill_inputs(const struct job *job)
{
    gpu_alive("inputs");
    fill(job, job->at[IN], job->rank, 'i', job->shape->rows);
    fill(job, job->first, 0, 'r', job->shape->rows);
    fill(job, job->weight, 0, 'w', 1);
}

/* Writes the first residual, and outputs that no call would leave. */
static void rewind_rank(const struct job *job)
{
    const size_t count = job->shape->rows * job->shape->hidden;

    gpu_copy(job->at[RESIDUAL], job->first, 2 * count);
    gpu_fill(job->at[NORM], 0xff, 2 * count);
    gpu_fill(job->at[QUANT], 0xff, count);
    gpu_fill(job->at[SUM], 0xff, 2 * count);
}

static void check(struct job *job, struct norm_contender *contender)
{
    const size_t count = job->shape->rows * job->shape->hidden;
    char *host = malloc(6 * count);
    symm_norm found = {0};
    double wrong;

    if (!host)
        abort();
    rewind_rank(job);
    (void)replay(job, contender);
    if (contender->what == NORM_PLAIN) {
        gpu_copy(found.sum_out = host, job->at[SUM], 2 * count);
    } else {
        gpu_copy(found.residual_out = host, job->at[RESIDUAL], 2 * count);
        if (contender->fp8)
            gpu_copy(found.quant_out = host + 2 * count, job->at[QUANT], count);
        else
            gpu_copy(found.norm_out = host + 2 * count, job->at[NORM], 2 * count);
    }
    gpu_alive("a check");
    norm_contender_check(contender, job->shape, job->ranks, job->bench.calls, &found,
                         SCALE);
    free(host);
    wrong = (double)contender->wrong;
    largest(job, &wrong, 1);
    contender->wrong = (size_t)wrong;
}

/* Sets TensorRT-LLM's workspace to what its kernel expects before the first call of a size. */
static void reset_peer(struct job *job)
{
    const size_t bytes = 2 * job->shape->rows * job->shape->hidden;
    const size_t packets = NORM_PEER_PACKETS(job->ranks, bytes);
    const int32_t counters[5] = {0, 0, 0, (int32_t)((size_t)job->ranks * bytes), 0};
    uint16_t *values = malloc(packets);

    if (!values)
        abort();
    for (size_t i = 0; i < packets / 2; i++)
        values[i] = 0x8000;
    gpu_copy(job->at[PACKETS], values, packets);
    free(values);
    gpu_fill(job->at[FLAGS], 0, job->bytes[FLAGS]);
    gpu_copy(job->counters, counters, sizeof counters);
}

/* ---- A size -------------------------------------------------------------------------- */

static void time_all(struct job *job)
{
    struct norm_bench *bench = &job->bench;
    double figures[3 * NORM_CONTENDERS];

    for (int round = 0; round < bench->replays; round++)
        for (int i = 0; i < bench->count; i++) {
            struct norm_contender *contender = norm_bench_turn(bench, round, i);

            if (contender)
                contender->times[round] = replay(job, contender);
        }
    for (int i = 0; i < bench->count; i++) {
        norm_contender_finish(&bench->contenders[i], bench->replays);
        figures[2 * i] = bench->contenders[i].median;
        figures[2 * i + 1] = bench->contenders[i].p99;
    }
    largest(job, figures, 2 * bench->count);
    for (int i = 0; i < bench->count; i++) {
        bench->contenders[i].median = figures[2 * i];
        bench->contenders[i].p99 = figures[2 * i + 1];
    }
}

static void run_shape(struct job *job, const struct norm_shape *shape)
{
    struct norm_bench *bench = &job->bench;

    job->shape = shape;
    norm_bench_begin(bench);
    if (bench->launch_peer)
        reset_peer(job);
    fill_inputs(job);
    barrier(job);
    gpu_wait(job->stream);
    for (int i = 0; i < bench->count; i++)
        capture(job, &bench->contenders[i]);
    for (int i = 0; i < bench->count; i++)
        if (!bench->contenders[i].dropped)
            check(job, &bench->contenders[i]);
    time_all(job);
    for (int i = 0; i < bench->count; i++)
        if (bench->contenders[i].graphs[0])
            gpu_graph_free(bench->contenders[i].graphs[0]);
    norm_bench_row(bench, shape, job->rank == 0);
}

/* ---- The rank ------------------------------------------------------------------------ */

static void open_arrays(struct job *job)
{
    const size_t most = norm_bench_most(&job->bench), ranks = (size_t)job->ranks;
    const bool peer = job->bench.launch_peer != NULL;
    const size_t bytes[ARRAYS] = {most,
                                  most,
                                  most,
                                  most,
                                  most,
                                  peer ? NORM_PEER_SUMS(most) : 0,
                                  peer ? NORM_PEER_FLAGS(ranks) : 0,
                                  peer ? NORM_PEER_PACKETS(ranks, most) : 0,
                                  (MOST + 1) * 3 * NORM_CONTENDERS * sizeof(double)};
    const int64_t stride = 1;

    for (int i = 0; i < ARRAYS; i++) {
        const int64_t shape = (int64_t)bytes[i];

        job->bytes[i] = bytes[i];
        if (bytes[i] == 0)
            continue;
        ok(job,
           symm_empty_strided_p2p(job->team, 1, &shape, &stride, SYMM_UINT8,
                                  (uint64_t)i + 1, &job->buffers[i]),
           "symm_empty_strided_p2p");
        job->at[i] = symm_buffer_ptr(job->buffers[i]);
    }
    ok(job, symm_rendezvous(job->team), "symm_rendezvous");
}

static void open_workspace(struct job *job)
{
    void *words[NORM_PEER_WORDS(MOST)];

    for (int r = 0; r < job->ranks; r++)
        for (int i = 0; i < 3; i++)
            words[i * job->ranks + r] =
                r == job->rank ? job->at[SUMS + i]
                               : symm_buffer_peer_ptr(job->buffers[SUMS + i], r);
    job->counters = gpu_alloc(4096, 0);
    words[3 * job->ranks] = job->counters;
    job->words = gpu_alloc(sizeof words, 0);
    gpu_copy(job->words, words, NORM_PEER_WORDS(job->ranks) * sizeof(void *));
}

static void open_job(struct job *job)
{
    const symm_config config = {.size = sizeof(config), .backend = "cuda"};
    const float scale = SCALE;

    ok(job, symm_init(&config, &job->ctx), "symm_init");
    job->team = symm_team_world(job->ctx);
    job->rank = symm_team_rank(job->team);
    job->ranks = symm_team_size(job->team);
    if (job->ranks > MOST) {
        fprintf(stderr, "norm_job: %d ranks, allowed: at most %d\n", job->ranks, MOST);
        exit(2);
    }
    if (job->ranks != 2 && job->ranks != 4 && job->ranks != 8)
        job->bench.launch_peer = NULL; /* it has no kernels for so many */
    job->stream = gpu_stream();
    job->begin = gpu_event();
    job->end = gpu_event();
    job->weight = gpu_alloc(2 * SYMM_NORM_MAX_HIDDEN, 0);
    job->first = gpu_alloc(norm_bench_most(&job->bench), 0);
    job->scale = gpu_alloc(sizeof scale, 0);
    gpu_copy(job->scale, &scale, sizeof scale);
    open_arrays(job);
    if (job->bench.launch_peer)
        open_workspace(job);
}

int main(int argc, char **argv)
{
    static struct job job;
    const char *local = getenv("LOCAL_RANK");
    int result = norm_bench_parse(&job.bench, "norm_job", argc, argv);

    if (result != 0)
        return result;
    setenv("CUDA_MODULE_LOADING", "EAGER", 1); /* loading waits for kernels that run */
    if (!gpu_open(local ? atoi(local) : 0)) {
        fprintf(stderr, "norm_job: no driver, or no GPU\n");
        return 77;
    }
    gpu_watch(job.bench.seconds);
    open_job(&job);
    for (int i = 0; i < job.bench.shape_count; i++)
        run_shape(&job, &job.bench.shapes[i]);
    result = norm_bench_end(&job.bench, job.rank == 0);
    for (int i = 0; i < ARRAYS; i++)
        if (job.buffers[i])
            symm_buffer_release(job.buffers[i]);
    symm_finalize(job.ctx);
    return result;
}
