/* SPDX-License-Identifier: MIT */
/*
 * watch.c - how the job goes on: ends of ranks, failures, signals, deadlines.
 *
 * A rank that has ended stays a zombie until symmrun ends: its process id, and so the
 * id of its process group, cannot be used again, and a signal to that group reaches only
 * processes that the rank has started. Every phase has a time limit, so the job ends.
 */
#include "tools/symmrun/symmrun.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define KILL_AFTER    1.0 /* seconds from SIGTERM to SIGKILL */
#define GIVE_UP_AFTER 10  /* seconds from SIGKILL until the ranks are left alone */
#define DRAIN_SECONDS 1.0 /* for the output of what the ranks have left behind */
#define SWEEP_SECONDS 0.5

void symmrun_say(struct symmrun *run, const char *format, ...)
{
    char text[1024] = "symmrun: ";
    size_t used = strlen(text);
    va_list args;

    va_start(args, format);
    vsnprintf(text + used, sizeof(text) - used - 1, format, args);
    va_end(args);
    strcat(text, "\n");
    symmrun_queue_put(&run->queues[1], text, strlen(text));
}

static const char *signal_name(int number, char *text, size_t bytes)
{
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 32)
    const char *name = sigabbrev_np(number);

    if (name) {
        snprintf(text, bytes, "SIG%s", name);
        return text;
    }
#endif
    snprintf(text, bytes, "signal %d", number);
    return text;
}

/* "rank 0, rank 2 and 5 more": those that have not ended. */
static const char *still_running(const struct symmrun *run, char *text, size_t bytes)
{
    int shown = 0;
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < run->options.ranks && shown < 8; i++) {
        if (run->ranks[i].pid == 0 || run->ranks[i].ended)
            continue;
        used += (size_t)snprintf(text + used, bytes - used, "%srank %d",
                                 shown ? ", " : "", i);
        shown++;
    }
    if (run->running > shown)
        snprintf(text + used, bytes - used, " and %d more", run->running - shown);
    return text;
}

/* To the groups of all ranks: a rank that has ended may have left processes in its group. */
static void signal_all(struct symmrun *run, int number)
{
    for (int i = 0; i < run->options.ranks; i++) {
        if (run->ranks[i].pid > 0)
            kill(-run->ranks[i].pid, number);
    }
}

static void enter(struct symmrun *run, enum symmrun_phase phase, double seconds)
{
    run->phase = phase;
    run->next = symm__now() + seconds;
}

/* `why` ends a sentence that is said even without --verbose; NULL: there is none. */
static void terminate_all(struct symmrun *run, const char *why)
{
    char text[160];

    if ((why || run->options.verbose) && run->running > 0)
        symmrun_say(run, "SIGTERM to %s%s", still_running(run, text, sizeof(text)),
                    why ? why : "");
    signal_all(run, SIGTERM);
    enter(run, SYMMRUN_TERMINATED, KILL_AFTER);
}

/* `why` ends the sentence. */
static void kill_all(struct symmrun *run, const char *why)
{
    char text[160];

    /* For a program that cannot be run there is one message already. */
    if (run->running > 0 && (!run->not_run || run->options.verbose))
        symmrun_say(run, "SIGKILL to %s%s", still_running(run, text, sizeof(text)),
                    why);
    signal_all(run, SIGKILL);
    enter(run, SYMMRUN_KILLED, GIVE_UP_AFTER);
}

void symmrun_watch_break(struct symmrun *run)
{
    run->broken = true;
    if (run->phase == SYMMRUN_RUNNING)
        terminate_all(run, NULL);
}

/*
 * SIGUSR1 and SIGUSR2 go to the rank's process alone: their default action would end what
 * the program has started. A process that is still symmrun's own code has no handler yet,
 * so the signal waits until every rank has become its program.
 */
static void pass_on(struct symmrun *run, int number, const char *name)
{
    if (run->failure_fd >= 0 || run->ranks[0].pid == 0) {
        sigaddset(&run->held, number);
        return;
    }
    if (run->options.verbose)
        symmrun_say(run, "%s: passed on to the ranks", name);
    for (int i = 0; i < run->options.ranks; i++) {
        if (run->ranks[i].pid > 0 && !run->ranks[i].ended)
            kill(run->ranks[i].pid, number);
    }
}

void symmrun_watch_signal(struct symmrun *run, int signal_number)
{
    char name[24];

    if (signal_number == SIGUSR1 || signal_number == SIGUSR2) {
        signal_name(signal_number, name, sizeof(name));
        pass_on(run, signal_number, name);
        return;
    }
    run->signals++;
    run->last_signal = signal_number;
    signal_name(signal_number, name, sizeof(name));
    if (run->phase >= SYMMRUN_DRAINING) {
        /* stop waiting for a reader of the output */
        run->phase = SYMMRUN_OVER;
    } else if (run->signals > 1) {
        symmrun_say(run, "%s again: killing the ranks", name);
        kill_all(run, "");
    } else {
        symmrun_say(run, "%s: passed on to the ranks", name);
        signal_all(run, signal_number);
        if (run->phase == SYMMRUN_RUNNING)
            enter(run, SYMMRUN_ASKED, run->options.grace);
    }
}

/* Reports how the first failed rank has ended, and what the other ranks are given. */
static void report_failure(struct symmrun *run, int rank)
{
    const struct symmrun_rank *failed = &run->ranks[rank];
    char how[64], name[24], others[64] = "", where[320] = "", memory[560] = "";

    if (failed->by_signal)
        snprintf(how, sizeof(how), "was killed by %s (signal %d)",
                 signal_name(failed->code, name, sizeof(name)), failed->code);
    else
        snprintf(how, sizeof(how), "exited with status %d", failed->code);
    if (run->running > 0 && run->phase == SYMMRUN_RUNNING)
        snprintf(others, sizeof(others), "; the other ranks have %g s to end",
                 run->options.grace);
    if (run->options.log_dir)
        snprintf(where, sizeof(where), "; see %.256s/rank%d.err", run->options.log_dir,
                 rank);
    symmrun_memory_struck(&run->memory, memory, sizeof(memory));
    symmrun_say(run, "rank %d %s%s%s%s", rank, how, memory, others, where);
}

static bool has_ended(struct symmrun_rank *rank)
{
    siginfo_t info = {0};

    if (waitid(P_PID, (id_t)rank->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid != rank->pid)
        return false;
    rank->ended = true;
    rank->by_signal = info.si_code != CLD_EXITED;
    rank->code = info.si_status;
    return true;
}

/*
 * Of several ranks that ended since the last poll, one that was killed is taken as the first:
 * those that exit with an error have mostly done so because of that death.
 */
static bool comes_before(const struct symmrun *run, int rank, int other)
{
    return other < 0 || (run->ranks[rank].by_signal && !run->ranks[other].by_signal);
}

void symmrun_watch_children(struct symmrun *run)
{
    int failed = -1;

    for (int i = 0; i < run->options.ranks; i++) {
        struct symmrun_rank *rank = &run->ranks[i];

        if (rank->pid == 0 || rank->ended || !has_ended(rank))
            continue;
        run->running--;
        if ((rank->by_signal || rank->code != 0) && comes_before(run, i, failed))
            failed = i;
    }
    if (failed >= 0 && run->first_failed < 0) {
        run->first_failed = failed;
        if (!run->not_run && run->signals == 0 && !run->timed_out && !run->broken)
            report_failure(run, failed);
        if (run->phase == SYMMRUN_RUNNING)
            enter(run, SYMMRUN_ASKED, run->not_run ? 0 : run->options.grace);
    }
    if (run->phase != SYMMRUN_RUNNING && run->phase < SYMMRUN_DRAINING)
        symmrun_nodes_failed(run->nodes, symmrun_watch_status(run));
    if (run->running == 0 && run->phase < SYMMRUN_DRAINING)
        enter(run, SYMMRUN_DRAINING, DRAIN_SECONDS);
}

void symmrun_watch_node(struct symmrun *run, int node, int status)
{
    if (run->first_failed >= 0 || run->node_status != 0)
        return;
    run->node_status = status > 0 ? status : 1;
    if (run->running > 0 && run->phase == SYMMRUN_RUNNING)
        symmrun_say(run, "node %d has failed; the ranks of node %d have %g s to end",
                    node, run->options.node, run->options.grace);
    if (run->phase == SYMMRUN_RUNNING)
        enter(run, SYMMRUN_ASKED, run->options.grace);
}

void symmrun_watch_failure(struct symmrun *run)
{
    struct symmrun_failure failure;
    ssize_t got = read(run->failure_fd, &failure, sizeof(failure));

    if (got == (ssize_t)sizeof(failure)) {
        failure.what[sizeof(failure.what) - 1] = '\0';
        /* Mostly it is the same for every rank: once is enough. */
        if (!run->not_run)
            symmrun_say(run, "%s '%s': %s", failure.what, run->options.program[0],
                        strerror(failure.error));
        run->not_run = true;
    } else if (got >= 0 || (errno != EAGAIN && errno != EINTR)) {
        close(run->failure_fd); /* every rank has become its program */
        run->failure_fd = -1;
        if (sigismember(&run->held, SIGUSR1) == 1)
            symmrun_watch_signal(run, SIGUSR1);
        if (sigismember(&run->held, SIGUSR2) == 1)
            symmrun_watch_signal(run, SIGUSR2);
        sigemptyset(&run->held);
    }
}

static void time_out(struct symmrun *run)
{
    char text[160];

    run->timed_out = true;
    symmrun_say(run, "timeout after %g s: ending %s", run->options.timeout,
                still_running(run, text, sizeof(text)));
    terminate_all(run, NULL);
}

void symmrun_watch_clock(struct symmrun *run)
{
    double now = symm__now();
    char text[160];

    if (run->phase == SYMMRUN_RUNNING && now >= run->timeout_at)
        time_out(run);
    if (now < run->next)
        return;
    switch (run->phase) {
    case SYMMRUN_RUNNING:
        break;
    case SYMMRUN_ASKED:
        snprintf(text, sizeof(text), ", not ended after %g s", run->options.grace);
        terminate_all(run, run->not_run ? NULL : text);
        break;
    case SYMMRUN_TERMINATED:
        kill_all(run, ", not ended by SIGTERM");
        break;
    case SYMMRUN_KILLED:
        symmrun_say(run, "SIGKILL does not end %s: leaving them",
                    still_running(run, text, sizeof(text)));
        run->phase = SYMMRUN_OVER;
        break;
    case SYMMRUN_DRAINING:
        signal_all(run, SIGKILL);
        enter(run, SYMMRUN_SWEPT, SWEEP_SECONDS);
        break;
    case SYMMRUN_SWEPT:
    case SYMMRUN_OVER:
        run->phase = SYMMRUN_OVER;
        break;
    }
}

int symmrun_watch_status(const struct symmrun *run)
{
    if (run->timed_out)
        return 124;
    if (run->not_run)
        return 127;
    if (run->broken) /* without ranks a signal has ended the wait for other nodes */
        return run->signals > 0 && run->ranks[0].pid == 0 ? 128 + run->last_signal : 1;
    if (run->node_status != 0)
        return run->node_status;
    if (run->first_failed >= 0) {
        const struct symmrun_rank *failed = &run->ranks[run->first_failed];

        return failed->by_signal ? 128 + failed->code : failed->code;
    }
    /* Ranks that outlive SIGKILL, or output nobody takes: the signal ends symmrun. */
    if (run->signals > 0 && (run->running > 0 || symmrun_output_pending(run)))
        return 128 + run->last_signal;
    return run->running > 0 || run->lost ? 1 : 0;
}
