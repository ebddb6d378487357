/* SPDX-License-Identifier: MIT */
/* shrink_hosts_private.h - the state of one symm_team_shrink over hosts: see shrink_hosts.c. */
#ifndef SYMM_SETUP_SHRINK_HOSTS_PRIVATE_H
#define SYMM_SETUP_SHRINK_HOSTS_PRIVATE_H

#include "core/team.h"
#include "setup/survivors.h"
#include "util/status.h"

#define DEATH_SECONDS 1.0 /* until a death that broke an exchange is known to all */

enum state { JOINED = 1, OPENED, NOT_OPENED, LEFT };
enum outcome { UNDECIDED, DONE, FAILED, ABANDONED };

struct ballot {
    int32_t view;   /* the coordinator, by team rank */
    uint32_t round; /* number of its proposal; 0: none */
};

struct decision {
    int32_t outcome;
    int32_t in;     /* the highest view in which it counts: see shrink_hosts.c */
    int32_t status; /* FAILED, ABANDONED: why */
    struct ballot ballot;
};

/* What a rank writes to the board. The set of a coordinator's proposal follows it. */
struct cell {
    uint32_t call; /* first: symm__team_gone_on reads it, too */
    int32_t state;
    int32_t status; /* NOT_OPENED: why */
    int32_t view;   /* the coordinator that it follows */
    struct ballot ballot;        /* OPENED, NOT_OPENED: of which proposal */
    uint32_t overdue;            /* 1: ranks have not come within the deadline */
    uint32_t round, slot;        /* its own proposal; 0: none */
    struct decision now, before; /* of this call, and of the call before */
    uint32_t unused;
    struct symm_slots taken; /* slots of teams in use on this rank */
};

/* What the team keeps of its last symm_team_shrink. */
struct symm_shrunk {
    uint32_t version; /* of this rank's cell */
    struct decision decision;
};

struct seen {
    bool is_here; /* its cell was read */
    bool dead;
    struct cell cell;
    uint64_t *set; /* of its proposal; owned */
};

struct shrink {
    symm_team *team, *made;
    int me;
    struct symm_shrunk *shrunk;
    struct seen *seen;  /* [size]; the own one is `own` */
    struct cell *own;   /* seen[me].cell */
    struct cell written; /* `own` as it was published last */
    int32_t *member_of; /* [ranks of the world] */
    uint64_t *set;      /* of own->ballot */
    size_t words;
    uint64_t read; /* the board's version that was read last */
    double until;  /* deadline for ranks to come to the call */
    double since;  /* the last change of view or proposal */
    double proposed; /* when this rank proposed last */
    /* since when a member is NOT_OPENED for a death not known here; 0: none is */
    double broken;
    int spare;                       /* proposals left that no known death justifies */
    bool gave_up;                    /* this rank has decided ABANDONED */
    char sentence[SYMM_ERROR_BYTES]; /* why this rank is NOT_OPENED */
};

/* Has the member come to this call? Members of a proposal have, also before their cells arrive. */
static inline bool has_come(const struct shrink *s, int member)
{
    return (s->seen[member].is_here && s->seen[member].cell.call >= s->own->call) ||
           (s->own->ballot.round > 0 && symm__set_has(s->set, member));
}

/* The member's cell of this call; NULL: none has arrived. */
static inline const struct cell *cell_of(const struct shrink *s, int member)
{
    const struct seen *seen = &s->seen[member];

    return seen->is_here && seen->cell.call == s->own->call ? &seen->cell : NULL;
}

/* Does the set go on without the member: excluded before, dead, or LEFT? */
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

/* How long a rank waits for a decision after the last change of view or proposal. */
static inline double decision_seconds(const struct shrink *s)
{
    return lease_seconds(s) + DEATH_SECONDS;
}

/* Has the call ended without a team for all? Then all stay members, and may call again. */
static inline bool is_without_team(const struct decision *decision)
{
    return decision->outcome == FAILED || decision->outcome == ABANDONED;
}

/* Is the cell's state about that ballot? */
static inline bool is_in_step(const struct cell *cell, struct ballot ballot)
{
    return cell && cell->ballot.view == ballot.view &&
           cell->ballot.round == ballot.round;
}

/* shrink_hosts_end.c: what the call returns on this rank, with its sentence. status: how agree()
 * ended. */
symm_status symm__shrink_conclude(const struct shrink *s,
                                  symm_status status) SYMM_MUST_CHECK;

#endif
