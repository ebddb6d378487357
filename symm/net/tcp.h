/* SPDX-License-Identifier: MIT */
/*
 * tcp.h - packets over a TCP connection to a rank on another host.
 *
 * It is used as a SOCK_SEQPACKET socket is (seqpacket.h), but without descriptors: a packet is
 * sent and received whole. A packet that was accepted for sending may still be here in part:
 * `owes` tells that, `flush` sends what the socket takes. Each packet carries a keyed hash over
 * its number and bytes; a packet that is damaged, repeated, left out or too long ends the
 * connection (SYMM_SEQPACKET_CUT), for good.
 *
 * Sending may happen on any thread, receiving on one at a time.
 */
#ifndef SYMM_NET_TCP_H
#define SYMM_NET_TCP_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "net/seqpacket.h"
#include "net/siphash.h"

#define SYMM_TCP_PACKET (33u << 10) /* the largest packet */

struct symm_tcp_head { /* in network byte order */
    uint32_t bytes;    /* after this head */
    uint32_t magic;
    struct symm_siphash_tag hash;
};

struct symm_tcp {
    int fd; /* borrowed from the link */
    uint8_t key[SYMM_SIPHASH_KEY];
    uint8_t side; /* 0: the lower rank's end, 1: the higher's */
    bool broken;  /* what arrives cannot be read any more */
    pthread_mutex_t sending;
    uint64_t sent, received; /* packets */
    size_t out_begin, out_end, in_bytes;
    uint8_t out[sizeof(struct symm_tcp_head) + SYMM_TCP_PACKET];
    uint8_t in[sizeof(struct symm_tcp_head) + SYMM_TCP_PACKET];
};

/* key: known to both ends only. fd: connected and non-blocking. The connection ends when the
 * other host does not answer for half a minute. NULL: no memory. */
struct symm_tcp *symm__tcp_create(int fd, const uint8_t *key, bool higher);
void symm__tcp_destroy(struct symm_tcp *tcp); /* NULL allowed; fd stays */

enum symm_seqpacket symm__tcp_send(struct symm_tcp *tcp, const struct iovec *parts,
                                   int parts_count, double until);
enum symm_seqpacket symm__tcp_flush(struct symm_tcp *tcp);
bool symm__tcp_owes(struct symm_tcp *tcp);
enum symm_seqpacket symm__tcp_recv(struct symm_tcp *tcp, const struct iovec *parts,
                                   int parts_count, size_t *bytes);
enum symm_seqpacket symm__tcp_peek(struct symm_tcp *tcp, void *head, size_t head_bytes,
                                   size_t *bytes);

#endif
