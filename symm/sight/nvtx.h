/* SPDX-License-Identifier: MIT */
/*
 * nvtx.h - calls as NVTX ranges, for profilers (Nsight Systems, Nsight Compute): domain "symm",
 * one range a call on the thread that makes it, or runs it on a stream of the host.
 *
 * Only where a profiler has set NVTX_INJECTION64_PATH: else there is no struct symm_nvtx and
 * nothing is loaded. A range's message is registered, "all_reduce layer 1 4096 B one_shot_pull:
 * reason"; its payload is the bytes, its category the operation.
 */
#ifndef SYMM_SIGHT_NVTX_H
#define SYMM_SIGHT_NVTX_H

#include <stdbool.h>
#include <stdint.h>

#include "sight/page.h"

struct symm_nvtx;

/* NULL: no profiler asks for ranges, or it cannot be loaded, or the build is without NVTX. */
struct symm_nvtx *symm__nvtx_open(void);
void symm__nvtx_close(struct symm_nvtx *nvtx); /* NULL is fine */

/* A call is queued, and its range begins when it runs; its site then, 0: not known any more. */
void symm__nvtx_queued(struct symm_nvtx *nvtx, uint64_t number, uint32_t site);
uint32_t symm__nvtx_queued_site(struct symm_nvtx *nvtx, uint64_t number);
/* Begins the range of a call. False: the site has no message yet; give it one and try again. */
bool symm__nvtx_push(struct symm_nvtx *nvtx, uint64_t number, uint32_t site);
void symm__nvtx_site(struct symm_nvtx *nvtx, const struct symm_sight_site *site);
/* Ends the call's range if it is the last that this thread has begun. */
void symm__nvtx_pop(struct symm_nvtx *nvtx, uint64_t number);

#endif
