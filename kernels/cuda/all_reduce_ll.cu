/* SPDX-License-Identifier: MIT */
/*
 * all_reduce_ll.cu - ll_push: one-shot all-reduce by packets that carry their flag, any dtype,
 * op, size of the team, count and alignment. Every rank sends its whole input to every peer
 * and sums what it gets in rank order: the same bits everywhere. Twice the bytes of the payload
 * go over the wire, and beside them only the call words.
 *
 * The work and the argument why it is right: warp_exchange.cuh and packet.cuh.
 * Launch: 32 x size threads; blocks x 32 packets of 8 bytes at most as many as a slot takes.
 *
 * symm_all_reduce_ll_push_any
 */
#include "kernels/cuda/warp_exchange.cuh"

SYMM_KERNEL(symm_all_reduce_ll_push_any)
{
    symm_warp_exchange_reduce<symm_ll, 0, 0, 0>(args, 0);
}
