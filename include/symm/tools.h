/* SPDX-License-Identifier: MIT */
/*
 * tools.h - what launchers and reporting tools ask of the library, without a context: the
 * options, the job that the environment describes, the share of the machine that a rank gets,
 * and the machine itself. symmrun(1) and symm-info(1) are made of it; programs that compute
 * need none of it.
 *
 * Structs begin with `size`, which the caller sets to sizeof. symm.h says what holds for every
 * function.
 */
#ifndef SYMM_TOOLS_H
#define SYMM_TOOLS_H

#include "symm/symm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct symm_option_info {
    size_t size;
    const char *name;     /* "SYMM_TIMEOUT" */
    const char *kind;     /* "string", "bytes", "seconds", "integer" */
    const char *fallback; /* the default, as text; "" if there is none */
    const char *help;     /* one sentence */
    const char *value;    /* from the environment; NULL if unset */
} symm_option_info;

/* The index-th SYMM_* variable of the library; SYMM_ERR_NOT_FOUND after the last:
 *   for (int i = 0; symm_option_at(i, &info) == SYMM_OK; i++) puts(info.name); */
SYMM_API symm_status symm_option_at(int index, symm_option_info *info) SYMM_MUST_CHECK;

/* What the launcher's variables say: source, rank, sizes. Does not join the job. */
typedef struct symm_job_info {
    size_t size;
    int rank, world_size, local_rank, local_size;
    char source
        [16];      /* "symm", "torchrun", "openmpi", "pmix", "pmi", "slurm", "single" */
    char key[128]; /* names the job among those of this host */
} symm_job_info;
SYMM_API symm_status symm_job_detect(symm_job_info *job) SYMM_MUST_CHECK;

/* One host of a job, as rank 0's host sees it. */
typedef struct symm_host_report {
    size_t size;
    int rank;            /* the lowest one there; -1: not known */
    int ranks;           /* that the launcher has there; 0: not known */
    const char *name;    /* SYMM_HOST_ID, or the system's name; "": not known */
    const char *address; /* from which its connection came; "": not known */
    const char *version; /* of its libsymm; "": not known */
    double round_trip;   /* seconds, of the fastest of some messages there and back */
    double clock_offset; /* its system clock minus that of rank 0's host */
    double clock_error; /* the offset may be off by this. All three NaN: not measured */
    bool good;
    const char *problem; /* a sentence that says what to do; "" if good */
} symm_host_report;
/*
 * Checks the hosts of the job that the launcher's variables describe, before the job starts:
 * whether each host reaches rank 0's host with the job's secret and the same version of the
 * library, whether rank 0's host reaches the address at which it would listen, and how far its
 * clock is off. Every process that the launcher has started calls this, one for each host or one
 * for each rank; the lowest rank of a host reports for it. On rank 0 `each` is called for every
 * host, also for those that fail and those that are missing; its strings are valid during the
 * call. timeout in seconds, 0: 10. A clock that is off by more than half a second is a problem.
 * SYMM_OK: all hosts are good. Else the error says what is wrong with the caller's own host or, on
 * others, how many hosts have problems. SYMM_ERR_JOB: nothing says where rank 0 is, or there is
 * no secret.
 */
SYMM_API symm_status symm_hosts_check(double timeout,
                                      void (*each)(void *arg,
                                                   const symm_host_report *host),
                                      void *arg) SYMM_MUST_CHECK;

/*
 * Binds the calling process, before it starts threads, to its share of the machine: the cores
 * of its allowed set, split evenly over local_size ranks in topology order, so that a rank
 * stays within one NUMA node where it can. On a host with NVIDIA GPUs for all ranks (or with
 * SYMM_BACKEND=cuda, never with =host) local rank r has device r modulo their number and gets
 * cores near it; symmrun(1), --bind, has the rules. CUDA is not started. where (may be NULL)
 * gets a short text as "cores 0-3, NUMA node 0, near GPU 0000:1b:00.0".
 */
SYMM_API symm_status symm_bind_self(int local_rank, int local_size, char *where,
                                    size_t where_bytes) SYMM_MUST_CHECK;
/* Writes the machine as hwloc sees it to a descriptor; format "text" or "json". */
SYMM_API symm_status symm_topology_write(int fd, const char *format) SYMM_MUST_CHECK;
/*
 * Writes what there is of CUDA: the driver or why there is none, kernels, devices, which
 * reaches which; format "text" or "json". probe: tries memory handles, copies between all
 * devices and fabric handles (as text, only what that gave); SYMM_ERR_UNSUPPORTED if a proof
 * failed, once all is written.
 */
SYMM_API symm_status symm_cuda_write(int fd, const char *format,
                                     bool probe) SYMM_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
