/* SPDX-License-Identifier: MIT */
/*
 * program_limits.c - programs that are well-formed, but that the library cannot run.
 *
 * Refuses more streams of one group than a team has, and puts that share one of the 256
 * signals while both may be under way, so that a wait could return for the other one's
 * data.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "perf/program_read.h"

#define TEAM_STREAMS 7   /* that a team can be used on, beside the default one */
#define SIGNALS      256 /* of a pair of ranks */

/* "FILE: PATH: <format>"; what was found is more than one value. Returns -1. */
__attribute__((format(printf, 3, 4))) static int
complain(struct program_reader *reader, const char *path, const char *format, ...)
{
    char text[320];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(reader->error, reader->error_bytes, "%s: %s: %s", reader->file, path,
             text);
    return -1;
}

/* A put has an entry barrier; a wait needs no place in the team. */
static bool takes_place(const struct program_op *op)
{
    return op->site && op->kind != PROGRAM_WAIT;
}

static int check_teams(struct program_reader *reader)
{
    const struct program *program = reader->program;
    char path[PROGRAM_PATH];

    for (int g = 0; g < program->group_count; g++) {
        uint64_t used = 0; /* a bit for each stream */
        int others;

        for (int i = 0; i < program->op_count; i++)
            if (takes_place(&program->ops[i]) && program->ops[i].group == g)
                used |= (uint64_t)1 << program->ops[i].stream;
        others = __builtin_popcountll(used & ~(uint64_t)1);
        program__path(path, "groups.%s", program->groups[g].name);
        if (others > TEAM_STREAMS)
            return complain(reader, path,
                            "found %d streams beside the first that communicate in it, "
                            "allowed: up to %d; use fewer, or a second group of the "
                            "same ranks",
                            others, TEAM_STREAMS);
    }
    return 0;
}

/* Do the later one's put and wait come after those of the earlier one, on one stream each? */
static bool in_turn(const struct program_op *earlier, const struct program_op *later,
                    const struct program_op *wait, const struct program_op *later_wait)
{
    if (earlier->stream != later->stream || !wait != !later_wait)
        return false;
    return !wait || (wait->stream == later_wait->stream && wait < later_wait);
}

static int check_signals(struct program_reader *reader)
{
    const struct program *program = reader->program;
    const struct program_op *ops = program->ops, *last[SIGNALS] = {0};
    const struct program_op **waits; /* by put */
    char path[PROGRAM_PATH];
    int result = 0;

    waits = calloc((size_t)program->op_count + 1, sizeof *waits);
    if (!waits)
        return program__no_memory(reader);
    for (int i = 0; i < program->op_count; i++)
        if (ops[i].kind == PROGRAM_WAIT)
            waits[ops[i].put] = &ops[i];
    for (int i = 0; result == 0 && i < program->op_count; i++) {
        const struct program_op **before = &last[ops[i].signal];

        if (ops[i].kind != PROGRAM_PUT)
            continue;
        program__path(path, "ops[%d]", i);
        if (*before && !in_turn(*before, &ops[i], waits[*before - ops], waits[i]))
            result = complain(reader, path,
                              "found put %s with the signal of put %s, allowed: %d "
                              "puts, or puts and waits of both on one stream each, in "
                              "one order",
                              ops[i].site, (*before)->site, SIGNALS);
        *before = &ops[i];
    }
    free(waits);
    return result;
}

int program__check_limits(struct program_reader *reader)
{
    return check_teams(reader) || check_signals(reader) ? -1 : 0;
}
