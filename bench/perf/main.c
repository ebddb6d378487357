/* SPDX-License-Identifier: MIT */
/*
 * main.c - times libsymm's operations, and replays programs; symm-perf(1).
 *
 * Runs as one rank of a job of a launcher (symmrun, torchrun, mpirun, srun), or becomes
 * symmrun, which starts the ranks (--ranks N), or is a job of one rank. Rank 0 prints. Uses
 * the public API only. Exit status 2: an argument that it does not understand.
 */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perf/commands.h"
#include "perf/file.h"
#include "perf/model.h"
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
    else if (result == PERF_RIGHT && args->options.kind == PERF_ALL_REDUCE_NORM)
        result = perf_norm(job, &args->options, &report);
    else if (result == PERF_RIGHT && args->options.kind == PERF_CHAIN)
        result = perf_chain(job, &args->options, &report);
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
 * Checks the file of -J or --tune before anything is measured. In a job rank 0 writes the
 * file, and all ranks get its result, so that all end. `job` NULL: before there is one.
 */
static int check_file(const struct perf_job *job, const struct perf_options *options)
{
    const bool tune = options->tune;
    const char *path = tune ? options->table : options->json;
    int mine = PERF_RIGHT;

    if (!path)
        return PERF_RIGHT;
    if (!job || job->rank == 0)
        mine = perf_file_check(path, tune ? "-o" : "-J");
    return job ? perf_job_worst(job, mine, "trying the file of the results") : mine;
}

static int run_rank(const struct main_args *args, const symm_job_info *place)
{
    struct perf_job job;
    int result = perf_job_open(&job, place, &args->options);

    if (result != PERF_RIGHT)
        return result;
    result = check_file(&job, &args->options);
    if (result != PERF_RIGHT)
        goto out;
    if (args->options.tune || args->options.regret)
        result = perf_tune(&job, &args->options);
    else
        result = run_job(&job, args);
out:
    perf_job_close(&job);
    return flush_output(result);
}

/* Becomes the symmrun beside this program, which runs this command line as every rank. */
static int become_symmrun(int ranks, const struct main_args *args)
{
    char self[PATH_MAX] = "", path[PATH_MAX + 8] = "symmrun", number[16];
    char *head[] = {path, "-n", number, "--no-prefix", "--bind", "none", "--", self};
    size_t rest = (size_t)args->argc * sizeof(char *); /* with the NULL, without [0] */
    char **words = malloc(sizeof head + rest);

    snprintf(number, sizeof number, "%d", ranks);
    if (words && readlink("/proc/self/exe", self, sizeof self - 1) > 0) {
        snprintf(path, sizeof path, "%.*s/symmrun", (int)(strrchr(self, '/') - self),
                 self);
        memcpy(words, head, sizeof head);
        memcpy((char *)words + sizeof head, args->argv + 1, rest);
        execv(path, words);
    }
    fprintf(stderr, "symm-perf: cannot start %d ranks by %s: %s\n", ranks, path,
            strerror(errno));
    free(words);
    return PERF_FAILED;
}

__attribute__((format(printf, 2, 3))) static int refuse(const symm_job_info *place,
                                                        const char *format, ...)
{
    char text[512];
    va_list words;

    va_start(words, format);
    vsnprintf(text, sizeof text, format, words);
    va_end(words);
    if (place->rank == 0)
        fprintf(stderr, "symm-perf: %s\n", text);
    return PERF_REFUSED;
}

/* *start: how many ranks to start; 0 under a launcher, or for a job of one rank. */
static int choose_ranks(const struct main_args *args, const symm_job_info *place,
                        int *start)
{
    const bool launched = strcmp(place->source, "single") != 0;
    const struct perf_options *options = &args->options;
    int world = args->program ? args->program->world : 0, have = place->world_size;

    if (launched && options->ranks && options->ranks != have)
        return refuse(
            place, "--ranks: found %d, allowed: %d, the ranks of this launcher's job",
            options->ranks, have);
    *start = launched ? 0 : options->ranks ? options->ranks : world;
    if (*start > PERF_MAX_RANKS)
        return refuse(place,
                      "%.200s: world: found %d, allowed: 1 to %d, as many ranks as a "
                      "job can have",
                      options->program, *start, PERF_MAX_RANKS);
    have = *start ? *start : have;
    if (options->root >= have)
        return refuse(place, "-r: found %d, allowed: a rank below %d", options->root,
                      have);
    if (world && have != world)
        return refuse(place,
                      "%.200s: world: found %d, allowed: the job's number of ranks, "
                      "which is %d; start it with --ranks %d or 'symmrun -n %d'",
                      options->program, world, have, world, world);
    return PERF_RIGHT;
}

static int run(struct main_args *args, const symm_job_info *place)
{
    int ranks = 0, result;

    if (args->options.program &&
        (symm_program_read(args->options.program, &args->program) != SYMM_OK ||
         symm_program_check_run(args->program) != SYMM_OK))
        return refuse(place, "%s", symm_last_error());
    result = choose_ranks(args, place, &ranks);
    if (result == PERF_RIGHT && ranks > 0)
        result = check_file(NULL, &args->options); /* symmrun would add a sentence */
    if (result != PERF_RIGHT)
        return result;
    return ranks > 0 ? become_symmrun(ranks, args) : run_rank(args, place);
}

int main(int argc, char **argv)
{
    struct main_args args = {.argc = argc, .argv = argv};
    symm_job_info place = {.size = sizeof place};
    char error[512];
    int result;

    args_guard_streams();
    if (argc > 1 && strcmp(argv[1], "model") == 0) /* no job: it measures nothing */
        return perf_model_main(argc - 1, argv + 1);
    result = perf_options_parse(argc, argv, &args.options, error, sizeof error);
    if (result == PERF_RIGHT && args.options.help) {
        fputs(perf_usage, stdout);
        return flush_output(PERF_RIGHT);
    }
    if (result == PERF_RIGHT && args.options.version) {
        printf("symm-perf %s\n", symm_version());
        return flush_output(PERF_RIGHT);
    }
    if (symm_job_detect(&place) != SYMM_OK)
        return refuse(&place, "%s", symm_last_error());
    if (result != PERF_RIGHT)
        return refuse(&place, "%s", error);
    result = run(&args, &place);
    symm_program_destroy(args.program);
    return result;
}
