/* SPDX-License-Identifier: MIT */
/* multimem_wide.cu - the kernels of multimem.cu for many ranks: see port.cuh. */
#define SYMM_WIDE
#include "kernels/cuda/multimem.cu"
