/* SPDX-License-Identifier: MIT */
/*
 * norm.c - an all_reduce_norm on CUDA: a fused kernel takes the rows in parts, as many as its
 * scratch has room for; another call's sums are followed by a kernel that waits for no peer.
 */
#include "cuda/norm.h"

#include "cuda/stream_order.h"
#include "util/status.h"

static void *advance(const void *array, size_t bytes)
{
    return array ? (char *)(uintptr_t)array + bytes : NULL;
}

void symm__cuda_norm_part(const struct symm_args *call, size_t first, size_t rows,
                          struct symm_cuda_args *args)
{
    const symm_norm *norm = &call->norm;
    const size_t at = first * norm->hidden * call->element;
    const size_t groups = (norm->hidden + SYMM_NORM_GROUP - 1) / SYMM_NORM_GROUP;
    size_t scales = 0;

    if (norm->quant == SYMM_NORM_QUANT_ROW ||
        norm->quant == SYMM_NORM_QUANT_GROUP_COLUMN)
        scales = first;
    else if (norm->quant == SYMM_NORM_QUANT_GROUP)
        scales = first * groups;
    args->count = rows * norm->hidden;
    args->bytes = args->count * call->element;
    args->in = advance(call->in, at);
    args->norm = *norm;
    args->norm.rows = rows;
    args->norm.in = args->in;
    args->norm.residual_in = advance(norm->residual_in, at);
    args->norm.sum_out = advance(norm->sum_out, at);
    args->norm.residual_out = advance(norm->residual_out, at);
    args->norm.norm_out = advance(norm->norm_out, at);
    args->norm.quant_out = advance(norm->quant_out, first * norm->hidden);
    args->norm.scale = advance(norm->scale, scales * sizeof(float));
    args->scale_step = norm->rows;
}

symm_status symm__cuda_norm_rest(struct symm_team_channel *channel,
                                 const struct symm_prepared_call *prepared)
{
    symm_ctx *ctx = channel->team->ctx;
    const struct symm_args *call = &prepared->args;
    struct symm_cuda_args args = {
        .in = call->in,
        .out = call->out,
        .dtype = (int32_t)call->site.dtype,
        .kind = SYMM_KIND_ALL_REDUCE_NORM,
    };
    struct symm_cuda_kernel kernel;
    struct symm_cuda_follow follow;
    struct symm_cuda_shape shape;
    void *function;
    symm_status status;

    symm__cuda_norm_part(call, 0, call->norm.rows, &args);
    symm__cuda_norm_find(call->norm.rows, (uint32_t)call->norm.hidden,
                         (symm_dtype)call->site.dtype, ctx->processors, &kernel,
                         &shape);
    status = symm__cuda_function(ctx, &kernel, &function);
    if (status != SYMM_OK)
        return status;
    status = symm__cuda_follow_begin(channel->team, channel, channel->stream,
                                     (uint32_t)channel->index, &args, &follow);
    if (status == SYMM_OK)
        status = symm__cuda_start(&follow, function, shape, &args, channel->stream,
                                  "the rest of an all_reduce_norm");
    /* It reads no marks: another team's call that another thread has queued stays the last. */
    symm__cuda_follow_end(&follow, status == SYMM_OK && !follow.before);
    return status;
}
