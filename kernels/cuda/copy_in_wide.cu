/* SPDX-License-Identifier: MIT */
/* copy_in_wide.cu - the kernels of copy_in.cu for many ranks: see port.cuh. */
#define SYMM_WIDE
#include "kernels/cuda/copy_in.cu"
