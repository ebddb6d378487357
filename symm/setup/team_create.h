/* SPDX-License-Identifier: MIT */
/*
 * team_create.h - the agreement before a team is made of a list of ranks (symm_team_create). The
 * parent's other ranks take no part.
 *
 * Guarantees: no rank leaves with SYMM_OK unless all do, and then each of them holds the lock of
 * its context, so that none is in an exchange of another thread. No lock is held while a rank
 * has not made the call. Every wait is bounded by the deadline; a rank that is dead, or waits
 * with another list of this key, ends the wait at once. The first failure ends the calls of all
 * ranks that wait with this list; ranks that call later wait anew.
 * Refuses: two calls of a rank with one parent and key at a time. All ranks are on this host.
 */
#ifndef SYMM_SETUP_TEAM_CREATE_H
#define SYMM_SETUP_TEAM_CREATE_H

#include "core/team.h"

/* What this rank has read in another rank's pages. */
struct symm_seen {
    const struct symm_creation *page;  /* of its call with this list; NULL: none */
    uint64_t word;                     /* of that page; 0: none */
    const struct symm_creation *other; /* of its call with another list; NULL: none */
    uint64_t other_word, other_members;
};

struct symm_create {
    const symm_team *parent;
    int rank, size; /* this rank's place in the list; how many are in it */
    int last;       /* place of the highest world rank */
    int world_rank[SYMM_MAX_LOCAL_RANKS];
    int slot;       /* the last rank's choice, from its page: the caller checks it */
    uint32_t stamp; /* number of this rank's call */
    /* number of the last rank's call, for which this rank has locked */
    uint32_t number;
    /* Private to team_create.c: */
    uint64_t series, list; /* hashes of parent and key; of these and the list */
    struct symm_creation *own;
    const struct symm_creation *last_page; /* while locked: of the last rank's call */
    struct symm_seen seen[SYMM_MAX_LOCAL_RANKS]; /* by place */
    uint32_t against
        [SYMM_MAX_LOCAL_RANKS]; /* by place: the call that crosses this one; 0: none */
    bool locked, decided;
    double since, hold; /* when the lock was taken, how long it may be held */
    double crossed;     /* when `against` has changed last */
    char what[400];     /* for sentences */
};

/* Takes the arguments of symm_team_create, which the caller has checked. */
void symm__create_prepare(struct symm_create *create, const symm_team *parent,
                          const int *ranks, int size, int key);
/* `mine`: a failure of this rank before this step, reported to all. On SYMM_OK the caller unlocks
 * the context and then calls symm__create_end. */
symm_status symm__create_agree(struct symm_create *create,
                               symm_status mine) SYMM_MUST_CHECK;
void symm__create_end(struct symm_create *create);

#endif
