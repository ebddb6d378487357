/* SPDX-License-Identifier: MIT */
/*
 * survivors.h - what both agreements on the survivors of a team share: sets of members, which
 * members are gone, and the error sentences. On one host the agreement is team_shrink.c, over
 * hosts shrink_hosts.c.
 *
 * A set has one bit for each team rank. team->survivors are the ranks that may still be in a
 * team of survivors: all of them at first, then those of the last agreement.
 */
#ifndef SYMM_SETUP_SURVIVORS_H
#define SYMM_SETUP_SURVIVORS_H

#include "core/team.h"

static inline size_t symm__set_words(const symm_team *team)
{
    return ((size_t)team->size + 63) / 64;
}

static inline bool symm__set_has(const uint64_t *set, int member)
{
    return set[member / 64] >> (member % 64) & 1;
}

static inline void symm__set_add(uint64_t *set, int member)
{
    set[member / 64] |= UINT64_C(1) << (member % 64);
}

static inline void symm__set_remove(uint64_t *set, int member)
{
    set[member / 64] &= ~(UINT64_C(1) << (member % 64));
}

/* Makes team->survivors, if this is the first agreement. */
symm_status symm__survivors_begin(symm_team *team) SYMM_MUST_CHECK;
/* Has the member died, or finalized its context? Of another host: as far as is known here. */
bool symm__member_is_gone(const symm_team *team, int member);
/* Fails: this rank came too late, and stays out for good. */
symm_status symm__left_out(symm_team *team);
/* Fails: no slot is free on all survivors. */
symm_status symm__no_slot(const symm_team *team);
/* Fails: `names` of the survivors have not made their part of the new team. */
symm_status symm__not_made(const symm_team *team, const char *names);
/* Fails: the ranks of `set` may not go on, since too many hosts were without one when the member
 * `decider` decided. */
symm_status symm__minority(const symm_team *team, const uint64_t *set, int decider);
/* Marks the team as failed if `set` lacks some of its ranks, even if no rank has noticed yet. */
void symm__survivors_mark(symm_team *team, const uint64_t *set);
/*
 * shrink_hosts.c: the agreement of a team over several hosts, with the context locked. *made: the
 * team of the survivors.
 */
symm_status symm__shrink_hosts(symm_team *team, symm_team **made) SYMM_MUST_CHECK;

#endif
