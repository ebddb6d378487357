/* SPDX-License-Identifier: MIT */
/* link.c - see link.h. */
#include "relay/link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK ((uint64_t)32 << 10) /* bytes of data in a packet */
#define FIRST ((uint64_t)64 << 10) /* bytes of room that a head gets */

static_assert(CHUNK + sizeof(struct symm_relay_head) <= SYMM_TCP_PACKET,
              "a head and its data are a packet");

bool symm__relay_link_open(struct symm_relay_link *link, int fd, const uint8_t *key,
                           bool higher)
{
    *link = (struct symm_relay_link){.tcp = symm__tcp_create(fd, key, higher)};
    return link->tcp != NULL;
}

static void drop_first(struct symm_relay_link *link)
{
    struct symm_relay_queued *first = link->first;

    link->first = first->next;
    if (!link->first)
        link->last = NULL;
    link->sent = 0;
    link->begun = false;
    symm__relay_drop(first->message);
    free(first);
}

void symm__relay_link_close(struct symm_relay_link *link)
{
    while (link->first)
        drop_first(link);
    symm__relay_drop(link->in);
    symm__tcp_destroy(link->tcp);
    *link = (struct symm_relay_link){0};
}

bool symm__relay_link_send(struct symm_relay_link *link,
                           struct symm_relay_message *message)
{
    struct symm_relay_queued *queued = malloc(sizeof(*queued));

    if (!queued)
        return false;
    *queued = (struct symm_relay_queued){.message = symm__relay_keep(message)};
    if (link->last)
        link->last->next = queued;
    else
        link->first = queued;
    link->last = queued;
    return true;
}

bool symm__relay_link_owes(const struct symm_relay_link *link)
{
    return link->first || symm__tcp_owes(link->tcp);
}

enum symm_seqpacket symm__relay_link_flush(struct symm_relay_link *link)
{
    while (link->first) {
        const struct symm_relay_message *message = link->first->message;
        uint64_t bytes = message->head.bytes - link->sent;
        struct iovec parts[2];
        int count = 0;
        enum symm_seqpacket wire;

        bytes = bytes < CHUNK ? bytes : CHUNK;
        if (!link->begun)
            parts[count++] =
                symm__seqpacket_part(&message->head, sizeof(message->head));
        if (bytes > 0)
            parts[count++] =
                symm__seqpacket_part(message->data + link->sent, (size_t)bytes);
        wire = symm__tcp_send(link->tcp, parts, count, 0);
        if (wire != SYMM_SEQPACKET_OK)
            return wire;
        link->begun = true;
        link->sent += bytes;
        if (link->sent == message->head.bytes)
            drop_first(link);
    }
    return symm__tcp_flush(link->tcp);
}

/* Is this a head that a relay of this library sends? */
static bool is_head(const struct symm_relay_head *head)
{
    return head->magic == SYMM_RELAY_MAGIC && head->version == SYMM_RELAY_VERSION &&
           head->kind >= SYMM_RELAY_PART && head->kind < SYMM_RELAY_KINDS &&
           head->bytes <= symm__relay_most(head->kind);
}

/* Room for the next packet's data: twice as much as before, where it does not suffice. */
static bool make_room(struct symm_relay_link *link, uint64_t bytes)
{
    uint64_t room = link->room > 0 ? 2 * link->room : FIRST;
    struct symm_relay_message *grown;

    if (link->in && (link->room == bytes || link->room - link->got >= SYMM_TCP_PACKET))
        return true;
    room = room < bytes ? room : bytes;
    grown = symm__relay_grow(link->in, room);
    if (!grown) {
        errno = ENOMEM;
        return false;
    }
    link->in = grown;
    link->room = room;
    return true;
}

/* The first packet of a message. */
static enum symm_seqpacket begin(struct symm_relay_link *link,
                                 const struct symm_relay_head *head)
{
    if (!is_head(head))
        return SYMM_SEQPACKET_CUT;
    link->got = link->room = 0;
    if (!make_room(link, head->bytes))
        return SYMM_SEQPACKET_ERROR;
    link->in->head = *head;
    link->in->head.what[SYMM_RELAY_WHAT - 1] = '\0';
    return SYMM_SEQPACKET_OK;
}

enum symm_seqpacket symm__relay_link_recv(struct symm_relay_link *link,
                                          struct symm_relay_message **message)
{
    do {
        struct symm_relay_head head;
        struct iovec parts[2];
        size_t bytes = 0;
        uint64_t left;
        int count = 0;
        enum symm_seqpacket wire;

        if (!link->in) {
            wire = symm__tcp_peek(link->tcp, &head, sizeof(head), &bytes);
            if (wire == SYMM_SEQPACKET_OK)
                wire = bytes == sizeof(head) ? begin(link, &head) : SYMM_SEQPACKET_CUT;
            if (wire != SYMM_SEQPACKET_OK)
                return wire;
            parts[count++] = (struct iovec){.iov_base = &head, .iov_len = sizeof(head)};
        }
        if (!make_room(link, link->in->head.bytes))
            return SYMM_SEQPACKET_ERROR;
        left = link->room - link->got;
        parts[count++] = (struct iovec){.iov_base = link->in->data + link->got,
                                        .iov_len = (size_t)left};
        wire = symm__tcp_recv(link->tcp, parts, count, &bytes);
        if (wire != SYMM_SEQPACKET_OK)
            return wire;
        bytes -= count == 2 ? sizeof(head) : 0;
        if (bytes == 0 && left > 0)
            return SYMM_SEQPACKET_CUT;
        link->got += bytes;
    } while (link->got < link->in->head.bytes);
    *message = link->in;
    link->in = NULL;
    return SYMM_SEQPACKET_OK;
}
