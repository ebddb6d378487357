/* SPDX-License-Identifier: MIT */
/*
 * failure.h - how a failure of a team becomes known: on this rank, to its peers, to other hosts.
 *
 * The first failure is kept; it is written to this rank's control page, where peers on this host
 * find it, and reported to the members on other hosts by the relay (relay/relay.h). The relay
 * also reports the death of a rank on another host; a rank that finalizes reports that first and
 * is not taken for dead. A team that has failed stays so.
 */
#ifndef SYMM_CORE_FAILURE_H
#define SYMM_CORE_FAILURE_H

#include "core/team.h"

/* Marks the team failed for this rank and reports it to its members; returns status. */
symm_status symm__team_fail(symm_team *team, symm_status status, const char *format,
                            ...) __attribute__((format(printf, 3, 4)));
/* Fails the team because a part of the call is queued, and the rest cannot be: members count a call
 * that this rank cannot make again. The thread's error says why. */
symm_status symm__team_fail_queued(symm_team *team, const char *what, const char *site);
/* The failure of a failed team, as this thread's error. */
symm_status symm__team_failed(const symm_team *team);
/* Has this member reported a failure of this team? Then it is this rank's too. */
symm_status symm__team_record_of(symm_team *team, int member);
/* Where the member is that has not come to a call on a channel, for a sentence: "rank 1 waits in
 * rendezvous (world)", "rank 1 was last at LAST"; last NULL: it has made no call there. *other: it
 * is elsewhere, so more time does not help. */
#define SYMM_LATE_TEXT_BYTES 272
const char *symm__team_late_text(symm_team *team, int world_rank, const char *last,
                                 bool *other, char *text, size_t bytes);
/* What to do about a member that is late. */
const char *symm__late_advice(bool other);
/* Has one of these ranks of the world, on this host and not this one, died? Its status, *at, its
 * place in the list, and *why; SYMM_OK: none. To find why a finalized rank left a call undone,
 * call this after symm__process_finished has returned true. */
symm_status symm__death_among(const symm_ctx *ctx, const int *ranks, int count, int *at,
                              const char **why);
symm_status symm__team_death(const symm_team *team, int *member, const char **why);
/* Keeps a call site's name. A longer one than fits ends in "~" and 8 digits of its hash, so
 * that long names that begin alike differ. NULL: none. */
void symm__site_name_set(char name[SYMM_SITE_NAME_BYTES], const char *site);
/* The tag of a call that has a name alone, not a kind and sizes. 0: no name, so it is not compared. */
uint32_t symm__site_name_tag(const char *name);
/* "site 'x'", "a site without a name". */
const char *symm__site_name_text(const char *site, char *text, size_t bytes);
/* Extends a hash by the options of an all_reduce_norm. */
uint64_t symm__site_options(const struct symm_site *site, uint64_t hash);
/* The same of a call on a stream of the host: "site 'x' on stream 0x55d0c8a0". NULL: the default
 * stream, whose calls return their errors themselves. */
#define SYMM_SITE_STREAM_BYTES (SYMM_SITE_NAME_BYTES + 48)
const char *symm__site_stream_text(const char *site, const void *stream, char *text,
                                   size_t bytes);
/* "site 'name' (all_reduce sum of 8 float32, ll_push) step 3" */
#define SYMM_SITE_TEXT_BYTES 240
const char *symm__site_text(const struct symm_site *site, uint32_t step, char *text,
                            size_t bytes);
/* A call of a rank, for a sentence. */
struct symm_call_at {
    int rank;
    const struct symm_site *site; /* NULL: not known */
    const char *text;             /* of the site */
    const char *where;            /* " on stream 0x55d0c8a0, channel 2", or "" */
};
/* Fails the team because a member makes another call; shows what differs, also where the two have
 * one text. */
symm_status symm__team_mismatch(symm_team *team, const struct symm_call_at *theirs,
                                const struct symm_call_at *mine);
/* Copies a peer's site and makes its name printable. */
void symm__site_copy(const struct symm_site *shared, struct symm_site *site);
/* Has that rank of another host died or, if `finalized`, finalized its context, as far as the
 * relay knows? Then *status and the sentence are set. */
bool symm__far_ended(const symm_ctx *ctx, int rank, bool finalized, symm_status *status,
                     const char **why);
/* Of a team with ranks on other hosts: has one of them died, or reported that the team has
 * failed? Then the team fails here. Polls at most once a millisecond. */
symm_status symm__far_poll(symm_team *team);
/* Has the team failed, here, or at a member on this host or another one? */
symm_status symm__team_poll(symm_team *team);
/* The same, by a thread that has locked the context. */
symm_status symm__far_poll_locked(symm_team *team);

#endif
