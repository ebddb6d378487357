/* SPDX-License-Identifier: MIT */
/* move_push_by_pointer.cu - the kernels of move_push.cu by pointer: see arrays.cuh. */
#define SYMM_BY_POINTER
#include "kernels/cuda/move_push.cu"
