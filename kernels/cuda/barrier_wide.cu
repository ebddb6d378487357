/* SPDX-License-Identifier: MIT */
/* barrier_wide.cu - the kernels of barrier.cu for many ranks: see port.cuh. */
#define SYMM_WIDE
#include "kernels/cuda/barrier.cu"
