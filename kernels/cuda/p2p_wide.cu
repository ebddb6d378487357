/* SPDX-License-Identifier: MIT */
/* p2p_wide.cu - the kernels of p2p.cu for many ranks: see port.cuh. */
#define SYMM_WIDE
#include "kernels/cuda/p2p.cu"
