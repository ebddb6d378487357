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

#include "net/auth.h"
#include "net/tcp.h"
#include "tools/symmrun/symmrun.h"

struct symmrun_node_head { /* in network byte order; begins a message's first packet */
    uint32_t type, bytes, value, unused;
};

struct symmrun_node {
    int fd;   /* -1: not connected, or gone */
    bool bye; /* it has ended without a failure */
    struct symm_tcp *tcp;
    struct symm_auth_nonces nonces; /* of its handshakes */
    struct symmrun_node_head head;  /* of the message that is coming: */
    unsigned char *data;            /* NULL: none */
    size_t used;                    /* bytes of data that have arrived */
    unsigned char *blocks;          /* node 0: the round's part of that node */
    size_t blocks_bytes;
    uint32_t blocks_number; /* that node's own, of its rounds; comes back with ALL */
};

struct symmrun_nodes {
    struct symmrun *run;
    int count, own; /* own: --node-rank */
    uint8_t secret[SYMMRUN_SECRET_BYTES];
    struct symmrun_node *node; /* [count]; node 0: all others; else only [0] is used */
    bool started; /* the job has its id: from now on the end of a connection is a failure */
    bool over;    /* a failure was told */
};

/* Connects node 0 with all others. False: the error was printed, or a signal has come. */
bool symmrun_rendezvous(struct symmrun_nodes *nodes, double until);
/* Waits for readiness; false: too late, or a signal ends the job. */
bool symmrun_rendezvous_wait(const struct symmrun_nodes *nodes, int fd, short events,
                             double until);

#endif
