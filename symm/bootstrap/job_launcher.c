/* SPDX-License-Identifier: MIT */
/*
 * job_launcher.c - which launcher started this process, and as which rank of how many.
 *
 * One table of launchers in order of precedence: what is set on purpose (SYMM_*) before
 * what a launcher sets, and Slurm last, since an allocation's variables leak into
 * whatever is started inside it. The first launcher of which any defining variable is
 * set decides; the others' variables are not looked at.
 *
 * Guarantees 0 <= rank < size and 0 <= local_rank < local_size <= size, or SYMM_ERR_JOB
 * with a sentence that names the variable. Whether ranks on other hosts can be served
 * is not decided here. Refuses to guess: a missing number is an error, not a default.
 *
 * Every key begins with the launcher and the user's id, so that two launchers or two
 * users never mean the same bootstrap. Values of variables are taken as they are: a key
 * is hashed where a file name is needed, and one that does not fit is an error, never
 * cut.
 *
 * Under PMI nothing is sent over PMI_FD. Asking for the job's kvsname would be the documented
 * way, but it marks the process as one that must finalize PMI: MPICH's manager then takes a
 * normal exit for a crash and kills the other ranks, and a finalize by this library would break a
 * later MPI_Init. The process at the manager's end of that socket is enough: its process id and
 * start time name the job on this host (the manager starts one process a host and job).
 */
#include "bootstrap/job_private.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "symm/tools.h"
#include "util/abi.h"
#include "util/status.h"
#include "util/text.h"

struct launcher {
    const char *source;
    const char *rank, *size, *local_rank, *local_size;
    const char *also; /* set: this launcher decides, too; may be NULL */
    symm_status (*numbers)(const struct launcher *launcher, struct symm_job *job);
    symm_status (*key)(char *key);
};

/* SYMM_ERR_JOB: `name` is not set though `present` is. */
static symm_status missing(const char *name, const char *present)
{
    return symm__fail(
        SYMM_ERR_JOB,
        "%s is not set, but %s is: the launcher's variables are incomplete; "
        "set %s too, or unset %s",
        name, present, name, present);
}

symm_status symm__job_number(const char *name, int low, int high, int *number)
{
    const char *text = variable(name);
    const char *c = text;
    int value = 0;

    for (; *c >= '0' && *c <= '9' && value <= high; c++)
        value = 10 * value + (*c - '0'); /* at most 10 x SYMM_RANKS_MAX + 9 */
    if (*c != '\0' || value < low || value > high)
        return symm__fail(SYMM_ERR_JOB,
                          "%s='%.40s%s': must be an integer from %d to %d", name, text,
                          strlen(text) > 40 ? "..." : "", low, high);
    *number = value;
    return SYMM_OK;
}

/* The first of the launcher's defining variables that is set; NULL: not this one. */
static const char *first_set(const struct launcher *launcher)
{
    const char *names[] = {launcher->rank, launcher->size, launcher->local_rank,
                           launcher->local_size, launcher->also};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (names[i] && variable(names[i]))
            return names[i];
    }
    return NULL;
}

static symm_status require(const struct launcher *launcher, const char *name)
{
    return variable(name) ? SYMM_OK : missing(name, first_set(launcher));
}

/* A rank and the size it must be below; both variables must be set. */
static symm_status read_pair(const struct launcher *launcher, const char *rank_name,
                             const char *size_name, int *rank, int *size)
{
    symm_status status = require(launcher, rank_name);

    if (status == SYMM_OK)
        status = require(launcher, size_name);
    if (status == SYMM_OK)
        status = symm__job_number(size_name, 1, SYMM_RANKS_MAX, size);
    if (status == SYMM_OK)
        status = symm__job_number(rank_name, 0, SYMM_RANKS_MAX - 1, rank);
    if (status == SYMM_OK && *rank >= *size)
        return symm__fail(SYMM_ERR_JOB,
                          "%s=%d, but %s=%d: a rank is below the number of ranks",
                          rank_name, *rank, size_name, *size);
    return status;
}

static symm_status world_numbers(const struct launcher *launcher, struct symm_job *job)
{
    return read_pair(launcher, launcher->rank, launcher->size, &job->rank, &job->size);
}

static symm_status local_numbers(const struct launcher *launcher, struct symm_job *job)
{
    symm_status status = read_pair(launcher, launcher->local_rank, launcher->local_size,
                                   &job->local_rank, &job->local_size);

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

    if (status == SYMM_OK && !variable("SYMM_JOB_ID"))
        return missing("SYMM_JOB_ID", "SYMM_RANK");
    if (status != SYMM_OK || variable(launcher->local_rank) ||
        variable(launcher->local_size))
        return status == SYMM_OK ? local_numbers(launcher, job) : status;
    job->local_rank = job->rank; /* without both: every rank is on this host */
    job->local_size = job->size;
    return SYMM_OK;
}

/* ---- Slurm ----------------------------------------------------------------------- */

static bool slurm_step_is_set(void)
{
    return variable("SLURM_PROCID") && either("SLURM_STEP_ID", "SLURM_STEPID");
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
    const char *list = variable(name);
    const char *c = list;
    int node = 0, nodes_seen = 0, tasks = 0, nodes = 0;
    bool know_node = variable("SLURM_NODEID") != NULL;
    symm_status status;

    *local_size = 0;
    if (know_node) {
        status = symm__job_number("SLURM_NODEID", 0, SYMM_RANKS_MAX - 1, &node);
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
        nodes_seen =
            nodes_seen + nodes < SYMM_RANKS_MAX ? nodes_seen + nodes : SYMM_RANKS_MAX;
    }
    if (nodes_seen > 1 && !know_node)
        return missing("SLURM_NODEID", name);
    if (*local_size == 0)
        return symm__fail(SYMM_ERR_JOB, "SLURM_NODEID=%d, but %s='%.60s' has %d nodes",
                          node, name, list, nodes_seen);
    return SYMM_OK;
}

static symm_status slurm_numbers(const struct launcher *launcher, struct symm_job *job)
{
    /* The step's numbers if it has them: srun may start fewer tasks than the job. */
    bool step = variable("SLURM_STEP_NUM_TASKS") != NULL;
    const char *size_name = step ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    const char *list_name = step ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
    symm_status status;

    if (!variable(size_name))
        return missing("SLURM_STEP_NUM_TASKS", launcher->rank);
    if (!variable(launcher->local_rank))
        return missing(launcher->local_rank, launcher->rank);
    if (!variable(list_name))
        return missing(list_name, launcher->rank);
    status = read_pair(launcher, launcher->rank, size_name, &job->rank, &job->size);
    if (status == SYMM_OK)
        status = slurm_local_size(list_name, &job->local_size);
    if (status == SYMM_OK)
        status = symm__job_number(launcher->local_rank, 0, SYMM_RANKS_MAX - 1,
                                  &job->local_rank);
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
    const char *rank = variable(rank_name);
    const char *slurm_rank = variable("SLURM_PROCID");

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

    if (status != SYMM_OK || variable(launcher->local_rank) ||
        variable(launcher->local_size))
        return status == SYMM_OK ? local_numbers(launcher, job) : status;
    if (job->size == 1) {
        job->local_rank = 0;
        job->local_size = 1;
        return SYMM_OK;
    }
    if (!slurm_agrees(launcher->rank, &step) || step.size != job->size)
        return missing(launcher->local_rank, launcher->rank);
    job->local_rank = step.local_rank;
    job->local_size = step.local_size;
    return SYMM_OK;
}

/* ---- The job's name --------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static symm_status append(char *key,
                                                                const char *format, ...)
{
    size_t used = strlen(key);
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(key + used, SYMM_KEY_BYTES - used, format, args);
    va_end(args);
    if (length < 0 || (size_t)length >= SYMM_KEY_BYTES - used)
        return symm__fail(
            SYMM_ERR_JOB,
            "the variables that name the job are too long: at most %zu bytes "
            "in all, beginning with '%.60s'; set a shorter SYMM_JOB_ID",
            SYMM_KEY_BYTES - 1, key);
    return SYMM_OK;
}

/* Begins the key anew. */
static symm_status begin(char *key, const char *launcher)
{
    key[0] = '\0';
    return append(key, "%s uid=%lu", launcher, (unsigned long)geteuid());
}

/* Appends " name=value" for each name that is set; *count = how many. */
static symm_status append_variables(char *key, const char *const *names, int *count)
{
    *count = 0;
    for (; *names; names++) {
        const char *value = variable(*names);
        symm_status status;

        if (!value)
            continue;
        status = append(key, " %s=%s", *names, value);
        if (status != SYMM_OK)
            return status;
        ++*count;
    }
    return SYMM_OK;
}

static symm_status key_symm(char *key, const char *job_id)
{
    symm_status status = begin(key, "symm");

    return status == SYMM_OK ? append(key, " job=%s", job_id) : status;
}

static symm_status key_torchrun(char *key)
{
    /* The restart count keeps restarted ranks from joining those that are still ending. */
    static const char *const names[] = {"TORCHELASTIC_RUN_ID",
                                        "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR",
                                        "MASTER_PORT", NULL};
    const char *run = variable("TORCHELASTIC_RUN_ID");
    const char *addr = variable("MASTER_ADDR");
    const char *port = variable("MASTER_PORT");
    symm_status status;
    int count;

    if (!addr && (port || !run))
        return missing("MASTER_ADDR", port ? "MASTER_PORT" : "RANK");
    if (!port && addr)
        return missing("MASTER_PORT", "MASTER_ADDR");
    status = begin(key, "torchrun");
    return status == SYMM_OK ? append_variables(key, names, &count) : status;
}

static symm_status key_pmix(char *key)
{
    /*
     * Open MPI's namespace holds 16 bits of hash only; the last one is 128 random bits
     * that its mpirun gives to every rank.
     */
    static const char *const names[] = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid",
                                        "OMPI_MCA_orte_precondition_transports", NULL};
    symm_status status = begin(key, "pmix");
    int count = 0;

    if (status == SYMM_OK)
        status = append_variables(key, names, &count);
    if (status == SYMM_OK && count == 0)
        return missing("PMIX_NAMESPACE",
                       variable("PMIX_RANK") ? "PMIX_RANK" : "OMPI_COMM_WORLD_RANK");
    return status;
}

static symm_status key_slurm(char *key)
{
    const char *job_id = either("SLURM_JOB_ID", "SLURM_JOBID");
    const char *step_id = either("SLURM_STEP_ID", "SLURM_STEPID");
    const char *restart = variable("SLURM_RESTART_COUNT");
    symm_status status;

    if (!job_id || !step_id)
        return missing(job_id ? "SLURM_STEP_ID" : "SLURM_JOB_ID", "SLURM_PROCID");
    status = begin(key, "slurm");
    if (status != SYMM_OK)
        return status;
    return append(key, " job=%s step=%s restart=%s", job_id, step_id,
                  restart ? restart : "0");
}

/*
 * Field 22 of /proc/PID/stat: when the process started, in ticks since boot; 0 if that
 * may not be read. With it a process id that is used again is another name.
 */
static unsigned long long start_time(pid_t pid)
{
    char text[1024];
    const char *c;

    (void)symm__read_text(text, sizeof(text), "/proc/%ld/stat", (long)pid);
    c = strrchr(text, ')'); /* the name before it may hold anything, also spaces */
    for (int field = 2; c && field < 22; field++)
        c = strchr(c + 1, ' ');
    return c ? strtoull(c, NULL, 10) : 0;
}

/* The process that made the other end of PMI_FD. */
static symm_status pmi_manager(const char *text, pid_t *pid)
{
    struct ucred creator = {0, 0, 0};
    socklen_t length = sizeof(creator);
    char *end;
    long fd;

    errno = 0;
    fd = strtol(text, &end, 10);
    if (errno != 0 || *text < '0' || *text > '9' || *end != '\0' || fd > 0x7fffffff)
        return symm__fail(SYMM_ERR_JOB, "PMI_FD='%.40s': must be a descriptor's number",
                          text);
    if (getsockopt((int)fd, SOL_SOCKET, SO_PEERCRED, &creator, &length) != 0)
        return symm__fail_errno(
            SYMM_ERR_JOB, errno,
            "PMI_FD=%ld does not lead to the process manager "
            "(MPI_Finalize closes it); set SYMM_JOB_ID, equal on all "
            "ranks and unique",
            fd);
    if (creator.pid <= 0)
        return symm__fail(
            SYMM_ERR_JOB,
            "the process manager at PMI_FD=%ld is not visible from here "
            "(another PID namespace, or not a local socket); set SYMM_JOB_ID, "
            "equal on all ranks and unique",
            fd);
    *pid = creator.pid;
    return SYMM_OK;
}

static symm_status key_pmi(char *key)
{
    const char *fd = variable("PMI_FD");
    symm_status status;
    pid_t manager = 0;

    if (!fd)
        return symm__fail(SYMM_ERR_JOB,
                          "PMI_FD is not set, but PMI_RANK is: nothing else "
                          "names this job; set SYMM_JOB_ID, equal on all "
                          "ranks and unique");
    status = pmi_manager(fd, &manager);
    if (status == SYMM_OK)
        status = begin(key, "pmi");
    if (status != SYMM_OK)
        return status;
    return append(key, " manager=%ld start=%llu", (long)manager, start_time(manager));
}

static symm_status key_process(char *key)
{
    symm_status status = begin(key, "single");

    if (status != SYMM_OK)
        return status;
    return append(key, " pid=%ld start=%llu", (long)getpid(), start_time(getpid()));
}

/* srun's PMI: its manager is a daemon of root, so the step names the job better. */
static symm_status pmi_key(char *key)
{
    if (!variable("MPI_LOCALRANKID") && slurm_step_is_set())
        return key_slurm(key);
    return key_pmi(key);
}

/* ---- The table ------------------------------------------------------------------- */

static const struct launcher launchers[] = {
    {"symm", "SYMM_RANK", "SYMM_WORLD_SIZE", "SYMM_LOCAL_RANK", "SYMM_LOCAL_WORLD_SIZE",
     NULL, symm_numbers, NULL},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
     "TORCHELASTIC_RUN_ID", plain_numbers, key_torchrun},
    {"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", NULL, plain_numbers,
     key_pmix},
    {"pmix", "PMIX_RANK", NULL, NULL, NULL, "PMIX_NAMESPACE", pmix_numbers, key_pmix},
    {"pmi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_PORT",
     pmi_numbers, pmi_key},
    {"slurm", "SLURM_PROCID", NULL, "SLURM_LOCALID", NULL, NULL, slurm_numbers,
     key_slurm},
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

static symm_status name_job(const struct launcher *launcher, struct symm_job *job)
{
    const char *job_id = variable("SYMM_JOB_ID");
    const char *source = launcher->source;

    if (job_id && strcmp(source, "torchrun") == 0)
        source = "symmrun"; /* which sets torchrun's variables and this one */
    snprintf(job->source, sizeof(job->source), "%s", source);
    if (job_id)
        return key_symm(job->key, job_id);
    /* A job of one rank needs no key, so the launcher's variables may be incomplete. */
    return job->size == 1 ? key_process(job->key) : launcher->key(job->key);
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
    } else if (variable("SYMM_JOB_ID")) {
        status = missing("SYMM_RANK", "SYMM_JOB_ID");
    } else {
        status = key_process(found.key);
    }
    if (status == SYMM_OK)
        status = symm__job_read_secret(&found);
    if (status == SYMM_OK)
        status = symm__job_read_store(&found);
    if (status == SYMM_OK)
        status = symm__job_read_root(&found);
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
