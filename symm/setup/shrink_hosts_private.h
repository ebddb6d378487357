/* SPDX-License-Identifier: MIT */
/* shrink_hosts_private.h - the state of one agreement over hosts: shrink_hosts.c. */
#ifndef SYMM_SETUP_SHRINK_HOSTS_PRIVATE_H
#define SYMM_SETUP_SHRINK_HOSTS_PRIVATE_H

#include "core/team.h"
#include "setup/survivors.h"
#include "util/status.h"

#define DEATH_SECONDS 1.0 /* for a death to be known that has broken an exchange */

enum state { JOINED = 1, OPENED, NOT_OPENED, LEFT };
enum outcome { UNDECIDED, DONE, FAILED, ABANDONED };

struct ballot {
    int32_t view;   /* the coordinator, by team rank */
    uint32_t round; /* of its proposals; 0: none */
};

struct decision {
    int32_t outcome;
    int32_t in;     /* the highest view that it counts in */
    int32_t status; /* FAILED, ABANDONED: why */
    struct ballot ballot;
};

/* What a rank writes. A coordinator's proposal is followed by its set. */
struct cell {
    uint32_t call;
    int32_t state;
    int32_t status; /* NOT_OPENED: why */
    int32_t view;
    struct ballot ballot;        /* that `state` is about */
    uint32_t overdue;            /* the rank has waited a deadline for others to come */
    uint32_t round, slot;        /* its own proposal; 0: none */
    struct decision now, before; /* of this call, of the one before */
    uint32_t unused;
    struct symm_slots taken;
};

/* What the team keeps of its last symm_team_shrink. */
struct symm_shrunk {
    uint32_t version; /* of this rank's cell */
    struct decision decision;
};

struct seen {
    bool is_here;
    bool dead;
    struct cell cell;
    uint64_t *set; /* of a proposal; owned */
};

struct shrink {
    symm_team *team, *made;
    int me;
    struct symm_shrunk *shrunk;
    struct seen *seen;  /* [size]; the own one is `own` */
    struct cell *own;   /* seen[me].cell */
    struct cell said;   /* as it was written last */
    int32_t *member_of; /* [ranks of the world] */
    uint64_t *set;      /* of own->ballot */
    size_t words;
    uint64_t read; /* the board, so far */
    double until;  /* ranks are waited for */
    double since;  /* the last change of view or proposal */
    double proposed; /* the own proposal */
    double broken; /* since when a member has NOT_OPENED for a death; 0: none has */
    int spare;
    bool gave_up;                    /* ABANDONED by its own clock */
    char sentence[SYMM_ERROR_BYTES]; /* of the own failure to make the team */
};

/* Has the rank come to this call? Those of a proposal have, also if their cells are not here. */
static inline bool has_come(const struct shrink *s, int member)
{
    return (s->seen[member].is_here && s->seen[member].cell.call >= s->own->call) ||
           (s->own->ballot.round > 0 && symm__set_has(s->set, member));
}

/* Its cell is of this call; NULL: it is not. */
static inline const struct cell *cell_of(const struct shrink *s, int member)
{
    const struct seen *seen = &s->seen[member];

    return seen->is_here && seen->cell.call == s->own->call ? &seen->cell : NULL;
}

static inline bool is_out(const struct shrink *s, int member)
{
    const struct cell *cell = cell_of(s, member);

    return !symm__set_has(s->team->survivors, member) || s->seen[member].dead ||
           (cell && cell->state == LEFT);
}

/* How long after its proposal a coordinator may decide that a team is made. */
static inline double lease_seconds(const struct shrink *s)
{
    return 3 * s->team->ctx->timeout;
}

/* How long a decision is waited for after the last change of view or proposal. */
static inline double decision_seconds(const struct shrink *s)
{
    return lease_seconds(s) + DEATH_SECONDS;
}

/* Has the call ended without a team for all that came, and can it be made again? */
static inline bool is_without_team(const struct decision *decision)
{
    return decision->outcome == FAILED || decision->outcome == ABANDONED;
}

static inline bool is_in_step(const struct cell *cell, struct ballot ballot)
{
    return cell && cell->ballot.view == ballot.view &&
           cell->ballot.round == ballot.round;
}

/* shrink_hosts_end.c: how the call ends for this rank. status: of the agreement. */
symm_status symm__shrink_conclude(const struct shrink *s,
                                  symm_status status) SYMM_MUST_CHECK;

#endif
