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

/* What this rank sees of another one. */
struct symm_seen {
    const struct symm_creation *page;  /* its call with this list: */
    uint64_t word;                     /* 0: it has made none */
    const struct symm_creation *other; /* NULL, or its call with another list: */
    uint64_t other_word, other_members;
};

struct symm_create {
    const symm_team *parent;
    int rank, size; /* place in the list, and all */
    int last;       /* place of the highest world rank */
    int world_rank[SYMM_MAX_LOCAL_RANKS];
    int slot;        /* free on all; chosen by the last rank, so to be checked */
    uint32_t stamp;  /* this call's number on this rank, */
    uint32_t number; /* and on the last rank: with that rank it names the agreement */
    /* Private to team_create.c: */
    uint64_t series, list;
    struct symm_creation *own;
    const struct symm_creation *last_page; /* while locked: of the last rank's call */
    struct symm_seen seen[SYMM_MAX_LOCAL_RANKS]; /* by place */
    uint32_t against[SYMM_MAX_LOCAL_RANKS]; /* numbers of calls that cross this one */
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
