/* SPDX-License-Identifier: MIT */
/* all_reduce_pull_by_pointer.cu - the kernels of all_reduce_pull.cu by pointer: see arrays.cuh. */
#define SYMM_BY_POINTER
#include "kernels/cuda/all_reduce_pull.cu"
