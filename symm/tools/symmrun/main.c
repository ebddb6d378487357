/* SPDX-License-Identifier: MIT */
/*
 * main.c - starts N ranks of a program on this host and waits for their end.
 *
 * Guarantees: every rank ends, and nothing of the job's process groups is left, when
 * symmrun ends, however it ends; the exit status is that of the first rank that failed;
 * lines of output stay whole; if a rank cannot be started, all end. Uses libsymm for
 * binding and its version only: the ranks need not use the library.
 */
#include "tools/symmrun/symmrun.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/common/args.h"

enum { SIGNALS_AT, FAILURE_AT, QUEUES_AT, STREAMS_AT = QUEUES_AT + 2 };

/* 0: rank 0's stdout, 1: its stderr, 2: rank 1's stdout, ... */
static struct symmrun_stream *stream_at(struct symmrun *run, size_t index)
{
    return &run->ranks[index / 2].streams[index % 2];
}

/* ---- Starting -------------------------------------------------------------------- */

/* *end: where the rank writes, a pipe that the stream reads or a file. False: the error was
 * printed. */
static bool open_stream(struct symmrun *run, int rank, int which, int *end)
{
    struct symmrun_stream *stream = &run->ranks[rank].streams[which];
    int ends[2];

    if (run->options.log_dir) {
        int fd = symmrun_log_open(run, rank, which);

        if (fd < 0)
            return false;
        if (!run->options.tee) {
            *end = fd;
            return true;
        }
        stream->log_fd = fd;
    }
    if (pipe2(ends, O_CLOEXEC) == 0) {
        stream->fd = ends[0];
        *end = ends[1];
        if (fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0)
            return true;
    }
    symmrun_say(run, "cannot start rank %d: no pipe: %s", rank, strerror(errno));
    return false;
}

/* False: the error was printed. */
static bool start_rank(struct symmrun *run, int rank)
{
    int ends[2] = {-1, -1};
    bool opened =
        open_stream(run, rank, 0, &ends[0]) && open_stream(run, rank, 1, &ends[1]);
    pid_t pid = opened ? symmrun_spawn(&run->job, rank, ends[0], ends[1]) : -1;

    if (opened && pid < 0)
        symmrun_say(run, "cannot start rank %d: %s", rank, strerror(errno));
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0)
            close(ends[i]);
    }
    if (pid < 0)
        return false;
    run->ranks[rank].pid = pid;
    run->running++;
    symmrun_reaper_add(&run->reaper, pid);
    return true;
}

static void start(struct symmrun *run)
{
    int failure[2];

    for (size_t i = 0; i < 2 * (size_t)run->options.ranks; i++)
        *stream_at(run, i) = (struct symmrun_stream){
            .fd = -1,
            .log_fd = -1,
            .rank = run->options.prefix ? (int)(i / 2) : -1,
            .to = &run->queues[i % 2],
        };
    if (run->broken)
        return;
    if (pipe2(failure, O_CLOEXEC | O_NONBLOCK) != 0) {
        symmrun_say(run, "no pipe: %s", strerror(errno));
        run->broken = true;
        return;
    }
    run->failure_fd = failure[0];
    run->job.failure_fd = failure[1];
    for (int rank = 0; rank < run->options.ranks; rank++) {
        if (!start_rank(run, rank)) {
            symmrun_watch_break(run);
            break;
        }
    }
    close(failure[1]);
    if (run->options.timeout > 0)
        run->timeout_at = symm__now() + run->options.timeout;
}

/* ---- Running --------------------------------------------------------------------- */

static void read_signals(struct symmrun *run)
{
    struct signalfd_siginfo info;
    bool child = false;

    while (read(run->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD)
            child = true;
        else
            symmrun_watch_signal(run, (int)info.ssi_signo);
    }
    if (child)
        symmrun_watch_children(run);
}

/* Fills the array for poll; returns how many entries. */
static size_t watch_all(struct symmrun *run, struct pollfd *fds, size_t *store_count)
{
    const size_t streams = 2 * (size_t)run->options.ranks;

    fds[SIGNALS_AT] = (struct pollfd){.fd = run->signal_fd, .events = POLLIN};
    fds[FAILURE_AT] = (struct pollfd){.fd = run->failure_fd, .events = POLLIN};
    for (int i = 0; i < 2; i++) {
        const struct symmrun_queue *queue = &run->queues[i];

        fds[QUEUES_AT + i] = (struct pollfd){
            .fd = queue->end > queue->begin ? queue->fd : -1, .events = POLLOUT};
    }
    for (size_t i = 0; i < streams; i++) {
        const struct symmrun_stream *stream = stream_at(run, i);

        fds[STREAMS_AT + i] = (struct pollfd){
            .fd = symmrun_queue_full(stream->to) ? -1 : stream->fd, .events = POLLIN};
    }
    symmrun_store_watch(run->store, fds + STREAMS_AT + streams, store_count);
    symmrun_nodes_watch(run->nodes, fds + STREAMS_AT + streams + *store_count);
    return STREAMS_AT + streams + *store_count + symmrun_nodes_most(run->nodes);
}

int symmrun_milliseconds(double until)
{
    double left = 1e3 * (until - symm__now());

    if (until >= SYMMRUN_NEVER)
        return -1;
    return left <= 0 ? 0 : left > 1e6 ? 1000000 : (int)left + 1;
}

/* For poll, until something is due. */
static int time_left(const struct symmrun *run)
{
    double due = symmrun_store_due(run->store);

    if (run->phase != SYMMRUN_RUNNING && run->next < due)
        due = run->next;
    if (run->phase == SYMMRUN_RUNNING && run->timeout_at < due)
        due = run->timeout_at;
    return symmrun_milliseconds(due);
}

bool symmrun_output_pending(const struct symmrun *run)
{
    return run->queues[0].end > run->queues[0].begin ||
           run->queues[1].end > run->queues[1].begin;
}

/* After the last rank: over, once its output has arrived and gone. */
static void check_output(struct symmrun *run)
{
    bool open = false;

    if (run->phase != SYMMRUN_DRAINING && run->phase != SYMMRUN_SWEPT)
        return;
    for (size_t i = 0; i < 2 * (size_t)run->options.ranks; i++)
        open = open || stream_at(run, i)->fd >= 0;
    if (symmrun_output_pending(run)) {
        /* The time limit is for processes that the ranks left behind, not for a slow reader. */
        if (run->next < symm__now() + 0.5)
            run->next = symm__now() + 0.5;
    } else if (!open) {
        run->phase = SYMMRUN_OVER;
    }
}

/*
 * Once for each of stdout and stderr that cannot be written any more. If its reader has
 * gone, the ranks' pipes are closed, so that they get SIGPIPE as if they wrote there
 * themselves. Pipes whose bytes also go to a file (--tee) stay open.
 */
static void check_queue(struct symmrun *run, int which)
{
    struct symmrun_queue *queue = &run->queues[which];

    if (queue->error == EPIPE) {
        for (int rank = 0; rank < run->options.ranks; rank++)
            if (run->ranks[rank].streams[which].log_fd < 0)
                symmrun_stream_close(&run->ranks[rank].streams[which]);
    } else if (queue->error != 0) {
        run->lost = true;
        symmrun_say(run, "%s: %s; what the ranks write there is lost",
                    which == 0 ? "stdout" : "stderr", strerror(queue->error));
    }
    queue->error = 0;
}

static void serve_all(struct symmrun *run, const struct pollfd *fds, size_t store_count)
{
    const size_t streams = 2 * (size_t)run->options.ranks;

    for (size_t i = 0; i < streams; i++) {
        if (!fds[STREAMS_AT + i].revents)
            continue;
        symmrun_stream_read(stream_at(run, i));
        symmrun_log_check(run, (int)(i / 2), (int)(i % 2));
    }
    /* Why a rank has not become its program is known before its end is. */
    if (fds[FAILURE_AT].revents)
        symmrun_watch_failure(run);
    if (fds[SIGNALS_AT].revents)
        read_signals(run);
    symmrun_store_serve(run->store, fds + STREAMS_AT + streams, store_count);
    symmrun_nodes_serve(run->nodes, fds + STREAMS_AT + streams + store_count);
    for (int i = 0; i < 2; i++) {
        symmrun_queue_flush(&run->queues[i]);
        check_queue(run, i);
    }
    /* Before the clock, which would else end the job in a reader's pause. */
    check_output(run);
    symmrun_watch_clock(run);
}

static void loop(struct symmrun *run)
{
    const size_t own = STREAMS_AT + 2 * (size_t)run->options.ranks;
    size_t capacity = 0, store_count = 0;
    struct pollfd *fds = NULL;

    while (run->phase != SYMMRUN_OVER) {
        size_t wanted =
            own + symmrun_store_most(run->store) + symmrun_nodes_most(run->nodes);
        size_t count;

        if (wanted > capacity) {
            struct pollfd *grown = realloc(fds, 2 * wanted * sizeof(*fds));

            if (!grown) {
                symmrun_say(run, "no memory");
                symmrun_watch_break(run);
                break;
            }
            fds = grown;
            capacity = 2 * wanted;
        }
        count = watch_all(run, fds, &store_count);
        if (poll(fds, (nfds_t)count, time_left(run)) < 0) {
            if (errno != EINTR && errno != EAGAIN && errno != ENOMEM)
                break;
            continue;
        }
        serve_all(run, fds, store_count);
    }
    free(fds);
}

/* Kills the processes left in the ranks' groups, and waits a moment for their end. */
static void sweep(struct symmrun *run)
{
    double until = symm__now() + 0.2;

    for (int i = 0; i < run->options.ranks; i++) {
        pid_t pid = run->ranks[i].pid;

        if (pid == 0)
            continue;
        kill(-pid, SIGKILL);
        waitpid(pid, NULL, run->ranks[i].ended ? 0 : WNOHANG);
    }
    for (int i = 0; i < run->options.ranks; i++) {
        pid_t pid = run->ranks[i].pid;

        while (pid > 0 && kill(-pid, 0) == 0 && symm__now() < until)
            symm__sleep(0.005);
    }
}

/*
 * Ends the rest of the job and writes the queued output. False: output of the ranks was
 * lost.
 */
static bool finish(struct symmrun *run)
{
    bool whole = true;

    sweep(run);
    symmrun_runtime_remove(&run->job.runtime);
    symmrun_reaper_dismiss(&run->reaper);
    for (size_t i = 0; i < 2 * (size_t)run->options.ranks; i++)
        symmrun_stream_close(stream_at(run, i));
    if (run->log_dir >= 0)
        close(run->log_dir);
    symmrun_nodes_destroy(run->nodes);
    symmrun_store_destroy(run->store);
    for (int i = 0; i < 2; i++) {
        symmrun_queue_flush(&run->queues[i]);
        whole = whole && (run->queues[i].error == 0 || run->queues[i].error == EPIPE);
        free(run->queues[i].data);
    }
    free(run->ranks);
    return whole;
}

int main(int argc, char **argv)
{
    struct symmrun run = {.phase = SYMMRUN_RUNNING,
                          .next = SYMMRUN_NEVER,
                          .timeout_at = SYMMRUN_NEVER,
                          .first_failed = -1,
                          .signal_fd = -1,
                          .failure_fd = -1,
                          .log_dir = -1,
                          .job.runtime.lock = -1,
                          .queues = {{.fd = STDOUT_FILENO}, {.fd = STDERR_FILENO}}};
    int status;

    (void)sigaction(SIGXFSZ, NULL, &run.job.file_action); /* for the ranks */
    args_guard_streams();
    status = symmrun_options_parse(&run.options, argc, argv);
    if (status >= 0)
        return status;
    run.ranks = calloc((size_t)run.options.ranks, sizeof(*run.ranks));
    if (!run.ranks || !symmrun_prepare(&run)) {
        fprintf(stderr, "symmrun: cannot start: %s\n", strerror(errno));
        symmrun_runtime_remove(&run.job.runtime);
        symmrun_reaper_dismiss(&run.reaper);
        symmrun_nodes_destroy(run.nodes);
        symmrun_store_destroy(run.store);
        free(run.ranks);
        return 1;
    }
    start(&run);
    if (run.running == 0)
        run.phase = SYMMRUN_DRAINING;
    loop(&run);
    status = symmrun_watch_status(&run);
    if (status != 0)
        symmrun_nodes_failed(run.nodes, status);
    if (!finish(&run) && status == 0)
        status = 1;
    if (status != 0)
        symmrun_calls_show(&run.job);
    return status;
}
