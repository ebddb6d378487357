/* SPDX-License-Identifier: MIT */
/*
 * replay.c - runs a symm-program/1 file on real buffers and checks every result.
 *
 * Each period executes all ops on streams of this rank in the program's order. K periods
 * check every element of every result; K more are timed, with three elements of each result
 * checked. Without a plan each put gets an entry barrier over its group. Under a plan
 * buffers share bytes and barriers are omitted: a result in symmetric memory must be there
 * only when the program reads it, so it is checked at that read.
 */
#include "perf/commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "perf/stage.h"

struct replay {
    const struct perf_job *job;
    const struct perf_options *options;
    const symm_program *program;
    struct perf_stage stage;
    double *calls, *wall;       /* of the timed periods */
    struct perf_stats times[2]; /* the slowest rank's: of calls and wall */
    double results, wrong;      /* over all ranks */
    double committed;           /* bytes, on this rank */
    uint64_t plan_hash;         /* rank 0 with --plan: printed at the end */
    size_t arena_bytes;
};

/* A plan that is invalid or cannot be read is refused; lack of memory is a failure. */
static int plan_failed(const struct perf_job *job, symm_status status)
{
    int result = perf_job_failed(job, status, "--plan");

    return status == SYMM_ERR_NOMEM ? result : PERF_REFUSED;
}

/* Rank 0: reads the plan's hash and sizes; refuses a plan of another program. */
static int read_plan(struct replay *replay)
{
    const struct perf_options *options = replay->options;
    symm_plan *plan = NULL;
    uint64_t hash = 0;
    int result = PERF_RIGHT;
    symm_status status = symm_plan_read(options->plan, &plan);

    if (status == SYMM_OK)
        status = symm_plan_hash(plan, &replay->plan_hash);
    if (status == SYMM_OK)
        status = symm_program_hash(replay->program, &hash);
    if (status != SYMM_OK) {
        result = plan_failed(replay->job, status);
    } else if (hash != plan->program_hash) {
        fprintf(stderr,
                "symm-perf: --plan: %s: program_hash: found %016" PRIx64
                " of program '%s', allowed: %016" PRIx64 ", that of %s\n",
                options->plan, plan->program_hash, plan->program, hash,
                options->program);
        result = PERF_REFUSED;
    } else {
        replay->arena_bytes = plan->arena_bytes;
    }
    symm_plan_destroy(plan);
    return result;
}

/* Collective: if one rank cannot load the plan, it prints why and all ranks fail. */
static int load_plan(struct replay *replay)
{
    const struct perf_job *job = replay->job;
    int result = PERF_RIGHT;
    symm_plan *plan = NULL;
    symm_status status;

    if (!replay->options->plan)
        return PERF_RIGHT;
    if (job->rank == 0)
        result = read_plan(replay);
    if (result == PERF_RIGHT) {
        status = symm_plan_read_run(replay->options->plan, &plan);
        if (status == SYMM_OK)
            status = symm_team_load_plan(job->world, plan);
        symm_plan_destroy(plan);
        if (status != SYMM_OK)
            result = plan_failed(job, status);
    }
    return perf_job_worst(job, result, "--plan");
}

static int run_periods(struct replay *replay)
{
    int each = replay->options->iterations, result = PERF_RIGHT;
    double wall, calls;

    for (int k = 0; k < each && result == PERF_RIGHT; k++)
        result = perf_stage_run(&replay->stage, (uint64_t)k, false, &wall, &calls);
    for (int k = 0; k < each && result == PERF_RIGHT; k++)
        result = perf_stage_run(&replay->stage, (uint64_t)(each + k), true,
                                &replay->wall[k], &replay->calls[k]);
    return result;
}

static int combine(struct replay *replay)
{
    const struct perf_job *job = replay->job;
    size_t periods = (size_t)replay->options->iterations;
    double sums[] = {(double)replay->stage.results, (double)replay->stage.wrong};
    symm_info info = {.size = sizeof info};
    symm_status status = symm_ctx_info(job->ctx, &info);

    perf_stats_make(&replay->times[0], replay->calls, periods);
    perf_stats_make(&replay->times[1], replay->wall, periods);
    if (status == SYMM_OK)
        status = perf_job_slowest(job, replay->times, 2, sums, 2);
    if (status != SYMM_OK)
        return perf_job_failed(job, status, "gathering the ranks' times");
    replay->committed = (double)info.committed_bytes;
    replay->results = sums[0];
    replay->wrong = sums[1];
    return PERF_RIGHT;
}

static size_t buffer_bytes(const symm_program *program)
{
    size_t bytes = 0;

    for (int b = 0; b < program->buffer_count; b++)
        bytes += program->buffers[b].bytes;
    return bytes;
}

static void print(const struct replay *replay, const struct perf_report *report)
{
    const symm_program *program = replay->program;
    const struct perf_stats *calls = &replay->times[0], *wall = &replay->times[1];
    int periods = replay->options->iterations;

    printf("#\n");
    printf("# %-20s : %s\n", "Program", program->name);
    printf("# %-20s : %d ops on %d stream%s, %d group%s\n", "Ops", program->op_count,
           program->stream_count, program->stream_count > 1 ? "s" : "",
           program->partition_count, program->partition_count > 1 ? "s" : "");
    printf("# %-20s : %zu in %d buffers; heap committed %.0f a rank\n", "Bytes",
           buffer_bytes(program), program->buffer_count, replay->committed);
    if (replay->options->plan)
        printf("# %-20s : %016" PRIx64 ", arena of %zu bytes\n", "Plan",
               replay->plan_hash, replay->arena_bytes);
    printf(
        "# %-20s : %d checked in full, %d timed (3 elements of each result checked)\n",
        "Periods", periods, periods);
    printf("# %-20s : %.0f\n", "Results checked", replay->results);
    printf("# %-20s : %.2f us (median of the slowest rank; p99 %.2f, least %.2f), "
           "calls alone\n",
           "Time a period", calls->p50, calls->p99, calls->min);
    printf("# %-20s : %.2f us, with the program's own writes and the checks\n",
           "Wall time a period", wall->p50);
    perf_report_wrong(report);
    printf("#\n");
    fflush(stdout);
}

static json_t *describe(const struct replay *replay)
{
    const symm_program *program = replay->program;
    char hash[24];

    snprintf(hash, sizeof hash, "%016" PRIx64, replay->plan_hash);
    json_t *plan = replay->options->plan
                       ? json_pack("{s:s,s:I}", "hash", hash, "arena_bytes",
                                   (json_int_t)replay->arena_bytes)
                       : NULL;
    return json_pack(
        "{s:{s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:I,s:I,s:I,s:I,s:o,s:o,s:o*}}", "replay",
        "program", program->name, "world", program->world, "ops", program->op_count,
        "buffers", program->buffer_count, "streams", program->stream_count,
        "periods_checked", replay->options->iterations, "periods_timed",
        replay->options->iterations, "buffer_bytes", (json_int_t)buffer_bytes(program),
        "committed_bytes", (json_int_t)replay->committed, "results_checked",
        (json_int_t)replay->results, "nwrong", (json_int_t)replay->wrong,
        "calls_per_period", perf_report_stats(&replay->times[0]), "wall_per_period",
        perf_report_stats(&replay->times[1]), "plan", plan);
}

static int run(struct replay *replay)
{
    size_t periods = (size_t)replay->options->iterations;
    int result;

    replay->calls = calloc(periods, sizeof *replay->calls);
    replay->wall = calloc(periods, sizeof *replay->wall);
    if (!replay->calls || !replay->wall)
        return perf_job_no_memory(replay->job);
    result = load_plan(replay);
    if (result != PERF_RIGHT)
        return result;
    result =
        perf_stage_open(&replay->stage, replay->job, replay->options, replay->program);
    if (result != PERF_RIGHT)
        return result;
    result = run_periods(replay);
    if (result == PERF_RIGHT)
        result = combine(replay);
    perf_stage_close(&replay->stage);
    return result;
}

int perf_replay(const struct perf_job *job, const struct perf_options *options,
                const symm_program *program, struct perf_report *report, json_t **extra)
{
    struct replay replay = {.job = job, .options = options, .program = program};
    int result = run(&replay);

    free(replay.calls);
    free(replay.wall);
    if (result != PERF_RIGHT)
        return result;
    report->wrong = replay.wrong;
    if (report->prints)
        print(&replay, report);
    if (report->prints && options->json)
        *extra = describe(&replay);
    return replay.wrong > 0 ? PERF_WRONG : PERF_RIGHT;
}
