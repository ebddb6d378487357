/* SPDX-License-Identifier: MIT */
/*
 * all_reduce_lamport.cu - lamport_push: one-shot all-reduce of floats up to 32 bits, whose
 * data is its own flag: 16 bytes of payload in 16 bytes. Any op, size of the team, count and
 * alignment, in as many rounds as it takes; all_reduce_line.cu has the fast kernels of common
 * calls. Every rank sends its whole input to every peer and sums in rank order: the same bits
 * everywhere. Only a NaN's payload may change.
 *
 * The work and the argument why it is right: warp_exchange.cuh and packet.cuh.
 * Launch: 32 x size threads.
 *
 * symm_all_reduce_lamport_push_any
 */
#include "kernels/cuda/warp_exchange.cuh"

SYMM_KERNEL(symm_all_reduce_lamport_push_any)
{
    symm_warp_exchange_reduce<symm_lamport, 0, 0, 0>(args, 0);
}
