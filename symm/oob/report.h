/* SPDX-License-Identifier: MIT */
/*
 * report.h - what ranks of different hosts report to each other between exchanges: that a
 * team has failed, or that the rank finalizes its context.
 */
#ifndef SYMM_OOB_REPORT_H
#define SYMM_OOB_REPORT_H

#include "oob/oob.h"

struct symm_oob_head;

/*
 * Tells far ranks that the team `tag` has failed: at once or never, so it may be said under
 * any lock. From any thread.
 */
void symm__oob_notify(struct symm_oob *oob, const int *ranks, int count, uint64_t tag,
                      symm_status status, const char *sentence);
/* Reports to all far ranks that this one finalizes and has not failed. */
void symm__oob_leave(struct symm_oob *oob);
/* Between exchanges: takes notices that have come from the rank. False: it has hung up (and
 * has no more to say). Like an exchange, one at a time. */
bool symm__oob_poll(struct symm_oob *oob, int rank);
/* What has been reported of a team; NULL: nothing. */
const struct symm_oob_report *symm__oob_reported(const struct symm_oob *oob,
                                                 uint64_t tag);
/* Keeps the first notice of each team. `head` is checked; `text` may hold anything. */
void symm__oob_note(struct symm_oob *oob, const struct symm_oob_head *head,
                    const char *text);

#endif
