/* SPDX-License-Identifier: MIT */
/* request.c - see request.h. */
#include "call/request.h"

#include "call/norm.h"
#include "core/device_ops.h"
#include "util/dtype.h"
#include "util/status.h"

size_t symm__request_in_blocks(const struct symm_request *rq, int size)
{
    return rq->kind == SYMM_KIND_REDUCE_SCATTER || rq->kind == SYMM_KIND_ALL_TO_ALL
               ? (size_t)size
               : 1;
}

size_t symm__request_out_blocks(const struct symm_request *rq, int size)
{
    return rq->kind == SYMM_KIND_ALL_GATHER || rq->kind == SYMM_KIND_ALL_TO_ALL
               ? (size_t)size
               : 1;
}

bool symm__request_reads(const symm_team *team, const struct symm_request *rq)
{
    return rq->kind != SYMM_KIND_BARRIER &&
           (rq->kind != SYMM_KIND_BROADCAST || team->rank == rq->root);
}

static symm_status check_pointer(const char *which, const void *ptr, size_t element,
                                 const struct symm_request *rq)
{
    if (!ptr && rq->count > 0)
        return symm__fail(SYMM_ERR_INVALID, "%s of %zu elements: `%s` is NULL",
                          symm__kind_name(rq->kind), rq->count, which);
    if ((uintptr_t)ptr % element != 0)
        return symm__fail(SYMM_ERR_INVALID,
                          "%s: `%s` is %p, not aligned to its element of %zu bytes",
                          symm__kind_name(rq->kind), which, ptr, element);
    return SYMM_OK;
}

static symm_status check_types(const struct symm_request *rq)
{
    if (symm_dtype_size(rq->dtype) == 0)
        return symm__fail(SYMM_ERR_INVALID, "%s: dtype %d is unknown",
                          symm__kind_name(rq->kind), (int)rq->dtype);
    if (!symm_op_name(rq->op))
        return symm__fail(SYMM_ERR_INVALID, "%s: reduction %d is unknown",
                          symm__kind_name(rq->kind), (int)rq->op);
    if (symm__kind_reduces(rq->kind) && !symm__op_takes(rq->op, rq->dtype))
        return symm__fail(
            SYMM_ERR_INVALID, "%s: found %s of %s, allowed: %s (%s is for integers)",
            symm__kind_name(rq->kind), symm_op_name(rq->op), symm_dtype_name(rq->dtype),
            symm__op_names(rq->dtype), symm_op_name(rq->op));
    return SYMM_OK;
}

static symm_status check_sizes(const symm_team *team, const struct symm_request *rq,
                               size_t *in_bytes, size_t *out_bytes)
{
    size_t element = symm_dtype_size(rq->dtype), bytes;

    if (__builtin_mul_overflow(rq->count, element, &bytes) ||
        __builtin_mul_overflow(bytes, symm__request_in_blocks(rq, team->size),
                               in_bytes) ||
        __builtin_mul_overflow(bytes, symm__request_out_blocks(rq, team->size),
                               out_bytes) ||
        *in_bytes > PTRDIFF_MAX || *out_bytes > PTRDIFF_MAX)
        return symm__fail(
            SYMM_ERR_OVERFLOW,
            "%s of %zu elements of %s over %d ranks does not fit in memory",
            symm__kind_name(rq->kind), rq->count, symm_dtype_name(rq->dtype),
            team->size);
    return SYMM_OK;
}

static bool ranges_overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

    return a_bytes && b_bytes && x < y + b_bytes && y < x + a_bytes;
}

/* Overlap is allowed where the header says what in place means, and nowhere else. */
static symm_status check_overlap(const symm_team *team, const struct symm_request *rq)
{
    const char *in = rq->in;
    size_t block = rq->count * symm_dtype_size(rq->dtype);
    bool fine = rq->in == rq->out;

    if (rq->kind == SYMM_KIND_ALL_GATHER)
        fine = in == (const char *)rq->out + (size_t)team->rank * block;
    else if (rq->kind == SYMM_KIND_REDUCE_SCATTER)
        fine = fine || rq->out == in + (size_t)team->rank * block;
    if (fine)
        return SYMM_OK;
    return symm__fail(
        SYMM_ERR_INVALID,
        "%s: in %p and out %p overlap but are not what in place means for it",
        symm__kind_name(rq->kind), rq->in, rq->out);
}

symm_status symm__request_check(symm_team *team, const struct symm_request *rq,
                                struct symm_checked *checked)
{
    size_t in_bytes = 0, out_bytes = 0, element = symm_dtype_size(rq->dtype);
    bool reads = symm__request_reads(team, rq);
    bool writes = rq->kind != SYMM_KIND_BARRIER && !(rq->norm && !rq->out);
    symm_status status = check_types(rq);

    if (status == SYMM_OK)
        status = check_sizes(team, rq, &in_bytes, &out_bytes);
    if (status == SYMM_OK && rq->norm)
        status = symm__norm_check(team, rq->norm);
    if (status == SYMM_OK && reads)
        status = check_pointer("in", rq->in, element, rq);
    if (status == SYMM_OK && writes)
        status = check_pointer("out", rq->out, element, rq);
    if (status == SYMM_OK && reads)
        status = symm__team_extent(team->ctx, symm__kind_name(rq->kind), "in", rq->in,
                                   in_bytes);
    if (status == SYMM_OK && writes)
        status = symm__team_extent(team->ctx, symm__kind_name(rq->kind), "out", rq->out,
                                   out_bytes);
    if (status != SYMM_OK)
        return status;
    *checked = (struct symm_checked){.bytes = rq->count * element};
    checked->overlap = reads && ranges_overlap(rq->in, in_bytes, rq->out, out_bytes);
    if (checked->overlap)
        status = check_overlap(team, rq);
    checked->in_symmetric =
        reads && symm__team_symmetric(team, rq->in, in_bytes, &checked->in_offset);
    checked->out_symmetric =
        writes && symm__team_symmetric(team, rq->out, out_bytes, &checked->out_offset);
    if (team->device_ops && status == SYMM_OK && reads && !checked->in_symmetric)
        status = team->device_ops->reach(team, symm__kind_name(rq->kind), "in", rq->in,
                                         in_bytes);
    if (team->device_ops && status == SYMM_OK && writes && !checked->out_symmetric)
        status = team->device_ops->reach(team, symm__kind_name(rq->kind), "out",
                                         rq->out, out_bytes);
    return status;
}
