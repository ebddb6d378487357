/* SPDX-License-Identifier: MIT */
/*
 * hosts.h - which ranks share a host, and the connections between ranks that do not.
 *
 * A host is what SYMM_HOST_ID names, else the running system (its boot id and name). Ranks of
 * one host pass each other descriptors; ranks of different hosts get a TCP connection each.
 *
 * Guarantees: bounded by the deadline; both ends prove that they know the job's key before
 * anything else is said, and never show it; ranks that are missing are named with their hosts;
 * strangers cost bounded memory and time, and do not keep the ranks from each other: a rank
 * whose connection is lost connects again, until both sides have confirmed it. After that
 * each packet carries a keyed hash (tcp.h).
 */
#ifndef SYMM_BOOTSTRAP_HOSTS_H
#define SYMM_BOOTSTRAP_HOSTS_H

#include "net/tcp.h"
#include "symm/symm.h"

#define SYMM_HOST_NAME 32

struct symm_host {
    uint64_t id;
    char name[SYMM_HOST_NAME]; /* for sentences */
};

/* Where a rank is, and where ranks of other hosts reach it: what an allgather carries. */
struct symm_host_address {
    struct symm_host host;
    uint8_t address[16];
    uint16_t family; /* 4, 6; 0: it does not listen */
    uint16_t port;
    uint32_t unused;
};
_Static_assert(sizeof(struct symm_host_address) == 64, "the entry's layout is fixed");

symm_status symm__host_identify(struct symm_host *host) SYMM_MUST_CHECK;
/*
 * Listens where ranks of other hosts can connect: on SYMM_HOST_ADDRESS, else on the address
 * that leads to `toward` (host:port; NULL: to the network). Fills place.
 */
symm_status symm__hosts_listen(const char *toward, struct symm_host_address *place,
                               int *listener) SYMM_MUST_CHECK;
/*
 * A connection to each rank of another host; peer_fd[r] and tcp[r] are set for those only.
 * Collective. On error the caller closes what was made. `until` is a point in time.
 */
symm_status symm__hosts_connect(int rank, int size,
                                const struct symm_host_address *places, int listener,
                                const uint8_t *key, double until, int *peer_fd,
                                struct symm_tcp **tcp) SYMM_MUST_CHECK;

#endif
