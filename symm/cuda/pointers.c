/* SPDX-License-Identifier: MIT */
/*
 * pointers.c - the entries of captured calls in memory of the device.
 *
 * They lie in chunks, which graphs have the addresses of: a chunk stays until the team's end.
 * The host has a copy of each, from which it writes. Every write is complete when its function
 * returns: a replay that is launched after that sees it. Addresses are complete before the
 * states are written, and are not changed after that (docs/memory-model.md).
 */
#include <stddef.h>
#include <stdlib.h>

#include "cuda/launcher.h"
#include "util/status.h"

#define CHUNK ((size_t)512) /* entries */

struct symm_cuda_pointers_chunk {
    struct symm_cuda_pointers *device;
    struct symm_cuda_pointers host[CHUNK];
};

/* Copies entries [first, end) of all chunks to the device. */
static symm_status flush(symm_team *team, size_t first, size_t end)
{
    symm_status status = SYMM_OK;

    while (first < end && status == SYMM_OK) {
        const struct symm_cuda_pointers_chunk *chunk =
            team->cuda->chunks[first / CHUNK];
        const size_t at = first % CHUNK,
                     count = end - first < CHUNK - at ? end - first : CHUNK - at;

        status = symm__cuda_copy(team->ctx, chunk->device + at, chunk->host + at,
                                 count * sizeof(chunk->host[0]));
        first += count;
    }
    return status;
}

static symm_status chunk_add(symm_team *team)
{
    struct symm_cuda_team *cuda = team->cuda;
    struct symm_cuda_pointers_chunk *made = calloc(1, sizeof(*made)), **grown;
    void *device = NULL;
    symm_status status;

    grown = realloc(cuda->chunks, (cuda->chunk_count + 1) * sizeof(*grown));
    if (grown)
        cuda->chunks = grown;
    if (!made || !grown) {
        free(made);
        return symm__fail(SYMM_ERR_NOMEM, "no memory for entries of captured calls");
    }
    for (size_t i = 0; i < CHUNK; i++)
        made->host[i].call = (uint32_t)(cuda->chunk_count * CHUNK + i);
    status = symm__cuda_local_alloc(team->ctx->backend, sizeof(made->host), &device);
    if (status != SYMM_OK) {
        free(made);
        return status;
    }
    made->device = device;
    cuda->chunks[cuda->chunk_count++] = made;
    status = flush(team, (cuda->chunk_count - 1) * CHUNK, cuda->chunk_count * CHUNK);
    if (status != SYMM_OK) {
        cuda->chunk_count--;
        symm__cuda_local_free(team->ctx->backend, device);
        free(made);
    }
    return status;
}

symm_status symm__cuda_pointers_add(symm_team *team, size_t index,
                                    const struct symm_cuda_pointers **entry)
{
    symm_status status = SYMM_OK;

    if (index / CHUNK == team->cuda->chunk_count)
        status = chunk_add(team);
    if (status == SYMM_OK)
        *entry = team->cuda->chunks[index / CHUNK]->device + index % CHUNK;
    return status;
}

static struct symm_cuda_pointers *host_entry(const symm_team *team, size_t index)
{
    return &team->cuda->chunks[index / CHUNK]->host[index % CHUNK];
}

symm_status symm__cuda_pointers_write(symm_team *team, size_t first, size_t count,
                                      const struct symm_cuda_pointers *entries)
{
    symm_status status;

    for (size_t i = 0; i < count; i++) {
        struct symm_cuda_pointers *to = host_entry(team, first + i);

        *to = entries[i];
        to->state = SYMM_CUDA_POINTERS_UNKNOWN;
    }
    status = flush(team, first, first + count);
    if (status != SYMM_OK)
        return status;
    for (size_t i = 0; i < count; i++)
        host_entry(team, first + i)->state = entries[i].state;
    return flush(team, first, first + count);
}

symm_status symm__cuda_pointers_release(symm_team *team, const size_t *list,
                                        size_t count)
{
    for (size_t i = 0; i < count; i++)
        host_entry(team, list[i])->state = SYMM_CUDA_POINTERS_RELEASED;
    return count == 0 ? SYMM_OK : flush(team, list[0], list[count - 1] + 1);
}

void symm__cuda_pointers_free(struct symm_cuda_team *cuda)
{
    for (size_t i = 0; i < cuda->chunk_count; i++) {
        symm__cuda_local_free(cuda->team->ctx->backend, cuda->chunks[i]->device);
        free(cuda->chunks[i]);
    }
    free(cuda->chunks);
}
