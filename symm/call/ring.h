/* SPDX-License-Identifier: MIT */
/*
 * ring.h - two-sided messages between ranks whose pads are mapped here.
 *
 * Member s sends to member r through ring s of r's pad, a buffer of bytes with one writer and
 * one reader: a header, then the message's bytes, as many at a time as there is room for. So a
 * short send completes before the receive is posted, and a long one as the receiver takes it.
 * docs/memory-model.md has the argument. No system call but to wake a peer that sleeps.
 */
#ifndef SYMM_CALL_RING_H
#define SYMM_CALL_RING_H

#include "core/team.h"

enum symm_message_state { SYMM_MESSAGE_WAITS, SYMM_MESSAGE_MOVES, SYMM_MESSAGE_DONE };

/* One send or receive of a batch. */
struct symm_message {
    char *ptr;
    size_t count, bytes;
    symm_dtype dtype;
    bool receives;
    bool from_any; /* then `peer` is the sender once its message has come */
    int peer;
    int *source;                   /* a receive's: gets the sender; NULL: not wanted */
    size_t done;                   /* bytes moved */
    enum symm_message_state state; /* 0 at first */
};

/* Have all members such rings? */
bool symm__ring_usable(const symm_team *team);
struct symm_ring_call {
    symm_team *team;
    struct symm_message *messages;
    int count;
    double timeout;
    const char *what, *site; /* for errors, and for tools */
    const void *stream;      /* for errors; NULL: the default one */
    uint32_t step;           /* for tools */
};

/*
 * Moves all messages, which are sorted by peer; those with one peer and direction in their
 * order. A receive from any rank takes no message of a rank that another receive of the batch
 * names. Fails the team after `timeout` seconds in which nothing has moved, and if a peer has
 * died, sends other counts or dtypes, or reports a failure.
 */
symm_status symm__ring_run(const struct symm_ring_call *call) SYMM_MUST_CHECK;

#endif
