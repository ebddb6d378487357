/* SPDX-License-Identifier: MIT */
/*
 * nodes.c - one job over several nodes: the symmrun of each node and that of node 0.
 *
 * rendezvous.c connects node 0 with all others, which have proved by then that they
 * know the job's secret. Node 0 then names the job. Later messages carry the blocks of the
 * ranks' store, and how a node's first rank has failed, which ends the job everywhere. A
 * message is one or more packets (net/tcp.h), the first of which begins with its head. A
 * connection that ends in the middle of the job is a failure of that node.
 */
#include "tools/symmrun/symmrun.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/symmrun/rendezvous.h"

#define RENDEZVOUS_SECONDS 60.0
#define START_SECONDS      10.0 /* more, since node 0 may have begun to wait later */
#define SEND_SECONDS       5.0  /* for a packet to go */
#define PAYLOAD_MAX        (32u << 20)

static void hear(struct symmrun_nodes *nodes, int index);

enum message { START = 1, BLOCKS, ALL, FAILED, BYE, TAKE_BACK };

struct node_start {
    char id[33], port[16];
};

static bool tell(struct symmrun_node *to, enum message type, uint32_t value,
                 const void *data, size_t bytes)
{
    const struct symmrun_node_head head = {.type = htonl((uint32_t)type),
                                           .bytes = htonl((uint32_t)bytes),
                                           .value = htonl(value)};
    struct iovec parts[2] = {symm__seqpacket_part(&head, sizeof(head))};
    size_t room = SYMM_TCP_PACKET - sizeof(head);
    const unsigned char *at = data;
    enum symm_seqpacket wire;
    int first = 0;

    if (to->fd < 0)
        return false;
    do {
        size_t part = bytes < room ? bytes : room;

        parts[1] = symm__seqpacket_part(at, part);
        wire = symm__tcp_send(to->tcp, parts + first, 2 - first,
                              symm__now() + SEND_SECONDS);
        at = part > 0 ? at + part : at; /* NULL: no data */
        bytes -= part;
        first = 1;
        room = SYMM_TCP_PACKET;
    } while (wire == SYMM_SEQPACKET_OK && bytes > 0);
    while (wire == SYMM_SEQPACKET_OK && symm__tcp_owes(to->tcp)) {
        wire = symm__seqpacket_wait(to->fd, POLLOUT, symm__now() + SEND_SECONDS);
        if (wire == SYMM_SEQPACKET_OK &&
            symm__tcp_flush(to->tcp) == SYMM_SEQPACKET_CLOSED)
            wire = SYMM_SEQPACKET_CLOSED;
    }
    return wire == SYMM_SEQPACKET_OK;
}

static void tell_all(struct symmrun_nodes *nodes, enum message type, uint32_t value,
                     const void *data, size_t bytes)
{
    for (int n = 0; n < nodes->count; n++)
        (void)tell(&nodes->node[n], type, value, data, bytes);
}

/* ---- The start ---------------------------------------------------------------------- */

/* This node's address on that connection, by which ranks of other nodes reach this node's
 * ranks. */
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

    if (nodes->own == 0) {
        memcpy(start.id, job->id, sizeof(start.id));
        memcpy(start.port, job->port, sizeof(start.port));
        tell_all(nodes, START, 0, &start, sizeof(start));
        own_address(job, nodes->node[1].fd);
        nodes->started = true;
        return true;
    }
    own_address(job, nodes->node[0].fd);
    while (!nodes->started && nodes->node[0].fd >= 0 &&
           symmrun_rendezvous_wait(nodes, nodes->node[0].fd, POLLIN, until))
        hear(nodes, 0);
    if (!nodes->started)
        symmrun_say(nodes->run,
                    "node 0 at %s hung up, and says why: other nodes did not come, or "
                    "--nnodes, -n and --node-rank do not fit its own",
                    nodes->run->options.rendezvous);
    return nodes->started;
}

bool symmrun_nodes_join(struct symmrun *run, const uint8_t *secret)
{
    struct symmrun_nodes *nodes = calloc(1, sizeof(*nodes));
    double until = symm__now() + RENDEZVOUS_SECONDS;

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
        symm__tcp_destroy(nodes->node[n].tcp);
        free(nodes->node[n].data);
        free(nodes->node[n].blocks);
    }
    free(nodes->node);
    free(nodes);
}

/* ---- The job ------------------------------------------------------------------------ */

/* Node 0: once the blocks of all nodes are there, sends all to every node. */
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
        return; /* the ranks find out by their deadline */
    for (int n = 1; n < nodes->count; n++)
        (void)tell(&nodes->node[n], ALL, nodes->node[n].blocks_number, data, all);
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

/* Node 0: that node has ended the round, so its blocks belong to no round. */
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
        (void)tell(&nodes->node[0], data ? BLOCKS : TAKE_BACK, number, data, bytes);
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
    if (!node->bye && !nodes->over && nodes->started)
        node_failed(nodes, index, 1);
}

/* Node 0 has named the job. */
static void take_start(struct symmrun_nodes *nodes, const void *data, size_t bytes)
{
    struct symmrun_job *job = &nodes->run->job;
    struct node_start start;

    if (nodes->started || nodes->own == 0 || bytes != sizeof(start))
        return;
    memcpy(&start, data, sizeof(start));
    start.id[32] = start.port[15] = '\0';
    memcpy(job->id, start.id, sizeof(job->id));
    memcpy(job->port, start.port, sizeof(job->port));
    nodes->started = true;
}

/* Takes another node's report of a node that failed: a node of the job, with a status other than
 * success. */
static void take_failed(struct symmrun_nodes *nodes, int index, uint32_t value)
{
    int node = (int)(value & 0xffff), status = (int)(value >> 16);

    if (!nodes->over)
        node_failed(nodes, node < nodes->count ? node : index, status > 0 ? status : 1);
}

/* Handles a message that has arrived whole. */
static void obey(struct symmrun_nodes *nodes, int index)
{
    const struct symmrun_node_head *head = &nodes->node[index].head;
    const void *data = nodes->node[index].data;
    const size_t bytes = nodes->node[index].used;
    uint32_t value = ntohl(head->value);

    if (!nodes->started && ntohl(head->type) != START)
        return;
    switch (ntohl(head->type)) {
    case START:
        take_start(nodes, data, bytes);
        break;
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
        take_failed(nodes, index, value);
        break;
    case BYE:
        nodes->node[index].bye = true;
        break;
    default:
        break;
    }
}

/* Handles a received packet. False: it belongs to no message. */
static bool take_packet(struct symmrun_nodes *nodes, int index,
                        const unsigned char *packet, size_t bytes)
{
    struct symmrun_node *node = &nodes->node[index];

    if (!node->data) {
        if (bytes < sizeof(node->head))
            return false;
        memcpy(&node->head, packet, sizeof(node->head));
        packet += sizeof(node->head);
        bytes -= sizeof(node->head);
        if (ntohl(node->head.bytes) > PAYLOAD_MAX)
            return false;
        node->data = malloc(ntohl(node->head.bytes) + 1);
        node->used = 0;
    }
    if (!node->data || bytes > ntohl(node->head.bytes) - node->used)
        return false;
    memcpy(node->data + node->used, packet, bytes);
    node->used += bytes;
    if (node->used == ntohl(node->head.bytes)) {
        obey(nodes, index);
        free(node->data);
        node->data = NULL;
    }
    return true;
}

static void hear(struct symmrun_nodes *nodes, int index)
{
    unsigned char packet[SYMM_TCP_PACKET];
    struct iovec part = {packet, sizeof(packet)};
    enum symm_seqpacket wire = SYMM_SEQPACKET_OK;
    size_t bytes;

    while (wire == SYMM_SEQPACKET_OK) {
        wire = symm__tcp_recv(nodes->node[index].tcp, &part, 1, &bytes);
        if (wire == SYMM_SEQPACKET_OK && !take_packet(nodes, index, packet, bytes))
            wire = SYMM_SEQPACKET_CUT;
    }
    if (wire != SYMM_SEQPACKET_AGAIN)
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
