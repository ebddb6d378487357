/* SPDX-License-Identifier: MIT */
/*
 * sim_traffic.c - see sim_object.h: what passes between sockets, and when it arrives.
 *
 * A packet lies in its receiver's list from the moment it is sent, with the time of its arrival.
 */
#include "sim_object.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SILENCE UINT64_C(30000000000) /* TCP_USER_TIMEOUT, as net/tcp.c sets it */
#define REPEAT  UINT64_C(200000000)   /* TCP sends again, at the latest */

static void drop_packets(struct sim_object *o)
{
    while (o->first) {
        struct packet *p = o->first;

        o->first = p->next;
        for (int i = 0; i < p->fd_count; i++)
            sim_object_let_go(p->fds[i]);
        __real_free(p);
    }
    o->last = &o->first;
    o->queued = 0;
}

uint64_t sim_network_delay(const struct sim_object *o)
{
    if (o->local)
        return 0;
    return 10000 + sim_below((uint64_t)(sim.config->latency * 1e9) + 1);
}

/* Does the cut, whenever it is, lie between the hosts of the ranks? */
static bool crosses(int a, int b)
{
    const struct sim_config *config = sim.config;

    return sim.cut_until > sim.cut_at && ((config->cut_hosts >> config->host_of[a] ^
                                           config->cut_hosts >> config->host_of[b]) &
                                          1);
}

uint64_t sim_network_through(int a, int b, uint64_t at)
{
    if (!crosses(a, b) || at < sim.cut_at || sim.now >= sim.cut_until)
        return at;
    if (sim.cut_until == SIM_FOREVER)
        return SIM_FOREVER;
    return at > sim.cut_until + REPEAT ? at : sim.cut_until + sim_below(REPEAT);
}

/* No earlier than what was sent before. */
static uint64_t arrival(const struct sim_object *from, const struct sim_object *to)
{
    uint64_t at =
        sim_network_through(from->rank, to->rank, sim.now + sim_network_delay(from));

    for (const struct packet *p = to->first; p; p = p->next)
        at = p->at > at ? p->at : at;
    return at;
}

/* The other end learns that this one is closed; `unread`: a reset. */
static void hang_up(struct sim_object *o, bool unread)
{
    struct sim_object *peer = o->peer;
    uint64_t at;

    if (!peer)
        return;
    at = arrival(o, peer);
    o->peer = NULL;
    if (peer->peer == o && !o->local && unread &&
        sim_below(2)) { /* data on their way are lost */
        struct packet **p = &peer->first;

        while (*p && (*p)->at <= sim.now)
            p = &(*p)->next;
        peer->last = p;
        while (*p) {
            struct packet *lost = *p;

            *p = lost->next;
            peer->queued -= lost->bytes - lost->used;
            __real_free(lost);
        }
        at = sim_network_through(o->rank, peer->rank, sim.now + sim_network_delay(o));
    }
    if (peer->eof_at > at)
        peer->eof_at = at;
    if (unread) {
        peer->error = ECONNRESET;
        peer->error_at = at;
    }
    peer->reset = true; /* nothing can be sent to this end */
    peer->peer = NULL;
    sim_object_changed(peer, at);
}

void sim_socket_close(struct sim_object *o)
{
    o->closed = true;
    while (o->waiting) {
        struct sim_object *w = o->waiting;

        o->waiting = w->next_waiting;
        hang_up(w, true);
        sim_object_let_go(w);
    }
    if (o->stage == CONNECTED || o->stage == CONNECTING)
        hang_up(o, o->first != NULL);
    drop_packets(o);
}

size_t sim_space_for(const struct sim_object *o, size_t bytes)
{
    const size_t room = sim.config->room, queued = o->peer->queued;

    if (o->local && !o->stream)
        return queued == 0 || queued + bytes <= room ? bytes : 0;
    return queued >= room ? 0 : room - queued < bytes ? room - queued : bytes;
}

static void gather(struct packet *p, const struct msghdr *message)
{
    size_t used = 0;

    for (size_t i = 0; i < message->msg_iovlen && used < p->bytes; i++) {
        size_t part = message->msg_iov[i].iov_len;

        part = part < p->bytes - used ? part : p->bytes - used;
        if (part > 0)
            memcpy(p->data + used, message->msg_iov[i].iov_base, part);
        used += part;
    }
}

static int attach(struct packet *p, const struct msghdr *message)
{
    const struct cmsghdr *head = message->msg_control ? CMSG_FIRSTHDR(message) : NULL;
    size_t count = head ? (head->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;

    for (size_t i = 0; i < count && i < PACKET_FDS; i++) {
        int fd;
        struct sim_object *o;

        memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(int));
        o = sim_object_of(fd);
        if (!o)
            return -1;
        o->refs++;
        p->fds[p->fd_count++] = o;
    }
    return 0;
}

static void queue(struct sim_object *to, struct packet *p, uint64_t at)
{
    p->at = at;
    *to->last = p;
    to->last = &p->next;
    to->queued += p->bytes;
    sim_object_changed(to, at);
}

/* The other end is gone. */
static ssize_t send_to_none(struct sim_object *o, size_t bytes)
{
    if (!o->local && !o->error && o->eof_at == SIM_FOREVER && o->reset) {
        /* behind a cut that stays: nobody answers */
        if (o->lost + bytes > sim.config->room) {
            errno = EAGAIN;
            return -1;
        }
        o->lost += bytes;
        return (ssize_t)bytes;
    }
    if (!o->local && !o->error && o->eof_at > sim.now - 1000 &&
        o->eof_at != SIM_FOREVER) {
        const uint64_t at = sim.now + sim_network_delay(o);

        o->error = ECONNRESET; /* TCP learns it by sending */
        o->error_at =
            o->far >= 0 && crosses(o->rank, o->far) && o->eof_at > at ? o->eof_at : at;
        sim_object_changed(o, o->error_at);
        return (ssize_t)bytes;
    }
    errno = EPIPE;
    return -1;
}

/* TCP delivers what was sent at once in several pieces. */
static void queue_pieces(struct sim_object *o, struct packet *whole)
{
    struct sim_object *to = o->peer;
    uint64_t at = arrival(o, to);
    size_t cut =
        whole->bytes > 1 && sim_below(4) == 0 ? 1 + sim_below(whole->bytes - 1) : 0;
    struct packet *rest;

    if (o->local || cut == 0) {
        queue(to, whole, at);
        return;
    }
    rest = __real_calloc(1, sizeof(*rest) + whole->bytes - cut);
    if (!rest)
        abort();
    rest->bytes = whole->bytes - cut;
    memcpy(rest->data, whole->data + cut, rest->bytes);
    whole->bytes = cut;
    queue(to, whole, at);
    queue(to, rest, at == SIM_FOREVER ? at : at + sim_network_delay(o));
}

ssize_t sim_send(int fd, const struct msghdr *message, int flags)
{
    struct sim_object *o = sim_socket_of(fd);
    struct packet *p;
    size_t bytes = 0, fits;
    int error;

    (void)flags; /* without SIGPIPE, without waiting */
    if (!o)
        return -1;
    sim_settle_connect(o);
    for (size_t i = 0; i < message->msg_iovlen; i++)
        bytes += message->msg_iov[i].iov_len;
    error = sim_take_error(o);
    if (error || o->stage != CONNECTED) {
        errno = error ? error : ENOTCONN;
        return -1;
    }
    if (!o->peer || o->shut)
        return send_to_none(o, bytes);
    fits = sim_space_for(o, bytes);
    if (fits == 0 && bytes > 0) {
        errno = EAGAIN;
        return -1;
    }
    p = __real_calloc(1, sizeof(*p) + fits + 1);
    if (!p)
        abort();
    p->bytes = fits;
    gather(p, message);
    if (attach(p, message) != 0) {
        __real_free(p);
        return -1;
    }
    sim_event("send", o->number, fits);
    queue_pieces(o, p);
    return (ssize_t)fits;
}

/* The connection is lost on its way, as seldom as the configuration says. On one host there is no
 * way on which it could be. */
static void perhaps_break(struct sim_object *o)
{
    if (o->local || !o->peer || sim_below(1024) >= sim.config->breaks ||
        sim.config->host_of[o->rank] == sim.config->host_of[o->peer->rank])
        return;
    if (sim.config->breaks_most > 0 && sim.broken >= sim.config->breaks_most)
        return;
    sim.broken++;
    sim_event("breaks", o->number, 0);
    o->error = ECONNRESET;
    o->error_at = o->eof_at = sim.now;
    hang_up(o, true);
    sim_object_changed(o, sim.now);
}

uint64_t sim_silent_at(const struct sim_object *o)
{
    const uint64_t at = sim.cut_at + SILENCE;

    if (o->local || o->stage != CONNECTED || o->far < 0 || !crosses(o->rank, o->far) ||
        sim.cut_until <= at)
        return SIM_FOREVER;
    return at;
}

void sim_perhaps_silence(struct sim_object *o)
{
    if (sim.now < sim_silent_at(o))
        return;
    sim_event("is silent", o->number, 0);
    o->far = -1;
    o->error = ETIMEDOUT;
    o->error_at = o->eof_at = sim.now;
    hang_up(o, true);
    sim_object_changed(o, sim.now);
}

static void give_fds(struct packet *p, struct msghdr *message)
{
    size_t room = message->msg_control && message->msg_controllen >= CMSG_LEN(0)
                      ? (message->msg_controllen - CMSG_LEN(0)) / sizeof(int)
                      : 0;
    int fds[PACKET_FDS], count = 0;
    struct cmsghdr *head;

    for (int i = 0; i < p->fd_count; i++) {
        if ((size_t)i < room)
            fds[count++] = sim_object_install(p->fds[i]);
        else
            message->msg_flags |= MSG_CTRUNC;
        sim_object_let_go(p->fds[i]);
    }
    p->fd_count = 0;
    if (count == 0) {
        message->msg_controllen = 0;
        return;
    }
    head = message->msg_control;
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
    memcpy(CMSG_DATA(head), fds, (size_t)count * sizeof(int));
    message->msg_controllen = head->cmsg_len;
}

static size_t scatter(const struct packet *p, const struct msghdr *message)
{
    size_t used = 0, bytes = p->bytes - p->used;

    for (size_t i = 0; i < message->msg_iovlen && used < bytes; i++) {
        size_t part = message->msg_iov[i].iov_len;

        part = part < bytes - used ? part : bytes - used;
        if (part > 0)
            memcpy(message->msg_iov[i].iov_base, p->data + p->used + used, part);
        used += part;
    }
    return used;
}

/* The first packet has arrived. */
static ssize_t take_packet(struct sim_object *o, struct msghdr *message, bool peek)
{
    struct packet *p = o->first;
    size_t taken = scatter(p, message);

    if (peek)
        return (ssize_t)taken;
    if (p->fd_count > 0)
        give_fds(p, message);
    else
        message->msg_controllen = 0;
    if (!o->stream && taken < p->bytes)
        message->msg_flags |= MSG_TRUNC;
    p->used += o->stream ? taken : p->bytes;
    o->queued -= o->stream ? taken : p->bytes;
    if (p->used == p->bytes) {
        o->first = p->next;
        if (!o->first)
            o->last = &o->first;
        __real_free(p);
    }
    if (o->peer)
        sim_object_changed(o->peer, sim.now);
    return (ssize_t)taken;
}

ssize_t sim_receive(int fd, struct msghdr *message, int flags)
{
    struct sim_object *o = sim_socket_of(fd);
    bool has;
    int error = 0;
    ssize_t got;

    if (!o)
        return -1;
    sim_settle_connect(o);
    if (o->stage == CONNECTED)
        perhaps_break(o);
    sim_perhaps_silence(o);
    message->msg_flags = 0;
    has = o->first && o->first->at <= sim.now;
    if (o->local || !has) /* a local socket reports its error first, TCP last */
        error = sim_take_error(o);
    if (error || (o->stage != CONNECTED && o->eof_at > sim.now)) {
        errno = error ? error : ENOTCONN;
        return -1;
    }
    if (has) {
        got = take_packet(o, message, flags & MSG_PEEK);
        sim_event("receive", o->number, (uint64_t)got);
        return got;
    }
    if (!o->first && o->eof_at <= sim.now) {
        message->msg_controllen = 0;
        return 0;
    }
    errno = EAGAIN;
    return -1;
}

int sim_shutdown(int fd)
{
    struct sim_object *o = sim_socket_of(fd);

    if (!o)
        return -1;
    o->shut = true;
    if (o->peer && o->peer->eof_at == SIM_FOREVER) {
        o->peer->eof_at = arrival(o, o->peer);
        sim_object_changed(o->peer, o->peer->eof_at);
    }
    return 0;
}
