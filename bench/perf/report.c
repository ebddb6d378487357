/* SPDX-License-Identifier: MIT */
/* report.c - see report.h. */
#include "perf/report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "perf/file.h"
#include "tools/common/args.h"

#define JSON_VERSION 2 /* of nccl-tests' JSON: the keys are the same */

static const char *const other_names[PERF_OTHERS] = {"nccl", "nccl-window"};

extern char **environ;

/* ---- The ranks ------------------------------------------------------------------- */

struct device_record { /* gathered as bytes */
    int32_t pid, device;
    char host[64], where[96];
};

static json_t *device_json(int rank, const struct device_record *record)
{
    return json_pack("{s:i,s:i,s:s,s:i,s:s,s:s}", "rank", rank, "pid", (int)record->pid,
                     "hostname", record->host, "device", (int)record->device,
                     "device_hex", "host", "device_info", record->where);
}

static void print_devices(struct perf_report *report, const struct perf_job *job,
                          struct device_record *records)
{
    const struct perf_options *options = report->options;

    printf("# symm-perf %s: %s, %d rank%s, backend %s, reductions %s, job from %s\n",
           symm_version(), perf_kind_name(options->kind), job->size,
           job->size > 1 ? "s" : "", job->info.backend, job->info.isa,
           job->info.job_source);
    printf("# Using devices\n");
    for (int r = 0; r < job->size; r++) {
        records[r].host[sizeof records[r].host - 1] = 0;
        records[r].where[sizeof records[r].where - 1] = 0;
        printf("#  Rank %2d Group %2d Pid %6d on %10s device %2d [%s] %s\n", r, 0,
               (int)records[r].pid, records[r].host, (int)records[r].device,
               job->info.backend, records[r].where[0] ? records[r].where : "not bound");
        if (report->devices)
            json_array_append_new(report->devices, device_json(r, &records[r]));
    }
}

int perf_report_open(struct perf_report *report, const struct perf_job *job,
                     const struct perf_options *options)
{
    struct device_record mine = {.pid = (int32_t)getpid(), .device = job->info.device};
    struct device_record *all = calloc((size_t)job->size, sizeof *all);
    time_t now = time(NULL);
    struct tm local;
    int result = PERF_RIGHT;

    *report = (struct perf_report){.options = options, .prints = job->rank == 0};
    if (!all)
        return perf_job_no_memory(job);
    if (mine.device < 0) /* the host backend has none */
        mine.device = job->local_rank;
    strftime(report->start_time, sizeof report->start_time, "%Y-%m-%d %H:%M:%S",
             localtime_r(&now, &local));
    if (options->json) {
        report->results = json_array();
        report->devices = json_array();
    }
    gethostname(mine.host, sizeof mine.host - 1);
    snprintf(mine.where, sizeof mine.where, "%s", job->where);
    symm_status status = perf_job_gather(job, &mine, sizeof mine, all);
    if (status != SYMM_OK)
        result = perf_job_failed(job, status, "gathering the names of the ranks");
    else if (report->prints)
        print_devices(report, job, all);
    free(all);
    return result;
}

void perf_report_close(struct perf_report *report)
{
    json_decref(report->results);
    json_decref(report->devices);
    report->results = report->devices = NULL;
}

/* ---- The table ------------------------------------------------------------------- */

/* At most `width` characters: a larger number has fewer decimals, then an exponent. */
static void number_text(double value, int width, char *text, size_t bytes)
{
    int digits = 0;

    for (double limit = 1; value >= limit && digits < 40; limit *= 10)
        digits++;
    if (digits < width - 2)
        snprintf(text, bytes, "%*.2f", width, value);
    else if (digits < width - 1)
        snprintf(text, bytes, "%*.1f", width, value);
    else if (digits < width + 1)
        snprintf(text, bytes, "%*.0f", width, value);
    else
        snprintf(text, bytes, "%*.*e", width, width >= 7 ? 1 : 0, value);
}

static void print_cell(const struct perf_cell *cell)
{
    char time_text[32], alg_text[32], bus_text[32];

    if (!cell->present) {
        printf("  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
        return;
    }
    number_text(cell->stats.p50, 7, time_text, sizeof time_text);
    number_text(cell->alg_bw, 6, alg_text, sizeof alg_text);
    number_text(cell->bus_bw, 6, bus_text, sizeof bus_text);
    printf("  %7s  %6s  %6s", time_text, alg_text, bus_text);
    if (cell->wrong < 0)
        printf("    N/A");
    else
        printf("  %6g", cell->wrong);
}

/* Writes to an array of 16 bytes; returns it. */
static const char *count_text(int count, char *text)
{
    if (count == PERF_AUTO)
        return "auto";
    snprintf(text, 16, "%d", count);
    return text;
}

/* Ends a line of the head: `text` for each column of --compare; NULL: its name. */
static void print_others(const struct perf_options *options, const char *text)
{
    for (int i = 0; i < PERF_OTHERS; i++)
        if (options->compare & 1 << i)
            printf("  %11s", text ? text : other_names[i]);
    printf("\n");
}

void perf_report_table(const struct perf_report *report)
{
    const struct perf_options *options = report->options;
    char warmup[16], iterations[16];

    if (!report->prints)
        return;
    printf(
        "# minBytes %zu maxBytes %zu step: %zu(%s) warmup iters: %s iters: %s "
        "agg iters: 1 validation: %d graph: %d\n",
        options->begin, options->end, options->step ? options->step : options->factor,
        options->step ? "bytes" : "factor", count_text(options->warmup, warmup),
        count_text(options->iterations, iterations), options->checks, options->graph);
    if (options->graph)
        printf(
            "# time: a call in a graph of %d, median of the slowest rank's replays\n",
            options->graph);
    else
        printf(
            "# time: median of the slowest rank; each rank rewrites its input before "
            "each call, untimed\n");
    printf("#\n");
    printf("# %10s  %12s  %8s  %6s  %6s           out-of-place                       "
           "in-place          ",
           "", "", "", "", "");
    print_others(options, NULL);
    printf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s ",
           "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong",
           "time", "algbw", "busbw", "#wrong");
    print_others(options, "time");
    printf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s ",
           "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)",
           "(GB/s)", "(GB/s)", "");
    print_others(options, "(us)");
    fflush(stdout);
}

json_t *perf_report_stats(const struct perf_stats *stats)
{
    return json_pack("{s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f}", "min_us", stats->min,
                     "max_us", stats->max, "avg_us", stats->avg, "p50_us", stats->p50,
                     "p95_us", stats->p95, "p99_us", stats->p99, "stdev_us",
                     stats->stdev, "cv_pct",
                     stats->avg > 0 ? 100 * stats->stdev / stats->avg : 0.0);
}

static void add_cell(json_t *object, const char *name, const struct perf_cell *cell)
{
    char per_iteration[40];

    snprintf(per_iteration, sizeof per_iteration, "%s_per_iter", name);
    if (!cell->present) {
        json_object_set_new(object, name, json_null());
        return;
    }
    json_object_set_new(
        object, name,
        json_pack("{s:f,s:f,s:f,s:f,s:o,s:i,s:i,s:s}", "time", cell->stats.p50,
                  "alg_bw", cell->alg_bw, "bus_bw", cell->bus_bw, "wire_bw",
                  cell->wire_bw, "nwrong",
                  cell->wrong < 0 ? json_null() : json_integer((json_int_t)cell->wrong),
                  "iterations", cell->iterations, "warmup_iterations", cell->warmup,
                  "explain", cell->explain));
    json_object_set_new(object, per_iteration, perf_report_stats(&cell->stats));
}

static void add_row(struct perf_report *report, const struct perf_row *row)
{
    json_t *object = json_pack("{s:I,s:I,s:s,s:s,s:i}", "size", (json_int_t)row->bytes,
                               "count", (json_int_t)row->count, "type", row->type,
                               "redop", row->redop, "root", row->root);

    if (row->dtype)
        json_object_set_new(object, "dtype", json_string(row->dtype));
    add_cell(object, "out_of_place", &row->cells[0]);
    add_cell(object, "in_place", &row->cells[1]);
    for (int i = 0; i < PERF_OTHERS; i++)
        if (row->others[i].present)
            add_cell(object, other_names[i], &row->others[i]);
    json_object_set_new(
        object, "actual_iterations",
        json_integer(row->cells[row->cells[0].present ? 0 : 1].iterations));
    json_object_set_new(object, "experiment_name",
                        json_string(perf_kind_name(report->options->kind)));
    json_array_append_new(report->results, object);
}

void perf_report_row(struct perf_report *report, const struct perf_row *row)
{
    char root[16];

    for (int c = 0; c < 2; c++) {
        if (!row->cells[c].present)
            continue;
        report->bus_sum += row->cells[c].bus_bw;
        report->bus_cells++;
        if (row->cells[c].wrong > 0)
            report->wrong += row->cells[c].wrong;
    }
    if (!report->prints)
        return;
    snprintf(root, sizeof root, "%d", row->root);
    printf("%12zu  %12zu  %8s  %6s  %6s", row->bytes, row->count, row->type, row->redop,
           root);
    print_cell(&row->cells[0]);
    print_cell(&row->cells[1]);
    for (int i = 0; i < PERF_OTHERS; i++) {
        if (row->others[i].present)
            printf("  %11.2f", row->others[i].stats.p50);
        else if (report->options->compare & 1 << i)
            printf("  %11s", "N/A");
    }
    printf("\n");
    fflush(stdout);
    if (report->results)
        add_row(report, row);
}

static double average_bus(const struct perf_report *report)
{
    return report->bus_cells ? report->bus_sum / report->bus_cells : 0;
}

void perf_report_wrong(const struct perf_report *report)
{
    if (report->prints)
        printf("# %-20s : %.0f %s\n", "Out of bounds values", report->wrong,
               report->wrong > 0 ? "FAILED" : "OK");
}

void perf_report_foot(const struct perf_report *report)
{
    perf_report_wrong(report);
    if (!report->prints)
        return;
    printf("# %-20s : %g \n", "Avg bus bandwidth", average_bus(report));
    printf("#\n");
}

/* ---- The file -------------------------------------------------------------------- */

static json_t *args_json(int argc, char **argv)
{
    json_t *list = json_array();

    for (int i = 0; i < argc; i++)
        json_array_append_new(list, json_string(argv[i]));
    return list;
}

/* Only variables that bear on the run. */
static json_t *env_json(void)
{
    static const char *const prefixes[] = {
        "SYMM_",       "NCCL_",  "OMPI_COMM_WORLD_", "RANK=",
        "WORLD_SIZE=", "LOCAL_", "PMI_RANK=",        "PMI_SIZE="};
    json_t *list = json_array();

    for (char **entry = environ; *entry; entry++) {
        if (args_is_secret(*entry))
            continue;
        for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
            if (strncmp(*entry, prefixes[i], strlen(prefixes[i])) == 0)
                json_array_append_new(list, json_string(*entry));
    }
    return list;
}

static json_t *count_json(int count)
{
    return count == PERF_AUTO ? json_string("auto") : json_integer(count);
}

static json_t *config_json(const struct perf_options *options,
                           const struct perf_job *job)
{
    json_t *config = json_pack(
        "{s:s,s:i,s:s,s:s,s:s,s:I,s:I,s:I,s:o,s:o,s:i,s:i,s:i,s:b}", "operation",
        perf_kind_name(options->kind), "ranks", job->size, "backend", job->info.backend,
        "isa", job->info.isa, "job_source", job->info.job_source, "minimum_bytes",
        (json_int_t)options->begin, "maximum_bytes", (json_int_t)options->end,
        options->step ? "step_bytes" : "step_factor",
        (json_int_t)(options->step ? options->step : options->factor), "warmup_iters",
        count_json(options->warmup), "iterations", count_json(options->iterations),
        "aggregated_iterations", 1, "validation", options->checks, "graph",
        options->graph, "per_iter_timing", 1);

    if (options->algorithm)
        json_object_set_new(config, "algorithm", json_string(options->algorithm));
    return config;
}

static json_t *whole_json(struct perf_report *report, const struct perf_job *job,
                          int argc, char **argv)
{
    return json_pack("{s:i,s:s,s:s,s:o,s:o,s:o,s:O,s:O,s:{s:I,s:b},s:{s:f,s:b}}",
                     "version", JSON_VERSION, "symm_version", symm_version(),
                     "start_time", report->start_time, "args", args_json(argc, argv),
                     "env", env_json(), "config", config_json(report->options, job),
                     "devices", report->devices, "results", report->results,
                     "out_of_bounds", "count", (json_int_t)report->wrong, "okay",
                     report->wrong == 0, "average_bus_bandwidth", "bandwidth",
                     average_bus(report), "okay", 1);
}

static void dump(FILE *file, const void *whole)
{
    json_dumpf(whole, file, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
}

int perf_report_write(struct perf_report *report, const struct perf_job *job, int argc,
                      char **argv, json_t *extra)
{
    const char *path = report->options->json;
    const int nccl = report->nccl_version;
    char version[32];
    json_t *whole;
    int result;

    if (!path || !report->prints) {
        json_decref(extra);
        return PERF_RIGHT;
    }
    whole = whole_json(report, job, argc, argv);
    snprintf(version, sizeof version, "%d.%d.%d", nccl / 10000, nccl / 100 % 100,
             nccl % 100);
    if (nccl != 0)
        json_object_set_new(whole, "versions", json_pack("{s:s}", "NCCL", version));
    if (extra)
        json_object_update(whole, extra);
    json_decref(extra);
    if (whole) {
        result = perf_file_write(path, "-J", dump, whole);
    } else {
        fprintf(stderr, "symm-perf: -J: %s cannot be written: out of memory\n", path);
        result = PERF_REFUSED;
    }
    json_decref(whole);
    return result;
}
