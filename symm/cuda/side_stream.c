/* SPDX-License-Identifier: MIT */
/*
 * side_stream.c - a second stream of a channel, for steps of a call that run beside the kernels on
 * its own stream: of teams over several hosts (call/hierarchical_chunks.c).
 *
 * The two are ordered by events only, so that a capture of the channel's stream takes the second
 * one along. An event may be recorded again once the wait for it is queued.
 */
#include <stdlib.h>

#include "cuda/launcher.h"
#include "util/status.h"

struct symm_cuda_side {
    CUstream stream;
    CUevent marks[SYMM_SIDE_MARKS];
};

static symm_status side_create(struct symm_cuda_launcher *launcher,
                               struct symm_cuda_side *side)
{
    struct symm_cuda_scope scope;
    symm_status status = symm__cuda_enter(launcher->backend, &scope);

    if (status != SYMM_OK)
        return status;
    for (int i = 0; i < SYMM_SIDE_MARKS && status == SYMM_OK; i++)
        if (!side->marks[i])
            status = symm__cuda_event_acquire(launcher, &side->marks[i]);
    if (status == SYMM_OK)
        status = SYMM_CUDA_CALL(launcher->driver, cuStreamCreateWithPriority,
                                (&side->stream, CU_STREAM_NON_BLOCKING, 0),
                                "a second stream for a call of rank %d",
                                launcher->ctx->rank);
    symm__cuda_leave(&scope);
    return status;
}

symm_status symm__cuda_side(struct symm_team_channel *channel, void **stream)
{
    struct symm_cuda_team *cuda = channel->team->cuda;
    symm_status status = SYMM_OK;

    if (!cuda->sides)
        cuda->sides = calloc(SYMM_CHANNELS, sizeof(*cuda->sides));
    if (!cuda->sides)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for a second stream");
    if (!cuda->sides[channel->index].stream)
        status =
            side_create(channel->team->ctx->launcher, &cuda->sides[channel->index]);
    *stream = cuda->sides[channel->index].stream;
    return status;
}

static symm_status order(struct symm_team_channel *channel,
                         enum symm_cuda_stream_call call, int mark, void *stream)
{
    struct symm_cuda_launcher *launcher = channel->team->ctx->launcher;
    struct symm_cuda_side *side = &channel->team->cuda->sides[channel->index];

    return symm__cuda_check(
        launcher->driver,
        symm__cuda_on_stream(launcher, call, (CUstream)stream, side->marks[mark]),
        call == SYMM_CUDA_RECORD ? "cuEventRecord" : "cuStreamWaitEvent",
        "the order of a call's steps on rank %d", launcher->ctx->rank);
}

symm_status symm__cuda_side_mark(struct symm_team_channel *channel, int mark,
                                 void *stream)
{
    return order(channel, SYMM_CUDA_RECORD, mark, stream);
}

symm_status symm__cuda_side_await(struct symm_team_channel *channel, int mark,
                                  void *stream)
{
    return order(channel, SYMM_CUDA_AWAIT, mark, stream);
}

const void *symm__cuda_side_owner(const symm_team *team, const void *stream)
{
    const struct symm_cuda_side *sides = team->cuda->sides;

    for (int c = 0; sides && stream && c < SYMM_CHANNELS; c++)
        if (sides[c].stream == stream)
            return team->channel[c].stream;
    return stream;
}

void symm__cuda_sides_close(struct symm_cuda_team *cuda)
{
    struct symm_cuda_launcher *launcher = cuda->team->ctx->launcher;
    struct symm_cuda_scope scope;

    if (!cuda->sides || !symm__cuda_enter_last(launcher->backend, &scope))
        return;
    for (int c = 0; c < SYMM_CHANNELS; c++) {
        struct symm_cuda_side *side = &cuda->sides[c];

        for (int i = 0; i < SYMM_SIDE_MARKS; i++)
            if (side->marks[i])
                symm__cuda_event_release(launcher, side->marks[i]);
        if (side->stream)
            (void)launcher->driver->cuStreamDestroy(side->stream);
    }
    symm__cuda_leave(&scope);
    free(cuda->sides);
    cuda->sides = NULL;
}
