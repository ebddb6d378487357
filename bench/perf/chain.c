/* SPDX-License-Identifier: MIT */
/* chain.c - see chain.h. */
#include "perf/chain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUES    251 /* bytes that the input takes in turn: a prime */
#define BURST     32  /* iterations at a time */
#define BURSTS    20
#define LONG_WAIT 600.0 /* seconds; every call is bounded by its own deadline */

/* What is timed on the host of each iteration. */
enum timed { CALL, COMPUTE, THEN, ITERATION, TIMED };

static const char *const timed_names[TIMED] = {"call", "compute", "then", "iteration"};

struct chain {
    const struct perf_job *job;
    const struct perf_options *options;
    struct perf_report *report;
    symm_buffer *buffers[2];
    char *in, *out;   /* symmetric */
    uint32_t *kept;   /* an element of each result, where the streams can write it */
    uint32_t *looked; /* the same for the host */
    void *main, *side;
    symm_work *last;       /* the newest callback's */
    double *times[TIMED];  /* by iteration, on this rank */
    size_t bytes, count;   /* of the row */
    int written, followed; /* iterations, by those who do it, in their order */
    double wrong;          /* on this rank */
};

/* What ranks tell each other of a row. */
struct record {
    struct perf_stats host[TIMED];
    struct perf_stats burst; /* of the call */
    double device, wrong;    /* microseconds an iteration; elements */
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

    for (int r = 0; r < c->job->size; r++)
        sum += (uint32_t)value_of(r, iteration) * 0x01010101u;
    return sum;
}

/* Which element of an iteration's result is kept. */
static size_t kept_at(const struct chain *c, int iteration)
{
    return (size_t)iteration * 7 % c->count;
}

static void write_input(void *arg)
{
    struct chain *c = arg;

    memset(c->in, value_of(c->job->rank, c->written++), c->bytes);
}

static symm_status compute(struct chain *c)
{
    if (!c->job->gpu)
        return symm_stream_call(c->job->ctx, c->main, write_input, c);
    return perf_gpu_fill_later(c->job->gpu, c->in, value_of(c->job->rank, c->written++),
                               c->bytes, c->main)
               ? SYMM_ERR_SYSTEM
               : SYMM_OK;
}

/* The callback: on GPUs it queues a copy, on the host it runs in its stream's order. */
static symm_status keep(void *arg, void *stream)
{
    struct chain *c = arg;
    int i = c->followed++;
    const char *from = c->out + kept_at(c, i) * sizeof(uint32_t);

    if (!c->job->gpu) {
        memcpy(&c->kept[i], from, sizeof(uint32_t));
        return SYMM_OK;
    }
    return perf_gpu_copy_later(c->job->gpu, &c->kept[i], from, sizeof(uint32_t), stream)
               ? SYMM_ERR_SYSTEM
               : SYMM_OK;
}

static symm_status reduce(struct chain *c, symm_work **work)
{
    const symm_call call = {.size = sizeof call,
                            .site = "chain",
                            .stream = c->main,
                            .algorithm = c->options->algorithm};

    return symm_all_reduce(c->job->world, c->in, c->out, c->count, SYMM_UINT32,
                           SYMM_SUM, &call, work);
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
    if (status == SYMM_OK) /* what comes next overwrites input and result */
        status = symm_work_wait(next, c->main);
    symm_work_release(work);
    symm_work_release(c->last);
    c->last = next;
    c->times[COMPUTE][at] = computed - begin;
    c->times[CALL][at] = called - computed;
    c->times[THEN][at] = followed - called;
    c->times[ITERATION][at] = perf_now() - begin;
    return status;
}

/* Both streams are idle, and what became of the newest callback. */
static symm_status finish(struct chain *c)
{
    symm_status status = SYMM_OK, idle;

    if (c->last)
        status = symm_work_synchronize(c->last, LONG_WAIT);
    symm_work_release(c->last);
    c->last = NULL;
    idle = symm_stream_synchronize(c->job->ctx, c->main, LONG_WAIT);
    status = status == SYMM_OK ? idle : status;
    idle = symm_stream_synchronize(c->job->ctx, c->side, LONG_WAIT);
    return status == SYMM_OK ? idle : status;
}

/* ---- Many ------------------------------------------------------------------------------ */

static void start(struct chain *c)
{
    c->written = c->followed = 0;
}

/* Wrong results of `n` iterations: the kept elements, and all of the last result. */
static symm_status look(struct chain *c, int n)
{
    uint32_t *out = malloc(c->bytes);

    if (!out)
        return SYMM_ERR_NOMEM;
    if (perf_job_copy(c->job, c->looked, c->kept, (size_t)n * sizeof(uint32_t)) ||
        perf_job_copy(c->job, out, c->out, c->bytes)) {
        free(out);
        return SYMM_ERR_SYSTEM;
    }
    for (int i = 0; i < n; i++)
        c->wrong += c->looked[i] != sum_of(c, i);
    for (size_t i = 0; i < c->count; i++)
        c->wrong += out[i] != sum_of(c, n - 1);
    free(out);
    return SYMM_OK;
}

/* Short runs from idle streams: no call waits for the device. */
static symm_status burst(struct chain *c, int n, struct perf_stats *stats)
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
    perf_stats_make(stats, c->times[CALL], (size_t)done);
    return status == SYMM_OK && c->options->checks > 0 ? look(c, done) : status;
}

/* The marks lie on the first stream, which follows all that the second one does. */
static symm_status mark(const struct chain *c, int which)
{
    if (!c->job->gpu)
        return SYMM_OK;
    return perf_gpu_mark(c->job->gpu, which, c->main) ? SYMM_ERR_SYSTEM : SYMM_OK;
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
    if (status == SYMM_OK && c->job->gpu) {
        if (perf_gpu_elapsed(c->job->gpu, device))
            return SYMM_ERR_SYSTEM;
        *device /= n;
    }
    return status == SYMM_OK && c->options->checks > 0 ? look(c, n) : status;
}

/* The slowest rank's figures, and the sum of wrong elements, on every rank. */
static symm_status combine(const struct chain *c, struct record *record)
{
    struct record *all = calloc((size_t)c->job->size, sizeof *all);
    symm_status status;

    if (!all)
        return SYMM_ERR_NOMEM;
    status = perf_job_gather_bytes(c->job, record, sizeof *record, all);
    if (status == SYMM_OK)
        *record = all[0];
    for (int r = 1; r < c->job->size && status == SYMM_OK; r++) {
        for (int t = 0; t < TIMED; t++)
            perf_stats_slower(&record->host[t], &all[r].host[t]);
        perf_stats_slower(&record->burst, &all[r].burst);
        record->device =
            all[r].device > record->device ? all[r].device : record->device;
        record->wrong += all[r].wrong;
    }
    free(all);
    return status;
}

/* ---- A row --------------------------------------------------------------------------- */

static void add_json(const struct chain *c, const struct record *record, int n)
{
    json_t *object = json_pack(
        "{s:I,s:I,s:f,s:I,s:i,s:s,s:s}", "size", (json_int_t)c->bytes, "count",
        (json_int_t)c->count, "device_us", record->device, "nwrong",
        (json_int_t)record->wrong, "actual_iterations", n, "experiment_name", "chain",
        "explain", symm_explain(c->job->world) ? symm_explain(c->job->world) : "");

    for (int t = 0; t < TIMED; t++)
        json_object_set_new(object, timed_names[t],
                            perf_report_stats(&record->host[t]));
    json_object_set_new(object, "burst", perf_report_stats(&record->burst));
    json_array_append_new(c->report->results, object);
}

static void print_row(const struct chain *c, const struct record *record, int n)
{
    if (!c->report->prints)
        return;
    printf("%12zu  %8.2f  %8.2f  %8.2f  %8.2f  %8.2f  %9.2f  %9.2f", c->bytes,
           record->host[CALL].p50, record->host[CALL].p99, record->burst.p50,
           record->host[COMPUTE].p50, record->host[THEN].p50,
           record->host[ITERATION].avg, record->device);
    if (c->options->checks > 0)
        printf("  %6.0f\n", record->wrong);
    else
        printf("  %6s\n", "N/A");
    fflush(stdout);
    if (c->report->results)
        add_json(c, record, n);
}

static int run_row(struct chain *c, size_t bytes)
{
    int n = perf_options_iterations(c->options, bytes);
    struct record record = {.device = 0};
    symm_status status;

    c->bytes = bytes / sizeof(uint32_t) * sizeof(uint32_t);
    c->count = c->bytes / sizeof(uint32_t);
    c->wrong = 0;
    status = burst(c, n, &record.burst);
    if (status == SYMM_OK)
        status = whole(c, n, &record.device);
    if (status != SYMM_OK)
        return perf_job_failed(c->job, status, "chain");
    for (int t = 0; t < TIMED; t++)
        perf_stats_make(&record.host[t], c->times[t], (size_t)n);
    record.wrong = c->wrong;
    status = combine(c, &record);
    if (status != SYMM_OK)
        return perf_job_failed(c->job, status, "gathering a row");
    c->report->wrong += record.wrong;
    print_row(c, &record, n);
    return PERF_RIGHT;
}

static int run_sizes(struct chain *c)
{
    size_t bytes = c->options->begin;
    int result;

    do
        result = run_row(c, bytes);
    while (result == PERF_RIGHT && perf_options_next(c->options, &bytes));
    return result;
}

/* ---- A callback that fails ------------------------------------------------------------- */

struct failing {
    struct chain *chain;
    int refused, never;
    symm_status next, behind; /* what became of the two handles */
    char sentence[256];
    bool goes_on; /* the same team reduced rightly afterwards */
};

static symm_status refuse(void *arg, void *stream)
{
    (void)stream;
    ++*(int *)arg;
    return SYMM_ERR_REFUSED;
}

/* all_reduce -> a callback that keeps -> one that fails -> one that must not be called. */
static symm_status fail_once(struct failing *f)
{
    struct chain *c = f->chain;
    symm_work *works[4] = {NULL};
    symm_status status = compute(c);

    if (status == SYMM_OK)
        status = reduce(c, &works[0]);
    if (status == SYMM_OK)
        status = symm_work_then(works[0], c->side, keep, c, &works[1]);
    if (status == SYMM_OK)
        status = symm_work_then(works[1], c->main, refuse, &f->refused, &works[2]);
    if (status == SYMM_OK)
        status = symm_work_then(works[2], c->side, refuse, &f->never, &works[3]);
    if (status == SYMM_OK) {
        f->next = symm_work_synchronize(works[2], LONG_WAIT);
        f->behind = symm_work_synchronize(works[3], LONG_WAIT);
        snprintf(f->sentence, sizeof f->sentence, "%s", symm_work_error(works[3]));
    }
    for (int i = 0; i < 4; i++)
        symm_work_release(works[i]);
    return status;
}

static int run_failing(struct chain *c, struct failing *f)
{
    double wrong = c->wrong;
    symm_status status;
    bool good;

    start(c);
    status = fail_once(f);
    if (status == SYMM_OK)
        status = finish(c);
    c->wrong = 0;
    start(c);
    for (int i = 0; i < 2 && status == SYMM_OK; i++)
        status = iterate(c, i);
    if (status == SYMM_OK)
        status = finish(c);
    if (status == SYMM_OK)
        status = look(c, 2);
    f->goes_on = c->wrong == 0;
    c->wrong = wrong;
    good = f->refused == 1 && f->never == 0 && f->next == SYMM_ERR_REFUSED &&
           f->behind == SYMM_ERR_REFUSED && f->goes_on;
    if (status != SYMM_OK)
        return perf_job_failed(c->job, status, "a chain with a callback that fails");
    if (!good)
        fprintf(
            stderr,
            "symm-perf: rank %d: a callback that fails: called %d times, its handle "
            "is %s, the next one %s and called %d times, the team %s\n",
            c->job->rank, f->refused, symm_status_name(f->next),
            symm_status_name(f->behind), f->never,
            f->goes_on ? "goes on" : "does not go on");
    return good ? PERF_RIGHT : PERF_WRONG;
}

static int show_failing(struct chain *c, json_t **extra)
{
    struct failing f = {.chain = c};
    int result = run_failing(c, &f);

    if (!c->report->prints || result == PERF_FAILED)
        return result;
    printf("# %-20s : %s (the one behind it was called %d times and has %s, \"%s\")\n",
           "Failing callback", result == PERF_RIGHT ? "OK" : "FAILED", f.never,
           symm_status_name(f.behind), f.sentence);
    if (c->options->json)
        *extra =
            json_pack("{s:{s:s,s:s,s:i,s:i,s:s,s:b}}", "failing_callback", "status",
                      symm_status_name(f.next), "next_status",
                      symm_status_name(f.behind), "called", f.refused, "next_called",
                      f.never, "error", f.sentence, "goes_on", (int)f.goes_on);
    return result;
}

/* ---- Buffers and streams ------------------------------------------------------------- */

static int no_memory(const struct chain *c)
{
    fprintf(stderr, "symm-perf: rank %d: out of memory\n", c->job->rank);
    return PERF_FAILED;
}

static int make_arrays(struct chain *c)
{
    size_t most = (size_t)perf_options_iterations(c->options, 0);
    bool have = true;

    most = most < 2 ? 2 : most;
    for (int t = 0; t < TIMED; t++) {
        c->times[t] = calloc(most, sizeof(double));
        have = have && c->times[t];
    }
    c->looked = calloc(most, sizeof *c->looked);
    c->kept = c->job->gpu ? perf_gpu_alloc(c->job->gpu, most * sizeof *c->kept)
                          : calloc(most, sizeof *c->kept);
    return have && c->looked && c->kept ? PERF_RIGHT : no_memory(c);
}

static int prepare(struct chain *c)
{
    const int64_t shape = (int64_t)c->options->end, stride = 1;
    symm_status status = symm_stream_create(c->job->ctx, &c->main);

    if (status == SYMM_OK)
        status = symm_stream_create(c->job->ctx, &c->side);
    for (int i = 0; i < 2 && status == SYMM_OK; i++)
        status = symm_empty_strided_p2p(c->job->world, 1, &shape, &stride, SYMM_UINT8,
                                        (uint64_t)(1 + i), &c->buffers[i]);
    if (status == SYMM_OK)
        status = symm_rendezvous(c->job->world);
    if (status != SYMM_OK)
        return perf_job_failed(c->job, status, "allocating streams and buffers");
    c->in = symm_buffer_ptr(c->buffers[0]);
    c->out = symm_buffer_ptr(c->buffers[1]);
    return make_arrays(c);
}

static void release(struct chain *c)
{
    symm_work_release(c->last);
    symm_stream_destroy(c->job->ctx, c->main);
    symm_stream_destroy(c->job->ctx, c->side);
    if (c->job->gpu)
        perf_gpu_free(c->job->gpu, c->kept);
    else
        free(c->kept);
    free(c->looked);
    for (int t = 0; t < TIMED; t++)
        free(c->times[t]);
    symm_buffer_release(c->buffers[0]);
    symm_buffer_release(c->buffers[1]);
}

static void print_head(const struct chain *c)
{
    if (!c->report->prints)
        return;
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
    fflush(stdout);
}

int perf_chain(const struct perf_job *job, const struct perf_options *options,
               struct perf_report *report, json_t **extra)
{
    struct chain c = {.job = job, .options = options, .report = report};
    int result = prepare(&c);

    if (result == PERF_RIGHT) {
        print_head(&c);
        result = run_sizes(&c);
    }
    if (result == PERF_RIGHT)
        result = show_failing(&c, extra);
    if (report->prints && (result == PERF_RIGHT || result == PERF_WRONG))
        printf("# %-20s : %.0f %s\n#\n", "Out of bounds values", report->wrong,
               report->wrong > 0 ? "FAILED" : "OK");
    release(&c);
    return result == PERF_RIGHT && report->wrong > 0 ? PERF_WRONG : result;
}
