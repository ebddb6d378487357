/* SPDX-License-Identifier: MIT */
/* shrink_hosts_end.c - see shrink_hosts.c. How a call ends, and the sentences of errors. */
#include "setup/shrink_hosts_private.h"
#include <stdio.h>
#include <stdlib.h>

#include "util/rank_text.h"

/* Names the ranks that have come and do not follow this rank, the coordinator. */
static void silent_ranks(const struct shrink *s, char *names, size_t bytes)
{
    int *ranks = malloc((size_t)s->team->size * sizeof(*ranks)), count = 0;

    for (int m = 0; ranks && m < s->team->size; m++) {
        const struct cell *cell = cell_of(s, m);

        if (!is_out(s, m) && has_come(s, m) && (!cell || cell->view != s->me))
            ranks[count++] = s->team->world_rank[m];
    }
    snprintf(names, bytes, "a rank that has come");
    if (count > 0)
        symm__ranks_text(ranks, count, names, bytes);
    free(ranks);
}

static symm_status abandoned(const struct shrink *s, const char *name)
{
    const int view = s->own->now.ballot.view;
    const double seconds = decision_seconds(s);
    char names[200];

    if (view != s->me)
        return symm__fail(
            SYMM_ERR_TIMEOUT,
            "symm_team_shrink of %s: rank %d, which was to decide, had not after %.3g "
            "s: "
            "stopped, or cut off from this host? The next symm_team_shrink goes on "
            "without it, if it does not come",
            name, s->team->world_rank[view], seconds);
    if (!s->gave_up)
        return symm__fail(
            SYMM_ERR_TIMEOUT,
            "symm_team_shrink of %s: rank %d was to decide, and other ranks have given "
            "up after %.3g s: was it stopped, or cut off from them? symm_team_shrink "
            "can "
            "be called again",
            name, s->team->ctx->rank, seconds);
    silent_ranks(s, names, sizeof(names));
    return symm__fail(
        SYMM_ERR_TIMEOUT,
        "symm_team_shrink of %s: rank %d is to decide, and has no answer of "
        "%s after %.3g s: stopped, or cut off from this host? "
        "symm_team_shrink can be called again",
        name, s->team->ctx->rank, names, seconds);
}

static symm_status not_made(const struct shrink *s)
{
    const struct decision *decision = &s->own->now;
    char name[64];

    symm__team_name(s->team, name, sizeof(name));
    if (decision->outcome == ABANDONED)
        return abandoned(s, name);
    if (s->own->state == NOT_OPENED)
        return symm__fail_quiet((symm_status)s->own->status, s->sentence);
    if (decision->status == SYMM_ERR_NOMEM)
        return symm__no_slot(s->team);
    if (decision->status == SYMM_ERR_TIMEOUT) {
        for (int m = 0; m < s->team->size; m++)
            if (has_come(s, m) && !is_out(s, m))
                symm__set_add(s->set, m);
        return symm__minority(s->team, s->set, decision->ballot.view);
    }
    return symm__not_made(s->team, "one of them");
}

symm_status symm__shrink_conclude(const struct shrink *s, symm_status status)
{
    const struct decision *decision = &s->own->now;

    if (status == SYMM_OK && is_without_team(decision))
        return not_made(s);
    /* DONE of a ballot that this rank has not opened: the others made a team without it. */
    if (status == SYMM_OK &&
        (s->own->state != OPENED || !is_in_step(s->own, decision->ballot)))
        return symm__left_out(s->team);
    return status;
}
