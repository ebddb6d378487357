/* SPDX-License-Identifier: MIT */
/*
 * protocol.c - see protocol.h.
 */
#include "bootstrap/protocol.h"

#include "util/status.h"
#include "util/text.h"

struct symm_bootstrap_message
symm__bootstrap_message(enum symm_bootstrap_kind kind,
                        const struct symm_bootstrap_run *run, int rank, uint64_t nonce)
{
    struct symm_bootstrap_message message = {
        .magic = SYMM_BOOTSTRAP_MAGIC,
        .protocol = SYMM_BOOTSTRAP_PROTOCOL,
        .kind = (uint16_t)kind,
        .library = SYMM_BOOTSTRAP_LIBRARY,
        .rank = rank,
        .size = run->size,
        .nonce = nonce,
    };
    return message;
}

bool symm__bootstrap_message_check(struct symm_bootstrap_message *message, size_t bytes)
{
    if (bytes != sizeof(*message) || message->magic != SYMM_BOOTSTRAP_MAGIC)
        return false;
    (void)symm__printable(message->text, sizeof(message->text));
    return message->kind >= SYMM_BOOTSTRAP_HELLO &&
           message->kind <= SYMM_BOOTSTRAP_ABORT;
}
