/* SPDX-License-Identifier: MIT */
/*
 * barrier.cu - every rank has arrived, and what it put before is visible.
 *
 * One block, one round: thread m stores the round's word into member m's pad and polls its own slot
 * of member m (acquire); with more members than threads, also for m + 32 and m + 64. The word is
 * a release: all stores of earlier kernels of this stream go before it, those at peers too, for
 * which other collectives do not wait. A member's word is there only if its stream has reached
 * the barrier. The slot alternates by the round's parity: member m's word of round r + 2 can
 * arrive only after m has seen this rank's word of r + 1, stored after this rank had read m's
 * word of r. (Between the rounds of a broadcast not all ranks exchange words: move_push.cu.)
 *
 * symm_barrier_copy_in_any
 */
#include "kernels/cuda/round.cuh"

SYMM_KERNEL(symm_barrier_copy_in_any)
{
    struct symm_round round = symm_round_open(args);

    symm_round_arrive(args, &round);
    /* after it, since the release would wait until the call word had arrived */
    symm_round_announce(args, &round);
    symm_round_close(args, &round);
    symm_round_wait(args, &round, SYMM_ALL_MEMBERS, true);
}
