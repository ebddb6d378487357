/* SPDX-License-Identifier: MIT */
/*
 * kernel_call.c - see kernel_call.h.
 */
#include "kernel_call.h"

#include "reference.h"

uint32_t kernel_call_random(uint32_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 17;
    *random ^= *random << 5;
    return *random;
}

size_t kernel_call_bytes(const struct kernel_call *call)
{
    return call->count * reference_size(call->dtype);
}

size_t kernel_call_in_count(const struct kernel_call *call, int size)
{
    const bool blocks =
        call->kind == SYMM_KIND_REDUCE_SCATTER || call->kind == SYMM_KIND_ALL_TO_ALL;

    return call->count * (blocks ? (size_t)size : 1);
}

size_t kernel_call_out_count(const struct kernel_call *call, int size)
{
    const bool blocks =
        call->kind == SYMM_KIND_ALL_GATHER || call->kind == SYMM_KIND_ALL_TO_ALL;

    return call->count * (blocks ? (size_t)size : 1);
}

void kernel_call_expect(const struct kernel_call *call, int size, int rank, char *want)
{
    const size_t own = (size_t)rank * call->count;

    switch (call->kind) {
    case SYMM_KIND_ALL_REDUCE:
        reference_reduce(call->dtype, call->op, call->seed, size, 0, call->count, want);
        break;
    case SYMM_KIND_REDUCE_SCATTER:
        reference_reduce(call->dtype, call->op, call->seed, size, own, call->count,
                         want);
        break;
    case SYMM_KIND_BROADCAST:
        reference_fill(call->dtype, call->op, call->seed, call->root, 0, call->count,
                       want);
        break;
    default:
        for (int r = 0; r < size; r++)
            reference_fill(call->dtype, call->op, call->seed, r,
                           call->kind == SYMM_KIND_ALL_TO_ALL ? own : 0, call->count,
                           want + (size_t)r * kernel_call_bytes(call));
    }
}

struct symm_cuda_query kernel_call_query(const struct kernel_call *call, int size,
                                         int processors,
                                         const struct symm_cuda_scratch *scratch)
{
    return (struct symm_cuda_query){.kind = call->kind,
                                    .algorithm = call->algorithm,
                                    .dtype = call->dtype,
                                    .op = call->op,
                                    .size = size,
                                    .bytes = kernel_call_bytes(call),
                                    .processors = processors,
                                    .by_pointer = call->by_pointer,
                                    .scratch = *scratch};
}

void kernel_call_args(const struct kernel_call *call, struct symm_cuda_args *args)
{
    args->count = call->count;
    args->bytes = kernel_call_bytes(call);
    args->kind = (int32_t)call->kind;
    args->dtype = (int32_t)call->dtype;
    args->op = (int32_t)call->op;
    args->root = call->root;
}
