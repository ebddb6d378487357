/* SPDX-License-Identifier: MIT */
/*
 * one_sided.c - put, get, put_signal, signal, signal_wait on memory that is mapped here. The
 * rest describes the host backend; a device backend gets the checked call.
 *
 * The k-th signal from a sender stores k (with the site's tag) into the receiver's pad, one
 * word for each (sender, signal), written by that sender alone: release, after the data of
 * the put. The k-th wait returns when the word has reached k: acquire. k is counted when the
 * call is made, so signals of one number belong on one stream.
 */
#include <stdlib.h>
#include <string.h>

#include "call/channel.h"
#include "call/seen.h"
#include "call/slow_wait.h"
#include "call/work.h"
#include "core/device_ops.h"
#include "core/failure.h"
#include "core/registered.h"
#include "memory/team_plan.h"
#include "record/record.h"
#include "util/status.h"

/* One call: a copy, a signal, both, or a wait. */
struct transfer {
    struct symm_task task;
    symm_team *team;
    symm_work *work;
    void *dst;
    const void *src;
    size_t bytes;
    int peer, signal; /* signal -1: none */
    bool waits, gets;
    uint64_t seen; /* the call's number */
    uint32_t step; /* see call/seen.h */
    uint32_t count, tag;
    double timeout;
    const char *algorithm;                /* the caller's; NULL: none named */
    const char *path;                     /* for symm_explain */
    const struct symm_plan_site *planned; /* NULL: none */
    const char *name;                     /* the caller's, whole; for the recorder */
    char site[SYMM_SITE_NAME_BYTES];
    const void *stream; /* host; NULL: the default one */
};

static void raise_signal(symm_team *team, const struct transfer *t)
{
    struct symm_pad *pad = team->pad[symm__team_place(team, t->peer)];
    uint64_t *word = &pad->signals[team->local_rank][t->signal];

    /* release: pairs with the acquire in symm__wait_signal of the receiver */
    symm_device_word_store(word, symm_device_word(t->tag, t->count));
    if (__atomic_load_n(&pad->wake[SYMM_HOST_CHANNELS].sleepers, __ATOMIC_RELAXED) != 0)
        symm__wait_wake(word);
}

static symm_status perform(struct transfer *t)
{
    symm_status status = symm__team_failed(t->team);

    if (status != SYMM_OK)
        return status;
    if (t->waits)
        return symm__wait_signal(t->team, t->peer, t->signal, t->count, t->tag, t->site,
                                 t->stream, t->timeout);
    if (t->bytes > 0)
        memmove(t->dst, t->src, t->bytes); /* to oneself they may overlap */
    /* Fill before the signal: after it the receiver may overwrite the freed buffers. */
    if (t->planned)
        symm__plan_fill(t->planned);
    if (t->signal >= 0)
        raise_signal(t->team, t);
    return SYMM_OK;
}

static void run_queued(struct symm_task *task)
{
    struct transfer *t = (struct transfer *)task;
    symm_status status;

    symm__work_begin(t->work, t->timeout);
    symm__sight_run(t->team->ctx->sight, t->seen, t->step);
    status = perform(t);
    symm__seen_end(t->team, t->seen, status, SYMM_SIGHT_DONE);
    symm__work_complete(t->work, status);
    free(t);
}

static symm_status enqueue(const struct transfer *t, void *stream)
{
    const symm_ctx *ctx = t->team->ctx;
    struct transfer *queued = malloc(sizeof(*queued));

    if (!queued)
        return symm__fail(SYMM_ERR_NOMEM, "no memory to queue a call");
    *queued = *t;
    queued->stream = stream;
    queued->task.run = run_queued;
    symm__stream_used(t->team, stream);
    ctx->ops->stream_push(ctx->backend, stream, &queued->task);
    return SYMM_OK;
}

/* The counter of this call; undone if the call fails here. */
static uint32_t *counter_of(const struct transfer *t)
{
    symm_team *team = t->team;
    uint32_t *counters = t->waits ? team->awaited : team->sent;

    return &counters[symm__team_place(team, t->peer) * SYMM_SIGNALS + t->signal];
}

static void see(struct transfer *t, const char *what, bool queued)
{
    struct symm_sight_what about = {.op = what + strlen("symm_"),
                                    .name = t->site,
                                    .root = t->team->world_rank[t->peer],
                                    .signal = t->signal,
                                    .bytes = t->bytes,
                                    .count = t->bytes};

    t->step = t->signal >= 0
                  ? t->count
                  : symm__seen_step(t->team, t->gets ? SYMM_STEP_GET : SYMM_STEP_PUT,
                                    t->peer);
    t->seen = symm__seen_begin(t->team, &about, t->tag, t->step,
                               queued ? SYMM_SIGHT_QUEUED : SYMM_SIGHT_RUNNING);
}

static symm_status launch_device(struct transfer *t, const char *what, void *stream,
                                 symm_work **work)
{
    struct symm_transfer transfer = {.team = t->team,
                                     .what = what,
                                     .dst = t->dst,
                                     .src = t->src,
                                     .bytes = t->bytes,
                                     .peer = t->peer,
                                     .signal = t->signal,
                                     .waits = t->waits,
                                     .gets = t->gets,
                                     .tag = t->tag,
                                     .timeout = t->timeout,
                                     .algorithm = t->algorithm};
    bool captured = false;
    symm_status status;

    memcpy(transfer.site, t->site, sizeof(transfer.site));
    if (t->signal >= 0) /* device code counts signals itself */
        t->count = __atomic_add_fetch(counter_of(t), 1, __ATOMIC_RELAXED);
    see(t, what, false);
    status =
        t->team->device_ops->transfer(&transfer, stream, work, &t->path, &captured);
    symm__seen_end(t->team, t->seen, status,
                   captured ? SYMM_SIGHT_CAPTURED : SYMM_SIGHT_LAUNCHED);
    if (status != SYMM_OK && t->signal >= 0)
        __atomic_sub_fetch(counter_of(t), 1, __ATOMIC_RELAXED);
    return status;
}

static symm_status launch(struct transfer *t, const char *what, void *stream,
                          symm_work **work)
{
    symm_status status = SYMM_OK;

    if (t->team->device_ops)
        return launch_device(t, what, stream, work);
    if (work) {
        status = symm__work_create(t->team->ctx, true, &t->work);
        if (status != SYMM_OK)
            return status;
    }
    if (t->signal >= 0)
        t->count = __atomic_add_fetch(counter_of(t), 1, __ATOMIC_RELAXED);
    see(t, what, stream != NULL);
    status = stream ? enqueue(t, stream) : perform(t);
    if (!stream || status != SYMM_OK)
        symm__seen_end(t->team, t->seen, status, SYMM_SIGHT_DONE);
    if (status != SYMM_OK && t->signal >= 0)
        __atomic_sub_fetch(counter_of(t), 1, __ATOMIC_RELAXED);
    if (!stream || status != SYMM_OK) /* else the worker completes it */
        symm__work_complete(t->work, status);
    if (status != SYMM_OK)
        symm_work_release(t->work);
    else if (work)
        *work = t->work;
    return status;
}

static symm_status check_peer(const char *what, const struct transfer *t)
{
    if (t->peer < 0 || t->peer >= t->team->size)
        return symm__fail(SYMM_ERR_INVALID, "%s: peer %d; the team has ranks 0 to %d",
                          what, t->peer, t->team->size - 1);
    if (t->signal < -1 || t->signal >= SYMM_SIGNALS)
        return symm__fail(SYMM_ERR_INVALID, "%s: signal %d; signals are 0 to %d", what,
                          t->signal, SYMM_SIGNALS - 1);
    return SYMM_OK;
}

/* Translates an own address of symmetric memory to the peer's. */
static symm_status translate(const char *what, const struct transfer *t,
                             const void *own, void **theirs)
{
    const symm_team *team = t->team;
    symm_status status;
    size_t offset;

    if (t->bytes == 0) {
        *theirs = NULL;
        return SYMM_OK;
    }
    if (!t->dst || !t->src)
        return symm__fail(SYMM_ERR_INVALID, "%s of %zu bytes: %s is NULL", what,
                          t->bytes, t->dst ? "src" : "dst");
    status = symm__team_extent(team->ctx, what, "src", t->src, t->bytes);
    if (status == SYMM_OK)
        status = symm__team_extent(team->ctx, what, "dst", t->dst, t->bytes);
    if (status == SYMM_OK && team->device_ops)
        status = team->device_ops->reach(t->team, what, own == t->src ? "dst" : "src",
                                         own == t->src ? t->dst : t->src, t->bytes);
    if (status != SYMM_OK)
        return status;
    if (symm__registered_peer(t->team, own, t->bytes, t->peer, theirs))
        return SYMM_OK;
    if (!symm__team_symmetric(team, own, t->bytes, &offset))
        return symm__fail(SYMM_ERR_INVALID,
                          "%s: [%p, +%zu) is not symmetric memory that this team's "
                          "ranks have mapped; give this rank's own address of a buffer "
                          "that symm_rendezvous has covered",
                          what, own, t->bytes);
    *theirs = symm__heap_base(team->ctx, team->world_rank[t->peer]) + offset;
    return SYMM_OK;
}

/* Begins a call of this file: checks it, and holds the stream until `finish`. */
static symm_status begin(const char *what, struct transfer *t, const symm_call *given,
                         void **stream)
{
    symm_call call = {.size = sizeof(call)};
    symm_status status = symm__team_check_in(t->team, what);

    if (status != SYMM_OK)
        return status;
    if (given)
        status = symm__call_copy(given, &call);
    if (status == SYMM_OK)
        status = symm__team_failed(t->team);
    if (status == SYMM_OK)
        status = check_peer(what, t);
    if (status == SYMM_OK)
        status = symm__team_reach(what, t->team, t->peer);
    if (status != SYMM_OK)
        return status;
    /* The host copies memory; a device's backend checks the algorithm itself. */
    if (call.algorithm && !t->team->device_ops)
        return symm__fail(SYMM_ERR_INVALID,
                          "%s: algorithm '%.40s'; one-sided calls of the host backend "
                          "have none, leave symm_call.algorithm NULL",
                          what, call.algorithm);
    t->algorithm = call.algorithm;
    t->timeout = call.timeout > 0 ? call.timeout : t->team->ctx->timeout;
    t->tag = symm__site_name_tag(call.site);
    t->name = call.site;
    symm__site_name_set(t->site, call.site);
    *stream = call.stream;
    if (t->team->device_ops)
        status = t->team->device_ops->poll(t->team);
    return status == SYMM_OK ? symm__stream_enter(t->team, stream) : status;
}

/* Sets the path for symm_explain; another stream's thread may write it at the same time. */
static void note_path(const struct transfer *t, const char *path)
{
    __atomic_store_n(&t->team->last_path, t->path ? t->path : path, __ATOMIC_RELAXED);
}

static void finish(const struct transfer *t, const void *stream)
{
    symm__stream_leave(t->team, stream);
}

/* Finds the op of a put in its plan. Its entry barrier is a call of symm_barrier. */
static symm_status find_planned(const char *what, struct transfer *t,
                                const symm_call *call)
{
    const char *site =
        call && call->size >= offsetof(symm_call, stream) ? call->site : NULL;
    symm_status status;

    t->planned = symm__plan_find(t->team, site);
    if (!t->planned) {
        status = symm__plan_refuse(t->team, what, site, t->dst);
        return status == SYMM_OK ? symm__plan_refuse(t->team, what, site, t->src)
                                 : status;
    }
    if (t->planned->op->algorithm == SYMM_ALGORITHM_PUT) {
        if (t->planned->op->up_to > 0 && t->bytes > t->planned->op->up_to)
            return symm__plan_too_large(t->planned, what, t->bytes);
        return symm__plan_expect(t->planned);
    }
    return symm__fail(
        SYMM_ERR_INVALID,
        "plan '%s' has %s at '%s', and the call is %s; give each call site a name of "
        "its own",
        t->planned->plan->path,
        t->planned->op->norm ? "an all_reduce_norm" : "a collective", site, what);
}

/* in, out: as the caller gave them. */
static void record(symm_record_kind kind, const struct transfer *t, const void *in,
                   const void *out, const void *stream, symm_work *work)
{
    const struct symm_record_call made = {.kind = kind,
                                          .team = t->team,
                                          .in = in,
                                          .out = out,
                                          .in_bytes = t->bytes,
                                          .out_bytes = t->bytes,
                                          .count = t->bytes,
                                          .dtype = SYMM_UINT8,
                                          .peer = t->peer,
                                          .signal = t->signal,
                                          .site = t->name,
                                          .stream = stream};

    symm__record_calls(&made, 1, work);
}

static symm_status put(const char *what, struct transfer *t, const symm_call *call,
                       symm_work **work)
{
    void *own = t->dst, *stream;
    symm_status status = begin(what, t, call, &stream);

    if (status != SYMM_OK)
        return status;
    status = find_planned(what, t, call);
    if (status == SYMM_OK)
        status = translate(what, t, own, &t->dst);
    if (status == SYMM_OK)
        status = launch(t, what, stream, work);
    if (status == SYMM_OK && t->planned)
        symm__plan_advance(t->planned);
    if (symm__is_recorded(t->team->ctx) && status == SYMM_OK)
        record(t->signal < 0 ? SYMM_RECORD_PUT : SYMM_RECORD_PUT_SIGNAL, t, t->src, own,
               stream, work ? *work : NULL);
    note_path(t, "a put copies into the peer's mapping; a signal follows the data");
    finish(t, stream);
    return status;
}

symm_status symm_put(symm_team *team, void *dst, const void *src, size_t bytes,
                     int peer, const symm_call *call, symm_work **work)
{
    struct transfer t = {.team = team,
                         .dst = dst,
                         .src = src,
                         .bytes = bytes,
                         .peer = peer,
                         .signal = -1};

    return put("symm_put", &t, call, work);
}

symm_status symm_put_signal(symm_team *team, void *dst, const void *src, size_t bytes,
                            int peer, int signal, const symm_call *call,
                            symm_work **work)
{
    struct transfer t = {.team = team,
                         .dst = dst,
                         .src = src,
                         .bytes = bytes,
                         .peer = peer,
                         .signal = signal};

    if (team && signal < 0)
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_put_signal: signal %d; signals are 0 to %d", signal,
                          SYMM_SIGNALS - 1);
    return put("symm_put_signal", &t, call, work);
}

symm_status symm_get(symm_team *team, void *dst, const void *src, size_t bytes,
                     int peer, const symm_call *call, symm_work **work)
{
    struct transfer t = {.team = team,
                         .dst = dst,
                         .src = src,
                         .bytes = bytes,
                         .peer = peer,
                         .signal = -1,
                         .gets = true};
    void *stream, *theirs;
    symm_status status = begin("symm_get", &t, call, &stream);

    if (status != SYMM_OK)
        return status;
    status = translate("symm_get", &t, src, &theirs);
    t.src = theirs;
    if (status == SYMM_OK)
        status = launch(&t, "symm_get", stream, work);
    if (symm__is_recorded(team->ctx) && status == SYMM_OK)
        record(SYMM_RECORD_GET, &t, src, t.dst, stream, work ? *work : NULL);
    note_path(&t, "a get copies from the peer's mapping");
    finish(&t, stream);
    return status;
}

static symm_status signal_call(const char *what, struct transfer *t,
                               const symm_call *call, symm_work **work)
{
    void *stream;
    symm_status status;

    if (t->team && t->signal < 0)
        return symm__fail(SYMM_ERR_INVALID, "%s: signal %d; signals are 0 to %d", what,
                          t->signal, SYMM_SIGNALS - 1);
    status = begin(what, t, call, &stream);
    if (status != SYMM_OK)
        return status;
    status = launch(t, what, stream, work);
    if (symm__is_recorded(t->team->ctx) && status == SYMM_OK)
        record(t->waits ? SYMM_RECORD_WAIT : SYMM_RECORD_SIGNAL, t, NULL, NULL, stream,
               work ? *work : NULL);
    note_path(t, "a signal is one store into the peer's pad");
    finish(t, stream);
    return status;
}

symm_status symm_signal(symm_team *team, int peer, int signal, const symm_call *call,
                        symm_work **work)
{
    struct transfer t = {.team = team, .peer = peer, .signal = signal};

    return signal_call("symm_signal", &t, call, work);
}

symm_status symm_signal_wait(symm_team *team, int peer, int signal,
                             const symm_call *call, symm_work **work)
{
    struct transfer t = {.team = team, .peer = peer, .signal = signal, .waits = true};

    return signal_call("symm_signal_wait", &t, call, work);
}
