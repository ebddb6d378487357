/* SPDX-License-Identifier: MIT */
/*
 * program_order.c - an order in which one thread can issue all ops of a program.
 *
 * Each stream keeps its list order; a wait comes after its put, a depend after the ops
 * that stand before it on the stream it waits for. Among what can go next, the first in
 * the list goes, so that a program whose list is such an order already keeps it.
 */
#include <stdlib.h>

#include "perf/program.h"

struct sorter {
    const struct program *program;
    int *next; /* by stream: its first op not yet placed, op_count if none */
    bool *placed;
};

static int next_of_stream(const struct program *program, int stream, int from)
{
    while (from < program->op_count && program->ops[from].stream != stream)
        from++;
    return from;
}

static bool can_go(const struct sorter *sorter, int index)
{
    const struct program_op *op = &sorter->program->ops[index];

    if (op->kind == PROGRAM_WAIT)
        return sorter->placed[op->put];
    if (op->kind == PROGRAM_DEPEND && op->on != op->stream)
        return sorter->next[op->on] > index;
    return true;
}

/* The first op that can go; -1: none can. *stuck is then the first that is left. */
static int choose(const struct sorter *sorter, int *stuck)
{
    const struct program *program = sorter->program;
    int best = -1;

    *stuck = program->op_count;
    for (int s = 0; s < program->stream_count; s++) {
        int index = sorter->next[s];
        if (index == program->op_count)
            continue;
        if (index < *stuck)
            *stuck = index;
        if ((best < 0 || index < best) && can_go(sorter, index))
            best = index;
    }
    return best;
}

int program_sort(struct program *program, int *stuck)
{
    struct sorter sorter = {.program = program};
    int result = 0;

    sorter.next = calloc((size_t)program->stream_count, sizeof *sorter.next);
    sorter.placed = calloc((size_t)program->op_count + 1, sizeof *sorter.placed);
    if (!sorter.next || !sorter.placed) {
        result = -2;
        goto out;
    }
    for (int s = 0; s < program->stream_count; s++)
        sorter.next[s] = next_of_stream(program, s, 0);
    for (int i = 0; i < program->op_count; i++) {
        int index = choose(&sorter, stuck);
        if (index < 0) {
            result = -1;
            goto out;
        }
        program->order[i] = index;
        sorter.placed[index] = true;
        int stream = program->ops[index].stream;
        sorter.next[stream] = next_of_stream(program, stream, index + 1);
    }
out:
    free(sorter.next);
    free(sorter.placed);
    return result;
}
