/* SPDX-License-Identifier: MIT */
/*
 * notice.h - what ranks of different hosts report to each other between exchanges: that a
 * team has failed, or that the rank finalizes its context.
 */
#ifndef SYMM_OOB_NOTICE_H
#define SYMM_OOB_NOTICE_H

#include "oob/link.h"

struct symm_link_head;

/*
 * Tells far ranks that the team `tag` has failed: at once or never, so it may be said under
 * any lock. From any thread.
 */
void symm__link_notify(struct symm_link *link, const int *ranks, int count,
                       uint64_t tag, symm_status status, const char *sentence);
/* To all far ranks: this one goes, and has not failed. */
void symm__link_leave(struct symm_link *link);
/* Between exchanges: takes notices that have come from the rank. False: it has hung up (and
 * has no more to say). Like an exchange, one at a time. */
bool symm__link_look(struct symm_link *link, int rank);
/* What has been told of a team; NULL: nothing. */
const struct symm_link_notice *symm__link_told(const struct symm_link *link,
                                               uint64_t tag);
/* Keeps the first notice of each team. `head` is checked; `text` may hold anything. */
void symm__link_note(struct symm_link *link, const struct symm_link_head *head,
                     const char *text);

#endif
