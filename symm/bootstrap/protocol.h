/* SPDX-License-Identifier: MIT */
/*
 * protocol.h - what rank 0 (the root) and the other ranks (joiners) say to each other.
 *
 * A packet holds one message of fixed size. A joiner says HELLO, and gets WELCOME or
 * REFUSED (with a reason). When all have arrived the root sends PEERS: sockets to the other
 * joiners, in one or more packets. A joiner that has all of them, or has failed, says
 * DONE; when all are done the root says GO, and the connection is from then on the
 * pair's. Whatever fails, the root sends ABORT with the sentence to all ranks. A joiner
 * whose deadline passes says GIVE_UP, so that the root can report to all ranks which are
 * missing.
 *
 * A joiner's random nonce is part of all messages from and to it.
 */
#ifndef SYMM_BOOTSTRAP_PROTOCOL_H
#define SYMM_BOOTSTRAP_PROTOCOL_H

#include <assert.h>

#include "bootstrap/run.h"

#define SYMM_BOOTSTRAP_MAGIC    0x4d4d5953u /* "SYMM" */
#define SYMM_BOOTSTRAP_PROTOCOL 1u
#define SYMM_BOOTSTRAP_LIBRARY                                                         \
    ((uint32_t)SYMM_VERSION_MAJOR << 16 | (uint32_t)SYMM_VERSION_MINOR << 8 |          \
     (uint32_t)SYMM_VERSION_PATCH)

enum symm_bootstrap_kind {
    SYMM_BOOTSTRAP_HELLO = 1,
    SYMM_BOOTSTRAP_WELCOME,
    SYMM_BOOTSTRAP_REFUSED,
    SYMM_BOOTSTRAP_PEERS,
    SYMM_BOOTSTRAP_DONE,
    SYMM_BOOTSTRAP_GO,
    SYMM_BOOTSTRAP_GIVE_UP,
    SYMM_BOOTSTRAP_ABORT
};

struct symm_bootstrap_message {
    uint32_t magic;
    uint16_t protocol;
    uint16_t kind;
    uint32_t library;    /* HELLO: version as 0xMMmmpp */
    int32_t rank;        /* the joiner's */
    int32_t size;        /* of the job */
    int32_t status;      /* DONE, ABORT, REFUSED: a symm_status */
    uint64_t nonce;      /* the joiner's */
    int32_t pid;         /* HELLO: as the joiner sees itself; for errors only */
    int32_t first;       /* PEERS: rank that the first descriptor leads to; */
    int32_t count;       /* and how many ranks from there on */
    uint32_t has_secret; /* HELLO: 1 if secret is set */
    uint8_t secret[SYMM_SECRET_BYTES];
    char text[448]; /* DONE, ABORT, REFUSED: a sentence */
};
static_assert(sizeof(struct symm_bootstrap_message) == 512,
              "the packet's layout is fixed");

/* A message with the fields that all have; the rest is zero. */
struct symm_bootstrap_message
symm__bootstrap_message(enum symm_bootstrap_kind kind,
                        const struct symm_bootstrap_run *run, int rank, uint64_t nonce);
/* Is this a message of this protocol? Ends its text. */
bool symm__bootstrap_message_check(struct symm_bootstrap_message *message,
                                   size_t bytes);

/* The two sides of symm__bootstrap_local; size >= 2. `until` is a point in time. */
struct symm_socket_path;
symm_status symm__bootstrap_root(const struct symm_bootstrap_run *run,
                                 const struct symm_socket_path *place, double until,
                                 int *peer_fd) SYMM_MUST_CHECK;
symm_status symm__bootstrap_join(const struct symm_bootstrap_run *run,
                                 const struct symm_socket_path *place, double until,
                                 int *peer_fd) SYMM_MUST_CHECK;

#endif
