/* SPDX-License-Identifier: MIT */
/* all_reduce_inplace_wide.cu - the kernels of all_reduce_inplace.cu, many ranks: see port.cuh. */
#define SYMM_WIDE
#include "kernels/cuda/all_reduce_inplace.cu"
