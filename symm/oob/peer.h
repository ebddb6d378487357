/* SPDX-License-Identifier: MIT */
/*
 * peer.h - one peer's side of an exchange: packets out and in, never waiting.
 *
 * Each packet says which exchange it belongs to, so that it is distinct from those of
 * an earlier one that failed half-way and from those of a peer that is at another step.
 * A member's part travels as DATA packets, the first of which also carries its status.
 * A member that has all parts sends DONE; a member that has all DONEs leaves, so that
 * a failure to receive is a failure of all members. A member whose exchange fails says
 * FAIL, its last packet of that exchange, with the reason. So a packet of another exchange
 * shows that the peer is there only if it stays the peer's last one for a moment.
 *
 * A packet of another exchange is thrown away, for the sockets must not fill up. This rank may come
 * to that exchange later: the peer may be ahead, or this rank's own may fail. So the last such
 * packet of each peer is remembered. If it was a FAIL it counts when this rank comes. If it was of
 * a part, this rank says ASK before its own part; the peer, which cannot leave without it, answers
 * AGAIN, and begins its part anew. What comes before AGAIN is the rest of the first time.
 */
#ifndef SYMM_OOB_PEER_H
#define SYMM_OOB_PEER_H

#include <assert.h>

#include "oob/packet.h"
#include "util/status.h"

static_assert(SYMM_OOB_SENTENCE == SYMM_ERROR_BYTES,
              "a past failure keeps its sentence");

/* The state of the exchange with one member. */
struct symm_oob_peer {
    int rank, fd;
    bool can_send, can_recv; /* worth a try: not since the last EAGAIN */
    bool crowded;            /* can't send: too many descriptors are in flight */
    bool sent, got;          /* this rank's part to it, its part to here: complete */
    bool told, done;         /* DONE to it, DONE of it */
    bool settled;            /* done, and nothing more will arrive for this exchange */
    bool dead;
    bool asks, asked;       /* ASK is to be sent; AGAIN has not come */
    bool repeats, repeated; /* AGAIN is to be sent; the peer has said ASK */
    bool got_any;
    bool elsewhere; /* its last packet was of another exchange: */
    uint64_t other_tag;
    uint32_t other_sequence;
    char other_what[64];
    double since; /* when that packet arrived */
    size_t sent_bytes, got_bytes;
    int sent_fds, fds_total;
    symm_status status; /* its own, with its sentence in the message's bytes */
};

/* One exchange that is being made. */
struct symm_oob_run {
    struct symm_oob *oob;
    const struct symm_exchange *exchange;
    struct symm_oob_message *messages;
    struct symm_oob_peer *peers; /* [exchange->count]; owned */
    char *scratch;               /* SYMM_OOB_CHUNK; owned */
    int self;                    /* own index */
    uint32_t sequence;           /* the number it is made under now */
    bool all_got;                /* every part is here: DONE may be said */
    bool given_up;               /* a member had left before this one arrived: `why` */
    char why[SYMM_ERROR_BYTES];
    uint64_t blamed; /* of its failure, as in struct symm_oob_past */
    uint64_t other_tag;
    uint32_t other_sequence;
    double start, until;
    double ask_pause; /* seconds between two queries */
    symm_status mine; /* != SYMM_OK: the part is a sentence */
    char sentence[SYMM_ERROR_BYTES];
    const void *bytes; /* of this rank's part */
    size_t bytes_count;
    const int *fds;
    int fds_count;
};

/* The exchange begins: what its members sent before this rank came. */
symm_status symm__oob_resume(struct symm_oob_run *run) SYMM_MUST_CHECK;
/*
 * Send, receive as much as goes at once, but not without end. *progress is set if a
 * packet went through. An error ends the exchange, for all members
 * (symm__oob_abandon).
 */
symm_status symm__oob_send(struct symm_oob_run *run, struct symm_oob_peer *peer,
                           bool *progress);
/* Is there something to send to it now? */
bool symm__oob_owes(const struct symm_oob_run *run, const struct symm_oob_peer *peer);
symm_status symm__oob_recv(struct symm_oob_run *run, struct symm_oob_peer *peer,
                           bool *progress);
/* Seconds until the peer counts as being in another exchange; INFINITY: its packets are of this
 * one. After that time symm__oob_mismatch ends this exchange. */
double symm__oob_patience(const struct symm_oob_run *run,
                          const struct symm_oob_peer *peer, double now);
symm_status symm__oob_mismatch(struct symm_oob_run *run,
                               const struct symm_oob_peer *peer);
/* how: "died"; a peer that has finalized its context is said to have done that instead. */
symm_status symm__oob_dead(const struct symm_oob_run *run, struct symm_oob_peer *peer,
                           const char *how);
/*
 * The exchange has failed, for the reason in symm_last_error(): reports it to all other
 * members, now or before the next exchange with them; late packets of it are
 * thrown away.
 */
void symm__oob_abandon(struct symm_oob_run *run, symm_status status);

#endif
