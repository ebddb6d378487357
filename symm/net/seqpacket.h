/* SPDX-License-Identifier: MIT */
/*
 * seqpacket.h - packets with descriptors over connected SOCK_SEQPACKET sockets.
 *
 * A packet arrives whole or not at all. Received descriptors are CLOEXEC; whenever a
 * call does not return SYMM_SEQPACKET_OK, none is left open. No policy: nothing here sets an
 * error sentence, logs, or knows what the packets mean. SIGPIPE is never raised.
 *
 * `until` is a point in time (symm__now()); 0 means one try without waiting, whether or
 * not the socket itself is blocking.
 */
#ifndef SYMM_NET_SEQPACKET_H
#define SYMM_NET_SEQPACKET_H

#include <stddef.h>
#include <sys/uio.h>

#define SYMM_SEQPACKET_MAX_FDS 64 /* in one packet; the kernel allows 253 */

enum symm_seqpacket {
    SYMM_SEQPACKET_OK,
    SYMM_SEQPACKET_AGAIN, /* nothing arrived, or there was no room, until the deadline; errno
                          ETOOMANYREFS: too many descriptors are in flight */
    SYMM_SEQPACKET_CLOSED, /* the peer has hung up, and all that it sent has been read */
    SYMM_SEQPACKET_CUT,    /* the packet was longer than the room for it: lost */
    SYMM_SEQPACKET_CUT_FDS, /* errno EMFILE: this process may open no more descriptors;
                          EMSGSIZE: more than fds_max came. The packet is lost. */
    SYMM_SEQPACKET_ERROR    /* errno */
};

/* Waits for poll's `events` or a hang-up. */
enum symm_seqpacket symm__seqpacket_wait(int fd, short events, double until);
/* Sends the parts as one packet; fds are borrowed: the peer gets duplicates. */
enum symm_seqpacket symm__seqpacket_send(int fd, const struct iovec *parts,
                                         int parts_count, const int *fds, int fds_count,
                                         double until);
/* Fills the parts; *bytes of them were sent. The caller closes fds[*fds_count]. */
enum symm_seqpacket symm__seqpacket_recv(int fd, const struct iovec *parts,
                                         int parts_count, size_t *bytes, int *fds,
                                         int fds_max, int *fds_count, double until);
/* The first bytes of the packet that symm__seqpacket_recv would return; never waits. */
enum symm_seqpacket symm__seqpacket_peek(int fd, void *head, size_t head_bytes,
                                         size_t *bytes);
/* One part of an iovec for sending: the kernel does not write to it. */
struct iovec symm__seqpacket_part(const void *base, size_t bytes);
/* Closes and sets to -1. */
void symm__seqpacket_close(int *fds, int count);

#endif
