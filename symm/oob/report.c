/* SPDX-License-Identifier: MIT */
/*
 * report.c - see report.h.
 */
#include "oob/report.h"

#include <string.h>

#include "oob/packet.h"
#include "util/rank_text.h"
#include "util/status.h"
#include "util/text.h"

#define OOB_LEAVING UINT64_MAX /* tag of a NOTICE that is of no team */

const struct symm_oob_report *symm__oob_reported(const struct symm_oob *oob,
                                                 uint64_t tag)
{
    for (unsigned i = 0; i < SYMM_OOB_REPORTS && i < oob->notice_count; i++) {
        if (oob->notice[i].tag == tag)
            return &oob->notice[i];
    }
    return NULL;
}

void symm__oob_note(struct symm_oob *oob, const struct symm_oob_head *head,
                    const char *text)
{
    struct symm_oob_report *notice;
    size_t bytes = head->bytes_here;
    if (head->tag == OOB_LEAVING)
        oob->left |= UINT64_C(1) << head->rank;
    if (head->tag == OOB_LEAVING || symm__oob_reported(oob, head->tag) != NULL)
        return;
    notice = &oob->notice[oob->notice_count++ % SYMM_OOB_REPORTS];
    bytes = bytes < sizeof(notice->sentence) - 1 ? bytes : sizeof(notice->sentence) - 1;
    notice->tag = head->tag;
    notice->rank = head->rank;
    notice->status = symm__peer_status(head->status);
    memcpy(notice->sentence, text, bytes);
    notice->sentence[bytes] = '\0';
    (void)symm__printable(notice->sentence, sizeof(notice->sentence));
}

void symm__oob_notify(struct symm_oob *oob, const int *ranks, int count, uint64_t tag,
                      symm_status status, const char *sentence)
{
    struct symm_oob_head head = {.magic = SYMM_OOB_MAGIC,
                                 .version = SYMM_OOB_VERSION,
                                 .kind = SYMM_OOB_NOTICE,
                                 .tag = tag,
                                 .rank = oob->rank,
                                 .status = status,
                                 .what = "a team's failure"};
    size_t bytes = strnlen(sentence, SYMM_OOB_SENTENCE - 1);
    struct iovec parts[2] = {symm__seqpacket_part(&head, sizeof(head)),
                             symm__seqpacket_part(sentence, bytes)};
    head.bytes_here = (uint32_t)bytes;
    head.bytes_total = bytes;
    for (int i = 0; i < count; i++) {
        if (ranks[i] != oob->rank && oob->peer_fd[ranks[i]] >= 0 &&
            (oob->far >> ranks[i] & 1) != 0)
            (void)symm__oob_out(oob, ranks[i], parts, bytes > 0 ? 2 : 1, NULL, 0, 0);
    }
}

void symm__oob_leave(struct symm_oob *oob)
{
    for (int r = 0; r < oob->size && oob->peer_fd != NULL; r++)
        symm__oob_notify(oob, &r, 1, OOB_LEAVING, SYMM_OK, "");
}

bool symm__oob_poll(struct symm_oob *oob, int rank)
{
    for (int i = 0; i < SYMM_OOB_BURST; i++) {
        struct symm_oob_head head;
        char text[SYMM_OOB_SENTENCE];
        struct iovec parts[2] = {{.iov_base = &head, .iov_len = sizeof(head)},
                                 {.iov_base = text, .iov_len = sizeof(text)}};
        int fds[SYMM_SEQPACKET_MAX_FDS], fds_count = 0;
        size_t bytes = 0;
        enum symm_seqpacket wire = symm__oob_peek(oob, rank, &head, &bytes);
        if (wire != SYMM_SEQPACKET_OK)
            return wire == SYMM_SEQPACKET_AGAIN;
        if (bytes < sizeof(head) || head.kind != SYMM_OOB_NOTICE)
            return true; /* of an exchange to come */
        wire = symm__oob_in(oob, rank, parts, 2, &bytes, fds, &fds_count);
        if (wire == SYMM_SEQPACKET_OK &&
            symm__oob_head_check(&head, rank, bytes, fds_count))
            symm__oob_note(oob, &head, text);
        if (wire == SYMM_SEQPACKET_OK)
            symm__seqpacket_close(fds, fds_count);
    }
    return true;
}
