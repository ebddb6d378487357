/* SPDX-License-Identifier: MIT */
/*
 * meeting.h - some ranks of a team come together without the others: all of a list, each of which
 * gives the same list and key (symm_team_create).
 *
 * Guarantees: no rank leaves with SYMM_OK unless all do, and then each of them holds the lock of
 * its context, so that none is in an exchange of another thread. While ranks wait for one that
 * has not come no lock is held. Every wait is bounded by the deadline; a rank that is dead, or at
 * another list of this key, ends it at once. The first failure is that of all ranks that wait
 * here; later ones are waited for anew.
 * Refuses: two calls of a rank with one parent and key at a time. All ranks are on this host.
 */
#ifndef SYMM_SETUP_MEETING_H
#define SYMM_SETUP_MEETING_H

#include "core/team.h"

/* What this rank sees of another one. */
struct symm_seen {
    const struct symm_meeting *page;  /* its call with this list: */
    uint64_t word;                    /* 0: it has made none */
    const struct symm_meeting *other; /* NULL, or its call with another list: */
    uint64_t other_word, other_members;
};

struct symm_meet {
    const symm_team *parent;
    int rank, size; /* place in the list, and all */
    int last;       /* place of the highest world rank */
    int world_rank[SYMM_MAX_RANKS];
    int slot;        /* free on all; as the last rank says, so to be checked */
    uint32_t stamp;  /* this call's number on this rank, */
    uint32_t number; /* and on the last rank: with that rank it names the meeting */
    /* Private to meeting.c: */
    uint64_t series, list;
    struct symm_meeting *own;
    const struct symm_meeting *last_page;  /* while locked: of the last rank's call */
    struct symm_seen seen[SYMM_MAX_RANKS]; /* by place */
    uint32_t against[SYMM_MAX_RANKS];      /* numbers of calls that cross this one */
    bool locked, decided;
    double since, hold; /* when the lock was taken, how long it may be held */
    double crossed;     /* when `against` has changed last */
    char what[400];     /* for sentences */
};

/* For what symm_team_create was given, which was checked. */
void symm__meet_prepare(struct symm_meet *meet, const symm_team *parent,
                        const int *ranks, int size, int key);
/* `mine`: a failure of mine before this step, reported to all. On SYMM_OK the caller unlocks the
 * context and then calls symm__meet_end. */
symm_status symm__meet(struct symm_meet *meet, symm_status mine) SYMM_MUST_CHECK;
void symm__meet_end(struct symm_meet *meet);

#endif
