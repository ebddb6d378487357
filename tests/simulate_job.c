/* SPDX-License-Identifier: MIT */
/*
 * simulate_job.c - a job of test_host_simulate.c, made by its seed: ranks and hosts, the bootstrap,
 * steps, deaths, stops, cuts of the network and lack of memory.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "simulate.h"

char simulate_root[64];

static uint64_t below(uint64_t *state, uint64_t count)
{
    return harness_random(state) % count;
}

static const char *variable(int rank, const char *name, void *arg)
{
    struct job *job = arg;
    static char text[RANKS][32];

    if (strcmp(name, "SYMM_RUNTIME_DIR") == 0)
        return job->folder;
    if (strcmp(name, "SYMM_BACKEND") == 0)
        return "host";
    if (strcmp(name, "SYMM_LOG") == 0)
        return "info";
    if (strcmp(name, "SYMM_SPIN") == 0)
        return "1";
    if (job->hosts == 1)
        return NULL;
    if (strcmp(name, "SYMM_HOST_ID") == 0) {
        snprintf(text[rank], sizeof(text[rank]), "%c", job->host[rank]);
        return text[rank];
    }
    if (strcmp(name, "SYMM_HOST_ADDRESS") == 0)
        return "127.0.0.1";
    if (job->way == BY_PORT && strcmp(name, "SYMM_BOOTSTRAP_PORT") == 0)
        return "29999";
    if (job->way == BY_PORT && strcmp(name, "SYMM_BOOTSTRAP_ADDR") == 0)
        return "127.0.0.1";
    if (job->way == BY_PORT && strcmp(name, "SYMM_JOB_SECRET") == 0)
        return "000102030405060708090a0b0c0d0e0f";
    if (strcmp(name, "SYMM_ENGINE") == 0)
        return "/sim/engine";
    if (strcmp(name, "SYMM_FAKE_ENGINE_DIR") == 0)
        return job->engines;
    return NULL;
}

static void choose_faults(struct job *job, uint64_t *state)
{
    struct sim_config *sim = &job->sim;
    const uint64_t kind = below(state, 8); /* 0, 1: none */
    int deaths =
        kind >= 2 && kind <= 5 ? 1 + (int)below(state, (uint64_t)job->ranks - 1) : 0;
    int stops = kind >= 5 ? 1 + (int)below(state, 2) : 0;

    for (int i = 0; i < deaths; i++) {
        const int r = (int)below(state, (uint64_t)job->ranks);
        const uint64_t most = below(state, 2) ? 250 : 1000;

        job->deaths |= UINT64_C(1) << r;
        sim->die_at[r] = 1 + below(state, most);
    }
    for (int i = 0; i < stops; i++) {
        const int r = (int)below(state, (uint64_t)job->ranks);
        const bool is_long = below(state, 2);

        sim->stop_at[r] = 1 + below(state, 700);
        sim->stop_seconds[r] = is_long ? TIMEOUT + 1e-3 * (double)below(state, 6000)
                                       : 1e-3 * (double)below(state, 300);
        if (is_long)
            job->stops |= UINT64_C(1) << r;
    }
    if (job->hosts > 1 && below(state, 4) == 0) {
        sim->breaks = 1 + (unsigned)below(state, 6);
        job->breaks = true;
    }
}

/* Connections that are lost at the start of a job over hosts that has no other fault, one to six in
 * all, of one host or of several: all ranks must join. */
static void choose_starts(struct job *job)
{
    uint64_t state = job->seed * UINT64_C(0xbf58476d1ce4e5b9) + 1;

    if (job->hosts == 1 || job->way != BY_PORT || job->deaths || job->stops ||
        job->breaks || below(&state, 2))
        return;
    job->sim.breaks = 32u << below(&state, 4);
    job->sim.breaks_most = 1 + (unsigned)below(&state, 6);
    job->breaks = job->starts = true;
}

#define CUT_SHORT 0.5 /* seconds, which calls bear */

/* A network that is cut in two: most jobs over hosts without another fault, some of those with
 * one. */
static void choose_cut(struct job *job)
{
    uint64_t state = job->seed * UINT64_C(0xc2b2ae3d27d4eb4f) + 3;
    const bool alone = job->deaths == 0 && job->stops == 0 && !job->breaks;
    struct sim_config *sim = &job->sim;

    if (job->hosts == 1 || below(&state, 4) >= (alone ? 3 : 1))
        return;
    sim->cut_hosts = 1 + (unsigned)below(&state, (UINT64_C(1) << job->hosts) - 2);
    sim->cut_at = 1 + 1e-3 * (double)below(&state, 300);
    switch (below(&state, 4)) {
    case 0:
        sim->cut_seconds = CUT_SHORT * 1e-3 * (double)(1 + below(&state, 1000));
        break;
    case 1:
        sim->cut_seconds = CUT_SHORT + 1e-3 * (double)below(&state, 4000);
        break;
    case 2:
        sim->cut_seconds = 4 + 1e-3 * (double)below(&state, 40000);
        break;
    default:
        sim->cut_seconds = INFINITY;
    }
    job->cut = sim->cut_seconds > CUT_SHORT;
}

/* Lack of memory, on one rank. */
static void choose_lack(struct job *job)
{
    uint64_t state = job->seed * UINT64_C(0x9fb21c651e98df25) + 5;
    const bool alone =
        job->deaths == 0 && job->stops == 0 && !job->breaks && !job->sim.cut_hosts;
    const int rank = (int)below(&state, (uint64_t)job->ranks);
    static const uint64_t most[] = {100, 1000, 4000}, lacks[] = {1, 1, 4, 1000000};

    if (below(&state, 16) >= (alone ? 8 : 1) && !harness_env("SYMM_TEST_LACK", 0))
        return;
    job->sim.lack_at[rank] = 1 + below(&state, most[below(&state, 3)]);
    job->sim.lacks[rank] = lacks[below(&state, 4)];
    job->lacks = UINT64_C(1) << rank;
}

/* SYMM_TEST_WITHOUT=class: the job as it is without that class of faults. */
static void leave_out(struct job *job, const char *what)
{
    struct sim_config *sim = &job->sim;

    if (strcmp(what, "delay") == 0) {
        sim->slow = 0;
        sim->latency = 0;
    } else if (strcmp(what, "interruption") == 0) {
        sim->interrupt = 0;
    } else if (strcmp(what, "loss") == 0) {
        sim->breaks = 0;
    } else if (strcmp(what, "cut") == 0) {
        sim->cut_hosts = 0;
        sim->cut_seconds = 0;
        job->cut = false;
    } else if (strcmp(what, "death") == 0) {
        memset(sim->die_at, 0, sizeof(sim->die_at));
        job->deaths = 0;
    } else if (strcmp(what, "stop") == 0) {
        memset(sim->stop_at, 0, sizeof(sim->stop_at));
        job->stops = 0;
    } else if (strcmp(what, "lack") == 0) {
        memset(sim->lack_at, 0, sizeof(sim->lack_at));
        job->lacks = 0;
    } else {
        fprintf(stderr,
                "SYMM_TEST_WITHOUT=%s: delay, interruption, loss, cut, death, stop or "
                "lack\n",
                what);
        exit(1);
    }
}

void simulate_choose(struct job *job, uint64_t seed)
{
    const char *without = getenv("SYMM_TEST_WITHOUT");
    uint64_t state = seed * UINT64_C(0xd1342543de82ef95) + 7;
    static const size_t rooms[] = {4096, 32768, 212992};

    *job = (struct job){.seed = seed, .ranks = 2 + (int)below(&state, 4), .hosts = 1};
    if (below(&state, 3) == 0)
        job->hosts = 2 + (int)below(&state, 2);
    if (job->ranks < job->hosts)
        job->ranks = job->hosts;
    job->way = below(&state, 4) == 0 ? BY_ALLGATHER : job->hosts > 1 ? BY_PORT : BY_KEY;
    for (int r = 0; r < job->ranks; r++)
        job->host[r] = (char)('a' + r * job->hosts / job->ranks);
    job->steps = 3 + (int)below(&state, 6);
    for (int i = 0; i < job->steps; i++)
        do
            job->step[i] = (enum step)below(&state, STEP_KINDS);
        while (job->hosts > 1 && (job->step[i] == SIGNAL || job->step[i] == SEND ||
                                  job->step[i] == CREATE));
    job->quits = below(&state, 3) == 0 ? (int)below(&state, 256) : 0;
    snprintf(job->folder, sizeof(job->folder), "%s/%d", simulate_root, (int)getpid());
    snprintf(job->engines, sizeof(job->engines), "%s.engine", job->folder);
    job->sim = (struct sim_config){.seed = seed,
                                   .ranks = job->ranks,
                                   .body = simulate_body,
                                   .arg = job,
                                   .variable = variable,
                                   .slow = (unsigned)below(&state, 3) * 200,
                                   .interrupt = (unsigned)below(&state, 3) * 10,
                                   .latency = below(&state, 2) ? 1e-4 : 5e-3,
                                   .room = rooms[below(&state, 3)],
                                   .limit = 300,
                                   .trace = harness_env("SYMM_TEST_TRACE", 0) != 0};
    for (int r = 0; r < job->ranks; r++)
        job->sim.host_of[r] = job->host[r] - 'a';
    choose_faults(job, &state);
    choose_starts(job);
    choose_cut(job);
    choose_lack(job);
    if (without)
        leave_out(job, without);
}
