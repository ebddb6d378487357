/* SPDX-License-Identifier: MIT */
/*
 * table.c - which host kernel does which collective by which algorithm, the barrier, and a kernel
 * with the barriers of a plan.
 */
#include "kernels/host/round.h"

static const symm_kernel_fn kernels[SYMM_KIND_COUNT][SYMM_ALGORITHM_COUNT] = {
    [SYMM_KIND_BARRIER] = {[SYMM_ALGORITHM_COPY_IN] = symm__host_barrier},
    [SYMM_KIND_ALL_REDUCE] = {[SYMM_ALGORITHM_COPY_IN] = symm__host_all_reduce_copy_in,
                              [SYMM_ALGORITHM_ONE_SHOT_PULL] =
                                  symm__host_all_reduce_pull,
                              [SYMM_ALGORITHM_TWO_SHOT_INPLACE] =
                                  symm__host_all_reduce_two_shot},
    [SYMM_KIND_REDUCE_SCATTER] = {[SYMM_ALGORITHM_COPY_IN] =
                                      symm__host_reduce_scatter_copy_in,
                                  [SYMM_ALGORITHM_ONE_SHOT_PULL] =
                                      symm__host_reduce_scatter_pull},
    [SYMM_KIND_ALL_GATHER] = {[SYMM_ALGORITHM_COPY_IN] = symm__host_all_gather_copy_in,
                              [SYMM_ALGORITHM_ONE_SHOT_PULL] =
                                  symm__host_all_gather_pull},
    [SYMM_KIND_BROADCAST] = {[SYMM_ALGORITHM_COPY_IN] = symm__host_broadcast_copy_in,
                             [SYMM_ALGORITHM_ONE_SHOT_PULL] =
                                 symm__host_broadcast_pull},
    [SYMM_KIND_ALL_TO_ALL] = {[SYMM_ALGORITHM_COPY_IN] = symm__host_all_to_all_copy_in,
                              [SYMM_ALGORITHM_ONE_SHOT_PULL] =
                                  symm__host_all_to_all_pull},
};

symm_kernel_fn symm__host_kernel(enum symm_kind kind, enum symm_algorithm algorithm,
                                 size_t bytes)
{
    if (kind == SYMM_KIND_ALL_REDUCE && algorithm == SYMM_ALGORITHM_COPY_IN &&
        bytes <= SYMM_INLINE_BYTES)
        return symm__host_all_reduce_inline;
    return kernels[kind][algorithm];
}

symm_kernel_fn symm__host_body(enum symm_kind kind, enum symm_algorithm algorithm,
                               size_t bytes)
{
    static const symm_kernel_fn pulls[SYMM_KIND_COUNT] = {
        [SYMM_KIND_ALL_REDUCE] = symm__host_all_reduce_pull_body,
        [SYMM_KIND_REDUCE_SCATTER] = symm__host_reduce_scatter_pull_body,
        [SYMM_KIND_ALL_GATHER] = symm__host_all_gather_pull_body,
        [SYMM_KIND_BROADCAST] = symm__host_broadcast_pull_body,
        [SYMM_KIND_ALL_TO_ALL] = symm__host_all_to_all_pull_body,
    };

    if (algorithm == SYMM_ALGORITHM_ONE_SHOT_PULL)
        return pulls[kind];
    if (algorithm == SYMM_ALGORITHM_TWO_SHOT_INPLACE)
        return symm__host_all_reduce_two_shot_body;
    return symm__host_kernel(kind, algorithm, bytes); /* over the pads: no barriers */
}

symm_status symm__host_barrier(struct symm_state *state, const struct symm_args *args)
{
    return round_all(state, args);
}

symm_status symm__host_planned(struct symm_state *state, const struct symm_args *args)
{
    symm_status status = SYMM_OK;

    if (args->barriers & SYMM_BARRIER_ENTRY)
        status = round_all(state, args);
    if (status == SYMM_OK && args->body)
        status = args->body(state, args);
    if (status == SYMM_OK && args->barriers & SYMM_BARRIER_EXIT)
        status = round_all(state, args);
    return status;
}
