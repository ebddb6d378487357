/* SPDX-License-Identifier: MIT */
/*
 * emit_limits.c - programs that have a plan, but that no emitted source can run.
 *
 * Refuses more streams of one group than a team of the library has, and puts that share
 * one of the 256 signals while both may be under way, so that a wait could return for the
 * other one's data. One sentence names the group, or the two sites.
 */
#include "tool/emit.h"

#include <stdlib.h>

#define TEAM_STREAMS 7   /* that a team can be used on, beside the default one */
#define SIGNALS      256 /* of a pair of ranks */

static bool has_barrier(const symm_program_op *op)
{
    return op->site && op->kind != SYMM_PROGRAM_WAIT;
}

static bool fits_teams(const symm_program *program)
{
    for (int g = 0; g < program->group_count; g++) {
        uint64_t used = 0; /* a bit for each stream */

        for (int i = 0; i < program->op_count; i++)
            if (has_barrier(&program->ops[i]) && program->ops[i].group == g)
                used |= (uint64_t)1 << program->ops[i].stream;
        if (__builtin_popcountll(used & ~(uint64_t)1) <= TEAM_STREAMS)
            continue;
        fprintf(stderr,
                "symm-plan emit: %s: groups.%s: found %d streams beside the first that "
                "communicate in it, allowed: up to %d; use fewer, or a second group of "
                "the same ranks\n",
                program->name, program->groups[g].name,
                __builtin_popcountll(used & ~(uint64_t)1), TEAM_STREAMS);
        return false;
    }
    return true;
}

/* Do the later one's put and wait come after those of the earlier one, on one stream each? */
static bool in_turn(const symm_program_op *earlier, const symm_program_op *later,
                    const symm_program_op *wait, const symm_program_op *later_wait)
{
    if (earlier->stream != later->stream || !wait != !later_wait)
        return false;
    return !wait || (wait->stream == later_wait->stream && wait < later_wait);
}

static bool fits_signals(const symm_program *program)
{
    const size_t room = (size_t)program->op_count + 1;
    const symm_program_op **waits = calloc(room, sizeof(*waits)); /* by put */
    const symm_program_op *last[SIGNALS] = {0};
    bool good = waits != NULL;
    int puts = 0;

    if (!waits)
        fprintf(stderr, "symm-plan emit: no memory for %d ops\n", program->op_count);
    for (int i = 0; good && i < program->op_count; i++)
        if (program->ops[i].kind == SYMM_PROGRAM_WAIT)
            waits[program->ops[i].put] = &program->ops[i];
    for (int i = 0; good && i < program->op_count; i++) {
        const int at = program->order[i];
        const symm_program_op *put = &program->ops[at];
        const symm_program_op **before = &last[puts % SIGNALS];

        if (put->kind != SYMM_PROGRAM_PUT)
            continue;
        puts++;
        good =
            !*before || in_turn(*before, put, waits[*before - program->ops], waits[at]);
        if (!good)
            fprintf(
                stderr,
                "symm-plan emit: %s: ops[%d] (put %s): found the signal of ops[%d] "
                "(put %s), allowed: %d puts, or puts and waits of both on one stream "
                "each, in one order\n",
                program->name, at, put->site, (int)(*before - program->ops),
                (*before)->site, SIGNALS);
        *before = put;
    }
    free(waits);
    return good;
}

bool symm_plan_emit_fits(const symm_program *program)
{
    return fits_teams(program) && fits_signals(program);
}
