/* SPDX-License-Identifier: MIT */
/*
 * bootstrap.h - how the ranks of one host find each other, once, at start.
 *
 * Every way ends the same: each rank holds one connected SOCK_SEQPACKET socket
 * (CLOEXEC, non-blocking) to each other rank. What follows (descriptors, manifests) goes
 * over these sockets (exchange.h) and needs no name in any file system.
 *
 * Ways: by the job's key (a socket in a 0700 directory of the user), by the caller's own
 * allgather or symmrun's store (which agree on a fresh key, then connect by it), or as threads
 * of one process (socket pairs).
 *
 * Ranks of a job over several hosts connect likewise on each host, and get TCP connections to
 * those of the other hosts (hosts.h), whose addresses go through the allgather: with
 * `run->tcp` set, by allgather or store only.
 *
 * Guarantees: bounded by `timeout`; a late or missing rank is named on every rank that
 * did arrive; nothing is left in the file system on success, error or a kill after the bootstrap.
 * Refuses: other users, wrong secret, rank or size, duplicate ranks, damaged messages.
 */
#ifndef SYMM_BOOTSTRAP_BOOTSTRAP_H
#define SYMM_BOOTSTRAP_BOOTSTRAP_H

#include "bootstrap/run.h"

/*
 * peer_fd[size]: gets one socket a peer, -1 for the own rank; returns new.
 * SYMM_ERR_TIMEOUT names the missing ranks, SYMM_ERR_REFUSED the refused rank and the reason.
 */
symm_status symm__bootstrap_local(const struct symm_bootstrap_run *run,
                                  int *peer_fd) SYMM_MUST_CHECK;
/* The caller's allgather carries a random key and a secret made by rank 0, then as above. */
symm_status symm__bootstrap_given(const struct symm_bootstrap_run *run,
                                  const symm_bootstrap *bootstrap,
                                  int *peer_fd) SYMM_MUST_CHECK;
/* The same by symmrun's store at `address` (host:port); bootstrap->secret is required. */
symm_status symm__bootstrap_store(const struct symm_bootstrap_run *run,
                                  const char *address, int *peer_fd) SYMM_MUST_CHECK;
/*
 * Ranks that are threads: all sockets at once. fds[i * size + j] is rank i's socket to j, -1
 * for i == j; returns new (malloc).
 */
symm_status symm__bootstrap_pairs(int size, int **fds) SYMM_MUST_CHECK;
void symm__bootstrap_close(int *peer_fd, int size); /* closes all and sets them to -1 */

#endif
