/* SPDX-License-Identifier: MIT */
/*
 * run.c - times one operation over a range of sizes, dtypes and reductions.
 *
 * Method: each rank rewrites its whole input (untimed), reads the clock, makes the
 * call, reads the clock. Nothing else orders the ranks between timed calls of a
 * collective. A put or get ends without the peer, so an untimed barrier surrounds it.
 * Some calls are checked in every element, timed calls in three.
 */
#include "perf/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf/case.h"
#include "perf/nccl.h"

struct runner {
    const struct perf_job *job;
    const struct perf_options *options;
    struct perf_report *report;
    struct perf_case test;
    symm_call call;
    symm_buffer *buffers[2];
    double *times;                         /* of one cell, on this rank */
    void *stream;                          /* -G: the captured stream */
    struct perf_nccl *others[PERF_OTHERS]; /* --compare; NULL: not asked for */
    struct perf_nccl *nccl;                /* makes the calls; NULL: libsymm does */
};

/* ---- One cell -------------------------------------------------------------------- */

/* A call by libsymm, or by NCCL. */
static symm_status issue(void *arg)
{
    const struct runner *runner = arg;

    return runner->nccl ? perf_nccl_call(runner->nccl, &runner->test, runner->stream)
                        : perf_case_call(&runner->test);
}

/* On a GPU a call is over when its stream is idle. */
static symm_status finish_call(const struct runner *runner)
{
    return perf_gpu_wait(runner->job->gpu, runner->stream);
}

/* A put and a get begin and end on one side only: an untimed barrier separates the
 * writing of an input, the call and the check of its output. */
static symm_status one_sided_barrier(const struct runner *runner)
{
    symm_status status;

    if (!perf_kind_one_sided(runner->test.kind))
        return SYMM_OK;
    status = perf_job_barrier(runner->job, runner->stream);
    return status == SYMM_OK && runner->job->gpu ? finish_call(runner) : status;
}

static symm_status one_call(struct runner *runner, int phase, double *elapsed)
{
    const struct perf_case *test = &runner->test;
    symm_status status;

    perf_case_fill(test, phase);
    status = one_sided_barrier(runner);
    if (status != SYMM_OK)
        return status;
    double begin = perf_now();
    status = issue(runner);
    if (status == SYMM_OK && runner->job->gpu)
        status = finish_call(runner);
    *elapsed = perf_now() - begin;
    return status == SYMM_OK ? one_sided_barrier(runner) : status;
}

/* The calls whose results are checked in every element. */
static symm_status run_checks(struct runner *runner, double *wrong)
{
    symm_status status = SYMM_OK;
    double elapsed;

    for (int i = 0; i < runner->options->checks && status == SYMM_OK; i++) {
        int phase = i % PERF_PHASES;
        perf_case_spoil(&runner->test);
        status = one_call(runner, phase, &elapsed);
        if (status == SYMM_OK)
            *wrong += (double)perf_case_check(&runner->test, phase);
        if (status == SYMM_OK)
            status = one_sided_barrier(runner);
    }
    return status;
}

static symm_status run_timed(struct runner *runner, int warmup, int iterations,
                             double *wrong)
{
    bool checked = runner->options->checks > 0;
    symm_status status = SYMM_OK;
    double elapsed;

    for (int i = -warmup; i < iterations && status == SYMM_OK; i++) {
        int phase = (i + warmup) % PERF_PHASES;
        status = one_call(runner, phase, &elapsed);
        if (status != SYMM_OK)
            break;
        if (i >= 0)
            runner->times[i] = elapsed;
        if (checked)
            *wrong += (double)perf_case_glance(&runner->test, phase);
        if (checked)
            status = one_sided_barrier(runner);
    }
    return status;
}

/* ---- Calls in a graph ------------------------------------------------------------ */

static symm_status time_graph(struct runner *runner, int warmup, int iterations)
{
    const struct perf_job *job = runner->job;
    const int calls = runner->options->graph;
    symm_status status = issue(runner); /* lazy set-up is done before the capture */
    void *graph = NULL;
    double elapsed;

    if (status == SYMM_OK)
        status = finish_call(runner);
    if (status == SYMM_OK)
        status = perf_job_capture(job, runner->stream, calls, issue, runner, &graph);
    for (int i = -warmup; i < iterations && status == SYMM_OK; i++) {
        status = perf_job_replay(job, graph, runner->stream, calls, &elapsed);
        if (status == SYMM_OK && i >= 0)
            runner->times[i] = elapsed;
    }
    perf_gpu_graph_free(job->gpu, graph);
    return status;
}

/* Replays of libsymm's call; out of place, the last result is checked, too. */
static symm_status run_graph(struct runner *runner, int warmup, int iterations,
                             double *wrong)
{
    const struct perf_case *test = &runner->test;
    symm_status status;

    perf_case_fill(test, 0);
    if (!test->in_place)
        perf_case_spoil(test);
    status = one_sided_barrier(runner);
    if (status == SYMM_OK)
        status = time_graph(runner, warmup, iterations);
    if (status == SYMM_OK)
        status = one_sided_barrier(runner);
    if (status == SYMM_OK && !test->in_place && runner->options->checks > 0)
        *wrong += (double)perf_case_check(test, 0);
    return status;
}

static void begin_cell(struct runner *runner, bool in_place, struct perf_cell *cell)
{
    runner->test.in_place = in_place;
    cell->iterations = perf_options_iterations(runner->options, runner->test.size);
    cell->warmup = perf_options_warmup(runner->options, runner->test.size);
}

/* The cell's statistics, bandwidths and wrong elements, over all ranks. */
static symm_status combine(struct runner *runner, struct perf_cell *cell)
{
    const struct perf_case *test = &runner->test;
    symm_status status;

    perf_stats_make(&cell->stats, runner->times, (size_t)cell->iterations);
    status = perf_job_slowest(runner->job, &cell->stats, 1, &cell->wrong, 1);
    cell->alg_bw =
        cell->stats.p50 > 0 ? (double)test->size / cell->stats.p50 * 1e-3 : 0;
    cell->bus_bw = cell->alg_bw * perf_case_bus_factor(test);
    if (runner->options->checks == 0 || !perf_kind_has_size(test->kind))
        cell->wrong = -1;
    cell->present = status == SYMM_OK;
    return status;
}

static symm_status run_cell(struct runner *runner, bool in_place,
                            struct perf_cell *cell)
{
    struct perf_case *test = &runner->test;
    symm_status status;

    begin_cell(runner, in_place, cell);
    status = run_checks(runner, &cell->wrong);
    if (status == SYMM_OK && runner->options->graph)
        status = run_graph(runner, cell->warmup, cell->iterations, &cell->wrong);
    else if (status == SYMM_OK)
        status = run_timed(runner, cell->warmup, cell->iterations, &cell->wrong);
    if (status != SYMM_OK)
        return status;
    const char *explain = symm_explain(runner->job->world);
    snprintf(cell->explain, sizeof cell->explain, "%s", explain ? explain : "");
    status = combine(runner, cell);
    cell->wire_bw = cell->alg_bw * perf_case_wire_factor(test, cell->explain);
    return status;
}

/* NCCL's time for the same call, by the same method: in a graph, or one by one, with the same work
 * between the calls, which leaves the ranks as far apart. */
static symm_status run_other(struct runner *runner, struct perf_cell *cell)
{
    struct perf_case *test = &runner->test;
    char *const own[] = {test->send, test->receive};
    symm_status status;

    begin_cell(runner, false, cell);
    perf_nccl_buffers(runner->nccl, &test->send, &test->receive);
    perf_case_fill(test, 0);
    status = runner->options->graph
                 ? time_graph(runner, cell->warmup, cell->iterations)
                 : run_timed(runner, cell->warmup, cell->iterations, &cell->wrong);
    test->send = own[0];
    test->receive = own[1];
    if (status == SYMM_OK)
        status = combine(runner, cell);
    if (runner->options->graph)
        cell->wrong = -1; /* not looked at */
    return status;
}

/* ---- Rows ------------------------------------------------------------------------ */

static int run_row(struct runner *runner, size_t bytes)
{
    struct perf_case *test = &runner->test;
    bool sized = perf_kind_has_size(test->kind),
         reduces = perf_kind_reduces(test->kind);
    struct perf_row row = {.root = test->kind == PERF_BROADCAST ? test->root : -1};
    symm_status status;

    perf_case_size(test, bytes);
    row.bytes = test->size;
    row.count = test->count;
    row.type = sized ? perf_dtype_name(test->dtype) : "none";
    row.dtype = sized ? symm_dtype_name(test->dtype) : NULL;
    row.redop = reduces ? symm_op_name(test->op) : "none";
    status = run_cell(runner, false, &row.cells[0]);
    if (status == SYMM_OK && perf_kind_in_place(test->kind))
        status = run_cell(runner, true, &row.cells[1]);
    if (status == SYMM_ERR_INVALID && row.cells[0].present &&
        runner->options->algorithm)
        status = SYMM_OK; /* the algorithm named has no in-place form: N/A */
    for (int i = 0; i < PERF_OTHERS && status == SYMM_OK; i++) {
        runner->nccl = runner->others[i];
        if (runner->nccl && test->size > 0 && perf_nccl_does(test))
            status = run_other(runner, &row.others[i]);
    }
    runner->nccl = NULL;
    if (status != SYMM_OK)
        return perf_job_failed(runner->job, status, perf_kind_name(test->kind));
    perf_report_row(runner->report, &row);
    return PERF_RIGHT;
}

static int run_sizes(struct runner *runner)
{
    const struct perf_options *options = runner->options;
    size_t bytes = options->begin;

    if (!perf_kind_has_size(options->kind))
        return run_row(runner, 0);
    do {
        int result = run_row(runner, bytes);
        if (result != PERF_RIGHT)
            return result;
    } while (perf_options_next(options, &bytes));
    return PERF_RIGHT;
}

static int run_kinds_of_data(struct runner *runner)
{
    const struct perf_options *options = runner->options;
    int dtypes = perf_kind_has_size(options->kind) ? options->dtype_count : 1;
    int ops = perf_kind_reduces(options->kind) ? options->op_count : 1;

    for (int d = 0; d < dtypes; d++) {
        for (int o = 0; o < ops; o++) {
            runner->test.dtype = options->dtype + (symm_dtype)d;
            runner->test.op = options->op + (symm_op)o;
            if (perf_kind_reduces(options->kind) &&
                !perf_takes(runner->test.dtype, runner->test.op))
                continue; /* of -d all or -o all */
            if (perf_case_prepare(&runner->test))
                return perf_job_no_memory(runner->job);
            int result = run_sizes(runner);
            perf_case_finish(&runner->test);
            if (result != PERF_RIGHT)
                return result;
        }
    }
    return PERF_RIGHT;
}

/* ---- Buffers --------------------------------------------------------------------- */

/* A stream, host memory for writing and checking, NCCL with --compare. */
static int prepare_gpu(struct runner *runner, size_t capacity)
{
    const struct perf_job *job = runner->job;
    symm_status status = symm_stream_create(job->ctx, &runner->stream);

    if (status != SYMM_OK)
        return perf_job_failed(job, status, "symm_stream_create");
    runner->call.stream = runner->stream;
    runner->test.call = &runner->call;
    runner->test.staging = calloc(1, capacity);
    if (!runner->test.staging)
        return perf_job_no_memory(job);
    for (int i = 0; i < PERF_OTHERS; i++) {
        if (!(runner->options->compare & 1 << i))
            continue;
        runner->others[i] = perf_nccl_open(job, i == 1, capacity);
        if (!runner->others[i])
            return PERF_REFUSED;
        runner->report->nccl_version = perf_nccl_version(runner->others[i]);
    }
    return PERF_RIGHT;
}

static int allocate(struct runner *runner)
{
    const struct perf_job *job = runner->job;
    /* A block is part of a size, so no block exceeds the largest size. */
    size_t capacity = runner->options->end < 4096 ? 4096 : runner->options->end;
    int most = perf_options_iterations(runner->options, 0), result;

    runner->times = calloc((size_t)most, sizeof *runner->times);
    if (!runner->times)
        return perf_job_no_memory(job);
    result = perf_job_buffers(job, capacity, 2, runner->buffers);
    if (result != PERF_RIGHT)
        return result;
    runner->test.send = symm_buffer_ptr(runner->buffers[0]);
    runner->test.receive = symm_buffer_ptr(runner->buffers[1]);
    return job->gpu ? prepare_gpu(runner, capacity) : PERF_RIGHT;
}

static void release(struct runner *runner)
{
    for (int i = 0; i < PERF_OTHERS; i++)
        perf_nccl_close(runner->others[i]);
    symm_stream_destroy(runner->job->ctx, runner->stream);
    free(runner->test.staging);
    symm_buffer_release(runner->buffers[0]);
    symm_buffer_release(runner->buffers[1]);
    free(runner->times);
}

int perf_run(const struct perf_job *job, const struct perf_options *options,
             struct perf_report *report)
{
    struct runner runner = {.job = job, .options = options, .report = report};
    int result;

    runner.test.job = job;
    runner.test.kind = options->kind;
    runner.test.root = options->root;
    runner.test.step = 1;
    runner.call =
        (symm_call){.size = sizeof runner.call, .algorithm = options->algorithm};
    runner.test.call = options->algorithm ? &runner.call : NULL;
    result = allocate(&runner);
    if (result == PERF_RIGHT) {
        perf_report_table(report);
        result = run_kinds_of_data(&runner);
    }
    if (result == PERF_RIGHT)
        perf_report_foot(report);
    release(&runner);
    if (result == PERF_RIGHT && report->wrong > 0)
        result = PERF_WRONG;
    return result;
}
