/* SPDX-License-Identifier: MIT */
/*
 * nodes.c - one job over several nodes: the symmrun of each node and that of node 0.
 *
 * rendezvous.c connects node 0 with all others, which have proved by then that they
 * know the job's secret. Node 0 then names the job. Later messages carry the blocks of the
 * ranks' store, and how a node's first rank has failed, which ends the job everywhere; each
 * has a keyed hash (siphash.h). A connection that ends in the middle of the job is a failure
 * of that node.
 */
#include "tools/symmrun/nodes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/siphash.h"
#include "tools/symmrun/rendezvous.h"

#define RENDEZVOUS_SECONDS 60.0
#define START_SECONDS      10.0 /* more, since node 0 may have begun to wait later */
#define PAYLOAD_MAX        (32u << 20)

enum message { START = 1, BLOCKS, ALL, FAILED, BYE, TAKE_BACK };

struct node_head { /* in network byte order */
    uint32_t magic, type, bytes, value;
    uint64_t
        hash; /* over this head (with 0 here), the number of the message, the bytes */
};

struct node_start {
    char id[33], port[16];
};

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

static bool tell(struct symmrun_nodes *nodes, struct symmrun_node *to,
                 enum message type, uint32_t value, const void *data, size_t bytes)
{
    struct node_head head = {.magic = htonl(SYMMRUN_NODES_MAGIC),
                             .type = htonl((uint32_t)type),
                             .bytes = htonl((uint32_t)bytes),
                             .value = htonl(value)};

    if (to->fd < 0)
        return false;
    head.hash = hash_of(to->key, to->sent++, nodes->own == 0, &head, data, bytes);
    return symmrun_send_bytes(to->fd, &head, sizeof(head)) &&
           (bytes == 0 || symmrun_send_bytes(to->fd, data, bytes));
}

static void tell_all(struct symmrun_nodes *nodes, enum message type, uint32_t value,
                     const void *data, size_t bytes)
{
    for (int n = 0; n < nodes->count; n++)
        (void)tell(nodes, &nodes->node[n], type, value, data, bytes);
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
    if (!symmrun_rendezvous_receive(nodes, nodes->node[0].fd, &head, sizeof(head),
                                    until) ||
        ntohl(head.bytes) != sizeof(start) ||
        !symmrun_rendezvous_receive(nodes, nodes->node[0].fd, &start, sizeof(start),
                                    until)) {
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

bool symmrun_nodes_join(struct symmrun *run, const uint8_t *secret)
{
    struct symmrun_nodes *nodes = calloc(1, sizeof(*nodes));
    double until = symmrun_now() + RENDEZVOUS_SECONDS;

    if (!nodes)
        return false;
    run->nodes = nodes;
    nodes->run = run;
    nodes->count = run->options.nodes;
    nodes->own = run->options.node;
    memcpy(nodes->secret, secret, sizeof(nodes->secret));
    nodes->node = calloc((size_t)nodes->count, sizeof(*nodes->node));
    if (!nodes->node)
        return false;
    for (int n = 0; n < nodes->count; n++)
        nodes->node[n].fd = -1;
    return symmrun_rendezvous(nodes, until) &&
           share_start(nodes, until + START_SECONDS);
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
        struct symmrun_node *node = &nodes->node[n];

        if (data && each)
            memcpy(data + (size_t)n * each, node->blocks, each);
        free(node->blocks);
        node->blocks = NULL;
    }
    if (!data)
        return; /* the ranks' deadline tells them */
    for (int n = 1; n < nodes->count; n++)
        (void)tell(nodes, &nodes->node[n], ALL, nodes->node[n].blocks_number, data,
                   all);
    symmrun_store_fulfil(nodes->run->store, nodes->node[0].blocks_number, data, all);
    free(data);
}

/* Node 0: the part of one node, itself included. */
static void take_blocks(struct symmrun_nodes *nodes, int index, uint32_t number,
                        const void *data, size_t bytes)
{
    struct symmrun_node *node = &nodes->node[index];

    free(node->blocks);
    node->blocks = malloc(bytes + 1);
    node->blocks_bytes = bytes;
    node->blocks_number = number;
    if (!node->blocks)
        return;
    memcpy(node->blocks, data, bytes);
    finish_blocks(nodes);
}

/* Node 0: that node's ranks have been told that the round is over. */
static void drop_blocks(struct symmrun_nodes *nodes, int index, uint32_t number)
{
    struct symmrun_node *node = &nodes->node[index];

    if (node->blocks_number != number)
        return;
    free(node->blocks);
    node->blocks = NULL;
}

void symmrun_nodes_blocks(struct symmrun_nodes *nodes, uint32_t number,
                          const void *data, size_t bytes)
{
    if (nodes->own == 0 && data)
        take_blocks(nodes, 0, number, data, bytes);
    else if (nodes->own == 0)
        drop_blocks(nodes, 0, number);
    else
        (void)tell(nodes, &nodes->node[0], data ? BLOCKS : TAKE_BACK, number, data,
                   bytes);
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
    struct symmrun_node *node = &nodes->node[index];

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
            take_blocks(nodes, index, value, data, bytes);
        break;
    case TAKE_BACK:
        if (nodes->own == 0)
            drop_blocks(nodes, index, value);
        break;
    case ALL:
        symmrun_store_fulfil(nodes->run->store, value, data, bytes);
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
    struct symmrun_node *node = &nodes->node[index];

    while (node->used >= sizeof(struct node_head)) {
        struct node_head head;
        size_t bytes;
        uint64_t hash;

        memcpy(&head, node->data, sizeof(head));
        bytes = ntohl(head.bytes);
        hash = head.hash;
        head.hash = 0;
        if (ntohl(head.magic) != SYMMRUN_NODES_MAGIC || bytes > PAYLOAD_MAX)
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
    struct symmrun_node *node = &nodes->node[index];
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
