/* SPDX-License-Identifier: MIT */
/*
 * device_bitcode.h - what libsymm_device.bc exports: the functions of symm/device.h and of
 * symm/device_exchange.h as LLVM bitcode, for code generators that link bitcode into their
 * kernels (Triton's extern libraries, own compilers). libsymm_device.ptx has the same functions
 * for linkers of PTX (Numba, nvJitLink). Not for C programs: those include the headers.
 *
 * Every address goes in and out as a 64-bit integer, since generators differ in the address
 * spaces of their pointers. `team` is the address that symm_team_device gave. All else is as
 * device.h says, in particular which thread may call: one thread of a block, between two
 * barriers of the block. The symm_device_bc_block_ functions are for generators that write
 * code for a whole block and name no thread (Triton): all threads of the block call them with
 * equal arguments, the first one acts, all get its result; each is a barrier of the block.
 * An int32_t other than 0 that a signal, a wait or a barrier returns is minus a symm_status:
 * the kernel writes no more and ends.
 *
 * The bitcode has no global variables, needs nothing initialised, calls nothing that it does
 * not define, and needs sm_70 or later. The names stay as they are for one SYMM_DEVICE_LAYOUT.
 */
#ifndef SYMM_DEVICE_BITCODE_H
#define SYMM_DEVICE_BITCODE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 1: the bitcode and the team have one layout; 0: do nothing with the team. */
int32_t symm_device_bc_layout_ok(uint64_t team);
/* This rank in the team, and how many ranks it has. */
int32_t symm_device_bc_rank(uint64_t team);
int32_t symm_device_bc_size(uint64_t team);
/* Where an address of this rank's heap lies in the peer's, as mapped here. */
uint64_t symm_device_bc_peer(uint64_t team, uint64_t address, int32_t peer);
/* Raises signal 0 .. SYMM_SIGNALS - 1 at the peer, after all that went before. */
void symm_device_bc_signal(uint64_t team, int32_t peer, int32_t signal, int32_t tag);
/* Waits for the peer's next raising of the signal. */
int32_t symm_device_bc_signal_wait(uint64_t team, int32_t peer, int32_t signal,
                                   int32_t tag);
/* A barrier of block `block` of `blocks` with the same block of all members. */
int32_t symm_device_bc_barrier(uint64_t team, int32_t channel, int32_t block,
                               int32_t blocks, int32_t tag);

/* What the block's threads did before is visible to the rank that waits for it. Returns 0. */
int32_t symm_device_bc_block_signal(uint64_t team, int32_t peer, int32_t signal,
                                    int32_t tag);
/* 0, or 1: the wait has failed; the record says why. */
int32_t symm_device_bc_block_signal_wait(uint64_t team, int32_t peer, int32_t signal,
                                         int32_t tag);

/*
 * An exchange (symm/device_exchange.h) in the workspace `memory`, this rank's copy. All threads
 * of the block call begin and end; between them each unit 0 .. units - 1 is pushed, to all
 * ranks, and then awaited of any rank, this one too, by any thread. begin gives what the other
 * functions take as `exchange`; less than 0: it has failed, then push and wait do nothing.
 */
int64_t symm_device_bc_block_exchange_begin(uint64_t team, uint64_t memory,
                                            int32_t block, int32_t blocks,
                                            int32_t units, int32_t tag);
/* Returns 0. */
int32_t symm_device_bc_exchange_push(uint64_t team, uint64_t memory, int64_t exchange,
                                     int32_t unit, int64_t value);
/* The peer's unit; 0 if the wait has failed: end says so. */
int64_t symm_device_bc_exchange_wait(uint64_t team, uint64_t memory, int64_t exchange,
                                     int32_t unit, int32_t peer);
/* 0, or 1: the exchange has failed, what was awaited means nothing, and the record says why. */
int32_t symm_device_bc_block_exchange_end(uint64_t team, uint64_t memory,
                                          int64_t exchange);

#ifdef __cplusplus
}
#endif
#endif
