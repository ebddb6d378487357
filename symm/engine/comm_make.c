/* SPDX-License-Identifier: MIT */
/*
 * comm_make.c - makes a communicator: see comm_make.h.
 *
 * The engine's own part runs on a helper thread (helper.h), which is left behind where it does not
 * return. What such a thread may still use is never freed.
 */
#include "engine/comm_make.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/control_wait.h"
#include "core/earlier.h"
#include "core/failure.h"
#include "engine/comm_end.h"
#include "engine/helper.h"
#include "oob/packet.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/status.h"

#define CREATE_PART   0.75 /* of the timeout; the rest is for the exchange of statuses */
/* for this step, once a member has given it up */
#define ALONE_SECONDS 3.0
#define SPLIT_PART    0.5  /* of the timeout; the rest is for making one by an id */

/* What members send each other before and after. */
struct wire_made {
    int32_t status, divisible;
    char sentence[384];
    struct symm_engine_id id;
};

/* One communicator in the making. */
struct making {
    symm_team *team;
    const int *members; /* team ranks, ascending; NULL: all */
    int count, index;   /* of this rank among them */
    struct symm_engine_id id;
    double until;
    double alone; /* when a member was first seen to have given up; 0: not yet */
    bool pair;    /* no final status exchange: a member may return before others know */
    int color, size;      /* for a split: of the new communicator */
    bool asks, divisible; /* whether all members could split the team's communicator */
    bool left;            /* a step has not returned */
    struct symm_engine_comm *comm;
};

static int member_of(const struct making *making, int index)
{
    return making->members ? making->members[index] : index;
}

static struct wire_made wire_of(symm_status status, const struct symm_engine_id *id,
                                bool divisible)
{
    struct wire_made wire = {.status = status, .divisible = divisible};

    if (status != SYMM_OK)
        snprintf(wire.sentence, sizeof(wire.sentence), "%s", symm_last_error());
    else if (id)
        wire.id = *id;
    return wire;
}

/* Fails with the status and sentence of the first member that has failed. */
static symm_status all_well(const symm_team *team,
                            const struct symm_oob_message *messages, bool *divisible)
{
    *divisible = true;
    for (int m = 0; m < team->size; m++) {
        struct wire_made wire;
        char sentence[SYMM_ERROR_BYTES];

        if (messages[m].bytes_count != sizeof(wire))
            return symm__fail(SYMM_ERR_REFUSED, "rank %d sent a malformed id",
                              team->world_rank[m]);
        memcpy(&wire, messages[m].bytes, sizeof(wire));
        wire.sentence[sizeof(wire.sentence) - 1] = '\0';
        *divisible = *divisible && wire.divisible != 0;
        if (wire.status == SYMM_OK)
            continue;
        snprintf(sentence, sizeof(sentence), "rank %d: %s", team->world_rank[m],
                 wire.sentence);
        return symm__fail_quiet(wire.status >= SYMM_ERR_FORKED && wire.status < SYMM_OK
                                    ? (symm_status)wire.status
                                    : SYMM_ERR_REFUSED,
                                sentence);
    }
    return SYMM_OK;
}

/* Has this member gone on to the next step, and does not say there that it has made it? One that
 * has was quicker: this rank may be some seconds later. A pair has no such step. */
static bool has_given_up(const struct making *making, int rank)
{
    const symm_team *team = making->team;
    const struct symm_oob *oob = &team->ctx->oob;
    struct pollfd poll_fd = {.fd = oob->peer_fd[rank], .events = POLLIN};
    int32_t status = SYMM_ERR_ABORTED; /* the first of struct wire_made */

    if (symm__is_far(team->ctx, rank) || poll(&poll_fd, 1, 0) != 1)
        return false;
    return making->pair ||
           !symm__oob_peek_part(oob, rank, team->uid, team->sequence, &status,
                                sizeof(status)) ||
           status != SYMM_OK;
}

/* Stops the making of a pair's communicator if the team, which is in use meanwhile, has failed.
 * The context is locked, so symm__engine_stop does not ask other hosts. */
static symm_status pair_stop(void *arg, const int *ranks, int count)
{
    symm_team *team = arg;
    symm_status status = symm__engine_stop(team);

    (void)ranks, (void)count;
    return status == SYMM_OK ? symm__far_poll_locked(team) : status;
}

/* The rank of a member that will not take part: it has finalized if `finalized`, else died; -1:
 * none. All of the team's take part in the exchanges before and after, but of a pair. */
static int find_ended(const struct making *making, bool finalized)
{
    const symm_team *team = making->team;
    const struct symm_oob *oob = &team->ctx->oob;

    for (int i = 0; i < (making->pair ? 2 : team->size) && oob->alive; i++) {
        int rank = team->world_rank[making->pair ? member_of(making, i) : i];

        if (rank != oob->rank && !oob->alive(oob->alive_arg, rank) &&
            symm__oob_left(oob, rank) == finalized)
            return rank;
    }
    return -1;
}

/*
 * A member that has died, or gave up a while ago, will not take part. A member may have finalized
 * because another one died, so deaths are looked for last. A member of a pair may have done its
 * part before it finalized.
 */
static symm_status making_stop(void *arg)
{
    struct making *making = arg;
    const symm_ctx *ctx = making->team->ctx;
    double now = symm__now();
    symm_status status =
        making->pair ? pair_stop(making->team, NULL, -1)
                     : symm__oob_lost(&making->team->ctx->oob, making->team->before,
                                      making->team->before_sequence);
    int left = making->pair ? -1 : find_ended(making, true), dead;
    char earlier[SYMM_EARLIER_TEXT_BYTES] = "";

    if (status != SYMM_OK)
        return status;
    dead = find_ended(making, false);
    if (dead >= 0 || left >= 0)
        return symm__fail(SYMM_ERR_PEER_DEAD,
                          "rank %d has %s while a communicator was made%s",
                          dead >= 0 ? dead : left,
                          dead >= 0 ? "died or failed" : "finalized its context",
                          dead >= 0 ? "" : symm__earlier_text(ctx, left, earlier));
    for (int i = 0; i < making->count; i++) {
        int rank = making->team->world_rank[member_of(making, i)];

        if (rank == ctx->rank || !has_given_up(making, rank))
            continue;
        if (making->alone == 0)
            making->alone = now;
        if (now - making->alone > ALONE_SECONDS)
            return symm__fail(SYMM_ERR_ABORTED,
                              "rank %d has given up making a communicator", rank);
    }
    return SYMM_OK;
}

/* ---- The engine's part ------------------------------------------------------------ */

/* A job that makes an id or a communicator. It refers to nothing of the team, since it may be
 * left behind. */
struct make_job {
    struct symm_helper_job job;
    const struct symm_engine_ops *ops;
    struct symm_engine *engine;
    struct symm_engine_id id;
    struct symm_engine_comm *parent;
    int color;
    int rank, size;
    struct symm_engine_wait wait;
    struct symm_engine_comm *comm;
    int world_rank[];
};

static symm_status run_id(struct symm_helper_job *job)
{
    struct make_job *make = (struct make_job *)job;

    return make->ops->id_create(make->engine, &make->id);
}

static symm_status run_create(struct symm_helper_job *job)
{
    struct make_job *make = (struct make_job *)job;

    return make->ops->comm_create(make->engine, &make->id, make->rank, make->size,
                                  make->world_rank, &make->wait, &make->comm);
}

static symm_status run_split(struct symm_helper_job *job)
{
    struct make_job *make = (struct make_job *)job;

    return make->ops->comm_split(make->parent, make->color, make->size, &make->wait,
                                 &make->comm);
}

static void undo_create(struct symm_helper_job *job)
{
    struct make_job *make = (struct make_job *)job;

    if (!make->comm)
        return;
    make->ops->comm_abort(make->comm);
    make->ops->comm_destroy(make->comm);
}

static symm_status make_job(struct making *making,
                            symm_status (*run)(struct symm_helper_job *),
                            struct make_job **made)
{
    const symm_team *team = making->team;
    const struct symm_engine_use *use = team->ctx->engine;
    struct make_job *make =
        calloc(1, sizeof(*make) + (size_t)making->count * sizeof(make->world_rank[0]));

    if (!make)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a communicator");
    make->job.run = run;
    make->job.undo = undo_create;
    make->ops = use->ops;
    make->engine = use->engine;
    make->id = making->id;
    make->parent = team->engine ? team->engine->comm : NULL;
    make->color = making->color;
    make->rank = making->index;
    make->size = making->size;
    make->wait.until = making->until;
    if (!use->ops->blocks) { /* it polls by itself, on this thread */
        make->wait.stop = making_stop;
        make->wait.stop_arg = making;
    }
    for (int i = 0; i < making->count; i++)
        make->world_rank[i] = team->world_rank[member_of(making, i)];
    *made = make;
    return SYMM_OK;
}

/* Runs a step of the engine; its failure becomes this thread's last error. */
static symm_status take_step(struct making *making,
                             symm_status (*run)(struct symm_helper_job *),
                             const char *what)
{
    symm_ctx *ctx = making->team->ctx;
    const struct symm_engine_wait wait = {
        .until = making->until, .stop = making_stop, .stop_arg = making};
    double begin = symm__now();
    struct make_job *make = NULL;
    symm_status status = make_job(making, run, &make);

    if (status != SYMM_OK)
        return status;
    if (!symm__helper_run(ctx, &make->job, &wait, &status)) {
        making->left = true;
        return status != SYMM_OK
                   ? status
                   : symm__fail(
                         SYMM_ERR_TIMEOUT,
                         "%s: %s has not made it on rank %d within %.3g s; a rank "
                         "does not come, or it finds no way (NCCL_DEBUG=INFO says)",
                         what, ctx->engine->version, ctx->rank, symm__now() - begin);
    }
    if (status == SYMM_OK) {
        making->id = make->id;
        making->comm = make->comm;
    } else {
        status = symm__engine_reported(ctx, status, what);
    }
    free(make);
    return status;
}

/* The first member makes the id. */
static symm_status make_id(struct making *making)
{
    symm_status status = symm__helpers_open(making->team->ctx);

    if (status != SYMM_OK || making->index > 0)
        return status;
    return take_step(making, run_id, "no id for a communicator");
}

/* ---- Making one ------------------------------------------------------------------- */

/* One exchange of all members; `id`: from the leader to all of its group. */
static symm_status tell(struct making *making, const char *what, double timeout,
                        symm_status mine, bool with_id, bool *told)
{
    symm_team *team = making->team;
    struct symm_oob_message *messages = team->ctx->room.messages;
    const struct wire_made wire = wire_of(mine, with_id ? &making->id : NULL,
                                          making->asks && symm__engine_divisible(team));
    const struct symm_own_message own = {.bytes = &wire, .bytes_count = sizeof(wire)};
    symm_status status = symm__team_exchange(team, what, timeout, &own, messages);

    *told = status == SYMM_OK;
    if (status == SYMM_OK)
        status = all_well(team, messages, &making->divisible);
    if (status == SYMM_OK && with_id)
        memcpy(&making->id,
               (const char *)messages[member_of(making, 0)].bytes +
                   offsetof(struct wire_made, id),
               sizeof(making->id));
    symm__oob_messages_finish(messages, team->size);
    return status;
}

/* A split that was left behind holds the team's communicator: the team has no engine any more on
 * this rank. */
static void split_failed(symm_team *team)
{
    symm__log(SYMM_LOG_WARN, "rank %d: %s", team->ctx->rank, symm_last_error());
    symm__engine_team_abort(team);
    __atomic_store_n(&team->engine->left, true, __ATOMIC_RELAXED);
}

static symm_status take_split(struct making *making)
{
    symm_status status = take_step(making, run_split, "no split of a communicator");

    if (making->left)
        split_failed(making->team);
    return status;
}

/* Makes the communicator by an id of the first member; a communicator of one rank needs none. */
static symm_status take_create(struct making *making)
{
    return making->count == 1 && making->team->size > 1
               ? SYMM_OK
               : take_step(making, run_create, "no communicator");
}

/* Makes the communicator by a split or an id; all members learn the outcome. */
static symm_status make_by(struct making *making, bool split, double until, bool *told)
{
    symm_status status = SYMM_OK;

    if (!split) {
        status =
            making->count == 1 && making->team->size > 1 ? SYMM_OK : make_id(making);
        status = tell(making, "a communicator's id", until - symm__now(), status, true,
                      told);
        if (status != SYMM_OK)
            return status;
    }
    /* A member may have failed in that exchange, and does not come. */
    making->team->before = making->team->uid;
    making->team->before_sequence = making->team->sequence - 1;
    status = split ? take_split(making) : take_create(making);
    status = tell(making, "a communicator", until - symm__now(), status, false, told);
    if (status != SYMM_OK) {
        symm__comm_drop(making->team, making->comm);
        making->comm = NULL;
    }
    return status;
}

symm_status symm__comm_make(symm_team *team, const int *members, int count,
                            double timeout, struct symm_engine_comm **comm, bool *told)
{
    double begin = symm__now();
    struct making making = {.team = team,
                            .members = members,
                            .count = count,
                            .color = count > 1 && members ? members[0] : -1,
                            .size = count,
                            .until = begin + CREATE_PART * timeout};
    symm_status status = SYMM_OK;

    making.asks = team->engine && symm__engine_has(team->engine, true);
    while (making.index < count && member_of(&making, making.index) != team->rank)
        making.index++;
    if (making.asks) /* the same on all members */
        status =
            tell(&making, "a communicator's parent", timeout, SYMM_OK, false, told);
    if (status == SYMM_OK)
        status =
            make_by(&making, making.asks && making.divisible, begin + timeout, told);
    *comm = making.comm;
    return status;
}

symm_status symm__engine_comm_among(symm_team *team, const int *members, int count,
                                    double timeout, struct symm_engine_comm **comm)
{
    bool told;

    return symm__comm_make(team, members, count, timeout, comm, &told);
}

/* ---- Splitting and pairs ----------------------------------------------------------- */

symm_status symm__comm_take_given(symm_team *team, double timeout,
                                  struct symm_engine_comm **comm, bool *told)
{
    struct symm_engine_given *given = &team->ctx->engine->given;
    struct making making = {.team = team};
    symm_status status = given->comm ? SYMM_OK
                                     : symm__fail_quiet(SYMM_ERR_ABORTED,
                                                        "a communicator was not split");

    status = tell(&making, "a split communicator", timeout, status, false, told);
    if (status == SYMM_OK)
        *comm = given->comm;
    else
        symm__comm_drop(team, given->comm);
    given->comm = NULL;
    return status;
}

void symm__engine_split(symm_team *parent, int color, int size, double timeout)
{
    struct symm_engine_given *given = &parent->ctx->engine->given;
    struct making making = {.team = parent,
                            .count = parent->size,
                            .color = color,
                            .size = size,
                            .until = symm__now() + SPLIT_PART * timeout};

    *given = (struct symm_engine_given){.tried = true};
    if (take_split(&making) == SYMM_OK)
        given->comm = making.comm;
}

static uint64_t pair_tag(const symm_team *team, int peer)
{
    uint32_t low = (uint32_t)(team->rank < peer ? team->rank : peer);
    uint32_t high = (uint32_t)(team->rank < peer ? peer : team->rank);

    return (uint64_t)(0x70000000u | low << 14 | high) << 32 | team->uid;
}

/* The id goes from the lower rank to the higher, over their own socket. */
static symm_status pair_id(struct making *making, double timeout)
{
    symm_team *team = making->team;
    struct symm_oob_message messages[2] = {0};
    struct wire_made wire;
    int world[2] = {team->world_rank[making->members[0]],
                    team->world_rank[making->members[1]]};
    symm_status mine = make_id(making), status;
    char step[96];

    wire = wire_of(mine, &making->id, false);
    snprintf(step, sizeof(step), "the first message between ranks %d and %d", world[0],
             world[1]);
    const struct symm_exchange exchange = {
        .what = step,
        .tag = pair_tag(team, making->members[1 - making->index]),
        .members = world,
        .count = 2,
        .timeout = timeout,
        .stop = pair_stop,
        .stop_arg = team,
        .status = mine,
        .bytes = &wire,
        .bytes_count = sizeof(wire)};

    status = symm__control_exchange(team->ctx, team->uid, step, &exchange, messages);
    if (status == SYMM_OK && messages[0].bytes_count != sizeof(wire))
        status = symm__fail(SYMM_ERR_REFUSED, "rank %d sent a malformed id", world[0]);
    if (status == SYMM_OK)
        memcpy(&making->id,
               (const char *)messages[0].bytes + offsetof(struct wire_made, id),
               sizeof(making->id));
    symm__oob_messages_finish(messages, 2);
    return status;
}

symm_status symm__comm_make_pair(symm_team *team, int peer, double until,
                                 struct symm_engine_comm **comm)
{
    int members[2] = {team->rank < peer ? team->rank : peer,
                      team->rank < peer ? peer : team->rank};
    struct making making = {.team = team,
                            .members = members,
                            .count = peer == team->rank ? 1 : 2,
                            .size = peer == team->rank ? 1 : 2,
                            .index = team->rank > peer,
                            .until = until,
                            .pair = true};
    symm_status status =
        peer == team->rank ? make_id(&making) : pair_id(&making, until - symm__now());

    if (status == SYMM_OK)
        status = take_step(&making, run_create, "no communicator");
    *comm = making.comm;
    return status;
}
