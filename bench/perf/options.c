/* SPDX-License-Identifier: MIT */
/* options.c - see options.h. */
#include "perf/options.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf/data.h"
#include "symm/norm.h"
#include "tools/common/args.h"

#define ONE(...) +1
#define DTYPES   (0 SYMM_DTYPE_MAP(ONE))
#define OPS      (0 SYMM_OP_MAP(ONE))
#define HIDDEN   4096 /* unless --hidden is given */

const char perf_usage[] =
    "usage: symm-perf OP [options]\n"
    "       symm-perf replay PROGRAM.json [options]\n"
    "       symm-perf [OP] --tune [-o FILE] [options]\n"
    "       symm-perf [OP] --regret [options]\n"
    "       symm-perf model [OP] [options]\n"
    "\n"
    "OP: all_reduce reduce_scatter all_gather broadcast all_to_all\n"
    "    put get put_signal signal barrier overlap chain all_reduce_norm\n"
    "\n"
    "sizes      -b BYTES   smallest (8)            -e BYTES  largest (64M); K, M, G\n"
    "           -f FACTOR  multiply by (2)         -i BYTES  or add\n"
    "data       -d DTYPE   float32, ..., all       -o OP     sum avg prod min max\n"
    "                                                        band bor bxor, or all\n"
    "           -r RANK    root of broadcast (0)   -c N      full checks a row (1)\n"
    "timing     -n N       timed calls (20), auto  -w N      calls before them (5), "
    "auto\n"
    "           -G K       on GPUs: K calls in a graph, -n replays of it\n"
    "           -T SECONDS timeout of a call\n"
    "output     -J FILE    JSON too\n"
    "ranks      --ranks N  start N ranks here      --no-pin  leave them unbound\n"
    "choices    --backend host|cuda  --algorithm NAME  --compare nccl,nccl-window\n"
    "replay     --iterations K (20)  --delay US  --plan PLAN.json\n"
    "norm       --hidden N (4096)  --quant none|tensor|row|group|group-column\n"
    "tune       -o FILE (symm-costs.json)  --budget SECONDS (60)\n"
    "model      --hosts N (2)  --gpus N (8)  --network GB/s (50)  --latency US (1)\n"
    "           --nics N  --sockets  --costs FILE\n"
    "           --help  --version\n";

static const char *const kind_names[PERF_KINDS] = {
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "put",
    "get",        "put_signal",     "signal",     "barrier",   "replay",     "overlap",
    "chain",      "all_reduce_norm"};

const char *const perf_quant_names[SYMM_NORM_QUANT_COUNT] = {"none", "tensor", "row",
                                                             "group", "group-column"};

const char *perf_kind_name(enum perf_kind kind)
{
    return kind_names[kind];
}

/* State of the parsing functions; error is written once. */
struct parser {
    struct perf_options *options;
    char *error;
    size_t error_bytes;
    const struct args_option *rows; /* up to that without a name and a letter */
    const char *dtypes, *quant;     /* of -d and --quant; NULL: not given */
};

__attribute__((format(printf, 2, 3))) static int refuse(struct parser *parser,
                                                        const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(parser->error, parser->error_bytes, format, args);
    va_end(args);
    return 2;
}

const char *perf_dtype_name(symm_dtype dtype)
{
    switch (dtype) {
    case SYMM_FLOAT64:
        return "double";
    case SYMM_FLOAT32:
        return "float";
    case SYMM_FLOAT16:
        return "half";
    case SYMM_FLOAT8_E4M3:
        return "f8e4m3";
    case SYMM_FLOAT8_E5M2:
        return "f8e5m2";
    default:
        return symm_dtype_name(dtype);
    }
}

static int parse_dtypes(struct parser *parser, const char *text)
{
    struct perf_options *options = parser->options;

    options->dtype_count = 1;
    if (strcmp(text, "all") == 0) {
        options->dtype = 0;
        options->dtype_count = DTYPES;
        return 0;
    }
    for (symm_dtype d = 0; d < DTYPES; d++)
        if (strcmp(text, perf_dtype_name(d)) == 0) {
            options->dtype = d;
            return 0;
        }
    if (symm_dtype_parse(text, &options->dtype) != SYMM_OK)
        return refuse(parser,
                      "-d: found '%.40s', allowed: float64 float32 float16 bfloat16 "
                      "float8_e4m3 float8_e5m2 int64 int32 int8 uint64 uint32 uint8 "
                      "int16 uint16 all",
                      text);
    return 0;
}

static int parse_ops(struct parser *parser, const char *text)
{
    struct perf_options *options = parser->options;

    options->op_count = strcmp(text, "all") == 0 ? OPS : 1;
    if (options->op_count == OPS)
        options->op = 0;
    else if (symm_op_parse(text, &options->op) != SYMM_OK)
        return refuse(parser,
                      "-o: found '%.40s', allowed: sum avg prod min max band bor "
                      "bxor all",
                      text);
    return 0;
}

static int take_words(struct parser *parser, int count, char **words)
{
    struct perf_options *options = parser->options;
    int kind = 0;

    options->every_kind = count < 1 && (options->tune || options->regret);
    if (options->every_kind)
        return 0;
    if (count < 1)
        return refuse(parser, "no OP given; 'symm-perf --help' lists them");
    while (kind < PERF_KINDS && strcmp(words[0], kind_names[kind]) != 0)
        kind++;
    if (kind == PERF_KINDS)
        return refuse(parser,
                      "OP: found '%.40s', allowed: all_reduce reduce_scatter "
                      "all_gather broadcast all_to_all put get put_signal signal "
                      "barrier replay overlap chain all_reduce_norm",
                      words[0]);
    options->kind = (enum perf_kind)kind;
    if (kind == PERF_REPLAY && count < 2)
        return refuse(parser, "replay: no PROGRAM.json given");
    if (kind == PERF_REPLAY)
        options->program = words[1];
    if (count > (kind == PERF_REPLAY ? 2 : 1))
        return refuse(parser, "found '%.40s' after the last argument",
                      words[kind == PERF_REPLAY ? 2 : 1]);
    return 0;
}

/* Refuses the flags `letters`, which would have no effect here. */
static int refuse_given(struct parser *parser, const char *letters, const char *command)
{
    for (const struct args_option *row = parser->rows; row->name || row->letter; row++)
        if (row->given && row->letter && strchr(letters, row->letter))
            return refuse(parser, "-%c does not belong to %s", row->letter, command);
    return 0;
}

/* --tune and --regret take operations with several algorithms; -o is a file of --tune. */
static int check_tune(struct parser *parser)
{
    struct perf_options *options = parser->options;

    if (options->tune && options->regret)
        return refuse(parser, "--tune and --regret are two runs: the second one with "
                              "SYMM_COSTS naming the table of the first");
    if (options->kind > PERF_ALL_TO_ALL)
        return refuse(parser,
                      "OP: found '%s', allowed with --tune and --regret: "
                      "all_reduce reduce_scatter all_gather broadcast all_to_all",
                      kind_names[options->kind]);
    if (options->compare || options->json || options->algorithm)
        return refuse(parser,
                      "--compare, --algorithm and -J do not belong to --tune and "
                      "--regret");
    if (refuse_given(parser, "nwcrif", "--tune and --regret"))
        return 2;
    if (options->budget <= 0)
        options->budget = 60;
    if (options->timeout <= 0) /* ranks outside a team wait for its members */
        options->timeout = options->tune ? 60 + 2 * options->budget : 600;
    if (options->tune && !options->table)
        options->table = "symm-costs.json";
    return 0;
}

/* A row is the unit of all_reduce_norm's sizes. */
static int check_norm(struct parser *parser)
{
    struct perf_options *options = parser->options;
    const char *quant = parser->quant;
    size_t row;

    options->dtype = parser->dtypes ? options->dtype : SYMM_BFLOAT16;
    row = options->hidden * symm_dtype_size(options->dtype);
    if (options->compare || options->table)
        return refuse(parser, "--compare and -o do not belong to 'symm-perf "
                              "all_reduce_norm'");
    if (options->dtype_count > 1 ||
        (options->dtype != SYMM_BFLOAT16 && options->dtype != SYMM_FLOAT16 &&
         options->dtype != SYMM_FLOAT32))
        return refuse(parser,
                      "-d: found %s, allowed with all_reduce_norm: bfloat16 "
                      "float16 float32",
                      options->dtype_count > 1 ? "all"
                                               : perf_dtype_name(options->dtype));
    while (quant && options->quant < SYMM_NORM_QUANT_COUNT &&
           strcmp(quant, perf_quant_names[options->quant]) != 0)
        options->quant++;
    if (options->quant == SYMM_NORM_QUANT_COUNT)
        return refuse(parser,
                      "--quant: found '%.40s', allowed: none, tensor, row, group, "
                      "group-column",
                      quant);
    if (refuse_given(parser, "r", "'symm-perf all_reduce_norm'"))
        return 2;
    options->begin = options->begin < row ? row : options->begin;
    options->end = options->end == SIZE_MAX ? 512 * row : options->end;
    return options->end < options->begin
               ? refuse(parser,
                        "-e: found %zu, allowed with all_reduce_norm: a row of %zu "
                        "bytes or more",
                        options->end, row)
               : 0;
}

/* overlap and chain fix their data and reductions, of elements of 4 bytes. */
static int check_streams(struct parser *parser)
{
    const struct perf_options *options = parser->options;
    const char *name = kind_names[options->kind];

    if (options->dtype_given || options->table)
        return refuse(parser, "-d and -o do not belong to 'symm-perf %s'", name);
    if (options->begin < 4)
        return refuse(parser, "-b: found %zu, allowed with %s: 4 or more",
                      options->begin, name);
    if (options->compare & 2)
        return refuse(parser, "--compare: found nccl-window, allowed with %s: nccl",
                      name);
    if (options->kind == PERF_CHAIN && options->graph)
        return refuse(parser, "-G does not belong to 'symm-perf chain', which measures "
                              "the host's part of a call");
    return 0;
}

/* The program defines what is measured and how often; every result is checked. */
static int check_replay(struct parser *parser)
{
    const struct perf_options *options = parser->options;

    if (options->graph || options->compare || options->algorithm)
        return refuse(parser,
                      "-G, --compare and --algorithm do not belong to 'symm-perf "
                      "replay'");
    if (options->iterations == PERF_AUTO)
        return refuse(parser,
                      "-n: found 'auto', allowed with replay: an integer above 0");
    return refuse_given(parser, "befidocwr", "'symm-perf replay'");
}

static int check_together(struct parser *parser)
{
    struct perf_options *options = parser->options;

    if (options->kind == PERF_REPLAY && check_replay(parser))
        return 2;
    if (options->begin > options->end)
        return refuse(parser, "-b: found %zu, allowed: at most -e, which is %zu",
                      options->begin, options->end);
    if (options->kind > PERF_ALL_TO_ALL && options->kind != PERF_OVERLAP &&
        options->compare)
        return refuse(parser, "--compare: NCCL has no %s", kind_names[options->kind]);
    if ((options->graph || options->compare) && options->backend &&
        strcmp(options->backend, "host") == 0)
        return refuse(parser, "-G and --compare need GPUs; found --backend host");
    if (options->kind != PERF_REPLAY && (options->plan || options->delay > 0))
        return refuse(parser, "--plan and --delay belong to 'symm-perf replay'");
    if (options->kind <= PERF_REDUCE_SCATTER && options->dtype_count == 1 &&
        options->op_count == 1 && !perf_takes(options->dtype, options->op))
        return refuse(parser,
                      "-o: found %s of %s, allowed: sum avg prod min max all, or -d "
                      "with an integer",
                      symm_op_name(options->op), perf_dtype_name(options->dtype));
    return options->kind == PERF_OVERLAP || options->kind == PERF_CHAIN
               ? check_streams(parser)
               : 0;
}

/* Defaults of flags that were not given: a chain is long and its messages are small. */
static void fill_defaults(struct perf_options *options)
{
    bool chain = options->kind == PERF_CHAIN && !options->every_kind;

    if (options->end == SIZE_MAX)
        options->end = (size_t)64 << (chain ? 10 : 20);
    if (options->iterations == 0)
        options->iterations = chain ? 10000 : 20;
}

bool perf_options_next(const struct perf_options *options, size_t *bytes)
{
    size_t next;
    bool over = options->step ? __builtin_add_overflow(*bytes, options->step, &next)
                              : __builtin_mul_overflow(*bytes, options->factor, &next);

    if (over || next <= *bytes || next > options->end)
        return false;
    *bytes = next;
    return true;
}

/* -n auto: the same counts as bench/floor.c, so that the figures are comparable. */
int perf_options_iterations(const struct perf_options *options, size_t bytes)
{
    static const struct {
        size_t bytes;
        int iterations;
    } steps[] = {{8192, 20000}, {65536, 8000}, {524288, 2000}, {4194304, 300}};

    if (options->iterations != PERF_AUTO)
        return options->iterations;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (bytes <= steps[i].bytes)
            return steps[i].iterations;
    return 30;
}

int perf_options_warmup(const struct perf_options *options, size_t bytes)
{
    return options->warmup == PERF_AUTO
               ? perf_options_iterations(options, bytes) / 10 + 5
               : options->warmup;
}

/* What the table of options does not check. words: what follows the options. */
static int check_all(struct parser *parser, int count, char **words)
{
    struct perf_options *options = parser->options;
    const bool tunes = options->tune || options->regret;

    options->dtype_given = parser->dtypes != NULL;
    if ((parser->dtypes && parse_dtypes(parser, parser->dtypes)) ||
        (options->table && !options->tune && parse_ops(parser, options->table)) ||
        take_words(parser, count, words))
        return 2;
    if (options->kind == PERF_ALL_REDUCE_NORM && check_norm(parser))
        return 2;
    if (options->kind != PERF_ALL_REDUCE_NORM &&
        (parser->quant || options->hidden != HIDDEN))
        return refuse(parser, "--hidden and --quant belong to all_reduce_norm");
    fill_defaults(options);
    if (tunes && check_tune(parser))
        return 2;
    if (options->budget > 0 && !tunes)
        return refuse(parser, "--budget belongs to --tune");
    return check_together(parser);
}

int perf_options_parse(int argc, char **argv, struct perf_options *options, char *error,
                       size_t error_bytes)
{
    struct parser parser = {
        .options = options, .error = error, .error_bytes = error_bytes};
    bool no_pin = false;
    int factor = 2, hidden = HIDDEN;
    struct args_option rows[] = {
        ARGS_ROW(NULL, 'b', ARGS_SIZE, &options->begin),
        ARGS_ROW(NULL, 'e', ARGS_SIZE, &options->end),
        ARGS_ROW(NULL, 'i', ARGS_SIZE, &options->step),
        ARGS_ROW(NULL, 'f', ARGS_INTEGER, &factor, .low = 2, .high = 1 << 20),
        ARGS_ROW(NULL, 'd', ARGS_TEXT, &parser.dtypes),
        ARGS_ROW(NULL, 'o', ARGS_TEXT, &options->table),
        ARGS_ROW(NULL, 'n', ARGS_INTEGER, &options->iterations, .low = 1, .high = 1e8,
                 .words = "auto"),
        ARGS_ROW(NULL, 'w', ARGS_INTEGER, &options->warmup, .high = 1e8,
                 .words = "auto"),
        ARGS_ROW(NULL, 'c', ARGS_INTEGER, &options->checks, .high = 1e6),
        ARGS_ROW(NULL, 'r', ARGS_INTEGER, &options->root, .high = 1 << 20),
        ARGS_ROW(NULL, 'G', ARGS_INTEGER, &options->graph, .high = 1e5),
        ARGS_ROW(NULL, 'J', ARGS_TEXT, &options->json),
        ARGS_ROW(NULL, 'T', ARGS_NUMBER, &options->timeout, .high = 604800,
                 .words = "seconds"),
        ARGS_ROW("algorithm", 0, ARGS_TEXT, &options->algorithm),
        ARGS_ROW("backend", 0, ARGS_CHOICE, &options->backend, .words = "host, cuda"),
        ARGS_ROW("compare", 0, ARGS_LIST, &options->compare,
                 .words = "nccl, nccl-window"),
        ARGS_ROW("ranks", 0, ARGS_INTEGER, &options->ranks, .low = 1,
                 .high = PERF_MAX_RANKS),
        ARGS_ROW("no-pin", 0, ARGS_FLAG, &no_pin),
        ARGS_ROW("iterations", 0, ARGS_INTEGER, &options->iterations, .low = 1,
                 .high = 1e8),
        ARGS_ROW("delay", 0, ARGS_NUMBER, &options->delay, .high = 1e6,
                 .words = "microseconds"),
        ARGS_ROW("plan", 0, ARGS_TEXT, &options->plan),
        ARGS_ROW("hidden", 0, ARGS_INTEGER, &hidden, .low = 1,
                 .high = SYMM_NORM_MAX_HIDDEN),
        ARGS_ROW("quant", 0, ARGS_TEXT, &parser.quant),
        ARGS_ROW("tune", 0, ARGS_FLAG, &options->tune),
        ARGS_ROW("regret", 0, ARGS_FLAG, &options->regret),
        ARGS_ROW("budget", 0, ARGS_NUMBER, &options->budget, .high = 86400,
                 .words = "seconds"),
        ARGS_ROW("version", 0, ARGS_STOP, &options->version),
        ARGS_ROW("help", 'h', ARGS_STOP, &options->help),
        {0},
    };

    *options = (struct perf_options){.begin = 8,
                                     .end = SIZE_MAX, /* not given */
                                     .dtype = SYMM_FLOAT32,
                                     .dtype_count = 1,
                                     .op = SYMM_SUM,
                                     .op_count = 1,
                                     .warmup = 5,
                                     .checks = 1};
    int word = args_parse(argc, argv, rows, sizeof rows / sizeof *rows - 1, false,
                          error, error_bytes);
    if (word < 0)
        return 2;
    if (options->help || options->version)
        return 0;
    options->factor = (size_t)factor;
    options->hidden = (size_t)hidden;
    options->pin = !no_pin;
    parser.rows = rows;
    return check_all(&parser, argc - word, argv + word);
}
