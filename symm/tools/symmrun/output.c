/* SPDX-License-Identifier: MIT */
/*
 * output.c - lines of the ranks on their way to the terminal.
 *
 * Guarantees that a line of a rank stays whole, whatever the others write, up to
 * LINE_MOST bytes (a longer one is cut into lines of that length); that a last line
 * without newline is shown, with one; and that memory is bounded: when the reader of
 * symmrun's output is slow, the ranks' pipes fill up and the ranks wait, as they would
 * writing there themselves. An error of writing is kept in the queue's error or the
 * stream's log_error. Never blocks on the terminal or a pipe, so that signals and
 * deadlines are still served.
 */
#include "tools/symmrun/symmrun.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_MOST  ((size_t)16 << 20)
#define QUEUE_FULL ((size_t)1 << 20)

/* Makes room for `more` bytes after `used`. */
static bool reserve(char **data, size_t used, size_t more, size_t *capacity)
{
    size_t wanted = *capacity ? *capacity : 4096;
    char *grown;

    if (*capacity >= used + more)
        return true;
    while (wanted < used + more)
        wanted *= 2;
    grown = realloc(*data, wanted);
    if (!grown)
        return false;
    *data = grown;
    *capacity = wanted;
    return true;
}

void symmrun_queue_put(struct symmrun_queue *queue, const char *bytes, size_t count)
{
    if (queue->closed)
        return;
    if (queue->begin > 0 && queue->end + count > queue->capacity) {
        memmove(queue->data, queue->data + queue->begin, queue->end - queue->begin);
        queue->end -= queue->begin;
        queue->begin = 0;
    }
    if (!reserve(&queue->data, queue->end, count, &queue->capacity)) {
        queue->error = ENOMEM; /* a later line may fit again */
        return;
    }
    memcpy(queue->data + queue->end, bytes, count);
    queue->end += count;
}

bool symmrun_queue_full(const struct symmrun_queue *queue)
{
    return queue->end - queue->begin >= QUEUE_FULL;
}

void symmrun_queue_flush(struct symmrun_queue *queue)
{
    struct pollfd entry = {.fd = queue->fd, .events = POLLOUT};

    /*
     * The descriptor is shared with other programs and stays blocking; but a pipe or a
     * terminal that poll calls writable takes PIPE_BUF bytes at once.
     */
    while (queue->begin < queue->end && poll(&entry, 1, 0) == 1) {
        size_t count = queue->end - queue->begin;
        ssize_t written = write(queue->fd, queue->data + queue->begin,
                                count < PIPE_BUF ? count : PIPE_BUF);

        if (written > 0) {
            queue->begin += (size_t)written;
        } else if (written < 0 && errno != EINTR && errno != EAGAIN) {
            queue->closed = true;
            queue->error = errno;
            queue->begin = queue->end;
        } else {
            return;
        }
    }
    if (queue->begin == queue->end)
        queue->begin = queue->end = 0;
}

static void put_line(struct symmrun_stream *stream, const char *line, size_t count)
{
    char prefix[16];

    if (stream->rank >= 0) {
        int length = snprintf(prefix, sizeof(prefix), "[%d] ", stream->rank);

        symmrun_queue_put(stream->to, prefix, (size_t)length);
    }
    symmrun_queue_put(stream->to, line, count);
    symmrun_queue_put(stream->to, "\n", 1);
}

/* Queues all complete lines, and an incomplete line that is too long to wait for its end. */
static void take_lines(struct symmrun_stream *stream, size_t fresh)
{
    size_t begin = 0;
    size_t look = stream->used - fresh; /* before that there is no newline */
    char *newline;

    while ((newline = memchr(stream->line + look, '\n', stream->used - look))) {
        put_line(stream, stream->line + begin,
                 (size_t)(newline - stream->line) - begin);
        begin = look = (size_t)(newline - stream->line) + 1;
    }
    if (stream->used - begin >= LINE_MOST) {
        put_line(stream, stream->line + begin, stream->used - begin);
        begin = stream->used;
    }
    memmove(stream->line, stream->line + begin, stream->used - begin);
    stream->used -= begin;
}

/* A rank's bytes go to its file unchanged. */
static void write_log(struct symmrun_stream *stream, const char *bytes, size_t count)
{
    while (count > 0 && stream->log_fd >= 0) {
        ssize_t written = write(stream->log_fd, bytes, count);

        if (written < 0 && errno != EINTR) {
            stream->log_error = errno;
            close(stream->log_fd);
            stream->log_fd = -1;
        } else if (written > 0) {
            bytes += written;
            count -= (size_t)written;
        }
    }
}

void symmrun_stream_read(struct symmrun_stream *stream)
{
    const size_t piece = 65536;
    ssize_t count;

    /* Without memory for the piece the rank waits; the next round tries again. */
    if (!reserve(&stream->line, stream->used, piece, &stream->capacity))
        return;
    count = read(stream->fd, stream->line + stream->used, piece);
    if (count > 0) {
        write_log(stream, stream->line + stream->used, (size_t)count);
        stream->used += (size_t)count;
        take_lines(stream, (size_t)count);
    } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
        symmrun_stream_close(stream);
    }
}

void symmrun_stream_close(struct symmrun_stream *stream)
{
    if (stream->fd >= 0)
        close(stream->fd);
    if (stream->log_fd >= 0)
        close(stream->log_fd);
    stream->fd = stream->log_fd = -1;
    if (stream->used > 0)
        put_line(stream, stream->line, stream->used);
    free(stream->line);
    stream->line = NULL;
    stream->used = stream->capacity = 0;
}
