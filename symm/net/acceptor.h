/* SPDX-License-Identifier: MIT */
/*
 * acceptor.h - a listener, and its connections that have not proved themselves yet. Most of these
 * may be from strangers.
 *
 * All are polled together, and none is waited for. Guarantees: at most `most` are kept. When
 * there are more, or descriptors are short, the oldest that is not spared is dropped. At most
 * SYMM_ACCEPTOR_GROUP connections of one end are spared: then the oldest of them is dropped,
 * since an end that connects again has closed its earlier tries. A guest that has proved itself
 * (symm__acceptor_prove) is never dropped for another one. Each has `seconds` to prove itself. At
 * most SYMM_ACCEPTOR_SHOWN refusals are reported. Not for several threads.
 */
#ifndef SYMM_NET_ACCEPTOR_H
#define SYMM_NET_ACCEPTOR_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

#define SYMM_ACCEPTOR_GROUP 4
#define SYMM_ACCEPTOR_SHOWN 8
#define SYMM_ACCEPTOR_PROVED (-2) /* a group */
#define SYMM_ACCEPTOR_NEVER 1e300 /* a point in time */

/* Begins the user's own struct for a connection, whose other bytes begin as zero. */
struct symm_guest {
    int fd;       /* -1: dropped, or the user's now */
    int group;    /* -1: a stranger's so far; else it is spared, or SYMM_ACCEPTOR_PROVED */
    short events; /* of poll */
    double since; /* it was accepted then */
    double until; /* it is dropped then; the user may set it */
};

struct symm_acceptor {
    /* The user's, set before symm__acceptor_open. */
    int listener; /* does not block; borrowed */
    size_t most, guest_bytes;
    double seconds; /* for a connection to prove itself */
    /* during this time no other takes its place; accepting waits instead */
    double keep;
    /* A guest has sent something, or hung up. NULL: go on, or `fd` was taken over; else
     * why the guest is to be dropped; "": not reported. */
    const char *(*hear)(void *user, struct symm_guest *guest);
    void (*refused)(void *user, const char *why,
                    bool last);                         /* last: no more are reported */
    void (*gone)(void *user, struct symm_guest *guest); /* before a drop; or NULL */
    void *user;
    bool over; /* may be set at any time: then nothing more is read or accepted */
    /* The acceptor's own. */
    struct symm_guest **guests; /* oldest first */
    size_t count;
    double accept_at; /* no accept before */
    bool lacked;      /* an accept has failed for lack of descriptors or memory */
    unsigned long refusals;
};

/* False: no memory. */
bool symm__acceptor_open(struct symm_acceptor *acceptor);
/* Drops all guests; `listener` stays. A zeroed acceptor is allowed. */
void symm__acceptor_close(struct symm_acceptor *acceptor);
/* Fills 1 + acceptor->count polls, and returns how many. */
size_t symm__acceptor_watch(struct symm_acceptor *acceptor, struct pollfd *polls);
/* The time at which to call symm__acceptor_serve without an event. */
double symm__acceptor_due(const struct symm_acceptor *acceptor);
/* Serves what poll found in the same polls, and what is overdue; accepts. Returns 0, or why
 * no connection can be accepted though there is none to drop: an errno. */
int symm__acceptor_serve(struct symm_acceptor *acceptor, const struct pollfd *polls,
                         size_t count);
/* To be called when the guest has proved, as far as is known, that it is that end (>= 0). */
void symm__acceptor_spare(struct symm_acceptor *acceptor, struct symm_guest *guest,
                          int group);
/* To be called when the guest has proved that it knows the key, by more than a handshake, which may
 * be a recorded one. Its end may count the connection from now on: only its time ends it. */
void symm__acceptor_prove(struct symm_guest *guest);
/* Drops the guest without a report. Its memory lasts until the end of symm__acceptor_serve. */
void symm__acceptor_drop(struct symm_acceptor *acceptor, struct symm_guest *guest);

#endif
