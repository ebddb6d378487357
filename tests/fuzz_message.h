/* SPDX-License-Identifier: MIT */
/*
 * fuzz_message.h - messages of relays (relay/message.h) from lines of a script, and the other end
 * of their connections.
 *
 * A line is the kind's name or number, fields of the head as tag=5, and data in the order in which
 * they stand: i:N an int32, q:N an int64, b:N and z:N so many bytes 'b' or 0, s:TEXT, p the padding
 * to eight bytes, r:PLACE:BYTES a record and its bytes,
 * R:PLACE:BYTES the record alone, a:FAMILY:PORT a host's address (without a
 * port: the one that the target gives).
 */
#ifndef SYMM_TESTS_FUZZ_MESSAGE_H
#define SYMM_TESTS_FUZZ_MESSAGE_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bootstrap/hosts.h"
#include "fuzz.h"
#include "net/auth.h"
#include "relay/link.h"

#define FUZZ_DATA 20000 /* bytes of a message's data at most */

struct fuzz_data {
    uint8_t bytes[FUZZ_DATA];
    size_t used;
};

static inline void fuzz_put(struct fuzz_data *data, const void *bytes, size_t count)
{
    if (count > sizeof(data->bytes) - data->used)
        return;
    memcpy(data->bytes + data->used, bytes, count);
    data->used += count;
}

static inline void fuzz_fill(struct fuzz_data *data, int byte, size_t count)
{
    if (count > sizeof(data->bytes) - data->used)
        return;
    memset(data->bytes + data->used, byte, count);
    data->used += count;
}

static inline void fuzz_put_address(struct fuzz_data *data, unsigned family, int port)
{
    struct symm_host_address place = {.family = (uint16_t)family,
                                      .port = htons((uint16_t)port)};
    const uint32_t here = htonl(INADDR_LOOPBACK);

    memcpy(place.address, &here, sizeof(here));
    snprintf(place.host.name, sizeof(place.host.name), "host");
    place.host.id = family;
    fuzz_put(data, &place, sizeof(place));
}

/* One word of data. */
static inline void fuzz_datum(struct fuzz_data *data, const char *word, int port)
{
    char *rest;
    long long first = word[0] && word[1] == ':' ? strtoll(word + 2, &rest, 0) : 0;
    long long second = word[0] && word[1] == ':' && *rest == ':'
                           ? strtoll(rest + 1, NULL, 0)
                           : (word[0] == 'a' ? port : 0);
    int32_t narrow = (int32_t)first;

    switch (word[0]) {
    case 'i':
        fuzz_put(data, &narrow, sizeof(narrow));
        break;
    case 'q':
        fuzz_put(data, &first, sizeof(first));
        break;
    case 'b':
    case 'z':
        fuzz_fill(data, word[0] == 'b' ? 'b' : 0, (size_t)first);
        break;
    case 's':
        fuzz_put(data, word + 2, word[1] == ':' ? strlen(word + 2) : 0);
        break;
    case 'p':
        fuzz_fill(data, 0, -data->used & 7);
        break;
    case 'R':
    case 'r': {
        struct symm_relay_record record = {.place = (uint32_t)first,
                                           .bytes = (uint64_t)second};

        fuzz_put(data, &record, sizeof(record));
        if (word[0] == 'r')
            fuzz_fill(data, 'r', (size_t)symm__relay_padded((uint64_t)second));
        break;
    }
    case 'a':
        fuzz_put_address(data, (unsigned)first, (int)second);
        break;
    default:
        break;
    }
}

static inline void fuzz_field(struct symm_relay_head *head, const char *word)
{
    const char *is = strchr(word, '=');
    size_t length = (size_t)(is - word);
    long long value = strtoll(is + 1, NULL, 0);

#define FUZZ_IS(name) (length == sizeof(name) - 1 && memcmp(word, name, length) == 0)
    if (FUZZ_IS("tag"))
        head->tag = (uint64_t)value;
    else if (FUZZ_IS("seq"))
        head->sequence = (uint32_t)value;
    else if (FUZZ_IS("from"))
        head->from = (int32_t)value;
    else if (FUZZ_IS("status"))
        head->status = (int32_t)value;
    else if (FUZZ_IS("rank"))
        head->rank = (int32_t)value;
    else if (FUZZ_IS("leaders"))
        head->leaders = (uint32_t)value;
    else if (FUZZ_IS("reached"))
        head->reached = (uint32_t)value;
    else if (FUZZ_IS("before"))
        head->before = (uint64_t)value;
    else if (FUZZ_IS("bytes"))
        head->bytes = (uint64_t)value;
    else if (FUZZ_IS("magic"))
        head->magic = (uint32_t)value;
    else if (FUZZ_IS("version"))
        head->version = (uint16_t)value;
    else if (FUZZ_IS("what"))
        snprintf(head->what, sizeof(head->what), "%s", is + 1);
#undef FUZZ_IS
}

static inline int fuzz_kind(const char *word)
{
    static const char *const names[] = {"",     "PART",   "UP",   "ALL",    "HAVE",
                                        "GO",   "GIVEUP", "FAIL", "NOTICE", "DEAD",
                                        "GONE", "LEAVE",  "JOIN", "PLACE",  "TABLE"};

    for (size_t i = 1; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(word, names[i]) == 0)
            return (int)i;
    return (int)strtol(word, NULL, 0);
}

/* The head and data of the rest of a line that begins with `kind`. `bytes` of the head is that
 * of the data unless the line says otherwise. */
static inline void fuzz_read_message(struct fuzz_line *line, const char *kind, int port,
                                     struct symm_relay_head *head,
                                     struct fuzz_data *data)
{
    const uint64_t unsaid = UINT64_MAX;
    char word[80];

    *head = (struct symm_relay_head){.magic = SYMM_RELAY_MAGIC,
                                     .version = SYMM_RELAY_VERSION,
                                     .kind = (uint16_t)fuzz_kind(kind),
                                     .bytes = unsaid};
    data->used = 0;
    for (;;) {
        fuzz_word(line, word, sizeof(word));
        if (!word[0])
            break;
        if (strchr(word, '='))
            fuzz_field(head, word);
        else
            fuzz_datum(data, word, port);
    }
    if (head->bytes == unsaid)
        head->bytes = data->used;
}

/* A message as it comes from a link, which has checked kind and size: NULL if it would not. */
static inline struct symm_relay_message *fuzz_message(struct fuzz_line *line,
                                                      const char *kind, int port)
{
    static struct fuzz_data data;
    struct symm_relay_head head;
    struct symm_relay_message *message;

    fuzz_read_message(line, kind, port, &head, &data);
    if (head.kind < SYMM_RELAY_PART || head.kind >= SYMM_RELAY_KINDS)
        return NULL;
    message = symm__relay_message(head.kind, data.used);
    if (!message)
        abort();
    head.magic = SYMM_RELAY_MAGIC;
    head.version = SYMM_RELAY_VERSION;
    head.bytes = data.used;
    message->head = head;
    memcpy(message->data, data.bytes, data.used);
    return message;
}

/* ---- The other end ------------------------------------------------------------------- */

struct fuzz_peer {
    int fd; /* -1: none */
    bool open;
    struct symm_auth auth;
    struct symm_relay_link link;
};

static inline bool fuzz_ready(int fd, short events, int milliseconds)
{
    struct pollfd poll_of = {.fd = fd, .events = events};

    return poll(&poll_of, 1, milliseconds) == 1;
}

/* Proves itself on peer->fd, from either side; then the link is open. */
static inline bool fuzz_prove(struct fuzz_peer *peer,
                              const struct symm_auth_protocol *protocol, bool accepts,
                              uint32_t from)
{
    uint8_t key[SYMM_SIPHASH_KEY];

    peer->auth = (struct symm_auth){.stage = SYMM_AUTH_HANDSHAKE};
    if (!accepts && !symm__auth_ask(protocol, &peer->auth, peer->fd, from, 0))
        return false;
    for (;;) {
        switch (symm__auth_hear(protocol, &peer->auth, peer->fd)) {
        case SYMM_AUTH_WAIT:
            if (!fuzz_ready(peer->fd, POLLIN, 500))
                return false;
            break;
        case SYMM_AUTH_ASKED:
            if (!symm__auth_answer(protocol, &peer->auth, peer->fd, 0, 0))
                return false;
            break;
        case SYMM_AUTH_DONE:
            symm__auth_key(protocol, &peer->auth, key);
            peer->open = symm__relay_link_open(&peer->link, peer->fd, key, !accepts);
            return peer->open;
        default:
            return false;
        }
    }
}

static inline void fuzz_send(struct fuzz_peer *peer, struct symm_relay_message *message)
{
    if (peer->open && message && symm__relay_link_send(&peer->link, message))
        while (symm__relay_link_flush(&peer->link) == SYMM_SEQPACKET_AGAIN &&
               fuzz_ready(peer->fd, POLLOUT, 100))
            ;
    symm__relay_drop(message);
}

/* Reads until the other end hangs up, or says nothing for so long. */
static inline void fuzz_drain(const struct fuzz_peer *peer, int milliseconds)
{
    char bytes[4096];

    while (fuzz_ready(peer->fd, POLLIN, milliseconds) &&
           recv(peer->fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
        ;
}

/* What was sent is read by the other end: a close with unread bytes would take it from it. */
static inline void fuzz_hang_up(struct fuzz_peer *peer, int milliseconds)
{
    if (peer->fd < 0)
        return;
    (void)shutdown(peer->fd, SHUT_WR);
    fuzz_drain(peer, milliseconds);
    symm__relay_link_close(&peer->link);
    close(peer->fd);
    *peer = (struct fuzz_peer){.fd = -1};
}

/* The connection breaks, with what is under way in it. */
static inline void fuzz_reset(struct fuzz_peer *peer)
{
    const struct linger none = {.l_onoff = 1};

    if (peer->fd < 0)
        return;
    (void)setsockopt(peer->fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
    symm__relay_link_close(&peer->link);
    close(peer->fd);
    *peer = (struct fuzz_peer){.fd = -1};
}

#endif
