/* SPDX-License-Identifier: MIT */
/*
 * buffer.c - the buffers of call sites: placed once, the same memory at every later call.
 *
 * Allocation is local: the offset follows from the calls made, and rendezvous.c compares
 * those. A buffer that no rendezvous has covered can be freed and placed anew at once; one
 * that peers have mapped is reused only after the next rendezvous.
 */
#include "memory/buffer.h"

#include <stdlib.h>
#include <string.h>

#include "core/device_ops.h"
#include "core/registered.h"
#include "core/segments.h"
#include "core/team.h"
#include "memory/team_plan.h"
#include "record/record.h"
#include "util/status.h"

#define MAX_NDIM 16

/* Index of the first buffer that is not before (alloc_id, offset). */
static size_t buffer_find(const symm_team *team, uint64_t alloc_id, size_t offset)
{
    size_t low = 0, high = team->buffer_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const symm_buffer *b = team->buffers[middle];

        if (b->alloc_id < alloc_id || (b->alloc_id == alloc_id && b->offset < offset))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static symm_buffer *buffer_of_id(const symm_team *team, uint64_t alloc_id)
{
    size_t at = alloc_id ? buffer_find(team, alloc_id, 0) : team->buffer_count;

    return at < team->buffer_count && team->buffers[at]->alloc_id == alloc_id
               ? team->buffers[at]
               : NULL;
}

static symm_status buffers_reserve(symm_team *team)
{
    size_t capacity = team->buffer_capacity ? 2 * team->buffer_capacity : 64;
    symm_buffer **grown;

    if (team->buffer_count < team->buffer_capacity)
        return SYMM_OK;
    grown = realloc(team->buffers, capacity * sizeof(*grown));
    if (!grown)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a table of %zu buffers",
                          capacity);
    team->buffers = grown;
    team->buffer_capacity = capacity;
    return SYMM_OK;
}

static void buffer_insert(symm_team *team, symm_buffer *buffer)
{
    size_t at = buffer_find(team, buffer->alloc_id, buffer->offset);

    memmove(&team->buffers[at + 1], &team->buffers[at],
            (team->buffer_count - at) * sizeof(*team->buffers));
    team->buffers[at] = buffer;
    team->buffer_count++;
}

/* Takes the buffer out of the team and frees it; its bytes become free or retired. */
static void buffer_remove(symm_buffer *buffer)
{
    symm_team *team = buffer->team;
    size_t at = buffer_find(team, buffer->alloc_id, buffer->offset);

    if (symm__is_recorded(team->ctx))
        symm__record_unplace(buffer);
    team->buffer_count--;
    memmove(&team->buffers[at], &team->buffers[at + 1],
            (team->buffer_count - at) * sizeof(*team->buffers));
    if (buffer->registration)
        symm__registered_remove(buffer);
    else if (buffer->planned)
        ; /* its bytes belong to the arena */
    else if (!buffer->shared || symm__heap_free(&team->heap, buffer->offset) != SYMM_OK)
        symm__heap_discard(&team->heap, buffer->offset);
    free(buffer);
}

/* Bytes from the first to after the last element; 0 if a dimension is 0. */
static symm_status extent(int ndim, const int64_t *shape, const int64_t *stride,
                          symm_dtype dtype, size_t *bytes)
{
    size_t element = symm_dtype_size(dtype), last = 0, span;
    int d;

    if (element == 0)
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_empty_strided_p2p: dtype %d is unknown", (int)dtype);
    if (ndim < 0 || ndim > MAX_NDIM || (ndim > 0 && (!shape || !stride)))
        return symm__fail(
            SYMM_ERR_INVALID,
            "symm_empty_strided_p2p: ndim %d with shape %p and stride %p; "
            "0 to %d dimensions with both arrays",
            ndim, (const void *)shape, (const void *)stride, MAX_NDIM);
    *bytes = 0;
    for (d = 0; d < ndim; d++)
        if (shape[d] < 0 || stride[d] < 0)
            return symm__fail(SYMM_ERR_INVALID,
                              "symm_empty_strided_p2p: dimension %d has shape %lld and "
                              "stride %lld; negative ones are not possible",
                              d, (long long)shape[d], (long long)stride[d]);
    for (d = 0; d < ndim; d++)
        if (shape[d] == 0)
            return SYMM_OK;
    for (d = 0; d < ndim; d++)
        if (__builtin_mul_overflow((size_t)(shape[d] - 1), (size_t)stride[d], &span) ||
            __builtin_add_overflow(last, span, &last))
            goto err_overflow;
    if (ndim == 0) {
        *bytes = element; /* a scalar */
        return SYMM_OK;
    }
    if (__builtin_add_overflow(last, 1, &last) ||
        __builtin_mul_overflow(last, element, bytes) || *bytes > PTRDIFF_MAX)
        goto err_overflow;
    return SYMM_OK;

err_overflow:
    d = d < ndim ? d : ndim - 1; /* after the last: all of them together are too much */
    return symm__fail(
        SYMM_ERR_OVERFLOW,
        "symm_empty_strided_p2p: shape %lld with stride %lld in dimension %d "
        "of %d reaches beyond the address space (%s)",
        (long long)shape[d], (long long)stride[d], d, ndim, symm_dtype_name(dtype));
}

/* Holds the buffer again: a call site's second or later call. */
static symm_status hold_again(symm_buffer *buffer, size_t bytes, symm_dtype dtype)
{
    if (buffer->held)
        return symm__fail(SYMM_ERR_IN_USE,
                          "alloc_id %llu is still held; release its buffer first",
                          (unsigned long long)buffer->alloc_id);
    if (buffer->bytes != bytes || buffer->dtype != dtype)
        return symm__fail(
            SYMM_ERR_MISMATCH,
            "alloc_id %llu was placed with %zu bytes of %s and is now asked "
            "for %zu bytes of %s; free it by symm_alloc_id_free, or use "
            "another alloc_id",
            (unsigned long long)buffer->alloc_id, buffer->bytes,
            symm_dtype_name(buffer->dtype), bytes, symm_dtype_name(dtype));
    buffer->held = true;
    return SYMM_OK;
}

/* Places the buffer in the arena, which is reserved already; two such buffers may share bytes. */
static symm_status place_planned(symm_team *team, const symm_plan_buffer *place,
                                 symm_buffer *buffer)
{
    if (buffer->bytes > place->bytes)
        return symm__fail(
            SYMM_ERR_MISMATCH,
            "alloc_id %llu asks for %zu bytes of %s, and plan '%s' has %zu bytes for "
            "it (buffer '%s'); make the plan of this program again, or use an alloc_id "
            "that the plan does not name",
            (unsigned long long)buffer->alloc_id, buffer->bytes,
            symm_dtype_name(buffer->dtype), team->plan->path, place->bytes,
            place->name);
    buffer->offset = team->plan->arena + place->offset;
    buffer->planned = true;
    buffer->shared = team->plan->agreed;
    buffer_insert(team, buffer);
    return SYMM_OK;
}

static symm_status place(symm_team *team, size_t bytes, symm_buffer *buffer)
{
    const symm_plan_buffer *planned = symm__plan_buffer(team, buffer->alloc_id);
    symm_status status = buffers_reserve(team);

    if (status != SYMM_OK)
        return status;
    if (planned)
        return place_planned(team, planned, buffer);
    status = symm__heap_alloc(&team->heap, bytes, buffer->alloc_id, &buffer->offset);
    if (status != SYMM_OK)
        return status;
    status = symm__memory_grow(team, symm__heap_top(&team->heap));
    if (status != SYMM_OK) {
        symm__heap_discard(&team->heap, buffer->offset);
        return status;
    }
    buffer_insert(team, buffer);
    return SYMM_OK;
}

/* With the context locked. */
static symm_status take(symm_team *team, int ndim, const int64_t *shape,
                        const int64_t *stride, symm_dtype dtype, uint64_t alloc_id,
                        symm_buffer **buffer)
{
    symm_buffer *made = buffer_of_id(team, alloc_id);
    size_t bytes = 0;
    symm_status status = extent(ndim, shape, stride, dtype, &bytes);

    if (status != SYMM_OK)
        return status;
    if (made) {
        status = hold_again(made, bytes, dtype);
        if (status == SYMM_OK)
            *buffer = made;
        return status;
    }
    made = calloc(1, sizeof(*made));
    if (!made)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a buffer");
    made->team = team;
    made->alloc_id = alloc_id;
    made->bytes = bytes;
    made->held = true;
    made->dtype = dtype;
    made->ndim = ndim;
    if (ndim > 0) {
        memcpy(made->shape, shape, (size_t)ndim * sizeof(*shape));
        memcpy(made->stride, stride, (size_t)ndim * sizeof(*stride));
    }
    status = place(team, bytes, made);
    if (status != SYMM_OK) {
        free(made);
        return status;
    }
    if (symm__is_recorded(team->ctx))
        symm__record_buffer(made);
    *buffer = made;
    return SYMM_OK;
}

symm_status symm_empty_strided_p2p(symm_team *team, int ndim, const int64_t *shape,
                                   const int64_t *stride, symm_dtype dtype,
                                   uint64_t alloc_id, symm_buffer **buffer)
{
    symm_status status = symm__team_check(team);

    if (status != SYMM_OK)
        return status;
    if (!buffer)
        return symm__fail_null("symm_empty_strided_p2p", "buffer");
    pthread_mutex_lock(&team->ctx->lock);
    status = take(team, ndim, shape, stride, dtype, alloc_id, buffer);
    pthread_mutex_unlock(&team->ctx->lock);
    return status;
}

symm_status symm_buffer_alloc(symm_team *team, size_t bytes, symm_buffer **buffer)
{
    const int64_t shape = (int64_t)bytes, stride = 1;
    symm_status status = symm__team_check(team);

    if (status != SYMM_OK)
        return status;
    if (!buffer)
        return symm__fail_null("symm_buffer_alloc", "buffer");
    if (bytes > PTRDIFF_MAX)
        return symm__fail(SYMM_ERR_OVERFLOW,
                          "symm_buffer_alloc: %zu bytes reach beyond the address space",
                          bytes);
    pthread_mutex_lock(&team->ctx->lock);
    status = take(team, 1, &shape, &stride, SYMM_UINT8, 0, buffer);
    pthread_mutex_unlock(&team->ctx->lock);
    return status;
}

/* With the context locked. */
static symm_status add(symm_team *team, void *ptr, size_t bytes, symm_buffer **buffer)
{
    symm_buffer *made = calloc(1, sizeof(*made));
    symm_status status;

    if (!made)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a buffer");
    made->team = team;
    made->bytes = bytes;
    made->held = true;
    made->dtype = SYMM_UINT8;
    status = buffers_reserve(team);
    if (status == SYMM_OK)
        status = symm__registered_add(team, ptr, bytes, made);
    if (status != SYMM_OK) {
        free(made);
        return status;
    }
    buffer_insert(team, made);
    *buffer = made;
    return SYMM_OK;
}

symm_status symm_buffer_register(symm_team *team, void *ptr, size_t bytes,
                                 symm_buffer **buffer)
{
    symm_status status = symm__team_check(team);

    if (status != SYMM_OK)
        return status;
    if (!ptr || !buffer)
        return symm__fail(SYMM_ERR_INVALID, "symm_buffer_register: %s is NULL",
                          ptr ? "buffer" : "ptr");
    if (bytes == 0)
        return symm__fail(SYMM_ERR_INVALID, "symm_buffer_register: 0 bytes at %p", ptr);
    pthread_mutex_lock(&team->ctx->lock);
    status = add(team, ptr, bytes, buffer);
    pthread_mutex_unlock(&team->ctx->lock);
    return status;
}

/* Ends the caller's hold, or that of its tensor: neither ends the other's. */
static void let_go(symm_buffer *buffer, bool exported)
{
    symm_ctx *ctx = buffer->team->ctx;

    if (symm__ctx_check(ctx) != SYMM_OK)
        return;
    pthread_mutex_lock(&ctx->lock);
    if (buffer->held && buffer->exported == exported) {
        buffer->held = buffer->exported = false;
        if (buffer->alloc_id == 0)
            buffer_remove(buffer);
    }
    pthread_mutex_unlock(&ctx->lock);
}

void symm_buffer_release(symm_buffer *buffer)
{
    if (buffer)
        let_go(buffer, false);
}

void symm__buffer_return(symm_buffer *buffer)
{
    let_go(buffer, true);
}

symm_status symm__buffer_export(symm_buffer *buffer, const char *what)
{
    symm_ctx *ctx = buffer->team->ctx;
    symm_status status = SYMM_OK;

    pthread_mutex_lock(&ctx->lock);
    if (!buffer->held)
        status = symm__fail(SYMM_ERR_INVALID,
                            "%s: the buffer of alloc_id %llu has been released; get it "
                            "anew by symm_empty_strided_p2p",
                            what, (unsigned long long)buffer->alloc_id);
    else if (buffer->exported)
        status =
            symm__fail(SYMM_ERR_INVALID,
                       "%s: the buffer of alloc_id %llu belongs to a DLPack tensor "
                       "already; share that one, or get the buffer anew once it "
                       "has been deleted",
                       what, (unsigned long long)buffer->alloc_id);
    else if (buffer->registration)
        status = symm__fail(SYMM_ERR_UNSUPPORTED,
                            "%s: the buffer is a registered pointer, which has no "
                            "shape; export the tensor that the pointer is from",
                            what);
    else
        buffer->exported = true;
    pthread_mutex_unlock(&ctx->lock);
    return status;
}

static symm_status free_id(symm_team *team, uint64_t alloc_id)
{
    symm_buffer *buffer = buffer_of_id(team, alloc_id);

    if (!buffer)
        return symm__fail(SYMM_ERR_NOT_FOUND,
                          "alloc_id %llu has no buffer in this team",
                          (unsigned long long)alloc_id);
    if (buffer->held)
        return symm__fail(SYMM_ERR_IN_USE,
                          "alloc_id %llu is still held; release its buffer first",
                          (unsigned long long)alloc_id);
    buffer_remove(buffer);
    return SYMM_OK;
}

symm_status symm_alloc_id_free(symm_team *team, uint64_t alloc_id)
{
    symm_status status = symm__team_check(team);

    if (status != SYMM_OK)
        return status;
    if (alloc_id == 0)
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_alloc_id_free: alloc_id 0 names no buffer; "
                          "symm_buffer_release frees an anonymous one");
    pthread_mutex_lock(&team->ctx->lock);
    status = free_id(team, alloc_id);
    pthread_mutex_unlock(&team->ctx->lock);
    return status;
}

static void *heap_address(const symm_buffer *buffer, int world_rank)
{
    const symm_ctx *ctx = buffer->team->ctx;

    return symm__heap_base(ctx, world_rank) + buffer->offset;
}

symm_buffer *symm__buffer_at(symm_team *team, const void *ptr)
{
    symm_ctx *ctx = team->ctx;
    size_t offset = (size_t)((const char *)ptr - (symm__heap_base(ctx, ctx->rank)));
    symm_buffer *found = NULL;
    size_t at;

    pthread_mutex_lock(&ctx->lock);
    at = buffer_find(team, 0, offset);
    if (at < team->buffer_count && team->buffers[at]->alloc_id == 0 &&
        team->buffers[at]->offset == offset)
        found = team->buffers[at];
    pthread_mutex_unlock(&ctx->lock);
    return found;
}

void *symm_buffer_ptr(const symm_buffer *buffer)
{
    if (buffer && buffer->registration)
        return symm__registered_ptr(buffer, buffer->team->rank);
    return buffer ? heap_address(buffer, buffer->team->ctx->rank) : NULL;
}

size_t symm_buffer_bytes(const symm_buffer *buffer)
{
    return buffer ? buffer->bytes : 0;
}

size_t symm_buffer_offset(const symm_buffer *buffer)
{
    if (buffer && buffer->registration)
        return SIZE_MAX;
    return buffer ? buffer->offset : 0;
}

void *symm_buffer_peer_ptr(const symm_buffer *buffer, int peer)
{
    if (!buffer || peer < 0 || peer >= buffer->team->size ||
        !symm__is_mapped(buffer->team->ctx, buffer->team->world_rank[peer]))
        return NULL;
    if (symm__is_recorded(buffer->team->ctx) && peer != buffer->team->rank)
        symm__record_reached(buffer);
    if (buffer->registration)
        return symm__registered_ptr(buffer, peer);
    if (!buffer->shared && peer != buffer->team->rank)
        return NULL;
    return heap_address(buffer, buffer->team->world_rank[peer]);
}

void *symm_buffer_multicast_ptr(const symm_buffer *buffer)
{
    const struct symm_device_ops *device;

    if (!buffer || buffer->registration || !buffer->shared)
        return NULL;
    if (symm__is_recorded(buffer->team->ctx))
        symm__record_reached(buffer);
    device = buffer->team->ctx->device_ops;
    if (!device)
        return NULL;
    return device->multicast_at(buffer->team, buffer->offset, buffer->bytes);
}
