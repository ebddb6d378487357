/* SPDX-License-Identifier: MIT */
/*
 * consensus.h - the word by which the members of a team agree on its survivors
 * (team_shrink.c), and the page in which each of them writes what it proposes.
 *
 * The word is in the control page of the team's first member; the place is given when the
 * team is made, and used for another team only when all others were used.
 */
#ifndef SYMM_SETUP_CONSENSUS_H
#define SYMM_SETUP_CONSENSUS_H

#include "core/team.h"

enum symm_consensus_phase {
    SYMM_CONSENSUS_GATHER,
    SYMM_CONSENSUS_DECIDED,
    SYMM_CONSENSUS_DONE,
    SYMM_CONSENSUS_FAILED
};

/* The word of this step: the team's uid, the attempt, the proposer's team rank, the phases. */
uint64_t symm__consensus_word(const symm_team *team, uint32_t attempt, int proposer,
                              uint32_t phases);
/* What a member on this host has written about the team. */
struct symm_consensus *symm__consensus_page(const symm_team *team, int member);
/* The number of one agreement of the team, as in the page. */
static inline uint64_t symm__consensus_mark(const symm_team *team, uint32_t number)
{
    return (uint64_t)team->uid << 32 | number;
}

/* This rank is in symm_team_shrink of that number: members read it there, and in
 * symm__team_shrinks. release: pairs with their acquires. */
static inline void symm__consensus_announce(const symm_team *team, uint32_t number)
{
    __atomic_store_n(&symm__consensus_page(team, team->rank)->joined,
                     symm__consensus_mark(team, number), __ATOMIC_RELEASE);
}

/* Chooses where a new team's word will be, before the team's start; only the first member's
 * choice counts. */
uint64_t symm__shrink_prepare(symm_team *team);
/* Takes the first member's choice. */
symm_status symm__shrink_adopt(symm_team *team,
                               uint32_t consensus_word) SYMM_MUST_CHECK;

#endif
