/* SPDX-License-Identifier: MIT */
/* model_run.c - symm-perf model: its command line, its table and its JSON. */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "perf/file.h"
#include "perf/job.h"
#include "perf/model.h"
#include "tools/common/args.h"

#define MOST_HOSTS 4096
#define MOST_GPUS  72

static const char *const protocols[PERF_PROTOCOLS] = {"LL", "LL128", "Simple"};
static const char *const algorithms[PERF_NCCL_ALGORITHMS] = {"ring", "tree"};

struct model_options {
    struct perf_model model;
    struct perf_options sizes; /* kind, begin, end, step and factor alone */
    const char *json, *costs;
    bool help;
};

__attribute__((format(printf, 1, 2))) static int refuse(const char *format, ...)
{
    va_list words;

    va_start(words, format);
    fputs("symm-perf: ", stderr);
    vfprintf(stderr, format, words);
    fputc('\n', stderr);
    va_end(words);
    return PERF_REFUSED;
}

/* ---- The command line ------------------------------------------------------------- */

static int take_kind(struct model_options *options, int count, char **words)
{
    static const enum perf_kind kinds[] = {PERF_ALL_REDUCE, PERF_REDUCE_SCATTER,
                                           PERF_ALL_GATHER, PERF_BROADCAST,
                                           PERF_ALL_TO_ALL, PERF_BARRIER};

    options->sizes.kind = PERF_ALL_REDUCE;
    if (count == 0)
        return PERF_RIGHT;
    if (count > 1)
        return refuse("found '%.40s' after the last argument", words[1]);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(words[0], perf_kind_name(kinds[i])) == 0) {
            options->sizes.kind = kinds[i];
            return PERF_RIGHT;
        }
    return refuse("OP: found '%.40s', allowed with model: all_reduce reduce_scatter "
                  "all_gather broadcast all_to_all barrier",
                  words[0]);
}

static int check(struct model_options *options)
{
    struct perf_model *model = &options->model;

    if (model->hosts * model->gpus < 2)
        return refuse("--gpus: found 1, allowed with one host: an integer from 2 to %d",
                      MOST_GPUS);
    if (model->nics > model->gpus)
        return refuse(
            "--nics: found %d, allowed: an integer from 1 to %d, as many as a "
            "host has GPUs",
            model->nics, model->gpus);
    if (model->nics == 0)
        model->nics = model->gpus;
    if (options->sizes.begin == 0)
        return refuse("-b: found 0, allowed with model: 1 or more");
    if (options->sizes.begin > options->sizes.end)
        return refuse("-b: found %zu, allowed: at most -e, which is %zu",
                      options->sizes.begin, options->sizes.end);
    return PERF_RIGHT;
}

static int parse(int argc, char **argv, struct model_options *options)
{
    struct perf_model *model = &options->model;
    int factor = 2, word, result;
    char error[256];
    struct args_option rows[] = {
        ARGS_ROW(NULL, 'b', ARGS_SIZE, &options->sizes.begin),
        ARGS_ROW(NULL, 'e', ARGS_SIZE, &options->sizes.end),
        ARGS_ROW(NULL, 'i', ARGS_SIZE, &options->sizes.step),
        ARGS_ROW(NULL, 'f', ARGS_INTEGER, &factor, .low = 2, .high = 1 << 20),
        ARGS_ROW(NULL, 'J', ARGS_TEXT, &options->json),
        ARGS_ROW("hosts", 0, ARGS_INTEGER, &model->hosts, .low = 1, .high = MOST_HOSTS),
        ARGS_ROW("gpus", 0, ARGS_INTEGER, &model->gpus, .low = 1, .high = MOST_GPUS),
        ARGS_ROW("nics", 0, ARGS_INTEGER, &model->nics, .low = 1, .high = MOST_GPUS),
        ARGS_ROW("network", 0, ARGS_NUMBER, &model->network, .high = 1e4,
                 .words = "GB/s"),
        ARGS_ROW("latency", 0, ARGS_NUMBER_OR_0, &model->latency, .high = 1e6,
                 .words = "microseconds"),
        ARGS_ROW("sockets", 0, ARGS_FLAG, &model->sockets),
        ARGS_ROW("costs", 0, ARGS_TEXT, &options->costs),
        ARGS_ROW("help", 'h', ARGS_STOP, &options->help),
    };

    *options = (struct model_options){
        .model = {.hosts = 2, .gpus = 8, .network = 50, .latency = 1},
        .sizes = {.begin = 8, .end = (size_t)64 << 20}};
    word = args_parse(argc, argv, rows, sizeof rows / sizeof *rows, false, error,
                      sizeof error);
    if (word < 0)
        return refuse("%s", error);
    if (options->help)
        return PERF_RIGHT;
    options->sizes.factor = (size_t)factor;
    result = take_kind(options, argc - word, argv + word);
    return result == PERF_RIGHT ? check(options) : result;
}

/* ---- Results ----------------------------------------------------------------------- */

static void print_head(const struct model_options *options)
{
    const struct perf_model *model = &options->model;

    printf("# symm-perf %s: model of %s, predicted, not measured\n", symm_version(),
           perf_kind_name(options->sizes.kind));
    printf("# %d host%s of %d GPU%s, %d NIC%s a host for NCCL, network %g GB/s a rail, "
           "latency %g us%s\n",
           model->hosts, model->hosts > 1 ? "s" : "", model->gpus,
           model->gpus > 1 ? "s" : "", model->nics, model->nics > 1 ? "s" : "",
           model->network, model->latency, model->sockets ? ", sockets" : "");
    printf(
        "# a call in a graph; one piece: ours without chunks; ratio: ours over NCCL's "
        "choice\n");
    printf("#\n# %10s  %10s  %10s  %17s  %17s  %6s  %6s\n", "size", "ours", "one piece",
           "NCCL ring", "NCCL tree", "NCCL", "ratio");
    printf("# %10s  %10s  %10s  %10s  %5s  %10s  %5s  %6s\n", "(B)", "(us)", "(us)",
           "(us)", "", "(us)", "", "takes");
}

static void print_row(const struct model_options *options, size_t bytes,
                      const struct perf_prediction *row)
{
    const bool pairs = options->sizes.kind == PERF_ALL_TO_ALL;
    const bool pieces =
        !pairs && options->sizes.kind != PERF_BARRIER && options->model.hosts > 1;

    printf("%12zu  %10.2f", bytes, row->ours);
    if (pieces)
        printf("  %10.2f", row->one_piece);
    else
        printf("  %10s", "N/A");
    for (int a = 0; a < PERF_NCCL_ALGORITHMS; a++) {
        const struct perf_nccl_time *time = &row->nccl[a];

        if (time->present)
            printf("  %10.2f %6s", time->us, protocols[time->protocol]);
        else
            printf("  %10s %6s", "N/A", "");
    }
    printf("  %6s  %6.2f\n", pairs ? "pairs" : algorithms[row->takes],
           row->ours / row->nccl[row->takes].us);
}

static json_t *row_json(const struct model_options *options, size_t bytes,
                        const struct perf_prediction *row)
{
    json_t *object = json_pack(
        "{s:I,s:f,s:f,s:s,s:f,s:f}", "size", (json_int_t)bytes, "ours_us", row->ours,
        "one_piece_us", row->one_piece, "nccl_takes",
        options->sizes.kind == PERF_ALL_TO_ALL ? "pairs" : algorithms[row->takes],
        "nccl_us", row->nccl[row->takes].us, "ratio",
        row->ours / row->nccl[row->takes].us);

    for (int a = 0; a < PERF_NCCL_ALGORITHMS; a++)
        json_object_set_new(object, a == PERF_RING ? "nccl_ring" : "nccl_tree",
                            row->nccl[a].present
                                ? json_pack("{s:f,s:s}", "us", row->nccl[a].us,
                                            "protocol",
                                            protocols[row->nccl[a].protocol])
                                : json_null());
    return object;
}

static void dump(FILE *file, const void *whole)
{
    json_dumpf(whole, file, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
}

static int write_json(const struct model_options *options, json_t *rows)
{
    const struct perf_model *model = &options->model;
    json_t *whole;
    int result;

    whole = json_pack("{s:s,s:b,s:{s:s,s:i,s:i,s:i,s:f,s:f,s:b},s:O}", "symm_version",
                      symm_version(), "predicted", 1, "config", "operation",
                      perf_kind_name(options->sizes.kind), "hosts", model->hosts,
                      "gpus", model->gpus, "nics", model->nics, "network_gb_s",
                      model->network, "latency_us", model->latency, "sockets",
                      (int)model->sockets, "results", rows);
    if (!whole)
        return refuse("-J: %s cannot be written: out of memory", options->json);
    result = perf_file_write(options->json, "-J", dump, whole);
    json_decref(whole);
    return result;
}

static int run(const struct model_options *options)
{
    size_t bytes = options->sizes.begin;
    json_t *rows = options->json ? json_array() : NULL;
    struct perf_prediction row;
    int result = PERF_RIGHT;

    print_head(options);
    do {
        if (!perf_model_predict(&options->model, options->sizes.kind, (double)bytes,
                                &row)) {
            result = refuse("--costs: the table has no curves of bfloat16 for 2 to %d "
                            "ranks; make one by symm-perf --tune",
                            options->model.gpus);
            break;
        }
        print_row(options, bytes, &row);
        if (rows)
            json_array_append_new(rows, row_json(options, bytes, &row));
    } while (options->sizes.kind != PERF_BARRIER &&
             perf_options_next(&options->sizes, &bytes));
    if (result == PERF_RIGHT && options->json)
        result = write_json(options, rows);
    json_decref(rows);
    return result;
}

int perf_model_main(int argc, char **argv)
{
    struct model_options options;
    symm_costs *costs = NULL;
    int result = parse(argc, argv, &options);
    symm_status status;

    if (result == PERF_RIGHT && options.help)
        fputs(perf_usage, stdout);
    if (result == PERF_RIGHT && !options.help && options.json)
        result = perf_file_check(options.json, "-J");
    if (result == PERF_RIGHT && !options.help) {
        status =
            options.costs
                ? symm_costs_read(options.costs, &costs)
                : symm_costs_parse(perf_model_table,
                                   (size_t)(perf_model_table_end - perf_model_table),
                                   "h200.json", &costs);
        options.model.costs = costs;
        result = status == SYMM_OK ? run(&options)
                                   : refuse("--costs: %s", symm_last_error());
    }
    symm_costs_destroy(costs);
    return args_flush("symm-perf") || result != PERF_RIGHT ? result : PERF_REFUSED;
}
