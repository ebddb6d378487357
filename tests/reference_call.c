/* SPDX-License-Identifier: MIT */
/*
 * reference_call.c - see reference_call.h.
 */
#include "reference_call.h"

const char *const kind_names[KINDS] = {"all_reduce", "reduce_scatter", "all_gather",
                                       "broadcast", "all_to_all"};

size_t reference_in_blocks(enum kind kind, int n)
{
    return kind == REDUCE_SCATTER || kind == ALL_TO_ALL ? (size_t)n : 1;
}

size_t reference_out_blocks(enum kind kind, int n)
{
    return kind == ALL_GATHER || kind == ALL_TO_ALL ? (size_t)n : 1;
}

void reference_expect(const struct reference_call *c, int n, int rank, char *out)
{
    size_t block = c->count * symm_dtype_size(c->dtype);
    size_t mine = (size_t)rank * c->count;

    switch (c->kind) {
    case ALL_REDUCE:
        reference_reduce(c->dtype, c->op, c->seed, n, 0, c->count, out);
        break;
    case REDUCE_SCATTER:
        reference_reduce(c->dtype, c->op, c->seed, n, mine, c->count, out);
        break;
    case BROADCAST:
        reference_fill(c->dtype, c->op, c->seed, c->root, 0, c->count, out);
        break;
    default:
        for (int p = 0; p < n; p++)
            reference_fill(c->dtype, c->op, c->seed, p,
                           c->kind == ALL_TO_ALL ? mine : 0, c->count,
                           out + (size_t)p * block);
    }
}

symm_status reference_invoke(const struct reference_call *c, symm_team *team,
                             const void *in, void *out, const symm_call *call,
                             symm_work **work)
{
    switch (c->kind) {
    case ALL_REDUCE:
        return symm_all_reduce(team, in, out, c->count, c->dtype, c->op, call, work);
    case REDUCE_SCATTER:
        return symm_reduce_scatter(team, in, out, c->count, c->dtype, c->op, call,
                                   work);
    case ALL_GATHER:
        return symm_all_gather(team, in, out, c->count, c->dtype, call, work);
    case BROADCAST:
        return symm_broadcast(team, in, out, c->count, c->dtype, c->root, call, work);
    default:
        return symm_all_to_all(team, in, out, c->count, c->dtype, call, work);
    }
}
