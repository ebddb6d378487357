/* SPDX-License-Identifier: MIT */
/*
 * one_sided.c - one-sided calls on CUDA: by kernels, or by copy engine where the call asks.
 *
 * By kernel: see kernels/cuda/p2p.cu; counts lie in device memory.
 *
 * By copy engine (algorithm "copy_engine" on every call that uses the signal) nothing runs
 * on multiprocessors. For each (sender, receiver, signal) there are two words of 4 bytes,
 * each among the words of the member that waits for it (tokens.c: host memory): the
 * receiver's token (1: the data is there) and the sender's room (1: it may send again;
 * initially 1). The sender's stream waits for its room, sets it to 0, copies, writes 1 into the
 * token. The receiver's stream waits for its token, sets it to 0, writes 1 into the room. Each
 * word has one writer of ones and one of zeros, which take turns, so a captured graph can be
 * replayed. docs/memory-model.md has the order of data and words.
 *
 * A stream's wait has no time limit. The watchdog ends a wait of a call (not captured) that lasts
 * too long, by a store of 1. Waits in a graph it ends if the team has failed, or if the end of a
 * stream, a team or the context is held up (watchdog.c); a late peer holds the stream until it
 * arrives. After an ended wait the stream goes on, and kernels must not take it for a successful
 * one. So after each wait the stream copies the team's abort word, which is set before a wait is
 * ended, to state->reported, which kernels read first. What a sender queued after its wait for
 * room is still sent.
 */
#include <string.h>

#include "core/failure.h"
#include "cuda/channel.h"
#include "cuda/launcher.h"
#include "cuda/stream_order.h"
#include "util/clock.h"
#include "util/status.h"

static CUdeviceptr device_address(const void *ptr)
{
    return (CUdeviceptr)(uintptr_t)ptr;
}

/* ---- By kernel ----------------------------------------------------------------------- */

/* Up to how many packets of a thread one block takes the whole put. Blocks of a put without a
 * signal need no counter, so from 32 KiB on several are faster. */
static uint32_t one_block(const struct symm_transfer *t)
{
    const uintptr_t addresses = (uintptr_t)t->src | (uintptr_t)t->dst;

    if (t->signal >= 0)
        return addresses % 16 == 0 ? SYMM_PUT_PACKETS : 0;
    return (addresses | t->bytes) % 16 == 0 ? SYMM_PUT_PACKETS / 2 : 0;
}

static symm_status by_kernel(const struct symm_transfer *t, CUstream stream,
                             uint32_t *result, bool *captured)
{
    symm_team *team = t->team;
    enum symm_cuda_p2p call = t->waits                          ? SYMM_CUDA_SIGNAL_WAIT
                              : t->bytes == 0 && t->signal >= 0 ? SYMM_CUDA_SIGNAL
                                                                : SYMM_CUDA_PUT;
    const uint32_t when = !t->waits ? SYMM_CUDA_RELAY
                          : symm__cuda_wait_early(team->ctx->launcher, stream)
                              ? SYMM_CUDA_EARLY
                              : 0;
    int channel = symm__cuda_mark_of(team, stream, captured);
    struct symm_cuda_args args = {.team = team->device,
                                  .in = t->src,
                                  .out = t->dst,
                                  .count = t->bytes,
                                  .bytes = t->bytes,
                                  .result = result,
                                  .tag = t->tag,
                                  .channel = (uint32_t)channel,
                                  .flags = when,
                                  .kind = (int32_t)call,
                                  .dtype = SYMM_UINT8,
                                  .peer = symm__team_place(team, t->peer),
                                  .signal = t->signal};
    struct symm_cuda_kernel kernel;
    struct symm_cuda_shape shape;
    struct symm_cuda_follow follow;
    void *function = NULL;
    symm_status status;

    symm__cuda_p2p_find(call, t->bytes, one_block(t), team->local_size,
                        team->ctx->processors, &kernel, &shape);
    status = symm__cuda_function(team->ctx, &kernel, &function);
    if (status != SYMM_OK)
        return status;
    args.team.timeout = symm__nanoseconds(t->timeout);
    if (t->waits) { /* for sentences */
        __atomic_store_n(&team->cuda->timeout[SYMM_CHANNELS], args.team.timeout,
                         __ATOMIC_RELAXED);
        __atomic_store_n(&team->cuda->waiting[args.peer][t->signal], (void *)stream,
                         __ATOMIC_RELAXED);
    }
    status = symm__cuda_follow_begin(
        team, channel < SYMM_CHANNELS ? &team->channel[channel] : NULL, stream,
        (uint32_t)channel, &args, &follow);
    follow.waits = t->waits;
    if (status == SYMM_OK)
        status = symm__cuda_start(&follow, function, shape, &args, stream, t->what);
    symm__cuda_follow_end(&follow, status == SYMM_OK);
    return status;
}

/* ---- By copy engine ------------------------------------------------------------------- */

static symm_status copy(const struct symm_cuda_launcher *launcher,
                        const struct symm_transfer *t, CUstream stream)
{
    if (t->bytes == 0)
        return SYMM_OK;
    return SYMM_CUDA_CALL(
        launcher->driver, cuMemcpyAsync,
        (device_address(t->dst), device_address(t->src), t->bytes, stream),
        "%s of %zu bytes to rank %d", t->what, t->bytes, t->team->world_rank[t->peer]);
}

/* word: as the device has it. */
static symm_status write_word(const struct symm_cuda_launcher *launcher,
                              CUstream stream, const uint32_t *word, uint32_t value)
{
    return SYMM_CUDA_CALL(
        launcher->driver, cuStreamWriteValue32,
        (stream, device_address(word), value, CU_STREAM_WRITE_VALUE_DEFAULT),
        "a token of a copy-engine call");
}

/* Queued after a wait: shows the kernels after it whether the team has failed. */
static symm_status copy_abort(const struct symm_cuda_launcher *launcher,
                              const struct symm_cuda_team *cuda, CUstream stream)
{
    return SYMM_CUDA_CALL(launcher->driver, cuMemcpyAsync,
                          (device_address(&cuda->state->reported),
                           device_address(&cuda->record->abort),
                           sizeof(cuda->state->reported), stream),
                          "the abort word after a stream's wait");
}

/* A wait for a word in memory of the host does not order the data, which arrive by another
 * path. The flush does, where the device has it; devices without it order remote writes. */
static unsigned wait_flags(const struct symm_cuda_launcher *launcher)
{
    return CU_STREAM_WAIT_VALUE_EQ | (launcher->flush ? CU_STREAM_WAIT_VALUE_FLUSH : 0);
}

/* Waits until this rank's word is 1 and sets it to 0. `at`: as the device has it. *queued: the wait
 * is. */
static symm_status take_word(struct symm_cuda_launcher *launcher,
                             const struct symm_transfer *t, CUstream stream,
                             uint32_t *word, const uint32_t *at, bool *queued)
{
    struct symm_cuda_wait about = {.team = t->team,
                                   .word = word,
                                   .timeout = t->timeout,
                                   .peer = t->peer,
                                   .signal = t->signal,
                                   .receives = t->waits,
                                   .what = "a stream's wait"};
    struct symm_cuda_wait *wait = NULL;
    symm_status status;

    memcpy(about.site, t->site, sizeof(about.site));
    status = symm__cuda_wait_begin(launcher, stream, &about, &wait);
    if (status == SYMM_OK && !wait)
        status = symm__cuda_word_add(launcher, t->team, word);
    if (status == SYMM_OK)
        status = SYMM_CUDA_CALL(launcher->driver, cuStreamWaitValue32,
                                (stream, device_address(at), 1, wait_flags(launcher)),
                                "%s with signal %d of rank %d by copy engine", t->what,
                                t->signal, t->team->world_rank[t->peer]);
    *queued = status == SYMM_OK;
    status = symm__cuda_wait_end(launcher, stream, wait, status);
    if (status == SYMM_OK)
        status = copy_abort(launcher, t->team->cuda, stream);
    return status == SYMM_OK ? write_word(launcher, stream, at, 0) : status;
}

/* The peer's word among a member's: its token, or its room. */
static uint32_t *word_of(struct symm_cuda_words *words, int peer, int signal,
                         bool token)
{
    return token ? &words->token[peer][signal] : &words->room[peer][signal];
}

/* In a scope. *queued: a part that cannot be repeated is, also on error. */
static symm_status by_engine(const struct symm_transfer *t, CUstream stream,
                             bool *queued)
{
    struct symm_cuda_launcher *launcher = t->team->ctx->launcher;
    const int own_place = t->team->local_rank;
    const int peer = symm__team_place(t->team, t->peer);
    struct symm_cuda_words *own, *own_at, *theirs_at;
    symm_status status;

    if (t->signal < 0)
        return copy(launcher, t, stream);
    own = symm__cuda_tokens_find(t->team, own_place, &own_at);
    if (!own || !symm__cuda_tokens_find(t->team, peer, &theirs_at))
        return symm__fail(
            SYMM_ERR_UNSUPPORTED,
            "%s: signals by copy engine need memory of the host that all "
            "ranks share and their devices reach, which rank %d could not "
            "get (its log says why, SYMM_LOG=info); name no algorithm, a "
            "kernel signals then",
            t->what, t->team->cuda->tokens_lost);
    status = take_word(launcher, t, stream, word_of(own, peer, t->signal, t->waits),
                       word_of(own_at, peer, t->signal, t->waits), queued);
    if (status == SYMM_OK && !t->waits)
        status = copy(launcher, t, stream);
    if (status == SYMM_OK)
        status = write_word(launcher, stream,
                            word_of(theirs_at, own_place, t->signal, !t->waits), 1);
    return status;
}

/* ---- The call -------------------------------------------------------------------------- */

static symm_status wants_engine(const struct symm_transfer *t, bool *engine)
{
    *engine =
        t->algorithm &&
        strcmp(t->algorithm, symm_algorithm_name(SYMM_ALGORITHM_COPY_ENGINE)) == 0;
    if (!t->algorithm || *engine)
        return SYMM_OK;
    return symm__fail(SYMM_ERR_INVALID,
                      "%s: algorithm '%s' is none of one-sided calls; they have "
                      "copy_engine, and a kernel where none is named",
                      t->what, t->algorithm);
}

/* For symm_explain. */
static const char *path_of(const struct symm_transfer *t, bool engine)
{
    if (t->waits)
        return engine ? "by copy engine: the stream awaits the token that the peer's "
                        "writes"
                      : "a kernel waits for the signal in this rank's pad";
    if (t->gets)
        return engine ? "the copy engine reads from the peer's mapping"
                      : "a kernel copies from the peer's mapping";
    if (t->signal < 0)
        return engine ? "the copy engine writes into the peer's mapping"
                      : "a kernel copies into the peer's mapping";
    if (t->bytes == 0)
        return engine ? "by copy engine: the stream writes a token, once the last was "
                        "taken"
                      : "a kernel raises the signal in the peer's pad";
    return engine
               ? "the copy engine moves it, and the stream writes and awaits the "
                 "tokens"
               : "a kernel copies into the peer's mapping; a signal follows the data";
}

symm_status symm__cuda_transfer(const struct symm_transfer *t, void *stream,
                                symm_work **handle, const char **path, bool *captured)
{
    struct symm_cuda_launcher *launcher = t->team->ctx->launcher;
    struct symm_cuda_scope scope;
    struct symm_cuda_work *work = NULL;
    struct symm_cuda_follow follow;
    uint32_t *result = NULL;
    bool engine = false, queued = false;
    symm_status status = wants_engine(t, &engine);

    if (status == SYMM_OK && handle)
        status = symm__cuda_work_begin(t->team, stream, &work, engine ? NULL : &result);
    if (status != SYMM_OK)
        return status;
    *path = path_of(t, engine);
    symm__cuda_site_name_publish(launcher, t->tag, t->site);
    __atomic_store_n(&t->team->cuda->used, 1, __ATOMIC_RELAXED);
    if (!engine) {
        status = by_kernel(t, (CUstream)stream, result, captured);
        queued = status == SYMM_OK && t->signal >= 0;
    } else {
        status = symm__cuda_follow_relay(t->team, t->team, t->site, stream, &follow);
        *captured = follow.captured;
        if (status == SYMM_OK)
            status = symm__cuda_enter(launcher->backend, &scope);
        if (status == SYMM_OK) {
            status = by_engine(t, (CUstream)stream, &queued);
            symm__cuda_leave(&scope);
        }
        symm__cuda_follow_end(&follow, status == SYMM_OK);
    }
    if (work)
        status = symm__cuda_work_end(work, status, handle);
    if (status != SYMM_OK && queued && !*captured)
        status = symm__team_fail_queued(t->team, t->what, t->site);
    return status;
}
