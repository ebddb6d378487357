/* SPDX-License-Identifier: MIT */
/* shrink_hosts_end.c - see shrink_hosts.c. How a call ends, and what is said of it. */
#include "setup/shrink_hosts_private.h"
#include "util/clock.h"

static symm_status not_made(const struct shrink *s)
{
    const struct decision *decision = &s->own->now;
    char name[64];

    symm__team_name(s->team, name, sizeof(name));
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
    return symm__fail(
        SYMM_ERR_ABORTED,
        "the survivors of %s have no team: one of them could not make it, "
        "or not before the deadline; symm_team_shrink can be called again",
        name);
}

symm_status symm__shrink_too_long(const struct shrink *s)
{
    char name[64];

    return symm__fail(
        SYMM_ERR_TIMEOUT,
        "symm_team_shrink of %s: rank %d, which is to decide, has not within %.3g s: "
        "stopped, or cut off from this host?",
        symm__team_name(s->team, name, sizeof(name)), s->team->world_rank[s->own->view],
        symm__now() - s->since);
}

symm_status symm__shrink_conclude(const struct shrink *s, symm_status status)
{
    const struct decision *decision = &s->own->now;

    if (status == SYMM_OK && decision->outcome == FAILED)
        return not_made(s);
    /* DONE of a ballot that this rank has not opened is of others. */
    if (status == SYMM_OK &&
        (s->own->state != OPENED || !is_in_step(s->own, decision->ballot)))
        return symm__left_out(s->team);
    return status;
}
