/* SPDX-License-Identifier: MIT */
/*
 * processors.h - how many multiprocessors a rank's calls may count on.
 *
 * A call's grid is the same on all ranks, so it is made for the fewest multiprocessors of any rank
 * (ctx->processors). With MPS the device's attribute has those of the process. Ranks that share a
 * device by MPS run at the same time: each gets an equal part at most (setup/handshake.c). A green
 * context has a part of them, which the ranks cannot agree on once calls are under way: so each rank
 * tells in symm_init how few its streams will have, and a stream that has fewer is refused.
 */
#ifndef SYMM_CUDA_PROCESSORS_H
#define SYMM_CUDA_PROCESSORS_H

#include "cuda/launcher.h"

/* Lowers info->processors, the device's, to those of the context of that device which is current, and
 * to SYMM_PROCESSORS. Sets info->mps. */
symm_status symm__cuda_processors(const struct symm_cuda_driver *driver,
                                  CUdevice device,
                                  struct symm_device_info *info) SYMM_MUST_CHECK;
/* Slot of device_ops.h. */
symm_status symm__cuda_stream_admit(symm_ctx *ctx, void *stream) SYMM_MUST_CHECK;

#endif
