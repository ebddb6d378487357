/* SPDX-License-Identifier: MIT */
/* move_push_wide.cu - the kernels of move_push.cu for many ranks: see port.cuh. */
#define SYMM_WIDE
#include "kernels/cuda/move_push.cu"
