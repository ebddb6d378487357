/* SPDX-License-Identifier: MIT */
/*
 * device_bc.c - symm/device_bitcode.h as LLVM bitcode, libsymm_device.bc: the functions of
 * symm/device.h with addresses as integers. Made by clang for NVPTX, never part of the library
 * itself. No global variables, and no function that it does not define.
 */
#include "symm/device.h"
#include "symm/device_bitcode.h"

#if !SYMM_DEVICE_PTX
#error "device_bc.c is for clang --target=nvptx64-nvidia-cuda"
#endif

/* Small functions are inlined into the caller, whatever processor its module names. */
#define SYMM_DEVICE_BC_SMALL __attribute__((always_inline))

static const struct symm_device_team *team_at(uint64_t team)
{
    return (const struct symm_device_team *)team;
}

SYMM_DEVICE_BC_SMALL int32_t symm_device_bc_layout_ok(uint64_t team)
{
    return symm_device_layout_ok(team_at(team));
}

SYMM_DEVICE_BC_SMALL int32_t symm_device_bc_rank(uint64_t team)
{
    return team_at(team)->rank;
}

SYMM_DEVICE_BC_SMALL int32_t symm_device_bc_size(uint64_t team)
{
    return team_at(team)->size;
}

SYMM_DEVICE_BC_SMALL uint64_t symm_device_bc_peer(uint64_t team, uint64_t address,
                                                  int32_t peer)
{
    return (uint64_t)symm_device_peer(team_at(team), (const void *)address, peer);
}

void symm_device_bc_signal(uint64_t team, int32_t peer, int32_t signal, int32_t tag)
{
    symm_device_signal(team_at(team), peer, signal, (uint32_t)tag);
}

int32_t symm_device_bc_signal_wait(uint64_t team, int32_t peer, int32_t signal,
                                   int32_t tag)
{
    return symm_device_signal_wait(team_at(team), peer, signal, (uint32_t)tag);
}

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
                                    int32_t tag)
{
    (void)block_any(0);
    if (is_first())
        symm_device_signal(team_at(team), peer, signal, (uint32_t)tag);
    return block_any(0);
}

int32_t symm_device_bc_block_signal_wait(uint64_t team, int32_t peer, int32_t signal,
                                         int32_t tag)
{
    int32_t failed = 0;

    if (is_first())
        failed = symm_device_signal_wait(team_at(team), peer, signal, (uint32_t)tag);
    return block_any(failed);
}
