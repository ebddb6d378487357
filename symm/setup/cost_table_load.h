/* SPDX-License-Identifier: MIT */
/*
 * cost_table_load.h - which cost table a job uses: that of SYMM_COSTS, else a built-in one
 * for this machine, else none.
 *
 * Refuses a file that is damaged, or has no curves (symm_init fails); does not use one that
 * is for another machine, and says so once. All ranks use one table or none.
 */
#ifndef SYMM_SETUP_COST_TABLE_LOAD_H
#define SYMM_SETUP_COST_TABLE_LOAD_H

#include "core/context.h"

/* Names the machine, and reads SYMM_COSTS if it is set. */
symm_status symm__costs_load(symm_ctx *ctx) SYMM_MUST_CHECK;
/* After the handshake, which compares what the ranks have read: sets ctx->costs. `alike`:
 * all ranks have one name for their machines. */
void symm__costs_agree(symm_ctx *ctx, bool alike);
void symm__costs_drop(symm_ctx *ctx);

#endif
