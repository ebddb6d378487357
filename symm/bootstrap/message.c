/* SPDX-License-Identifier: MIT */
/* message.c - packets of a bootstrap by key: made, sent, received and checked; ranks in errors. */
#include <stdio.h>
#include <string.h>

#include "bootstrap/bootstrap.h"
#include "util/rank_text.h"
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

/* Is the job's rank at the place known? Where places are ranks, it is. */
static bool is_known(const struct symm_bootstrap_run *run, int place)
{
    return run->ranks == NULL || run->ranks[place] >= 0;
}

int symm__bootstrap_rank(const struct symm_bootstrap_run *run, int place)
{
    return run->ranks != NULL && is_known(run, place) ? run->ranks[place] : place;
}

void symm__bootstrap_learn(const struct symm_bootstrap_run *run, int place,
                           int32_t rank)
{
    if (!is_known(run, place) && rank >= 0 && rank < SYMM_RANKS_MAX)
        run->ranks[place] = rank;
}

const char *symm__bootstrap_name(const struct symm_bootstrap_run *run, int place,
                                 char *text)
{
    (void)snprintf(text, SYMM_BOOTSTRAP_WHO_BYTES, "%srank %d",
                   is_known(run, place) ? "" : "local ",
                   symm__bootstrap_rank(run, place));
    return text;
}

void symm__bootstrap_names(const struct symm_bootstrap_run *run, int *places, int count,
                           char *text, size_t bytes)
{
    bool known = true;
    int used = 0;
    for (int i = 0; i < count; i++)
        known = known && is_known(run, places[i]);
    for (int i = 0; known && i < count; i++)
        places[i] = symm__bootstrap_rank(run, places[i]);
    if (!known)
        used = snprintf(text, bytes, "local ");
    symm__ranks_text(places, count, text + used, bytes - (size_t)used);
}

enum symm_seqpacket symm__bootstrap_send(int fd,
                                         const struct symm_bootstrap_message *message,
                                         const int *fds, int fds_count, double until)
{
    struct iovec part = symm__seqpacket_part(message, sizeof(*message));
    return symm__seqpacket_send(fd, &part, 1, fds, fds_count, until);
}

enum symm_seqpacket symm__bootstrap_recv(int fd, struct symm_bootstrap_message *message,
                                         int *fds, int fds_max, int *fds_count,
                                         double until)
{
    struct iovec part = {.iov_base = message, .iov_len = sizeof(*message)};
    size_t bytes;
    memset(message, 0, sizeof(*message));
    enum symm_seqpacket wire =
        symm__seqpacket_recv(fd, &part, 1, &bytes, fds, fds_max, fds_count, until);
    if (message->kind != SYMM_BOOTSTRAP_GO)
        (void)symm__printable(message->text, sizeof(message->text));
    if (wire != SYMM_SEQPACKET_OK ||
        (bytes == sizeof(*message) && message->magic == SYMM_BOOTSTRAP_MAGIC &&
         message->kind >= SYMM_BOOTSTRAP_HELLO &&
         message->kind <= SYMM_BOOTSTRAP_ABORT))
        return wire;
    symm__seqpacket_close(fds, *fds_count);
    return SYMM_SEQPACKET_CUT;
}
