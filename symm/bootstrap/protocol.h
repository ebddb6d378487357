/* SPDX-License-Identifier: MIT */
/*
 * protocol.h - what rank 0 (the hub) and the other ranks (joiners) say to each other.
 *
 * A packet holds one message of fixed size. A joiner says HELLO, and gets WELCOME or
 * REFUSED (with a reason). When all have come the hub sends PEERS: sockets to the other
 * joiners, in one or more packets. A joiner that has all of them, or has failed, says
 * DONE; when all are done the hub says GO, and the connection is from then on the
 * pair's. Whatever fails, the hub says ABORT with the sentence for everybody. A joiner
 * whose deadline passes says GIVE_UP, so that the hub can tell everybody who is
 * missing.
 *
 * A joiner's random nonce is part of all messages from and to it.
 */
#ifndef SYMM_BOOTSTRAP_PROTOCOL_H
#define SYMM_BOOTSTRAP_PROTOCOL_H

#include <assert.h>

#include "bootstrap/meeting.h"

#define SYMM_MEET_MAGIC    0x4d4d5953u /* "SYMM" */
#define SYMM_MEET_PROTOCOL 1u
#define SYMM_MEET_LIBRARY                                                              \
    ((uint32_t)SYMM_VERSION_MAJOR << 16 | (uint32_t)SYMM_VERSION_MINOR << 8 |          \
     (uint32_t)SYMM_VERSION_PATCH)

enum symm_meet_kind {
    SYMM_MEET_HELLO = 1,
    SYMM_MEET_WELCOME,
    SYMM_MEET_REFUSED,
    SYMM_MEET_PEERS,
    SYMM_MEET_DONE,
    SYMM_MEET_GO,
    SYMM_MEET_GIVE_UP,
    SYMM_MEET_ABORT
};

struct symm_meet_message {
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
static_assert(sizeof(struct symm_meet_message) == 512, "the packet's layout is fixed");

/* A message with the fields that all have; the rest is zero. */
struct symm_meet_message symm__meet_message(enum symm_meet_kind kind,
                                            const struct symm_meeting *meeting,
                                            int rank, uint64_t nonce);
/* Is this a message of this protocol? Ends its text. */
bool symm__meet_message_check(struct symm_meet_message *message, size_t bytes);

/* The two sides of symm__meet_local; size >= 2. `until` is a point in time. */
struct symm_meet_place;
symm_status symm__meet_hub(const struct symm_meeting *meeting,
                           const struct symm_meet_place *place, double until,
                           int *peer_fd) SYMM_MUST_CHECK;
symm_status symm__meet_join(const struct symm_meeting *meeting,
                            const struct symm_meet_place *place, double until,
                            int *peer_fd) SYMM_MUST_CHECK;

#endif
