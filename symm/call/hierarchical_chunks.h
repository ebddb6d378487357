/* SPDX-License-Identifier: MIT */
/*
 * hierarchical_chunks.h - collectives of a hierarchical team that have steps on each host and a
 * step between hosts: in one piece, or in chunks.
 *
 * On CUDA a long call is cut (select/chunks.h). The engine's step of a chunk is on the channel's
 * side stream, beside the kernels of other chunks on the channel's own stream. Each element is
 * added as in one piece, by another rail perhaps. All ranks cut a call alike: the sizes come from what
 * they share.
 */
#ifndef SYMM_CALL_HIERARCHICAL_CHUNKS_H
#define SYMM_CALL_HIERARCHICAL_CHUNKS_H

#include "call/hierarchical_steps.h"

/* On rails; `part`: elements of each rank of the host. Those after them, which do not divide, are
 * left out. */
symm_status symm__chunked_all_reduce(struct symm_hierarchical_run *run,
                                     size_t part) SYMM_MUST_CHECK;
/* On rails. */
symm_status
symm__chunked_reduce_scatter(struct symm_hierarchical_run *run) SYMM_MUST_CHECK;
symm_status symm__chunked_all_gather(struct symm_hierarchical_run *run) SYMM_MUST_CHECK;
symm_status symm__chunked_broadcast(struct symm_hierarchical_run *run) SYMM_MUST_CHECK;

#endif
