/* SPDX-License-Identifier: MIT */
/*
 * symmrun_nodes.c - one job over several nodes: the symmrun of each node and that of node 0.
 *
 * Node 0 listens at the rendezvous address until all other nodes have come; each side proves
 * that it knows the job's secret by a keyed hash over both sides' random numbers, and so does
 * every message after that (siphash.h): the secret is never sent. Node 0 then names the job.
 * Later messages carry the blocks of the ranks' store, and how a node's first rank has
 * failed, which ends the job everywhere. A connection that ends in the middle of the job is a
 * failure of that node.
 *
 * The rendezvous is over after RENDEZVOUS_SECONDS at most, and a signal ends it at once. A
 * stranger that connects has STRANGER_SECONDS to prove itself, one after the other.
 */
#include "symmrun_nodes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "siphash.h"

#define NODES_MAGIC        0x53594d4eu /* "SYMN" */
#define NODES_VERSION      1u
#define RENDEZVOUS_SECONDS 60.0
#define STRANGER_SECONDS   1.0
#define SEND_SECONDS       5
#define PAYLOAD_MAX        (32u << 20)

enum message { START = 1, BLOCKS, ALL, FAILED, BYE };

struct node_greeting { /* in network byte order */
    uint32_t magic, version, node, nodes, ranks, unused;
    uint8_t nonce[16];
};

struct node_head { /* in network byte order */
    uint32_t magic, type, bytes, value;
    uint64_t
        hash; /* over this head (with 0 here), the number of the message, the bytes */
};

struct node_start {
    char id[33], port[16];
};

struct node {
    int fd;   /* -1: not connected, or gone */
    bool bye; /* it has ended well */
    uint8_t key[SYMM_SIPHASH_KEY];
    uint64_t sent, received;
    unsigned char *data; /* what has come of a message */
    size_t used, capacity;
    unsigned char *blocks; /* node 0: the round's part of that node */
    size_t blocks_bytes;
};

struct symmrun_nodes {
    struct symmrun *run;
    int count, own; /* own: --node-rank */
    int listener;
    uint8_t secret[SYMMRUN_SECRET_BYTES];
    struct node *node; /* [count]; node 0: all others; else only [0] is used */
    bool over;         /* a failure was told */
};

static bool send_bytes(int fd, const void *data, size_t bytes)
{
    const char *at = data;

    while (bytes > 0) {
        ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL);

        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        at += sent;
        bytes -= (size_t)sent;
    }
    return true;
}

static uint64_t hash_of(const uint8_t *key, uint64_t number, bool from_first,
                        const struct node_head *head, const void *data, size_t bytes)
{
    struct symm_siphash hash = symm__siphash_begin(key);
    uint64_t order = number << 1 | from_first;

    symm__siphash_add(&hash, head, sizeof(*head));
    symm__siphash_add(&hash, &order, sizeof(order));
    symm__siphash_add(&hash, data, bytes);
    return symm__siphash_end(&hash);
}

static bool tell(struct symmrun_nodes *nodes, struct node *to, enum message type,
                 uint32_t value, const void *data, size_t bytes)
{
    struct node_head head = {.magic = htonl(NODES_MAGIC),
                             .type = htonl((uint32_t)type),
                             .bytes = htonl((uint32_t)bytes),
                             .value = htonl(value)};

    if (to->fd < 0)
        return false;
    head.hash = hash_of(to->key, to->sent++, nodes->own == 0, &head, data, bytes);
    return send_bytes(to->fd, &head, sizeof(head)) &&
           (bytes == 0 || send_bytes(to->fd, data, bytes));
}

static void tell_all(struct symmrun_nodes *nodes, enum message type, uint32_t value,
                     const void *data, size_t bytes)
{
    for (int n = 0; n < nodes->count; n++)
        (void)tell(nodes, &nodes->node[n], type, value, data, bytes);
}

/* ---- Proofs ------------------------------------------------------------------------- */

static uint64_t prove(const struct symmrun_nodes *nodes, char what,
                      const struct node_greeting *joiner,
                      const struct node_greeting *first)
{
    struct symm_siphash hash = symm__siphash_begin(nodes->secret);

    symm__siphash_add(&hash, &what, 1);
    symm__siphash_add(&hash, joiner, sizeof(*joiner));
    symm__siphash_add(&hash, first, sizeof(*first));
    return symm__siphash_end(&hash);
}

static void adopt(struct symmrun_nodes *nodes, int index, int fd,
                  const struct node_greeting *joiner, const struct node_greeting *first)
{
    uint64_t halves[2] = {prove(nodes, 'k', joiner, first),
                          prove(nodes, 'l', joiner, first)};
    const int yes = 1, idle = 10;

    memcpy(nodes->node[index].key, halves, sizeof(halves));
    nodes->node[index].fd = fd;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof(idle));
}

static struct node_greeting greeting_of(const struct symmrun_nodes *nodes)
{
    struct node_greeting greeting = {.magic = htonl(NODES_MAGIC),
                                     .version = htonl(NODES_VERSION),
                                     .node = htonl((uint32_t)nodes->own),
                                     .nodes = htonl((uint32_t)nodes->count),
                                     .ranks =
                                         htonl((uint32_t)nodes->run->options.ranks)};

    if (getrandom(greeting.nonce, sizeof(greeting.nonce), 0) < 0)
        greeting.magic = 0; /* the other side refuses it */
    return greeting;
}

/* Waits for readiness; false: too late, or a signal has come. */
static bool ready(const struct symmrun_nodes *nodes, int fd, short events, double until)
{
    struct pollfd fds[2] = {{.fd = fd, .events = events},
                            {.fd = nodes->run->signal_fd, .events = POLLIN}};
    double left = until - symmrun_now();
    int got = left <= 0 ? 0 : poll(fds, 2, (int)(1e3 * left) + 1);

    return got > 0 && fds[0].revents && !fds[1].revents;
}

static bool receive(const struct symmrun_nodes *nodes, int fd, void *data, size_t bytes,
                    double until)
{
    char *at = data;

    while (bytes > 0) {
        ssize_t got = recv(fd, at, bytes, MSG_DONTWAIT);

        if (got > 0) {
            at += got;
            bytes -= (size_t)got;
        } else if (got == 0 || (errno != EAGAIN && errno != EINTR) ||
                   !ready(nodes, fd, POLLIN, until)) {
            return false;
        }
    }
    return true;
}

static bool signalled(const struct symmrun_nodes *nodes)
{
    struct pollfd fd = {.fd = nodes->run->signal_fd, .events = POLLIN};

    return poll(&fd, 1, 0) == 1;
}

/* ---- Node 0 ------------------------------------------------------------------------- */

/* One connection, which may be a stranger's. NULL: it is a node's; else what is wrong. */
static const char *admit(struct symmrun_nodes *nodes, int fd, double until)
{
    struct node_greeting theirs, mine = greeting_of(nodes);
    uint64_t proof;
    uint32_t node;

    if (!receive(nodes, fd, &theirs, sizeof(theirs), until) ||
        ntohl(theirs.magic) != NODES_MAGIC || ntohl(theirs.version) != NODES_VERSION)
        return "it is no symmrun of this version";
    proof = prove(nodes, 'a', &theirs, &mine);
    if (!send_bytes(fd, &mine, sizeof(mine)) ||
        !send_bytes(fd, &proof, sizeof(proof)) ||
        !receive(nodes, fd, &proof, sizeof(proof), until) ||
        proof != prove(nodes, 'b', &theirs, &mine))
        return "it does not know the secret (SYMM_SECRET), or has another command line";
    node = ntohl(theirs.node);
    if (theirs.nodes != mine.nodes || theirs.ranks != mine.ranks || node < 1 ||
        node >= (uint32_t)nodes->count)
        return "it was started with another --nnodes, -n or --node-rank";
    if (nodes->node[node].fd >= 0)
        return "a node of that --node-rank has come before";
    adopt(nodes, (int)node, fd, &theirs, &mine);
    return NULL;
}

static int missing(const struct symmrun_nodes *nodes, char *text, size_t bytes)
{
    int count = 0;
    size_t used = 0;

    text[0] = '\0';
    for (int n = 1; n < nodes->count; n++)
        if (nodes->node[n].fd < 0 && ++count <= 8)
            used += (size_t)snprintf(text + used, bytes - used, "%s%d",
                                     count > 1 ? ", " : "", n);
    return count;
}

static bool accept_nodes(struct symmrun_nodes *nodes, double until)
{
    struct symmrun *run = nodes->run;
    char text[80];

    while (missing(nodes, text, sizeof(text)) > 0) {
        const struct timeval limit = {.tv_sec = SEND_SECONDS};
        const char *wrong;
        double stranger;
        int fd;

        if (!ready(nodes, nodes->listener, POLLIN, until)) {
            if (symmrun_now() >= until)
                symmrun_say(run, "node %s did not come to %s within %g s", text,
                            run->options.rendezvous, RENDEZVOUS_SECONDS);
            return false;
        }
        fd = accept4(nodes->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
        stranger = symmrun_now() + STRANGER_SECONDS;
        wrong = admit(nodes, fd, stranger < until ? stranger : until);
        if (wrong) {
            close(fd);
            symmrun_say(run, "refused a connection to %s: %s", run->options.rendezvous,
                        wrong);
            for (int i = 0; i < 2; i++)
                symmrun_queue_flush(&run->queues[i]);
        }
    }
    return true;
}

static bool listen_at(struct symmrun_nodes *nodes, const struct addrinfo *to)
{
    const int yes = 1, no = 0;

    nodes->listener = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (nodes->listener < 0)
        return false;
    (void)setsockopt(nodes->listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (to->ai_family == AF_INET6)
        (void)setsockopt(nodes->listener, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
    if (bind(nodes->listener, to->ai_addr, to->ai_addrlen) == 0 &&
        listen(nodes->listener, SOMAXCONN) == 0)
        return true;
    symmrun_say(nodes->run,
                "cannot listen at --rendezvous %s: %s; it is an address of "
                "node 0",
                nodes->run->options.rendezvous, strerror(errno));
    return false;
}

/* ---- The others --------------------------------------------------------------------- */

static bool introduce(struct symmrun_nodes *nodes, int fd, double until)
{
    struct node_greeting mine = greeting_of(nodes), theirs;
    uint64_t proof;

    if (!send_bytes(fd, &mine, sizeof(mine)) ||
        !receive(nodes, fd, &theirs, sizeof(theirs), until) ||
        !receive(nodes, fd, &proof, sizeof(proof), until))
        return false;
    if (ntohl(theirs.magic) != NODES_MAGIC ||
        proof != prove(nodes, 'a', &mine, &theirs)) {
        symmrun_say(nodes->run,
                    "what listens at %s does not know the secret (SYMM_SECRET)",
                    nodes->run->options.rendezvous);
        return false;
    }
    proof = prove(nodes, 'b', &mine, &theirs);
    if (!send_bytes(fd, &proof, sizeof(proof)))
        return false;
    adopt(nodes, 0, fd, &mine, &theirs);
    return true;
}

static bool connect_first(struct symmrun_nodes *nodes, const struct addrinfo *to,
                          double until)
{
    const struct timespec pause = {0, 50000000};
    const struct timeval limit = {.tv_sec = SEND_SECONDS};
    int fd = -1;

    while (fd < 0 && symmrun_now() < until && !signalled(nodes)) {
        fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
        if (fd >= 0 && connect(fd, to->ai_addr, to->ai_addrlen) == 0)
            break;
        if (fd >= 0)
            close(fd);
        fd = -1;
        nanosleep(&pause, NULL);
    }
    if (fd < 0) {
        symmrun_say(nodes->run, "node 0 does not listen at %s",
                    nodes->run->options.rendezvous);
        return false;
    }
    if (introduce(nodes, fd, until))
        return true;
    symmrun_say(nodes->run,
                "node 0 at %s hung up: SYMM_SECRET, --nnodes, -n and --node-rank must "
                "fit its own",
                nodes->run->options.rendezvous);
    close(fd);
    return false;
}

/* ---- The start ---------------------------------------------------------------------- */

/* The own address on that connection: where ranks of other nodes find this one's. */
static void own_address(struct symmrun_job *job, int fd)
{
    struct sockaddr_storage own;
    socklen_t bytes = sizeof(own);

    if (getsockname(fd, (struct sockaddr *)&own, &bytes) == 0)
        (void)getnameinfo((struct sockaddr *)&own, bytes, job->address,
                          sizeof(job->address), NULL, 0, NI_NUMERICHOST);
}

static bool share_start(struct symmrun_nodes *nodes, double until)
{
    struct symmrun_job *job = &nodes->run->job;
    struct node_start start = {0};
    struct node_head head;
    uint64_t hash;

    if (nodes->own == 0) {
        memcpy(start.id, job->id, sizeof(start.id));
        memcpy(start.port, job->port, sizeof(start.port));
        tell_all(nodes, START, 0, &start, sizeof(start));
        own_address(job, nodes->node[1].fd);
        return true;
    }
    if (!receive(nodes, nodes->node[0].fd, &head, sizeof(head), until) ||
        ntohl(head.bytes) != sizeof(start) ||
        !receive(nodes, nodes->node[0].fd, &start, sizeof(start), until)) {
        symmrun_say(nodes->run,
                    "node 0 at %s hung up, and says why: other nodes did not come, or "
                    "--nnodes, -n and --node-rank do not fit its own",
                    nodes->run->options.rendezvous);
        return false;
    }
    hash = head.hash;
    head.hash = 0;
    if (hash != hash_of(nodes->node[0].key, nodes->node[0].received++, true, &head,
                        &start, sizeof(start)) ||
        ntohl(head.type) != START)
        return false;
    start.id[32] = start.port[15] = '\0';
    memcpy(job->id, start.id, sizeof(job->id));
    memcpy(job->port, start.port, sizeof(job->port));
    own_address(job, nodes->node[0].fd);
    return true;
}

/* HOST:PORT or [ADDRESS]:PORT. */
static bool resolve(struct symmrun_nodes *nodes, struct addrinfo **found)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    const char *text = nodes->run->options.rendezvous, *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;
    char host[256];
    int error;

    if (length >= 2 && text[0] == '[' && text[length - 1] == ']') {
        text++;
        length -= 2;
    }
    if (length == 0 || length >= sizeof(host)) {
        symmrun_say(nodes->run, "--rendezvous '%s': must be HOST:PORT", text);
        return false;
    }
    memcpy(host, text, length);
    host[length] = '\0';
    error = getaddrinfo(host, colon + 1, &hints, found);
    if (error != 0) {
        symmrun_say(nodes->run, "--rendezvous %s: %s", text, gai_strerror(error));
        return false;
    }
    (void)getnameinfo((*found)->ai_addr, (*found)->ai_addrlen, nodes->run->job.master,
                      sizeof(nodes->run->job.master), NULL, 0, NI_NUMERICHOST);
    return true;
}

bool symmrun_nodes_join(struct symmrun *run, const uint8_t *secret)
{
    struct symmrun_nodes *nodes = calloc(1, sizeof(*nodes));
    double until = symmrun_now() + RENDEZVOUS_SECONDS;
    struct addrinfo *to = NULL;
    bool met;

    if (!nodes)
        return false;
    run->nodes = nodes;
    nodes->run = run;
    nodes->count = run->options.nodes;
    nodes->own = run->options.node;
    nodes->listener = -1;
    memcpy(nodes->secret, secret, sizeof(nodes->secret));
    nodes->node = calloc((size_t)nodes->count, sizeof(*nodes->node));
    if (!nodes->node)
        return false;
    for (int n = 0; n < nodes->count; n++)
        nodes->node[n].fd = -1;
    if (!resolve(nodes, &to))
        return false;
    met = nodes->own == 0 ? listen_at(nodes, to) && accept_nodes(nodes, until)
                          : connect_first(nodes, to, until);
    freeaddrinfo(to);
    if (nodes->listener >= 0)
        close(nodes->listener);
    nodes->listener = -1;
    return met && share_start(nodes, until + STRANGER_SECONDS);
}

void symmrun_nodes_destroy(struct symmrun_nodes *nodes)
{
    if (!nodes)
        return;
    tell_all(nodes, BYE, 0, NULL, 0);
    for (int n = 0; nodes->node && n < nodes->count; n++) {
        if (nodes->node[n].fd >= 0)
            close(nodes->node[n].fd);
        free(nodes->node[n].data);
        free(nodes->node[n].blocks);
    }
    free(nodes->node);
    free(nodes);
}

/* ---- The job ------------------------------------------------------------------------ */

/* Node 0: have all nodes' blocks come? Then everybody gets all. */
static void finish_blocks(struct symmrun_nodes *nodes)
{
    size_t each = nodes->node[0].blocks_bytes, all = each * (size_t)nodes->count;
    unsigned char *data;

    for (int n = 0; n < nodes->count; n++)
        if (!nodes->node[n].blocks || nodes->node[n].blocks_bytes != each)
            return;
    data = malloc(all + 1);
    for (int n = 0; n < nodes->count; n++) {
        struct node *node = &nodes->node[n];

        if (data && each)
            memcpy(data + (size_t)n * each, node->blocks, each);
        free(node->blocks);
        node->blocks = NULL;
    }
    if (!data)
        return; /* the ranks' deadline tells them */
    tell_all(nodes, ALL, 0, data, all);
    symmrun_store_fulfil(nodes->run->store, data, all);
    free(data);
}

/* Node 0: the part of one node, itself included. */
static void take_blocks(struct symmrun_nodes *nodes, int index, const void *data,
                        size_t bytes)
{
    struct node *node = &nodes->node[index];

    free(node->blocks);
    node->blocks = malloc(bytes + 1);
    node->blocks_bytes = bytes;
    if (!node->blocks)
        return;
    memcpy(node->blocks, data, bytes);
    finish_blocks(nodes);
}

void symmrun_nodes_blocks(struct symmrun_nodes *nodes, const void *data, size_t bytes)
{
    if (nodes->own == 0)
        take_blocks(nodes, 0, data, bytes);
    else
        (void)tell(nodes, &nodes->node[0], BLOCKS, 0, data, bytes);
}

void symmrun_nodes_failed(struct symmrun_nodes *nodes, int status)
{
    if (!nodes || nodes->over)
        return;
    nodes->over = true;
    tell_all(nodes, FAILED, (uint32_t)status << 16 | (uint32_t)nodes->own, NULL, 0);
}

static void node_failed(struct symmrun_nodes *nodes, int node, int status)
{
    if (nodes->own == 0 && !nodes->over)
        tell_all(nodes, FAILED, (uint32_t)status << 16 | (uint32_t)node, NULL, 0);
    nodes->over = true;
    symmrun_watch_node(nodes->run, node, status);
}

static void node_gone(struct symmrun_nodes *nodes, int index)
{
    struct node *node = &nodes->node[index];

    close(node->fd);
    node->fd = -1;
    if (!node->bye && !nodes->over)
        node_failed(nodes, index, 1);
}

static void obey(struct symmrun_nodes *nodes, int index, const struct node_head *head,
                 const void *data, size_t bytes)
{
    uint32_t value = ntohl(head->value);

    switch (ntohl(head->type)) {
    case BLOCKS:
        if (nodes->own == 0)
            take_blocks(nodes, index, data, bytes);
        break;
    case ALL:
        symmrun_store_fulfil(nodes->run->store, data, bytes);
        break;
    case FAILED:
        if (!nodes->over)
            node_failed(nodes, (int)(value & 0xffff), (int)(value >> 16));
        break;
    case BYE:
        nodes->node[index].bye = true;
        break;
    default:
        break;
    }
}

/* Whole messages that have come. False: it is damaged. */
static bool take_messages(struct symmrun_nodes *nodes, int index)
{
    struct node *node = &nodes->node[index];

    while (node->used >= sizeof(struct node_head)) {
        struct node_head head;
        size_t bytes;
        uint64_t hash;

        memcpy(&head, node->data, sizeof(head));
        bytes = ntohl(head.bytes);
        hash = head.hash;
        head.hash = 0;
        if (ntohl(head.magic) != NODES_MAGIC || bytes > PAYLOAD_MAX)
            return false;
        if (node->used < sizeof(head) + bytes)
            return true;
        if (hash != hash_of(node->key, node->received++, nodes->own != 0, &head,
                            node->data + sizeof(head), bytes))
            return false;
        obey(nodes, index, &head, node->data + sizeof(head), bytes);
        node->used -= sizeof(head) + bytes;
        memmove(node->data, node->data + sizeof(head) + bytes, node->used);
    }
    return true;
}

static void hear(struct symmrun_nodes *nodes, int index)
{
    struct node *node = &nodes->node[index];
    ssize_t got;

    if (node->capacity - node->used < 65536) {
        unsigned char *grown = realloc(node->data, 2 * node->capacity + 131072);

        if (!grown) {
            node_gone(nodes, index);
            return;
        }
        node->data = grown;
        node->capacity = 2 * node->capacity + 131072;
    }
    got = recv(node->fd, node->data + node->used, node->capacity - node->used,
               MSG_DONTWAIT);
    if (got > 0)
        node->used += (size_t)got;
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR) ||
        (got > 0 && !take_messages(nodes, index)))
        node_gone(nodes, index);
}

size_t symmrun_nodes_most(const struct symmrun_nodes *nodes)
{
    return nodes ? (size_t)nodes->count : 0;
}

void symmrun_nodes_watch(const struct symmrun_nodes *nodes, struct pollfd *fds)
{
    for (int n = 0; nodes && n < nodes->count; n++)
        fds[n] = (struct pollfd){.fd = nodes->node[n].fd, .events = POLLIN};
}

void symmrun_nodes_serve(struct symmrun_nodes *nodes, const struct pollfd *fds)
{
    for (int n = 0; nodes && n < nodes->count; n++)
        if (fds[n].fd >= 0 && fds[n].revents && nodes->node[n].fd == fds[n].fd)
            hear(nodes, n);
}
