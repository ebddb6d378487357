/* SPDX-License-Identifier: MIT */
/* channel.c - see channel.h. */
#include "cuda/channel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/channel_table.h"
#include "cuda/map.h"
#include "cuda/processors.h"
#include "util/status.h"

#define DEFAULT_STREAM UINT64_MAX          /* its id */
#define CAPTURED       (UINT64_C(1) << 63) /* in the id of a stream first met in a capture */
#define NAMED          UINT64_C(2) /* in keys of channels that calls have named */

/* Captured calls of a channel that live graphs hold; freed with the last reference. */
struct symm_cuda_pin {
    int references; /* atomic: the channel's, and one for each graph */
    int graphs;     /* atomic */
};

symm_status symm__cuda_stream_id(symm_ctx *ctx, void *stream, uint64_t *id)
{
    const struct symm_cuda_driver *driver = ctx->launcher->driver;
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    unsigned long long number = 0;
    CUresult result;
    char name[48];

    *id = DEFAULT_STREAM;
    if (!stream)
        return SYMM_OK;
    /* A query for the id of a stream that is being captured breaks the capture. */
    if (symm__cuda_on_stream(ctx->launcher, SYMM_CUDA_CAPTURE, stream, &capture) ==
            CUDA_SUCCESS &&
        capture == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        *id = (uintptr_t)stream | CAPTURED;
        return SYMM_OK;
    }
    if (!driver->cuStreamGetId && stream == (void *)CU_STREAM_PER_THREAD)
        return symm__fail(
            SYMM_ERR_UNSUPPORTED,
            "the per-thread default stream is another one in each thread, and the "
            "driver of rank %d cannot tell which (CUDA 12.0 can); give each thread a "
            "stream of its own (symm_stream_create, cudaStreamCreate)",
            ctx->rank);
    if (!driver->cuStreamGetId) {
        *id = (uintptr_t)stream;
        return SYMM_OK;
    }
    result = symm__cuda_on_stream(ctx->launcher, SYMM_CUDA_ID, stream, &number);
    *id = number + 1; /* 0: no stream */
    return symm__cuda_check(driver, result, "cuStreamGetId", "%s of rank %d",
                            symm__cuda_stream_text(stream, name, sizeof(name)),
                            ctx->rank);
}

/* ---- Graphs --------------------------------------------------------------------------- */

static void pin_release(struct symm_cuda_pin *pin)
{
    /* acq_rel: the last one to release frees what the others wrote */
    if (pin && __atomic_sub_fetch(&pin->references, 1, __ATOMIC_ACQ_REL) == 0)
        free(pin);
}

static void CUDA_CB graph_gone(void *arg)
{
    struct symm_cuda_pin *pin = arg;

    __atomic_sub_fetch(&pin->graphs, 1, __ATOMIC_RELEASE);
    pin_release(pin);
}

void symm__cuda_channel_close(symm_team *team)
{
    for (int c = 0; c < SYMM_CHANNELS; c++) {
        pin_release(team->channel[c].pin);
        team->channel[c].pin = NULL;
    }
    symm__cuda_map_free(&team->cuda->begun);
    symm__cuda_map_free(&team->cuda->keys);
    symm__cuda_map_free(&team->cuda->tries);
}

static bool is_pinned(const struct symm_team_channel *channel)
{
    struct symm_cuda_pin *pin = __atomic_load_n(&channel->pin, __ATOMIC_ACQUIRE);

    return pin && __atomic_load_n(&pin->graphs, __ATOMIC_ACQUIRE) != 0;
}

/* Makes the graph that captures the channel's stream hold the channel: until the graph's end if an
 * object can report that, else for good. */
static void pin_graph(const struct symm_cuda_driver *driver,
                      struct symm_team_channel *channel)
{
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    CUuserObject object;
    CUgraph graph = NULL;
    cuuint64_t id = 0;

    if (driver->cuStreamGetCaptureInfo &&
        driver->cuStreamGetCaptureInfo((CUstream)channel->stream, &capture, &id, &graph,
                                       NULL, NULL, NULL) == CUDA_SUCCESS &&
        id == channel->capture)
        return;
    if (!channel->pin) {
        struct symm_cuda_pin *pin = calloc(1, sizeof(*pin));

        if (!pin) {
            channel->held = true;
            return;
        }
        pin->references = 1;
        /* release: the watchdog reads it meanwhile (is_pinned) */
        __atomic_store_n(&channel->pin, pin, __ATOMIC_RELEASE);
    }
    channel->capture = id;
    __atomic_add_fetch(&channel->pin->references, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&channel->pin->graphs, 1, __ATOMIC_RELAXED);
    if (!graph || !driver->cuUserObjectCreate || !driver->cuGraphRetainUserObject ||
        driver->cuUserObjectCreate(&object, channel->pin, graph_gone, 1,
                                   CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) != CUDA_SUCCESS)
        return; /* held for good */
    if (driver->cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE) !=
        CUDA_SUCCESS)
        (void)driver->cuUserObjectRelease(object, 1);
}

uint32_t symm__cuda_channel_launch(struct symm_team_channel *channel, uint32_t blocks,
                                   uint32_t tag)
{
    const symm_ctx *ctx = channel->team->ctx;
    struct symm_cuda_launcher *launcher = ctx->launcher;

    if (channel->fresh) {
        /* relaxed: for sentences; symm__cuda_channel_leave follows, a release */
        __atomic_store_n(
            &symm__own_control(ctx)->first[channel->team->slot][channel->index], tag,
            __ATOMIC_RELAXED);
        channel->fresh = false;
    }
    if (channel->captured) {
        pin_graph(launcher->driver, channel);
        return 0;
    }
    channel->blocks = blocks;
    channel->sequence += channel->sequence == UINT32_MAX ? 2 : 1; /* 0: captured */
    return channel->sequence;
}

uint32_t *symm__cuda_channel_done(const struct symm_team_channel *channel)
{
    struct symm_cuda_words *words;

    if (!symm__cuda_tokens_find(channel->team, channel->team->local_rank, &words))
        return NULL;
    return words->done[channel->index];
}

/* A graph holds a call of the channel, as far as this rank knows. */
static bool has_graph(const struct symm_team_channel *channel)
{
    return channel->held || is_pinned(channel);
}

/* ---- Words ------------------------------------------------------------------------------ */

/* relaxed: a call that has failed keeps its channel; only symm_stream_destroy changes it */
const char *symm__cuda_channel_text(const struct symm_team_channel *channel, char *text,
                                    size_t bytes)
{
    const symm_team *team = channel->team;
    const void *stream = __atomic_load_n(&channel->stream, __ATOMIC_RELAXED);
    const bool is_default =
        __atomic_load_n(&channel->stream_id, __ATOMIC_RELAXED) == DEFAULT_STREAM ||
        ((team->far || team->inner) && channel->index == 0);
    char name[48];

    if (!stream && !is_default)
        snprintf(name, sizeof(name), "a stream that has ended");
    else
        (void)symm__cuda_stream_text(stream, name, sizeof(name));
    snprintf(text, bytes, " on %s%s, channel %d", name,
             has_graph(channel) ? " or in a graph captured from it" : "",
             channel->index + 1);
    return text;
}

/* ---- Entering ---------------------------------------------------------------------------- */

static uint64_t progress_word(const struct symm_team_channel *channel)
{
    return (uint64_t)channel->sequence << 32 | (uint64_t)channel->blocks << 8 |
           (has_graph(channel) ? SYMM_CHANNEL_PINNED : 0) |
           (channel->returned ? SYMM_CHANNEL_RETURNED : 0);
}

/* release: pairs with the loads in is_quiet */
void symm__cuda_channel_leave(struct symm_team_channel *channel)
{
    __atomic_store_n(symm__channel_progress(channel->team, channel->team->local_rank,
                                            channel->index),
                     progress_word(channel), __ATOMIC_RELEASE);
}

/* The launches that the member has queued. If they have all ended there, it has not queued the call
 * for which a kernel here waits: then no more than have ended here. For a member may have made a call
 * that this rank has replayed, which is not counted. */
static uint32_t queued_of(const symm_team *team, int member, int channel)
{
    const uint64_t word = __atomic_load_n(symm__channel_progress(team, member, channel),
                                          __ATOMIC_RELAXED);
    const uint32_t queued = (uint32_t)(word >> 32);
    uint32_t ended, here;

    if (queued == 0 || !symm__channel_ended(team, member, channel, &ended) ||
        ended != queued || !symm__channel_ended(team, team->local_rank, channel, &here))
        return queued;
    return (int32_t)(queued - here) < 0 ? queued : here;
}

/* Kernels that wait compare these counts with their own call's. */
static void refresh_queued(const symm_team *team)
{
    struct symm_cuda_record *record = symm__cuda_extended(team->cuda);

    for (int m = 0; m < team->local_size; m++)
        for (int c = 0; c < SYMM_CHANNELS; c++) {
            const uint32_t queued = queued_of(team, m, c);

            if (record->queued[c][m] != queued)
                __atomic_store_n(&record->queued[c][m], queued, __ATOMIC_RELAXED);
        }
}

void symm__cuda_channel_refresh(symm_team *team)
{
    refresh_queued(team);
    for (int c = 0; c < SYMM_CHANNELS; c++) {
        uint64_t *word = symm__channel_progress(team, team->local_rank, c);
        uint64_t seen = __atomic_load_n(word, __ATOMIC_RELAXED);

        if ((seen & SYMM_CHANNEL_PINNED) && !(seen & SYMM_CHANNEL_INSIDE) &&
            !team->channel[c].held && !is_pinned(&team->channel[c]))
            __atomic_compare_exchange_n(word, &seen,
                                        seen & ~(uint64_t)SYMM_CHANNEL_PINNED, false,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED);
    }
}

/* Whether the next key of the channel's stream follows from this one. Not if only the stream's
 * handle is known, which a later stream may get, nor if symm_call.channel gave the key. */
static bool is_followed(const struct symm_team_channel *channel)
{
    if (channel->stream_id == DEFAULT_STREAM)
        return !channel->named;
    return !channel->named && !(channel->stream_id & CAPTURED) &&
           channel->team->ctx->launcher->driver->cuStreamGetId;
}

/* Notes that the stream has lost its channel: its next key follows from this one (reserved
 * before). */
static void channel_lose(struct symm_team_channel *channel)
{
    struct symm_cuda_team *cuda = channel->team->cuda;

    if (channel->stream_id != 0 && is_followed(channel)) {
        symm__cuda_map_set(&cuda->keys, channel->stream_id, channel->key);
        if (symm__cuda_map_value(&cuda->tries, channel->stream_id) != 0)
            symm__cuda_map_set(&cuda->tries, channel->stream_id, 0);
    }
    channel->stream_id = 0;
}

/* Marks the call; false: the channel has another key. */
static bool mark(const struct symm_team_channel *channel)
{
    __atomic_exchange_n(symm__channel_progress(channel->team, channel->team->local_rank,
                                               channel->index),
                        progress_word(channel) | SYMM_CHANNEL_INSIDE, __ATOMIC_SEQ_CST);
    return symm__channel_has_key(channel->team, channel->index, channel->key);
}

/* *lost: the channel has gone to another stream. */
static symm_status enter(struct symm_team_channel *channel, bool *lost)
{
    symm_status status;

    *lost = false;
    if (mark(channel))
        return SYMM_OK;
    symm__cuda_channel_leave(channel);
    if (!symm__cuda_map_reserve(&channel->team->cuda->keys, 1))
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a stream's channel");
    status = symm__channel_table_lock(channel->team);
    if (status != SYMM_OK)
        return status;
    /* now the key is final: a taker may have put the old one back */
    *lost = !mark(channel);
    if (*lost) {
        symm__cuda_channel_leave(channel);
        channel_lose(channel);
    }
    symm__channel_table_unlock(channel->team);
    return SYMM_OK;
}

/* Makes an entered channel's cache. On error no call follows, so the mark is removed. */
static symm_status cache_or_leave(struct symm_team_channel *channel)
{
    symm_status status = symm__channel_cache(channel);

    if (status != SYMM_OK)
        symm__cuda_channel_leave(channel);
    return status;
}

static struct symm_team_channel *channel_with(symm_team *team, uint64_t id)
{
    for (int c = 0; c < SYMM_CHANNELS; c++)
        if (team->channel[c].stream_id == id)
            return &team->channel[c];
    return NULL;
}

/* The channel of the stream with this id. Only the handle of a captured stream is known: it gets
 * the channel that a stream with this handle had last. */
static struct symm_team_channel *channel_of(symm_team *team, const void *stream,
                                            uint64_t id)
{
    struct symm_team_channel *channel = channel_with(team, id);

    if (channel || !stream)
        return channel;
    if (id & CAPTURED) {
        for (int c = 0; c < SYMM_CHANNELS && !channel; c++)
            if (team->channel[c].stream_id != 0 && team->channel[c].stream == stream)
                channel = &team->channel[c];
        return channel;
    }
    channel = channel_with(team, (uintptr_t)stream | CAPTURED);
    if (channel) /* its first call was captured */
        channel->stream_id = id;
    for (int c = 0; c < SYMM_CHANNELS; c++) /* an earlier stream had the handle */
        if (&team->channel[c] != channel && team->channel[c].stream == stream)
            team->channel[c].stream = NULL;
    return channel;
}

symm_status symm__cuda_channel_find(symm_team *team, void *stream,
                                    struct symm_team_channel **channel)
{
    uint64_t id;
    bool lost = false;
    symm_status status = symm__cuda_stream_id(team->ctx, stream, &id);

    *channel = NULL;
    if (status != SYMM_OK)
        return status;
    *channel = channel_of(team, stream, id);
    if (*channel)
        status = enter(*channel, &lost);
    if (lost)
        *channel = NULL;
    if (status != SYMM_OK || !*channel)
        return status;
    (*channel)->stream = stream; /* a stream of one id may have two handles */
    (*channel)->captured = stream && (id & CAPTURED);
    (*channel)->used = ++team->channel_uses;
    return cache_or_leave(*channel);
}

/* SYMM_CHANNELS: none. */
static int index_of(symm_team *team, const void *stream, bool *captured)
{
    struct symm_team_channel *channel;
    uint64_t id;
    const symm_status status =
        symm__cuda_stream_id(team->ctx, (void *)(uintptr_t)stream, &id);

    *captured = status == SYMM_OK && stream && (id & CAPTURED);
    if (team->far) /* streams have channels by their handles: call/channel.c */
        return symm__channel_find(team, stream);
    if (status != SYMM_OK)
        return SYMM_CHANNELS;
    channel = channel_of(team, stream, id);
    return channel ? channel->index : SYMM_CHANNELS;
}

int symm__cuda_channel_of(symm_team *team, const void *stream)
{
    bool captured;

    return index_of(team, stream, &captured);
}

int symm__cuda_mark_of(symm_team *team, const void *stream, bool *captured)
{
    const int index = index_of(team, stream, captured);

    return *captured ? SYMM_CHANNELS : index;
}

/* ---- Claiming ----------------------------------------------------------------------------- */

/* Never 0, which is a free channel. tag 0, k 0: of the default stream. */
static uint64_t key_of(const symm_team *team, uint32_t tag, uint64_t k)
{
    const uint64_t key = symm__cuda_mix(team->uid, (uint64_t)tag << 32 | (uint32_t)k);

    return (key & ~NAMED) | 1;
}

/* The key with which a member asks for a channel by its name for the asked-th time. */
static uint64_t key_named(const symm_team *team, int channel, uint32_t asked)
{
    return key_of(team, asked, (uint64_t)channel + 1) | NAMED;
}

bool symm__cuda_channel_named(const symm_team *team, int channel)
{
    return symm__channel_key(team, channel) & NAMED;
}

/* The key of the number-th try of a stream since it had a channel by this key. */
static uint64_t key_after(uint64_t key, uint32_t number)
{
    return (symm__cuda_mix(key, number) & ~NAMED) | 1;
}

/* The try that the stream makes now: after its last channel, or as one of the streams that begin with
 * this tag. */
static struct symm_channel_try next_try(const symm_team *team, uint64_t id,
                                        uint32_t tag)
{
    const struct symm_cuda_team *cuda = team->cuda;
    const uint64_t last = symm__cuda_map_value(&cuda->keys, id);
    struct symm_channel_try try;

    if (last != 0 || id == DEFAULT_STREAM) {
        try.line = last != 0 ? last : key_of(team, 0, 0);
        try.number = (uint32_t)symm__cuda_map_value(&cuda->tries, id) + 1;
        try.key = key_after(try.line, try.number);
    } else {
        try.line = key_of(team, tag, 0);
        try.number = (uint32_t)symm__cuda_map_value(&cuda->begun, tag) + 1;
        try.key = key_of(team, tag, try.number);
    }
    return try;
}

/* Notes that the table has answered: no stream uses this key again. */
static void tried(const symm_team *team, uint64_t id, uint32_t tag,
                  const struct symm_channel_try *try, bool granted)
{
    struct symm_cuda_team *cuda = team->cuda;

    if (id != DEFAULT_STREAM && symm__cuda_map_value(&cuda->keys, id) == 0) {
        symm__cuda_map_set(&cuda->begun, tag, try->number);
        return;
    }
    symm__cuda_map_set(&cuda->tries, id, granted ? 0 : try->number);
    if (granted)
        symm__cuda_map_set(&cuda->keys, id, try->key);
}

/* "the default one, 0x7f12, 0x7f34 and 12 more": streams of this rank that have channels. */
static void streams_text(const symm_team *team, char *text, size_t bytes)
{
    int listed = 0, more = 0;
    size_t used = 0;

    text[0] = '\0';
    for (int c = 0; c < SYMM_CHANNELS; c++) {
        const struct symm_team_channel *channel = &team->channel[c];

        if (channel->stream_id == 0 || !symm__channel_has_key(team, c, channel->key))
            continue;
        if (used + 48 > bytes)
            more++;
        else if (channel->stream_id == DEFAULT_STREAM)
            used += (size_t)snprintf(text + used, bytes - used, "%sthe default one",
                                     listed++ ? ", " : "");
        else if (channel->stream == (void *)CU_STREAM_PER_THREAD)
            used += (size_t)snprintf(text + used, bytes - used, "%sa per-thread one",
                                     listed++ ? ", " : "");
        else
            used += (size_t)snprintf(text + used, bytes - used, "%s%p",
                                     listed++ ? ", " : "", channel->stream);
    }
    if (more)
        snprintf(text + used, bytes - used, " and %d more", more);
    else if (!listed)
        snprintf(text, bytes, "none");
}

/* The channel's stream on this rank, or that it has none. */
static symm_status busy_named(const symm_team *team, const void *stream, int channel)
{
    const struct symm_team_channel *at = &team->channel[channel];
    const bool has =
        at->stream_id != 0 && symm__channel_has_key(team, channel, at->key);
    char holder[48], own[48];

    return symm__fail(
        SYMM_ERR_BUSY,
        "channel %d of the team is in use by %s, with calls that run, or that a graph "
        "holds, or that a peer has not made yet: it is not free for %s of rank %d, and "
        "for no rank at this try; wait for these calls and try again, or name another "
        "channel, on all ranks",
        channel + 1,
        has ? symm__cuda_stream_text(at->stream, holder, sizeof(holder))
            : "a stream that this rank has not used yet",
        symm__cuda_stream_text(stream, own, sizeof(own)), team->ctx->rank);
}

static symm_status busy(const symm_team *team, const void *stream)
{
    char text[224], own[48];

    streams_text(team, text, sizeof(text));
    return symm__fail(SYMM_ERR_BUSY,
                      "all %d channels of the team are in use by streams with calls "
                      "that run, or that a graph holds, or that a peer has not made "
                      "yet: none is left for %s of rank %d (its streams with channels: "
                      "%s); wait for one, or split a team for the others",
                      SYMM_CHANNELS, symm__cuda_stream_text(stream, own, sizeof(own)),
                      team->ctx->rank, text);
}

/* Gives the channel to the stream. The map of keys must have room for the stream that loses the
 * channel. */
static void channel_bind(struct symm_team_channel *channel, void *stream, uint64_t id,
                         uint64_t key, bool named)
{
    struct symm_team_channel *old = channel_of(channel->team, stream, id);

    if (old && old != channel) {
        symm__cuda_channel_leave(old);
        old->stream_id = 0;
    }
    if (old != channel)
        channel_lose(channel);
    channel->stream = stream;
    channel->stream_id = id;
    channel->captured = stream && (id & CAPTURED);
    channel->key = key;
    channel->named = named;
    channel->fresh = true;
    channel->capture = 0;
    channel->used = ++channel->team->channel_uses;
    (void)mark(channel); /* the table is locked: the key stays */
}

/* Locks the table, and reserves memory for the stream's own numbers and for the key of a stream
 * that loses its channel to it. */
static symm_status table_open(symm_team *team)
{
    if (!symm__cuda_map_reserve(&team->cuda->begun, 1) ||
        !symm__cuda_map_reserve(&team->cuda->tries, 1) ||
        !symm__cuda_map_reserve(&team->cuda->keys, 2))
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a stream's channel");
    return symm__channel_table_lock(team);
}

/* The channel, or -1. A stream that names the channel of another one of this rank takes it over: then
 * the program orders their calls. Else it is a try by name, which all members count alike. */
static int acquire_named(symm_team *team, int channel, uint64_t *key)
{
    const struct symm_team_channel *at = &team->channel[channel];

    *key = at->key;
    if (at->named && symm__channel_has_key(team, channel, at->key))
        return channel;
    *key = key_named(team, channel, ++team->cuda->asked[channel]);
    return symm__channel_acquire_named(team, *key, channel, team->cuda->asked[channel])
               ? channel
               : -1;
}

symm_status symm__cuda_channel_claim(symm_team *team, void *stream, uint32_t tag,
                                     uint64_t bytes, int named,
                                     struct symm_team_channel **channel)
{
    struct symm_channel_try try;
    uint64_t id;
    symm_status status = symm__cuda_stream_id(team->ctx, stream, &id);
    int c;

    if (status == SYMM_OK)
        status = symm__cuda_stream_admit(team->ctx, stream);
    if (status == SYMM_OK)
        status = table_open(team);
    if (status != SYMM_OK)
        return status;
    if (named) {
        c = acquire_named(team, named - 1, &try.key);
    } else {
        try = next_try(team, id, tag);
        c = symm__channel_acquire(team, &try, symm__cuda_tier_for(bytes, team->size));
    }
    if (c >= 0)
        channel_bind(&team->channel[c], stream, id, try.key, named != 0);
    symm__channel_table_unlock(team);
    if (named == 0)
        tried(team, id, tag, &try, c >= 0);
    if (c < 0)
        return named ? busy_named(team, stream, named - 1) : busy(team, stream);
    *channel = &team->channel[c];
    return cache_or_leave(*channel);
}

symm_status symm__cuda_channel_grow(struct symm_team_channel *current, uint64_t bytes,
                                    struct symm_team_channel **channel)
{
    symm_team *team = current->team;
    const int tier = symm__cuda_tier_for(bytes, team->size);
    const uint64_t key = key_after(current->key, 1);
    const bool captured = current->captured;
    symm_status status;
    int c;

    *channel = current;
    if (tier >= symm__cuda_tier_of(current->index) || !is_followed(current))
        return SYMM_OK;
    status = table_open(team);
    if (status != SYMM_OK) {
        symm__cuda_channel_leave(current);
        return status;
    }
    c = symm__channel_grow(team, current, key, tier);
    if (c >= 0) {
        *channel = &team->channel[c];
        channel_bind(*channel, current->stream, current->stream_id, key, false);
        (*channel)->captured = captured;
    }
    symm__channel_table_unlock(team);
    return cache_or_leave(*channel);
}
