/* SPDX-License-Identifier: MIT */
/*
 * device_bc.c - the functions of symm/device.h as LLVM bitcode, libsymm_device.bc, for code
 * generators that link bitcode into their kernels (Triton's extern libraries, Numba, own
 * compilers). Made by clang for NVPTX, never part of the library itself.
 *
 * Every address goes in and out as a 64-bit integer, since generators differ in the address
 * spaces of their pointers. `team` is the address symm_team_device gave. All else is as
 * device.h says, in particular who may call: one thread of a block, between two barriers of
 * the block. The symm_device_bc_block_ functions are for generators that write code for a whole
 * block and name no thread (Triton): all threads of the block call them with equal
 * arguments, the first one acts, all get its result; each is a barrier of the block.
 * Results other than 0 are minus a symm_status: write no more and end.
 *
 * No global variables, nothing to initialise, no function that it does not define; needs
 * sm_70 or later. The names begin with symm_device_bc_ and stay as they are for one
 * SYMM_DEVICE_LAYOUT; symm_device_bc_layout_ok says whether a team has the layout of this file.
 */
#include "symm/device.h"

#if !SYMM_DEVICE_PTX
#error "device_bc.c is for clang --target=nvptx64-nvidia-cuda"
#endif

/* Small ones vanish into the caller, whatever processor its module names. */
#define SYMM_DEVICE_BC_SMALL __attribute__((always_inline))

static const struct symm_device_team *team_at(uint64_t team)
{
    return (const struct symm_device_team *)team;
}

int32_t symm_device_bc_layout_ok(uint64_t team);
int32_t symm_device_bc_rank(uint64_t team);
int32_t symm_device_bc_size(uint64_t team);
uint64_t symm_device_bc_peer(uint64_t team, uint64_t address, int32_t peer);
void symm_device_bc_signal(uint64_t team, int32_t peer, int32_t signal, int32_t tag);
int32_t symm_device_bc_signal_wait(uint64_t team, int32_t peer, int32_t signal,
                                   int32_t tag);
int32_t symm_device_bc_barrier(uint64_t team, int32_t channel, int32_t block,
                               int32_t blocks, int32_t tag);

/* 1: this file and the team have one layout; 0: do nothing with it. */
SYMM_DEVICE_BC_SMALL int32_t symm_device_bc_layout_ok(uint64_t team)
{
    return symm_device_layout_ok(team_at(team));
}

/* This rank in the team, and how many ranks it has. */
SYMM_DEVICE_BC_SMALL int32_t symm_device_bc_rank(uint64_t team)
{
    return team_at(team)->rank;
}

SYMM_DEVICE_BC_SMALL int32_t symm_device_bc_size(uint64_t team)
{
    return team_at(team)->size;
}

/* Where an address of this rank's heap lies in the peer's, as mapped here. */
SYMM_DEVICE_BC_SMALL uint64_t symm_device_bc_peer(uint64_t team, uint64_t address,
                                                  int32_t peer)
{
    return (uint64_t)symm_device_peer(team_at(team), (const void *)address, peer);
}

/* Raises signal 0 .. SYMM_SIGNALS - 1 at the peer, after all that went before. */
void symm_device_bc_signal(uint64_t team, int32_t peer, int32_t signal, int32_t tag)
{
    symm_device_signal(team_at(team), peer, signal, (uint32_t)tag);
}

/* Waits for the peer's next raising of the signal. */
int32_t symm_device_bc_signal_wait(uint64_t team, int32_t peer, int32_t signal,
                                   int32_t tag)
{
    return symm_device_signal_wait(team_at(team), peer, signal, (uint32_t)tag);
}

/* A barrier of block `block` of `blocks` with the same block of all members. */
int32_t symm_device_bc_barrier(uint64_t team, int32_t channel, int32_t block,
                               int32_t blocks, int32_t tag)
{
    return symm_device_barrier(team_at(team), (uint32_t)channel, (uint32_t)block,
                               (uint32_t)blocks, (uint32_t)tag);
}

/* ---- For all threads of a block ------------------------------------------------------ */

/* A barrier of the block; whether any thread gave anything but 0. */
static int32_t block_any(int32_t mine)
{
    int32_t any;

    __asm__ volatile("{ .reg .pred mine, any;"
                     " setp.ne.s32 mine, %1, 0;"
                     " bar.red.or.pred any, 0, mine;"
                     " selp.s32 %0, 1, 0, any; }"
                     : "=r"(any)
                     : "r"(mine)
                     : "memory");
    return any;
}

static int32_t is_first(void)
{
    uint32_t x, y, z;

    __asm__("mov.u32 %0, %%tid.x;" : "=r"(x));
    __asm__("mov.u32 %0, %%tid.y;" : "=r"(y));
    __asm__("mov.u32 %0, %%tid.z;" : "=r"(z));
    return (x | y | z) == 0;
}

int32_t symm_device_bc_block_signal(uint64_t team, int32_t peer, int32_t signal,
                                    int32_t tag);
int32_t symm_device_bc_block_signal_wait(uint64_t team, int32_t peer, int32_t signal,
                                         int32_t tag);

/* What the block's threads did before is visible to who waits for the signal. Gives 0. */
int32_t symm_device_bc_block_signal(uint64_t team, int32_t peer, int32_t signal,
                                    int32_t tag)
{
    (void)block_any(0);
    if (is_first())
        symm_device_signal(team_at(team), peer, signal, (uint32_t)tag);
    return block_any(0);
}

/* 0, or 1: the wait has failed; the record says why. */
int32_t symm_device_bc_block_signal_wait(uint64_t team, int32_t peer, int32_t signal,
                                         int32_t tag)
{
    int32_t failed = 0;

    if (is_first())
        failed = symm_device_signal_wait(team_at(team), peer, signal, (uint32_t)tag);
    return block_any(failed);
}
