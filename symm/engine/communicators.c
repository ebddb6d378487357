/* SPDX-License-Identifier: MIT */
/*
 * communicators.c - a team's communicators: made with the team, or when a call needs them
 * (comm_make.h); ended when the team fails or is destroyed. Where the engine was asked for by
 * name, a communicator that cannot be made is an error.
 */
#include <stdlib.h>

#include "core/failure.h"
#include "engine/comm_end.h"
#include "engine/comm_make.h"
#include "engine/runtime.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/status.h"

#define IDLE_SECONDS 0.02 /* for the watchdog to find that operations are over */
#define LOOK_SECONDS 0.001

/* ---- A team's own ---------------------------------------------------------------- */

symm_status symm__engine_team_prepare(const symm_team *team,
                                      struct symm_team_engine **made)
{
    const struct symm_engine_use *use = team->ctx->engine;
    struct symm_team_engine *te;

    *made = NULL;
    if (!use || !use->ops || (team->size == 1 && !use->asked) || team->inner)
        return SYMM_OK; /* the same on all members */
    te = calloc(1, sizeof(*te));
    if (te)
        te->pairs = calloc((size_t)team->size, sizeof(*te->pairs));
    if (!te || !te->pairs) {
        free(te);
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a team's communicators");
    }
    te->windows = use->windows;
    pthread_mutex_init(&te->lock, NULL);
    *made = te;
    return SYMM_OK;
}

void symm__engine_team_drop(struct symm_team_engine *te)
{
    if (!te)
        return;
    pthread_mutex_destroy(&te->lock);
    free(te->memory);
    free(te->window);
    free(te->pairs);
    free(te);
}

static symm_status make_whole(symm_team *team, double timeout,
                              struct symm_engine_comm **comm, bool *told)
{
    double until = symm__now() + timeout;
    symm_status status;

    if (team->ctx->engine->given.tried) {
        status = symm__comm_take_given(team, timeout, comm, told);
        if (status == SYMM_OK || !*told)
            return status;
    }
    return symm__comm_make(team, NULL, team->size, until - symm__now(), comm, told);
}

/* The communicators of teams over several domains are made when calls need them, except those of an
 * engine for the host: there calls run on threads of streams, in no order with other exchanges. */
static bool is_lazy(const symm_team *team)
{
    return team->ctx->engine->ops->device && team->spans;
}

symm_status symm__engine_team_open(symm_team *team, struct symm_team_engine *te,
                                   double timeout)
{
    const struct symm_engine_use *use = team->ctx->engine;
    symm_status status = SYMM_OK;
    bool told = false;
    char name[64];

    if (!te)
        return SYMM_OK;
    te->team = team;
    if (!is_lazy(team))
        status = make_whole(team, timeout, &te->comm, &told);
    if (status == SYMM_OK) {
        if (te->comm)
            symm__engine_memory_open(te);
        team->engine = te;
        return SYMM_OK;
    }
    symm__engine_team_drop(te);
    if (use->asked || !told)
        return status;
    if (team->rank == 0)
        symm__log(SYMM_LOG_WARN, "%s goes on without %s: %s",
                  symm__team_name(team, name, sizeof(name)), use->version,
                  symm_last_error());
    return SYMM_OK;
}

/* Takes no lock: a call of the engine that is under way may hold te->lock until it is aborted. */
void symm__engine_team_abort(symm_team *team)
{
    struct symm_team_engine *te = team->engine;
    const double until = symm__now() + SYMM_ABORT_SECONDS;
    bool done;

    /* seq_cst, also the loads: comm_keep stores a communicator, then loads `ended` */
    if (!te || __atomic_exchange_n(&te->ended, true, __ATOMIC_SEQ_CST))
        return;
    done = symm__comm_abort(team, __atomic_load_n(&te->comm, __ATOMIC_SEQ_CST), until);
    done =
        symm__comm_abort(team, __atomic_load_n(&te->rail, __ATOMIC_SEQ_CST), until) &&
        done;
    for (int m = 0; m < team->size; m++)
        done = symm__comm_abort(team, __atomic_load_n(&te->pairs[m], __ATOMIC_SEQ_CST),
                                until) &&
               done;
    if (!done)
        __atomic_store_n(&te->left, true, __ATOMIC_RELAXED);
}

void symm__engine_team_close(symm_team *team)
{
    struct symm_team_engine *te = team->engine;

    if (!te)
        return;
    if (*team->ctx->own_process == 1) { /* else the parent's threads have it */
        symm__engine_memory_close(te);
        if (__atomic_load_n(&team->failed, __ATOMIC_ACQUIRE) != SYMM_OK)
            symm__engine_team_abort(team);
        symm__engine_memory_drop(te);
        for (int m = 0; m < team->size; m++)
            symm__comm_close(te, te->pairs[m]);
        symm__comm_close(te, te->rail);
        symm__comm_close(te, te->comm);
    }
    team->engine = NULL;
    symm__engine_team_drop(te);
}

/* Makes the communicator one of the team's. If those have been aborted meanwhile, aborts it,
 * too. */
static symm_status comm_keep(symm_team *team, struct symm_engine_comm **place,
                             struct symm_engine_comm *comm)
{
    struct symm_team_engine *te = team->engine;

    __atomic_store_n(place, comm, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&te->ended, __ATOMIC_SEQ_CST))
        return SYMM_OK;
    if (!symm__comm_abort(team, comm, symm__now() + SYMM_ABORT_SECONDS))
        __atomic_store_n(&te->left, true, __ATOMIC_RELAXED);
    return symm__team_failed(team);
}

/* ---- On demand -------------------------------------------------------------------- */

bool symm__engine_divisible(const symm_team *team)
{
    const struct symm_team_engine *te = team->engine;
    double until = symm__now() + IDLE_SECONDS;

    if (!te || !symm__engine_has(te, true) || !team->ctx->engine->ops->comm_split ||
        __atomic_load_n(&te->ended, __ATOMIC_ACQUIRE) ||
        __atomic_load_n(&te->captured, __ATOMIC_RELAXED))
        return false;
    while (__atomic_load_n(&te->pending, __ATOMIC_ACQUIRE) > 0 && symm__now() < until)
        symm__sleep(LOOK_SECONDS);
    return __atomic_load_n(&te->pending, __ATOMIC_ACQUIRE) == 0;
}

void symm__engine_split_end(symm_team *parent)
{
    struct symm_engine_given *given = &parent->ctx->engine->given;

    symm__comm_drop(parent, given->comm);
    *given = (struct symm_engine_given){0};
}

symm_status symm__engine_need(symm_team *team, bool all, double timeout, bool *told)
{
    struct symm_team_engine *te = team->engine;
    const struct symm_hierarchy *hierarchy = team->hierarchy;
    struct symm_engine_comm *comm = NULL;
    symm_status status;

    *told = false;
    pthread_mutex_lock(&team->ctx->lock);
    /* so that a failure of the team ends the exchanges */
    team->ctx->in_rendezvous = team;
    status = symm__team_failed(team);
    if (status == SYMM_OK && !symm__engine_has(te, all)) {
        status = all ? make_whole(team, timeout, &comm, told)
                     : symm__comm_make(team, hierarchy->rail, hierarchy->rail_count,
                                       timeout, &comm, told);
        if (status == SYMM_OK)
            status = comm_keep(team, all ? &te->comm : &te->rail, comm);
        if (status == SYMM_OK && all)
            symm__engine_memory_open(te);
        if (status == SYMM_OK && !all)
            __atomic_store_n(&te->railed, true, __ATOMIC_RELEASE);
    }
    team->ctx->in_rendezvous = NULL;
    pthread_mutex_unlock(&team->ctx->lock);
    return status;
}

/* ---- Pairs ----------------------------------------------------------------------- */

symm_status symm__engine_pair(symm_team *team, int peer, double until,
                              struct symm_engine_comm **comm)
{
    struct symm_team_engine *te = team->engine;
    struct symm_engine_comm *made = NULL;
    symm_status status = SYMM_OK;

    pthread_mutex_lock(&team->ctx->lock);
    if (!te->pairs[peer]) {
        status = symm__comm_make_pair(team, peer, until, &made);
        if (status == SYMM_OK)
            status = comm_keep(team, &te->pairs[peer], made);
    }
    pthread_mutex_unlock(&team->ctx->lock);
    *comm = te->pairs[peer];
    return status;
}

symm_status symm__engine_stop(void *arg)
{
    symm_team *team = arg;
    symm_status status = symm__team_failed(team);

    for (int p = 0; p < team->local_size && status == SYMM_OK; p++) {
        int rank = symm__team_rank_at(team, p);
        const symm_ctx *ctx = team->ctx;
        const char *why;

        if (p == team->local_rank || symm__team_far_at(team, p))
            continue;
        status = symm__team_record_of(team, team->local[p]);
        if (status == SYMM_OK && symm__rank_died(ctx, rank, &why) == SYMM_ERR_PEER_DEAD)
            status = symm__team_fail(team, SYMM_ERR_PEER_DEAD,
                                     "rank %d %s during an operation of %s", rank, why,
                                     ctx->engine->version);
    }
    if (status == SYMM_OK && team->far)
        status = symm__far_poll(team);
    return status;
}
