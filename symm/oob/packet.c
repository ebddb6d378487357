/* SPDX-License-Identifier: MIT */
/*
 * packet.c - see oob.h and packet.h.
 */
#include "oob/packet.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "util/hash.h"
#include "util/status.h"
#include "util/text.h"

void symm__oob_init(struct symm_oob *oob, int rank, int size, int *peer_fd)
{
    *oob = (struct symm_oob){.rank = rank, .size = size, .peer_fd = peer_fd};
}

void symm__oob_finish(struct symm_oob *oob)
{
    symm__relay_close(oob->relay); /* it watches the sockets that are closed here */
    oob->relay = NULL;
    if (oob->peer_fd != NULL)
        symm__seqpacket_close(oob->peer_fd, oob->size);
    free(oob->peer_fd);
    oob->peer_fd = NULL;
    free(oob->room);
    oob->room = NULL;
    for (int p = 0; p < SYMM_OOB_MAX; p++) {
        free(oob->missed[p]);
        oob->missed[p] = NULL;
    }
}

void symm__oob_messages_finish(struct symm_oob_message *messages, int count)
{
    for (int i = 0; i < count; i++) {
        free(messages[i].bytes);
        if (messages[i].fds != NULL)
            symm__seqpacket_close(messages[i].fds, messages[i].fds_count);
        free(messages[i].fds);
        messages[i] = (struct symm_oob_message){0};
    }
}

bool symm__oob_left(const struct symm_oob *oob, int rank)
{
    if (symm__oob_is_far(oob, rank))
        return symm__relay_state(oob->relay, rank) == SYMM_RELAY_FINALIZED;
    return oob->finished != NULL && oob->finished(oob->alive_arg, rank);
}

const char *symm__oob_earlier(const struct symm_oob *oob, int rank,
                              char text[SYMM_EARLIER_TEXT_BYTES])
{
    return oob->earlier == NULL ? "" : oob->earlier(oob->alive_arg, rank, text);
}

bool symm__oob_died(const struct symm_oob *oob, int rank)
{
    return symm__oob_is_far(oob, rank) &&
           symm__relay_state(oob->relay, rank) == SYMM_RELAY_DIED;
}

void symm__oob_notify(struct symm_oob *oob, uint64_t tag, symm_status status,
                      const char *sentence)
{
    if (oob->relay != NULL)
        symm__relay_notify(oob->relay, tag, status, sentence);
}

bool symm__oob_reported(struct symm_oob *oob, uint64_t tag,
                        struct symm_relay_report *report)
{
    return oob->relay != NULL && symm__relay_reported(oob->relay, tag, report);
}

void symm__oob_wait_closed(const struct symm_oob *oob, int rank, double seconds)
{
    struct pollfd poll_fd = {.fd = oob->peer_fd[rank]}; /* for POLLHUP alone */

    if (poll_fd.fd >= 0)
        (void)poll(&poll_fd, 1, (int)(seconds * 1000));
}

/* An exchange's place among the tags of reports. */
static uint64_t lost_tag(uint64_t tag, uint32_t sequence)
{
    return SYMM_OOB_HAND_ON | symm__mix(tag + symm__spread(sequence));
}

void symm__oob_lose(struct symm_oob *oob, uint64_t tag, uint32_t sequence,
                    symm_status status, const char *sentence)
{
    symm__oob_notify(oob, lost_tag(tag, sequence), status, sentence);
}

symm_status symm__oob_lost(struct symm_oob *oob, uint64_t before, uint32_t sequence)
{
    struct symm_relay_report told;

    if (before == 0 || !symm__oob_reported(oob, lost_tag(before, sequence), &told))
        return SYMM_OK;
    return symm__fail_quiet(told.status, told.sentence);
}

/* ---- Packets ----------------------------------------------------------------------- */

enum symm_seqpacket symm__oob_out(const struct symm_oob *oob, int rank,
                                  const struct iovec *parts, int parts_count,
                                  const int *fds, int fds_count, double until)
{
    return symm__seqpacket_send(oob->peer_fd[rank], parts, parts_count, fds, fds_count,
                                until);
}

enum symm_seqpacket symm__oob_in(const struct symm_oob *oob, int rank,
                                 const struct iovec *parts, int parts_count,
                                 size_t *bytes, int *fds, int *fds_count)
{
    return symm__seqpacket_recv(oob->peer_fd[rank], parts, parts_count, bytes, fds,
                                SYMM_SEQPACKET_MAX_FDS, fds_count, 0);
}

enum symm_seqpacket symm__oob_peek(const struct symm_oob *oob, int rank,
                                   struct symm_oob_head *head, size_t *bytes)
{
    return symm__seqpacket_peek(oob->peer_fd[rank], head, sizeof(*head), bytes);
}

bool symm__oob_peek_part(const struct symm_oob *oob, int rank, uint64_t tag,
                         uint32_t sequence, void *bytes, size_t count)
{
    struct {
        struct symm_oob_head head;
        char part[64];
    } packet;
    size_t came;

    assert(count <= sizeof(packet.part));
    if (symm__seqpacket_peek(oob->peer_fd[rank], &packet, sizeof(packet), &came) !=
            SYMM_SEQPACKET_OK ||
        came < sizeof(packet.head) + count || packet.head.magic != SYMM_OOB_MAGIC ||
        packet.head.kind != SYMM_OOB_DATA || packet.head.tag != tag ||
        packet.head.sequence != sequence || packet.head.status != SYMM_OK)
        return false;
    memcpy(bytes, packet.part, count);
    return true;
}

bool symm__oob_head_check(struct symm_oob_head *head, int rank, size_t bytes,
                          int fds_count)
{
    (void)symm__printable(head->what, sizeof(head->what));
    return bytes >= sizeof(*head) && head->magic == SYMM_OOB_MAGIC &&
           head->version == SYMM_OOB_VERSION && head->rank == rank &&
           head->kind >= SYMM_OOB_DATA && head->kind <= SYMM_OOB_AGAIN &&
           head->bytes_here == bytes - sizeof(*head) &&
           head->fds_here == (uint32_t)fds_count;
}

symm_status symm__oob_miss(struct symm_oob *oob, const struct symm_oob_head *head,
                           const char *sentence)
{
    struct symm_oob_missed **missed = &oob->missed[symm__oob_place(oob, head->rank)];
    size_t bytes = head->bytes_here;

    if (*missed == NULL)
        *missed = malloc(sizeof(**missed));
    if (*missed == NULL)
        return symm__fail(SYMM_ERR_NOMEM,
                          "rank %d has no memory to remember that rank %d is in %s",
                          oob->rank, head->rank, head->what);
    if (sentence == NULL)
        bytes = 0;
    bytes = bytes < SYMM_OOB_SENTENCE ? bytes : SYMM_OOB_SENTENCE;
    (*missed)->head = *head;
    (*missed)->head.bytes_here = (uint32_t)bytes;
    if (bytes > 0)
        memcpy((*missed)->sentence, sentence, bytes);
    return SYMM_OK;
}

struct symm_oob_missed *symm__oob_missed(const struct symm_oob *oob, int rank)
{
    return oob->missed[symm__oob_place(oob, rank)];
}

/* Is it of a part for that exchange, or for a later one of its tag? */
static bool is_part_of(const struct symm_oob_head *head, int rank, uint64_t tag,
                       uint32_t sequence)
{
    return head->magic == SYMM_OOB_MAGIC && head->version == SYMM_OOB_VERSION &&
           head->kind == SYMM_OOB_DATA && head->rank == rank && head->tag == tag &&
           (int32_t)(head->sequence - sequence) >= 0;
}

bool symm__oob_begun(const struct symm_oob *oob, int rank, uint64_t tag,
                     uint32_t sequence, char what[64])
{
    const struct symm_oob_missed *missed = symm__oob_missed(oob, rank);
    struct symm_oob_head head = {0};
    size_t bytes;

    if (missed != NULL)
        head = missed->head;
    if (!is_part_of(&head, rank, tag, sequence) &&
        (oob->peer_fd == NULL || oob->peer_fd[rank] < 0 ||
         symm__oob_peek(oob, rank, &head, &bytes) != SYMM_SEQPACKET_OK ||
         bytes < sizeof(head) || !is_part_of(&head, rank, tag, sequence)))
        return false;
    (void)symm__printable(head.what, sizeof(head.what));
    memcpy(what, head.what, sizeof(head.what));
    return true;
}

void symm__oob_missed_drop(struct symm_oob *oob, int rank)
{
    struct symm_oob_missed **missed = &oob->missed[symm__oob_place(oob, rank)];

    free(*missed);
    *missed = NULL;
}
