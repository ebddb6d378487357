/* SPDX-License-Identifier: MIT */
/*
 * run.h - allocations of the caller that peers map whole: what their owner sends of them, and a
 * peer's mappings.
 *
 * A peer maps a run once for all that lies in it, of all teams; the last user unmaps it. Base,
 * size and the backend's identifier identify a run. An identifier is never used twice: new memory
 * at an old address is another run.
 * Everything here is called with the context locked, but for the functions of own runs.
 */
#ifndef SYMM_CORE_RUN_H
#define SYMM_CORE_RUN_H

#include "core/context.h"
#include "core/mem.h"

/* How a peer gets a run: by descriptors or a token, as an address (ranks are threads), or by an
 * earlier entry of the same message. */
enum symm_run_way { SYMM_RUN_SENT, SYMM_RUN_THREAD, SYMM_RUN_KNOWN, SYMM_RUN_WAYS };

/* A run in a message; its descriptors, if it has some and is sent, go beside. */
struct symm_wire_run {
    uint32_t way; /* enum symm_run_way */
    uint32_t reserved;
    struct symm_run run;
    uint8_t token[SYMM_RUN_TOKEN];
};

struct symm_opened; /* a peer's run, mapped here */

bool symm__run_same(const struct symm_run *a, const struct symm_run *b);
/* The run that memory of this rank lies in; *mem: of symm_mem_alloc, or NULL. */
symm_status symm__run_take(symm_ctx *ctx, void *ptr, size_t bytes,
                           struct symm_own_run *own,
                           struct symm_mem_hold **mem) SYMM_MUST_CHECK;
void symm__run_give(symm_ctx *ctx, struct symm_own_run *own, struct symm_mem_hold *mem);

/* Has a peer's message sound numbers? To be called before anything in it is used. */
bool symm__run_is_sound(const struct symm_wire_run *wire);
/* The descriptors that come with it. */
int symm__run_fds(const struct symm_wire_run *wire);
/* A rank's run: one that is open already, or newly mapped. symm__run_drop ends it. */
symm_status symm__run_get(symm_ctx *ctx, int rank, const struct symm_wire_run *wire,
                          const int *fds, struct symm_opened **opened) SYMM_MUST_CHECK;
void symm__run_hold(struct symm_opened *opened);                /* adds a reference */
void symm__run_drop(symm_ctx *ctx, struct symm_opened *opened); /* NULL is allowed */
char *symm__run_at(const struct symm_opened *opened);

#endif
