/* SPDX-License-Identifier: MIT */
/* stream_order.c - see stream_order.h. */
#include "cuda/stream_order.h"

#include "core/failure.h"
#include "cuda/channel.h"
#include "util/clock.h"
#include "util/status.h"

#define SLICE_SECONDS                                                                  \
    0.0001 /* between two looks at the followers of a team that ends */

/* A capture's id, distinct from streams' ids. */
#define CAPTURE(id) ((uint64_t)(id) | UINT64_C(1) << 62)

/* A mark: the address of the word by which the channel's calls have failed. In launcher->last an
 * enum symm_cuda_front is in its lowest bits, then whether the call was a wait for a signal. */
#define FRONT 3u
#define WAITS 4u

/* Waits, with kernels of one block behind them, after which a wait triggers at once again. */
#define WIDE_WAITS 8u

static uint64_t mark_of(const struct symm_cuda_team *cuda, uint32_t channel)
{
    return (uintptr_t)&cuda->state->failed[16 * channel];
}

/* As the program has it: a local team is a part of another one, which fails with it. */
static const symm_team *whole_of(const symm_team *team)
{
    return team->inner && team->outer ? team->outer : team;
}

/* Finds the number by which the stream's calls are ordered (follow->id; 0: its calls follow no
 * others), the capture's and whether an event has put more in front of the next one. */
static symm_status order_id(symm_team *team, const struct symm_team_channel *channel,
                            struct symm_cuda_follow *follow)
{
    const struct symm_cuda_driver *driver = team->ctx->launcher->driver;
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUgraphNode *nodes; /* their number comes with them, and they with edges */
    const void *edges;
    cuuint64_t number = 0;
    size_t count = 0;

    if (channel && channel->stream_id != 0 && !channel->captured) {
        follow->id = channel->stream_id;
        return SYMM_OK;
    }
    if (follow->stream && driver->cuStreamGetCaptureInfo &&
        driver->cuStreamGetCaptureInfo((CUstream)follow->stream, &capture, &number,
                                       NULL, &nodes, &edges, &count) == CUDA_SUCCESS &&
        capture != CU_STREAM_CAPTURE_STATUS_NONE) {
        follow->capture = CAPTURE(number);
        follow->id = symm__cuda_mix(follow->capture, (uintptr_t)follow->stream);
        follow->joined = count > 1;
        return SYMM_OK;
    }
    /* Without its number a capture is not told from an earlier one of the stream, whose teams may
     * end before its graph does: no call may read their state. */
    if (follow->stream && !driver->cuStreamGetCaptureInfo &&
        symm__cuda_on_stream(team->ctx->launcher, SYMM_CUDA_CAPTURE,
                             (CUstream)follow->stream, &capture) == CUDA_SUCCESS &&
        capture != CU_STREAM_CAPTURE_STATUS_NONE)
        return SYMM_OK;
    return symm__cuda_stream_id(team->ctx, follow->stream, &follow->id);
}

/* The team of this context to which the mark belongs; NULL: it has ended. */
static struct symm_cuda_team *team_of(struct symm_cuda_launcher *launcher,
                                      uint64_t mark)
{
    struct symm_cuda_team *cuda;

    pthread_mutex_lock(&launcher->lock);
    for (cuda = launcher->teams; cuda; cuda = cuda->next)
        if (mark - mark_of(cuda, 0) < sizeof(cuda->state->failed))
            break;
    pthread_mutex_unlock(&launcher->lock);
    return cuda;
}

/* Returns what is in front of the stream's next kernel. In a capture an event may put a kernel of
 * one stream in front of a call on another. So it returns UNKNOWN if the capture's latest call was
 * on another stream, or if other streams' work is in front, too. The caller holds the lock. */
static enum symm_cuda_front front_of(const struct symm_cuda_follow *follow)
{
    if (follow->capture != 0 &&
        (follow->joined ||
         symm__cuda_map_value(&follow->launcher->last, follow->capture) !=
             (uintptr_t)follow->stream))
        return SYMM_CUDA_FRONT_UNKNOWN;
    return (enum symm_cuda_front)(follow->last & FRONT);
}

symm_status symm__cuda_follow_begin(symm_team *team,
                                    const struct symm_team_channel *channel,
                                    void *stream, uint32_t mark,
                                    struct symm_cuda_args *args,
                                    struct symm_cuda_follow *follow)
{
    struct symm_cuda_launcher *launcher = team->ctx->launcher;
    struct symm_cuda_team *const own = team->cuda, *other = NULL;
    symm_status status;

    *follow = (struct symm_cuda_follow){.launcher = launcher,
                                        .mark = mark_of(own, mark),
                                        .stream = stream,
                                        .front = SYMM_CUDA_FRONT_UNKNOWN};
    args->flags &= SYMM_CUDA_BEFORE - 1;
    status = order_id(team, channel, follow);
    if (status != SYMM_OK || follow->id == 0)
        return status;
    pthread_mutex_lock(&launcher->order);
    follow->last = symm__cuda_map_value(&launcher->last, follow->id);
    follow->front = front_of(follow);
    follow->awaited =
        follow->front != SYMM_CUDA_FRONT_UNKNOWN && (follow->last & WAITS);
    if (follow->last == 0 && !symm__cuda_map_reserve(&launcher->last, 2))
        status = symm__fail(SYMM_ERR_NOMEM, "no memory for a stream's last call");
    if (follow->last - mark_of(own, 0) >= sizeof(own->state->failed) &&
        follow->last != 0)
        other = team_of(launcher, follow->last);
    /* relaxed: if the caller knows of a failure, this thread has read these flags before */
    if (other && !__atomic_load_n(&other->known, __ATOMIC_RELAXED) &&
        __atomic_load_n(&other->team->failed, __ATOMIC_RELAXED) == SYMM_OK) {
        __atomic_add_fetch(&other->followers, 1, __ATOMIC_RELAXED);
        follow->before = other;
        args->before = other->state;
        args->before_team = whole_of(other->team)->number;
        args->flags |=
            SYMM_CUDA_BEFORE | (uint32_t)((follow->last - mark_of(other, 0)) / 64)
                                   << SYMM_CUDA_BEFORE_SHIFT;
    }
    pthread_mutex_unlock(&launcher->order);
    return status;
}

void symm__cuda_follow_end(const struct symm_cuda_follow *follow, bool launched)
{
    struct symm_cuda_launcher *launcher = follow->launcher;
    const uint64_t last = follow->mark | follow->front | (follow->waits ? WAITS : 0);

    if (launched && follow->id != 0 && (follow->last != last || follow->capture)) {
        pthread_mutex_lock(&launcher->order);
        symm__cuda_map_set(&launcher->last, follow->id, last);
        if (follow->capture)
            symm__cuda_map_set(&launcher->last, follow->capture,
                               (uintptr_t)follow->stream);
        pthread_mutex_unlock(&launcher->order);
    }
    if (follow->before) /* release: pairs with the acquire in follow_forget */
        __atomic_sub_fetch(&follow->before->followers, 1, __ATOMIC_RELEASE);
}

size_t symm__cuda_hint_of(const void *stream)
{
    return symm__cuda_mix(0, (uintptr_t)stream) % SYMM_CUDA_HINTS;
}

bool symm__cuda_wait_early(const struct symm_cuda_launcher *launcher,
                           const void *stream)
{
    return __atomic_load_n(&launcher->wide[symm__cuda_hint_of(stream)],
                           __ATOMIC_RELAXED) == 0;
}

void symm__cuda_follow_learn(const struct symm_cuda_follow *follow, bool narrow)
{
    uint8_t *hint, wide;

    if (!follow->awaited)
        return;
    /* relaxed: a guess; streams with one hash may spoil it for each other */
    hint = &follow->launcher->wide[symm__cuda_hint_of(follow->stream)];
    wide = __atomic_load_n(hint, __ATOMIC_RELAXED);
    if (!narrow)
        __atomic_store_n(hint, WIDE_WAITS, __ATOMIC_RELAXED);
    else if (wide > 0)
        __atomic_store_n(hint, (uint8_t)(wide - 1), __ATOMIC_RELAXED);
}

symm_status symm__cuda_follow_relay(symm_team *team, symm_team *own, const char *site,
                                    void *stream, struct symm_cuda_follow *follow)
{
    bool captured;
    const int mark = symm__cuda_mark_of(team, stream, &captured);
    const struct symm_team_channel *channel =
        mark < SYMM_CHANNELS ? &team->channel[mark] : NULL;
    struct symm_cuda_args args = {.team = own->device,
                                  .channel = (uint32_t)mark,
                                  .kind = SYMM_CUDA_PUT,
                                  .dtype = SYMM_UINT8,
                                  .peer = own->local_rank,
                                  .signal = -1};
    struct symm_cuda_kernel kernel;
    struct symm_cuda_shape shape;
    void *function = NULL;
    symm_status status =
        symm__cuda_follow_begin(own, channel, stream, (uint32_t)mark, &args, follow);

    follow->captured = captured;
    if (status != SYMM_OK || !follow->before)
        return status;
    args.tag = symm__site_name_tag(site);
    symm__cuda_site_name_publish(follow->launcher, args.tag, site);
    symm__cuda_p2p_find(SYMM_CUDA_PUT, 0, 0, own->local_size, team->ctx->processors,
                        &kernel, &shape);
    status = symm__cuda_function(team->ctx, &kernel, &function);
    if (status != SYMM_OK)
        return status;
    return symm__cuda_start(follow, function, shape, &args, (CUstream)stream,
                            "a look at the call before");
}

void symm__cuda_follow_forget(struct symm_cuda_team *cuda)
{
    struct symm_cuda_launcher *launcher = cuda->team->ctx->launcher;

    pthread_mutex_lock(&launcher->order);
    for (size_t i = 0; i < launcher->last.capacity; i++)
        if (launcher->last.pair[i].value - mark_of(cuda, 0) <
            sizeof(cuda->state->failed))
            launcher->last.pair[i].value = 0;
    pthread_mutex_unlock(&launcher->order);
    while (__atomic_load_n(&cuda->followers, __ATOMIC_ACQUIRE) != 0)
        symm__sleep(SLICE_SECONDS);
}
