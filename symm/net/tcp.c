/* SPDX-License-Identifier: MIT */
/* tcp.c - see tcp.h. */
#include "net/tcp.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "util/clock.h"

#define TCP_MAGIC      0x53594d54u /* "SYMT" */
#define SILENT_SECONDS 30 /* until a host that does not answer is taken for gone */

static void set_options(int fd)
{
    static const struct {
        int level, name, value;
    } options[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
                   {IPPROTO_TCP, TCP_NODELAY, 1},
                   {IPPROTO_TCP, TCP_KEEPIDLE, SILENT_SECONDS / 3},
                   {IPPROTO_TCP, TCP_KEEPINTVL, SILENT_SECONDS / 6},
                   {IPPROTO_TCP, TCP_KEEPCNT, 4},
                   {IPPROTO_TCP, TCP_USER_TIMEOUT, SILENT_SECONDS * 1000}};

    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value,
                         sizeof(options[i].value));
}

struct symm_tcp *symm__tcp_create(int fd, const uint8_t *key, bool higher)
{
    struct symm_tcp *tcp = calloc(1, sizeof(*tcp));

    if (!tcp)
        return NULL;
    set_options(fd);
    tcp->fd = fd;
    tcp->side = higher;
    memcpy(tcp->key, key, sizeof(tcp->key));
    pthread_mutex_init(&tcp->sending, NULL);
    return tcp;
}

void symm__tcp_destroy(struct symm_tcp *tcp)
{
    if (!tcp)
        return;
    pthread_mutex_destroy(&tcp->sending);
    free(tcp);
}

/* Over direction, number, length and bytes. */
static struct symm_siphash_tag packet_hash(const struct symm_tcp *tcp, uint8_t side,
                                           uint64_t number, const uint8_t *data,
                                           size_t bytes)
{
    struct symm_siphash hash = symm__siphash_begin(tcp->key);
    uint64_t wire[2] = {htobe64(number), htobe64(bytes)};

    symm__siphash_add(&hash, &side, sizeof(side));
    symm__siphash_add(&hash, wire, sizeof(wire));
    symm__siphash_add(&hash, data, bytes);
    return symm__siphash_end(&hash);
}

/* The result for errno after a send or recv that moved nothing. */
static enum symm_seqpacket what_now(void)
{
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return SYMM_SEQPACKET_AGAIN;
    if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN ||
        errno == ETIMEDOUT || errno == EHOSTUNREACH || errno == ENETUNREACH)
        return SYMM_SEQPACKET_CLOSED;
    return SYMM_SEQPACKET_ERROR;
}

/* With the lock. OK: nothing is left to send. */
static enum symm_seqpacket flush(struct symm_tcp *tcp)
{
    while (tcp->out_begin < tcp->out_end) {
        ssize_t sent = send(tcp->fd, tcp->out + tcp->out_begin,
                            tcp->out_end - tcp->out_begin, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent >= 0)
            tcp->out_begin += (size_t)sent;
        else if (errno != EINTR)
            return what_now();
    }
    tcp->out_begin = tcp->out_end = 0;
    return SYMM_SEQPACKET_OK;
}

enum symm_seqpacket symm__tcp_flush(struct symm_tcp *tcp)
{
    enum symm_seqpacket wire;

    pthread_mutex_lock(&tcp->sending);
    wire = flush(tcp);
    pthread_mutex_unlock(&tcp->sending);
    return wire;
}

bool symm__tcp_owes(struct symm_tcp *tcp)
{
    bool owes;

    pthread_mutex_lock(&tcp->sending);
    owes = tcp->out_begin < tcp->out_end;
    pthread_mutex_unlock(&tcp->sending);
    return owes;
}

/* With the lock, and room. */
static void put_packet(struct symm_tcp *tcp, const struct iovec *parts, int parts_count,
                       size_t bytes)
{
    uint8_t *at = tcp->out + sizeof(struct symm_tcp_head);
    struct symm_tcp_head head = {.bytes = htonl((uint32_t)bytes),
                                 .magic = htonl(TCP_MAGIC)};

    for (int i = 0; i < parts_count; i++) {
        if (parts[i].iov_len > 0)
            memcpy(at, parts[i].iov_base, parts[i].iov_len);
        at += parts[i].iov_len;
    }
    head.hash =
        packet_hash(tcp, tcp->side, tcp->sent++, tcp->out + sizeof(head), bytes);
    memcpy(tcp->out, &head, sizeof(head));
    tcp->out_begin = 0;
    tcp->out_end = sizeof(head) + bytes;
}

enum symm_seqpacket symm__tcp_send(struct symm_tcp *tcp, const struct iovec *parts,
                                   int parts_count, double until)
{
    enum symm_seqpacket wire;
    size_t bytes = 0;

    for (int i = 0; i < parts_count; i++)
        bytes += parts[i].iov_len;
    if (bytes > SYMM_TCP_PACKET) {
        errno = EMSGSIZE;
        return SYMM_SEQPACKET_ERROR;
    }
    for (;;) {
        pthread_mutex_lock(&tcp->sending);
        wire = flush(tcp);
        if (wire == SYMM_SEQPACKET_OK) {
            put_packet(tcp, parts, parts_count, bytes);
            wire = flush(tcp);
            pthread_mutex_unlock(&tcp->sending);
            /* The packet is queued; symm__tcp_flush sends what is left of it. */
            return wire == SYMM_SEQPACKET_AGAIN ? SYMM_SEQPACKET_OK : wire;
        }
        pthread_mutex_unlock(&tcp->sending);
        if (wire != SYMM_SEQPACKET_AGAIN || !(until > 0))
            return wire;
        wire = symm__seqpacket_wait(tcp->fd, POLLOUT, until);
        if (wire != SYMM_SEQPACKET_OK)
            return wire;
    }
}

/* Reads until a whole packet lies in `in`; OK: it does, and it is sound. */
static enum symm_seqpacket fill(struct symm_tcp *tcp, size_t *bytes)
{
    for (;;) {
        struct symm_tcp_head head;
        size_t wanted = sizeof(head);
        ssize_t got;

        if (tcp->broken)
            return SYMM_SEQPACKET_CUT;
        if (tcp->in_bytes >= sizeof(head)) {
            memcpy(&head, tcp->in, sizeof(head));
            *bytes = ntohl(head.bytes);
            tcp->broken = ntohl(head.magic) != TCP_MAGIC || *bytes > SYMM_TCP_PACKET;
            wanted += tcp->broken ? 0 : *bytes;
            if (tcp->in_bytes == sizeof(head) + *bytes && !tcp->broken) {
                const struct symm_siphash_tag hash = packet_hash(
                    tcp, !tcp->side, tcp->received, tcp->in + sizeof(head), *bytes);

                tcp->broken = !symm__siphash_equal(&head.hash, &hash);
                return tcp->broken ? SYMM_SEQPACKET_CUT : SYMM_SEQPACKET_OK;
            }
            if (tcp->broken)
                continue;
        }
        got = recv(tcp->fd, tcp->in + tcp->in_bytes, wanted - tcp->in_bytes,
                   MSG_DONTWAIT);
        if (got == 0)
            return SYMM_SEQPACKET_CLOSED;
        if (got > 0)
            tcp->in_bytes += (size_t)got;
        else if (errno != EINTR)
            return what_now();
    }
}

enum symm_seqpacket symm__tcp_recv(struct symm_tcp *tcp, const struct iovec *parts,
                                   int parts_count, size_t *bytes)
{
    const uint8_t *at = tcp->in + sizeof(struct symm_tcp_head);
    size_t left = 0;
    enum symm_seqpacket wire = fill(tcp, &left);

    if (wire != SYMM_SEQPACKET_OK)
        return wire;
    *bytes = left;
    tcp->in_bytes = 0;
    tcp->received++;
    for (int i = 0; i < parts_count; i++) {
        size_t part = left < parts[i].iov_len ? left : parts[i].iov_len;

        memcpy(parts[i].iov_base, at, part);
        at += part;
        left -= part;
    }
    return left == 0 ? SYMM_SEQPACKET_OK : SYMM_SEQPACKET_CUT;
}

enum symm_seqpacket symm__tcp_peek(struct symm_tcp *tcp, void *head, size_t head_bytes,
                                   size_t *bytes)
{
    size_t whole = 0;
    enum symm_seqpacket wire = fill(tcp, &whole);

    if (wire != SYMM_SEQPACKET_OK)
        return wire;
    *bytes = whole < head_bytes ? whole : head_bytes;
    memcpy(head, tcp->in + sizeof(struct symm_tcp_head), *bytes);
    return SYMM_SEQPACKET_OK;
}
