/* SPDX-License-Identifier: MIT */
/* overlap.c - see overlap.h. */
#include "perf/overlap.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf/case.h"
#include "perf/nccl.h"

#define ELEMENT      4 /* bytes of a float32 */
#define GATE_SECONDS 5.0

enum part { PUT_NEXT, PUT_SECOND, REDUCE, PARTS };

#define TOGETHER PARTS /* a mode: a part alone, or all of them */
#define MODES    (PARTS + 1)

static const char *const mode_names[MODES] = {"put_next", "put_second", "all_reduce",
                                              "together"};

/* Holds a stream until everything behind it has been queued. */
struct gate {
    atomic_bool open;
    atomic_bool late; /* it was waited for in vain: queueing seems to need the stream */
};

struct overlap {
    const struct perf_job *job;
    const struct perf_options *options;
    struct perf_report *report;
    symm_buffer *buffer;
    char *in[PARTS], *out[PARTS]; /* symmetric, for the largest size */
    int to[PARTS], from[PARTS];   /* of the puts */
    struct perf_pattern inputs[PARTS], wanted[PARTS];
    void *main, *streams[PARTS]; /* main: GPUs only */
    struct perf_nccl *nccl;      /* --compare; else NULL */
    struct gate gate;
    char *staging;        /* of the host, for what lies on a GPU; else NULL */
    double *times[MODES]; /* of one row, on this rank */
    struct perf_stats *gathered;
    void *graphs[MODES];
    size_t bytes; /* of the row */
    double wrong; /* elements of the row, on this rank */
};

/* Who does the row's work: libsymm, or (nccl not NULL) NCCL. */
struct row {
    struct overlap *o;
    struct perf_nccl *nccl;
    struct perf_stats stats[MODES]; /* of the slowest rank */
    int iterations;
};

static bool takes_part(int mode, int part)
{
    return mode == TOGETHER || mode == part;
}

/* ---- One round ----------------------------------------------------------------------- */

static symm_status of_gpu(int result)
{
    return result ? SYMM_ERR_SYSTEM : SYMM_OK;
}

/* --algorithm is a put's way or an all_reduce's; the other has its default. */
static const char *algorithm_for(const struct overlap *o, int part)
{
    const char *name = o->options->algorithm;
    bool puts = name && strcmp(name, "copy_engine") == 0;

    return puts == (part != REDUCE) ? name : NULL;
}

static symm_status queue_part(const struct row *row, int part)
{
    const struct overlap *o = row->o;
    const symm_call call = {.size = sizeof call,
                            .site = mode_names[part],
                            .stream = o->streams[part],
                            .algorithm = algorithm_for(o, part)};

    if (row->nccl && part == REDUCE)
        return of_gpu(perf_nccl_sum(row->nccl, o->in[part], o->out[part],
                                    o->bytes / ELEMENT, call.stream));
    if (row->nccl)
        return of_gpu(perf_nccl_exchange(row->nccl, o->in[part], o->to[part],
                                         o->out[part], o->from[part], o->bytes,
                                         call.stream));
    if (part == REDUCE)
        return symm_all_reduce(o->job->world, o->in[part], o->out[part],
                               o->bytes / ELEMENT, SYMM_FLOAT32, SYMM_SUM, &call, NULL);
    return symm_put(o->job->world, o->out[part], o->in[part], o->bytes, o->to[part],
                    &call, NULL);
}

static symm_status queue_parts(const struct row *row, int mode)
{
    symm_status status = SYMM_OK;

    for (int part = 0; part < PARTS && status == SYMM_OK; part++)
        if (takes_part(mode, part))
            status = queue_part(row, part);
    return status;
}

/* On a GPU: from one event to one event on the main stream. */
static symm_status queue_round(const struct row *row, int mode)
{
    const struct overlap *o = row->o;
    void *used[PARTS];
    symm_status status;

    for (int part = 0; part < PARTS; part++)
        used[part] = takes_part(mode, part) ? o->streams[part] : NULL;
    status = of_gpu(perf_gpu_fork(o->job->gpu, o->main, used, PARTS));
    if (status == SYMM_OK)
        status = queue_parts(row, mode);
    for (int part = 0; part < PARTS && status == SYMM_OK; part++)
        if (used[part])
            status = of_gpu(perf_gpu_order(o->job->gpu, used[part], o->main));
    return status;
}

/* The ranks meet on the main stream; on the host here. */
static symm_status meet(const struct overlap *o)
{
    const symm_call call = {.size = sizeof call, .stream = o->main};

    return symm_barrier(o->job->world, &call, NULL);
}

/* Until all streams are idle. */
static symm_status finish(const struct overlap *o)
{
    symm_status status = SYMM_OK;

    if (o->job->gpu)
        return of_gpu(perf_gpu_wait(o->job->gpu, o->main));
    for (int part = 0; part < PARTS && status == SYMM_OK; part++)
        status = symm_stream_synchronize(o->job->ctx, o->streams[part], 0);
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

static symm_status queue_timed(const struct row *row, int mode)
{
    struct overlap *o = row->o;
    struct perf_gpu *gpu = o->job->gpu;
    symm_status status = meet(o);

    if (status == SYMM_OK)
        status = of_gpu(perf_gpu_mark(gpu, 0, o->main));
    if (status == SYMM_OK && o->graphs[mode] && !row->nccl)
        status = of_gpu(perf_gpu_replay(gpu, o->graphs[mode], o->main));
    else if (status == SYMM_OK)
        status = queue_round(row, mode);
    return status == SYMM_OK ? of_gpu(perf_gpu_mark(gpu, 1, o->main)) : status;
}

static symm_status time_on_gpu(const struct row *row, int mode, double *elapsed)
{
    struct overlap *o = row->o;
    bool graph = o->graphs[mode] && !row->nccl;
    symm_status status = SYMM_OK;

    atomic_store(&o->gate.open, false);
    if (!atomic_load(&o->gate.late))
        status = symm_stream_call(o->job->ctx, o->main, wait_for_gate, &o->gate);
    if (status == SYMM_OK)
        status = queue_timed(row, mode);
    atomic_store(&o->gate.open, true);
    if (status == SYMM_OK)
        status = of_gpu(perf_gpu_elapsed(o->job->gpu, elapsed));
    if (status == SYMM_OK && graph)
        *elapsed /= o->options->graph;
    return status;
}

static symm_status time_on_host(const struct row *row, int mode, double *elapsed)
{
    symm_status status = meet(row->o);
    double begin = perf_now();

    if (status == SYMM_OK)
        status = queue_parts(row, mode);
    if (status == SYMM_OK)
        status = finish(row->o);
    *elapsed = perf_now() - begin;
    return status;
}

static symm_status time_round(const struct row *row, int mode, double *elapsed)
{
    return row->o->job->gpu ? time_on_gpu(row, mode, elapsed)
                            : time_on_host(row, mode, elapsed);
}

static void drop_graphs(struct overlap *o)
{
    for (int mode = 0; mode < MODES; mode++) {
        perf_gpu_graph_free(o->job->gpu, o->graphs[mode]);
        o->graphs[mode] = NULL;
    }
}

/* -G rounds of each mode in a graph of its own. */
static symm_status capture(const struct row *row)
{
    struct overlap *o = row->o;
    symm_status status = SYMM_OK;

    for (int mode = 0; mode < MODES && status == SYMM_OK; mode++) {
        status = of_gpu(perf_gpu_capture(o->job->gpu, o->main));
        if (status != SYMM_OK)
            return status;
        for (int i = 0; i < o->options->graph && status == SYMM_OK; i++)
            status = queue_round(row, mode);
        if (perf_gpu_captured(o->job->gpu, o->main, &o->graphs[mode]) &&
            status == SYMM_OK)
            status = SYMM_ERR_SYSTEM;
    }
    return status;
}

/* ---- Its results --------------------------------------------------------------------- */

static int fill(const struct overlap *o)
{
    for (int part = 0; part < PARTS; part++) {
        char *to = o->staging ? o->staging : o->in[part];
        perf_pattern_fill(&o->inputs[part], 0, o->bytes, to);
        if (o->staging && perf_job_copy(o->job, o->in[part], o->staging, o->bytes))
            return -1;
    }
    return 0;
}

static int spoil(const struct overlap *o)
{
    for (int part = 0; part < PARTS; part++)
        if (perf_job_fill(o->job, o->out[part], 0, o->bytes))
            return -1;
    return 0;
}

/* A copy that failed is a wrong result. */
static void look(struct overlap *o)
{
    for (int part = 0; part < PARTS; part++) {
        const char *found = o->out[part];
        if (o->staging) {
            if (perf_job_copy(o->job, o->staging, found, o->bytes))
                memset(o->staging, 0, o->bytes);
            found = o->staging;
        }
        o->wrong += (double)perf_pattern_differ(&o->wanted[part], 0, o->bytes, found);
    }
}

/* One round of all three, `gated` as they are timed. Puts end on one side only: the ranks
 * meet before they look. */
static symm_status check(const struct row *row, bool gated)
{
    struct overlap *o = row->o;
    double elapsed = 0;
    symm_status status;

    if (o->options->checks > 0 && spoil(o))
        return SYMM_ERR_SYSTEM;
    status = gated || !o->job->gpu ? time_round(row, TOGETHER, &elapsed) : meet(o);
    if (status == SYMM_OK && o->job->gpu && !gated)
        status = queue_round(row, TOGETHER);
    if (status == SYMM_OK)
        status = meet(o);
    if (status == SYMM_OK)
        status = finish(o);
    if (status == SYMM_OK && o->options->checks > 0)
        look(o);
    return status;
}

/* ---- A row --------------------------------------------------------------------------- */

static symm_status measure(const struct row *row)
{
    struct overlap *o = row->o;
    int warmup = perf_options_warmup(o->options, o->bytes);
    symm_status status = check(row, false); /* what is lazy happens here */
    double elapsed = 0;

    if (status == SYMM_OK && o->options->graph && !row->nccl)
        status = capture(row);
    for (int i = -warmup; i < row->iterations && status == SYMM_OK; i++) {
        for (int mode = 0; mode < MODES && status == SYMM_OK; mode++) {
            status = time_round(row, mode, &elapsed);
            if (i >= 0)
                o->times[mode][i] = elapsed;
        }
    }
    if (status == SYMM_OK)
        status = check(row, true);
    drop_graphs(o);
    return status;
}

/* The slowest rank's statistics and the sum of wrong elements, on every rank. */
static symm_status combine(struct row *row)
{
    struct overlap *o = row->o;
    struct perf_stats mine[MODES + 1] = {{0}};
    symm_status status;

    for (int mode = 0; mode < MODES; mode++)
        perf_stats_make(&mine[mode], o->times[mode], (size_t)row->iterations);
    mine[MODES].min = o->wrong;
    status = perf_job_gather_bytes(o->job, mine, sizeof mine, o->gathered);
    if (status != SYMM_OK)
        return status;
    memcpy(row->stats, o->gathered, sizeof row->stats);
    o->wrong = 0;
    for (int r = 0; r < o->job->size; r++) {
        const struct perf_stats *theirs = o->gathered + r * (MODES + 1);
        for (int mode = 0; mode < MODES; mode++)
            perf_stats_slower(&row->stats[mode], &theirs[mode]);
        o->wrong += theirs[MODES].min;
    }
    return SYMM_OK;
}

static void add_json(const struct row *row, double sum, double ratio)
{
    const struct overlap *o = row->o;
    json_t *object =
        json_pack("{s:I,s:s,s:f,s:f,s:I,s:i,s:s}", "size", (json_int_t)o->bytes, "by",
                  row->nccl ? "nccl" : "symm", "sum_us", sum, "ratio", ratio, "nwrong",
                  (json_int_t)o->wrong, "actual_iterations", row->iterations,
                  "experiment_name", "overlap");

    for (int mode = 0; mode < MODES; mode++)
        json_object_set_new(object, mode_names[mode],
                            perf_report_stats(&row->stats[mode]));
    json_array_append_new(o->report->results, object);
}

static void print_row(const struct row *row)
{
    const struct overlap *o = row->o;
    double sum = 0, longest = 0, together = row->stats[TOGETHER].p50;

    for (int part = 0; part < PARTS; part++) {
        double time = row->stats[part].p50;
        sum += time;
        longest = time > longest ? time : longest;
    }
    double ratio = longest > 0 ? together / longest : 0;
    printf("%12zu  %5s", o->bytes, row->nccl ? "nccl" : "symm");
    for (int part = 0; part < PARTS; part++)
        printf("  %10.2f", row->stats[part].p50);
    printf("  %10.2f  %10.2f  %6.2f", sum, together, ratio);
    if (o->options->checks > 0)
        printf("  %6.0f\n", o->wrong);
    else
        printf("  %6s\n", "N/A");
    fflush(stdout);
    if (o->report->results)
        add_json(row, sum, ratio);
}

static int run_row(struct overlap *o, struct perf_nccl *nccl)
{
    struct row row = {.o = o,
                      .nccl = nccl,
                      .iterations = perf_options_iterations(o->options, o->bytes)};
    symm_status status = of_gpu(fill(o));

    o->wrong = 0;
    if (status == SYMM_OK)
        status = measure(&row);
    if (status == SYMM_OK)
        status = combine(&row);
    if (status != SYMM_OK)
        return perf_job_failed(o->job, status, nccl ? "overlap by NCCL" : "overlap");
    o->report->wrong += o->wrong;
    if (o->report->prints)
        print_row(&row);
    return PERF_RIGHT;
}

/* ---- The table ----------------------------------------------------------------------- */

static void print_head(const struct overlap *o)
{
    int n = o->job->size;

    if (!o->report->prints)
        return;
    printf(
        "# two puts, %s, and an all_reduce of float32; each alone, and all at once on "
        "three streams\n",
        n > 2   ? "to the next two ranks"
        : n > 1 ? "both to the other rank"
                : "both to this rank");
    if (o->options->graph)
        printf("# time: a round in a graph of %d, median of the slowest rank\n",
               o->options->graph);
    else
        printf("# time: %s, median of the slowest rank\n",
               o->job->gpu ? "between two events" : "by the host's clock");
    printf(
        "# sum: of the three alone; ratio: together / the longest alone, 1 is perfect\n"
        "#\n");
    printf("# %10s  %5s  %10s  %10s  %10s  %10s  %10s  %6s  %6s\n", "size", "by",
           "put 1", "put 2", "all_reduce", "sum", "together", "ratio", "#wrong");
    printf("# %10s  %5s  %10s  %10s  %10s  %10s  %10s\n", "(B)", "", "(us)", "(us)",
           "(us)", "(us)", "(us)");
    fflush(stdout);
}

static void print_foot(const struct overlap *o)
{
    if (!o->report->prints)
        return;
    if (atomic_load(&o->gate.late))
        printf("# a call could not be queued behind a stream that waits: from then on "
               "times have the host's part in them\n");
    printf("# %-20s : %.0f %s\n#\n", "Out of bounds values", o->report->wrong,
           o->report->wrong > 0 ? "FAILED" : "OK");
}

static int run_sizes(struct overlap *o)
{
    size_t bytes = o->options->begin;
    int result;

    do {
        o->bytes = bytes / ELEMENT * ELEMENT;
        result = run_row(o, NULL);
        if (result == PERF_RIGHT && o->nccl)
            result = run_row(o, o->nccl);
    } while (result == PERF_RIGHT && perf_options_next(o->options, &bytes));
    return result;
}

/* ---- Buffers and streams ------------------------------------------------------------- */

static int no_memory(const struct overlap *o)
{
    fprintf(stderr, "symm-perf: rank %d: out of memory\n", o->job->rank);
    return PERF_FAILED;
}

static int make_patterns(struct overlap *o)
{
    int n = o->job->size, second = n > 2 ? 2 : 1;
    struct perf_pattern *all = calloc((size_t)n, sizeof *all);
    const void **tables = calloc((size_t)n, sizeof *tables);

    for (int r = 0; r < n && all && tables; r++) {
        perf_pattern_make(&all[r], SYMM_FLOAT32, (uint64_t)(n * REDUCE + r));
        tables[r] = all[r].table;
    }
    if (all && tables) {
        o->inputs[REDUCE] = all[o->job->rank];
        perf_pattern_reduce(&o->wanted[REDUCE], SYMM_FLOAT32, SYMM_SUM, tables, n);
    }
    for (int part = 0; part < REDUCE; part++) {
        int step = part == PUT_NEXT ? 1 : second;
        o->to[part] = (o->job->rank + step) % n;
        o->from[part] = (o->job->rank + n - step % n) % n;
        perf_pattern_make(&o->inputs[part], SYMM_FLOAT32,
                          (uint64_t)(n * part + o->job->rank));
        perf_pattern_make(&o->wanted[part], SYMM_FLOAT32,
                          (uint64_t)(n * part + o->from[part]));
    }
    bool made = all && tables;
    free(all);
    free(tables);
    return made ? PERF_RIGHT : no_memory(o);
}

static int make_areas(struct overlap *o)
{
    size_t each = (o->options->end + 4095) & ~(size_t)4095, whole;
    int64_t shape, stride = 1;
    symm_status status;

    if (__builtin_mul_overflow(each, (size_t)2 * PARTS, &whole) || whole > INT64_MAX)
        return no_memory(o);
    shape = (int64_t)whole;
    status = symm_empty_strided_p2p(o->job->world, 1, &shape, &stride, SYMM_UINT8, 1,
                                    &o->buffer);
    if (status == SYMM_OK)
        status = symm_rendezvous(o->job->world);
    if (status != SYMM_OK)
        return perf_job_failed(o->job, status, "allocating the buffers");
    for (int part = 0; part < PARTS; part++) {
        o->in[part] = (char *)symm_buffer_ptr(o->buffer) + 2 * (size_t)part * each;
        o->out[part] = o->in[part] + each;
    }
    o->staging = o->job->gpu ? calloc(1, each) : NULL;
    if (o->job->gpu && !o->staging)
        return no_memory(o);
    return perf_job_fill(o->job, o->in[0], 0, whole); /* pages are touched now */
}

/* A team's first stream has the most scratch: the all_reduce's, as it is elsewhere. */
static symm_status use_first(const struct overlap *o)
{
    const symm_call call = {.size = sizeof call, .stream = o->streams[REDUCE]};
    symm_status status = symm_barrier(o->job->world, &call, NULL);

    return status == SYMM_OK ? symm_stream_synchronize(o->job->ctx, call.stream, 0)
                             : status;
}

static int make_streams(struct overlap *o)
{
    symm_status status = SYMM_OK;

    if (o->job->gpu)
        status = symm_stream_create(o->job->ctx, &o->main);
    for (int part = 0; part < PARTS && status == SYMM_OK; part++)
        status = symm_stream_create(o->job->ctx, &o->streams[part]);
    if (status == SYMM_OK)
        status = use_first(o);
    if (status != SYMM_OK)
        return perf_job_failed(o->job, status, "making the streams");
    if (!o->options->nccl)
        return PERF_RIGHT;
    o->nccl = perf_nccl_open(o->job, false, o->options->end);
    if (!o->nccl)
        return PERF_REFUSED;
    o->report->nccl_version = perf_nccl_version(o->nccl);
    return PERF_RIGHT;
}

static int prepare(struct overlap *o)
{
    size_t most = (size_t)perf_options_iterations(o->options, 0);
    bool have = true;
    int result;

    for (int mode = 0; mode < MODES; mode++) {
        o->times[mode] = calloc(most, sizeof(double));
        have = have && o->times[mode];
    }
    o->gathered = calloc((size_t)o->job->size * (MODES + 1), sizeof *o->gathered);
    if (!have || !o->gathered)
        return no_memory(o);
    result = make_patterns(o);
    if (result == PERF_RIGHT)
        result = make_areas(o);
    return result == PERF_RIGHT ? make_streams(o) : result;
}

static void release(struct overlap *o)
{
    perf_nccl_close(o->nccl);
    for (int part = 0; part < PARTS; part++)
        symm_stream_destroy(o->job->ctx, o->streams[part]);
    symm_stream_destroy(o->job->ctx, o->main);
    for (int mode = 0; mode < MODES; mode++)
        free(o->times[mode]);
    free(o->gathered);
    free(o->staging);
    symm_buffer_release(o->buffer);
}

int perf_overlap(const struct perf_job *job, const struct perf_options *options,
                 struct perf_report *report)
{
    struct overlap o = {.job = job, .options = options, .report = report};
    int result = prepare(&o);

    if (result == PERF_RIGHT) {
        print_head(&o);
        result = run_sizes(&o);
    }
    if (result == PERF_RIGHT)
        print_foot(&o);
    release(&o);
    return result == PERF_RIGHT && report->wrong > 0 ? PERF_WRONG : result;
}
