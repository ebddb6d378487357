/* SPDX-License-Identifier: MIT */
/* error_unpaired.c - see error_unpaired.h. */
#include "cuda/error_unpaired.h"

#include <stdio.h>
#include <string.h>

#include "core/failure.h"
#include "cuda/channel.h"
#include "cuda/channel_table.h"
#include "cuda/error_where.h"

/* A call of a member on a channel that no stream of this rank has. */
struct unpaired {
    int member, channel;
    uint32_t tag, step;
    bool known; /* site */
    struct symm_site site;
};

static uint64_t progress_of(const symm_team *team, int member, int channel)
{
    return __atomic_load_n(symm__channel_progress(team, member, channel),
                           __ATOMIC_ACQUIRE);
}

/* The member's host has queued or captured calls on a channel that no stream of this rank has. */
static bool is_unpaired(const symm_team *team, int member, int channel)
{
    const uint64_t differs = progress_of(team, member, channel) ^
                             progress_of(team, team->local_rank, channel);

    return (differs >> 32 || (differs & SYMM_CHANNEL_PINNED)) &&
           !symm__channel_has_key(
               team, channel,
               __atomic_load_n(&team->channel[channel].key, __ATOMIC_RELAXED));
}

/* The first call of the member's stream there. Members have made equal numbers of calls before. */
static void read_call(const symm_team *team, int member, int channel,
                      struct unpaired *call)
{
    const struct symm_control *control =
        symm__near_control(team->ctx, symm__team_rank_at(team, member));

    call->member = member;
    call->channel = channel;
    call->tag = __atomic_load_n(&control->first[team->slot][channel], __ATOMIC_RELAXED);
    call->step = (uint32_t)(progress_of(team, team->local_rank, channel) >> 32) + 1;
    call->known = symm__cuda_site_of(team, member, call->tag, &call->site);
}

/* A call of a missing member: one of this site if there is one. */
static bool find(const symm_team *team, const struct symm_cuda_facts *facts,
                 const struct symm_site *own, struct unpaired *found)
{
    bool any = false;

    for (int m = 0; m < team->local_size; m++)
        for (int c = 0; c < SYMM_CHANNELS; c++) {
            struct unpaired call;

            if (m == team->local_rank || !symm__members_has(&facts->missing, m) ||
                !is_unpaired(team, m, c))
                continue;
            read_call(team, m, c, &call);
            if (!any)
                *found = call;
            any = true;
            if (own && call.known && strcmp(call.site.name, own->name) == 0) {
                *found = call;
                return true;
            }
        }
    return any;
}

/* Whether the two are calls of one site that differ. Calls of different sites, or without names, may
 * be of two streams whose first uses the ranks make in different orders: one of them is late. */
static bool is_mismatch(const struct unpaired *theirs, const struct symm_site *own,
                        uint32_t tag)
{
    return own && theirs->known && own->name[0] && theirs->tag != tag &&
           strcmp(theirs->site.name, own->name) == 0;
}

/* The two make one call, and symm_call.channel differs. SYMM_OK: it does not. */
static symm_status report_channels(symm_team *team, const struct unpaired *theirs,
                                   int channel, const char *text)
{
    const int named[] = {theirs->channel, channel};
    char which[2][32];

    if (!symm__cuda_channel_named(team, theirs->channel) &&
        !symm__cuda_channel_named(team, channel))
        return SYMM_OK;
    for (int i = 0; i < 2; i++)
        if (symm__cuda_channel_named(team, named[i]))
            snprintf(which[i], sizeof(which[i]), "%d", named[i] + 1);
        else
            snprintf(which[i], sizeof(which[i]), "0");
    return symm__team_fail(team, SYMM_ERR_MISMATCH,
                           "rank %d and rank %d are at %s, but symm_call.channel is %s "
                           "on rank %d, %s on rank %d: all ranks must name the same",
                           symm__team_rank_at(team, theirs->member), team->ctx->rank,
                           text, which[0], symm__team_rank_at(team, theirs->member),
                           which[1], team->ctx->rank);
}

symm_status symm__cuda_report_unpaired(symm_team *team,
                                       const struct symm_cuda_facts *facts)
{
    char mine[SYMM_SITE_TEXT_BYTES], text[SYMM_SITE_TEXT_BYTES], missing[96],
        at[SYMM_CUDA_WHERE_BYTES];
    const int rank = team->ctx->rank;
    struct unpaired theirs;
    struct symm_site own;
    const bool known = symm__cuda_site_of(team, team->local_rank, facts->tag, &own);

    if (symm__is_signal(facts) ||
        team->far || /* over several hosts streams pair by order */
        !find(team, facts, known ? &own : NULL, &theirs))
        return SYMM_OK;
    (void)symm__cuda_tag_text(team, theirs.member, theirs.tag, theirs.step, text,
                              sizeof(text));
    (void)symm__cuda_tag_text(team, team->local_rank, facts->tag, facts->counter, mine,
                              sizeof(mine));
    (void)symm__cuda_where_text(team, facts, at, sizeof(at));
    if (is_mismatch(&theirs, known ? &own : NULL, facts->tag))
        return symm__team_mismatch(
            team,
            &(struct symm_call_at){symm__team_rank_at(team, theirs.member),
                                   &theirs.site, text, ""},
            &(struct symm_call_at){rank, &own, mine, at});
    if (theirs.tag == facts->tag &&
        report_channels(team, &theirs, (int)facts->channel, mine) != SYMM_OK)
        return SYMM_ERR_MISMATCH;
    if (symm__members_text(team, &facts->missing, missing, sizeof(missing)) == 0)
        snprintf(missing, sizeof(missing), "a peer");
    return symm__team_fail(
        team, SYMM_ERR_TIMEOUT,
        "%s did not arrive at %s within %g s; rank %d waits%s; rank %d has queued %s "
        "on a stream that rank %d has not paired: streams pair by equal first calls, "
        "with arrays at equal offsets",
        missing, mine, facts->timeout, rank, at,
        symm__team_rank_at(team, theirs.member), text, rank);
}
