/* SPDX-License-Identifier: MIT */
/* move_pull_wide.cu - the kernels of move_pull.cu for many ranks: see port.cuh. */
#define SYMM_WIDE
#include "kernels/cuda/move_pull.cu"
