/* SPDX-License-Identifier: MIT */
/* all_reduce_stream_by_pointer.cu - the kernels of all_reduce_stream.cu by pointer: see arrays.cuh. */
#define SYMM_BY_POINTER
#include "kernels/cuda/all_reduce_stream.cu"
