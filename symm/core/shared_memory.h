/* SPDX-License-Identifier: MIT */
/*
 * shared_memory.h - memory of the host that processes share: sealed memfds, mapped into
 * reservations. The host backend's heaps, all ranks' control pages and the CUDA backend's
 * words of copy-engine calls lie in it.
 *
 * Guarantees: memory is allocated when it is created (no SIGBUS later where the machine is
 * full), cannot be shrunk under a peer (seals), and is gone with the last process that maps
 * it, however that ends; nothing has a name in a file system.
 * Refuses: descriptors that are not sealed memfds of exactly the announced size.
 * Functions set symm_last_error when they fail and leave nothing behind. Sizes are bytes, in
 * whole pages.
 */
#ifndef SYMM_CORE_SHARED_MEMORY_H
#define SYMM_CORE_SHARED_MEMORY_H

#include "symm/symm.h"

/* Address space without memory: what lies there faults. what: for whom, in errors. */
symm_status symm__shared_reserve(size_t bytes, const char *what,
                                 void **base) SYMM_MUST_CHECK;
/* Ends the reservation and all mappings in it. */
void symm__shared_release(void *base, size_t bytes);
/* New zeroed memory at `at`, inside a reservation. The first `unused` bytes are never used: they
 * get no memory. *fd: its descriptor, the caller's. */
symm_status symm__shared_create(void *at, size_t bytes, size_t unused,
                                int *fd) SYMM_MUST_CHECK;
/* The memory of a descriptor that a peer has sent, at `at`. `fd` stays the caller's. */
symm_status symm__shared_map(int fd, void *at, size_t bytes) SYMM_MUST_CHECK;
/* Back to address space without memory. */
void symm__shared_unmap(void *at, size_t bytes);

#endif
