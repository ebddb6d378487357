/* SPDX-License-Identifier: MIT */
/*
 * protocol.c - see protocol.h.
 */
#include "bootstrap/protocol.h"

#include "util/status.h"
#include "util/text.h"

struct symm_meet_message symm__meet_message(enum symm_meet_kind kind,
                                            const struct symm_meeting *meeting,
                                            int rank, uint64_t nonce)
{
    struct symm_meet_message message = {
        .magic = SYMM_MEET_MAGIC,
        .protocol = SYMM_MEET_PROTOCOL,
        .kind = (uint16_t)kind,
        .library = SYMM_MEET_LIBRARY,
        .rank = rank,
        .size = meeting->size,
        .nonce = nonce,
    };
    return message;
}

bool symm__meet_message_check(struct symm_meet_message *message, size_t bytes)
{
    if (bytes != sizeof(*message) || message->magic != SYMM_MEET_MAGIC)
        return false;
    (void)symm__printable(message->text, sizeof(message->text));
    return message->kind >= SYMM_MEET_HELLO && message->kind <= SYMM_MEET_ABORT;
}
