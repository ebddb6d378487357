/* SPDX-License-Identifier: MIT */
/*
 * rendezvous.h - how the nodes of a job find and prove each other; for
 * nodes.c, which has what comes afterwards.
 *
 * Guarantees: a connection belongs to a node of this job, in both directions, and has a key
 * of its own. Strangers cost bounded memory, descriptors and lines of log, and no time of the
 * nodes' own. Refuses a node of another version, secret, --nnodes, -n or --node-rank.
 */
#ifndef SYMM_TOOLS_SYMMRUN_RENDEZVOUS_H
#define SYMM_TOOLS_SYMMRUN_RENDEZVOUS_H

#include "tools/symmrun/symmrun.h"

#define SYMMRUN_NODES_MAGIC   0x53594d4eu /* "SYMN" */
#define SYMMRUN_NODES_VERSION 2u
#define SYMMRUN_NODES_KEY     16

struct symmrun_node {
    int fd;   /* -1: not connected, or gone */
    bool bye; /* it has ended well */
    uint8_t key[SYMMRUN_NODES_KEY];
    uint64_t sent, received;
    unsigned char *data; /* what has come of a message */
    size_t used, capacity;
    unsigned char *blocks; /* node 0: the round's part of that node */
    size_t blocks_bytes;
    uint32_t blocks_number; /* that node's own, of its rounds; comes back with ALL */
};

struct symmrun_nodes {
    struct symmrun *run;
    int count, own; /* own: --node-rank */
    uint8_t secret[SYMMRUN_SECRET_BYTES];
    struct symmrun_node *node; /* [count]; node 0: all others; else only [0] is used */
    bool over;                 /* a failure was told */
};

/* Connects node 0 with all others. False: the reason was said, or a signal has come. */
bool symmrun_rendezvous(struct symmrun_nodes *nodes, double until);
/* Exactly so many bytes; false: too late, the other side hung up, or a signal has come. */
bool symmrun_rendezvous_receive(const struct symmrun_nodes *nodes, int fd, void *data,
                                size_t bytes, double until);
bool symmrun_send_bytes(int fd, const void *data, size_t bytes);

#endif
