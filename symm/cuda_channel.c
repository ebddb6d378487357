/* SPDX-License-Identifier: MIT */
/*
 * cuda_channel.c - see cuda_channel.h.
 *
 * Entering and giving away. A member that enters a call first marks its progress word
 * (INSIDE), then reads the key; who gives the channel away changes the key under the table's
 * lock, then reads the progress words. Both are sequentially consistent, so at least one of
 * them sees the other: the member takes its mark back and begins again, or the key is put
 * back.
 */
#include "cuda_channel.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "lane.h"
#include "status.h"

/* Progress of a member on a channel: launches << 32 | blocks of the last one << 8 | flags. */
#define INSIDE 1u
#define PINNED 2u

#define DEFAULT_STREAM UINT64_MAX          /* its id */
#define CAPTURED       (UINT64_C(1) << 63) /* in the id of a stream first met in a capture */

/* Captured calls of a lane that live graphs hold; freed with the last reference. */
struct symm_cuda_pin {
    int references; /* atomic: the lane's, and one for each graph */
    int graphs;     /* atomic */
};

/* How often a stream of this rank began with a tag. */
struct symm_cuda_begun {
    uint32_t tag, count;
};

static struct symm_channel_table *table_of(const symm_team *team)
{
    return &team->ctx->control[team->world_rank[0]]->channel_table[team->slot];
}

static uint64_t *progress_of(const symm_team *team, int member, int channel)
{
    return &team->ctx->control[team->world_rank[member]]->progress[team->slot][channel];
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2));

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static bool is_capturing(struct symm_cuda_calls *calls, void *stream)
{
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = calls->driver->cuStreamIsCapturing((CUstream)stream, &capture);
    struct symm_cuda_scope scope;

    if (symm__cuda_elsewhere(result) &&
        symm__cuda_enter(calls->backend, &scope) == SYMM_OK) {
        result = calls->driver->cuStreamIsCapturing((CUstream)stream, &capture);
        symm__cuda_leave(&scope);
    }
    return result == CUDA_SUCCESS && capture == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

symm_status symm__cuda_stream_id(symm_ctx *ctx, void *stream, uint64_t *id)
{
    const struct symm_cuda_driver *driver = ctx->launcher->driver;
    struct symm_cuda_scope scope;
    unsigned long long number = 0;
    CUresult result;

    *id = DEFAULT_STREAM;
    if (!stream)
        return SYMM_OK;
    /* To ask for the id of a stream that is captured breaks the capture. */
    if (is_capturing(ctx->launcher, stream)) {
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
    result = driver->cuStreamGetId((CUstream)stream, &number);
    if (symm__cuda_elsewhere(result) &&
        symm__cuda_enter(ctx->backend, &scope) == SYMM_OK) {
        result = driver->cuStreamGetId((CUstream)stream, &number);
        symm__cuda_leave(&scope);
    }
    *id = number + 1; /* 0: no stream */
    return symm__cuda_check(driver, result, "cuStreamGetId", "stream %p of rank %d",
                            stream, ctx->rank);
}

void symm__cuda_channel_open(symm_team *team)
{
    if (team->rank == 0)
        memset(table_of(team), 0, sizeof(*table_of(team)));
    for (int c = 0; c < SYMM_CHANNELS; c++)
        __atomic_store_n(progress_of(team, team->rank, c), 0, __ATOMIC_RELAXED);
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
        pin_release(team->lane[c].pin);
        team->lane[c].pin = NULL;
    }
    free(team->cuda->begun);
    team->cuda->begun = NULL;
}

static bool is_pinned(const struct symm_lane *lane)
{
    return lane->pin && __atomic_load_n(&lane->pin->graphs, __ATOMIC_ACQUIRE) != 0;
}

/* The graph that captures the lane's stream holds the channel; without an object that tells
 * of its end it is held for good. */
static void pin_graph(const struct symm_cuda_driver *driver, struct symm_lane *lane)
{
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    CUuserObject object;
    CUgraph graph = NULL;
    cuuint64_t id = 0;

    if (driver->cuStreamGetCaptureInfo &&
        driver->cuStreamGetCaptureInfo((CUstream)lane->stream, &capture, &id, &graph,
                                       NULL, NULL, NULL) == CUDA_SUCCESS &&
        id == lane->capture)
        return;
    if (!lane->pin) {
        lane->pin = calloc(1, sizeof(*lane->pin));
        if (!lane->pin) {
            lane->held = true;
            return;
        }
        lane->pin->references = 1;
    }
    lane->capture = id;
    __atomic_add_fetch(&lane->pin->references, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&lane->pin->graphs, 1, __ATOMIC_RELAXED);
    if (!graph || !driver->cuUserObjectCreate || !driver->cuGraphRetainUserObject ||
        driver->cuUserObjectCreate(&object, lane->pin, graph_gone, 1,
                                   CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) != CUDA_SUCCESS)
        return; /* held for good */
    if (driver->cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE) !=
        CUDA_SUCCESS)
        (void)driver->cuUserObjectRelease(object, 1);
}

uint32_t symm__cuda_channel_launch(struct symm_lane *lane, uint32_t blocks)
{
    struct symm_cuda_calls *calls = lane->team->ctx->launcher;

    if (lane->captured) {
        pin_graph(calls->driver, lane);
        return 0;
    }
    lane->blocks = blocks;
    lane->sequence += lane->sequence == UINT32_MAX ? 2 : 1; /* 0: captured */
    return lane->sequence;
}

uint32_t *symm__cuda_channel_done(const struct symm_lane *lane)
{
    symm_team *team = lane->team;
    struct symm_cuda_words *words;
    CUdeviceptr device;

    if (!team->cuda->tokens_shared ||
        symm__cuda_tokens_find(team, "a channel", team->rank, &words, &device) !=
            SYMM_OK)
        return NULL;
    return (uint32_t *)(uintptr_t)(device + offsetof(struct symm_cuda_words, done) +
                                   (size_t)lane->index * sizeof(words->done[0]));
}

/* ---- Entering ---------------------------------------------------------------------------- */

static uint64_t progress_word(const struct symm_lane *lane)
{
    return (uint64_t)lane->sequence << 32 | (uint64_t)lane->blocks << 8 |
           (lane->held || is_pinned(lane) ? PINNED : 0);
}

/* release: pairs with the loads in is_quiet */
static void publish(const struct symm_lane *lane)
{
    __atomic_store_n(progress_of(lane->team, lane->team->rank, lane->index),
                     progress_word(lane), __ATOMIC_RELEASE);
}

void symm__cuda_channel_leave(struct symm_lane *lane)
{
    publish(lane);
}

void symm__cuda_channel_refresh(symm_team *team)
{
    for (int c = 0; c < SYMM_CHANNELS; c++) {
        uint64_t *word = progress_of(team, team->rank, c);
        uint64_t seen = __atomic_load_n(word, __ATOMIC_RELAXED);

        if ((seen & PINNED) && !(seen & INSIDE) && !team->lane[c].held &&
            !is_pinned(&team->lane[c]))
            __atomic_compare_exchange_n(word, &seen, seen & ~(uint64_t)PINNED, false,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED);
    }
}

/* Marks the call; false: the channel has another key now. */
static bool enter(struct symm_lane *lane)
{
    __atomic_exchange_n(progress_of(lane->team, lane->team->rank, lane->index),
                        progress_word(lane) | INSIDE, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&table_of(lane->team)->key[lane->index], __ATOMIC_SEQ_CST) ==
        lane->key)
        return true;
    publish(lane);
    lane->stream_id = 0;
    return false;
}

/* An entered lane's cache; without it the call is not made, and the mark is taken back. */
static symm_status cache_or_leave(struct symm_lane *lane)
{
    symm_status status = symm__lane_cache(lane);

    if (status != SYMM_OK)
        publish(lane);
    return status;
}

static struct symm_lane *lane_with(symm_team *team, uint64_t id)
{
    for (int c = 0; c < SYMM_CHANNELS; c++)
        if (team->lane[c].stream_id == id)
            return &team->lane[c];
    return NULL;
}

/* The lane of the stream with this id. While a stream is captured its handle is all that is
 * known of it, so the lane that last had the handle is taken for its own. */
static struct symm_lane *lane_of(symm_team *team, const void *stream, uint64_t id)
{
    struct symm_lane *lane = lane_with(team, id);

    if (lane || !stream)
        return lane;
    if (id & CAPTURED) {
        for (int c = 0; c < SYMM_CHANNELS && !lane; c++)
            if (team->lane[c].stream_id != 0 && team->lane[c].stream == stream)
                lane = &team->lane[c];
        return lane;
    }
    lane = lane_with(team, (uintptr_t)stream | CAPTURED);
    if (lane) /* its first call was captured */
        lane->stream_id = id;
    for (int c = 0; c < SYMM_CHANNELS; c++) /* an earlier stream had the handle */
        if (&team->lane[c] != lane && team->lane[c].stream == stream)
            team->lane[c].stream = NULL;
    return lane;
}

symm_status symm__cuda_channel_find(symm_team *team, void *stream,
                                    struct symm_lane **lane)
{
    uint64_t id;
    symm_status status = symm__cuda_stream_id(team->ctx, stream, &id);

    *lane = NULL;
    if (status != SYMM_OK)
        return status;
    *lane = lane_of(team, stream, id);
    if (*lane && !enter(*lane))
        *lane = NULL;
    if (!*lane)
        return SYMM_OK;
    (*lane)->stream = stream; /* of one id there may be two names */
    (*lane)->captured = stream && (id & CAPTURED);
    (*lane)->used = ++team->lane_uses;
    return cache_or_leave(*lane);
}

int symm__cuda_channel_of(symm_team *team, const void *stream)
{
    struct symm_lane *lane;
    uint64_t id;

    if (symm__cuda_stream_id(team->ctx, (void *)(uintptr_t)stream, &id) != SYMM_OK)
        return SYMM_CHANNELS;
    lane = lane_of(team, stream, id);
    return lane ? lane->index : SYMM_CHANNELS;
}

/* ---- The table -------------------------------------------------------------------------- */

/* Whoever holds the lock has died: its stores are single words, so the table is sound. */
static void break_lock(symm_team *team, uint32_t holder)
{
    symm_ctx *ctx = team->ctx;
    const char *why;
    int rank = (int)holder - 1;

    if (rank < 0 || rank >= ctx->size || rank == ctx->rank || symm__is_far(ctx, rank) ||
        symm__process_check(&ctx->process[rank], &ctx->control[rank]->live, &why) ==
            SYMM_OK)
        return;
    __atomic_compare_exchange_n(&table_of(team)->lock, &holder, 0, false,
                                __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static symm_status table_lock(symm_team *team)
{
    struct symm_channel_table *table = table_of(team);
    double end = symm__now() + team->ctx->deadline;
    uint32_t mine = (uint32_t)team->ctx->rank + 1, seen = 0;

    for (int turn = 1; !__atomic_compare_exchange_n(&table->lock, &seen, mine, false,
                                                    __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
         turn++) {
        if (turn % 64 == 0) {
            symm__sleep(0.0001);
            break_lock(team, seen);
            if (symm__now() > end)
                return symm__fail(SYMM_ERR_TIMEOUT,
                                  "rank %d has held the table of channels for %g s; "
                                  "rank %d wants a channel for a stream",
                                  (int)seen - 1, team->ctx->deadline, team->ctx->rank);
        }
        seen = 0;
    }
    return SYMM_OK;
}

static void table_unlock(symm_team *team)
{
    __atomic_store_n(&table_of(team)->lock, 0, __ATOMIC_RELEASE);
}

static int find_key(const struct symm_channel_table *table, uint64_t key)
{
    for (int c = 0; c < SYMM_CHANNELS; c++)
        if (__atomic_load_n(&table->key[c], __ATOMIC_SEQ_CST) == key)
            return c;
    return -1;
}

static bool was_refused(const struct symm_channel_table *table, uint64_t key)
{
    for (int i = 0; i < SYMM_CHANNEL_REFUSALS; i++)
        if (__atomic_load_n(&table->refused[i], __ATOMIC_RELAXED) == key)
            return true;
    return false;
}

static void refuse(struct symm_channel_table *table, uint64_t key)
{
    uint32_t at = __atomic_fetch_add(&table->refusals, 1, __ATOMIC_RELAXED);

    __atomic_store_n(&table->refused[at % SYMM_CHANNEL_REFUSALS], key,
                     __ATOMIC_RELAXED);
}

/* Has the member's device ended all launches up to this word's? */
static bool has_ended(symm_team *team, int member, int channel, uint64_t word)
{
    uint32_t blocks = (uint32_t)(word >> 8) & 0xff;
    struct symm_cuda_words *words;
    CUdeviceptr device;

    if (word >> 32 == 0)
        return true;
    if (blocks > SYMM_DEVICE_BLOCKS || !team->cuda->tokens_shared ||
        symm__cuda_tokens_find(team, "a channel", member, &words, &device) != SYMM_OK)
        return false;
    for (uint32_t b = 0; b < blocks; b++)
        /* acquire: what the kernels did comes before what the next stream's do */
        if (__atomic_load_n(&words->done[channel][b], __ATOMIC_ACQUIRE) !=
            (uint32_t)(word >> 32))
            return false;
    return true;
}

/* All members have queued as many launches, and are not inside one. */
static bool is_quiet(symm_team *team, int channel, uint64_t *word)
{
    *word = __atomic_load_n(progress_of(team, 0, channel), __ATOMIC_SEQ_CST);
    for (int m = 1; m < team->size; m++)
        if (__atomic_load_n(progress_of(team, m, channel), __ATOMIC_SEQ_CST) != *word)
            return false;
    return (*word & (INSIDE | PINNED)) == 0;
}

/* Gives the channel from its key to another one if it is idle. With the table locked. */
static bool take_idle(symm_team *team, int channel, uint64_t key)
{
    struct symm_channel_table *table = table_of(team);
    uint64_t before, after,
        old = __atomic_load_n(&table->key[channel], __ATOMIC_SEQ_CST);

    if (!is_quiet(team, channel, &before))
        return false;
    for (int m = 0; m < team->size; m++)
        if (!has_ended(team, m, channel, before))
            return false;
    __atomic_store_n(&table->key[channel], key, __ATOMIC_SEQ_CST);
    if (is_quiet(team, channel, &after) && after == before)
        return true;
    __atomic_store_n(&table->key[channel], old, __ATOMIC_SEQ_CST);
    return false;
}

static bool take_free(symm_team *team, int channel, uint64_t key)
{
    uint64_t *at = &table_of(team)->key[channel];

    if (__atomic_load_n(at, __ATOMIC_SEQ_CST) != 0)
        return false;
    __atomic_store_n(at, key, __ATOMIC_SEQ_CST);
    return true;
}

/* Channels [first, end): a free one, else the idle one that this rank has used least lately.
 * -1: none. */
static int take_from(symm_team *team, int first, int end, uint64_t key)
{
    bool tried[SYMM_CHANNELS] = {false};

    for (int c = first; c < end; c++)
        if (take_free(team, c, key))
            return c;
    for (int turn = first; turn < end; turn++) {
        int oldest = -1;

        for (int c = first; c < end; c++)
            if (!tried[c] &&
                (oldest < 0 || team->lane[c].used < team->lane[oldest].used))
                oldest = c;
        tried[oldest] = true;
        if (take_idle(team, oldest, key))
            return oldest;
    }
    return -1;
}

static int take_any(symm_team *team, bool large, bool keeps, uint64_t key)
{
    int c = -1;

    if (large)
        c = take_from(team, 0, SYMM_LARGE_CHANNELS, key);
    else
        for (int i = 0; i < SYMM_CHANNELS && c < 0; i++)
            c = take_free(team, i, key) ? i : -1;
    if (c < 0 && !(large && keeps))
        c = take_from(team, SYMM_LARGE_CHANNELS, SYMM_CHANNELS, key);
    if (c < 0 && !large)
        c = take_from(team, 0, SYMM_LARGE_CHANNELS, key);
    return c;
}

/* ---- Claiming ------------------------------------------------------------------------------ */

/* The count of streams that began with the tag; NULL: no memory. */
static uint32_t *count_of(struct symm_cuda_team *cuda, uint32_t tag)
{
    size_t capacity = cuda->begun_capacity;

    if (2 * (cuda->begun_count + 1) > capacity) {
        size_t wanted = capacity ? 2 * capacity : 64;
        struct symm_cuda_begun *grown = calloc(wanted, sizeof(*grown));

        if (!grown)
            return NULL;
        for (size_t i = 0; i < capacity; i++) {
            size_t at = cuda->begun[i].tag & (wanted - 1);

            while (grown[at].tag)
                at = (at + 1) & (wanted - 1);
            grown[at] = cuda->begun[i];
        }
        free(cuda->begun);
        cuda->begun = grown;
        cuda->begun_capacity = capacity = wanted;
    }
    for (size_t at = tag & (capacity - 1);; at = (at + 1) & (capacity - 1)) {
        if (cuda->begun[at].tag == tag)
            return &cuda->begun[at].count;
        if (cuda->begun[at].tag == 0) {
            cuda->begun[at].tag = tag;
            cuda->begun_count++;
            return &cuda->begun[at].count;
        }
    }
}

/* Never 0, which is a free channel. tag 0: of a named channel, or (k 0) the default stream. */
static uint64_t key_of(const symm_team *team, uint32_t tag, uint32_t k)
{
    return mix(team->uid, (uint64_t)tag << 32 | k) | 1;
}

static symm_status busy(const symm_team *team, int named)
{
    char text[256] = "";
    size_t used = 0;

    if (named)
        return symm__fail(SYMM_ERR_BUSY,
                          "channel %d of the team is in use by another stream of rank "
                          "%d or of a peer; wait for its calls, or name another one",
                          named, team->ctx->rank);
    for (int c = 0; c < SYMM_CHANNELS && used < sizeof(text); c++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%p",
                                 c ? ", " : "", team->lane[c].stream);
    return symm__fail(
        SYMM_ERR_BUSY,
        "all %d channels of the team are in use by streams with calls that "
        "run, or that a graph holds, or that a peer has not made yet: at "
        "rank %d %s; wait for one of them, or split a team for the others",
        SYMM_CHANNELS, team->ctx->rank, text);
}

static void lane_bind(symm_team *team, int channel, void *stream, uint64_t id,
                      uint64_t key)
{
    struct symm_lane *lane = &team->lane[channel], *old = lane_of(team, stream, id);

    if (old && old != lane) {
        publish(old);
        old->stream_id = 0;
    }
    lane->stream = stream;
    lane->stream_id = id;
    lane->captured = stream && (id & CAPTURED);
    lane->key = key;
    lane->large_calls = 0;
    lane->capture = 0;
}

static int claim(symm_team *team, uint64_t key, bool large, int named, bool keeps)
{
    struct symm_channel_table *table = table_of(team);
    int c = find_key(table, key);

    if (c >= 0 || was_refused(table, key))
        return c;
    if (named)
        return take_free(team, named - 1, key) || take_idle(team, named - 1, key)
                   ? named - 1
                   : -1;
    c = take_any(team, large, keeps, key);
    if (c < 0 && keeps)
        refuse(table, key);
    return c;
}

symm_status symm__cuda_channel_claim(symm_team *team, void *stream, uint32_t tag,
                                     bool large, int named, struct symm_lane *current,
                                     struct symm_lane **lane)
{
    const bool counts = named == 0 && stream;
    uint32_t *count = counts ? count_of(team->cuda, tag) : NULL;
    uint64_t id, key;
    symm_status status;
    int c;

    if (counts && !count)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a stream's channel");
    status = symm__cuda_stream_id(team->ctx, stream, &id);
    if (status == SYMM_OK)
        status = table_lock(team);
    if (status != SYMM_OK)
        return status;
    key = counts ? key_of(team, tag, *count + 1) : key_of(team, 0, (uint32_t)named);
    c = claim(team, key, large, named, current != NULL);
    if (c >= 0) {
        lane_bind(team, c, stream, id, key);
        (void)enter(&team->lane[c]); /* the table is locked: the key stays */
    }
    table_unlock(team);
    if (c < 0 && !current)
        return busy(team, named);
    if (count)
        ++*count;
    *lane = c < 0 ? current : &team->lane[c];
    return cache_or_leave(*lane);
}
