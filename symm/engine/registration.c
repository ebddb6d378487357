/* SPDX-License-Identifier: MIT */
/*
 * registration.c - which memory of this rank a team's communicator has registered.
 *
 * A trace hook registers segments as they appear (those that exist come first, by the
 * snapshot that a new hook gets) and deregisters them before they go. An address is
 * registered once; memory that cannot be is left alone, with one line.
 *
 * Windows are collective. After a rendezvous the members compare their new segments and
 * register them in order of offset, one at a time: if one fails on a member, all members
 * deregister their windows and make no more.
 */
#include <stdlib.h>
#include <string.h>

#include "core/failure.h"
#include "core/team.h"
#include "core/trace.h"
#include "engine/helper.h"
#include "engine/runtime.h"
#include "util/clock.h"
#include "util/hash.h"
#include "util/log.h"
#include "util/status.h"

#define WINDOW_SECONDS                                                                 \
    20.0 /* for the peers to make a window, too; at most the timeout */

/* A call on one piece of memory. */
struct piece {
    const struct symm_team_engine *te;
    struct symm_engine_memory *memory;
    bool window;
};

static symm_status piece_register(void *arg)
{
    const struct piece *piece = arg;
    struct symm_engine_memory *memory = piece->memory;

    return piece->te->team->ctx->engine->ops->memory_register(
        piece->te->comm, memory->at, memory->bytes, &memory->handle);
}

static symm_status piece_deregister(void *arg)
{
    const struct piece *piece = arg;
    const struct symm_engine_ops *ops = piece->te->team->ctx->engine->ops;

    if (piece->window)
        ops->window_deregister(piece->te->comm, piece->memory->handle);
    else
        ops->memory_deregister(piece->te->comm, piece->memory->handle);
    return SYMM_OK;
}

static void piece_drop(const struct symm_team_engine *te,
                       struct symm_engine_memory *memory, bool window)
{
    struct piece piece = {te, memory, window};

    if (memory->handle &&
        symm__engine_within(te->team->ctx, true, piece_deregister, &piece) != SYMM_OK)
        symm__log(SYMM_LOG_DEBUG, "memory stays registered: %s", symm_last_error());
    memory->handle = NULL;
}

static symm_status reserve(struct symm_engine_memory **list, size_t count,
                           size_t *capacity)
{
    size_t wanted = *capacity ? 2 * *capacity : 8;
    struct symm_engine_memory *grown;

    if (count < *capacity)
        return SYMM_OK;
    grown = realloc(*list, wanted * sizeof(*grown));
    if (!grown)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a list of %zu segments",
                          wanted);
    *list = grown;
    *capacity = wanted;
    return SYMM_OK;
}

static size_t find(const struct symm_engine_memory *list, size_t count, const void *at)
{
    size_t i = 0;

    while (i < count && list[i].at != at)
        i++;
    return i;
}

/* ---- Segments, by the hook: with te->lock ---------------------------------------- */

static void appeared(struct symm_team_engine *te, char *at, size_t bytes)
{
    struct symm_engine_memory *memory;
    struct piece piece = {.te = te};
    symm_status status;

    if (find(te->memory, te->memory_count, at) < te->memory_count)
        return;
    status = reserve(&te->memory, te->memory_count, &te->memory_capacity);
    if (status == SYMM_OK) {
        memory = &te->memory[te->memory_count++];
        *memory = (struct symm_engine_memory){at, bytes, NULL};
        piece.memory = memory;
        status = symm__engine_within(te->team->ctx, false, piece_register, &piece);
    }
    if (status != SYMM_OK) {
        status = symm__engine_reported(te->team->ctx, status, "");
        symm__log(SYMM_LOG_INFO,
                  "rank %d: [%p, +%zu) is not registered with %s (%s) and serves "
                  "without",
                  te->team->ctx->rank, (void *)at, bytes,
                  te->team->ctx->engine->version, symm_last_error());
    }
}

static void went(struct symm_team_engine *te, const char *at)
{
    size_t i = find(te->window, te->window_count, at);

    if (i < te->window_count) {
        piece_drop(te, &te->window[i], true);
        te->window[i] = te->window[--te->window_count];
    }
    i = find(te->memory, te->memory_count, at);
    if (i < te->memory_count) {
        piece_drop(te, &te->memory[i], false);
        te->memory[i] = te->memory[--te->memory_count];
    }
}

static void on_segment(void *arg, symm_trace_event event, void *ptr, size_t bytes)
{
    struct symm_team_engine *te = arg;

    if (__atomic_load_n(&te->ended, __ATOMIC_ACQUIRE))
        return; /* the abort has ended all registrations */
    pthread_mutex_lock(&te->lock);
    if (event == SYMM_TRACE_ALLOC && te->team->ctx->engine->registers)
        appeared(te, ptr, bytes);
    else if (event == SYMM_TRACE_FREE)
        went(te, ptr);
    pthread_mutex_unlock(&te->lock);
}

void symm__engine_memory_open(struct symm_team_engine *te)
{
    te->hooked =
        symm__trace_attach(te->team->ctx, on_segment, te, &te->hook) == SYMM_OK;
    if (!te->hooked)
        symm__log(SYMM_LOG_WARN, "rank %d: memory is not registered: %s",
                  te->team->ctx->rank, symm_last_error());
}

void symm__engine_memory_close(struct symm_team_engine *te)
{
    if (te->hooked)
        symm__trace_detach(te->team->ctx, te->hook);
    te->hooked = false;
}

void symm__engine_memory_drop(struct symm_team_engine *te)
{
    while (te->window_count > 0)
        piece_drop(te, &te->window[--te->window_count], true);
    while (te->memory_count > 0)
        piece_drop(te, &te->memory[--te->memory_count], false);
}

/* ---- Windows --------------------------------------------------------------------- */

static char *segment_address(const symm_team *team, const struct symm_segment *segment)
{
    return symm__heap_base(team->ctx, team->ctx->rank) + segment->offset;
}

/* A hash of offset and size of the segments from `first` on. */
static uint64_t digest(const symm_team *team, size_t first)
{
    uint64_t hash = symm__fnv(SYMM_FNV_BASIS, &first, sizeof(first));

    for (size_t i = first; i < team->segment_count; i++) {
        const size_t span[2] = {team->segments[i].offset, team->segments[i].bytes};

        hash = symm__fnv(hash, span, sizeof(span));
    }
    return hash;
}

/* Have all members the same value? *same is equal on all. */
static symm_status compare(symm_team *team, const char *what, uint64_t mine, bool *same)
{
    struct symm_oob_message *messages = team->ctx->room.messages;
    const struct symm_own_message own = {.bytes = &mine, .bytes_count = sizeof(mine)};
    symm_status status =
        symm__team_exchange(team, what, team->ctx->timeout, &own, messages);

    *same = true;
    for (int m = 0; status == SYMM_OK && m < team->size; m++)
        *same = *same && messages[m].bytes_count == sizeof(mine) &&
                memcmp(messages[m].bytes, messages[0].bytes, sizeof(mine)) == 0;
    symm__oob_messages_finish(messages, team->size);
    return status;
}

/* Makes a window, on a helper thread: it waits for the peers. */
struct window_job {
    struct symm_helper_job job;
    const struct symm_engine_ops *ops;
    struct symm_engine_comm *comm;
    struct symm_engine_memory memory;
};

static symm_status run_window(struct symm_helper_job *job)
{
    struct window_job *window = (struct window_job *)job;

    return window->ops->window_register(window->comm, window->memory.at,
                                        window->memory.bytes, &window->memory.handle);
}

/* A registration that does not return is ended by an abort, so the team has no engine then. */
static symm_status window_late(struct symm_team_engine *te, double seconds)
{
    symm_team *team = te->team;
    symm_status status = symm__team_fail(
        team, SYMM_ERR_TIMEOUT,
        "rank %d: %s has made no window within %g s; its communicator was aborted; "
        "SYMM_NCCL_WINDOW=0 does without",
        team->ctx->rank, team->ctx->engine->version, seconds);

    symm__engine_team_abort(team);
    /* The thread may return only now; the thread that ends the communicator does not wait for
     * it. */
    __atomic_store_n(&te->left, true, __ATOMIC_RELAXED);
    return status;
}

static symm_status window_make(struct symm_team_engine *te,
                               struct symm_engine_memory *memory)
{
    const double timeout = te->team->ctx->timeout;
    const double seconds = timeout < WINDOW_SECONDS ? timeout : WINDOW_SECONDS;
    const struct symm_engine_wait wait = {.until = symm__now() + seconds};
    struct window_job *window = calloc(1, sizeof(*window));
    symm_status status;

    if (!window)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a window");
    window->job.run = run_window;
    window->ops = te->team->ctx->engine->ops;
    window->comm = te->comm;
    window->memory = *memory;
    if (!symm__helper_run(te->team->ctx, &window->job, &wait, &status))
        return window_late(te, seconds);
    *memory = window->memory;
    free(window);
    return status == SYMM_OK ? SYMM_OK
                             : symm__engine_reported(te->team->ctx, status, "");
}

/* Registers one segment, after those that have a window. */
static symm_status register_one(struct symm_team_engine *te,
                                const struct symm_segment *segment)
{
    struct symm_engine_memory memory = {.at = segment_address(te->team, segment),
                                        .bytes = segment->bytes};
    symm_status status;

    if (__atomic_load_n(&te->ended, __ATOMIC_ACQUIRE))
        return symm__fail_quiet(SYMM_ERR_ABORTED, "the communicator was aborted");
    pthread_mutex_lock(&te->lock);
    status = reserve(&te->window, te->window_count, &te->window_capacity);
    pthread_mutex_unlock(&te->lock);
    if (status == SYMM_OK)
        status = window_make(te, &memory);
    if (status != SYMM_OK)
        return status;
    /* only rendezvous adds windows, so there is still room */
    pthread_mutex_lock(&te->lock);
    te->window[te->window_count++] = memory;
    pthread_mutex_unlock(&te->lock);
    return SYMM_OK;
}

/*
 * Registers the segments from `first` on. The members agree on each one before the next: a
 * member whose registration failed does not reach another, where its peers would wait for
 * it. *same: all have all of them; else `why` says what failed.
 */
static symm_status register_from(struct symm_team_engine *te, size_t first, bool *same,
                                 char why[SYMM_ERROR_BYTES])
{
    symm_team *team = te->team;
    symm_status status = SYMM_OK, mine;

    *same = true;
    for (size_t i = first; status == SYMM_OK && *same && i < team->segment_count; i++) {
        mine = register_one(te, &team->segments[i]);
        strncpy(why,
                mine == SYMM_OK ? "a peer's registration failed" : symm_last_error(),
                SYMM_ERROR_BYTES - 1);
        status = compare(team, "a window was made",
                         mine == SYMM_OK ? 0 : 1 + (uint64_t)team->rank, same);
        *same = *same && mine == SYMM_OK;
    }
    return status;
}

static void windows_end(struct symm_team_engine *te, const char *why)
{
    pthread_mutex_lock(&te->lock);
    while (te->window_count > 0)
        piece_drop(te, &te->window[--te->window_count], true);
    te->windows = false;
    pthread_mutex_unlock(&te->lock);
    symm__log(SYMM_LOG_WARN, "rank %d: no windows of %s any more: %s",
              te->team->ctx->rank, te->team->ctx->engine->version, why);
}

symm_status symm__engine_windows(symm_team *team)
{
    struct symm_team_engine *te = team->engine;
    char why[SYMM_ERROR_BYTES] = "the members' segments differ";
    size_t first;
    bool same;
    symm_status status;

    if (!te || !te->windows)
        return SYMM_OK; /* the same on all members */
    first = te->window_count;
    status = compare(team, "windows of new memory", digest(team, first), &same);
    if (status != SYMM_OK)
        return status;
    if (same && first == team->segment_count)
        return SYMM_OK;
    if (same)
        status = register_from(te, first, &same, why);
    if (status != SYMM_OK)
        return status;
    if (!same)
        windows_end(te, why);
    return symm__team_failed(team);
}
