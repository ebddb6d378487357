/* SPDX-License-Identifier: MIT */
/* norm.h - the launches of an all_reduce_norm on CUDA. */
#ifndef SYMM_CUDA_NORM_H
#define SYMM_CUDA_NORM_H

#include "cuda/launcher.h"

/* Makes args, which are filled but for that, those of a launch for rows [first, first + rows) of
 * the call. */
void symm__cuda_norm_part(const struct symm_args *call, size_t first, size_t rows,
                          struct symm_cuda_args *args);
/* Slot of device_ops.h. */
symm_status
symm__cuda_norm_rest(struct symm_team_channel *channel,
                     const struct symm_prepared_call *prepared) SYMM_MUST_CHECK;

#endif
