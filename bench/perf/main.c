/* SPDX-License-Identifier: MIT */
/*
 * main.c - times libsymm's operations, and replays programs; symm-perf(1).
 *
 * Runs as one rank of a job of a launcher (symmrun, torchrun, mpirun, srun), or starts
 * the ranks itself (--ranks N), or is a job of one rank. Rank 0 prints. Uses the public
 * API only. Exit status 2: an argument that it does not understand.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf/chain.h"
#include "perf/file.h"
#include "perf/overlap.h"
#include "perf/replay.h"
#include "perf/run.h"
#include "perf/tune.h"
#include "symm/tools.h"
#include "tools/common/args.h"

struct main_args {
    int argc;
    char **argv;
    struct perf_options options;
    symm_program *program; /* replay */
};

static int run_job(const struct perf_job *job, const struct main_args *args)
{
    struct perf_report report;
    json_t *extra = NULL;
    int result = perf_report_open(&report, job, &args->options), written;

    if (result == PERF_RIGHT && args->program)
        result = perf_replay(job, &args->options, args->program, &report, &extra);
    else if (result == PERF_RIGHT && args->options.kind == PERF_OVERLAP)
        result = perf_overlap(job, &args->options, &report);
    else if (result == PERF_RIGHT && args->options.kind == PERF_CHAIN)
        result = perf_chain(job, &args->options, &report, &extra);
    else if (result == PERF_RIGHT)
        result = perf_run(job, &args->options, &report);
    if (result == PERF_RIGHT || result == PERF_WRONG) {
        written = perf_report_write(&report, job, args->argc, args->argv, extra);
        result = result == PERF_RIGHT ? written : result;
    }
    perf_report_close(&report);
    return result;
}

/* Lost output is a failure: no reader gets the results. */
static int flush_output(int result)
{
    return args_flush("symm-perf") || result != PERF_RIGHT ? result : PERF_REFUSED;
}

/*
 * Checks the file of -J or --tune before anything is measured. Rank 0 writes the file, and
 * all ranks get its result, so that all end.
 */
static int check_file(const struct perf_job *job, const struct perf_options *options)
{
    const bool tune = options->tune;
    const char *path = tune ? options->table : options->json;
    int mine = PERF_RIGHT;

    if (!path)
        return PERF_RIGHT;
    if (job->rank == 0)
        mine = perf_file_check(path, tune ? "-o" : "-J");
    return perf_job_worst(job, mine, "trying the file of the results");
}

static int run_rank(void *arg, const struct perf_place *place)
{
    struct main_args *args = arg;
    struct perf_job job;
    int result = perf_job_open(&job, place, &args->options);

    if (result != PERF_RIGHT)
        return result;
    result = check_file(&job, &args->options);
    if (result != PERF_RIGHT)
        goto out;
    if (args->options.tune)
        result = perf_tune(&job, &args->options);
    else if (args->options.regret)
        result = perf_regret(&job, &args->options);
    else
        result = run_job(&job, args);
out:
    perf_job_close(&job);
    return flush_output(result);
}

/* Finds the launcher's job. *launched: there is a launcher. */
static int find_place(struct perf_place *place, bool *launched)
{
    symm_job_info info = {.size = sizeof info};

    if (symm_job_detect(&info) != SYMM_OK) {
        fprintf(stderr, "symm-perf: %s\n", symm_last_error());
        return PERF_REFUSED;
    }
    *place = (struct perf_place){.rank = info.rank,
                                 .size = info.world_size,
                                 .local_rank = info.local_rank,
                                 .local_size = info.local_size};
    *launched = strcmp(info.source, "single") != 0;
    return PERF_RIGHT;
}

static int refuse(const struct perf_place *place, const char *error)
{
    if (place->rank == 0)
        fprintf(stderr, "symm-perf: %s\n", error);
    return PERF_REFUSED;
}

/* The number of ranks to start: 0 under a launcher, or for a job of one rank. */
static int choose_ranks(const struct main_args *args, const struct perf_place *place,
                        bool launched, int *ranks, char *error, size_t bytes)
{
    int world = args->program ? args->program->world : 0, have;

    *ranks = args->options.ranks;
    if (*ranks && launched) {
        snprintf(error, bytes, "--ranks: this is rank %d of a launcher's job already",
                 place->rank);
        return PERF_REFUSED;
    }
    if (!*ranks && !launched)
        *ranks = world;
    have = *ranks ? *ranks : place->size;
    if (*ranks > PERF_MAX_RANKS) {
        snprintf(
            error, bytes,
            "%.200s: world: found %d, allowed: 1 to %d, as many ranks as a job can "
            "have",
            args->options.program, *ranks, PERF_MAX_RANKS);
        return PERF_REFUSED;
    }
    if (args->options.root >= have) {
        snprintf(error, bytes, "-r: found %d, allowed: a rank below %d",
                 args->options.root, have);
        return PERF_REFUSED;
    }
    if (world && have != world) {
        snprintf(
            error, bytes,
            "%.200s: world: found %d, allowed: the job's number of ranks, which is %d; "
            "start it with --ranks %d or 'symmrun -n %d'",
            args->options.program, world, have, world, world);
        return PERF_REFUSED;
    }
    return PERF_RIGHT;
}

static int run(struct main_args *args, const struct perf_place *place, bool launched)
{
    char error[512];
    int ranks;

    if (args->options.program &&
        (symm_program_read(args->options.program, &args->program) != SYMM_OK ||
         symm_program_check_run(args->program) != SYMM_OK))
        return refuse(place, symm_last_error());
    if (choose_ranks(args, place, launched, &ranks, error, sizeof error))
        return refuse(place, error);
    if (ranks > 0)
        return perf_job_fork(ranks, run_rank, args);
    return run_rank(args, place);
}

int main(int argc, char **argv)
{
    struct main_args args = {.argc = argc, .argv = argv};
    struct perf_place place;
    char error[512];
    bool launched;
    int result;

    args_guard_streams();
    result = perf_options_parse(argc, argv, &args.options, error, sizeof error);
    if (result == PERF_RIGHT && args.options.help) {
        fputs(perf_usage, stdout);
        return flush_output(PERF_RIGHT);
    }
    if (result == PERF_RIGHT && args.options.version) {
        printf("symm-perf %s\n", symm_version());
        return flush_output(PERF_RIGHT);
    }
    if (find_place(&place, &launched))
        return PERF_REFUSED;
    if (result != PERF_RIGHT)
        return refuse(&place, error);
    result = run(&args, &place, launched);
    symm_program_destroy(args.program);
    return result;
}
