/* SPDX-License-Identifier: MIT */
/*
 * log.c - lines of the library: to the program's sink, a file, or stderr.
 *
 * A line is "symm rank 3: warn: text", formatted in memory of its own and written by
 * one write(2), so that lines of many ranks do not mix. The file is opened for each
 * line: there is no descriptor to inherit, to leak or to lose at a fork, and a slow
 * reader never holds up a rank (the file is opened non-blocking). A reader that has
 * gone away, or the limit of a file's size, does not kill the program either. errno is as
 * before.
 *
 * The sink is the library's one piece of mutable global state. It is read without a
 * lock, so that a fork in the middle of a line leaves nothing locked in the child. A
 * line being delivered by another thread may still reach the old sink after
 * symm_log_sink returns.
 */
#include "util/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "symm/symm.h"
#include "util/file.h"
#include "util/file_name.h"
#include "util/option_table.h"
#include "util/text.h"

#define LINE_BYTES 1024

typedef void (*sink_fn)(void *arg, int level, const char *line);

/*
 * Two words that belong together. `version` is odd while they are being changed;
 * readers take them only if it is even and the same before and after. Sequentially
 * consistent operations: this is off every hot path, and the proof is then one line
 * long.
 */
static struct {
    _Atomic unsigned version;
    _Atomic(sink_fn) fn;
    _Atomic(void *) arg;
} the_sink;

static _Thread_local int line_rank = -1;   /* -1: not known yet */
static _Thread_local bool in_sink = false; /* a sink that causes a line would recurse */

void symm_log_sink(sink_fn sink, void *arg)
{
    unsigned version = atomic_load(&the_sink.version);

    for (;;) {
        if (version % 2 == 0 &&
            atomic_compare_exchange_weak(&the_sink.version, &version, version + 1))
            break;
        version = atomic_load(&the_sink.version);
    }
    atomic_store(&the_sink.fn, sink);
    atomic_store(&the_sink.arg, arg);
    atomic_store(&the_sink.version, version + 2);
}

/*
 * A version that stays odd belongs to a setter that a fork has left behind in the
 * parent: after some tries the line goes where it would go without a sink.
 */
static sink_fn get_sink(void **arg)
{
    for (int tries = 0; tries < 20000; tries++) {
        unsigned version = atomic_load(&the_sink.version);
        sink_fn fn = atomic_load(&the_sink.fn);

        *arg = atomic_load(&the_sink.arg);
        if (version % 2 == 0 && atomic_load(&the_sink.version) == version)
            return fn;
        if (tries > 100)
            sched_yield(); /* the setter may have lost its core in between */
    }
    return NULL;
}

void symm__log_rank(int rank)
{
    line_rank = rank;
}

static const char *const level_names[] = {"error", "warn", "info", "debug"};

/* A level that does not exist counts as the default: logging itself must not fail. */
static enum symm_log_level threshold(void)
{
    const char *name = symm__option(SYMM_OPTION_LOG);

    for (int i = 0; name && i <= (int)SYMM_LOG_DEBUG; i++) {
        if (strcmp(name, level_names[i]) == 0)
            return (enum symm_log_level)i;
    }
    return SYMM_LOG_WARN;
}

static void write_line(const char *line, size_t length)
{
    const char *pattern = symm__option(SYMM_OPTION_LOG_FILE);
    char path[PATH_MAX];
    int fd = -1;

    if (pattern && symm__file_name(pattern, line_rank, path, sizeof(path)))
        fd = open(path,
                  O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
                  0644);
    (void)symm__write_quietly(fd >= 0 ? fd : STDERR_FILENO, line, length);
    if (fd >= 0)
        close(fd);
}

/* Returns the length; the line ends in a NUL and leaves room for a newline. */
__attribute__((format(printf, 3, 0))) static size_t
format_line(char *line, enum symm_log_level level, const char *format, va_list args)
{
    const size_t room = LINE_BYTES - 1;
    int head, text;

    if (line_rank >= 0)
        head =
            snprintf(line, room, "symm rank %d: %s: ", line_rank, level_names[level]);
    else
        head = snprintf(line, room, "symm: %s: ", level_names[level]);
    text = vsnprintf(line + head, room - (size_t)head, format, args);
    if (text >= 0 && (size_t)(head + text) >= room)
        memcpy(line + room - 4, "...", 4);
    symm__one_line(line);
    return strlen(line);
}

void symm__log(enum symm_log_level level, const char *format, ...)
{
    int saved = errno;
    char line[LINE_BYTES];
    void *arg;
    sink_fn sink;
    size_t length;
    va_list args;

    if (level > SYMM_LOG_DEBUG || in_sink)
        return;
    sink = get_sink(&arg);
    if (!sink && level > threshold())
        return;
    va_start(args, format);
    length = format_line(line, level, format, args);
    va_end(args);
    if (sink) {
        in_sink = true;
        sink(arg, (int)level, line);
        in_sink = false;
    } else {
        line[length] = '\n';
        write_line(line, length + 1);
    }
    errno = saved;
}
