/* SPDX-License-Identifier: MIT */
/*
 * seqpacket.c - see seqpacket.h.
 */
#include "net/seqpacket.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util/clock.h"

union wire_control {
    struct cmsghdr align;
    unsigned char bytes[CMSG_SPACE(SYMM_SEQPACKET_MAX_FDS * sizeof(int))];
};

struct iovec symm__seqpacket_part(const void *base, size_t bytes)
{
    /* sendmsg takes a pointer to non-const though it only reads. */
    return (struct iovec){.iov_base = (void *)(uintptr_t)base, .iov_len = bytes};
}

void symm__seqpacket_close(int *fds, int count)
{
    for (int i = 0; i < count; i++) {
        if (fds[i] >= 0)
            (void)close(fds[i]);
        fds[i] = -1;
    }
}

enum symm_seqpacket symm__seqpacket_wait(int fd, short events, double until)
{
    struct pollfd one = {.fd = fd, .events = events};
    for (;;) {
        double left = until - symm__now();
        if (!(left > 0)) {
            errno = ETIMEDOUT;
            return SYMM_SEQPACKET_AGAIN;
        }
        struct timespec span = symm__timespec(left);
        int ready = ppoll(&one, 1, &span, NULL);
        if (ready > 0)
            return SYMM_SEQPACKET_OK;
        if (ready < 0 && errno != EINTR)
            return SYMM_SEQPACKET_ERROR;
    }
}

/* After a call that could not go on: waits if there is time left; OK: try again. */
static enum symm_seqpacket wire_retry(int fd, short events, double until)
{
    int error = errno;
    if (error == EINTR)
        return SYMM_SEQPACKET_OK;
    if (error == EPIPE || error == ECONNRESET || error == ENOTCONN)
        return SYMM_SEQPACKET_CLOSED;
    if (error != EAGAIN && error != ETOOMANYREFS)
        return SYMM_SEQPACKET_ERROR;
    if (!(until > 0))
        return SYMM_SEQPACKET_AGAIN;
    if (error == ETOOMANYREFS) {
        /* The socket counts as writable: only other processes' reading helps. */
        symm__sleep(0.001);
        if (symm__now() < until)
            return SYMM_SEQPACKET_OK;
        errno = error;
        return SYMM_SEQPACKET_AGAIN;
    }
    return symm__seqpacket_wait(fd, events, until);
}

enum symm_seqpacket symm__seqpacket_send(int fd, const struct iovec *parts,
                                         int parts_count, const int *fds, int fds_count,
                                         double until)
{
    union wire_control control;
    struct msghdr message = {.msg_iovlen = (size_t)parts_count};
    message.msg_iov = (struct iovec *)(uintptr_t)parts;
    if (fds_count < 0 || fds_count > SYMM_SEQPACKET_MAX_FDS) {
        errno = EINVAL;
        return SYMM_SEQPACKET_ERROR;
    }
    if (fds_count > 0) {
        size_t bytes = (size_t)fds_count * sizeof(int);
        memset(&control, 0, sizeof(control));
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(bytes);
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(bytes);
        memcpy(CMSG_DATA(head), fds, bytes);
    }
    for (;;) {
        if (sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
            return SYMM_SEQPACKET_OK;
        enum symm_seqpacket wire = wire_retry(fd, POLLOUT, until);
        if (wire != SYMM_SEQPACKET_OK)
            return wire;
    }
}

/* All descriptors of a packet, at most SYMM_SEQPACKET_MAX_FDS: the control buffer's room. */
static int wire_take_fds(struct msghdr *message, int *fds)
{
    int count = 0;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head != NULL;
         head = CMSG_NXTHDR(message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        size_t here = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < here && count < SYMM_SEQPACKET_MAX_FDS; i++) {
            memcpy(&fds[count], CMSG_DATA(head) + i * sizeof(int), sizeof(int));
            count++;
        }
    }
    return count;
}

/* A packet has arrived: are its bytes and descriptors all there, and no more? */
static enum symm_seqpacket wire_judge(struct msghdr *message, size_t got, int *fds,
                                      int fds_max, int *fds_count)
{
    int all[SYMM_SEQPACKET_MAX_FDS];
    int count = wire_take_fds(message, all);
    enum symm_seqpacket wire = SYMM_SEQPACKET_OK;
    if ((message->msg_flags & MSG_CTRUNC) != 0) {
        /* Fewer than there was room for: the table of descriptors is full. */
        errno = count < SYMM_SEQPACKET_MAX_FDS ? EMFILE : EMSGSIZE;
        wire = SYMM_SEQPACKET_CUT_FDS;
    } else if (got == 0) {
        wire = SYMM_SEQPACKET_CLOSED;
    } else if ((message->msg_flags & MSG_TRUNC) != 0) {
        wire = SYMM_SEQPACKET_CUT;
    } else if (count > fds_max) {
        errno = EMSGSIZE;
        wire = SYMM_SEQPACKET_CUT_FDS;
    }
    if (wire != SYMM_SEQPACKET_OK) {
        int error = errno;
        symm__seqpacket_close(all, count);
        errno = error;
        return wire;
    }
    if (count > 0)
        memcpy(fds, all, (size_t)count * sizeof(int));
    *fds_count = count;
    return SYMM_SEQPACKET_OK;
}

enum symm_seqpacket symm__seqpacket_recv(int fd, const struct iovec *parts,
                                         int parts_count, size_t *bytes, int *fds,
                                         int fds_max, int *fds_count, double until)
{
    union wire_control control;
    bool reset = false;
    *bytes = 0;
    *fds_count = 0;
    for (;;) {
        struct msghdr message = {.msg_iovlen = (size_t)parts_count};
        message.msg_iov = (struct iovec *)(uintptr_t)parts;
        message.msg_control = &control;
        message.msg_controllen = CMSG_LEN(SYMM_SEQPACKET_MAX_FDS * sizeof(int));
        ssize_t got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (got >= 0) {
            *bytes = (size_t)got;
            return wire_judge(&message, (size_t)got, fds, fds_max, fds_count);
        }
        /* A peer that closes with unread packets resets the connection. The kernel reports that
         * first, once; what the peer sent (why it ended, for example) can still be read. */
        if (errno == ECONNRESET && !reset) {
            reset = true;
            continue;
        }
        enum symm_seqpacket wire = wire_retry(fd, POLLIN, until);
        if (wire != SYMM_SEQPACKET_OK)
            return wire;
    }
}

enum symm_seqpacket symm__seqpacket_peek(int fd, void *head, size_t head_bytes,
                                         size_t *bytes)
{
    bool reset = false;
    *bytes = 0;
    for (;;) {
        /* Without a control buffer this peek installs no descriptor. */
        ssize_t got = recv(fd, head, head_bytes, MSG_PEEK | MSG_DONTWAIT);
        if (got > 0) {
            *bytes = (size_t)got;
            return SYMM_SEQPACKET_OK;
        }
        if (got == 0)
            return SYMM_SEQPACKET_CLOSED;
        if (errno == ECONNRESET && !reset) {
            reset = true;
            continue;
        }
        enum symm_seqpacket wire = wire_retry(fd, POLLIN, 0);
        if (wire != SYMM_SEQPACKET_OK)
            return wire;
    }
}
