/* SPDX-License-Identifier: MIT */
/*
 * tune.c - --tune: the cost of each call by each algorithm, as a table that the library
 * reads (SYMM_COSTS); --regret: how far the library's choices are from the best.
 *
 * It measures teams of 2 to all ranks, the collectives, the kinds of data that have their
 * own kernels, and sizes from few to many bytes. Teams of all ranks and of powers of two
 * come first; the first grid is coarse, the next are finer, until the budget is spent. If
 * it lasts, all points are measured twice more, and the least time counts. Rank 0's clock
 * decides, so that all ranks stop together. A message counts the points left out.
 */
#include "perf/commands.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf/table.h"

#define GRAPH         50 /* calls, without -G */
#define SWEEPS        3 /* over all points, while the budget lasts: the least time counts */
#define PASSES        3   /* each with a finer grid */
#define HOPELESS      3.0 /* ratio to the best, if it grows with the size */
#define HOPELESS_FROM ((size_t)64 << 10)

/* What is measured over each team, the most important first. */
static const struct {
    enum perf_kind kind;
    const char *data;
    symm_dtype dtype;
    symm_op op;
    bool in_place;
} goals[] = {
    {PERF_ALL_REDUCE, "half", SYMM_BFLOAT16, SYMM_SUM, false},
    {PERF_ALL_REDUCE, "float32", SYMM_FLOAT32, SYMM_SUM, false},
    {PERF_ALL_REDUCE, "half", SYMM_BFLOAT16, SYMM_SUM, true},
    {PERF_ALL_GATHER, "any", SYMM_BFLOAT16, SYMM_SUM, false},
    {PERF_REDUCE_SCATTER, "half", SYMM_BFLOAT16, SYMM_SUM, false},
    {PERF_ALL_TO_ALL, "any", SYMM_BFLOAT16, SYMM_SUM, false},
    {PERF_BROADCAST, "any", SYMM_BFLOAT16, SYMM_SUM, false},
    {PERF_ALL_REDUCE, "float32", SYMM_FLOAT32, SYMM_SUM, true},
    {PERF_REDUCE_SCATTER, "float32", SYMM_FLOAT32, SYMM_SUM, false},
    {PERF_ALL_REDUCE, "int32", SYMM_INT32, SYMM_SUM, false},
    {PERF_ALL_REDUCE, "other", SYMM_INT32, SYMM_MAX, false},
    {PERF_ALL_REDUCE, "float", SYMM_BFLOAT16, SYMM_MAX, false},
    {PERF_ALL_REDUCE, "int32", SYMM_INT32, SYMM_SUM, true},
    {PERF_ALL_REDUCE, "other", SYMM_INT32, SYMM_MAX, true},
    {PERF_ALL_REDUCE, "float", SYMM_BFLOAT16, SYMM_MAX, true},
    {PERF_REDUCE_SCATTER, "int32", SYMM_INT32, SYMM_SUM, false},
    {PERF_REDUCE_SCATTER, "other", SYMM_INT32, SYMM_MAX, false},
    {PERF_REDUCE_SCATTER, "float", SYMM_BFLOAT16, SYMM_MAX, false},
};

#define GOALS (int)(sizeof goals / sizeof *goals)

/* Ranks 0 to size - 1 of the world. */
struct tune_team {
    symm_team *team; /* NULL: this rank is not in it */
    int size;
    struct perf_variants variants;
};

struct tuner {
    const struct perf_job *job;
    const struct perf_options *options;
    symm_buffer *buffers[2];
    char *staging;
    void *stream;
    struct tune_team teams[PERF_MAX_RANKS];
    int team_count;
    struct table table; /* sets: those of the first team, then of the second, ... */
    double begin;
    int sweep;
    bool over; /* the budget is spent */
};

/* ---- Set-up --------------------------------------------------------------------------- */

static bool is_power(int number)
{
    return (number & (number - 1)) == 0;
}

/* All ranks, then powers of two, then the others. */
static void list_teams(struct tuner *tuner)
{
    int all = tuner->job->size;

    tuner->teams[tuner->team_count++].size = all;
    for (int odd = 0; odd < 2; odd++)
        for (int size = all - 1; size >= 2; size--)
            if (is_power(size) == !odd)
                tuner->teams[tuner->team_count++].size = size;
}

static int allocate(struct tuner *tuner)
{
    const struct perf_job *job = tuner->job;
    const size_t bytes = tuner->options->end;
    int result = perf_job_buffers(job, bytes, 2, tuner->buffers);

    if (result != PERF_RIGHT || !job->gpu)
        return result;
    symm_status status = symm_stream_create(job->ctx, &tuner->stream);
    if (status != SYMM_OK)
        return perf_job_failed(job, status, "making the stream");
    tuner->staging = calloc(1, bytes);
    return tuner->staging ? PERF_RIGHT : perf_job_no_memory(job);
}

/* Buffers of the world are symmetric in its child teams, too. */
static int open_team(struct tuner *tuner, struct tune_team *team)
{
    const struct perf_job *job = tuner->job;
    int graph = tuner->options->graph ? tuner->options->graph : GRAPH;
    symm_status status = SYMM_OK;

    team->team = job->world;
    if (team->size < job->size)
        status = symm_team_split(job->world, job->rank < team->size ? 0 : -1, job->rank,
                                 &team->team);
    if (status != SYMM_OK)
        return perf_job_failed(job, status, "symm_team_split");
    if (!team->team)
        return PERF_RIGHT;
    char *const memory[] = {symm_buffer_ptr(tuner->buffers[0]),
                            symm_buffer_ptr(tuner->buffers[1])};
    status = perf_variants_open(&team->variants, job, team->team, memory,
                                tuner->staging, tuner->stream, graph);
    return status == SYMM_OK ? PERF_RIGHT : perf_job_no_memory(job);
}

static void tuner_close(struct tuner *tuner)
{
    for (int t = 0; t < tuner->team_count; t++) {
        perf_variants_close(&tuner->teams[t].variants);
        if (tuner->teams[t].team && tuner->teams[t].team != tuner->job->world)
            symm_team_destroy(tuner->teams[t].team);
    }
    symm_stream_destroy(tuner->job->ctx, tuner->stream);
    symm_buffer_release(tuner->buffers[0]);
    symm_buffer_release(tuner->buffers[1]);
    free(tuner->staging);
    free(tuner->table.sets);
}

/* ---- What is measured ------------------------------------------------------------------ */

static const char *data_of(symm_dtype dtype)
{
    switch (dtype) {
    case SYMM_FLOAT32:
        return "float32";
    case SYMM_FLOAT16:
    case SYMM_BFLOAT16:
        return "half";
    case SYMM_FLOAT8_E4M3:
    case SYMM_FLOAT8_E5M2:
        return "float";
    case SYMM_INT32:
        return "int32";
    default:
        return "other";
    }
}

/* By OP and -d: may goal g be measured, and with which type? */
static bool is_wanted(const struct perf_options *options, int g, symm_dtype *dtype)
{
    *dtype = goals[g].dtype;
    if (!options->every_kind && goals[g].kind != options->kind)
        return false;
    if (!options->dtype_given || !perf_kind_reduces(goals[g].kind))
        return true;
    for (int d = 0; d < options->dtype_count; d++) {
        *dtype = options->dtype + (symm_dtype)d;
        if (strcmp(data_of(*dtype), goals[g].data) == 0)
            return true;
    }
    return false;
}

static int list_sets(struct tuner *tuner)
{
    struct table *table = &tuner->table;

    table->sets = calloc((size_t)tuner->team_count * GOALS, sizeof *table->sets);
    if (!table->sets)
        return perf_job_no_memory(tuner->job);
    for (int t = 0; t < tuner->team_count; t++)
        for (int g = 0; g < GOALS; g++) {
            struct table_set *set = &table->sets[table->set_count];

            if (!is_wanted(tuner->options, g, &set->dtype))
                continue;
            set->kind = goals[g].kind;
            set->data = goals[g].data;
            set->op = goals[g].op;
            set->in_place = goals[g].in_place;
            set->ranks = tuner->teams[t].size;
            for (int a = 0; a < PERF_ALGORITHMS; a++)
                set->hopeless[a] = SIZE_MAX;
            table->set_count++;
        }
    return PERF_RIGHT;
}

static int tuner_open(struct tuner *tuner, const struct perf_job *job,
                      const struct perf_options *options)
{
    int result;

    *tuner = (struct tuner){.job = job, .options = options, .begin = perf_now()};
    if (job->size < 2 || job->size > PERF_MAX_RANKS) {
        if (job->rank == 0)
            fprintf(stderr,
                    "symm-perf: --tune and --regret compare algorithms between "
                    "2 to %d ranks; this job has %d\n",
                    PERF_MAX_RANKS, job->size);
        return PERF_REFUSED;
    }
    list_teams(tuner);
    result = allocate(tuner);
    for (int t = 0; t < tuner->team_count && result == PERF_RIGHT; t++)
        result = open_team(tuner, &tuner->teams[t]);
    return result == PERF_RIGHT ? list_sets(tuner) : result;
}

/* The i-th size of the grid: 8, 12, 16, 24, 32, ... */
static size_t size_at(int i)
{
    return ((size_t)8 << i / 2) * (size_t)(2 + i % 2) / 2;
}

/* Whether the size fits the buffers and has whole elements. */
static bool is_fitting(const struct tuner *tuner, const struct table_set *set,
                       size_t bytes)
{
    bool split = perf_kind_split(set->kind);

    return bytes >= tuner->options->begin &&
           bytes * (size_t)(split ? set->ranks : 1) <= tuner->options->end &&
           bytes % symm_dtype_size(set->dtype) == 0;
}

/* The coarsest grid has every fourth size and the last one. */
static int pass_of(const struct tuner *tuner, const struct table_set *set, int i)
{
    if (i % 4 == 0 || !is_fitting(tuner, set, size_at(i + 1)))
        return 0;
    return i % 2 == 0 ? 1 : 2;
}

/* ---- Measuring ------------------------------------------------------------------------ */

static unsigned candidates(const struct table_set *set, size_t bytes)
{
    unsigned which = 0;

    for (int a = 0; a < PERF_AUTOMATIC; a++)
        if (bytes <= set->hopeless[a])
            which |= 1u << a;
    return which;
}

static void give_up(struct table_set *set, size_t bytes,
                    const struct perf_timing *timing)
{
    double best = 0;

    for (int a = 0; a < PERF_AUTOMATIC; a++)
        if (timing->us[a] > 0 && (best <= 0 || timing->us[a] < best))
            best = timing->us[a];
    for (int a = 0; a < PERF_AUTOMATIC; a++) {
        double ratio = best > 0 ? timing->us[a] / best : 0;

        if (bytes >= HOPELESS_FROM && ratio > HOPELESS && ratio > set->ratio[a] &&
            set->ratio[a] > HOPELESS / 2) /* a single slow point may be noise */
            set->hopeless[a] = bytes;
        set->ratio[a] = ratio;
    }
}

static symm_status tune_set(struct tuner *tuner, struct tune_team *team,
                            struct table_set *set, int pass)
{
    struct perf_timing timing;
    symm_status status =
        perf_variants_call(&team->variants, set->kind, set->dtype, set->op);

    for (int a = 0; a < PERF_ALGORITHMS; a++)
        set->ratio[a] = 0;
    for (int i = 0; size_at(i) <= tuner->options->end && status == SYMM_OK; i++) {
        size_t bytes = size_at(i);

        if (tuner->over || !is_fitting(tuner, set, bytes) ||
            pass_of(tuner, set, i) != pass)
            continue;
        status = perf_variants_time(&team->variants, bytes, set->in_place,
                                    candidates(set, bytes), perf_now() - tuner->begin,
                                    &timing);
        if (status != SYMM_OK)
            break;
        table_add(set, bytes, &timing);
        if (tuner->sweep == 0) {
            give_up(set, bytes, &timing);
            set->timed++;
        }
        tuner->over = timing.elapsed > tuner->options->budget * 1e6;
    }
    return status;
}

/* Collective over all ranks, in the team or not: takes rank 0's view of the budget. */
static symm_status share_budget(struct tuner *tuner)
{
    double mine = tuner->over, all[PERF_MAX_RANKS];
    symm_status status = perf_job_gather(tuner->job, &mine, sizeof mine, all);

    if (status == SYMM_OK)
        tuner->over = all[0] > 0;
    return status;
}

static symm_status tune_barrier(struct tuner *tuner)
{
    struct perf_variants *variants = &tuner->teams[0].variants;
    struct perf_timing timing;
    symm_status status =
        perf_variants_call(variants, PERF_BARRIER, SYMM_UINT8, SYMM_SUM);

    if (status == SYMM_OK)
        status =
            perf_variants_time(variants, 0, false, 1u << PERF_AUTOMATIC, 0, &timing);
    if (status == SYMM_OK)
        tuner->table.barrier_us = timing.us[PERF_AUTOMATIC];
    return status;
}

/* One pass over the common teams (all ranks, a power of two), or over the others. */
static symm_status tune_teams(struct tuner *tuner, bool common, int pass)
{
    int sets = tuner->table.set_count / tuner->team_count; /* of a team */
    symm_status status = SYMM_OK;

    for (int t = 0; t < tuner->team_count && status == SYMM_OK; t++) {
        struct tune_team *team = &tuner->teams[t];

        if (tuner->over || (t == 0 || is_power(team->size)) != common)
            continue;
        for (int s = 0; s < sets && status == SYMM_OK && team->team; s++)
            status = tune_set(tuner, team, &tuner->table.sets[t * sets + s], pass);
        if (status == SYMM_OK)
            status = share_budget(tuner);
    }
    return status;
}

static symm_status tune_all(struct tuner *tuner)
{
    symm_status status = tune_barrier(tuner);

    for (tuner->sweep = 0; tuner->sweep < SWEEPS; tuner->sweep++)
        for (int common = 1; common >= 0; common--)
            for (int pass = 0; pass < PASSES && status == SYMM_OK; pass++)
                status = tune_teams(tuner, common, pass);
    return status;
}

static void tell(const struct tuner *tuner)
{
    const struct table *table = &tuner->table;
    int timed = 0, wanted = 0;

    for (int s = 0; s < table->set_count; s++) {
        struct table_set *set = &table->sets[s];

        for (int i = 0; size_at(i) <= tuner->options->end; i++)
            set->wanted += is_fitting(tuner, set, size_at(i));
        timed += set->timed;
        wanted += set->wanted;
    }
    printf("# %d of %d sizes measured in %.0f s\n", timed, wanted,
           (perf_now() - tuner->begin) * 1e-6);
    for (int s = 0; s < table->set_count; s++) {
        const struct table_set *set = &table->sets[s];

        if (set->timed < set->wanted)
            printf("# left out: %s of %s%s over %d ranks: %d of %d sizes\n",
                   perf_kind_name(set->kind), set->data,
                   set->in_place ? " in place" : "", set->ranks,
                   set->wanted - set->timed, set->wanted);
    }
    if (timed < wanted)
        printf("# a larger --budget than %g s measures them\n", tuner->options->budget);
}

/* ---- Regret --------------------------------------------------------------------------- */

static const size_t regret_sizes[] = {
    8,     24,     136,    1024,   4096,    7168,    14336,   16384,    50000,
    65536, 100000, 262144, 400000, 1048576, 3145728, 4194304, 10000000, 33554432};

struct worst {
    double regret;
    size_t bytes;
    const struct table_set *set;
};

/* The least of several times, as in the table. */
static symm_status time_often(struct tune_team *team, const struct table_set *set,
                              size_t bytes, struct perf_timing *least)
{
    struct perf_timing timing;
    symm_status status = SYMM_OK;

    for (int i = 0; i < SWEEPS && status == SYMM_OK; i++) {
        status = perf_variants_time(&team->variants, bytes, set->in_place,
                                    (1u << PERF_AUTOMATIC) - 1, 0, &timing);
        for (int a = 0; status == SYMM_OK && a < PERF_AUTOMATIC; a++)
            least->us[a] = i == 0 ? timing.us[a] : fmin(least->us[a], timing.us[a]);
    }
    return status;
}

static symm_status regret_at(struct tune_team *team, const struct table_set *set,
                             size_t bytes, bool prints, struct worst *worst)
{
    struct perf_timing timing = {.elapsed = 0};
    int chosen = PERF_AUTOMATIC, best = PERF_AUTOMATIC;
    double regret;
    symm_status status =
        perf_variants_choice(&team->variants, bytes, set->in_place, &chosen);

    if (status == SYMM_OK)
        status = time_often(team, set, bytes, &timing);
    if (status != SYMM_OK)
        return status;
    for (int a = 0; a < PERF_AUTOMATIC; a++)
        if (timing.us[a] > 0 &&
            (best == PERF_AUTOMATIC || timing.us[a] < timing.us[best]))
            best = a;
    /* An algorithm that cannot be forced has no time of its own, and no regret. */
    regret = timing.us[chosen] > 0 ? timing.us[chosen] / timing.us[best] - 1 : NAN;
    if (regret > worst->regret)
        *worst = (struct worst){regret, bytes, set};
    if (prints)
        printf("%5d  %-14s  %-7s  %-3s  %10zu  %-17s %9.2f  %-17s %9.2f  %7.1f\n",
               set->ranks, perf_kind_name(set->kind), set->data,
               set->in_place ? "in" : "out", bytes,
               symm_algorithm_name((symm_algorithm)chosen), timing.us[chosen],
               symm_algorithm_name((symm_algorithm)best), timing.us[best],
               100 * regret);
    fflush(stdout);
    return SYMM_OK;
}

static symm_status regret_all(struct tuner *tuner, struct worst *worst)
{
    int sets = tuner->table.set_count / tuner->team_count;
    bool prints = tuner->job->rank == 0;
    symm_status status = SYMM_OK;

    for (int s = 0; s < tuner->table.set_count && status == SYMM_OK; s++) {
        const struct table_set *set = &tuner->table.sets[s];
        struct tune_team *team = &tuner->teams[s / sets];

        if (team->team)
            status =
                perf_variants_call(&team->variants, set->kind, set->dtype, set->op);
        for (size_t i = 0; i < sizeof regret_sizes / sizeof *regret_sizes &&
                           status == SYMM_OK && team->team;
             i++)
            if (is_fitting(tuner, set, regret_sizes[i]))
                status = regret_at(team, set, regret_sizes[i], prints, worst);
        if (status == SYMM_OK && s % sets == sets - 1)
            status = share_budget(tuner);
    }
    return status;
}

int perf_tune(const struct perf_job *job, const struct perf_options *options)
{
    struct worst worst = {.regret = -1};
    struct tuner tuner;
    int result = tuner_open(&tuner, job, options);

    if (result == PERF_RIGHT && job->rank == 0 && options->tune)
        printf("# symm-perf %s: tuning %s, %d ranks\n", symm_version(),
               job->info.machine, job->size);
    if (result == PERF_RIGHT && job->rank == 0 && options->regret)
        printf("# %s\n# ranks  collective      data     place     bytes  chosen      "
               "             us  best                     us  regret %%\n",
               job->info.machine);
    if (result == PERF_RIGHT) {
        symm_status status =
            options->regret ? regret_all(&tuner, &worst) : tune_all(&tuner);
        if (status != SYMM_OK)
            result =
                perf_job_failed(job, status, options->regret ? "--regret" : "--tune");
    }
    if (result == PERF_RIGHT && job->rank == 0 && options->tune) {
        tell(&tuner);
        result = table_write(&tuner.table, job, options->table);
    }
    if (result == PERF_RIGHT && job->rank == 0 && worst.set)
        printf("# largest regret: %.1f %%, %s of %s over %d ranks, %zu bytes\n",
               100 * worst.regret, perf_kind_name(worst.set->kind), worst.set->data,
               worst.set->ranks, worst.bytes);
    tuner_close(&tuner);
    return result;
}
