/* SPDX-License-Identifier: MIT */
/*
 * overlap.c - times two puts and an all_reduce, each alone and all three at once.
 *
 * On three streams of each rank: a put to rank + 1, a put to rank + 2 (of two ranks: the
 * same rank, other memory) and an all_reduce, of the same number of bytes, in symmetric
 * memory. On GPUs two events on a fourth stream time them: the first releases the three
 * streams, the second waits for all. A gate holds the streams until all calls are queued, so
 * that the time excludes the host's part of a call. With -G they are three branches of a
 * graph. On the host backend a clock times them. NCCL does the same with grouped sends and
 * receives on one communicator, never in a graph.
 *
 * Every element of the three results is compared, before and after the timed rounds.
 */
#include "perf/commands.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf/case.h"
#include "perf/nccl.h"
#include "perf/series.h"

#define GATE_SECONDS 5.0

enum part { PUT_NEXT, PUT_SECOND, REDUCE, PARTS };

#define TOGETHER PARTS /* a mode: a part alone, or all of them */
#define MODES    (PARTS + 1)

/* Holds a stream until all later work has been queued. */
struct gate {
    atomic_bool open;
    atomic_bool late; /* the wait timed out: some call is queued only on an idle stream */
};

struct overlap {
    struct perf_series series; /* first: callbacks cast to overlap; times: by mode */
    symm_buffer *buffer;
    struct perf_case parts[PARTS]; /* each has its own input: phase `part` */
    symm_call calls[PARTS];
    void *main, *streams[PARTS]; /* main: GPUs only */
    struct perf_nccl *nccl;      /* --compare: for the second row; else NULL */
    struct gate gate;
    char *staging; /* GPUs: host memory; else NULL */
    int mode;      /* of the round: a part, or TOGETHER */
    void *graphs[MODES];
};

/* NCCL, if this row's calls are NCCL's; NULL: they are libsymm's. */
static struct perf_nccl *by_nccl(const struct overlap *o)
{
    return o->series.row ? o->nccl : NULL;
}

static bool takes_part(const struct overlap *o, int part)
{
    return o->mode == TOGETHER || o->mode == part;
}

/* ---- One round ----------------------------------------------------------------------- */

static symm_status queue_parts(const struct overlap *o)
{
    symm_status status = SYMM_OK;

    for (int part = 0; part < PARTS && status == SYMM_OK; part++) {
        const struct perf_case *test = &o->parts[part];

        if (!takes_part(o, part))
            continue;
        status = by_nccl(o) ? perf_nccl_call(o->nccl, test, o->streams[part])
                            : perf_case_call(test);
    }
    return status;
}

/* GPUs: one round between two events on the main stream. */
static symm_status queue_round(void *arg)
{
    const struct overlap *o = arg;
    void *used[PARTS];
    symm_status status;

    for (int part = 0; part < PARTS; part++)
        used[part] = takes_part(o, part) ? o->streams[part] : NULL;
    status = perf_gpu_fork(o->series.job->gpu, o->main, used, PARTS);
    if (status == SYMM_OK)
        status = queue_parts(o);
    for (int part = 0; part < PARTS && status == SYMM_OK; part++)
        if (used[part])
            status = perf_gpu_order(o->series.job->gpu, used[part], o->main);
    return status;
}

/* Waits until all streams are idle. */
static symm_status finish(const struct overlap *o)
{
    symm_status status = SYMM_OK;

    if (o->series.job->gpu)
        return perf_gpu_wait(o->series.job->gpu, o->main);
    for (int part = 0; part < PARTS && status == SYMM_OK; part++)
        status = symm_stream_synchronize(o->series.job->ctx, o->streams[part], 0);
    return status;
}

/* ---- Its time ------------------------------------------------------------------------ */

static void wait_for_gate(void *arg)
{
    struct gate *gate = arg;
    double begin = perf_now();

    while (!atomic_load(&gate->open)) {
        if (perf_now() - begin > GATE_SECONDS * 1e6) {
            atomic_store(&gate->late, true);
            return;
        }
        sched_yield();
    }
}

static symm_status queue_timed(struct overlap *o, void *graph)
{
    struct perf_gpu *gpu = o->series.job->gpu;
    symm_status status = perf_job_barrier(o->series.job, o->main);

    if (status == SYMM_OK)
        status = perf_gpu_mark(gpu, 0, o->main);
    if (status == SYMM_OK)
        status = graph ? perf_gpu_replay(gpu, graph, o->main) : queue_round(o);
    return status == SYMM_OK ? perf_gpu_mark(gpu, 1, o->main) : status;
}

static symm_status time_on_gpu(struct overlap *o, double *elapsed)
{
    void *graph = o->graphs[o->mode];
    symm_status status = SYMM_OK;

    atomic_store(&o->gate.open, false);
    if (!atomic_load(&o->gate.late))
        status = symm_stream_call(o->series.job->ctx, o->main, wait_for_gate, &o->gate);
    if (status == SYMM_OK)
        status = queue_timed(o, graph);
    atomic_store(&o->gate.open, true);
    if (status == SYMM_OK)
        status = perf_gpu_elapsed(o->series.job->gpu, elapsed);
    if (status == SYMM_OK && graph)
        *elapsed /= o->series.options->graph;
    return status;
}

static symm_status time_on_host(const struct overlap *o, double *elapsed)
{
    symm_status status = perf_job_barrier(o->series.job, o->main);
    double begin = perf_now();

    if (status == SYMM_OK)
        status = queue_parts(o);
    if (status == SYMM_OK)
        status = finish(o);
    *elapsed = perf_now() - begin;
    return status;
}

static symm_status time_round(struct overlap *o, int mode, double *elapsed)
{
    o->mode = mode;
    return o->series.job->gpu ? time_on_gpu(o, elapsed) : time_on_host(o, elapsed);
}

static void drop_graphs(struct overlap *o)
{
    for (int mode = 0; mode < MODES; mode++) {
        perf_gpu_graph_free(o->series.job->gpu, o->graphs[mode]);
        o->graphs[mode] = NULL;
    }
}

/* -G rounds of each mode in a graph of its own. */
static symm_status capture(struct overlap *o)
{
    symm_status status = SYMM_OK;

    for (o->mode = 0; o->mode < MODES && status == SYMM_OK; o->mode++)
        status = perf_job_capture(o->series.job, o->main, o->series.options->graph,
                                  queue_round, o, &o->graphs[o->mode]);
    return status;
}

/* ---- Its results --------------------------------------------------------------------- */

/* One round of all three, `gated` as in a timed round. Puts end on one side only, so a
 * barrier precedes the check. */
static symm_status check(struct overlap *o, bool gated)
{
    double elapsed = 0;
    symm_status status;

    o->mode = TOGETHER;
    for (int part = 0; part < PARTS && o->series.options->checks > 0; part++)
        perf_case_spoil(&o->parts[part]);
    status = gated || !o->series.job->gpu ? time_round(o, TOGETHER, &elapsed)
                                          : perf_job_barrier(o->series.job, o->main);
    if (status == SYMM_OK && o->series.job->gpu && !gated)
        status = queue_round(o);
    if (status == SYMM_OK)
        status = perf_job_barrier(o->series.job, o->main);
    if (status == SYMM_OK)
        status = finish(o);
    for (int part = 0; part < PARTS && status == SYMM_OK; part++)
        if (o->series.options->checks > 0)
            o->series.wrong += (double)perf_case_check(&o->parts[part], part);
    return status;
}

/* ---- A row --------------------------------------------------------------------------- */

static symm_status measure(struct perf_series *series)
{
    struct overlap *o = (struct overlap *)series;
    int warmup = perf_options_warmup(series->options, series->bytes);
    symm_status status;
    double elapsed = 0;

    for (int part = 0; part < PARTS; part++) {
        perf_case_size(&o->parts[part], series->bytes);
        perf_case_fill(&o->parts[part], part);
    }
    status = check(o, false); /* the first calls do lazy set-up */
    if (status == SYMM_OK && o->series.options->graph && !by_nccl(o))
        status = capture(o);
    for (int i = -warmup; i < series->iterations && status == SYMM_OK; i++) {
        for (int mode = 0; mode < MODES && status == SYMM_OK; mode++) {
            status = time_round(o, mode, &elapsed);
            if (i >= 0)
                series->times[mode][i] = elapsed;
        }
    }
    if (status == SYMM_OK)
        status = check(o, true);
    drop_graphs(o);
    return status;
}

/* The sum of the parts' times alone; *ratio: all three at once over the longest part. */
static double sum_of(const struct perf_series *series, double *ratio)
{
    double sum = 0, longest = 0;

    for (int part = 0; part < PARTS; part++) {
        double time = series->stats[part].p50;
        sum += time;
        longest = time > longest ? time : longest;
    }
    *ratio = longest > 0 ? series->stats[TOGETHER].p50 / longest : 0;
    return sum;
}

static json_t *describe(const struct perf_series *series)
{
    double ratio, sum = sum_of(series, &ratio);

    return json_pack("{s:s,s:f,s:f}", "by", series->row ? "nccl" : "symm", "sum_us",
                     sum, "ratio", ratio);
}

static void print(const struct perf_series *series)
{
    double ratio, sum = sum_of(series, &ratio);

    printf("  %5s", series->row ? "nccl" : "symm");
    for (int part = 0; part < PARTS; part++)
        printf("  %10.2f", series->stats[part].p50);
    printf("  %10.2f  %10.2f  %6.2f", sum, series->stats[TOGETHER].p50, ratio);
}

static void print_head(const struct perf_series *series)
{
    int n = series->job->size;

    printf(
        "# two puts, %s, and an all_reduce of float32; each alone, and all at once on "
        "three streams\n",
        n > 2   ? "to the next two ranks"
        : n > 1 ? "both to the other rank"
                : "both to this rank");
    if (series->options->graph)
        printf("# time: a round in a graph of %d, median of the slowest rank\n",
               series->options->graph);
    else
        printf("# time: %s, median of the slowest rank\n",
               series->job->gpu ? "between two events" : "by the host's clock");
    printf(
        "# sum: of the three alone; ratio: together / the longest alone, 1 is perfect\n"
        "#\n");
    printf("# %10s  %5s  %10s  %10s  %10s  %10s  %10s  %6s  %6s\n", "size", "by",
           "put 1", "put 2", "all_reduce", "sum", "together", "ratio", "#wrong");
    printf("# %10s  %5s  %10s  %10s  %10s  %10s  %10s\n", "(B)", "", "(us)", "(us)",
           "(us)", "(us)", "(us)");
}

static void tell_late(const struct perf_series *series)
{
    if (series->report->prints && atomic_load(&((const struct overlap *)series)->gate.late))
        printf("# a call could not be queued behind a stream that waits: from then on "
               "times have the host's part in them\n");
}

/* ---- Buffers and streams ------------------------------------------------------------- */

/* --algorithm names an algorithm of put or of all_reduce; the other keeps its default. */
static const char *algorithm_for(const struct overlap *o, int part)
{
    const char *name = o->series.options->algorithm;
    bool puts = name && strcmp(name, "copy_engine") == 0;

    return puts == (part != REDUCE) ? name : NULL;
}

static int make_parts(struct overlap *o)
{
    const struct perf_job *job = o->series.job;
    size_t each = (o->series.options->end + 4095) & ~(size_t)4095, whole;
    int result;

    if (__builtin_mul_overflow(each, (size_t)2 * PARTS, &whole))
        return perf_job_no_memory(job);
    result = perf_job_buffers(job, whole, 1, &o->buffer);
    if (result != PERF_RIGHT)
        return result;
    o->staging = job->gpu ? calloc(1, each) : NULL;
    if (job->gpu && !o->staging)
        return perf_job_no_memory(job);
    for (int part = 0; part < PARTS; part++) {
        char *in = (char *)symm_buffer_ptr(o->buffer) + 2 * (size_t)part * each;

        o->calls[part] = (symm_call){.size = sizeof(symm_call),
                                     .site = o->series.kind->times[part],
                                     .stream = o->streams[part],
                                     .algorithm = algorithm_for(o, part)};
        o->parts[part] =
            (struct perf_case){.job = job,
                               .kind = part == REDUCE ? PERF_ALL_REDUCE : PERF_PUT,
                               .dtype = SYMM_FLOAT32,
                               .op = SYMM_SUM,
                               .step = part == PUT_SECOND && job->size > 2 ? 2 : 1,
                               .send = in,
                               .receive = in + each,
                               .staging = o->staging,
                               .call = &o->calls[part]};
        if (perf_case_prepare(&o->parts[part]))
            return perf_job_no_memory(job);
    }
    return PERF_RIGHT;
}

static int make_streams(struct overlap *o)
{
    symm_status status = SYMM_OK;

    if (o->series.job->gpu)
        status = symm_stream_create(o->series.job->ctx, &o->main);
    for (int part = 0; part < PARTS && status == SYMM_OK; part++)
        status = symm_stream_create(o->series.job->ctx, &o->streams[part]);
    /* A team's first stream has the most scratch: it is the all_reduce's, as elsewhere. */
    if (status == SYMM_OK)
        status = perf_job_barrier(o->series.job, o->streams[REDUCE]);
    if (status == SYMM_OK)
        status = symm_stream_synchronize(o->series.job->ctx, o->streams[REDUCE], 0);
    if (status != SYMM_OK)
        return perf_job_failed(o->series.job, status, "making the streams");
    if (!o->series.options->compare)
        return PERF_RIGHT;
    o->nccl = perf_nccl_open(o->series.job, false, o->series.options->end);
    if (!o->nccl)
        return PERF_REFUSED;
    o->series.rows = 2;
    o->series.report->nccl_version = perf_nccl_version(o->nccl);
    return PERF_RIGHT;
}

static int prepare(struct perf_series *series)
{
    struct overlap *o = (struct overlap *)series;
    int result = make_streams(o);

    return result == PERF_RIGHT ? make_parts(o) : result;
}

static void release(struct perf_series *series)
{
    struct overlap *o = (struct overlap *)series;

    perf_nccl_close(o->nccl);
    for (int part = 0; part < PARTS; part++)
        perf_case_finish(&o->parts[part]);
    for (int part = 0; part < PARTS; part++)
        symm_stream_destroy(o->series.job->ctx, o->streams[part]);
    symm_stream_destroy(o->series.job->ctx, o->main);
    free(o->staging);
    symm_buffer_release(o->buffer);
}

static const struct perf_series_kind kind = {
    .names = {"overlap", "overlap by NCCL"},
    .times = {"put_next", "put_second", "all_reduce", "together"},
    .element = sizeof(float),
    .prepare = prepare,
    .head = print_head,
    .measure = measure,
    .print = print,
    .describe = describe,
    .finish = tell_late,
    .release = release,
};

int perf_overlap(const struct perf_job *job, const struct perf_options *options,
                 struct perf_report *report)
{
    struct overlap o = {.series = {&kind, job, options, report}};

    return perf_series_run(&o.series);
}
