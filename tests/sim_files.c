/* SPDX-License-Identifier: MIT */
/*
 * sim_files.c - see sim_files.h: sockets, eventfds, pidfds and memfds of simulated processes.
 *
 * Descriptors of all ranks are numbers of one table; each has an owner, which its death closes.
 * A packet lies in its receiver's list from the moment it is sent, with the time of its arrival.
 */
#include "sim_files.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/un.h>
#include <unistd.h>

#define PACKET_FDS 16
#define MAPS       1024
#define SILENCE    UINT64_C(30000000000) /* TCP_USER_TIMEOUT, as net/tcp.c sets it */
#define REPEAT     UINT64_C(200000000)   /* TCP sends again, at the latest */

int __real_close(int fd);

enum kind { SOCKET, EVENT, PROCESS, MEMORY, TEXT };
enum stage { IDLE, BOUND, LISTENING, CONNECTING, CONNECTED };

struct packet {
    struct packet *next;
    uint64_t at;
    size_t bytes, used;
    int fd_count;
    struct sim_object *fds[PACKET_FDS];
    char data[];
};

struct sim_object {
    enum kind kind;
    int refs;
    uint64_t number;
    /* EVENT: value; PROCESS: rank; MEMORY: real descriptor, seals; TEXT: place of reading */
    uint64_t value;
    int real, seals;
    char *text;
    /* SOCKET */
    bool local, stream, reset;
    enum stage stage;
    int rank; /* that made it */
    int error;
    uint64_t error_at, eof_at, ready_at; /* SIM_FOREVER: not */
    struct sim_object *peer;
    struct packet *first, **last;
    size_t queued, lost; /* lost: sent to nobody */
    bool closed, shut;
    struct sim_object
        *waiting; /* LISTENING: not accepted yet; a list by next_waiting */
    struct sim_object *next_waiting;
    uint64_t arrives;
    int waiting_count, backlog;
    int pid; /* of the other end */
    int far; /* rank of the other end, at the begin; -1: none */
    dev_t device;
    ino_t inode;
    int port, peer_port;
};

static struct descriptor {
    struct sim_object *object;
    int rank;
} table[SIM_FDS];

static int real_owner[SIM_FD_FIRST]; /* rank + 1 */
static uint64_t numbers;
static int ports = 20000;
static struct sim_object *all_sockets[SIM_FDS * 4];
static int socket_count;

static struct mapping {
    char *at;
    size_t bytes;
    struct sim_object *object;
    off_t offset;
    int rank;
    bool counts; /* at an address of the kernel's choice */
} maps[MAPS];
static int map_count;

/* ---- The table ------------------------------------------------------------------- */

bool sim_is_fd(int fd)
{
    return fd >= SIM_FD_FIRST;
}

static struct sim_object *object_of(int fd)
{
    if (fd < SIM_FD_FIRST || fd >= SIM_FD_FIRST + SIM_FDS ||
        !table[fd - SIM_FD_FIRST].object) {
        errno = EBADF;
        return NULL;
    }
    return table[fd - SIM_FD_FIRST].object;
}

static struct sim_object *socket_of(int fd)
{
    struct sim_object *o = object_of(fd);

    if (o && o->kind != SOCKET) {
        errno = ENOTSOCK;
        return NULL;
    }
    return o;
}

static struct sim_object *make(enum kind kind)
{
    struct sim_object *o = __real_calloc(1, sizeof(*o));

    if (!o)
        abort();
    o->kind = kind;
    o->number = ++numbers;
    o->real = -1;
    o->rank = sim_rank();
    o->far = -1;
    o->last = &o->first;
    o->error_at = o->eof_at = o->ready_at = SIM_FOREVER;
    if (kind == SOCKET && socket_count < SIM_FDS * 4)
        all_sockets[socket_count++] = o;
    return o;
}

/* A descriptor of the running rank. */
static int install(struct sim_object *o)
{
    for (int i = 0; i < SIM_FDS; i++)
        if (!table[i].object) {
            table[i] = (struct descriptor){o, sim_rank()};
            o->refs++;
            return SIM_FD_FIRST + i;
        }
    errno = EMFILE;
    return -1;
}

static void let_go(struct sim_object *o);

static void drop_packets(struct sim_object *o)
{
    while (o->first) {
        struct packet *p = o->first;

        o->first = p->next;
        for (int i = 0; i < p->fd_count; i++)
            let_go(p->fds[i]);
        __real_free(p);
    }
    o->last = &o->first;
    o->queued = 0;
}

/* Those that poll the object look at it again, at that time. */
static void changed(const struct sim_object *o, uint64_t at)
{
    for (int i = 0; i < sim.fibers && at < SIM_FOREVER; i++) {
        struct sim_fiber *f = &sim.fiber[i];

        if (f->state != SIM_BLOCKED || !f->polls)
            continue;
        for (nfds_t k = 0; k < f->poll_count; k++) {
            const int fd = f->polls[k].fd;

            if (fd >= SIM_FD_FIRST && fd < SIM_FD_FIRST + SIM_FDS &&
                table[fd - SIM_FD_FIRST].object == o)
                sim_ready(f, (at > sim.now ? at : sim.now) + 1000 + sim_below(10000));
        }
    }
}

static uint64_t network_delay(const struct sim_object *o)
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

/* What would arrive at that time meets the cut: TCP sends it again. */
static uint64_t through(int a, int b, uint64_t at)
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
    uint64_t at = through(from->rank, to->rank, sim.now + network_delay(from));

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
        at = through(o->rank, peer->rank, sim.now + network_delay(o));
    }
    if (peer->eof_at > at)
        peer->eof_at = at;
    if (unread) {
        peer->error = ECONNRESET;
        peer->error_at = at;
    }
    peer->reset = true; /* nothing can be sent to this end */
    peer->peer = NULL;
    changed(peer, at);
}

static void close_socket(struct sim_object *o)
{
    o->closed = true;
    while (o->waiting) {
        struct sim_object *w = o->waiting;

        o->waiting = w->next_waiting;
        hang_up(w, true);
        let_go(w);
    }
    if (o->stage == CONNECTED || o->stage == CONNECTING)
        hang_up(o, o->first != NULL);
    drop_packets(o);
}

static void let_go(struct sim_object *o)
{
    if (--o->refs > 0)
        return;
    if (o->kind == SOCKET)
        close_socket(o);
    if (o->real >= 0)
        __real_close(o->real);
    o->real = -1;
    /* Objects stay: mappings and lists refer to them; the process ends soon. */
}

int sim_close(int fd)
{
    struct sim_object *o = object_of(fd);

    if (!o)
        return -1;
    sim_event("close", (uint64_t)fd, o->number);
    table[fd - SIM_FD_FIRST].object = NULL;
    let_go(o);
    return 0;
}

int sim_duplicate(int fd)
{
    struct sim_object *o = object_of(fd);

    return o ? install(o) : -1;
}

void sim_real_opened(int fd)
{
    if (fd >= 0 && fd < SIM_FD_FIRST)
        real_owner[fd] = sim_rank() + 1;
}

void sim_real_closed(int fd)
{
    if (fd >= 0 && fd < SIM_FD_FIRST)
        real_owner[fd] = 0;
}

void sim_files_died(int rank)
{
    for (int i = 0; i < SIM_FD_FIRST; i++)
        if (real_owner[i] == rank + 1) {
            real_owner[i] = 0;
            __real_close(i);
        }
    for (int i = 0; i < SIM_FDS; i++)
        if (table[i].object && table[i].rank == rank) {
            struct sim_object *o = table[i].object;

            sim_event("the kernel closes", (uint64_t)(SIM_FD_FIRST + i), o->number);
            table[i].object = NULL;
            let_go(o);
            sim_pass(sim_below(20000));
        }
}

void sim_files_zombie(int rank)
{
    for (int i = 0; i < SIM_FDS; i++)
        if (table[i].object && table[i].object->kind == PROCESS &&
            table[i].object->value == (uint64_t)rank)
            changed(table[i].object, sim.now);
}

int sim_files_left(int rank)
{
    int left = 0;

    for (int i = 0; i < SIM_FDS; i++)
        left += table[i].object && table[i].rank == rank;
    for (int i = 0; i < SIM_FD_FIRST; i++)
        left += real_owner[i] == rank + 1;
    return left;
}

/* ---- Other descriptors ----------------------------------------------------------- */

int sim_eventfd(unsigned value)
{
    struct sim_object *o = make(EVENT);

    o->value = value;
    return install(o);
}

int sim_pidfd(int pid)
{
    struct sim_object *o;
    const int rank = (pid - SIM_PID) / 100;

    if (pid < SIM_PID || rank >= sim.config->ranks || (pid - SIM_PID) % 100 != 0 ||
        sim.rank[rank].zombie) {
        errno = ESRCH;
        return -1;
    }
    o = make(PROCESS);
    o->value = (uint64_t)rank;
    return install(o);
}

int sim_pid_of(int fd)
{
    struct sim_object *o = object_of(fd);

    if (o && o->kind == PROCESS)
        return SIM_PID + 100 * (int)o->value;
    errno = EBADF;
    return 0;
}

int sim_text_file(const char *text)
{
    struct sim_object *o = make(TEXT);

    o->text = __real_strdup(text);
    return install(o);
}

int sim_memfd(int real)
{
    struct sim_object *o;

    if (real < 0)
        return -1;
    o = make(MEMORY);
    o->real = real;
    return install(o);
}

int sim_real_of(int fd)
{
    struct sim_object *o = object_of(fd);

    if (o && o->kind == MEMORY)
        return o->real;
    errno = EBADF;
    return -1;
}

int *sim_seals_of(int fd)
{
    struct sim_object *o = object_of(fd);

    return o && o->kind == MEMORY ? &o->seals : NULL;
}

ssize_t sim_read(int fd, void *bytes, size_t count)
{
    struct sim_object *o = object_of(fd);
    size_t length;

    if (!o)
        return -1;
    if (o->kind == EVENT && o->value == 0) {
        errno = EAGAIN;
        return -1;
    }
    if (o->kind == EVENT) {
        memcpy(bytes, &o->value, sizeof(o->value));
        o->value = 0;
        changed(o, sim.now);
        return sizeof(o->value);
    }
    if (o->kind != TEXT) {
        errno = EINVAL;
        return -1;
    }
    length = strlen(o->text) - o->value;
    length = length < count ? length : count;
    memcpy(bytes, o->text + o->value, length);
    o->value += length;
    return (ssize_t)length;
}

ssize_t sim_write(int fd, const void *bytes, size_t count)
{
    struct sim_object *o = object_of(fd);
    uint64_t add;

    if (!o)
        return -1;
    if (o->kind != EVENT || count < sizeof(add)) {
        errno = EINVAL;
        return -1;
    }
    memcpy(&add, bytes, sizeof(add));
    o->value += add;
    changed(o, sim.now);
    return sizeof(add);
}

/* ---- Mappings -------------------------------------------------------------------- */

void sim_unmapped(void *at, size_t bytes)
{
    char *begin = at, *end = begin + bytes;

    for (int i = 0; i < map_count;)
        if (maps[i].at >= begin && maps[i].at + maps[i].bytes <= end)
            maps[i] = maps[--map_count];
        else
            i++;
}

void sim_mapped(void *at, size_t bytes, int fd, off_t offset, bool fixed)
{
    struct sim_object *o = fd >= SIM_FD_FIRST ? object_of(fd) : NULL;

    if (fixed) { /* in a reservation, which counts */
        char *begin = at;

        for (int i = 0; i < map_count;)
            if (!maps[i].counts && maps[i].at >= begin &&
                maps[i].at + maps[i].bytes <= begin + bytes)
                maps[i] = maps[--map_count];
            else
                i++;
    }
    if ((fixed && !o) || map_count == MAPS)
        return;
    maps[map_count++] = (struct mapping){at, bytes, o, offset, sim_rank(), !fixed};
}

const void *sim_memory_at(const void *address, size_t *offset)
{
    const char *at = address;

    for (int i = map_count - 1; i >= 0; i--)
        if (maps[i].object && at >= maps[i].at && at < maps[i].at + maps[i].bytes) {
            *offset = (size_t)(at - maps[i].at) + (size_t)maps[i].offset;
            return maps[i].object;
        }
    *offset = 0;
    return address;
}

int sim_mappings_left(int rank)
{
    int left = 0;

    for (int i = 0; i < map_count; i++)
        left += maps[i].counts && maps[i].rank == rank;
    return left;
}

/* ---- Sockets: making ------------------------------------------------------------- */

int sim_socket(int domain, int type)
{
    const int kind = type & 0xf;
    struct sim_object *o;

    if ((domain != AF_UNIX || kind != SOCK_SEQPACKET) &&
        (domain != AF_INET || kind != SOCK_STREAM)) {
        errno = EAFNOSUPPORT;
        return -1;
    }
    o = make(SOCKET);
    o->local = domain == AF_UNIX;
    o->stream = kind == SOCK_STREAM;
    return install(o);
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
    struct sim_object *pair[2] = {make(SOCKET), make(SOCKET)};

    for (int i = 0; i < 2; i++) {
        pair[i]->local = true;
        pair[i]->stream = (type & 0xf) == SOCK_STREAM;
        fds[i] = install(pair[i]);
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
    for (int i = 0; i < socket_count;
         i++) /* the number of a file that was removed comes again */
        if (all_sockets[i]->inode == is.st_ino && all_sockets[i]->device == is.st_dev)
            all_sockets[i]->inode = 0;
    o->device = is.st_dev;
    o->inode = is.st_ino;
    o->stage = BOUND;
    return 0;
}

static struct sim_object *listener_of(int port)
{
    for (int i = 0; i < socket_count; i++)
        if (all_sockets[i]->port == port && all_sockets[i]->stage == LISTENING &&
            !all_sockets[i]->closed)
            return all_sockets[i];
    return NULL;
}

/* The rank that listens at the port, or has listened there last; -1: none has. */
static int owner_of(int port)
{
    int rank = -1;

    for (int i = 0; i < socket_count; i++)
        if (all_sockets[i]->port == port && all_sockets[i]->stage == LISTENING)
            rank = all_sockets[i]->rank;
    return rank;
}

int sim_bind(int fd, const struct sockaddr *address, socklen_t bytes)
{
    struct sim_object *o = socket_of(fd);
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
    struct sim_object *o = socket_of(fd);

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
    for (int i = 0; i < socket_count; i++)
        if (all_sockets[i]->inode == is.st_ino && all_sockets[i]->device == is.st_dev &&
            all_sockets[i]->stage == LISTENING && !all_sockets[i]->closed)
            return all_sockets[i];
    return NULL;
}

/* The other end of a new connection waits at the listener. */
static void knock(struct sim_object *listener, struct sim_object *o, uint64_t at)
{
    struct sim_object *other = make(SOCKET), **last = &listener->waiting;

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
    changed(listener, at);
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
    struct sim_object *o = socket_of(fd), *listener;
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
    o->ready_at = sim.now + network_delay(o) + network_delay(o);
    owner = owner_of(o->peer_port);
    if (owner >= 0)
        o->ready_at = through(o->rank, owner, o->ready_at);
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
    struct sim_object *o = socket_of(fd), *found;
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
    made = install(found);
    found->rank = sim_rank();
    if (found->peer)
        found->peer->pid = SIM_PID + 100 * o->rank;
    let_go(found);
    sim_event("accept", (uint64_t)made, found->number);
    return made;
}

/* Takes the error of the socket, if it is there already. */
static int take_error(struct sim_object *o)
{
    int error = o->error;

    if (!error || o->error_at > sim.now)
        return 0;
    o->error = 0;
    return error;
}

static void settle_connect(struct sim_object *o)
{
    if (o->stage == CONNECTING && o->ready_at <= sim.now && !o->error)
        o->stage = CONNECTED;
}

int sim_get_option(int fd, int level, int name, void *value, socklen_t *bytes)
{
    struct sim_object *o = socket_of(fd);
    int number = 0;

    if (!o)
        return -1;
    settle_connect(o);
    if (level == SOL_SOCKET && name == SO_PEERCRED) {
        struct ucred peer = {.pid = o->pid, .uid = geteuid(), .gid = getegid()};

        memcpy(value, &peer, sizeof(peer));
        *bytes = sizeof(peer);
        return 0;
    }
    if (level == SOL_SOCKET && name == SO_ERROR)
        number = take_error(o);
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
    struct sim_object *o = socket_of(fd);
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

/* ---- Sockets: data --------------------------------------------------------------- */

/* Bytes of the message that fit now. A local packet goes whole, and one always fits. */
static size_t space_for(const struct sim_object *o, size_t bytes)
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
        o = object_of(fd);
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
    changed(to, at);
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
        const uint64_t at = sim.now + network_delay(o);

        o->error = ECONNRESET; /* TCP learns it by sending */
        o->error_at =
            o->far >= 0 && crosses(o->rank, o->far) && o->eof_at > at ? o->eof_at : at;
        changed(o, o->error_at);
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
    queue(to, rest, at == SIM_FOREVER ? at : at + network_delay(o));
}

ssize_t sim_send(int fd, const struct msghdr *message, int flags)
{
    struct sim_object *o = socket_of(fd);
    struct packet *p;
    size_t bytes = 0, fits;
    int error;

    (void)flags; /* without SIGPIPE, without waiting */
    if (!o)
        return -1;
    settle_connect(o);
    for (size_t i = 0; i < message->msg_iovlen; i++)
        bytes += message->msg_iov[i].iov_len;
    error = take_error(o);
    if (error || o->stage != CONNECTED) {
        errno = error ? error : ENOTCONN;
        return -1;
    }
    if (!o->peer || o->shut)
        return send_to_none(o, bytes);
    fits = space_for(o, bytes);
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
    sim_event("breaks", o->number, 0);
    o->error = ECONNRESET;
    o->error_at = o->eof_at = sim.now;
    hang_up(o, true);
    changed(o, sim.now);
}

/* When the kernel gives up the connection, since its other end is silent; SIM_FOREVER: never. */
static uint64_t silent_at(const struct sim_object *o)
{
    const uint64_t at = sim.cut_at + SILENCE;

    if (o->local || o->stage != CONNECTED || o->far < 0 || !crosses(o->rank, o->far) ||
        sim.cut_until <= at)
        return SIM_FOREVER;
    return at;
}

static void perhaps_silence(struct sim_object *o)
{
    if (sim.now < silent_at(o))
        return;
    sim_event("is silent", o->number, 0);
    o->far = -1;
    o->error = ETIMEDOUT;
    o->error_at = o->eof_at = sim.now;
    hang_up(o, true);
    changed(o, sim.now);
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
            fds[count++] = install(p->fds[i]);
        else
            message->msg_flags |= MSG_CTRUNC;
        let_go(p->fds[i]);
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
        changed(o->peer, sim.now);
    return (ssize_t)taken;
}

ssize_t sim_receive(int fd, struct msghdr *message, int flags)
{
    struct sim_object *o = socket_of(fd);
    bool has;
    int error = 0;
    ssize_t got;

    if (!o)
        return -1;
    settle_connect(o);
    if (o->stage == CONNECTED)
        perhaps_break(o);
    perhaps_silence(o);
    message->msg_flags = 0;
    has = o->first && o->first->at <= sim.now;
    if (o->local || !has) /* a local socket reports its error first, TCP last */
        error = take_error(o);
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
    struct sim_object *o = socket_of(fd);

    if (!o)
        return -1;
    o->shut = true;
    if (o->peer && o->peer->eof_at == SIM_FOREVER) {
        o->peer->eof_at = arrival(o, o->peer);
        changed(o->peer, o->peer->eof_at);
    }
    return 0;
}

/* ---- Polling --------------------------------------------------------------------- */

static void no_later(uint64_t *next, uint64_t at)
{
    if (at > sim.now && at < *next)
        *next = at;
}

static short socket_events(struct sim_object *o, uint64_t *next)
{
    short events = 0;

    settle_connect(o);
    perhaps_silence(o);
    no_later(next, silent_at(o));
    no_later(next, o->ready_at);
    no_later(next, o->eof_at);
    no_later(next, o->error ? o->error_at : SIM_FOREVER);
    if (o->first)
        no_later(next, o->first->at);
    if (o->waiting) {
        no_later(next, o->waiting->arrives);
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
    if (o->stage == CONNECTED && (!o->peer || space_for(o, 2) == 2))
        events |= POLLOUT;
    return events;
}

static short events_of(struct sim_object *o, uint64_t *next)
{
    switch (o->kind) {
    case SOCKET:
        return socket_events(o, next);
    case EVENT:
        return POLLOUT | (o->value > 0 ? POLLIN : 0);
    case PROCESS:
        return sim.rank[o->value].zombie ? POLLIN : 0;
    default:
        return POLLIN | POLLOUT;
    }
}

static int look(struct pollfd *polls, nfds_t count, uint64_t *next)
{
    int ready = 0;

    for (nfds_t i = 0; i < count; i++) {
        struct sim_object *o;

        polls[i].revents = 0;
        if (polls[i].fd < 0)
            continue;
        o = object_of(polls[i].fd);
        polls[i].revents =
            o ? events_of(o, next) & (polls[i].events | POLLERR | POLLHUP) : POLLNVAL;
        ready += polls[i].revents != 0;
    }
    return ready;
}

int sim_poll(struct pollfd *polls, nfds_t count, uint64_t until)
{
    struct sim_fiber *f = sim.current;

    for (;;) {
        uint64_t next = until;
        int ready = look(polls, count, &next);

        if (ready > 0 || sim.now >= until) {
            sim_event("poll", count, (uint64_t)ready);
            return ready;
        }
        if (sim_interrupted())
            return -1;
        f->polls = polls;
        f->poll_count = count;
        sim_wait("poll", NULL, 0, next);
        f->polls = NULL;
    }
}
