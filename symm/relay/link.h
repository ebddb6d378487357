/* SPDX-License-Identifier: MIT */
/*
 * link.h - messages over one connection between relays, or between a rank and its relay.
 *
 * Messages are queued without limit and leave in order; nothing here waits. A message is cut into
 * packets of tcp.h, each with a keyed hash; the first of a message begins with its head. What
 * comes is checked for magic, version, kind and size; what its data mean is not. A message that
 * is being received has at most twice the memory that its bytes so far need, whatever its head
 * says.
 */
#ifndef SYMM_RELAY_LINK_H
#define SYMM_RELAY_LINK_H

#include <stdbool.h>

#include "net/tcp.h"
#include "relay/message.h"

struct symm_relay_queued {
    struct symm_relay_queued *next;
    struct symm_relay_message *message; /* counted */
};

struct symm_relay_link {
    struct symm_tcp *tcp;                   /* owned; its descriptor is not */
    struct symm_relay_queued *first, *last; /* to be sent; owned */
    uint64_t sent;                          /* bytes of data of the first, */
    bool begun;                             /* whose head is sent */
    struct symm_relay_message *in;          /* comes in; NULL: none; owned */
    uint64_t got, room;                     /* bytes of its data, and for them */
};

/* higher: this end's number is the higher one. False: no memory. */
bool symm__relay_link_open(struct symm_relay_link *link, int fd, const uint8_t *key,
                           bool higher);
void symm__relay_link_close(struct symm_relay_link *link); /* also of a zeroed one */
/* Queues it. False: no memory. */
bool symm__relay_link_send(struct symm_relay_link *link,
                           struct symm_relay_message *message);
bool symm__relay_link_owes(const struct symm_relay_link *link);
/* Sends what the socket takes. OK: all; AGAIN: some is left; else the connection is of no more
 * use. */
enum symm_seqpacket symm__relay_link_flush(struct symm_relay_link *link);
/* OK: *message is complete, and the caller's. */
enum symm_seqpacket symm__relay_link_recv(struct symm_relay_link *link,
                                          struct symm_relay_message **message);

#endif
