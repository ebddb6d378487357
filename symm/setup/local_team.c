/* SPDX-License-Identifier: MIT */
/*
 * local_team.c - a wide team's parts: which ranks are where, the node's team, the rail, and
 * how a failure gets from host to host.
 *
 * A death is seen by the hang-up of the rank's socket; a rank that has failed tells the
 * members on other hosts by a notice on theirs (exchange.h). Both are looked for by whoever
 * waits in the engine, at most once a millisecond. A rank that finalizes says so first: it is
 * not taken for dead.
 */
#include "call/hierarchical.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/clock.h"
#include "util/status.h"

#define LOOK_SECONDS   0.001
#define REASON_SECONDS 0.25
#define NODE_STEP      0x6e6f6465u /* tells the node's team from splits */

bool symm__team_spans(const symm_team *team)
{
    for (int m = 0; m < team->size; m++)
        if (symm__is_far(team->ctx, team->world_rank[m]))
            return true;
    return false;
}

/* ---- Parts ------------------------------------------------------------------------ */

static void find_hosts(const symm_team *team, struct symm_wide *wide)
{
    const symm_ctx *ctx = team->ctx;

    for (int m = 0; m < team->size; m++) {
        int h = 0;

        while (h < wide->hosts && ctx->host_of[team->world_rank[wide->leader[h]]] !=
                                      ctx->host_of[team->world_rank[m]])
            h++;
        if (h == wide->hosts)
            wide->leader[wide->hosts++] = m;
        wide->host[m] = h;
        wide->local[m] = wide->sizes[h]++;
    }
    wide->at = wide->host[team->rank];
    wide->here = wide->local[team->rank];
    wide->equal = wide->regular = true;
    for (int h = 0; h < wide->hosts; h++)
        wide->equal = wide->equal && wide->sizes[h] == wide->sizes[0];
    for (int m = 0; m < team->size; m++)
        wide->regular = wide->regular && wide->equal &&
                        m == wide->host[m] * wide->sizes[0] + wide->local[m];
    for (int m = 0; m < team->size; m++)
        if (m == team->rank ||
            (wide->local[m] == wide->here && (wide->equal || wide->here == 0)))
            wide->rail[wide->rail_count++] = m;
}

/* Address ranges that are taken on any of this host's members. */
static symm_status find_slot(symm_team *team, const struct symm_wide *wide,
                             double deadline, int *slot)
{
    struct symm_parcel parcels[SYMM_MAX_RANKS] = {0};
    uint64_t mine = symm__team_slots(team->ctx), taken = 0, theirs;
    symm_status status =
        symm__team_exchange(team, "the parts of a team on several hosts", deadline,
                            SYMM_OK, &mine, sizeof(mine), NULL, 0, parcels);

    for (int m = 0; status == SYMM_OK && m < team->size; m++) {
        if (parcels[m].bytes_count != sizeof(theirs)) {
            status = symm__fail(SYMM_ERR_REFUSED, "rank %d sent a malformed split",
                                team->world_rank[m]);
            break;
        }
        memcpy(&theirs, parcels[m].bytes, sizeof(theirs));
        taken |= wide->host[m] == wide->at ? theirs : 0;
    }
    symm__parcels_finish(parcels, team->size);
    for (*slot = 0; *slot < SYMM_MAX_TEAMS && (taken >> *slot & 1) != 0;)
        ++*slot;
    return status;
}

static symm_status open_node(symm_team *team, struct symm_wide *wide, int slot,
                             double deadline)
{
    symm_ctx *ctx = team->ctx;
    int world_rank[SYMM_MAX_RANKS], count = 0;
    symm_team *node;
    symm_status status;

    if (slot == SYMM_MAX_TEAMS) /* the same on all members of this host */
        return symm__fail(
            SYMM_ERR_NOMEM,
            "no address range of %zu bytes is free on host %s for the part "
            "of a team that is there; destroy teams, or lower "
            "SYMM_TEAM_BYTES or raise SYMM_HEAP_BYTES",
            ctx->team_bytes, ctx->host_name[ctx->host_of[ctx->rank]]);
    for (int m = 0; m < team->size; m++)
        if (wide->host[m] == wide->at)
            world_rank[count++] = team->world_rank[m];
    status = symm__team_create(ctx, count, &node);
    if (status != SYMM_OK)
        return status;
    node->inner = true;
    status =
        symm__team_settle(node, symm__team_uid(team, NODE_STEP, (uint32_t)wide->at),
                          slot, world_rank, count, deadline);
    if (status == SYMM_OK)
        wide->node = node;
    else
        symm__team_free(node);
    return status;
}

symm_status symm__wide_open(symm_team *team, double deadline)
{
    double until = symm__now() + deadline;
    struct symm_parcel parcels[SYMM_MAX_RANKS] = {0};
    struct symm_wide *wide;
    int slot = 0;
    symm_status status;

    if (!symm__team_spans(team))
        return SYMM_OK;
    wide = calloc(1, sizeof(*wide));
    if (!wide)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a team over several hosts");
    pthread_mutex_init(&wide->turn, NULL);
    pthread_cond_init(&wide->turns, NULL);
    team->wide = wide;
    find_hosts(team, wide);
    status = find_slot(team, wide, deadline, &slot);
    if (status != SYMM_OK)
        return status;
    status = open_node(team, wide, slot, until - symm__now());
    status =
        symm__team_exchange(team, "the start of a team over several hosts",
                            until - symm__now(), status, NULL, 0, NULL, 0, parcels);
    symm__parcels_finish(parcels, team->size);
    if (status == SYMM_OK && team->engine)
        status = symm__engine_comm_among(team, wide->rail, wide->rail_count,
                                         until - symm__now(), &team->engine->rail);
    return status;
}

void symm__wide_close(symm_team *team)
{
    struct symm_wide *wide = team->wide;
    symm_ctx *ctx = team->ctx;

    if (!wide)
        return;
    if (wide->node) {
        ctx->teams[wide->node->slot] = NULL;
        symm__team_free(wide->node);
    }
    for (int i = 0; i < SYMM_HOST_CHANNELS; i++)
        ctx->ops->local_free(ctx->backend, wide->scratch[i]);
    for (size_t i = 0; i < wide->outgrown_count; i++)
        ctx->ops->local_free(ctx->backend, wide->outgrown[i]);
    free(wide->outgrown);
    pthread_cond_destroy(&wide->turns);
    pthread_mutex_destroy(&wide->turn);
    free(wide);
    team->wide = NULL;
}

/* ---- Failures --------------------------------------------------------------------- */

void symm__wide_tell(symm_team *team)
{
    struct symm_wide *wide = team->wide;

    /* Members on this host may wait in a step of theirs, where they look at its records. */
    if (wide->node && symm__team_failed(wide->node) == SYMM_OK)
        (void)symm__team_fail(wide->node, (symm_status)team->failed, "%s",
                              team->failure);
    /* Calls that have not had their turn never get it: what is queued before is skipped. */
    pthread_mutex_lock(&wide->turn);
    pthread_cond_broadcast(&wide->turns);
    pthread_mutex_unlock(&wide->turn);
    symm__link_notify(&team->ctx->link, team->world_rank, team->size, team->uid,
                      (symm_status)team->failed, team->failure);
}

/* With the context locked. What is found goes to `said`. */
static symm_status look_far(symm_team *team, char *said, size_t bytes)
{
    symm_ctx *ctx = team->ctx;
    const struct symm_link_notice *told;
    int dead = -1;

    for (int m = 0; m < team->size; m++) {
        int rank = team->world_rank[m];

        if (symm__is_far(ctx, rank) && !symm__link_look(&ctx->link, rank) &&
            !symm__link_left(&ctx->link, rank) && dead < 0)
            dead = rank;
    }
    told = symm__link_told(&ctx->link, team->uid);
    if (told) {
        snprintf(said, bytes, "%s", told->sentence);
        return told->status;
    }
    if (dead < 0)
        return SYMM_OK;
    snprintf(said, bytes,
             "rank %d on host %s has died, or its connection to rank %d has ended",
             dead, ctx->host_name[ctx->host_of[dead]], ctx->rank);
    return SYMM_ERR_PEER_DEAD;
}

symm_status symm__wide_look(symm_team *team)
{
    symm_ctx *ctx = team->ctx;
    char said[SYMM_ERROR_BYTES];
    symm_status status = SYMM_OK;

    if (!team->wide || symm__team_failed(team) != SYMM_OK)
        return symm__team_failed(team);
    if (team->wide->node && symm__team_failed(team->wide->node) != SYMM_OK)
        return symm__team_fail(team, (symm_status)team->wide->node->failed, "%s",
                               team->wide->node->failure);
    /* An exchange that runs meanwhile looks by itself. */
    if (pthread_mutex_trylock(&ctx->lock) != 0)
        return SYMM_OK;
    if (symm__now() - team->wide->looked >= LOOK_SECONDS) {
        status = look_far(team, said, sizeof(said));
        team->wide->looked = symm__now();
    }
    pthread_mutex_unlock(&ctx->lock);
    return status == SYMM_OK ? SYMM_OK : symm__team_fail(team, status, "%s", said);
}

void symm__wide_reason(symm_team *team, symm_status status)
{
    double until = symm__now() + REASON_SECONDS;
    char sentence[SYMM_ERROR_BYTES];

    if (!team->wide || status == SYMM_ERR_TIMEOUT)
        return;
    snprintf(sentence, sizeof(sentence), "%s", symm_last_error());
    while (symm__now() < until && symm__engine_stop(team) == SYMM_OK)
        symm__sleep(LOOK_SECONDS);
    if (symm__team_failed(team) == SYMM_OK)
        (void)symm__fail_quiet(status, sentence);
}

symm_status symm__wide_reach(const char *what, const symm_team *team, int peer)
{
    const symm_ctx *ctx = team->ctx;
    int rank = team->world_rank[peer];

    if (!symm__is_far(ctx, rank))
        return SYMM_OK;
    return symm__fail(
        SYMM_ERR_UNSUPPORTED,
        "%s: rank %d is on host %s, whose memory is not mapped on host %s; "
        "symm_send and symm_recv reach it, with an engine",
        what, rank, ctx->host_name[ctx->host_of[rank]],
        ctx->host_name[ctx->host_of[ctx->rank]]);
}
