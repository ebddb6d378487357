/* SPDX-License-Identifier: MIT */
/* table.c - see table.h. */
#include "perf/table.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "perf/file.h"

#define MEMORY_US_PER_GIB 16 /* the planner's price of a GiB */

/* If the size was measured before, keeps the lesser of the two times. */
static bool keep_least(struct table_set *set, int algorithm, size_t bytes, double us)
{
    for (int p = 0; p < set->count[algorithm]; p++)
        if (set->bytes[algorithm][p] == (double)bytes) {
            set->us[algorithm][p] = fmin(set->us[algorithm][p], us);
            return true;
        }
    return false;
}

void table_add(struct table_set *set, size_t bytes, const struct perf_timing *timing)
{
    for (int a = 0; a < PERF_AUTOMATIC; a++) {
        int at = set->count[a];

        if (timing->us[a] <= 0)
            continue;
        if (keep_least(set, a, bytes, timing->us[a]) || at == TABLE_POINTS)
            continue;
        for (; at > 0 && set->bytes[a][at - 1] > (double)bytes; at--) {
            set->bytes[a][at] = set->bytes[a][at - 1];
            set->us[a][at] = set->us[a][at - 1];
        }
        set->bytes[a][at] = (double)bytes;
        set->us[a][at] = timing->us[a];
        set->count[a]++;
    }
}

/* ---- Lines for the planner -------------------------------------------------------------- */

/* The barriers that the planner counts beside an algorithm's own time. */
static int barriers_of(int algorithm)
{
    switch (algorithm) {
    case SYMM_ALGORITHM_ONE_SHOT_PULL:
    case SYMM_ALGORITHM_TWO_SHOT_INPLACE:
    case SYMM_ALGORITHM_MULTIMEM_ONE_SHOT:
    case SYMM_ALGORITHM_MULTIMEM_TWO_SHOT:
        return 2;
    case SYMM_ALGORITHM_TWO_SHOT_PULL:
        return 1;
    default:
        return 0;
    }
}

/* Bytes that a rank receives, by the rules of docs/planner.md. */
static double received(const struct table_set *set, int algorithm, double bytes)
{
    double n = set->ranks;

    switch (algorithm) {
    case SYMM_ALGORITHM_TWO_SHOT_PUSH:
    case SYMM_ALGORITHM_TWO_SHOT_PULL:
    case SYMM_ALGORITHM_TWO_SHOT_INPLACE:
    case SYMM_ALGORITHM_MULTIMEM_TWO_SHOT:
        return 2 * bytes * (n - 1) / n;
    case SYMM_ALGORITHM_MULTIMEM_ONE_SHOT:
        return bytes;
    case SYMM_ALGORITHM_LL_PUSH:
        return 2 * bytes * (n - 1);
    default:
        return bytes * (n - 1);
    }
}

/* The line through the first and the last point of a curve. */
static json_t *line_json(const struct table_set *set, int algorithm, double barrier_us)
{
    int last = set->count[algorithm] - 1;
    const double *bytes = set->bytes[algorithm], *us = set->us[algorithm];
    double latency = us[0] - barriers_of(algorithm) * barrier_us;
    double more = us[last] - us[0] > 0 ? us[last] - us[0] : us[last];

    return json_pack("{s:f,s:f}", "latency_us", latency > 0.01 ? latency : 0.01,
                     "bytes_per_us",
                     fmax(received(set, algorithm, bytes[last]) / more, 1));
}

static json_t *lines_json(const struct table *table)
{
    json_t *lines = json_object();

    for (int s = 0; s < table->set_count; s++) {
        const struct table_set *set = &table->sets[s];

        if (set->kind != PERF_ALL_REDUCE || set->in_place ||
            set->ranks != table->sets[0].ranks)
            continue;
        for (int a = 0; a < PERF_AUTOMATIC; a++)
            if (set->count[a] > 0)
                json_object_set_new(lines, symm_algorithm_name((symm_algorithm)a),
                                    line_json(set, a, table->barrier_us));
        break;
    }
    return lines;
}

/* ---- The file --------------------------------------------------------------------------- */

static json_t *links_json(const struct perf_job *job)
{
    json_t *rows = json_array();
    char row[PERF_MAX_RANKS + 1];

    for (int from = 0; from < job->size; from++) {
        for (int to = 0; to < job->size; to++)
            row[to] = perf_gpu_link(job->gpu, from, to);
        row[job->size] = 0;
        json_array_append_new(rows, json_string(row));
    }
    return rows;
}

static json_t *machine_json(const struct perf_job *job)
{
    json_t *machine =
        json_pack("{s:s,s:i}", "key", job->info.machine, "ranks", job->size);
    char text[32];
    time_t now = time(NULL);
    struct tm utc;

    if (job->gpu) {
        snprintf(text, sizeof text, "%d.%d", perf_gpu_driver(job->gpu) / 1000,
                 perf_gpu_driver(job->gpu) % 1000 / 10);
        json_object_set_new(machine, "driver_cuda", json_string(text));
        json_object_set_new(machine, "links", links_json(job));
    }
    strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", gmtime_r(&now, &utc));
    json_object_set_new(machine, "measured_utc", json_string(text));
    json_object_set_new(machine, "symm_version", json_string(symm_version()));
    return machine;
}

static void write_value(FILE *file, const char *name, json_t *value, const char *end)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));

    fprintf(file, " \"%s\": %s%s\n", name, text ? text : "null", end);
    free(text);
    json_decref(value);
}

/* One line per curve, so that two tables can be compared by eye. */
static void write_curve(FILE *file, const struct table_set *set, int algorithm,
                        bool first)
{
    fprintf(file,
            "%s\n  {\"collective\": \"%s\", \"algorithm\": \"%s\", \"data\": \"%s\", "
            "\"in_place\": %s, \"ranks\": %d, \"points\": [",
            first ? "" : ",", perf_kind_name(set->kind),
            symm_algorithm_name((symm_algorithm)algorithm), set->data,
            set->in_place ? "true" : "false", set->ranks);
    for (int p = 0; p < set->count[algorithm]; p++)
        fprintf(file, "%s[%.0f, %.5g]", p ? ", " : "", set->bytes[algorithm][p],
                set->us[algorithm][p]);
    fprintf(file, "]}");
}

struct whole {
    const struct table *table;
    const struct perf_job *job;
};

static void write_all(FILE *file, const void *arg)
{
    const struct whole *whole = arg;
    const struct table *table = whole->table;
    bool first = true;

    fprintf(file, "{\n");
    write_value(file, "format", json_string("symm-costs/1"), ",");
    write_value(file, "machine", machine_json(whole->job), ",");
    write_value(file, "barrier_us", json_real(table->barrier_us), ",");
    write_value(file, "memory_us_per_gib", json_integer(MEMORY_US_PER_GIB), ",");
    write_value(file, "algorithms", lines_json(table), ",");
    fprintf(file, " \"measured\": [");
    for (int s = 0; s < table->set_count; s++)
        for (int a = 0; a < PERF_AUTOMATIC; a++)
            if (table->sets[s].count[a] > 0) {
                write_curve(file, &table->sets[s], a, first);
                first = false;
            }
    fprintf(file, "\n ]\n}\n");
}

int table_write(const struct table *table, const struct perf_job *job, const char *path)
{
    const struct whole whole = {table, job};
    int result = perf_file_write(path, "-o", write_all, &whole);

    if (result == PERF_RIGHT)
        printf("# written: %s; SYMM_COSTS=%s makes the library choose by it\n", path,
               path);
    return result;
}
