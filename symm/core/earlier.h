/* SPDX-License-Identifier: MIT */
/*
 * earlier.h - what a rank failed with before it finalized its context.
 *
 * A rank that has failed often finalizes. Ranks that wait for it in another team then find that it
 * has finalized, but not why: no record of their team names the rank that is the cause. So each rank
 * keeps the sentence of its last failure, and puts it into its control page when it finalizes; a
 * sentence that says that a rank has finalized ends with it. What a sentence quotes so is kept in
 * place of the sentence, so that the cause goes from rank to rank whole. Ranks on other hosts do not
 * see it.
 */
#ifndef SYMM_CORE_EARLIER_H
#define SYMM_CORE_EARLIER_H

#include "core/context.h"
#include "oob/oob.h"

/* A call of this rank has failed; NULL: the failures until now are overcome. */
void symm__earlier_keep(symm_ctx *ctx, const char *sentence);
/* The same with this thread's error. */
void symm__earlier_keep_last(symm_ctx *ctx);
/* Shows it to peers. Once, before the context is marked as finalized. */
void symm__earlier_show(symm_ctx *ctx);
/* What that rank had failed with, for the end of a sentence that says that it has ended; "": it has
 * not finalized, had not failed, or is on another host. */
const char *symm__earlier_text(const symm_ctx *ctx, int world_rank,
                               char text[SYMM_EARLIER_TEXT_BYTES]);

#endif
