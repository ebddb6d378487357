/* SPDX-License-Identifier: MIT */
/*
 * team.c - what a team has on its device: counters, the record of a failure, scratch
 * and pad as kernels expect them, and the team as device code sees it.
 *
 * The end of a team writes a final arrival (tag 0) into every peer's pad, so that a peer that
 * makes another call fails within microseconds and not at its deadline.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/failure.h"
#include "cuda/budget.h"
#include "cuda/channel.h"
#include "cuda/channel_table.h"
#include "cuda/progress.h"
#include "cuda/stream_order.h"
#include "engine/runtime.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/status.h"

/* Tests begin near the wrap of 2^32; rounds wrap at a limit of their own. */
static uint32_t first_round(uint32_t epoch)
{
    uint32_t left = (uint32_t)0 - epoch; /* until the wrap */

    return epoch < 0x80000000u ? epoch : SYMM_ROUND_LIMIT - left;
}

static uint32_t round_before(uint32_t round)
{
    return round == 0 ? SYMM_ROUND_LIMIT - 1 : round - 1;
}

/* A channel of `ranks` words in a row: all of them the same. */
static void fill_words(void *channel, int ranks, const uint64_t calls[2],
                       const uint64_t rounds[2])
{
    uint64_t *word = channel;

    for (int row = 0; row < 2 * (1 + SYMM_DEVICE_BLOCKS); row++)
        for (int m = 0; m < ranks; m++)
            *word++ = row < 2 ? calls[row] : rounds[row % 2];
}

/* Fills a fresh pad: all members have finished the call and the round, with tag 0. So no word in
 * it looks like an awaited or a cancelled arrival, wherever counting begins. */
static symm_status fill_pad(symm_team *team, uint32_t call, uint32_t round)
{
    const bool wide = team->local_size > SYMM_FEW_RANKS;
    struct symm_device_wide_channel *words = calloc(1, sizeof(*words));
    const size_t few = sizeof(struct symm_device_channel);
    char *at = team->device.base[team->local_rank] + team->begin;
    uint64_t calls[2], rounds[2];
    symm_status status = SYMM_OK;

    if (wide && team->spans) { /* its local teams run the kernels */
        free(words);
        return SYMM_OK;
    }
    if (!words)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a team's pad");
    calls[call & 1] = symm_device_word(0, call);
    calls[~call & 1] = symm_device_word(0, call - 1);
    rounds[round & 1] = symm_device_word(0, round);
    rounds[~round & 1] = symm_device_word(0, round_before(round));
    fill_words(words, wide ? SYMM_DEVICE_RANKS : SYMM_FEW_RANKS, calls, rounds);
    if (wide)
        at += SYMM_PAD_BYTES;
    for (int c = 0; c < SYMM_CHANNELS && status == SYMM_OK; c++) {
        const size_t bytes = wide ? sizeof(*words) : few;

        status = symm__cuda_copy(team->ctx, at + (size_t)c * bytes, words, bytes);
    }
    free(words);
    return status;
}

static symm_status fill_state(symm_team *team, uint32_t call, uint32_t round)
{
    struct symm_device_state *state = calloc(1, sizeof(*state));
    symm_status status;

    if (!state)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a team's counters");
    for (int c = 0; c < SYMM_CHANNELS; c++)
        for (int b = 0; b < SYMM_DEVICE_BLOCKS; b++)
            state->block[c][b] =
                (struct symm_device_block){.round = round, .call = call};
    status = symm__cuda_copy(team->ctx, team->cuda->state, state, sizeof(*state));
    free(state);
    return status;
}

/* Committed memory holds zeros, which is right for all regions but one. */
static symm_status fill_scratch(symm_team *team)
{
    char *own = team->device.base[team->local_rank];
    symm_status status = SYMM_OK;

    symm__cuda_scratch_layout(team->begin + SYMM_PAD_BYTES, team->local_size,
                              team->cuda->scratch);
    for (int c = 0; c < SYMM_CHANNELS && status == SYMM_OK; c++)
        status = symm__cuda_fill(team->ctx, own + team->cuda->scratch[c].lamport, 0xff,
                                 team->cuda->scratch[c].lamport_bytes);
    return status;
}

static symm_status allocate(symm_ctx *ctx, struct symm_cuda_team *cuda)
{
    void *state, *record, *device;
    symm_status status =
        symm__cuda_local_alloc(ctx->backend, sizeof(struct symm_cuda_state), &state);

    if (status != SYMM_OK)
        return status;
    cuda->state = state;
    status = symm__cuda_local_alloc(ctx->backend, sizeof(*cuda->device), &device);
    if (status != SYMM_OK)
        return status;
    cuda->device = device;
    status = symm__cuda_host_alloc(ctx, sizeof(struct symm_cuda_record), &record);
    if (status == SYMM_OK)
        cuda->record = record;
    return status;
}

static void launcher_free(struct symm_cuda_launcher *launcher)
{
    symm__cuda_map_free(&launcher->last);
    pthread_mutex_destroy(&launcher->order);
    pthread_mutex_destroy(&launcher->pool);
    pthread_rwlock_destroy(&launcher->handles);
    pthread_mutex_destroy(&launcher->peeking);
    pthread_mutex_destroy(&launcher->lock);
    free(launcher);
}

/* A team's end goes first: threads that poll handles without a pause must not hold it up. */
static void handles_init(pthread_rwlock_t *handles)
{
    pthread_rwlockattr_t writer_first;

    pthread_rwlockattr_init(&writer_first);
    pthread_rwlockattr_setkind_np(&writer_first,
                                  PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(handles, &writer_first);
    pthread_rwlockattr_destroy(&writer_first);
}

static symm_status launcher_create(symm_ctx *ctx)
{
    struct symm_cuda_launcher *launcher = calloc(1, sizeof(*launcher));
    symm_status status;

    if (!launcher)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a launcher");
    launcher->ctx = ctx;
    launcher->backend = ctx->backend;
    launcher->driver = ctx->backend->driver;
    launcher->dependent =
        ctx->backend->device.major >= 9 && launcher->driver->version >= 12030;
    launcher->pageable = symm__cuda_has(launcher->driver, ctx->backend->handle,
                                        CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS);
    launcher->flush = symm__cuda_has(launcher->driver, ctx->backend->handle,
                                     CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES);
    pthread_mutex_init(&launcher->lock, NULL);
    pthread_mutex_init(&launcher->peeking, NULL);
    handles_init(&launcher->handles);
    pthread_mutex_init(&launcher->pool, NULL);
    pthread_mutex_init(&launcher->order, NULL);
    status = symm__cuda_pool_open(launcher);
    if (status != SYMM_OK)
        goto err_launcher;
    symm__cuda_progress_open(launcher);
    status = symm__cuda_watchdog_start(launcher);
    if (status != SYMM_OK)
        goto err_pool;
    ctx->launcher = launcher;
    return SYMM_OK;

err_pool:
    symm__cuda_progress_close(launcher);
    symm__cuda_pool_close(launcher);
err_launcher:
    launcher_free(launcher);
    return status;
}

static void launcher_destroy(symm_ctx *ctx)
{
    struct symm_cuda_launcher *launcher = ctx->launcher;

    symm__cuda_watchdog_stop(launcher);
    symm__cuda_progress_close(launcher);
    symm__notifier_forget(&ctx->notifier);
    symm__notifier_drain(&ctx->notifier); /* functions may be releasing handles */
    symm__cuda_pool_close(launcher);
    launcher_free(launcher);
    ctx->launcher = NULL;
}

/* In a forked child it frees memory alone: the device is the parent's. */
static void team_forget(symm_team *team, bool drained)
{
    struct symm_cuda_team *cuda = team->cuda;

    symm__cuda_multicast_finish(&cuda->multicast);
    symm__cuda_words_free(cuda);
    symm__cuda_tokens_close(cuda, drained);
    symm__cuda_pointers_free(cuda);
    symm__cuda_channel_close(team);
    symm__cuda_local_free(team->ctx->backend, cuda->state);
    symm__cuda_local_free(team->ctx->backend, cuda->device);
    symm__cuda_host_free(team->ctx, cuda->record);
    free(cuda);
    team->cuda = NULL;
    team->device_ops = NULL;
}

uint64_t symm__cuda_scratch_end(uint64_t pad_end, int size)
{
    struct symm_cuda_scratch scratch[SYMM_CHANNELS];

    return symm__cuda_scratch_layout(pad_end, size, scratch);
}

symm_status symm__cuda_memory_shared(symm_team *team, double timeout)
{
    symm_status status = symm__cuda_tokens_share(team, timeout);

    return status == SYMM_OK ? symm__cuda_multicast_share(team, timeout) : status;
}

symm_status symm__cuda_team_open(symm_team *team)
{
    symm_ctx *ctx = team->ctx;
    uint32_t call = ctx->epoch_start, round = first_round(ctx->epoch_start);
    symm_status status;

    if (team->local_size > SYMM_DEVICE_RANKS)
        return symm__fail(SYMM_ERR_UNSUPPORTED,
                          "a team with %d ranks on one host; the cuda backend takes up "
                          "to %d",
                          team->local_size, SYMM_DEVICE_RANKS);
    team->cuda = calloc(1, sizeof(*team->cuda));
    if (!team->cuda)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a team");
    team->cuda->team = team;
    status = allocate(ctx, team->cuda);
    if (status != SYMM_OK)
        goto err_team;
    symm__channel_table_open(team);
    symm__cuda_budget_open(team);
    symm__team_describe(team);
    team->device.state = team->cuda->state;
    team->device.record = team->cuda->record;
    status = fill_pad(team, call, round);
    if (status == SYMM_OK)
        status = fill_state(team, call, round);
    if (status == SYMM_OK && !team->spans)
        status = fill_scratch(team);
    if (status == SYMM_OK)
        status = symm__cuda_copy(ctx, team->cuda->device, &team->device,
                                 sizeof(team->device));
    if (status == SYMM_OK && !ctx->launcher)
        status = launcher_create(ctx);
    if (status != SYMM_OK)
        goto err_team;
    team->device_ops = ctx->device_ops;
    pthread_mutex_lock(&ctx->launcher->lock);
    team->cuda->next = ctx->launcher->teams;
    ctx->launcher->teams = team->cuda;
    pthread_mutex_unlock(&ctx->launcher->lock);
    return SYMM_OK;

err_team:
    symm__cuda_budget_close(team);
    team_forget(team, true);
    return status;
}

/* ---- The end ------------------------------------------------------------------------- */

/* The calls that the channels' kernels have begun. */
static symm_status count_calls(symm_team *team, uint32_t calls[SYMM_CHANNELS])
{
    struct symm_device_block block[SYMM_CHANNELS][SYMM_DEVICE_BLOCKS];
    symm_status status =
        symm__cuda_copy(team->ctx, block, team->cuda->state->block, sizeof(block));

    for (int c = 0; c < SYMM_CHANNELS && status == SYMM_OK; c++)
        calls[c] = block[c][0].call;
    return status;
}

/* Waits until no kernel uses the team's memory; each kernel ends by its own deadline. Only the
 * device knows that: the counters show that a call has begun, and its stream may be gone. Freeing
 * the memory would wait as well, but peers must learn of the team's end before. */
static bool drain(symm_team *team, uint32_t calls[SYMM_CHANNELS])
{
    struct symm_cuda_scope scope;
    bool healthy = __atomic_load_n(&team->failed, __ATOMIC_ACQUIRE) == SYMM_OK;

    if (!healthy)
        symm__cuda_abort(team, (symm_status)team->failed);
    if (!healthy || __atomic_load_n(&team->cuda->used, __ATOMIC_RELAXED)) {
        if (symm__cuda_enter(team->ctx->backend, &scope) != SYMM_OK)
            return false;
        if (team->ctx->backend->driver->cuCtxSynchronize() != CUDA_SUCCESS)
            healthy = false;
        symm__cuda_leave(&scope);
    }
    return count_calls(team, calls) == SYMM_OK && healthy &&
           __atomic_load_n(&team->cuda->record->state, __ATOMIC_ACQUIRE) == 0;
}

/* Writes the final arrival into every peer's pad. */
static void write_final_arrivals(symm_team *team, const uint32_t calls[SYMM_CHANNELS])
{
    symm_status status = SYMM_OK;

    if (team->local_size > SYMM_FEW_RANKS && team->spans) /* it has no words */
        return;
    for (int p = 0; p < team->local_size && status == SYMM_OK; p++) {
        /* not mapped: the member has not begun */
        if (p == team->local_rank || !team->pad[p])
            continue;
        for (int c = 0; c < SYMM_CHANNELS && status == SYMM_OK; c++) {
            uint32_t next = calls[c] + 1;
            uint64_t word = symm_device_word(0, next);

            status =
                symm__cuda_copy(team->ctx,
                                &symm__device_call_words(&team->device, p, (uint32_t)c,
                                                         next)[team->local_rank],
                                &word, sizeof(word));
        }
    }
    if (status != SYMM_OK)
        symm__log(SYMM_LOG_DEBUG, "peers are not told that a team ends: %s",
                  symm_last_error());
}

/* With the lock held. */
static void keep_reason(struct symm_cuda_launcher *launcher, const symm_team *team)
{
    struct symm_cuda_ended *at;

    /* acquire: pairs with the release in team_mark */
    if (__atomic_load_n(&team->failed, __ATOMIC_ACQUIRE) == SYMM_OK)
        return;
    at = &launcher->ended[launcher->ended_next++ % SYMM_CUDA_ENDED];
    at->number = team->number;
    snprintf(at->why, sizeof(at->why), "%s", team->failure);
}

static void unlist(struct symm_cuda_launcher *launcher, struct symm_cuda_team *cuda)
{
    struct symm_cuda_team **at = &launcher->teams;

    pthread_mutex_lock(&launcher->lock); /* not while the watchdog uses a team */
    while (*at && *at != cuda)
        at = &(*at)->next;
    if (*at)
        *at = cuda->next;
    keep_reason(launcher, cuda->team);
    symm__cuda_progress_forget(launcher, cuda);
    pthread_mutex_unlock(&launcher->lock);
}

void symm__cuda_team_close(symm_team *team)
{
    struct symm_cuda_launcher *launcher;
    uint32_t counters[SYMM_CHANNELS] = {0};
    bool drained;

    if (!team->cuda)
        return;
    launcher = team->ctx->launcher;
    for (int c = 0; c < SYMM_CHANNELS; c++) {
        free(team->channel[c].launches);
        team->channel[c].launches = NULL;
    }
    if (*team->ctx->own_process != 1) { /* forked: also the claims are the parent's */
        team_forget(team, false);
        return;
    }
    if (symm__team_failed(team) != SYMM_OK)
        symm__cuda_engine_abort(team); /* its operations might never end */
    symm__cuda_follow_forget(team->cuda);
    symm__cuda_ending(team->ctx, true);
    drained = drain(team, counters);
    symm__cuda_ending(team->ctx, false);
    symm__cuda_waits_end(launcher, team);
    unlist(launcher, team->cuda);  /* so that the watchdog aborts no engine any more */
    symm__cuda_tell(team->cuda);   /* waits for a copy that uses the memory */
    symm__engine_team_close(team); /* its operations have ended, memory still exists */
    if (drained)
        write_final_arrivals(team, counters);
    symm__cuda_work_complete_all(launcher, team);
    symm__cuda_budget_close(team);
    symm__cuda_sides_close(team->cuda);
    team_forget(team, drained);
    if (!launcher->teams)
        launcher_destroy(team->ctx);
}
