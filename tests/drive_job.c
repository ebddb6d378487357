/* SPDX-License-Identifier: MIT */
/* drive_job.c - a job of test_driver_simulate.c, made by its seed: ranks, steps and their fault. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drive.h"

char drive_root[64];

static uint64_t below(uint64_t *state, uint64_t count)
{
    return harness_random(state) % count;
}

const char *drive_fault_name(enum fault fault)
{
    static const char *const names[FAULTS] = {
        "no fault", "late for a while",    "late",    "absent",
        "killed",   "stopped for a while", "stopped", "leaves"};

    return names[fault];
}

static const char *variable(int rank, const char *name, void *arg)
{
    struct drive *job = arg;

    (void)rank;
    if (strcmp(name, "SYMM_RUNTIME_DIR") == 0)
        return job->folder;
    if (strcmp(name, "SYMM_BACKEND") == 0)
        return "cuda";
    if (strcmp(name, "SYMM_LOG") == 0)
        return "info";
    if (strcmp(name, "SYMM_SPIN") == 0)
        return "1";
    if (strcmp(name, "SYMM_KERNELS") == 0)
        return job->kernels[0] ? job->kernels : NULL;
    if (strcmp(name, "SYMM_SIGHT") == 0)
        return job->sight ? "1" : NULL;
    if (strcmp(name, "SYMM_ENGINE") == 0) /* a real NCCL would be found */
        return "none";
    if (strcmp(name, "SYMM_QUEUE_TIMEOUT") == 0)
        return job->queue;
    return NULL;
}

static void choose_fault(struct drive *job, uint64_t *state)
{
    struct sim_config *sim = &job->sim;
    const int r = (int)below(state, (uint64_t)job->ranks);

    job->fault = (enum fault)below(state, FAULTS);
    job->culprit = job->fault == NO_FAULT ? -1 : r;
    job->at = (int)below(state, (uint64_t)job->steps);
    switch (job->fault) {
    case LATE_BRIEFLY:
        job->late = job->queue_timeout * (0.2 + 1e-3 * (double)below(state, 500));
        break;
    case LATE_LONG:
        job->late =
            job->queue_timeout + 2 * job->timeout + 1e-3 * (double)below(state, 1000);
        break;
    case ABSENT:
        job->late = 4 * job->timeout + 1e-3 * (double)below(state, 1000);
        break;
    case KILLED:
        sim->die_at[r] = 1 + below(state, below(state, 2) ? 3000 : 12000);
        job->timeout = 5; /* a death is noticed before */
        job->queue_timeout = 10;
        break;
    case STOPPED_BRIEFLY:
    case STOPPED_LONG:
        sim->stop_at[r] = 1 + below(state, 8000);
        sim->stop_seconds[r] =
            job->fault == STOPPED_LONG
                ? 3 * job->timeout + 1e-3 * (double)below(state, 2000)
                : job->timeout * 1e-3 * (double)below(state, 300);
        break;
    default:
        break;
    }
    job->waits =
        below(state, 2) && (job->fault == KILLED || job->fault == STOPPED_BRIEFLY ||
                            job->fault == STOPPED_LONG);
    if (job->waits)
        sim->die_at[r] = sim->stop_at[r] = 0;
}

/* SYMM_TEST_WITHOUT=class: the job as it is without that class of faults. */
static void leave_out(struct drive *job, const char *what)
{
    struct sim_config *sim = &job->sim;
    const bool late = job->fault == LATE_BRIEFLY || job->fault == LATE_LONG;
    const bool stopped = job->fault == STOPPED_BRIEFLY || job->fault == STOPPED_LONG;

    if (strcmp(what, "delay") == 0) {
        sim->slow = 0;
    } else if (strcmp(what, "interruption") == 0) {
        sim->interrupt = 0;
    } else if (strcmp(what, "lag") == 0) {
        sim->lag = 0;
    } else if (strcmp(what, "operation") == 0) {
        job->driver.slow = 0;
    } else if ((strcmp(what, "late") == 0 && late) ||
               (strcmp(what, "absence") == 0 && job->fault == ABSENT) ||
               (strcmp(what, "leave") == 0 && job->fault == LEAVES) ||
               (strcmp(what, "death") == 0 && job->fault == KILLED) ||
               (strcmp(what, "stop") == 0 && stopped)) {
        job->fault = NO_FAULT;
        job->waits = false;
        memset(sim->die_at, 0, sizeof(sim->die_at));
        memset(sim->stop_at, 0, sizeof(sim->stop_at));
    }
}

void drive_choose(struct drive *job, uint64_t seed)
{
    const char *without = getenv("SYMM_TEST_WITHOUT");
    uint64_t state = seed * UINT64_C(0xd1342543de82ef95) + 11;
    const char *kernels = getenv("SYMM_KERNELS");

    *job = (struct drive){.seed = seed,
                          .ranks = 2 + (int)below(&state, 2),
                          .timeout = 0.8,
                          .queue_timeout = 3,
                          .steps = 2 + (int)below(&state, 4)};
    for (int i = 0; i < job->steps; i++)
        job->step[i] = (enum step)below(&state, STEP_KINDS);
    snprintf(job->folder, sizeof(job->folder), "%s/job", drive_root);
    snprintf(job->kernels, sizeof(job->kernels), "%s", kernels ? kernels : "");
    job->sim = (struct sim_config){.seed = seed,
                                   .ranks = job->ranks,
                                   .body = drive_body,
                                   .arg = job,
                                   .variable = variable,
                                   .slow = (unsigned)below(&state, 3) * 100,
                                   .interrupt = (unsigned)below(&state, 3) * 10,
                                   .lag = (unsigned)below(&state, 3) * 100,
                                   .lag_seconds = below(&state, 2) ? 0.03 : 0.2,
                                   .latency = 1e-4,
                                   .room = 212992,
                                   .limit = 200,
                                   .libraries = true,
                                   .trace = harness_env("SYMM_TEST_TRACE", 0) != 0};
    job->driver = (struct sim_driver_config){.slow = (unsigned)below(&state, 3) * 10,
                                             .slow_seconds = 0.08};
    choose_fault(job, &state);
    job->haste = below(&state, 4) == 0;
    job->sight = below(&state, 4) == 0;
    if (without)
        leave_out(job, without);
    snprintf(job->queue, sizeof(job->queue), "%g", job->queue_timeout);
}
