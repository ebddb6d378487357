/* SPDX-License-Identifier: MIT */
/*
 * tree.h - an allgather among the hosts of a job, before they know each other's addresses: rank 0's
 * host listens at a port that all know.
 *
 * One rank of each host takes part and gives the entries of its ranks. A host sends JOIN to rank
 * 0's host, with its entries and the address where it listens. The reply, PLACE, has the host's
 * number, by the order of arrival, and its parent's address: host n is a child of host (n-1)/8. The
 * host connects to its parent and waits for TABLE, the entries of all ranks, which goes down the
 * tree when the last host has joined. So rank 0's host serves one short connection and one message
 * a host, and sends the table at most eight times.
 *
 * A host sends HAVE to its parent when it and all hosts below it have the table, and returns.
 *
 * Guarantees: each end proves that it knows the job's secret (net/auth.h). A second process with a
 * rank that has joined, and a host of a job of another size or version, is refused with a sentence.
 * A host whose connection breaks before TABLE joins again, and is known by the nonce of its call.
 * Ranks that do not join are named on all hosts that have joined. If a host dies after it has
 * joined, the first exchange over the relays finds that.
 */
#ifndef SYMM_BOOTSTRAP_TREE_H
#define SYMM_BOOTSTRAP_TREE_H

#include "bootstrap/job.h"
#include "net/address.h"

struct symm_tree_join {
    int rank, size;   /* of the job */
    const int *ranks; /* [count]: the ranks of this host, ascending */
    int count;
    const void *entries; /* [count * bytes] */
    size_t bytes;        /* of an entry */
    void *all;           /* [size * bytes]: receives the entries of all ranks */
    const char *root;    /* rank 0's host: a name or a number, and a port */
    int listener;        /* for this host's children; borrowed */
    const void *place;   /* address of `listener`: struct symm_host_address */
    const uint8_t *key;  /* SYMM_SECRET_BYTES */
    double until;        /* a point in time */
    /* != SYMM_OK: this host cannot join, for the reason in symm_last_error(); all hosts return
     * that, with the rank of this host that reports it, and this call returns it, too. */
    symm_status failed;
};

/* Collective among one rank of each host. Rank 0 is one of them. */
symm_status symm__tree_join(const struct symm_tree_join *join) SYMM_MUST_CHECK;

#endif
