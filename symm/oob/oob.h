/* SPDX-License-Identifier: MIT */
/*
 * oob.h - a rank's connections to all others, and what an exchange over them is.
 *
 * A link is only held and ended here. Exchanges are made by exchange.c; what a rank of
 * another host reports between them is in report.h.
 */
#ifndef SYMM_OOB_OOB_H
#define SYMM_OOB_OOB_H

#include "symm/symm.h"

#define SYMM_EXCHANGE_MAX_BYTES (64u << 20) /* of one member */
#define SYMM_EXCHANGE_MAX_FDS   4096        /* of one member */
#define SYMM_OOB_MAX            64          /* ranks of the world */
#define SYMM_OOB_PAST           8           /* failed exchanges that are remembered */
#define SYMM_OOB_SENTENCE       512         /* SYMM_ERROR_BYTES */

#define SYMM_OOB_REPORTS 8 /* of different teams that are remembered */

struct symm_tcp;

struct symm_oob {
    int rank, size; /* in the world */
    int *peer_fd;   /* by world rank; -1 for the own rank; owned */
    struct symm_tcp *
        *tcp;     /* [size] by world rank; NULL: a local socket; NULL: all; owned */
    uint64_t far; /* bit r: rank r is on another host: it gets no descriptors */
    /* NULL, or: is this world rank's process still alive? Polled while waiting. */
    bool (*alive)(void *arg, int rank);
    /* NULL, or: has this local rank finalized its context? For sentences. */
    bool (*finished)(void *arg, int rank);
    void *alive_arg; /* of both */
    /*
     * The last exchanges that failed half-way: their late packets are thrown away, and
     * members whose queue was full get it before anything else.
     */
    struct symm_oob_past {
        uint64_t tag;
        uint32_t sequence;
        symm_status status;
        uint64_t unreported; /* bit r: rank r has no report yet */
        uint64_t blamed; /* bit r: rank r had not arrived, or was in another exchange: */
        uint64_t other_tag;
        uint32_t other_sequence;
        char sentence[SYMM_OOB_SENTENCE];
    } past[SYMM_OOB_PAST];
    unsigned past_count; /* ever; the newest is at (past_count - 1) % SYMM_OOB_PAST */
    /* What far ranks have reported of their teams: one for each team, the first one. */
    struct symm_oob_report {
        uint64_t tag;
        symm_status status;
        int rank; /* the rank that reported it */
        char sentence[SYMM_OOB_SENTENCE];
    } notice[SYMM_OOB_REPORTS];
    unsigned notice_count; /* ever */
    uint64_t left;         /* bit r: rank r has reported that it finalizes */
};

/* Takes peer_fd (an array of malloc); size <= SYMM_OOB_MAX. */
void symm__oob_init(struct symm_oob *oob, int rank, int size, int *peer_fd);
void symm__oob_finish(
    struct symm_oob *oob); /* closes the sockets: peers see a hang-up */

/* Has the rank finalized its context? Of a rank on another host: has its report of that been
 * read? */
bool symm__oob_left(const struct symm_oob *oob, int rank);

struct symm_exchange {
    const char
        *what;    /* "rendezvous of team 3": for errors; at most 63 bytes are sent */
    uint64_t tag; /* equal on all members for the same step */
    uint32_t sequence; /* counts the exchanges of this tag */
    uint32_t *next; /* NULL, or gets the number of the tag's next exchange: this one's
                           and 1, or more if other members had left some in vain */
    const int *members; /* world ranks, the own one too; borrows */
    int count;          /* of members */
    double timeout;     /* seconds from the call */
    uint64_t before;    /* != 0: tag of the exchange that led to this one: a rank that failed
                           there, and so cannot come, is a failure here */
    bool
        agreed; /* all members are known to come to this one: packets of others are old,
                    and are thrown away */
    bool again; /* a member that failed before this one arrived may come again, and is
                    waited for; else its failure is this one's */
    /* NULL, or: why the exchange must end now (SYMM_OK: it goes on). Polled while waiting. */
    symm_status (*stop)(void *arg);
    void *stop_arg;
    symm_status
        status; /* != SYMM_OK: I have failed before this step; symm_last_error() is
                            sent along, and every member's exchange fails with my status */
    const void *bytes; /* mine; borrows */
    size_t bytes_count;
    const int *fds; /* mine; borrows: duplicates are sent to each member */
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
