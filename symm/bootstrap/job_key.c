/* SPDX-License-Identifier: MIT */
/*
 * job_key.c - the names of jobs, by launcher.
 *
 * Every key begins with the launcher and the user's id, so that two launchers or two
 * users never mean the same bootstrap. Values of variables are taken as they are: a key
 * is hashed where a file name is needed, and one that does not fit is an error, never
 * cut.
 *
 * Under PMI nothing is said over PMI_FD. Asking for the job's kvsname would be the
 * documented way, but it marks the process as one that must finalize PMI: MPICH's
 * manager then takes a normal exit for a crash and kills the other ranks, and a
 * finalize of ours would break a later MPI_Init. The manager's end of that socket identifies
 * enough: its process id and start time name the job on this host (the manager starts
 * one process a host and job).
 */
#include "bootstrap/job_key.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/status.h"

const char *symm__job_variable(const char *name)
{
    const char *value = secure_getenv(name);

    return value && *value ? value : NULL;
}

symm_status symm__job_missing(const char *missing, const char *present)
{
    return symm__fail(
        SYMM_ERR_JOB,
        "%s is not set, but %s is: the launcher's variables are incomplete; "
        "set %s too, or unset %s",
        missing, present, missing, present);
}

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
        const char *value = symm__job_variable(*names);
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

symm_status symm__key_symm(char *key, const char *job_id)
{
    symm_status status = begin(key, "symm");

    return status == SYMM_OK ? append(key, " job=%s", job_id) : status;
}

symm_status symm__key_torchrun(char *key)
{
    /* The restart count keeps a restarted gang from bootstrap one that is still dying. */
    static const char *const names[] = {"TORCHELASTIC_RUN_ID",
                                        "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR",
                                        "MASTER_PORT", NULL};
    const char *run = symm__job_variable("TORCHELASTIC_RUN_ID");
    const char *addr = symm__job_variable("MASTER_ADDR");
    const char *port = symm__job_variable("MASTER_PORT");
    symm_status status;
    int count;

    if (!addr && (port || !run))
        return symm__job_missing("MASTER_ADDR", port ? "MASTER_PORT" : "RANK");
    if (!port && addr)
        return symm__job_missing("MASTER_PORT", "MASTER_ADDR");
    status = begin(key, "torchrun");
    return status == SYMM_OK ? append_variables(key, names, &count) : status;
}

symm_status symm__key_pmix(char *key)
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
        return symm__job_missing("PMIX_NAMESPACE", symm__job_variable("PMIX_RANK")
                                                       ? "PMIX_RANK"
                                                       : "OMPI_COMM_WORLD_RANK");
    return status;
}

symm_status symm__key_slurm(char *key)
{
    static const char *const job_names[] = {"SLURM_JOB_ID", "SLURM_JOBID"};
    static const char *const step_names[] = {"SLURM_STEP_ID", "SLURM_STEPID"};
    const char *job_id = symm__job_variable(job_names[0]);
    const char *step_id = symm__job_variable(step_names[0]);
    const char *restart = symm__job_variable("SLURM_RESTART_COUNT");
    symm_status status;

    if (!job_id)
        job_id = symm__job_variable(job_names[1]);
    if (!step_id)
        step_id = symm__job_variable(step_names[1]);
    if (!job_id)
        return symm__job_missing(job_names[0], "SLURM_PROCID");
    if (!step_id)
        return symm__job_missing(step_names[0], "SLURM_PROCID");
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
    char path[40], text[1024];
    const char *c;
    ssize_t length;
    int fd;

    snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    length = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[length > 0 ? length : 0] = '\0';
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

symm_status symm__key_pmi(char *key)
{
    const char *fd = symm__job_variable("PMI_FD");
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

symm_status symm__key_process(char *key)
{
    symm_status status = begin(key, "single");

    if (status != SYMM_OK)
        return status;
    return append(key, " pid=%ld start=%llu", (long)getpid(), start_time(getpid()));
}
