/* SPDX-License-Identifier: MIT */
/*
 * chain.c - times compute -> all_reduce -> then(compute), thousands of times, and the host
 * time of a call.
 *
 * Each iteration: one stream writes the input (a memset) and makes an all_reduce; a callback
 * of its handle (symm_work_then) has another stream keep an element of the result; the first
 * stream then waits for that. The host waits only after all iterations are queued. Then each
 * iteration's result is checked.
 *
 * The driver bounds its queue of launches: if the device needs longer for an iteration than
 * the host, calls block. So bursts of a few iterations from idle streams are timed, too.
 */
#include "perf/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf/series.h"

#define VALUES    251 /* different input bytes, used in turn: a prime */
#define BURST     32  /* iterations at a time */
#define BURSTS    20
#define LONG_WAIT 600.0 /* seconds; every call is bounded by its own timeout */

/* The times of a row. The first four are host times of each iteration. */
enum timed { CALL, COMPUTE, THEN, ITERATION, BURST_CALL, DEVICE };

struct chain {
    struct perf_series series; /* first: callbacks cast to chain */
    symm_buffer *buffers[2];
    char *in, *out;      /* symmetric */
    uint32_t *kept;      /* one element of each result; the streams write it */
    uint32_t *host_kept; /* copy of kept for the host */
    void *main, *side;
    symm_work *last;               /* of the newest callback */
    int written, followed, copied; /* iterations that each step has done */
};

/* ---- One iteration ------------------------------------------------------------------- */

static int value_of(int rank, int iteration)
{
    return 1 + (iteration + rank) % VALUES;
}

/* Modulo 2^32, as the reduction does. */
static uint32_t sum_of(const struct chain *c, int iteration)
{
    uint32_t sum = 0;

    for (int r = 0; r < c->series.job->size; r++)
        sum += (uint32_t)value_of(r, iteration) * 0x01010101u;
    return sum;
}

/* Index of the element of an iteration's result that is kept. */
static size_t kept_at(const struct chain *c, int iteration)
{
    return (size_t)iteration * 7 % (c->series.bytes / sizeof(uint32_t));
}

static void write_input(void *arg)
{
    struct chain *c = arg;

    memset(c->in, value_of(c->series.job->rank, c->written++), c->series.bytes);
}

static symm_status compute(struct chain *c)
{
    if (!c->series.job->gpu)
        return symm_stream_call(c->series.job->ctx, c->main, write_input, c);
    return perf_gpu_fill_later(c->series.job->gpu, c->in,
                               value_of(c->series.job->rank, c->written++),
                               c->series.bytes, c->main);
}

static void copy_kept(void *arg)
{
    struct chain *c = arg;
    int i = c->copied++;

    memcpy(&c->kept[i], c->out + kept_at(c, i) * sizeof(uint32_t), sizeof(uint32_t));
}

/* The callback: it queues a copy. */
static symm_status keep(void *arg, void *stream)
{
    struct chain *c = arg;
    int i = c->followed++;
    const char *from = c->out + kept_at(c, i) * sizeof(uint32_t);

    if (!c->series.job->gpu)
        return symm_stream_call(c->series.job->ctx, stream, copy_kept, c);
    return perf_gpu_copy_later(c->series.job->gpu, &c->kept[i], from, sizeof(uint32_t),
                               stream);
}

static symm_status reduce(struct chain *c, symm_work **work)
{
    const symm_call call = {.size = sizeof call,
                            .site = "chain",
                            .stream = c->main,
                            .algorithm = c->series.options->algorithm};

    return symm_all_reduce(c->series.job->world, c->in, c->out,
                           c->series.bytes / sizeof(uint32_t), SYMM_UINT32, SYMM_SUM,
                           &call, work);
}

static symm_status iterate(struct chain *c, int at)
{
    symm_work *work = NULL, *next = NULL;
    double begin = perf_now(), computed, called, followed;
    symm_status status = compute(c);

    computed = perf_now();
    if (status == SYMM_OK)
        status = reduce(c, &work);
    called = perf_now();
    if (status == SYMM_OK)
        status = symm_work_then(work, c->side, keep, c, &next);
    followed = perf_now();
    if (status == SYMM_OK) /* the next iteration overwrites input and result */
        status = symm_work_wait(next, c->main);
    symm_work_release(work);
    symm_work_release(c->last);
    c->last = next;
    c->series.times[COMPUTE][at] = computed - begin;
    c->series.times[CALL][at] = called - computed;
    c->series.times[THEN][at] = followed - called;
    c->series.times[ITERATION][at] = perf_now() - begin;
    return status;
}

/* Waits until both streams are idle; the status of the newest callback. */
static symm_status finish(struct chain *c)
{
    symm_status status = SYMM_OK, idle;

    if (c->last)
        status = symm_work_synchronize(c->last, LONG_WAIT);
    symm_work_release(c->last);
    c->last = NULL;
    idle = symm_stream_synchronize(c->series.job->ctx, c->main, LONG_WAIT);
    status = status == SYMM_OK ? idle : status;
    idle = symm_stream_synchronize(c->series.job->ctx, c->side, LONG_WAIT);
    return status == SYMM_OK ? idle : status;
}

/* ---- Many iterations ------------------------------------------------------------------ */

static void start(struct chain *c)
{
    c->written = c->followed = c->copied = 0;
}

/* Counts wrong results of `n` iterations: the kept elements, all of the last result. */
static symm_status check(struct chain *c, int n)
{
    uint32_t *out = malloc(c->series.bytes);

    if (!out)
        return SYMM_ERR_NOMEM;
    if (perf_job_copy(c->series.job, c->host_kept, c->kept,
                      (size_t)n * sizeof(uint32_t)) ||
        perf_job_copy(c->series.job, out, c->out, c->series.bytes)) {
        free(out);
        return SYMM_ERR_SYSTEM;
    }
    for (int i = 0; i < n; i++)
        c->series.wrong += c->host_kept[i] != sum_of(c, i);
    for (size_t i = 0; i < c->series.bytes / sizeof(uint32_t); i++)
        c->series.wrong += out[i] != sum_of(c, n - 1);
    free(out);
    return SYMM_OK;
}

/* Times short runs from idle streams, in which no call waits for the device. */
static symm_status burst(struct chain *c, int n)
{
    int done = 0, each = n < BURST ? n : BURST;
    symm_status status = SYMM_OK;

    start(c);
    while (done + each <= n && done < BURST * BURSTS && status == SYMM_OK) {
        for (int i = 0; i < each && status == SYMM_OK; i++)
            status = iterate(c, done++);
        if (status == SYMM_OK)
            status = finish(c);
    }
    c->series.counts[BURST_CALL] = done;
    memcpy(c->series.times[BURST_CALL], c->series.times[CALL],
           (size_t)done * sizeof(double));
    return status == SYMM_OK && c->series.options->checks > 0 ? check(c, done) : status;
}

/* The marks lie on the first stream, which waits for all work of the second. */
static symm_status mark(const struct chain *c, int which)
{
    struct perf_gpu *gpu = c->series.job->gpu;

    return gpu ? perf_gpu_mark(gpu, which, c->main) : SYMM_OK;
}

static symm_status whole(struct chain *c, int n, double *device)
{
    symm_status status;
    double begin;

    start(c);
    status = mark(c, 0);
    begin = perf_now();
    for (int i = 0; i < n && status == SYMM_OK; i++)
        status = iterate(c, i);
    if (status == SYMM_OK)
        status = mark(c, 1);
    if (status == SYMM_OK)
        status = finish(c);
    *device = (perf_now() - begin) / n;
    if (status == SYMM_OK && c->series.job->gpu) {
        status = perf_gpu_elapsed(c->series.job->gpu, device);
        *device /= n;
    }
    return status == SYMM_OK && c->series.options->checks > 0 ? check(c, n) : status;
}

/* ---- A row --------------------------------------------------------------------------- */

static symm_status measure(struct perf_series *series)
{
    struct chain *c = (struct chain *)series;
    symm_status status = burst(c, series->iterations);

    series->counts[DEVICE] = 1;
    return status == SYMM_OK ? whole(c, series->iterations, series->times[DEVICE])
                             : status;
}

static json_t *describe(const struct perf_series *series)
{
    const char *why = symm_explain(series->job->world);

    return json_pack("{s:I,s:f,s:s}", "count",
                     (json_int_t)(series->bytes / sizeof(uint32_t)), "device_us",
                     series->stats[DEVICE].p50, "explain", why ? why : "");
}

static void print(const struct perf_series *series)
{
    const struct perf_stats *stats = series->stats;

    printf("  %8.2f  %8.2f  %8.2f  %8.2f  %8.2f  %9.2f  %9.2f", stats[CALL].p50,
           stats[CALL].p99, stats[BURST_CALL].p50, stats[COMPUTE].p50, stats[THEN].p50,
           stats[ITERATION].avg, stats[DEVICE].p50);
}

/* ---- Buffers and streams ------------------------------------------------------------- */

static int prepare(struct perf_series *series)
{
    struct chain *c = (struct chain *)series;
    const struct perf_job *job = series->job;
    const int n = perf_options_iterations(series->options, 0);
    const size_t most = n < 2 ? 2 : (size_t)n;
    symm_status status = symm_stream_create(job->ctx, &c->main);
    int result;

    if (status == SYMM_OK)
        status = symm_stream_create(job->ctx, &c->side);
    if (status != SYMM_OK)
        return perf_job_failed(job, status, "allocating the streams");
    result = perf_job_buffers(job, series->options->end, 2, c->buffers);
    if (result != PERF_RIGHT)
        return result;
    c->in = symm_buffer_ptr(c->buffers[0]);
    c->out = symm_buffer_ptr(c->buffers[1]);
    c->host_kept = calloc(most, sizeof *c->host_kept);
    c->kept = perf_job_alloc(job, most * sizeof *c->kept);
    return c->host_kept && c->kept ? PERF_RIGHT : perf_job_no_memory(job);
}

static void release(struct perf_series *series)
{
    struct chain *c = (struct chain *)series;

    symm_work_release(c->last);
    symm_stream_destroy(series->job->ctx, c->main);
    symm_stream_destroy(series->job->ctx, c->side);
    perf_job_free(series->job, c->kept);
    free(c->host_kept);
    symm_buffer_release(c->buffers[0]);
    symm_buffer_release(c->buffers[1]);
}

static void print_head(const struct perf_series *series)
{
    (void)series;
    printf(
        "# a memset, all_reduce of uint32 and a callback's copy on two streams, in a "
        "chain\n");
    printf(
        "# call, burst: the host's time of symm_all_reduce, burst: in %d iterations at "
        "a time from idle streams\n",
        BURST);
    printf("# compute, then: of the memset's launch, and of symm_work_then with its "
           "callback; medians of the slowest rank\n");
    printf(
        "# iteration: the host's, mean; device: from the first one's begin to the last "
        "one's end, for each\n#\n");
    printf("# %10s  %8s  %8s  %8s  %8s  %8s  %9s  %9s  %6s\n", "size", "call", "p99",
           "burst", "compute", "then", "iteration", "device", "#wrong");
    printf("# %10s  %8s  %8s  %8s  %8s  %8s  %9s  %9s\n", "(B)", "(us)", "(us)", "(us)",
           "(us)", "(us)", "(us)", "(us)");
}

static const struct perf_series_kind kind = {
    .names = {"chain"},
    .times = {"call", "compute", "then", "iteration", "burst", "device"},
    .element = sizeof(uint32_t),
    .prepare = prepare,
    .head = print_head,
    .measure = measure,
    .print = print,
    .describe = describe,
    .release = release,
};

int perf_chain(const struct perf_job *job, const struct perf_options *options,
               struct perf_report *report)
{
    struct chain c = {.series = {&kind, job, options, report}};

    return perf_series_run(&c.series);
}
