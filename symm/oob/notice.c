/* SPDX-License-Identifier: MIT */
/*
 * notice.c - see notice.h.
 */
#include "oob/notice.h"

#include <string.h>

#include "oob/packet.h"
#include "util/rank_text.h"
#include "util/status.h"
#include "util/text.h"

#define LINK_LEAVING UINT64_MAX /* tag of a NOTICE that is of no team */

const struct symm_link_notice *symm__link_told(const struct symm_link *link,
                                               uint64_t tag)
{
    for (unsigned i = 0; i < SYMM_LINK_NOTICES && i < link->notice_count; i++) {
        if (link->notice[i].tag == tag)
            return &link->notice[i];
    }
    return NULL;
}

void symm__link_note(struct symm_link *link, const struct symm_link_head *head,
                     const char *text)
{
    struct symm_link_notice *notice;
    size_t bytes = head->bytes_here;
    if (head->tag == LINK_LEAVING)
        link->left |= UINT64_C(1) << head->rank;
    if (head->tag == LINK_LEAVING || symm__link_told(link, head->tag) != NULL)
        return;
    notice = &link->notice[link->notice_count++ % SYMM_LINK_NOTICES];
    bytes = bytes < sizeof(notice->sentence) - 1 ? bytes : sizeof(notice->sentence) - 1;
    notice->tag = head->tag;
    notice->rank = head->rank;
    notice->status = symm__peer_status(head->status);
    memcpy(notice->sentence, text, bytes);
    notice->sentence[bytes] = '\0';
    (void)symm__printable(notice->sentence, sizeof(notice->sentence));
}

void symm__link_notify(struct symm_link *link, const int *ranks, int count,
                       uint64_t tag, symm_status status, const char *sentence)
{
    struct symm_link_head head = {.magic = SYMM_LINK_MAGIC,
                                  .version = SYMM_LINK_VERSION,
                                  .kind = SYMM_LINK_NOTICE,
                                  .tag = tag,
                                  .rank = link->rank,
                                  .status = status,
                                  .what = "a team's failure"};
    size_t bytes = strnlen(sentence, SYMM_LINK_SENTENCE - 1);
    struct iovec parts[2] = {symm__wire_part(&head, sizeof(head)),
                             symm__wire_part(sentence, bytes)};
    head.bytes_here = (uint32_t)bytes;
    head.bytes_total = bytes;
    for (int i = 0; i < count; i++) {
        if (ranks[i] != link->rank && link->peer_fd[ranks[i]] >= 0 &&
            (link->far >> ranks[i] & 1) != 0)
            (void)symm__link_out(link, ranks[i], parts, bytes > 0 ? 2 : 1, NULL, 0, 0);
    }
}

void symm__link_leave(struct symm_link *link)
{
    for (int r = 0; r < link->size && link->peer_fd != NULL; r++)
        symm__link_notify(link, &r, 1, LINK_LEAVING, SYMM_OK, "");
}

bool symm__link_look(struct symm_link *link, int rank)
{
    for (int i = 0; i < SYMM_LINK_BURST; i++) {
        struct symm_link_head head;
        char text[SYMM_LINK_SENTENCE];
        struct iovec parts[2] = {{.iov_base = &head, .iov_len = sizeof(head)},
                                 {.iov_base = text, .iov_len = sizeof(text)}};
        int fds[SYMM_WIRE_MAX_FDS], fds_count = 0;
        size_t bytes = 0;
        enum symm_wire wire = symm__link_peek(link, rank, &head, &bytes);
        if (wire != SYMM_WIRE_OK)
            return wire == SYMM_WIRE_AGAIN;
        if (bytes < sizeof(head) || head.kind != SYMM_LINK_NOTICE)
            return true; /* of an exchange to come */
        wire = symm__link_in(link, rank, parts, 2, &bytes, fds, &fds_count);
        if (wire == SYMM_WIRE_OK &&
            symm__link_head_check(&head, rank, bytes, fds_count))
            symm__link_note(link, &head, text);
        if (wire == SYMM_WIRE_OK)
            symm__wire_close(fds, fds_count);
    }
    return true;
}
