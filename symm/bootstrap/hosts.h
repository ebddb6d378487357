/* SPDX-License-Identifier: MIT */
/*
 * hosts.h - which ranks share a host, and where each host's relay listens.
 *
 * A host is what SYMM_HOST_ID names, else the running system (its boot id and name). Ranks of
 * one host pass each other descriptors; hosts talk by their relays (relay/relay.h). Hosts are
 * numbered by their lowest ranks.
 */
#ifndef SYMM_BOOTSTRAP_HOSTS_H
#define SYMM_BOOTSTRAP_HOSTS_H

#include "net/address.h"
#include "relay/relay.h"
#include "symm/symm.h"

/* Tag of the exchanges here. The first exchange of all ranks after them has it as `before`. */
#define SYMM_HOSTS_TAG 0x53594d486f737473u
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
 * that leads to `toward` (host:port; NULL: to the network). Fills place. The port of `toward` is not
 * taken: rank 0's process may be about to listen there, on this host.
 */
symm_status symm__hosts_listen(const char *toward, struct symm_host_address *place,
                               int *listener) SYMM_MUST_CHECK;
struct symm_address symm__host_address(const struct symm_host_address *place);

struct symm_exchange;
struct symm_oob_message;

/* The host of each rank of a job. */
struct symm_world {
    int hosts;
    int32_t *host_of;   /* [size]: by rank; owned */
    uint16_t *local_of; /* [size]: each rank's place among those of its host; owned */
    int *local;         /* [local_size]: ranks of this host, ascending; owned */
    int local_size;
    struct symm_relay_host *at; /* [hosts]; owned */
    int listener; /* of this host's relay: every rank of the host has it; -1: hosts is 1; owned */
    uint8_t key[SYMM_SIPHASH_KEY]; /* of the relays */
    /* != SYMM_OK: a rank of this host was lost after the other hosts had its entry. The world
     * then serves only for the relay to report that to them. */
    symm_status failed;
    char why[SYMM_ERROR_BYTES];
};

/* All ranks on one host. */
symm_status symm__world_alone(struct symm_world *world, int size) SYMM_MUST_CHECK;
/*
 * Numbers the hosts of `places` ([size], by rank) and fills all but listener and key. Refuses a
 * host with more than SYMM_BOOTSTRAP_MAX ranks.
 */
symm_status symm__world_number(struct symm_world *world, int rank, int size,
                               const struct symm_host_address *places) SYMM_MUST_CHECK;
/*
 * One exchange among ranks that have sockets to each other: fds[size], -1 at this rank's `place`.
 * ranks[size], ascending: their numbers in sentences; NULL: their places are. exchange: status,
 * sequence, bytes and descriptors are the caller's.
 */
symm_status symm__near_exchange(int place, int size, const int *ranks, const int *fds,
                                double timeout, struct symm_exchange *exchange,
                                struct symm_oob_message *messages) SYMM_MUST_CHECK;
/* Fails if a host has more than `most` ranks. All ranks find the same, so that all refuse the
 * job. `more` ends the sentence. */
symm_status symm__world_crowded(const struct symm_world *world, int size, int most,
                                const char *more) SYMM_MUST_CHECK;
/*
 * This host's ranks have not met, for symm_last_error(), and the other hosts wait for them: on the
 * lowest rank, of place 0, the world becomes one that has failed, and this returns SYMM_OK. Else
 * `listener` (-1: none) is closed, and `status` returned.
 */
symm_status symm__world_lost(struct symm_world *world, int place, symm_status status,
                             int listener) SYMM_MUST_CHECK;
/*
 * The ranks of this host take over their lowest rank's listener; `mine` (-1: none) is closed or
 * kept. If that fails, the lowest rank's world has failed (symm__world_lost). Collective among
 * them. near_fd: [local_size], by place.
 */
symm_status symm__world_share(struct symm_world *world, int place, const int *near_fd,
                              int mine, double timeout) SYMM_MUST_CHECK;
/*
 * For ranks that a launcher takes to be on one host, and which have sockets to each other: if
 * SYMM_HOST_ID says otherwise, sockets to other hosts are closed. Collective.
 */
symm_status symm__world_find(struct symm_world *world, int rank, int size, int *peer_fd,
                             double timeout) SYMM_MUST_CHECK;
/* Frees all, closes the listener. A world that is zero but for listener -1 is allowed. */
void symm__world_finish(struct symm_world *world);

#endif
