/* SPDX-License-Identifier: MIT */
/* sim_sockets.c - see sim_object.h: sockets are made, bound, connected, accepted and polled. */
#include "sim_object.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

static int ports = 20000;
struct sim_object *sim_sockets[SIM_FDS * 4];
int sim_socket_count;

struct sim_object *sim_socket_of(int fd)
{
    struct sim_object *o = sim_object_of(fd);

    if (o && o->kind != SOCKET) {
        errno = ENOTSOCK;
        return NULL;
    }
    return o;
}

int sim_socket(int domain, int type)
{
    const int kind = type & 0xf;
    struct sim_object *o;

    if ((domain != AF_UNIX || kind != SOCK_SEQPACKET) &&
        (domain != AF_INET || kind != SOCK_STREAM)) {
        errno = EAFNOSUPPORT;
        return -1;
    }
    o = sim_object_make(SOCKET);
    o->local = domain == AF_UNIX;
    o->stream = kind == SOCK_STREAM;
    return sim_object_install(o);
}

static void pair_up(struct sim_object *a, struct sim_object *b)
{
    a->peer = b;
    b->peer = a;
    a->far = b->rank;
    b->far = a->rank;
    a->stage = b->stage = CONNECTED;
    a->pid = SIM_PID + 100 * b->rank;
    b->pid = SIM_PID + 100 * a->rank;
}

int sim_socketpair(int type, int fds[2])
{
    struct sim_object *pair[2] = {sim_object_make(SOCKET), sim_object_make(SOCKET)};

    for (int i = 0; i < 2; i++) {
        pair[i]->local = true;
        pair[i]->stream = (type & 0xf) == SOCK_STREAM;
        fds[i] = sim_object_install(pair[i]);
    }
    pair_up(pair[0], pair[1]);
    return 0;
}

static int bind_local(struct sim_object *o, const char *path)
{
    struct stat is;

    if (mknod(path, S_IFSOCK | 0755, 0) != 0) {
        errno = errno == EEXIST ? EADDRINUSE : errno;
        return -1;
    }
    if (lstat(path, &is) != 0)
        return -1;
    for (int i = 0; i < sim_socket_count;
         i++) /* the number of a file that was removed comes again */
        if (sim_sockets[i]->inode == is.st_ino && sim_sockets[i]->device == is.st_dev)
            sim_sockets[i]->inode = 0;
    o->device = is.st_dev;
    o->inode = is.st_ino;
    o->stage = BOUND;
    return 0;
}

static struct sim_object *listener_of(int port)
{
    for (int i = 0; i < sim_socket_count; i++)
        if (sim_sockets[i]->port == port && sim_sockets[i]->stage == LISTENING &&
            !sim_sockets[i]->closed)
            return sim_sockets[i];
    return NULL;
}

/* The rank that listens at the port, or has listened there last; -1: none has. */
static int owner_of(int port)
{
    int rank = -1;

    for (int i = 0; i < sim_socket_count; i++)
        if (sim_sockets[i]->port == port && sim_sockets[i]->stage == LISTENING)
            rank = sim_sockets[i]->rank;
    return rank;
}

int sim_bind(int fd, const struct sockaddr *address, socklen_t bytes)
{
    struct sim_object *o = sim_socket_of(fd);
    struct sockaddr_in at;

    if (!o)
        return -1;
    if (o->local)
        return bind_local(o, ((const struct sockaddr_un *)address)->sun_path);
    memcpy(&at, address, bytes < sizeof(at) ? bytes : sizeof(at));
    o->port = ntohs(at.sin_port);
    if (o->port == 0)
        o->port = ++ports;
    else if (listener_of(o->port)) {
        errno = EADDRINUSE;
        return -1;
    }
    o->stage = BOUND;
    return 0;
}

int sim_listen(int fd, int backlog)
{
    struct sim_object *o = sim_socket_of(fd);

    if (!o)
        return -1;
    o->stage = LISTENING;
    o->backlog = backlog;
    sim_event("listen", (uint64_t)fd, (uint64_t)o->port);
    return 0;
}

static struct sim_object *listener_at(const char *path)
{
    struct stat is;

    if (stat(path, &is) != 0)
        return NULL;
    errno = ECONNREFUSED;
    for (int i = 0; i < sim_socket_count; i++)
        if (sim_sockets[i]->inode == is.st_ino && sim_sockets[i]->device == is.st_dev &&
            sim_sockets[i]->stage == LISTENING && !sim_sockets[i]->closed)
            return sim_sockets[i];
    return NULL;
}

/* The other end of a new connection waits at the listener. */
static void knock(struct sim_object *listener, struct sim_object *o, uint64_t at)
{
    struct sim_object *other = sim_object_make(SOCKET), **last = &listener->waiting;

    other->local = o->local;
    other->stream = o->stream;
    other->rank = listener->rank;
    other->port = listener->port;
    other->peer_port = o->port;
    other->arrives = at;
    other->refs = 1;
    pair_up(other, o);
    while (*last && (*last)->arrives <= at)
        last = &(*last)->next_waiting;
    other->next_waiting = *last;
    *last = other;
    listener->waiting_count++;
    sim_object_changed(listener, at);
}

static int connect_local(struct sim_object *o, const char *path)
{
    struct sim_object *listener = listener_at(path);

    if (!listener)
        return -1;
    if (listener->waiting_count > listener->backlog) {
        errno = EAGAIN;
        return -1;
    }
    knock(listener, o, sim.now);
    return 0;
}

int sim_connect(int fd, const struct sockaddr *address, socklen_t bytes)
{
    struct sim_object *o = sim_socket_of(fd), *listener;
    struct sockaddr_in to;
    int owner;

    if (!o)
        return -1;
    if (o->local)
        return connect_local(o, ((const struct sockaddr_un *)address)->sun_path);
    memcpy(&to, address, bytes < sizeof(to) ? bytes : sizeof(to));
    listener = listener_of(ntohs(to.sin_port));
    o->port = ++ports;
    o->peer_port = ntohs(to.sin_port);
    o->ready_at = sim.now + sim_network_delay(o) + sim_network_delay(o);
    owner = owner_of(o->peer_port);
    if (owner >= 0)
        o->ready_at = sim_network_through(o->rank, owner, o->ready_at);
    if (listener) {
        knock(listener, o, o->ready_at);
    } else {
        o->error = ECONNREFUSED;
        o->error_at = o->ready_at;
    }
    o->stage = CONNECTING;
    sim_event("connect", (uint64_t)o->peer_port, listener != NULL);
    errno = EINPROGRESS;
    return -1;
}

int sim_accept(int fd, int flags)
{
    struct sim_object *o = sim_socket_of(fd), *found;
    int made;

    (void)flags;
    if (!o)
        return -1;
    found = o->waiting;
    if (!found || found->arrives > sim.now) {
        errno = EAGAIN;
        return -1;
    }
    o->waiting = found->next_waiting;
    o->waiting_count--;
    made = sim_object_install(found);
    found->rank = sim_rank();
    if (found->peer)
        found->peer->pid = SIM_PID + 100 * o->rank;
    sim_object_let_go(found);
    sim_event("accept", (uint64_t)made, found->number);
    return made;
}

int sim_take_error(struct sim_object *o)
{
    int error = o->error;

    if (!error || o->error_at > sim.now)
        return 0;
    o->error = 0;
    return error;
}

void sim_settle_connect(struct sim_object *o)
{
    if (o->stage == CONNECTING && o->ready_at <= sim.now && !o->error)
        o->stage = CONNECTED;
}

int sim_get_option(int fd, int level, int name, void *value, socklen_t *bytes)
{
    struct sim_object *o = sim_socket_of(fd);
    int number = 0;

    if (!o)
        return -1;
    sim_settle_connect(o);
    if (level == SOL_SOCKET && name == SO_PEERCRED) {
        struct ucred peer = {.pid = o->pid, .uid = geteuid(), .gid = getegid()};

        memcpy(value, &peer, sizeof(peer));
        *bytes = sizeof(peer);
        return 0;
    }
    if (level == SOL_SOCKET && name == SO_ERROR)
        number = sim_take_error(o);
    else if (level == SOL_SOCKET && name == SO_TYPE)
        number = o->stream ? SOCK_STREAM : SOCK_SEQPACKET;
    else if (level == SOL_SOCKET && name == SO_DOMAIN)
        number = o->local ? AF_UNIX : AF_INET;
    memcpy(value, &number, sizeof(number));
    *bytes = sizeof(number);
    return 0;
}

int sim_name(int fd, bool peer, struct sockaddr *address, socklen_t *bytes)
{
    struct sim_object *o = sim_socket_of(fd);
    struct sockaddr_in at = {.sin_family = AF_INET};

    if (!o)
        return -1;
    if (peer && o->stage != CONNECTED) {
        errno = ENOTCONN;
        return -1;
    }
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons((uint16_t)(peer ? o->peer_port : o->port));
    memcpy(address, &at, *bytes < sizeof(at) ? *bytes : sizeof(at));
    *bytes = sizeof(at);
    return 0;
}

short sim_socket_events(struct sim_object *o, uint64_t *next)
{
    short events = 0;

    sim_settle_connect(o);
    sim_perhaps_silence(o);
    sim_no_later(next, sim_silent_at(o));
    sim_no_later(next, o->ready_at);
    sim_no_later(next, o->eof_at);
    sim_no_later(next, o->error ? o->error_at : SIM_FOREVER);
    if (o->first)
        sim_no_later(next, o->first->at);
    if (o->waiting) {
        sim_no_later(next, o->waiting->arrives);
        return o->waiting->arrives <= sim.now ? POLLIN : 0;
    }
    if (o->stage != CONNECTED && o->stage != CONNECTING)
        return o->stage == LISTENING ? 0 : POLLHUP | POLLOUT;
    if (o->first && o->first->at <= sim.now)
        events |= POLLIN;
    if (o->eof_at <= sim.now)
        events |= POLLIN | POLLRDHUP | (o->peer && !o->shut ? 0 : POLLHUP);
    if (o->error && o->error_at <= sim.now)
        events |= POLLERR | POLLIN | POLLOUT;
    if (o->stage == CONNECTED && (!o->peer || sim_space_for(o, 2) == 2))
        events |= POLLOUT;
    return events;
}
