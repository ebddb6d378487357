/* SPDX-License-Identifier: MIT */
/* survivors.c - see survivors.h. */
#include "setup/survivors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/failure.h"
#include "util/rank_text.h"
#include "util/status.h"

symm_status symm__survivors_begin(symm_team *team)
{
    if (team->survivors)
        return SYMM_OK;
    team->survivors = calloc(symm__set_words(team), sizeof(*team->survivors));
    if (!team->survivors)
        return symm__fail(SYMM_ERR_NOMEM, "no memory to shrink a team of %d ranks",
                          team->size);
    for (int m = 0; m < team->size; m++)
        symm__set_add(team->survivors, m);
    return SYMM_OK;
}

bool symm__member_is_gone(const symm_team *team, int member)
{
    const symm_ctx *ctx = team->ctx;
    int rank = team->world_rank[member];
    const char *why;

    if (symm__is_far(ctx, rank))
        return symm__relay_state(ctx->oob.relay, rank) != SYMM_RELAY_ALIVE;
    return member != team->rank &&
           symm__rank_check(ctx, rank, &why) == SYMM_ERR_PEER_DEAD;
}

symm_status symm__left_out(symm_team *team)
{
    char name[64];
    bool failed = __atomic_load_n(&team->failed, __ATOMIC_ACQUIRE) != SYMM_OK;

    symm__set_remove(team->survivors, team->rank);
    symm__team_name(team, name, sizeof(name));
    if (!failed)
        (void)symm__team_fail(team, SYMM_ERR_TIMEOUT,
                              "rank %d was not among the ranks that came to "
                              "symm_team_shrink of %s in time",
                              team->ctx->rank, name);
    return symm__fail(
        SYMM_ERR_TIMEOUT,
        "rank %d came too late to symm_team_shrink of %s: the other ranks "
        "have gone on without it; raise SYMM_TIMEOUT if it is only slow%s%s",
        team->ctx->rank, name, failed ? ". The team had failed: " : "",
        failed ? team->failure : "");
}

symm_status symm__no_slot(const symm_team *team)
{
    return symm__fail(SYMM_ERR_NOMEM,
                      "no address range of %zu bytes is free on all survivors; "
                      "destroy teams, or lower SYMM_TEAM_BYTES or raise "
                      "SYMM_HEAP_BYTES",
                      team->ctx->team_bytes);
}

symm_status symm__not_made(const symm_team *team, const char *names)
{
    char name[64];

    return symm__fail(
        SYMM_ERR_ABORTED,
        "the survivors of %s have no team: %s could not make it, "
        "or not before the deadline; symm_team_shrink can be called again",
        symm__team_name(team, name, sizeof(name)), names);
}

/* The team's ranks that are not in the set. */
static const char *name_missing(const symm_team *team, const uint64_t *set, char *names,
                                size_t bytes)
{
    int *missing = malloc((size_t)team->size * sizeof(*missing)), count = 0;

    snprintf(names, bytes, "no other rank");
    for (int m = 0; missing && m < team->size; m++)
        if (!symm__set_has(set, m))
            missing[count++] = team->world_rank[m];
    if (count > 0)
        symm__ranks_text(missing, count, names, bytes);
    free(missing);
    return names;
}

symm_status symm__minority(const symm_team *team, const uint64_t *set, int decider)
{
    char names[120], name[64];

    return symm__fail(
        SYMM_ERR_TIMEOUT,
        "symm_team_shrink of %s: too many hosts did not answer rank %d, which decides, "
        "or have no rank that had come; from here %s is missing. They may be cut off "
        "and "
        "go on by themselves, so only the side with more hosts does, or of two halves "
        "that with the lowest rank",
        symm__team_name(team, name, sizeof(name)), team->world_rank[decider],
        name_missing(team, set, names, sizeof(names)));
}

void symm__survivors_mark(symm_team *team, const uint64_t *set)
{
    char names[200], name[64];
    bool dead = false, all = true;

    for (int m = 0; m < team->size; m++)
        all = all && symm__set_has(set, m);
    if (all || __atomic_load_n(&team->failed, __ATOMIC_ACQUIRE) != SYMM_OK)
        return;
    for (int m = 0; m < team->size; m++)
        dead = dead || (!symm__set_has(set, m) && symm__member_is_gone(team, m));
    (void)symm__team_fail(team, dead ? SYMM_ERR_PEER_DEAD : SYMM_ERR_TIMEOUT,
                          "%s did not come to symm_team_shrink of %s",
                          name_missing(team, set, names, sizeof(names)),
                          symm__team_name(team, name, sizeof(name)));
}
