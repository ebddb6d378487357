/* SPDX-License-Identifier: MIT */
/* all_reduce_two_shot_pull_by_pointer.cu - the kernels of all_reduce_two_shot_pull.cu by pointer: see arrays.cuh. */
#define SYMM_BY_POINTER
#include "kernels/cuda/all_reduce_two_shot_pull.cu"
