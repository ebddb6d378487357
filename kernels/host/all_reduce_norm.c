/* SPDX-License-Identifier: MIT */
/*
 * all_reduce_norm.c - an all_reduce_norm on a processor: the all_reduce that the call has chosen
 * (args->sum) into args->out, then the rest of the rows, which concerns this rank alone. An array
 * that peers read or write is args->in or args->out, and the all_reduce has ended for all ranks
 * when it returns: so the rest may overwrite both.
 */
#include "kernels/host/round.h"
#include "kernels/reduce/norm.h"

symm_status symm__host_all_reduce_norm(struct symm_state *state,
                                       const struct symm_args *args)
{
    const symm_status status = args->sum(state, args);

    if (status == SYMM_OK)
        symm__norm_rows(&args->norm, args->out);
    return status;
}
