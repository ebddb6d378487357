/* SPDX-License-Identifier: MIT */
/*
 * message.h - the messages between relays of hosts, and between a relay and the ranks of its
 * host.
 *
 * A message is a head and data. It is not changed once it is made, so several links may send one
 * message: it is counted. Data of an exchange begin with the list of its leaders: the world rank of
 * the lowest member on each host, one int32 a host in the order of hosts. The leader acts for its
 * host.
 */
#ifndef SYMM_RELAY_MESSAGE_H
#define SYMM_RELAY_MESSAGE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/status.h"
#define SYMM_RELAY_MAGIC   0x524d5953u /* "SYMR" */
#define SYMM_RELAY_VERSION 3u
#define SYMM_RELAY_WHAT    64
#define SYMM_RELAY_MOST    ((uint64_t)1 << 31) /* bytes of data, of an exchange's */

enum symm_relay_kind {
    /* Of an exchange (ledger.h). Data: list, then: */
    SYMM_RELAY_PART = 1, /* leader to relay: the host's bytes; `before` is set */
    SYMM_RELAY_UP,       /* to the parent: the bytes of the hosts of this subtree */
    SYMM_RELAY_ALL,      /* to children and leader: the bytes of all hosts */
    SYMM_RELAY_HAVE,     /* to the parent, leader to relay: this subtree has all */
    SYMM_RELAY_GO,       /* to children and leader: all have all */
    SYMM_RELAY_GIVE_UP,  /* to the root: the exchange fails; a sentence */
    SYMM_RELAY_FAIL,     /* to children and leader: it has failed; a sentence */
    /* Of no exchange; no list: */
    SYMM_RELAY_NOTICE, /* a team has failed: to all; a sentence */
    SYMM_RELAY_DEAD,   /* `rank` has died; status != 0: has finalized: to all */
    SYMM_RELAY_GONE, /* of host `rank` no rank is left: to all; status: enum symm_relay_loss */
    /* rank to relay: the rank finalizes. Relay to its neighbours: the relay's rank finalizes;
     * status: another rank of the host lives, and serves next. */
    SYMM_RELAY_LEAVE,
    /* Of the bootstrap (bootstrap/tree.h): */
    SYMM_RELAY_JOIN,  /* to rank 0's host: the entries of this one */
    SYMM_RELAY_PLACE, /* back: where this host belongs; then from it to its parent */
    SYMM_RELAY_TABLE, /* down: the entries of all ranks; status != 0: a sentence; HAVE comes back */
    /* Of no exchange as well: */
    SYMM_RELAY_CELL, /* what `rank` has written on the board of team `tag`: to all; any bytes */
    SYMM_RELAY_KINDS
};

struct symm_relay_head {
    uint32_t magic;
    uint16_t version;
    uint16_t kind;
    uint64_t tag;
    uint32_t sequence;
    int32_t from;     /* host, or rank of a leader */
    int32_t status;   /* symm_status */
    /* which the message is about; GIVE_UP, FAIL, NOTICE: which found the failure */
    int32_t rank;
    uint32_t leaders; /* of the list */
    /* FAIL: the highest number of the tag that is known to have failed. LEAVE of a relay to a rank:
     * 1: some neighbour was never connected, and does not know that the host's ranks leave. */
    uint32_t reached;
    uint64_t before; /* PART, UP: as in symm_relay_exchange */
    uint64_t bytes;  /* of the data */
    char what[SYMM_RELAY_WHAT];
};
static_assert(sizeof(struct symm_relay_head) == 120, "the layout on the wire");

struct symm_relay_message {
    int references;
    struct symm_relay_head head;
    uint8_t data[]; /* head.bytes */
};

/* Data of UP and ALL: the list of leaders, then of each part this and its bytes, padded. */
struct symm_relay_record {
    uint32_t place, unused;
    uint64_t bytes;
};

static inline uint64_t symm__relay_padded(uint64_t bytes)
{
    return (bytes + 7) & ~UINT64_C(7);
}

/* Bytes of a list of `count` leaders. */
static inline uint64_t symm__relay_list_bytes(uint64_t count)
{
    return symm__relay_padded(count * sizeof(int32_t));
}

/* The largest number of bytes that a message of the kind needs in a job of 2^20 ranks. */
uint64_t symm__relay_most(enum symm_relay_kind kind);
/* With one reference, magic, version and bytes set, all else zero; NULL: no memory, or more bytes
 * than a message of the kind may have. */
struct symm_relay_message *symm__relay_message(enum symm_relay_kind kind,
                                               uint64_t bytes);
/* For a message that is received in pieces: makes its room `room` bytes, with head and data kept,
 * and returns where it is now. NULL makes a new one. The caller must have the only reference.
 * Returns NULL: no memory, and `message` stays. */
struct symm_relay_message *symm__relay_grow(struct symm_relay_message *message,
                                            uint64_t room);
/* A message of an exchange, without data. */
struct symm_relay_message *symm__relay_step(enum symm_relay_kind kind, uint64_t tag,
                                            uint32_t sequence);
/* The same with the list of leaders, and `more` bytes after it, which are the caller's. */
struct symm_relay_message *symm__relay_listed(enum symm_relay_kind kind, uint64_t tag,
                                              uint32_t sequence, const int32_t *leaders,
                                              int count, uint64_t more);
/* The sentence that ends the data, after the list if there is one; made printable, never
 * empty. */
void symm__relay_sentence(const struct symm_relay_message *message,
                          char text[SYMM_ERROR_BYTES]);
/* Do both name the same step? Compares up to "(": "split (world)" is "split (team 3 [0 1])". */
bool symm__same_step(const char *a, const char *b);
/* One reference more, or less; the last one frees. drop: NULL is allowed. */
struct symm_relay_message *symm__relay_keep(struct symm_relay_message *message);
void symm__relay_drop(struct symm_relay_message *message);

#endif
