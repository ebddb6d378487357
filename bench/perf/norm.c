/* SPDX-License-Identifier: MIT */
/*
 * norm.c - times all_reduce_norm over numbers of rows, beside the all_reduce of as many bytes.
 *
 * Each call's residual is the last one's, in place, as in a transformer's layers. With -G the calls
 * of a graph are such a chain. A chain of a few calls, or with -G a whole graph, is compared with
 * bench/norm/expect.h in every element before anything is timed.
 */
#include "perf/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "norm/expect.h"
#include "perf/data.h"
#include "perf/series.h"

#define CHAIN 3 /* calls of a check without -G */

enum timed { FUSED, PLAIN };
enum array { IN, RESIDUAL, NORM, QUANT, ARRAYS };

struct norm {
    struct perf_series series; /* first: callbacks cast to norm */
    struct perf_series_kind kind;
    symm_buffer *buffers[ARRAYS];
    char *at[ARRAYS], *host[ARRAYS], *weight; /* host: copies */
    float *scale;
    void *stream, *host_weight, *host_scale;
    symm_call call;
    char explain[256];
    bool plain; /* the calls are all_reduces */
};

static symm_norm norm_of(const struct norm *n)
{
    const struct perf_options *options = n->series.options;
    const bool quantises = options->quant != SYMM_NORM_QUANT_NONE;

    return (symm_norm){.size = sizeof(symm_norm),
                       .rows = n->series.bytes / n->kind.element,
                       .hidden = options->hidden,
                       .dtype = options->dtype,
                       .quant = (symm_norm_quant)options->quant,
                       .eps = 1e-6f,
                       .in = n->at[IN],
                       .residual_in = n->at[RESIDUAL],
                       .weight = n->weight,
                       .residual_out = n->at[RESIDUAL],
                       .norm_out = quantises ? NULL : n->at[NORM],
                       .quant_out = quantises ? n->at[QUANT] : NULL,
                       .scale = quantises ? n->scale : NULL};
}

static symm_status issue(void *arg)
{
    const struct norm *n = arg;
    const symm_norm norm = norm_of(n);

    if (n->plain)
        return symm_all_reduce(n->series.job->world, norm.in, n->at[NORM],
                               norm.rows * norm.hidden, norm.dtype, SYMM_SUM, &n->call,
                               NULL);
    return symm_all_reduce_norm(n->series.job->world, &norm, &n->call, NULL);
}

static symm_status finish(const struct norm *n)
{
    return n->series.job->gpu ? perf_gpu_wait(n->series.job->gpu, n->stream) : SYMM_OK;
}

/* ---- Its results --------------------------------------------------------------------- */

static uint64_t seed_of(const struct norm *n, int rank, enum array array)
{
    return n->series.bytes * 64 + (uint64_t)rank + ((uint64_t)array << 48);
}

/* New inputs; outputs that no call would leave. */
static int write_inputs(struct norm *n)
{
    const struct perf_job *job = n->series.job;
    const symm_dtype dtype = n->series.options->dtype;
    const size_t bytes = n->series.bytes, count = bytes / symm_dtype_size(dtype);

    norm_fill(dtype, seed_of(n, job->rank, IN), 1, count, n->host[IN]);
    norm_fill(dtype, seed_of(n, 0, RESIDUAL), 4, count, n->host[RESIDUAL]);
    return perf_job_copy(job, n->at[IN], n->host[IN], bytes) ||
           perf_job_copy(job, n->at[RESIDUAL], n->host[RESIDUAL], bytes) ||
           perf_job_fill(job, n->at[NORM], 0xff, bytes) ||
           perf_job_fill(job, n->at[QUANT], 0xff, count);
}

/* Over several hosts each host's sums take the place of its ranks' inputs: they come first in
 * in[] then. Returns how many inputs there are; 0: no memory. */
static int sum_hosts(const struct perf_job *job, symm_dtype dtype, size_t count,
                     void **in)
{
    const void **members;
    int parts = 0;

    if (!job->hosts)
        return job->size;
    members = calloc((size_t)job->size, sizeof *members);
    for (int first = 0; members && first < job->size; first++) {
        void *sums = in[first];
        int n = 0;
        if (job->hosts[first] != first)
            continue;
        for (int r = first; r < job->size; r++)
            if (job->hosts[r] == first)
                members[n++] = in[r];
        perf_reduce(dtype, SYMM_SUM, members, NULL, n, count, sums);
        in[first] = in[parts]; /* that rank's host has been summed */
        in[parts++] = sums;
    }
    free(members);
    return parts;
}

/* Compares what `calls` calls have written with what they should have written. */
static symm_status compare(struct norm *n, int calls)
{
    const struct perf_job *job = n->series.job;
    const size_t bytes = n->series.bytes;
    const size_t scales =
        symm_norm_scales((symm_norm_quant)n->series.options->quant,
                         bytes / n->kind.element, n->series.options->hidden);
    symm_norm norm = norm_of(n);
    const size_t count = norm.rows * norm.hidden;
    void **in = calloc((size_t)job->size, sizeof *in), *residual = malloc(bytes);
    struct norm_error error;
    bool failed = !in || !residual;
    int parts = 0; /* of each sum */

    for (int r = 0; r < job->size && !failed; r++) {
        in[r] = malloc(bytes);
        failed = !in[r];
        if (in[r])
            norm_fill(norm.dtype, seed_of(n, r, IN), 1, count, in[r]);
    }
    if (!failed)
        parts = sum_hosts(job, norm.dtype, count, in);
    failed = failed || parts == 0;
    norm.residual_in = n->host[RESIDUAL]; /* still what was written there */
    norm.residual_out = residual;
    norm.weight = n->host_weight;
    norm.norm_out = norm.norm_out ? n->host[NORM] : NULL;
    norm.quant_out = norm.quant_out ? n->host[QUANT] : NULL;
    norm.scale = norm.scale ? n->host_scale : NULL;
    failed = failed || perf_job_copy(job, residual, n->at[RESIDUAL], bytes) ||
             perf_job_copy(job, n->host[NORM], n->at[NORM], bytes) ||
             perf_job_copy(job, n->host[QUANT], n->at[QUANT], count) ||
             (scales > 0 &&
              perf_job_copy(job, n->host_scale, n->scale, scales * sizeof(float)));
    for (int i = 1; i < calls && !failed; i++)
        norm_advance(&norm, (const void *const *)in, parts, n->host[RESIDUAL]);
    if (!failed)
        n->series.wrong += (double)norm_wrong(&norm, (const void *const *)in, parts,
                                              NORM_UNITS, &error);
    for (int r = 0; in && r < job->size; r++)
        free(in[r]);
    free(in);
    free(residual);
    return failed ? SYMM_ERR_NOMEM : SYMM_OK;
}

/* A chain outside of a graph, or a replay of `graph`. */
static symm_status check(struct norm *n, void *graph)
{
    const int calls = graph ? n->series.options->graph : CHAIN;
    symm_status status = SYMM_OK;
    double us;

    if (write_inputs(n))
        return SYMM_ERR_SYSTEM;
    if (graph)
        status = perf_job_replay(n->series.job, graph, n->stream, calls, &us);
    for (int i = 0; i < calls && !graph && status == SYMM_OK; i++)
        status = issue(n);
    if (status == SYMM_OK)
        status = finish(n);
    return status == SYMM_OK ? compare(n, calls) : status;
}

/* ---- A row --------------------------------------------------------------------------- */

static symm_status time_graph(struct norm *n, int warmup, double *times)
{
    const int calls = n->series.options->graph;
    void *graph = NULL;
    double us = 0;
    symm_status status =
        perf_job_capture(n->series.job, n->stream, calls, issue, n, &graph);

    if (status == SYMM_OK && !n->plain && n->series.options->checks > 0)
        status = check(n, graph);
    for (int i = -warmup; i < n->series.iterations && status == SYMM_OK; i++) {
        status = perf_job_replay(n->series.job, graph, n->stream, calls, &us);
        if (i >= 0)
            times[i] = us;
    }
    perf_gpu_graph_free(n->series.job->gpu, graph);
    return status;
}

static symm_status time_calls(struct norm *n, int warmup, double *times)
{
    symm_status status = SYMM_OK;

    for (int i = -warmup; i < n->series.iterations && status == SYMM_OK; i++) {
        const double begin = perf_now();

        status = issue(n);
        if (status == SYMM_OK)
            status = finish(n);
        if (i >= 0)
            times[i] = perf_now() - begin;
    }
    return status;
}

static symm_status measure(struct perf_series *series)
{
    struct norm *n = (struct norm *)series;
    const int warmup = perf_options_warmup(series->options, series->bytes);
    symm_status status = SYMM_OK;
    const char *why;

    for (int t = PLAIN; t >= FUSED && status == SYMM_OK; t--) {
        n->plain = t == PLAIN;
        if (!n->plain && series->options->checks > 0)
            status = check(n, NULL);
        else if (write_inputs(n))
            status = SYMM_ERR_SYSTEM;
        if (status == SYMM_OK) /* lazy set-up is done before the capture */
            status = issue(n);
        if (status == SYMM_OK)
            status = finish(n);
        why = symm_explain(series->job->world);
        snprintf(n->explain, sizeof n->explain, "%s", why ? why : "");
        if (status == SYMM_OK)
            status = series->options->graph ? time_graph(n, warmup, series->times[t])
                                            : time_calls(n, warmup, series->times[t]);
    }
    return status;
}

static json_t *describe(const struct perf_series *series)
{
    const struct norm *n = (const struct norm *)series;

    return json_pack("{s:I,s:I,s:s,s:s,s:s}", "rows",
                     (json_int_t)(series->bytes / n->kind.element), "hidden",
                     (json_int_t)series->options->hidden, "dtype",
                     symm_dtype_name(series->options->dtype), "quant",
                     perf_quant_names[series->options->quant], "explain", n->explain);
}

static void print(const struct perf_series *series)
{
    const struct norm *n = (const struct norm *)series;

    printf("  %6zu  %6zu  %9s  %9.2f  %9.2f  %10.2f", series->bytes / n->kind.element,
           series->options->hidden, perf_dtype_name(series->options->dtype),
           series->stats[FUSED].p50, series->stats[FUSED].p99,
           series->stats[PLAIN].p50);
}

static void print_head(const struct perf_series *series)
{
    const struct perf_options *options = series->options;

    printf(
        "# all_reduce + residual + RMSNorm, quantisation: %s; each call's residual is "
        "the last one's\n",
        perf_quant_names[options->quant]);
    if (options->graph)
        printf(
            "# time: a call in a graph of %d, median of the slowest rank's replays\n",
            options->graph);
    else
        printf("# time: median of the slowest rank\n");
    printf("# all_reduce: alone, of as many bytes\n#\n");
    printf("# %10s  %6s  %6s  %9s  %9s  %9s  %10s  %6s\n", "size", "rows", "hidden",
           "type", "time", "p99", "all_reduce", "#wrong");
    printf("# %10s  %6s  %6s  %9s  %9s  %9s  %10s\n", "(B)", "", "(columns)", "",
           "(us)", "(us)", "(us)");
}

/* ---- Buffers ------------------------------------------------------------------------- */

static int prepare_weights(struct norm *n, size_t scales)
{
    const struct perf_job *job = n->series.job;
    const symm_dtype dtype = n->series.options->dtype;
    const size_t row = n->kind.element;
    const float scale = 0.03125f;

    n->host_weight = malloc(row);
    n->host_scale = calloc(scales, sizeof(float));
    n->weight = perf_job_alloc(job, row);
    n->scale = perf_job_alloc(job, scales * sizeof(float));
    if (!n->host_weight || !n->host_scale || !n->weight || !n->scale)
        return perf_job_no_memory(job);
    norm_fill(dtype, 7, 2, n->series.options->hidden, n->host_weight);
    if (perf_job_copy(job, n->weight, n->host_weight, row) ||
        perf_job_copy(job, n->scale, &scale, sizeof scale))
        return PERF_FAILED;
    return PERF_RIGHT;
}

static int prepare(struct perf_series *series)
{
    struct norm *n = (struct norm *)series;
    const struct perf_job *job = series->job;
    const size_t most = series->options->end, rows = most / n->kind.element;
    const size_t groups =
        (series->options->hidden + SYMM_NORM_GROUP - 1) / SYMM_NORM_GROUP;
    symm_status status = SYMM_OK;
    int result;

    n->call =
        (symm_call){.size = sizeof n->call, .algorithm = series->options->algorithm};
    if (job->gpu)
        status = symm_stream_create(job->ctx, &n->stream);
    if (status != SYMM_OK)
        return perf_job_failed(job, status, "symm_stream_create");
    n->call.stream = n->stream;
    result = perf_job_buffers(job, most, ARRAYS, n->buffers);
    for (int i = 0; i < ARRAYS && result == PERF_RIGHT; i++) {
        n->at[i] = symm_buffer_ptr(n->buffers[i]);
        n->host[i] = malloc(most);
        if (!n->host[i])
            result = perf_job_no_memory(job);
    }
    return result == PERF_RIGHT ? prepare_weights(n, (rows + 1) * groups) : result;
}

static void release(struct perf_series *series)
{
    struct norm *n = (struct norm *)series;

    symm_stream_destroy(series->job->ctx, n->stream);
    perf_job_free(series->job, n->weight);
    perf_job_free(series->job, n->scale);
    free(n->host_weight);
    free(n->host_scale);
    for (int i = 0; i < ARRAYS; i++) {
        free(n->host[i]);
        symm_buffer_release(n->buffers[i]);
    }
}

int perf_norm(const struct perf_job *job, const struct perf_options *options,
              struct perf_report *report)
{
    struct norm n = {
        .kind = {.names = {"all_reduce_norm"},
                 .times = {"fused", "all_reduce"},
                 .element = options->hidden * symm_dtype_size(options->dtype),
                 .prepare = prepare,
                 .head = print_head,
                 .measure = measure,
                 .print = print,
                 .describe = describe,
                 .release = release}};

    n.series.kind = &n.kind;
    n.series.job = job;
    n.series.options = options;
    n.series.report = report;
    return perf_series_run(&n.series);
}
