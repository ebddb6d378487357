/* SPDX-License-Identifier: MIT */
/* norm_call.c - symm_all_reduce_norm: a collective whose output is the first array that takes the
 * sums. */
#include "call/collective.h"
#include "util/abi.h"
#include "util/status.h"

#define WHAT "all_reduce_norm"

/* Where an all_reduce may put the sums before the rest is done: an output that takes them, but
 * not residual_in, which must still be read. NULL: none. */
static void *target(const symm_norm *norm)
{
    void *const outputs[] = {norm->sum_out, norm->norm_out, norm->residual_out};

    for (size_t i = 0; i < sizeof(outputs) / sizeof(outputs[0]); i++)
        if (outputs[i] && outputs[i] != norm->residual_in)
            return outputs[i];
    return NULL;
}

symm_status symm_all_reduce_norm(symm_team *team, const symm_norm *given,
                                 const symm_call *call, symm_work **work)
{
    struct symm_request rq = {.kind = SYMM_KIND_ALL_REDUCE_NORM, .op = SYMM_SUM};
    symm_norm norm;
    symm_status status;

    if (!given)
        return symm__fail(SYMM_ERR_INVALID, WHAT ": norm is NULL");
    status = symm__struct_take("symm_norm", given, &norm, sizeof(norm));
    if (status != SYMM_OK)
        return status;
    if (__builtin_mul_overflow(norm.rows, norm.hidden, &rq.count))
        return symm__fail(SYMM_ERR_OVERFLOW,
                          WHAT " of %zu x %zu elements does not fit in memory",
                          norm.rows, norm.hidden);
    rq.in = norm.in;
    rq.out = target(&norm);
    rq.dtype = norm.dtype;
    rq.norm = &norm;
    return symm__collective(team, &rq, call, work);
}
