/* SPDX-License-Identifier: MIT */
/* message.c - see message.h. */
#include "relay/message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/text.h"

uint64_t symm__relay_most(enum symm_relay_kind kind)
{
    const uint64_t list = (uint64_t)4 << 20; /* of leaders */

    switch (kind) {
    case SYMM_RELAY_PART:
    case SYMM_RELAY_UP:
    case SYMM_RELAY_ALL:
        return SYMM_RELAY_MOST;
    case SYMM_RELAY_TABLE:
        return (uint64_t)256 << 20; /* an entry has some 100 bytes */
    case SYMM_RELAY_CELL:
        return 4 * list;
    case SYMM_RELAY_HAVE:
    case SYMM_RELAY_GO:
    case SYMM_RELAY_GIVE_UP:
    case SYMM_RELAY_FAIL:
        return list + SYMM_ERROR_BYTES;
    default:
        return (uint64_t)64 << 10; /* a sentence, the entries of a host */
    }
}

struct symm_relay_message *symm__relay_message(enum symm_relay_kind kind,
                                               uint64_t bytes)
{
    struct symm_relay_message *message;

    if (bytes > symm__relay_most(kind))
        return NULL;
    message = malloc(sizeof(*message) + (size_t)bytes);
    if (!message)
        return NULL;
    memset(message, 0, sizeof(*message));
    message->references = 1;
    message->head.magic = SYMM_RELAY_MAGIC;
    message->head.version = SYMM_RELAY_VERSION;
    message->head.kind = (uint16_t)kind;
    message->head.bytes = bytes;
    return message;
}

struct symm_relay_message *symm__relay_grow(struct symm_relay_message *message,
                                            uint64_t room)
{
    struct symm_relay_message *grown =
        realloc(message, sizeof(*message) + (size_t)room);

    if (grown && !message) {
        memset(grown, 0, sizeof(*grown));
        grown->references = 1;
    }
    return grown;
}

struct symm_relay_message *symm__relay_step(enum symm_relay_kind kind, uint64_t tag,
                                            uint32_t sequence)
{
    struct symm_relay_message *message = symm__relay_message(kind, 0);

    if (!message)
        return NULL;
    message->head.tag = tag;
    message->head.sequence = sequence;
    return message;
}

struct symm_relay_message *symm__relay_listed(enum symm_relay_kind kind, uint64_t tag,
                                              uint32_t sequence, const int32_t *leaders,
                                              int count, uint64_t more)
{
    const uint64_t list = symm__relay_list_bytes((uint64_t)count);
    struct symm_relay_message *message = symm__relay_message(kind, list + more);

    if (!message)
        return NULL;
    memset(message->data, 0, (size_t)list);
    memcpy(message->data, leaders, (size_t)count * sizeof(*leaders));
    message->head.tag = tag;
    message->head.sequence = sequence;
    message->head.leaders = (uint32_t)count;
    return message;
}

void symm__relay_sentence(const struct symm_relay_message *message,
                          char text[SYMM_ERROR_BYTES])
{
    const uint64_t list = symm__relay_list_bytes(message->head.leaders);
    uint64_t bytes = list < message->head.bytes ? message->head.bytes - list : 0;

    bytes = bytes < SYMM_ERROR_BYTES - 1 ? bytes : SYMM_ERROR_BYTES - 1;
    if (bytes > 0)
        memcpy(text, message->data + list, (size_t)bytes);
    text[bytes] = '\0';
    (void)symm__printable(text, SYMM_ERROR_BYTES);
    if (text[0] == '\0')
        snprintf(text, SYMM_ERROR_BYTES, "a rank of another host gave no reason");
}

bool symm__same_step(const char *a, const char *b)
{
    size_t length = strcspn(a, "(");

    return length == strcspn(b, "(") && strncmp(a, b, length) == 0;
}

struct symm_relay_message *symm__relay_keep(struct symm_relay_message *message)
{
    __atomic_fetch_add(&message->references, 1, __ATOMIC_RELAXED);
    return message;
}

void symm__relay_drop(struct symm_relay_message *message)
{
    /* acq_rel: the last holder frees what the others have read */
    if (message && __atomic_fetch_sub(&message->references, 1, __ATOMIC_ACQ_REL) == 1)
        free(message);
}
