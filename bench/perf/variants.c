/* SPDX-License-Identifier: MIT */
/* variants.c - see variants.h. */
#include "perf/variants.h"

#include <stdlib.h>
#include <string.h>

#include "perf/stats.h"

#define ROUNDS     5
#define MOST_CALLS 200 /* of a round */

symm_status perf_variants_open(struct perf_variants *variants,
                               const struct perf_job *job, symm_team *team,
                               char *const buffers[2], char *staging, void *stream,
                               int graph)
{
    *variants = (struct perf_variants){.job = *job, .graph = graph};
    variants->job.world = team;
    variants->job.rank = symm_team_rank(team);
    variants->job.size = symm_team_size(team);
    variants->call = (symm_call){.size = sizeof variants->call, .stream = stream};
    variants->test = (struct perf_case){
        .step = 1, .send = buffers[0], .receive = buffers[1], .staging = staging};
    variants->times =
        calloc((size_t)PERF_ALGORITHMS * ROUNDS * MOST_CALLS, sizeof(double));
    variants->gathered =
        calloc((size_t)variants->job.size * (PERF_ALGORITHMS + 1), sizeof(double));
    if (variants->times && variants->gathered)
        return SYMM_OK;
    perf_variants_close(variants);
    return SYMM_ERR_NOMEM;
}

void perf_variants_close(struct perf_variants *variants)
{
    perf_case_finish(&variants->test);
    free(variants->times);
    free(variants->gathered);
    variants->times = variants->gathered = NULL;
}

symm_status perf_variants_call(struct perf_variants *variants, enum perf_kind kind,
                               symm_dtype dtype, symm_op op)
{
    struct perf_case *test = &variants->test;

    perf_case_finish(test);
    test->job = &variants->job; /* set here: the struct may have moved since open */
    test->call = &variants->call;
    test->kind = kind;
    test->dtype = dtype;
    test->op = op;
    return perf_case_prepare(test) ? SYMM_ERR_NOMEM : SYMM_OK;
}

/* ---- One algorithm -------------------------------------------------------------------- */

static void name_algorithm(struct perf_variants *variants, int algorithm)
{
    variants->call.algorithm = algorithm == PERF_AUTOMATIC
                                   ? NULL
                                   : symm_algorithm_name((symm_algorithm)algorithm);
}

/* *can: false if the library has no such algorithm for this call, the same on all ranks. */
static symm_status try_call(struct perf_variants *variants, int algorithm, bool *can)
{
    struct perf_gpu *gpu = variants->job.gpu;
    symm_status status;

    name_algorithm(variants, algorithm);
    status = perf_case_call(&variants->test);
    *can = status == SYMM_OK;
    if (status == SYMM_ERR_INVALID || status == SYMM_ERR_UNSUPPORTED)
        return SYMM_OK;
    return *can && gpu ? perf_gpu_wait(gpu, variants->call.stream) : status;
}

/* Large calls fill a graph sooner. */
static int graph_calls(const struct perf_variants *variants)
{
    int calls = variants->graph;

    return variants->test.size >= (size_t)4 << 20 && calls > 10 ? 10 : calls;
}

static symm_status issue(void *arg)
{
    return perf_case_call(arg);
}

static symm_status one_call(struct perf_variants *variants, int algorithm, int turn,
                            double *us)
{
    symm_status status;
    double begin;

    if (variants->job.gpu)
        return perf_job_replay(&variants->job, variants->graphs[algorithm],
                               variants->call.stream, graph_calls(variants), us);
    name_algorithm(variants, algorithm);
    perf_case_fill(&variants->test, turn % PERF_PHASES);
    begin = perf_now();
    status = perf_case_call(&variants->test);
    *us = perf_now() - begin;
    return status;
}

/* ---- All of them ---------------------------------------------------------------------- */

/* Timed calls of a round; on the host the first call warms the caches. */
static int calls_for(const struct perf_variants *variants)
{
    static const struct {
        size_t bytes;
        int calls;
    } steps[] = {{8192, MOST_CALLS}, {65536, 60}, {524288, 20}, {4194304, 6}};

    if (variants->job.gpu)
        return variants->test.size < (size_t)4 << 20 ? 3 : 2;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (variants->test.size <= steps[i].bytes)
            return steps[i].calls;
    return 3;
}

static symm_status run_round(struct perf_variants *variants, int algorithm, int round)
{
    int calls = calls_for(variants);
    double *times =
        variants->times + (algorithm * ROUNDS * MOST_CALLS) + (ptrdiff_t)round * calls;
    symm_status status = SYMM_OK;
    double cold;

    if (!variants->job.gpu)
        status = one_call(variants, algorithm, 0, &cold);
    for (int i = 0; i < calls && status == SYMM_OK; i++)
        status = one_call(variants, algorithm, i, &times[i]);
    return status;
}

/* Combines the medians of all ranks; elapsed becomes rank 0's. */
static symm_status combine(struct perf_variants *variants, unsigned which,
                           double elapsed, struct perf_timing *timing)
{
    double mine[PERF_ALGORITHMS + 1] = {0};
    struct perf_stats stats;
    symm_status status;

    for (int a = 0; a < PERF_ALGORITHMS; a++)
        if (which & 1u << a) {
            perf_stats_make(&stats,
                            variants->times + (ptrdiff_t)a * ROUNDS * MOST_CALLS,
                            (size_t)(ROUNDS * calls_for(variants)));
            mine[a] = stats.p50;
        }
    mine[PERF_ALGORITHMS] = elapsed;
    status = perf_job_gather(&variants->job, mine, sizeof mine, variants->gathered);
    if (status != SYMM_OK)
        return status;
    *timing = (struct perf_timing){.elapsed = variants->gathered[PERF_ALGORITHMS]};
    for (int r = 0; r < variants->job.size; r++)
        for (int a = 0; a < PERF_ALGORITHMS; a++) {
            double us = variants->gathered[r * (PERF_ALGORITHMS + 1) + a];
            if (us > timing->us[a])
                timing->us[a] = us;
        }
    return SYMM_OK;
}

/* Clears the bits of algorithms that cannot do the call. */
static symm_status find_able(struct perf_variants *variants, unsigned *which)
{
    symm_status status = SYMM_OK;

    for (int a = 0; a < PERF_ALGORITHMS && status == SYMM_OK; a++) {
        bool can = false;

        if (!(*which & 1u << a))
            continue;
        status = try_call(variants, a, &can);
        if (status == SYMM_OK && can && variants->job.gpu)
            status = perf_job_capture(&variants->job, variants->call.stream,
                                      graph_calls(variants), issue, &variants->test,
                                      &variants->graphs[a]);
        if (!can)
            *which &= ~(1u << a);
    }
    return status;
}

static void set_size(struct perf_variants *variants, size_t bytes, bool in_place)
{
    bool split = perf_kind_split(variants->test.kind);

    variants->test.in_place = in_place;
    perf_case_size(&variants->test, split ? bytes * (size_t)variants->job.size : bytes);
}

symm_status perf_variants_time(struct perf_variants *variants, size_t bytes,
                               bool in_place, unsigned which, double elapsed,
                               struct perf_timing *timing)
{
    symm_status status;

    memset(variants->graphs, 0, sizeof variants->graphs);
    set_size(variants, bytes, in_place);
    perf_case_fill(&variants->test, 0);
    status = find_able(variants, &which);
    for (int round = 0; round < ROUNDS && status == SYMM_OK; round++)
        for (int a = 0; a < PERF_ALGORITHMS && status == SYMM_OK; a++)
            if (which & 1u << a)
                status = run_round(variants, a, round);
    for (int a = 0; a < PERF_ALGORITHMS; a++)
        perf_gpu_graph_free(variants->job.gpu, variants->graphs[a]);
    return status == SYMM_OK ? combine(variants, which, elapsed, timing) : status;
}

symm_status perf_variants_choice(struct perf_variants *variants, size_t bytes,
                                 bool in_place, int *algorithm)
{
    const char *told;
    symm_status status;
    bool can = false;

    set_size(variants, bytes, in_place);
    status = try_call(variants, PERF_AUTOMATIC, &can);
    if (status != SYMM_OK)
        return status;
    *algorithm = PERF_AUTOMATIC;
    told = strstr(symm_explain(variants->job.world), " took ");
    for (int a = 0; told && a < PERF_AUTOMATIC; a++) {
        const char *name = symm_algorithm_name((symm_algorithm)a);
        size_t length = strlen(name);

        if (strncmp(told + 6, name, length) == 0 && told[6 + length] == ' ')
            *algorithm = a;
    }
    return can ? SYMM_OK : SYMM_ERR_INVALID;
}
