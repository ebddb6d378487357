/* SPDX-License-Identifier: MIT */
/*
 * device_bc.c - symm/device_bitcode.h as LLVM bitcode, libsymm_device.bc: the functions of
 * symm/device.h and symm/device_exchange.h with addresses as integers. Made by clang for NVPTX,
 * never part of the library itself. No global variables, and no function that it does not define.
 */
#include "symm/device_bitcode.h"
#include "symm/device_exchange.h"

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

/* ---- Exchanges ----------------------------------------------------------------------- */

/* What begin returns: the round, and the block above it. */
static int64_t exchange_number(const struct symm_device_exchange *x)
{
    return (int64_t)x->block << 32 | x->round;
}

/* An exchange by its number; units, blocks and tag are not set. */
static struct symm_device_exchange exchange_of(uint64_t memory, int64_t number)
{
    struct symm_device_exchange x = {(void *)memory, 0, 0, 0, 0, 0, 0};

    x.block = (uint32_t)(number >> 32);
    x.round = (uint32_t)number;
    return x;
}

int64_t symm_device_bc_block_exchange_begin(uint64_t team, uint64_t memory,
                                            int32_t block, int32_t blocks,
                                            int32_t units, int32_t tag)
{
    struct symm_device_exchange x = {(void *)memory,
                                     (uint32_t)units,
                                     (uint32_t)units,
                                     (uint32_t)block,
                                     (uint32_t)blocks,
                                     (uint32_t)tag,
                                     0};
    const int failed = symm_device_exchange_begin(team_at(team), &x);

    if (block_any(failed) != 0)
        return -1;
    for (int p = 0; p < team_at(team)->size && is_first(); p++)
        symm_device_exchange_tell(team_at(team), &x, p);
    return exchange_number(&x);
}

SYMM_DEVICE_BC_SMALL int32_t symm_device_bc_exchange_push(uint64_t team,
                                                          uint64_t memory,
                                                          int64_t exchange,
                                                          int32_t unit, int64_t value)
{
    const struct symm_device_exchange x = exchange_of(memory, exchange);

    for (int p = 0; p < team_at(team)->size && exchange >= 0; p++)
        symm_device_exchange_push(team_at(team), &x, p, (uint32_t)unit,
                                  (uint64_t)value);
    return 0;
}

SYMM_DEVICE_BC_SMALL int64_t symm_device_bc_exchange_wait(uint64_t team,
                                                          uint64_t memory,
                                                          int64_t exchange,
                                                          int32_t unit, int32_t peer)
{
    const struct symm_device_exchange x = exchange_of(memory, exchange);
    uint64_t value = 0;

    if (exchange < 0 ||
        symm_device_exchange_wait(team_at(team), &x, peer, (uint32_t)unit, &value) != 0)
        return 0;
    return (int64_t)value;
}

/* Takes units, blocks and tag from the announcement that begin has made to this rank. */
static int32_t exchange_end(const struct symm_device_team *team, uint64_t memory,
                            int64_t exchange)
{
    struct symm_device_exchange x = exchange_of(memory, exchange);
    uint64_t told = 0;

    if (symm__device_failed(team, SYMM_CHANNELS) != 0)
        return 1;
    (void)symm__device_packet_load(
        symm__device_told_at(x.memory, x.block, x.round, team->rank), x.round, &told);
    x.tag = (uint32_t)(told >> 32);
    x.blocks = (uint32_t)told >> 24;
    x.units = (uint32_t)told & SYMM_DEVICE_UNITS;
    for (int p = 0; p < team->size; p++)
        if (symm_device_exchange_meet(team, &x, p) != 0)
            return 1;
    return symm_device_exchange_end(team, &x);
}

int32_t symm_device_bc_block_exchange_end(uint64_t team, uint64_t memory,
                                          int64_t exchange)
{
    int32_t failed = exchange < 0;

    (void)block_any(0);
    if (is_first() && !failed)
        failed = exchange_end(team_at(team), memory, exchange);
    return block_any(failed);
}
