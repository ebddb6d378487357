/* SPDX-License-Identifier: MIT */
/*
 * prepare.c - makes all that precedes the first rank: the reaper, limits, a descriptor
 * for signals, the names and secret of the job, and the store.
 *
 * Random numbers come from the kernel. A failure leaves errno; no rank has been started.
 */
#include "tools/symmrun/symmrun.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

static bool random_hex(char text[33])
{
    unsigned char bytes[16];

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return false;
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

/* From here on signals arrive at signal_fd. */
static bool take_signals(struct symmrun *run)
{
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    struct sigaction before;
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        /* nohup(1) stays in force; but SIGINT is sent on purpose by scripts, too. */
        if (sigaction(ends[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN &&
            ends[i] != SIGINT && ends[i] != SIGTERM)
            continue;
        sigaddset(&set, ends[i]);
    }
    if (sigprocmask(SIG_BLOCK, &set, &run->job.signals) != 0 ||
        sigaction(SIGPIPE, &ignore, &run->job.pipe_action) != 0)
        return false;
    run->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return run->signal_fd >= 0;
}

/* Raises symmrun's own limit of descriptors; the ranks start with the former one. */
static bool raise_limit(struct symmrun *run)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &run->job.files) != 0)
        return false;
    limit = run->job.files;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

/* Not with more ranks than CPUs: two ranks bound to one CPU could not use a free one. */
static bool should_bind(struct symmrun *run)
{
    cpu_set_t allowed;
    int cpus;

    if (!run->options.bind)
        return false;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
        return true; /* more CPUs than the set has room for */
    cpus = CPU_COUNT(&allowed);
    if (run->options.ranks > cpus && run->options.verbose)
        symmrun_say(run, "%d ranks on %d CPUs: not binding", run->options.ranks, cpus);
    return run->options.ranks <= cpus;
}

/* Over several nodes: the user's, the same on all nodes, or a new one that node 0 prints. */
static bool take_secret(struct symmrun *run)
{
    const char *given = getenv("SYMM_SECRET");

    if (run->options.nodes == 1 || !given || !*given) {
        if (!random_hex(run->job.secret))
            return false;
        if (run->options.nodes > 1)
            symmrun_say(run, "give the other nodes SYMM_SECRET=%s", run->job.secret);
        symmrun_queue_flush(&run->queues[1]);
        return true;
    }
    snprintf(run->job.secret, sizeof(run->job.secret), "%s", given); /* was checked */
    return true;
}

static bool name_job(struct symmrun *run)
{
    uint8_t secret[SYMMRUN_SECRET_BYTES];
    const struct symmrun_options *options = &run->options;
    int port, fd = symmrun_store_listen(&port);

    if (fd >= 0)
        close(fd); /* the port is not kept: rank 0 may want to listen there */
    if (fd < 0 || !random_hex(run->job.id) || !take_secret(run))
        return false;
    for (size_t i = 0; i < sizeof(secret); i++) {
        unsigned byte = 0;

        if (sscanf(run->job.secret + 2 * i, "%2x", &byte) == 1)
            secret[i] = (uint8_t)byte;
    }
    snprintf(run->job.port, sizeof(run->job.port), "%d", port);
    snprintf(run->job.master, sizeof(run->job.master), "127.0.0.1");
    if (options->nodes > 1 && !symmrun_nodes_join(run, secret))
        run->broken = true; /* it has said why */
    run->store =
        symmrun_store_create(options->node * options->ranks, options->ranks,
                             options->nodes * options->ranks, secret, run->nodes);
    if (!run->store)
        return false;
    snprintf(run->job.store, sizeof(run->job.store), "127.0.0.1:%d",
             symmrun_store_port(run->store));
    return true;
}

/*
 * The directory comes first, since the reaper removes it, then the reaper: it must not hold
 * what is opened later.
 */
bool symmrun_prepare(struct symmrun *run)
{
    run->job.options = &run->options;
    symmrun_runtime_make(&run->job.runtime);
    symmrun_memory_begin(&run->memory);
    if (!symmrun_reaper_start(&run->reaper, &run->job.runtime) || !raise_limit(run) ||
        !take_signals(run) || !name_job(run))
        return false;
    run->job.bind = should_bind(run);
    if (!symmrun_log_open_directory(run))
        run->broken = true;
    return true;
}
