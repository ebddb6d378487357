/* SPDX-License-Identifier: MIT */
/* message.c - see message.h. */
#include "relay/message.h"

#include <stdlib.h>
#include <string.h>

struct symm_relay_message *symm__relay_message(enum symm_relay_kind kind,
                                               uint64_t bytes)
{
    struct symm_relay_message *message;

    if (bytes > SYMM_RELAY_MOST)
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
