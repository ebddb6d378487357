/* SPDX-License-Identifier: MIT */
/*
 * pack.c - `symm-plan pack`: offsets for buffers whose lifetimes are known.
 *
 * Exit status: 0 and the offsets; 1 if no placement within the capacity was found, with
 * how close it came; 2 for a file or a command line that cannot be used. Nothing is
 * written unless it is 0.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool/csv.h"
#include "tool/svg.h"
#include "tool/symm_plan.h"

struct pack_options {
    const char *in, *out, *svg;
    int64_t capacity; /* 0: none */
    double time_limit;
    bool fast, minimize;
};

static const char usage[] =
    "usage: symm-plan pack IN.csv --capacity N [-o OUT.csv] [--svg FILE] [--fast]\n"
    "                      [--minimize] [--time-limit S]\n";

static const char explained[] =
    "\n"
    "Gives each buffer of IN.csv (id,lower,upper,size; live in [lower, upper)) an\n"
    "offset, such that buffers that are live together share no byte.\n"
    "\n"
    "  --capacity N    bytes that the placement may take, as 8, 64K or 1G\n"
    "  --minimize      the lowest peak, not only one within the capacity\n"
    "  --fast          milliseconds only, for a million buffers some seconds\n"
    "  --time-limit S  seconds for the whole of packing; default: none\n"
    "  -o OUT.csv      IN.csv with a column offset; default: stdout\n"
    "  --svg FILE      a drawing, time against offset\n"
    "\n"
    "Without --capacity, --minimize or --fast is needed. Exit status: 0; 1 if no\n"
    "placement within the capacity was found; 2 for bad input.\n";

/* ---- The command line ------------------------------------------------------------ */

static bool refuse(const char *option, const char *found, const char *allowed)
{
    fprintf(stderr, "symm-plan pack: %s: found '%s', allowed: %s\n", option, found,
            allowed);
    return false;
}

/* *status: the exit status if it is false. */
static bool read_options(int argc, char **argv, struct pack_options *o, int *status)
{
    bool help = false;
    size_t capacity = 0;
    struct args_option options[] = {
        ARGS_ROW("help", 'h', ARGS_STOP, &help),
        ARGS_ROW("capacity", 0, ARGS_SIZE, &capacity, .low = 1),
        ARGS_ROW("output", 'o', ARGS_TEXT, &o->out),
        ARGS_ROW("svg", 0, ARGS_TEXT, &o->svg),
        ARGS_ROW("fast", 0, ARGS_FLAG, &o->fast),
        ARGS_ROW("minimize", 0, ARGS_FLAG, &o->minimize),
        ARGS_ROW("time-limit", 0, ARGS_NUMBER, &o->time_limit, .high = 1e9,
                 .words = "seconds"),
    };
    int word = symm_plan_read_options(
        argc, argv, options, sizeof(options) / sizeof(options[0]), usage, status);

    if (word < 0)
        return false;
    *status = PLAN_TOOL_WRONG;
    o->capacity = (int64_t)capacity;
    if (word + 1 != argc) {
        char found[32];
        snprintf(found, sizeof(found), "%d files", argc - word);
        return refuse("arguments", found, "one file, IN.csv");
    }
    o->in = argv[word];
    symm_plan_take_output(&o->out);
    if (symm_plan_is_dash(o->svg) && !o->out)
        return refuse("--svg", "-", "a file, or -o with one");
    if (o->out && o->svg && symm_plan_same_file(o->out, o->svg))
        return refuse("--svg", o->svg, "another file than that of -o");
    if (o->fast && o->minimize)
        return refuse("--fast", "--minimize", "one of the two");
    if (o->capacity == 0 && !o->fast && !o->minimize)
        return refuse("--capacity", "nothing",
                      "bytes, unless there is --minimize or --fast");
    return true;
}

/* ---- Progress -------------------------------------------------------------------- */

static bool tell(void *arg, double seconds, int64_t best_peak, int64_t lower_bound,
                 uint64_t nodes)
{
    const struct pack_options *o = arg;

    fprintf(stderr,
            "symm-plan pack: %.0f s: best peak %" PRId64 ", lower bound %" PRId64,
            seconds, best_peak, lower_bound);
    if (o->capacity > 0)
        fprintf(stderr, ", capacity %" PRId64, o->capacity);
    fprintf(stderr, ", %" PRIu64 " nodes\n", nodes);
    return true;
}

/* ---- The drawing ----------------------------------------------------------------- */

#define DETAIL 400

static bool draw(const struct pack_options *o, const struct lifetimes *l,
                 const int64_t *offsets, const symm_pack_result *result)
{
    size_t n = (size_t)l->count + 1;
    struct svg_box *boxes = calloc(n, sizeof(*boxes));
    char *details = calloc(n, DETAIL), title[160], capacity[64], load[64];
    struct svg_line lines[2];
    struct svg_chart chart = {.title = title,
                              .x_title = "time",
                              .y_title = "offset",
                              .y1 = (double)result->peak,
                              .boxes = boxes,
                              .box_count = l->count,
                              .horizontals = lines};
    bool good = boxes && details;

    for (int i = 0; good && i < l->count; i++) {
        const symm_pack_item *item = &l->items[i];
        char *detail = details + (size_t)i * DETAIL;
        snprintf(detail, DETAIL,
                 "%s: [%" PRId64 ", %" PRId64 "), offset %" PRId64 ", %" PRId64
                 " bytes",
                 l->ids[i], item->lower, item->upper, offsets[i], item->bytes);
        boxes[i] = (struct svg_box){
            (double)item->lower, (double)item->upper,
            (double)offsets[i],  (double)offsets[i] + (double)item->bytes,
            l->ids[i],           detail,
            (unsigned)i};
        if (i == 0 || boxes[i].x0 < chart.x0)
            chart.x0 = boxes[i].x0;
        if (i == 0 || boxes[i].x1 > chart.x1)
            chart.x1 = boxes[i].x1;
    }
    snprintf(title, sizeof(title),
             "%d buffers, peak %" PRId64 " bytes, max load %" PRId64 " bytes", l->count,
             result->peak, result->lower_bound);
    if (o->capacity > 0) {
        snprintf(capacity, sizeof(capacity), "capacity %" PRId64, o->capacity);
        lines[chart.horizontal_count++] =
            (struct svg_line){(double)o->capacity, capacity, SVG_STRONG};
        if (chart.y1 < (double)o->capacity)
            chart.y1 = (double)o->capacity;
    }
    snprintf(load, sizeof(load), "max load %" PRId64, result->lower_bound);
    lines[chart.horizontal_count++] =
        (struct svg_line){(double)result->lower_bound, load, SVG_DASHED};
    if (good)
        good = symm_plan_svg_write(o->svg, &chart);
    else
        fprintf(stderr, "symm-plan pack: no memory for the drawing\n");
    free(boxes);
    free(details);
    return good;
}

/* ---- The command ----------------------------------------------------------------- */

/* Prints why the result is not a placement within the capacity; returns 1. */
static int tell_failure(const struct pack_options *o, const symm_pack_result *result)
{
    fprintf(
        stderr,
        "symm-plan pack: %s: no placement within %" PRId64
        " bytes was found: the best peak is %" PRId64 " (%.2f %% above), the max load "
        "%" PRId64 "; %s (%.1f s, %" PRIu64 " nodes)\n",
        o->in, o->capacity, result->peak,
        100.0 * ((double)result->peak / (double)o->capacity - 1), result->lower_bound,
        result->proved || result->lower_bound > o->capacity
            ? "there is none, this is proved"
        : o->fast ? "a search without --fast may find one"
                  : "the search ended before its end, so there may be one",
        result->seconds, result->nodes);
    return 1;
}

static int write_all(const struct pack_options *o, const struct lifetimes *l,
                     const int64_t *offsets, const symm_pack_result *result)
{
    FILE *to = o->out && !symm_plan_is_dash(o->svg) ? stdout : stderr;

    if (!symm_plan_csv_write(o->out, l, offsets))
        return 2;
    if (o->svg && !draw(o, l, offsets, result)) {
        if (o->out)
            symm_plan_discard(o->out);
        return 2;
    }
    fprintf(to,
            "%d buffers: peak %" PRId64 " bytes, max load %" PRId64
            " (%.4f times)%s; %.3f s, %" PRIu64 " nodes\n",
            l->count, result->peak, result->lower_bound,
            result->lower_bound > 0 ? (double)result->peak / (double)result->lower_bound
                                    : 1.0,
            result->peak == result->lower_bound ? ", the lowest possible"
            : o->minimize && result->proved     ? ", proved to be the lowest possible"
                                                : "",
            result->seconds, result->nodes);
    return 0;
}

static int pack(const struct pack_options *o, const struct lifetimes *l)
{
    int64_t *offsets = calloc((size_t)l->count + 1, sizeof(*offsets));
    struct pack_options copy = *o;
    symm_pack_result result = {.size = sizeof(result)};
    symm_pack_options options = {.size = sizeof(options),
                                 .capacity = o->minimize ? 0 : o->capacity,
                                 .greedy = o->fast,
                                 .time_limit =
                                     o->time_limit > 0 ? o->time_limit : INFINITY,
                                 .progress = tell,
                                 .arg = &copy};
    int status = 2;

    if (!offsets)
        fprintf(stderr, "symm-plan pack: no memory for %d buffers\n", l->count);
    else if (symm_pack(l->items, l->count, &options, offsets, &result) != SYMM_OK)
        fprintf(stderr, "symm-plan pack: %s: %s\n", o->in, symm_last_error());
    else if (o->capacity > 0 && result.peak > o->capacity)
        status = tell_failure(o, &result);
    else
        status = write_all(o, l, offsets, &result);
    free(offsets);
    return status;
}

int symm_plan_pack(int argc, char **argv)
{
    struct pack_options options = {0};
    struct lifetimes lifetimes = {0};
    int status;

    if (!read_options(argc, argv, &options, &status)) {
        if (status == PLAN_TOOL_DONE)
            fputs(explained, stdout);
        else
            fputs(usage, stderr);
        return status;
    }
    if (!symm_plan_csv_read(options.in, &lifetimes))
        return 2;
    status = pack(&options, &lifetimes);
    symm_plan_csv_free(&lifetimes);
    return status;
}
