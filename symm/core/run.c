/* SPDX-License-Identifier: MIT */
/* run.c - see run.h. */
#include "core/run.h"

#include <stdlib.h>
#include <string.h>

#include "util/status.h"

/* A peer's run that is mapped here, on the context's list. */
struct symm_opened {
    struct symm_opened *next;
    int rank; /* of the world */
    struct symm_run run;
    bool mine; /* a mapping was made: not where ranks are threads */
    void *at;
    int references;
};

bool symm__run_same(const struct symm_run *a, const struct symm_run *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

/* ---- This rank's --------------------------------------------------------------------- */

void symm__run_give(symm_ctx *ctx, struct symm_own_run *own, struct symm_mem_hold *mem)
{
    ctx->ops->run_give(ctx->backend, own);
    symm__mem_drop(mem);
}

symm_status symm__run_take(symm_ctx *ctx, void *ptr, size_t bytes,
                           struct symm_own_run *own, struct symm_mem_hold **mem)
{
    symm_status status;

    *mem = symm__mem_hold(ptr);
    status = ctx->ops->run_take(ctx->backend, ptr, bytes,
                                *mem ? symm__mem_of(*mem) : NULL, own);
    if (status != SYMM_OK) {
        symm__mem_drop(*mem);
        return status;
    }
    if (ctx->thread_group && own->run.kind == SYMM_RUN_BY_TOKEN) {
        symm__run_give(ctx, own, *mem);
        return symm__fail(SYMM_ERR_UNSUPPORTED,
                          "symm_buffer_register: %zu bytes at %p were not made by "
                          "symm_mem_alloc or cuMemCreate, which ranks that are threads "
                          "need",
                          bytes, ptr);
    }
    return SYMM_OK;
}

/* ---- A peer's ----------------------------------------------------------------------- */

bool symm__run_is_sound(const struct symm_wire_run *wire)
{
    uint64_t sum = 0;

    if (wire->way >= SYMM_RUN_WAYS || wire->run.kind >= SYMM_RUN_KINDS ||
        wire->run.chunks < 1 || wire->run.chunks > SYMM_RUN_CHUNKS)
        return false;
    for (uint32_t i = 0; i < wire->run.chunks; i++)
        if (__builtin_add_overflow(sum, wire->run.chunk[i], &sum))
            return false;
    return sum == wire->run.bytes;
}

int symm__run_fds(const struct symm_wire_run *wire)
{
    return wire->way == SYMM_RUN_SENT && wire->run.kind == SYMM_RUN_DESCRIPTORS
               ? (int)wire->run.chunks
               : 0;
}

static symm_status opened_map(symm_ctx *ctx, const struct symm_wire_run *wire,
                              const int *fds, struct symm_opened *opened)
{
    switch ((enum symm_run_way)wire->way) {
    case SYMM_RUN_SENT:
        opened->mine = true;
        return ctx->ops->run_open(ctx->backend, &wire->run, fds, wire->token,
                                  &opened->at);
    case SYMM_RUN_THREAD: /* one address space: the owner's mapping is used */
        opened->at = (void *)(uintptr_t)wire->run.base;
        return ctx->ops->run_reach(ctx->backend, &wire->run);
    case SYMM_RUN_KNOWN:
    case SYMM_RUN_WAYS:
        break;
    }
    return symm__fail(SYMM_ERR_REFUSED,
                      "a peer takes its allocation of %llu bytes at %#llx to be mapped "
                      "here, but it is not",
                      (unsigned long long)wire->run.bytes,
                      (unsigned long long)wire->run.base);
}

symm_status symm__run_get(symm_ctx *ctx, int rank, const struct symm_wire_run *wire,
                          const int *fds, struct symm_opened **opened)
{
    struct symm_opened *made = ctx->opened;
    symm_status status;

    while (made && (made->rank != rank || !symm__run_same(&made->run, &wire->run)))
        made = made->next;
    if (!made) {
        made = calloc(1, sizeof(*made));
        if (!made)
            return symm__fail(SYMM_ERR_NOMEM, "no memory for a peer's memory");
        made->rank = rank;
        made->run = wire->run;
        status = opened_map(ctx, wire, fds, made);
        if (status != SYMM_OK) {
            free(made);
            return status;
        }
        made->next = ctx->opened;
        ctx->opened = made;
    }
    made->references++;
    *opened = made;
    return SYMM_OK;
}

void symm__run_hold(struct symm_opened *opened)
{
    opened->references++;
}

void symm__run_drop(symm_ctx *ctx, struct symm_opened *opened)
{
    struct symm_opened **at = &ctx->opened;

    if (!opened || --opened->references > 0)
        return;
    while (*at != opened)
        at = &(*at)->next;
    *at = opened->next;
    if (opened->mine)
        ctx->ops->run_close(ctx->backend, &opened->run, opened->at);
    free(opened);
}

char *symm__run_at(const struct symm_opened *opened)
{
    return opened->at;
}
