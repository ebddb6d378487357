/* SPDX-License-Identifier: MIT */
/*
 * job.c - which launcher started this process, and as which rank of how many.
 *
 * One table of launchers in order of precedence: what is set on purpose (SYMM_*) before
 * what a launcher sets, and Slurm last, since an allocation's variables leak into
 * whatever is started inside it. The first launcher of which any defining variable is
 * set decides; the others' variables are not looked at.
 *
 * Guarantees 0 <= rank < size and 0 <= local_rank < local_size <= size, or SYMM_ERR_JOB
 * with a sentence that names the variable. Whether ranks on other hosts can be served
 * is not decided here. Refuses to guess: a missing number is an error, not a default.
 */
#include "bootstrap/job.h"

#include <stdio.h>
#include <string.h>

#include "bootstrap/job_key.h"
#include "symm/tools.h"
#include "util/abi.h"
#include "util/status.h"

#define RANKS_MAX                                                                      \
    (1 << 20) /* far above any machine, far below what overflows a product */

_Static_assert(sizeof(((struct symm_job *)NULL)->key) == SYMM_KEY_BYTES,
               "job_key.c writes it");

struct launcher {
    const char *source;
    const char *rank, *size, *local_rank, *local_size;
    const char *also; /* set: this launcher decides, too; may be NULL */
    symm_status (*numbers)(const struct launcher *launcher, struct symm_job *job);
    symm_status (*key)(char *key);
};

/* A decimal number in [low, high]: no sign, no space, nothing behind it. */
static symm_status read_number(const char *name, int low, int high, int *number)
{
    const char *text = symm__job_variable(name);
    const char *c = text;
    int value = 0;

    for (; *c >= '0' && *c <= '9' && value <= high; c++)
        value = 10 * value + (*c - '0'); /* at most 10 x RANKS_MAX + 9 */
    if (*c != '\0' || value < low || value > high)
        return symm__fail(SYMM_ERR_JOB,
                          "%s='%.40s%s': must be an integer from %d to %d", name, text,
                          strlen(text) > 40 ? "..." : "", low, high);
    *number = value;
    return SYMM_OK;
}

/* A rank and the size it must be below, from two variables that are both set. */
static symm_status read_pair(const char *rank_name, const char *size_name, int *rank,
                             int *size)
{
    symm_status status = read_number(size_name, 1, RANKS_MAX, size);

    if (status == SYMM_OK)
        status = read_number(rank_name, 0, RANKS_MAX - 1, rank);
    if (status == SYMM_OK && *rank >= *size)
        return symm__fail(SYMM_ERR_JOB,
                          "%s=%d, but %s=%d: a rank is below the number of ranks",
                          rank_name, *rank, size_name, *size);
    return status;
}

/* The first of the launcher's defining variables that is set; NULL: not this one. */
static const char *first_set(const struct launcher *launcher)
{
    const char *names[] = {launcher->rank, launcher->size, launcher->local_rank,
                           launcher->local_size, launcher->also};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (names[i] && symm__job_variable(names[i]))
            return names[i];
    }
    return NULL;
}

static symm_status require(const struct launcher *launcher, const char *name)
{
    return symm__job_variable(name) ? SYMM_OK
                                    : symm__job_missing(name, first_set(launcher));
}

static symm_status world_numbers(const struct launcher *launcher, struct symm_job *job)
{
    symm_status status = require(launcher, launcher->rank);

    if (status == SYMM_OK)
        status = require(launcher, launcher->size);
    if (status == SYMM_OK)
        status = read_pair(launcher->rank, launcher->size, &job->rank, &job->size);
    return status;
}

static symm_status local_numbers(const struct launcher *launcher, struct symm_job *job)
{
    symm_status status = require(launcher, launcher->local_rank);

    if (status == SYMM_OK)
        status = require(launcher, launcher->local_size);
    if (status == SYMM_OK)
        status = read_pair(launcher->local_rank, launcher->local_size, &job->local_rank,
                           &job->local_size);
    if (status == SYMM_OK && job->local_size > job->size)
        return symm__fail(
            SYMM_ERR_JOB, "%s=%d, but %s=%d: a host has no more ranks than the job",
            launcher->local_size, job->local_size, launcher->size, job->size);
    return status;
}

static symm_status plain_numbers(const struct launcher *launcher, struct symm_job *job)
{
    symm_status status = world_numbers(launcher, job);

    return status == SYMM_OK ? local_numbers(launcher, job) : status;
}

/* ---- SYMM_* ---------------------------------------------------------------------- */

static symm_status symm_numbers(const struct launcher *launcher, struct symm_job *job)
{
    symm_status status = world_numbers(launcher, job);

    if (status == SYMM_OK && !symm__job_variable("SYMM_JOB_ID"))
        return symm__job_missing("SYMM_JOB_ID", "SYMM_RANK");
    if (status != SYMM_OK || symm__job_variable(launcher->local_rank) ||
        symm__job_variable(launcher->local_size))
        return status == SYMM_OK ? local_numbers(launcher, job) : status;
    job->local_rank = job->rank; /* without both: every rank is on this host */
    job->local_size = job->size;
    return SYMM_OK;
}

/* ---- Slurm ----------------------------------------------------------------------- */

static bool slurm_step_is_set(void)
{
    return symm__job_variable("SLURM_PROCID") &&
           (symm__job_variable("SLURM_STEP_ID") || symm__job_variable("SLURM_STEPID"));
}

/* One group of "2(x3),1": *tasks = 2, *nodes = 3; returns what follows, NULL: bad. */
static const char *read_group(const char *text, int *tasks, int *nodes)
{
    int used = 0;

    *nodes = 1;
    if (*text < '1' || *text > '9' || sscanf(text, "%7d%n", tasks, &used) != 1)
        return NULL;
    text += used;
    if (text[0] == '(') {
        if (text[1] != 'x' || text[2] < '1' || text[2] > '9' ||
            sscanf(text + 2, "%7d%n", nodes, &used) != 1 || text[2 + used] != ')')
            return NULL;
        text += 2 + used + 1;
    }
    if (*text == ',' && text[1] != '\0')
        return text + 1;
    return *text == '\0' ? text : NULL;
}

/* This node's part of "2(x3),1". */
static symm_status slurm_local_size(const char *name, int *local_size)
{
    const char *list = symm__job_variable(name);
    const char *c = list;
    int node = 0, nodes_seen = 0, tasks = 0, nodes = 0;
    bool know_node = symm__job_variable("SLURM_NODEID") != NULL;
    symm_status status;

    *local_size = 0;
    if (know_node) {
        status = read_number("SLURM_NODEID", 0, RANKS_MAX - 1, &node);
        if (status != SYMM_OK)
            return status;
    }
    while (*c) {
        c = read_group(c, &tasks, &nodes);
        if (!c)
            return symm__fail(SYMM_ERR_JOB, "%s='%.60s': must be of the form 2(x3),1",
                              name, list);
        if (node >= nodes_seen && node - nodes_seen < nodes)
            *local_size = tasks;
        nodes_seen = nodes_seen + nodes < RANKS_MAX ? nodes_seen + nodes : RANKS_MAX;
    }
    if (nodes_seen > 1 && !know_node)
        return symm__job_missing("SLURM_NODEID", name);
    if (*local_size == 0)
        return symm__fail(SYMM_ERR_JOB, "SLURM_NODEID=%d, but %s='%.60s' has %d nodes",
                          node, name, list, nodes_seen);
    return SYMM_OK;
}

static symm_status slurm_numbers(const struct launcher *launcher, struct symm_job *job)
{
    /* The step's numbers if it has them: srun may start fewer tasks than the job. */
    bool step = symm__job_variable("SLURM_STEP_NUM_TASKS") != NULL;
    const char *size_name = step ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    const char *list_name = step ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
    symm_status status;

    if (!symm__job_variable(size_name))
        return symm__job_missing("SLURM_STEP_NUM_TASKS", launcher->rank);
    if (!symm__job_variable(launcher->local_rank))
        return symm__job_missing(launcher->local_rank, launcher->rank);
    if (!symm__job_variable(list_name))
        return symm__job_missing(list_name, launcher->rank);
    status = read_pair(launcher->rank, size_name, &job->rank, &job->size);
    if (status == SYMM_OK)
        status = slurm_local_size(list_name, &job->local_size);
    if (status == SYMM_OK)
        status = read_number(launcher->local_rank, 0, RANKS_MAX - 1, &job->local_rank);
    if (status == SYMM_OK &&
        (job->local_rank >= job->local_size || job->local_size > job->size))
        return symm__fail(SYMM_ERR_JOB,
                          "%s=%d, %s=%d, and %s says %d on this node: these "
                          "contradict each other",
                          launcher->local_rank, job->local_rank, size_name, job->size,
                          list_name, job->local_size);
    return status;
}

/* ---- PMIx and PMI: what they lack, srun's own variables may have ----------------- */

static const struct launcher *slurm(void);

/* The Slurm step's numbers, if the step is the one that `rank_name` speaks of. */
static bool slurm_agrees(const char *rank_name, struct symm_job *job)
{
    const char *rank = symm__job_variable(rank_name);
    const char *slurm_rank = symm__job_variable("SLURM_PROCID");

    return slurm_step_is_set() && rank && strcmp(rank, slurm_rank) == 0 &&
           slurm_numbers(slurm(), job) == SYMM_OK;
}

static symm_status pmix_numbers(const struct launcher *launcher, struct symm_job *job)
{
    symm_status status = require(launcher, launcher->rank);

    if (status != SYMM_OK || slurm_agrees(launcher->rank, job))
        return status;
    return symm__fail(SYMM_ERR_JOB,
                      "PMIX_RANK is set, but no variable says how many ranks "
                      "there are (OMPI_COMM_WORLD_SIZE under Open MPI, "
                      "SLURM_STEP_NUM_TASKS under srun); set SYMM_RANK, "
                      "SYMM_WORLD_SIZE and SYMM_JOB_ID");
}

static symm_status pmi_numbers(const struct launcher *launcher, struct symm_job *job)
{
    symm_status status = world_numbers(launcher, job);
    struct symm_job step = *job;

    if (status != SYMM_OK || symm__job_variable(launcher->local_rank) ||
        symm__job_variable(launcher->local_size))
        return status == SYMM_OK ? local_numbers(launcher, job) : status;
    if (job->size == 1) {
        job->local_rank = 0;
        job->local_size = 1;
        return SYMM_OK;
    }
    if (!slurm_agrees(launcher->rank, &step) || step.size != job->size)
        return symm__job_missing(launcher->local_rank, launcher->rank);
    job->local_rank = step.local_rank;
    job->local_size = step.local_size;
    return SYMM_OK;
}

/* srun's PMI: its manager is a daemon of root, so the step names the job better. */
static symm_status pmi_key(char *key)
{
    if (!symm__job_variable("MPI_LOCALRANKID") && slurm_step_is_set())
        return symm__key_slurm(key);
    return symm__key_pmi(key);
}

/* ---- The table ------------------------------------------------------------------- */

static const struct launcher launchers[] = {
    {"symm", "SYMM_RANK", "SYMM_WORLD_SIZE", "SYMM_LOCAL_RANK", "SYMM_LOCAL_WORLD_SIZE",
     NULL, symm_numbers, NULL},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
     "TORCHELASTIC_RUN_ID", plain_numbers, symm__key_torchrun},
    {"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", NULL, plain_numbers,
     symm__key_pmix},
    {"pmix", "PMIX_RANK", NULL, NULL, NULL, "PMIX_NAMESPACE", pmix_numbers,
     symm__key_pmix},
    {"pmi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_PORT",
     pmi_numbers, pmi_key},
    {"slurm", "SLURM_PROCID", NULL, "SLURM_LOCALID", NULL, NULL, slurm_numbers,
     symm__key_slurm},
};

#define LAUNCHER_COUNT (sizeof(launchers) / sizeof(launchers[0]))

static const struct launcher *slurm(void)
{
    return &launchers[LAUNCHER_COUNT - 1];
}

static const struct launcher *find_launcher(void)
{
    for (size_t i = 0; i < LAUNCHER_COUNT - 1; i++) {
        if (first_set(&launchers[i]))
            return &launchers[i];
    }
    return slurm_step_is_set() ? slurm() : NULL;
}

/* 32 hex digits. The error does not show the value: it is a secret even if misspelt. */
static symm_status read_secret(struct symm_job *job)
{
    const char *text = symm__job_variable("SYMM_SECRET");
    size_t length;

    job->has_secret = text != NULL;
    if (!text)
        return SYMM_OK;
    length = strlen(text);
    if (length != 2 * SYMM_SECRET_BYTES ||
        strspn(text, "0123456789abcdefABCDEF") != length)
        return symm__fail(
            SYMM_ERR_JOB,
            "SYMM_SECRET (%zu characters, not shown): must be %d hex digits", length,
            2 * SYMM_SECRET_BYTES);
    for (int i = 0; i < SYMM_SECRET_BYTES; i++) {
        unsigned byte;

        if (sscanf(text + 2 * i, "%2x", &byte) == 1)
            job->secret[i] = (uint8_t)byte;
    }
    return SYMM_OK;
}

static symm_status read_store(struct symm_job *job)
{
    const char *text = symm__job_variable("SYMM_STORE");
    size_t length = text ? strlen(text) : 0;

    if (length >= sizeof(job->store))
        return symm__fail(SYMM_ERR_JOB,
                          "SYMM_STORE='%.40s...': must be host:port, at most "
                          "%zu characters",
                          text, sizeof(job->store) - 1);
    if (text)
        memcpy(job->store, text, length);
    job->store[length] = '\0';
    return SYMM_OK;
}

static symm_status name_job(const struct launcher *launcher, struct symm_job *job)
{
    const char *job_id = symm__job_variable("SYMM_JOB_ID");
    const char *source = launcher->source;

    if (job_id && strcmp(source, "torchrun") == 0)
        source = "symmrun"; /* which sets torchrun's variables and this one */
    snprintf(job->source, sizeof(job->source), "%s", source);
    if (job_id)
        return symm__key_symm(job->key, job_id);
    /* A job of one rank needs no key, so the launcher's variables may be incomplete. */
    return job->size == 1 ? symm__key_process(job->key) : launcher->key(job->key);
}

symm_status symm__job_detect(struct symm_job *job)
{
    struct symm_job found = {.size = 1, .local_size = 1, .source = "single"};
    const struct launcher *launcher = find_launcher();
    symm_status status;

    if (launcher) {
        status = launcher->numbers(launcher, &found);
        if (status == SYMM_OK)
            status = name_job(launcher, &found);
    } else if (symm__job_variable("SYMM_JOB_ID")) {
        status = symm__job_missing("SYMM_RANK", "SYMM_JOB_ID");
    } else {
        status = symm__key_process(found.key);
    }
    if (status == SYMM_OK)
        status = read_secret(&found);
    if (status == SYMM_OK)
        status = read_store(&found);
    if (status == SYMM_OK)
        *job = found;
    return status;
}

symm_status symm_job_detect(symm_job_info *info)
{
    symm_job_info full;
    struct symm_job job;
    symm_status status;

    if (!info)
        return symm__fail_null("symm_job_detect", "info");
    status = symm__struct_check("symm_job_info", info->size, sizeof(full));
    if (status == SYMM_OK)
        status = symm__job_detect(&job);
    if (status != SYMM_OK)
        return status;
    full = (symm_job_info){.rank = job.rank,
                           .world_size = job.size,
                           .local_rank = job.local_rank,
                           .local_size = job.local_size};
    memcpy(full.source, job.source, sizeof(full.source));
    /* For showing: a long key is cut here, and only here. */
    _Static_assert(sizeof(full.source) == sizeof(job.source), "copied as one");
    snprintf(full.key, sizeof(full.key), "%.127s", job.key);
    symm__struct_give(info, &full, sizeof(full));
    return SYMM_OK;
}
