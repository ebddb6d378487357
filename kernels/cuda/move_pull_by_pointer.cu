/* SPDX-License-Identifier: MIT */
/* move_pull_by_pointer.cu - the kernels of move_pull.cu by pointer: see arrays.cuh. */
#define SYMM_BY_POINTER
#include "kernels/cuda/move_pull.cu"
