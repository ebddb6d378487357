/* SPDX-License-Identifier: MIT */
/*
 * parts.h - the CUDA backend's parts, as the runtime sees them. No CUDA type appears here, so
 * that builds without a toolkit can include it; symm__cuda_* functions exist in every build
 * (none.c has those of a build without one: they say so).
 *
 * A rank drives one device with that device's primary context. Functions here may be called
 * from any thread: they push the context and pop it again.
 */
#ifndef SYMM_CUDA_PARTS_H
#define SYMM_CUDA_PARTS_H

#include "core/context.h"
#include "kernels/cuda_launch.h"

struct symm_cuda_team; /* device state, record, device_team of one team */

/* ---- memory side: device.c ------------------------------------------------------- */

struct symm_cuda_device {
    int ordinal, processors; /* multiprocessors */
    int major, minor;        /* compute capability */
    char name[64], bus[16];
    uint8_t uuid[16];
};
/* NULL on the host backend. */
const struct symm_cuda_device *symm__cuda_device(const symm_ctx *ctx);
/* Devices that are visible; an error says why there is no driver. */
symm_status symm__cuda_count(int *count) SYMM_MUST_CHECK;
/* Can this rank's device reach memory of that device of rank `rank`? SYMM_OK also where the
 * other one is not visible here: mapping its memory will tell. */
symm_status symm__cuda_reachable(const symm_ctx *ctx, const uint8_t uuid[16],
                                 const char *bus, int rank) SYMM_MUST_CHECK;
/* Does this rank's device have multicast, and do its options want it? */
bool symm__cuda_multicast_wanted(const symm_ctx *ctx);

/*
 * multicast.c: where all members have multicast, makes the team's memory that all share
 * reachable by it. A member that cannot makes all go on without; an error is an exchange's.
 * Collective.
 */
symm_status symm__cuda_multicast_share(symm_team *team,
                                       double deadline) SYMM_MUST_CHECK;
/* The address of [offset, offset + bytes) of all members' heaps; NULL: it has none, or is
 * memory of another team. */
void *symm__cuda_multicast_at(const symm_team *team, size_t offset, size_t bytes);

/* Device memory that only this rank uses, zeroed. */
symm_status symm__cuda_local_alloc(symm_ctx *ctx, size_t bytes,
                                   void **memory) SYMM_MUST_CHECK;
void symm__cuda_local_free(symm_ctx *ctx, void *memory);
/* Page-locked memory of the host, zeroed, at one address for host and device. */
symm_status symm__cuda_host_alloc(symm_ctx *ctx, size_t bytes,
                                  void **memory) SYMM_MUST_CHECK;
void symm__cuda_host_free(symm_ctx *ctx, void *memory);
/* Blocks until done; for set-up, never in a call. */
symm_status symm__cuda_fill(symm_ctx *ctx, void *memory, int byte,
                            size_t bytes) SYMM_MUST_CHECK;
symm_status symm__cuda_copy(symm_ctx *ctx, void *dst, const void *src,
                            size_t bytes) SYMM_MUST_CHECK;
/* The function of a kernel; looked up once, then from a table. */
symm_status symm__cuda_function(symm_ctx *ctx, const struct symm_cuda_kernel *kernel,
                                void **function) SYMM_MUST_CHECK;

/* tokens.c: at a team's first exchange, the words of copy-engine calls are shared. An
 * error is an exchange's; who cannot share them makes all go on without. Collective. */
symm_status symm__cuda_tokens_share(symm_team *team, double deadline) SYMM_MUST_CHECK;

/* Around what ends a stream, a team or the context and waits for the device: what waits in
 * graphs is not waited for longer than the context's deadline. */
void symm__cuda_ending(symm_ctx *ctx, bool begins);
/* Ends the team's kernels with that status, once it has failed. */
void symm__cuda_abort(symm_team *team, symm_status status);
/* engine_stream.c: calls fn with the rank's device current; `last`: as symm__cuda_enter_last.
 * */
symm_status symm__cuda_within(symm_ctx *ctx, bool last, symm_status (*fn)(void *arg),
                              void *arg);

/* ---- call side: team.c, launch.c, error_record.c, work.c ------------------------- */

/* Once the team's own pad and scratch are committed and before any peer can reach them:
 * fills the scratch, makes state and record. team->cuda is NULL on the host backend. */
uint64_t symm__cuda_scratch_end(uint64_t begin);
symm_status symm__cuda_memory_shared(symm_team *team, double deadline) SYMM_MUST_CHECK;
symm_status symm__cuda_team_open(symm_team *team) SYMM_MUST_CHECK;
/* Waits (bounded) until kernels of the team have left; frees. team->cuda NULL is allowed. */
void symm__cuda_team_close(symm_team *team);
/* The team's failure from what kernels have recorded and what peers are; SYMM_OK if none. */
symm_status symm__cuda_team_poll(symm_team *team) SYMM_MUST_CHECK;

#endif
