/* SPDX-License-Identifier: MIT */
/*
 * progress.c - shows tools how far the device is, also within replays of graphs, which run no code
 * of the host. SYMM_SIGHT=1 alone.
 *
 * Kernels count the calls of a channel in device memory (symm_device_block.call) and announce
 * a call in the rank's own pad, too (symm_round_tell). Every LOOK_SECONDS the watchdog copies
 * both words of each channel that is in use into page-locked memory, by copy engine on a stream of
 * their own, and reads them at a later poll. Kernels do nothing for it. A call that is under way
 * at two polls in a row is a wait, for the members whose words of that call have not arrived. It
 * is under way if this rank has announced it and its number is above the counter, or is the
 * counter's and a member's word is missing: some kernels close a call early, but none ends before
 * it has read the words of all members (symm_round_finish).
 */
#include <stdlib.h>

#include "core/failure.h"
#include "cuda/channel_table.h"
#include "cuda/progress.h"
#include "sight/sight.h"
#include "util/clock.h"
#include "util/log.h"

#define LOOK_SECONDS 0.1
#define LOOKS        128 /* channels of one poll */
/* How long copies of some bytes are waited for: after that the device has failed. */
#define SETTLE_SECONDS      1.0
#define SETTLE_POLL_SECONDS 0.0001

/* The copy of a channel's words: of call c those from call[(c & 1) x words_of(team)] on. */
struct look_words {
    struct symm_device_block block;
    uint64_t call[2 * SYMM_DEVICE_RANKS];
};

struct look {
    struct symm_cuda_team *cuda;
    int channel;
};

struct symm_cuda_progress {
    CUstream stream;
    struct look_words *words; /* [LOOKS], page-locked */
    struct look look[LOOKS];  /* under way */
    int count;
    double last; /* when the last look began */
};

/* ---- Copies ---------------------------------------------------------------------------- */

static CUresult copy(const struct symm_cuda_launcher *launcher, void *to,
                     const void *from, size_t bytes)
{
    return launcher->driver->cuMemcpyAsync((CUdeviceptr)(uintptr_t)to,
                                           (CUdeviceptr)(uintptr_t)from, bytes,
                                           launcher->progress->stream);
}

/* Words of a call in the team's pad. */
static size_t words_of(const symm_team *team)
{
    return team->local_size > SYMM_FEW_RANKS ? SYMM_DEVICE_RANKS : SYMM_FEW_RANKS;
}

static uint64_t call_word(const symm_team *team, const struct look_words *words,
                          uint32_t call, int member)
{
    return words->call[(call & 1) * words_of(team) + (size_t)member];
}

static uint64_t progress_word(const symm_team *team, int channel)
{
    return __atomic_load_n(symm__channel_progress(team, team->local_rank, channel),
                           __ATOMIC_RELAXED);
}

/* Launches by the host, beside those in graphs. */
static uint32_t launched(const symm_team *team, int channel)
{
    return (uint32_t)(progress_word(team, channel) >> 32);
}

static CUresult copy_channel(const struct symm_cuda_launcher *launcher,
                             const struct symm_cuda_team *cuda, int channel,
                             struct look_words *to)
{
    const symm_team *team = cuda->team;
    CUresult result =
        copy(launcher, &to->block, &cuda->state->block[channel][0], sizeof(to->block));

    return result == CUDA_SUCCESS
               ? copy(launcher, to->call,
                      symm__device_call_words(&team->device, team->local_rank,
                                              (uint32_t)channel, 0),
                      2 * words_of(team) * sizeof(to->call[0]))
               : result;
}

static void look_begin(struct symm_cuda_launcher *launcher)
{
    struct symm_cuda_progress *p = launcher->progress;
    CUresult result = CUDA_SUCCESS;

    p->count = 0;
    for (struct symm_cuda_team *t = launcher->teams; t; t = t->next)
        for (int c = 0; c < SYMM_CHANNELS && p->count < LOOKS; c++) {
            if (!t->team->pad[t->team->local_rank] || progress_word(t->team, c) == 0)
                continue;
            result = copy_channel(launcher, t, c, &p->words[p->count]);
            if (result != CUDA_SUCCESS) /* the device has failed: nothing is read */
                break;
            p->look[p->count++] = (struct look){t, c};
        }
}

/* ---- What they say ----------------------------------------------------------------------- */

/* The world ranks of members on this host whose word of the call has not arrived. */
static int find_missing(const symm_team *team, const struct look_words *words,
                        uint32_t call, int missing[SYMM_DEVICE_RANKS])
{
    int count = 0;

    for (int p = 0; p < team->local_size && p < SYMM_DEVICE_RANKS; p++)
        if ((uint32_t)call_word(team, words, call, p) != call)
            missing[count++] = symm__team_rank_at(team, p);
    return count;
}

static bool is_announced(const symm_team *team, const struct look_words *words,
                         uint32_t call)
{
    const uint64_t own = call_word(team, words, call, team->local_rank);

    return (uint32_t)own == call && own >> 32 != 0; /* 0: cancelled */
}

/* The number of the call under way; false: none. */
static bool find_call(const symm_team *team, const struct look_words *words,
                      uint32_t *call)
{
    int missing[SYMM_DEVICE_RANKS];

    *call = words->block.call + 1;
    if (is_announced(team, words, *call))
        return true;
    *call = words->block.call;
    return is_announced(team, words, *call) &&
           find_missing(team, words, *call, missing) > 0;
}

static void wait_show(struct symm_cuda_team *cuda, int channel, uint32_t call,
                      const struct look_words *words)
{
    symm_team *team = cuda->team;
    struct symm_cuda_seen *seen = &cuda->seen[channel];
    const uint32_t tag =
        (uint32_t)(call_word(team, words, call, team->local_rank) >> 32);
    struct symm_sight_what what = {.team_uid = team->uid,
                                   .channel = (uint32_t)channel,
                                   .since = seen->since,
                                   .op = "a call"};
    struct symm_site site;
    int missing[SYMM_DEVICE_RANKS], count;

    if (!seen->wait && symm__cuda_site_find(team->ctx, team->ctx->rank, tag, &site)) {
        what.op = symm__kind_name((enum symm_kind)site.kind);
        what.name = site.name;
        what.bytes = ((uint64_t)site.count_high << 32 | site.count_low) *
                     symm_dtype_size((symm_dtype)site.dtype);
    }
    if (!seen->wait)
        seen->wait = symm__sight_wait_begin(team->ctx->sight, &what, call);
    count = find_missing(team, words, call, missing);
    /* If none is missing, the call waits in a later round, for members that are in the call
     * too. */
    symm__sight_wait_for(team->ctx->sight, seen->wait, missing, count > 0 ? count : -1);
}

static void look_read(const struct symm_cuda_launcher *launcher,
                      const struct look *look, const struct look_words *words)
{
    symm_team *team = look->cuda->team;
    struct symm_cuda_seen *seen = &look->cuda->seen[look->channel];
    uint32_t call;
    const bool inside = find_call(team, words, &call);

    symm__sight_progress(launcher->ctx->sight, team->uid, look->channel,
                         words->block.call, launched(team, look->channel));
    if (inside && seen->call == call && seen->since > 0) {
        wait_show(look->cuda, look->channel, call, words);
        return;
    }
    symm__sight_wait_end(launcher->ctx->sight, seen->wait);
    /* read after that: the next wait on the channel begins when the one before has ended */
    *seen = (struct symm_cuda_seen){.call = call, .since = inside ? symm__now() : 0};
}

/* ---- For the watchdog ---------------------------------------------------------------------- */

/* Streams that wait may hold all hardware queues: then the copies come late, and tools see an
 * older state. */
void symm__cuda_progress_poll(struct symm_cuda_launcher *launcher)
{
    struct symm_cuda_progress *p = launcher->progress;
    struct symm_cuda_scope scope;
    double now = symm__now();

    if (!p || (p->count == 0 && now - p->last < LOOK_SECONDS) ||
        symm__cuda_enter(launcher->backend, &scope) != SYMM_OK)
        return;
    if (p->count > 0 && launcher->driver->cuStreamQuery(p->stream) == CUDA_SUCCESS) {
        for (int i = 0; i < p->count; i++)
            if (p->look[i].cuda)
                look_read(launcher, &p->look[i], &p->words[i]);
        p->count = 0;
    }
    if (p->count == 0 && now - p->last >= LOOK_SECONDS) {
        p->last = now;
        look_begin(launcher);
    }
    symm__cuda_leave(&scope);
}

static void settle(const struct symm_cuda_launcher *launcher)
{
    const double until = symm__now() + SETTLE_SECONDS;
    struct symm_cuda_scope scope;

    if (!symm__cuda_enter_last(launcher->backend, &scope))
        return;
    while (launcher->driver->cuStreamQuery(launcher->progress->stream) ==
               CUDA_ERROR_NOT_READY &&
           symm__now() < until)
        symm__sleep(SETTLE_POLL_SECONDS);
    symm__cuda_leave(&scope);
}

void symm__cuda_progress_forget(struct symm_cuda_launcher *launcher,
                                struct symm_cuda_team *cuda)
{
    struct symm_cuda_progress *p = launcher->progress;

    for (int c = 0; c < SYMM_CHANNELS; c++) {
        symm__sight_wait_end(launcher->ctx->sight, cuda->seen[c].wait);
        cuda->seen[c].wait = NULL;
    }
    for (int i = 0; p && i < p->count; i++)
        if (p->look[i].cuda == cuda)
            p->look[i].cuda = NULL;
    symm__sight_progress_end(launcher->ctx->sight, cuda->team->uid);
    if (p && p->count > 0)
        settle(launcher);
}

void symm__cuda_progress_open(struct symm_cuda_launcher *launcher)
{
    symm_ctx *ctx = launcher->ctx;
    struct symm_cuda_progress *p;
    struct symm_cuda_scope scope;
    void *words = NULL;

    if (!symm__sight_times(ctx->sight))
        return;
    p = calloc(1, sizeof(*p));
    if (!p || symm__cuda_host_alloc(ctx, LOOKS * sizeof(*p->words), &words) != SYMM_OK)
        goto err_memory;
    if (symm__cuda_enter(launcher->backend, &scope) != SYMM_OK)
        goto err_words;
    if (launcher->driver->cuStreamCreateWithPriority(&p->stream, CU_STREAM_NON_BLOCKING,
                                                     0) != CUDA_SUCCESS)
        p->stream = NULL;
    symm__cuda_leave(&scope);
    if (!p->stream)
        goto err_words;
    p->words = words;
    launcher->progress = p;
    return;

err_words:
    symm__cuda_host_free(ctx, words);
err_memory:
    free(p);
    symm__log(SYMM_LOG_WARN, "tools do not see how far the device is: no memory or "
                             "stream for it");
}

void symm__cuda_progress_close(struct symm_cuda_launcher *launcher)
{
    struct symm_cuda_progress *p = launcher->progress;
    struct symm_cuda_scope scope;

    if (!p)
        return;
    if (symm__cuda_enter_last(launcher->backend, &scope)) {
        (void)launcher->driver->cuStreamDestroy(p->stream);
        symm__cuda_leave(&scope);
    }
    symm__cuda_host_free(launcher->ctx, p->words);
    free(p);
    launcher->progress = NULL;
}
