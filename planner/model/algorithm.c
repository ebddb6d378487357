/* SPDX-License-Identifier: MIT */
/*
 * algorithm.c - see algorithm.h; docs/planner.md has the table and its reasons.
 *
 * Where two kernels of one algorithm differ, the accesses of both are taken together: a
 * one-shot pull of a broadcast may read the root's in or the root's out.
 */
#include "model/algorithm.h"

#include <stddef.h>

#include "model/program_private.h"

static struct traits collective_traits(symm_algorithm algorithm)
{
    switch (algorithm) {
    case SYMM_ALGORITHM_LL_PUSH:
    case SYMM_ALGORITHM_LAMPORT_PUSH:
    case SYMM_ALGORITHM_TWO_SHOT_PUSH:
    case SYMM_ALGORITHM_COPY_IN:
        return (struct traits){.push = true};
    case SYMM_ALGORITHM_TWO_SHOT_PULL:
        return (struct traits){.entry = true, .exit = true, .middle = true};
    case SYMM_ALGORITHM_ENGINE: /* another library's: no order is assumed */
        return (struct traits){.entry = false};
    default:
        return (struct traits){.entry = true, .exit = true};
    }
}

struct traits symm__op_traits(const symm_program_op *op, symm_algorithm algorithm)
{
    struct traits traits;

    if (op->kind == SYMM_PROGRAM_PUT)
        return (struct traits){.entry = true};
    if (!symm__is_collective(op->kind))
        return (struct traits){.entry = false};
    traits = collective_traits(algorithm);
    /* What follows the sum overwrites arrays of which peers read, or write, a part. */
    traits.must_exit = op->kind == SYMM_PROGRAM_ALL_REDUCE_NORM && traits.exit;
    return traits;
}

const char *symm__algorithm_objection(const symm_program_op *op,
                                      symm_algorithm algorithm)
{
    const bool in_place = op->out == op->in;
    const bool sums = symm__is_reduction(op->kind);
    const bool all = symm__kind_of_sum(op->kind) == SYMM_PROGRAM_ALL_REDUCE;

    switch (algorithm) {
    case SYMM_ALGORITHM_MULTIMEM_ONE_SHOT:
        if (!sums)
            return "it only reduces";
        if (in_place)
            return "in place a peer may still read what is overwritten";
        return NULL;
    case SYMM_ALGORITHM_ONE_SHOT_PULL:
        return in_place ? "in place a peer may still read what is overwritten" : NULL;
    case SYMM_ALGORITHM_TWO_SHOT_PUSH:
    case SYMM_ALGORITHM_TWO_SHOT_PULL:
        return all ? NULL : "it only does all_reduce";
    case SYMM_ALGORITHM_TWO_SHOT_INPLACE:
    case SYMM_ALGORITHM_MULTIMEM_TWO_SHOT:
        if (!all)
            return "plans have it for all_reduce only";
        return op->out < 0 ? "it writes every peer's out, and this one has none" : NULL;
    case SYMM_ALGORITHM_COPY_ENGINE:
        if (sums)
            return "copy engines do not reduce";
        if (in_place)
            return "in place a peer overwrites what is still to be sent";
        return op->out < 0 ? "it writes every peer's out, and this one has none" : NULL;
    case SYMM_ALGORITHM_PUT:
        return "it is no collective's";
    default:
        return NULL;
    }
}

/* A buffer that is listed twice is accessed twice at once, which changes nothing. */
static int local_accesses(const symm_program_op *op, int index, struct access *accesses)
{
    for (int i = 0; i < op->buffer_count; i++)
        accesses[i] = (struct access){.op = index,
                                      .buffer = op->buffers[i],
                                      .writes = op->kind == SYMM_PROGRAM_WRITE,
                                      .who = ACTOR_OWNER,
                                      .from = POINT_START,
                                      .to = POINT_END};
    return op->buffer_count;
}

/* How a collective touches its in and its out, as if they were two buffers. */
static void pair_accesses(const symm_program_op *op, symm_algorithm algorithm,
                          struct access *in, struct access *out)
{
    const bool rooted = op->kind == SYMM_PROGRAM_BROADCAST;

    in->who = out->who = ACTOR_OWNER;
    in->from = out->from = POINT_PASS;
    in->to = out->to = POINT_BODY;
    switch (algorithm) {
    case SYMM_ALGORITHM_ONE_SHOT_PULL:
    case SYMM_ALGORITHM_MULTIMEM_ONE_SHOT:
        in->who = rooted ? ACTOR_ROOT_PARTITION : ACTOR_PARTITION;
        out->who = rooted ? ACTOR_ROOT_PARTITION : ACTOR_OWNER;
        break;
    case SYMM_ALGORITHM_TWO_SHOT_PULL:
        in->who = ACTOR_PARTITION;
        in->to = POINT_READ;
        out->from = POINT_MIDDLE;
        break;
    case SYMM_ALGORITHM_TWO_SHOT_INPLACE:
    case SYMM_ALGORITHM_MULTIMEM_TWO_SHOT:
        in->who = out->who = ACTOR_PARTITION;
        break;
    case SYMM_ALGORITHM_COPY_ENGINE:
        out->who = rooted ? ACTOR_ROOT : ACTOR_PARTITION;
        break;
    default: /* push, copy_in, engine: both locally, in until every peer has it */
        in->to = out->to = POINT_END;
        break;
    }
}

static int collective_accesses(const symm_program_op *op, int index,
                               symm_algorithm algorithm, struct access *accesses)
{
    struct access in = {.op = index, .buffer = op->in};
    struct access out = {.op = index, .buffer = op->out, .writes = true};

    pair_accesses(op, algorithm, &in, &out);
    accesses[0] = in;
    if (op->out < 0)
        return 1;
    if (op->out == op->in && algorithm != SYMM_ALGORITHM_TWO_SHOT_PULL) {
        accesses[0].writes = true; /* the same ranks, the same bytes or disjoint ones */
        return 1;
    }
    accesses[1] = out;
    return 2;
}

/* The sum, and what follows it: the rank's own arrays are read from the start on, and written
 * when its sums are complete and peers are done with its arrays. Reads stand first, since the
 * op itself orders them before its writes. */
static int norm_accesses(const symm_program *program, int index,
                         symm_algorithm algorithm, struct access *accesses)
{
    const symm_program_op *op = &program->ops[index];
    struct norm_array arrays[NORM_ARRAYS];
    int count = 0;

    symm__norm_list(program, op, arrays);
    for (int written = 0; written < 2; written++) {
        for (int i = 0; i < NORM_ARRAYS; i++)
            if (arrays[i].where.buffer >= 0 && arrays[i].written == (written == 1))
                accesses[count++] =
                    (struct access){.op = index,
                                    .buffer = arrays[i].where.buffer,
                                    .writes = arrays[i].written,
                                    .who = ACTOR_OWNER,
                                    .from = written ? POINT_REST : POINT_PASS,
                                    .to = POINT_END};
        if (!written)
            count += collective_accesses(op, index, algorithm, accesses + count);
    }
    return count;
}

size_t symm__op_most_accesses(const symm_program_op *op)
{
    if (op->kind == SYMM_PROGRAM_ALL_REDUCE_NORM)
        return 2 + NORM_ARRAYS;
    return 2 + (size_t)op->buffer_count;
}

int symm__op_accesses(const symm_program *program, int index, symm_algorithm algorithm,
                      struct access *accesses)
{
    const symm_program_op *op = &program->ops[index];

    if (op->kind == SYMM_PROGRAM_WAIT || op->kind == SYMM_PROGRAM_DEPEND)
        return 0;
    if (op->kind == SYMM_PROGRAM_WRITE || op->kind == SYMM_PROGRAM_READ)
        return local_accesses(op, index, accesses);
    if (op->kind == SYMM_PROGRAM_ALL_REDUCE_NORM)
        return norm_accesses(program, index, algorithm, accesses);
    if (op->kind != SYMM_PROGRAM_PUT)
        return collective_accesses(op, index, algorithm, accesses);
    accesses[0] = (struct access){.op = index,
                                  .buffer = op->in,
                                  .who = ACTOR_OWNER,
                                  .from = POINT_PASS,
                                  .to = POINT_END};
    accesses[1] = (struct access){.op = index,
                                  .buffer = op->out,
                                  .writes = true,
                                  .who = ACTOR_SENDER,
                                  .from = POINT_PASS,
                                  .to = POINT_END};
    return 2;
}
