/* SPDX-License-Identifier: MIT */
/*
 * plan.c - the command `plan`: reads a program, makes its plan, prints its cost and the other
 * choices that were considered, and writes it.
 *
 * The plan goes to -o; without -o it goes to standard output, and what is printed to standard
 * error. After an error no file is written.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/svg.h"
#include "tool/symm_plan.h"

struct request {
    const char *program, *output, *table, *svg, *from;
    symm_plan_options options;
};

static const char usage[] =
    "usage: symm-plan plan PROGRAM.json [OPTION]...\n\n"
    "  -o, --output PLAN.json   write the plan there (default: standard output)\n"
    "      --svg FILE           draw it: buffers over time, barriers as lines\n"
    "      --algorithm A        this algorithm for every collective\n"
    "      --table COSTS.json   measured costs (symm-costs/1; default: a model of\n"
    "                           GPUs with NVLink)\n"
    "      --time-limit SECONDS exact search for offsets (default 2)\n"
    "      --fast               greedy placement only\n"
    "      --from OLD.json      keep what this plan has, where the changed "
    "program\n"
    "                           allows it: offsets, algorithms, barriers\n";

static int wrong(const char *text)
{
    fprintf(stderr, "symm-plan plan: %s\n", text);
    return PLAN_TOOL_WRONG;
}

/* 0, or -1 and *status: the exit status. */
static int read_options(int argc, char **argv, struct request *request, int *status)
{
    bool help = false;
    struct args_option options[] = {
        ARGS_ROW("help", 'h', ARGS_STOP, &help),
        ARGS_ROW("output", 'o', ARGS_TEXT, &request->output),
        ARGS_ROW("algorithm", 0, ARGS_TEXT, &request->options.algorithm),
        ARGS_ROW("table", 0, ARGS_TEXT, &request->table),
        ARGS_ROW("svg", 0, ARGS_TEXT, &request->svg),
        ARGS_ROW("time-limit", 0, ARGS_NUMBER, &request->options.time_limit,
                 .high = 1e9, .words = "seconds"),
        ARGS_ROW("from", 0, ARGS_TEXT, &request->from),
        ARGS_ROW("fast", 0, ARGS_FLAG, &request->options.greedy),
    };
    int word = symm_plan_read_options(
        argc, argv, options, sizeof(options) / sizeof(options[0]), usage, status);

    if (word < 0)
        return -1;
    *status = PLAN_TOOL_WRONG;
    if (word + 1 != argc) {
        *status = wrong("allowed: exactly one program; --help lists the options");
        return -1;
    }
    request->program = argv[word];
    symm_plan_take_output(&request->output);
    if (symm_plan_is_dash(request->svg) && !request->output) {
        *status = wrong("--svg: found '-', allowed: a file, or -o with one: both go to "
                        "standard output");
        return -1;
    }
    if (request->output && request->svg &&
        symm_plan_same_file(request->output, request->svg)) {
        fprintf(stderr,
                "symm-plan plan: --svg: found '%s', allowed: another file than that of "
                "-o\n",
                request->svg);
        return -1;
    }
    return 0;
}

static void print_points(FILE *file, const symm_plan *plan)
{
    fprintf(file, "  %14s %9s %12s\n", "arena bytes", "barriers", "us a period");
    for (int i = 0; i < plan->point_count; i++) {
        const symm_plan_point *point = &plan->points[i];
        fprintf(file, "%c %14zu %9d %12.1f  %s%s\n", point->chosen ? '*' : ' ',
                point->arena_bytes, point->barriers, point->microseconds, point->name,
                point->beaten ? " (beaten)" : "");
    }
}

static void print_algorithms(FILE *file, const symm_plan *plan)
{
    int entries = 0, exits = 0;

    for (int i = 0; i < plan->op_count; i++) {
        entries += plan->ops[i].entry_barrier;
        exits += plan->ops[i].exit_barrier;
    }
    fprintf(file, "algorithms:");
    for (int a = 0; a < SYMM_ALGORITHM_COUNT; a++) {
        int count = 0;
        for (int i = 0; i < plan->op_count; i++)
            count += (int)plan->ops[i].algorithm == a;
        if (count)
            fprintf(file, " %s %d", symm_algorithm_name((symm_algorithm)a), count);
    }
    fprintf(file, "\nbarriers: %d entry, %d exit, %d if none were left out\n", entries,
            exits, 2 * plan->op_count);
}

static void print_plan(FILE *file, const symm_plan *plan)
{
    int norms = 0;

    for (int i = 0; i < plan->op_count; i++)
        norms += plan->ops[i].norm;
    fprintf(file, "%s: %d buffers, %d sites, ", plan->program, plan->buffer_count,
            plan->op_count);
    if (norms > 0)
        fprintf(file, "%d of them all_reduce_norms, ", norms);
    fprintf(file, "%d ranks\n", plan->world);
    fprintf(file,
            "arena %zu bytes, lower bound %zu, one allocation for each buffer %zu\n",
            plan->arena_bytes, plan->lower_bound_bytes, plan->dedicated_bytes);
    if (plan->note)
        fprintf(file, "%s\n", plan->note);
    print_algorithms(file, plan);
    fprintf(file,
            "%zu pairs of buffers follow one another in some bytes, each with "
            "what orders it\n",
            plan->certificate_count);
    print_points(file, plan);
}

/* ---- Drawing --------------------------------------------------------------------- */

static bool norm_touches(const symm_program_norm *norm, int buffer)
{
    const symm_program_array arrays[] = {
        norm->bias,         norm->residual_in, norm->weight,    norm->sum_out,
        norm->residual_out, norm->norm_out,    norm->quant_out, norm->scale};

    for (size_t i = 0; i < sizeof(arrays) / sizeof(*arrays); i++)
        if (arrays[i].given && arrays[i].buffer == buffer)
            return true;
    return false;
}

static bool touches(const symm_program *program, const symm_program_op *op, int buffer)
{
    if (op->kind == SYMM_PROGRAM_ALL_REDUCE_NORM &&
        norm_touches(&program->norms[op->norm], buffer))
        return true;
    for (int i = 0; i < op->buffer_count; i++)
        if (op->buffers[i] == buffer)
            return true;
    return op->in == buffer || op->out == buffer;
}

/* From the first op of the period that touches the buffer to the end of the last. */
static struct svg_box box_of(const symm_program *program, const symm_plan *plan, int b)
{
    const symm_plan_buffer *buffer = &plan->buffers[b];
    struct svg_box box = {.y0 = (double)buffer->offset,
                          .y1 = (double)(buffer->offset + buffer->bytes),
                          .label = buffer->name,
                          .colour = (unsigned)b};
    bool begun = false;

    for (int i = 0; i < program->op_count; i++) {
        if (!touches(program, &program->ops[program->order[i]], b))
            continue;
        if (!begun)
            box.x0 = i;
        begun = true;
        box.x1 = i + 1;
    }
    return box;
}

/* An entry barrier stands before its op, an exit barrier after it. */
static void find_barriers(struct svg_chart *chart, struct svg_line *lines,
                          const symm_program *program, const symm_plan *plan)
{
    for (int i = 0; i < program->op_count; i++) {
        const symm_program_op *op = &program->ops[program->order[i]];
        int k = 0;
        if (!op->site || op->kind == SYMM_PROGRAM_WAIT)
            continue;
        for (const symm_program_op *at = program->ops; at < op; at++)
            k += at->site && at->kind != SYMM_PROGRAM_WAIT;
        const symm_plan_op *planned = &plan->ops[k];
        if (planned->entry_barrier)
            lines[chart->vertical_count++] =
                (struct svg_line){i, planned->site, SVG_ENTRY};
        if (planned->exit_barrier)
            lines[chart->vertical_count++] =
                (struct svg_line){i + 1, planned->site, SVG_EXIT};
    }
}

static bool draw(const char *path, const symm_program *program, const symm_plan *plan)
{
    struct svg_box *boxes = calloc((size_t)plan->buffer_count + 1, sizeof(*boxes));
    struct svg_line *barriers =
        calloc(2 * (size_t)plan->op_count + 1, sizeof(*barriers));
    char title[256], arena[64], bound[64];
    const struct svg_line levels[] = {
        {(double)plan->arena_bytes, arena, SVG_STRONG},
        {(double)plan->lower_bound_bytes, bound, SVG_DASHED},
    };
    struct svg_chart chart = {.title = title,
                              .x_title = "ops in the order of issue, one period",
                              .y_title = "offset",
                              .x1 = program->op_count,
                              .y1 = (double)plan->arena_bytes,
                              .columns = program->op_count,
                              .boxes = boxes,
                              .box_count = plan->buffer_count,
                              .verticals = barriers,
                              .horizontals = levels,
                              .horizontal_count = 2};
    bool good = false;

    snprintf(title, sizeof(title),
             "%.100s: %d buffers; entry barriers blue, exit barriers red",
             plan->program, plan->buffer_count);
    snprintf(arena, sizeof(arena), "peak %zu", plan->arena_bytes);
    snprintf(bound, sizeof(bound), "lower bound %zu", plan->lower_bound_bytes);
    if (boxes && barriers) {
        for (int b = 0; b < plan->buffer_count; b++)
            boxes[b] = box_of(program, plan, b);
        find_barriers(&chart, barriers, program, plan);
        good = symm_plan_svg_write(path, &chart);
    } else {
        fprintf(stderr, "symm-plan plan: memory is exhausted\n");
    }
    free(boxes);
    free(barriers);
    return good;
}

/* The plan is written last: until all else is done, an older file stays. */
static int write_all(const struct request *request, const symm_program *program,
                     const symm_plan *plan)
{
    if (request->svg && !draw(request->svg, program, plan))
        return PLAN_TOOL_WRONG;
    print_plan(request->output && !symm_plan_is_dash(request->svg) ? stdout : stderr,
               plan);
    if (symm_plan_put_plan("plan", request->output, plan))
        return PLAN_TOOL_DONE;
    if (request->svg)
        symm_plan_discard(request->svg);
    return PLAN_TOOL_WRONG;
}

static int run(struct request *request)
{
    symm_program *program = NULL;
    symm_costs *costs = NULL;
    symm_plan *plan = NULL;
    int exit_status = PLAN_TOOL_WRONG;
    symm_plan *previous = NULL;
    const bool good =
        symm_plan_one_input("plan", request->program, request->table) &&
        symm_plan_one_input("plan", request->program, request->from) &&
        symm_plan_one_input("plan", request->table, request->from) &&
        symm_plan_get_program("plan", request->program, &program) &&
        (!request->table || symm_plan_get_costs("plan", request->table, &costs)) &&
        (!request->from || symm_plan_get_plan("plan", request->from, &previous));

    request->options.costs = costs;
    request->options.previous = previous;
    if (good && symm_plan_make(program, &request->options, &plan) == SYMM_OK)
        exit_status = write_all(request, program, plan);
    else if (good)
        wrong(symm_last_error());
    symm_plan_destroy(previous);
    symm_plan_destroy(plan);
    symm_costs_destroy(costs);
    symm_program_destroy(program);
    return exit_status;
}

int symm_plan_plan(int argc, char **argv)
{
    struct request request = {.options = {.size = sizeof(request.options)}};
    int status;

    if (read_options(argc, argv, &request, &status))
        return status;
    return run(&request);
}
