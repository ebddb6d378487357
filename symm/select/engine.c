/* SPDX-License-Identifier: MIT */
/*
 * engine.c - which calls go to an engine: those that no kernel can do, and on CUDA
 * large ones over memory that peers cannot reach, which would be staged.
 *
 * ENGINE_BYTES is where NCCL's own staging catches up with copies through the pads: all_reduce
 * on 2 H200 takes 69 us for 16 MiB (NCCL 77), 135 for 32 MiB (136), 256 for 64 MiB
 * (246). On a channel with little scratch that is so from some hundred KiB on: 8 MiB take 270 to
 * 1,100 us there. A sum of an engine is in an order of its own, so a call that demands the same
 * bits on all ranks never goes there. On the host an engine would copy through shared memory as
 * well: it gets no call that a kernel can do.
 */
#include "select/select.h"

#define ENGINE_BYTES ((size_t)32 << 20)
#define ENGINE_US    20 /* what the lack of scratch costs, from here on */

const char *symm__engine_objection(const struct symm_select_query *q)
{
    if (!q->engine)
        return "the team has no engine (NCCL, MPI); see SYMM_ENGINE in symm_env(7)";
    if (q->kind == SYMM_KIND_BARRIER)
        return "a barrier needs no engine: symmetric memory reaches all ranks";
    if (q->engine_objection)
        return q->engine_objection;
    /* NCCL writes the output while it still reads the input. */
    if (q->cuda && q->overlap &&
        (q->kind == SYMM_KIND_ALL_TO_ALL || q->kind == SYMM_KIND_REDUCE_SCATTER))
        return "the engine has no all_to_all or reduce_scatter in place; give another "
               "out, or no algorithm";
    if (symm__kind_reduces(q->kind) && q->numerics != SYMM_NUMERICS_ANY)
        return "an engine reduces in an order of its own, and the call demands "
               "SYMM_NUMERICS_SAME_BITS or more";
    return NULL;
}

/* Algorithms that copy the data through pads or scratch; also data that peers could read, where
 * that is quicker. */
static bool is_staged(enum symm_algorithm algorithm)
{
    return algorithm == SYMM_ALGORITHM_COPY_IN || algorithm == SYMM_ALGORITHM_LL_PUSH ||
           algorithm == SYMM_ALGORITHM_LAMPORT_PUSH ||
           algorithm == SYMM_ALGORITHM_TWO_SHOT_PUSH;
}

struct symm_selection symm__engine_or(const struct symm_select_query *q,
                                      struct symm_selection answer)
{
    double delay;

    if (!q->engine || !q->cuda || symm__engine_objection(q) || q->engine_deviation)
        return answer;
    if (symm__cuda_objection(q, answer.algorithm, &delay))
        return (struct symm_selection){SYMM_ALGORITHM_ENGINE,
                                       "the cuda backend has no kernel for it", true};
    if (!is_staged(answer.algorithm) ||
        !symm__memory_objection(q, SYMM_ALGORITHM_ONE_SHOT_PULL))
        return answer;
    if (q->bytes >= ENGINE_BYTES)
        return (struct symm_selection){
            SYMM_ALGORITHM_ENGINE,
            "the memory is out of the peers' reach, and too large to be staged", true};
    if (delay >= ENGINE_US)
        return (struct symm_selection){SYMM_ALGORITHM_ENGINE,
                                       "the memory is out of the peers' reach, and the "
                                       "channel has too little scratch to stage it",
                                       true};
    return answer;
}
