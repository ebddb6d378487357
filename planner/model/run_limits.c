/* SPDX-License-Identifier: MIT */
/*
 * run_limits.c - well-formed programs whose calls a job of the library cannot make.
 *
 * A group's team is used on so many streams at most, and a pair of ranks has so many
 * signals: op->signal names one of them for each put.
 */
#include "model/program_private.h"
#include "symm/device.h"
#include "util/status.h"

#define TEAM_STREAMS (SYMM_HOST_CHANNELS - 1) /* of a team, beside the first one */

/* Calls on the first stream, the default one, need no channel of their own; nor do waits. */
static symm_status check_streams(const symm_program *program, int partition)
{
    uint64_t used = 0; /* a bit for each stream */

    for (int i = 0; i < program->op_count; i++) {
        const symm_program_op *op = &program->ops[i];
        if (op->site && op->kind != SYMM_PROGRAM_WAIT && op->partition == partition)
            used |= (uint64_t)1 << op->stream;
    }
    const int others = __builtin_popcountll(used & ~(uint64_t)1);
    if (others <= TEAM_STREAMS)
        return SYMM_OK;
    return symm__program_refuse(
        program,
        "groups.%.60s: found %d streams beside the first that communicate in it, "
        "allowed: up to %d; use fewer, or a second group of the same ranks",
        program->partitions[partition].name, others, TEAM_STREAMS);
}

/* Both puts on one stream, and both waits on one, in the same order. */
static bool in_turn(const symm_program *program, int earlier, int later)
{
    const struct program_private *private = (const struct program_private *)program;
    const symm_program_op *ops = program->ops;
    const int first = symm__names_find(&private->waits, ops[earlier].site);
    const int second = symm__names_find(&private->waits, ops[later].site);

    if (ops[earlier].stream != ops[later].stream || (first < 0) != (second < 0))
        return false;
    return first < 0 || (first < second && ops[first].stream == ops[second].stream);
}

static symm_status check_put(const symm_program *program, int put, int before)
{
    const symm_program_op *ops = program->ops, *op = &ops[put];

    if (op->in == op->out && op->shift != 0)
        return symm__program_refuse(program,
                                    "ops[%d].dst: found \"%.60s\", allowed: another "
                                    "buffer than src, for a peer "
                                    "would overwrite what is still to be sent",
                                    put, program->buffers[op->out].name);
    if (before < 0 || in_turn(program, before, put))
        return SYMM_OK;
    return symm__program_refuse(
        program,
        "ops[%d]: found put %.60s with the signal of put %.60s, allowed: %d puts, or "
        "puts and waits of both on one stream each, in one order",
        put, op->site, ops[before].site, SYMM_SIGNALS);
}

symm_status symm_program_check_run(const symm_program *program)
{
    int last[SYMM_SIGNALS]; /* by signal: the put that raised it last, or -1 */
    symm_status status = SYMM_OK;

    if (!program || !program->order)
        return symm__fail_null("symm_program_check_run",
                               program ? "program->order" : "program");
    for (int s = 0; s < SYMM_SIGNALS; s++)
        last[s] = -1;
    for (int g = 0; g < program->partition_count && status == SYMM_OK; g++)
        status = check_streams(program, g);
    for (int i = 0; i < program->op_count && status == SYMM_OK; i++) {
        if (program->ops[i].kind != SYMM_PROGRAM_PUT)
            continue;
        status = check_put(program, i, last[program->ops[i].signal]);
        last[program->ops[i].signal] = i;
    }
    return status;
}
