/* SPDX-License-Identifier: MIT */
/*
 * oob.h - a rank's connections: to each rank of its host, and to other hosts; and what an exchange
 * over them is.
 *
 * They are only held and ended here. Exchanges are made by exchange.c on a host, and by
 * hosts.c over hosts.
 */
#ifndef SYMM_OOB_OOB_H
#define SYMM_OOB_OOB_H

#include "relay/relay.h"
#include "symm/symm.h"

#define SYMM_EXCHANGE_MAX_BYTES (64u << 20) /* of one member */
#define SYMM_EXCHANGE_MAX_FDS   4096        /* of one member */
#define SYMM_OOB_MAX            64          /* ranks of a host */
#define SYMM_OOB_PAST           8           /* failed exchanges that are remembered */
#define SYMM_OOB_SENTENCE       1408        /* SYMM_ERROR_BYTES */
#define SYMM_EARLIER_TEXT_BYTES 352         /* "; rank 2 had failed before: SENTENCE" */

struct symm_oob {
    int rank, size; /* in the world */
    /* [size] by world rank; -1: this rank, or one on another host; owned */
    int *peer_fd;
    /* By world rank: its host, and its place among that host's ranks; NULL: all are on one host,
     * and a rank's place is its number. Borrowed. */
    const int32_t *host_of;
    const uint16_t *local_of;
    struct symm_relay *relay; /* to other hosts; NULL: there is none; owned */
    struct symm_oob_room *room; /* for exchanges over hosts; with `relay`; owned */
    /* NULL, or: is this world rank's process still alive? Polled while waiting. */
    bool (*alive)(void *arg, int rank);
    /* NULL, or: has this local rank finalized its context? For sentences. */
    bool (*finished)(void *arg, int rank);
    /* NULL, or: what a rank that has finalized failed with, for the end of a sentence. */
    const char *(*earlier)(void *arg, int rank, char text[SYMM_EARLIER_TEXT_BYTES]);
    void *alive_arg; /* of these */
    /*
     * The last exchanges on this host that failed half-way: their late packets are thrown away,
     * and members whose queue was full get the report before anything else.
     */
    struct symm_oob_past {
        uint64_t tag;
        uint32_t sequence;
        symm_status status;
        /* Bit p: the rank at place p of this host has no report yet. */
        uint64_t unreported;
        /* Bit p: that rank had not arrived, or was in this other exchange: */
        uint64_t blamed;
        uint64_t other_tag;
        uint32_t other_sequence;
        char sentence[SYMM_OOB_SENTENCE];
    } past[SYMM_OOB_PAST];
    unsigned past_count; /* ever; the newest is at (past_count - 1) % SYMM_OOB_PAST */
    /* By place on this host: a packet that came while this rank was in another exchange
     * (packet.h); NULL: none; owned. */
    struct symm_oob_missed *missed[SYMM_OOB_MAX];
};

/* Takes peer_fd (an array of malloc). Without hosts: size <= SYMM_OOB_MAX. */
void symm__oob_init(struct symm_oob *oob, int rank, int size, int *peer_fd);
/* Room for an exchange over hosts, of which a rank makes one at a time: a rank that had no memory
 * for its lists could not tell the others so. */
symm_status symm__oob_room_open(struct symm_oob *oob, int hosts) SYMM_MUST_CHECK;
/* Says to other hosts that this rank finalizes, and closes all: peers see a hang-up. */
void symm__oob_finish(struct symm_oob *oob);

static inline bool symm__oob_is_far(const struct symm_oob *oob, int rank)
{
    return oob->host_of && oob->host_of[rank] != oob->host_of[oob->rank];
}

/* The place of a rank of this host. */
static inline int symm__oob_place(const struct symm_oob *oob, int rank)
{
    return oob->local_of ? oob->local_of[rank] : rank;
}

/* Its bit in masks. */
static inline uint64_t symm__oob_bit(const struct symm_oob *oob, int rank)
{
    return UINT64_C(1) << symm__oob_place(oob, rank);
}

/* Has the rank finalized its context, as far as is known here? */
bool symm__oob_left(const struct symm_oob *oob, int rank);
/* Has the rank, of another host, died? */
bool symm__oob_died(const struct symm_oob *oob, int rank);
/* What the rank, if it has finalized, had failed with, for the end of a sentence; "": not known. */
const char *symm__oob_earlier(const struct symm_oob *oob, int rank,
                              char text[SYMM_EARLIER_TEXT_BYTES]);
/* Tells other hosts that the team `tag` has failed. From any thread, under any lock. */
void symm__oob_notify(struct symm_oob *oob, uint64_t tag, symm_status status,
                      const char *sentence);
/* What a rank of another host has reported of a team; false: nothing. */
bool symm__oob_reported(struct symm_oob *oob, uint64_t tag,
                        struct symm_relay_report *report);
/* Has the exchange of that tag and number failed on a host? Then why. It may have ended well on
 * others: members on that host do not come to the step that follows it. */
symm_status symm__oob_lost(struct symm_oob *oob, uint64_t before,
                           uint32_t sequence) SYMM_MUST_CHECK;

/* Returns when the rank of this host has closed its socket, or after `seconds`. */
void symm__oob_wait_closed(const struct symm_oob *oob, int rank, double seconds);

/* In the tags of an exchange over hosts: its last step, and reports that it failed there. */
#define SYMM_OOB_HAND_ON UINT64_C(0x8000000000000000)

struct symm_exchange {
    const char
        *what;    /* "rendezvous of team 3": for errors; at most 63 bytes are sent */
    uint64_t tag; /* equal on all members for the same step */
    uint32_t sequence; /* counts the exchanges of this tag */
    /* NULL, or gets the number of the tag's next exchange: this one's plus 1, or more if other
     * members have abandoned some. */
    uint32_t *next;
    const int *members; /* world ranks, this rank too; borrows */
    int count;          /* of members */
    double timeout;     /* seconds from the call */
    /* != 0: tag of the exchange that led to this one: a rank that failed there, and so cannot
     * come, is a failure here. */
    uint64_t before;
    uint32_t before_sequence; /* the number under which that one was made */
    /* All members are known to come to this one: a packet of another exchange does not mean that
     * its sender is there. */
    bool agreed;
    /* A member that failed before this one arrived may come again, and is waited for; else its
     * failure is this one's. */
    bool again;
    /* Members wait for the first one, which ends the exchange for all: its message, or the end of
     * its socket, wakes them, and they ask `alive` and `stop` more rarely. */
    bool led;
    /* NULL, or: why the exchange must end now (SYMM_OK: it goes on). Polled while waiting, with the
     * world ranks that are awaited, as `late`. A rank that is not awaited may have completed the
     * exchange. */
    symm_status (*stop)(void *arg, const int *ranks, int count);
    void *stop_arg;
    /* NULL, or called whenever `stop` would be polled, with the world ranks that are awaited;
     * count -1: not known, as for ranks of other hosts. */
    void (*late)(void *arg, const int *ranks, int count);
    void *late_arg;
    /* != SYMM_OK: this rank has failed before this step. symm_last_error() is sent along, and the
     * exchange fails on every member with this status. */
    symm_status status;
    const void *bytes; /* this rank's; borrows */
    size_t bytes_count;
    const int *fds; /* this rank's; borrows: duplicates are sent */
    int fds_count;
};

/* What one member gave. Own entry: a copy of the bytes and no descriptors (fds_count 0). */
struct symm_oob_message {
    void *bytes; /* malloc, or NULL if none */
    size_t bytes_count;
    int *fds; /* malloc, or NULL if none; the holder closes them */
    int fds_count;
};

void symm__oob_messages_finish(struct symm_oob_message *messages,
                               int count); /* frees, closes fds left */

#endif
