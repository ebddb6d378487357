/* SPDX-License-Identifier: MIT */
/* series.c - see series.h. */
#include "perf/series.h"

#include <stdio.h>
#include <stdlib.h>

static bool allocate_times(struct perf_series *series)
{
    const int most = perf_options_iterations(series->options, 0);

    for (int t = 0; t < PERF_SERIES_TIMES && series->kind->times[t]; t++) {
        series->times[t] = calloc(most < 2 ? 2 : (size_t)most, sizeof(double));
        if (!series->times[t])
            return false;
    }
    return true;
}

static symm_status measure(struct perf_series *series)
{
    symm_status status;
    int count = 0;

    series->wrong = 0;
    series->iterations = perf_options_iterations(series->options, series->bytes);
    for (int t = 0; t < PERF_SERIES_TIMES; t++)
        series->counts[t] = series->iterations;
    status = series->kind->measure(series);
    if (status != SYMM_OK)
        return status;
    for (; count < PERF_SERIES_TIMES && series->kind->times[count]; count++)
        perf_stats_make(&series->stats[count], series->times[count],
                        (size_t)series->counts[count]);
    return perf_job_slowest(series->job, series->stats, count, &series->wrong, 1);
}

static void add_json(const struct perf_series *series)
{
    json_t *object = series->kind->describe(series);

    json_object_set_new(object, "size", json_integer((json_int_t)series->bytes));
    json_object_set_new(object, "nwrong", json_integer((json_int_t)series->wrong));
    json_object_set_new(object, "actual_iterations", json_integer(series->iterations));
    json_object_set_new(object, "experiment_name", json_string(series->kind->names[0]));
    for (int t = 0; t < PERF_SERIES_TIMES && series->kind->times[t]; t++)
        json_object_set_new(object, series->kind->times[t],
                            perf_report_stats(&series->stats[t]));
    json_array_append_new(series->report->results, object);
}

static int run_row(struct perf_series *series)
{
    symm_status status = measure(series);

    if (status != SYMM_OK)
        return perf_job_failed(series->job, status, series->kind->names[series->row]);
    series->report->wrong += series->wrong;
    if (!series->report->prints)
        return PERF_RIGHT;
    printf("%12zu", series->bytes);
    series->kind->print(series);
    if (series->options->checks > 0)
        printf("  %6.0f\n", series->wrong);
    else
        printf("  %6s\n", "N/A");
    fflush(stdout);
    if (series->report->results)
        add_json(series);
    return PERF_RIGHT;
}

static int run_sizes(struct perf_series *series)
{
    size_t bytes = series->options->begin;
    int result = PERF_RIGHT;

    do {
        series->bytes = bytes / series->kind->element * series->kind->element;
        for (int r = 0; r < series->rows && result == PERF_RIGHT; r++) {
            series->row = r;
            result = run_row(series);
        }
    } while (result == PERF_RIGHT && perf_options_next(series->options, &bytes));
    return result;
}

int perf_series_run(struct perf_series *series)
{
    int result;

    series->rows = 1;
    result = allocate_times(series) ? series->kind->prepare(series)
                                    : perf_job_no_memory(series->job);
    if (result == PERF_RIGHT) {
        if (series->report->prints)
            series->kind->head(series);
        fflush(stdout);
        result = run_sizes(series);
    }
    if (result == PERF_RIGHT && series->kind->finish)
        series->kind->finish(series);
    if (result == PERF_RIGHT || result == PERF_WRONG) {
        perf_report_wrong(series->report);
        if (series->report->prints)
            printf("#\n");
    }
    series->kind->release(series);
    for (int t = 0; t < PERF_SERIES_TIMES; t++)
        free(series->times[t]);
    return result == PERF_RIGHT && series->report->wrong > 0 ? PERF_WRONG : result;
}
