/* SPDX-License-Identifier: MIT */
/* context.c - see context.h. */
#include "core/context.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "util/log.h"
#include "util/status.h"

symm_status symm__ctx_check_in(const symm_ctx *ctx, const char *function)
{
    if (!ctx)
        return symm__fail(SYMM_ERR_INVALID, "%s: the context is NULL", function);
    if (*ctx->own_process != 1)
        return symm__fail(
            SYMM_ERR_FORKED,
            "%s: the context of rank %d belongs to the parent of this process; "
            "call symm_init in the process that uses it",
            function, ctx->rank);
    return SYMM_OK;
}

symm_status symm__ctx_life_open(symm_ctx *ctx)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *at =
        mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED)
        return symm__fail_errno(SYMM_ERR_NOMEM, errno,
                                "mapping a page for the context");
    if (madvise(at, page, MADV_WIPEONFORK) != 0)
        symm__log(SYMM_LOG_DEBUG, "no MADV_WIPEONFORK: use after fork is not detected");
    *at = 1;
    ctx->own_process = at;
    ctx->life = malloc(sizeof(*ctx->life));
    if (!ctx->life)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a context");
    *ctx->life = (struct symm_life){.references = 1, .end = SYMM_LIVES};
    return SYMM_OK;
}

void symm__ctx_life_close(symm_ctx *ctx, bool forked)
{
    if (ctx->own_process)
        munmap((void *)(uintptr_t)ctx->own_process, (size_t)sysconf(_SC_PAGESIZE));
    if (ctx->life)
        /* release: pairs with the acquire in symm__life_end */
        __atomic_store_n(&ctx->life->end,
                         forked ? SYMM_FINALIZED_FORKED : SYMM_FINALIZED,
                         __ATOMIC_RELEASE);
    symm__life_drop(ctx->life);
}

struct symm_life *symm__life_take(const symm_ctx *ctx)
{
    __atomic_add_fetch(&ctx->life->references, 1, __ATOMIC_RELAXED);
    return ctx->life;
}

void symm__life_drop(struct symm_life *life)
{
    /* acquire and release: the last holder sees all that the others did */
    if (life && __atomic_sub_fetch(&life->references, 1, __ATOMIC_ACQ_REL) == 0)
        free(life);
}

double symm__queue_limit(const symm_ctx *ctx, double timeout)
{
    const double limit =
        ctx->queue_timeout < 0 ? SYMM_QUEUE_TIMEOUTS * timeout : ctx->queue_timeout;

    if (ctx->queue_timeout == 0)
        return INFINITY;
    return limit > timeout ? limit : timeout;
}

int symm__stream_index(const symm_ctx *ctx, const void *stream)
{
    for (int i = 0; i < SYMM_MAX_STREAMS; i++)
        /* relaxed: only compared; what the caller knows of the stream orders its use */
        if (stream && __atomic_load_n(&ctx->streams[i], __ATOMIC_RELAXED) == stream)
            return i;
    return -1;
}
