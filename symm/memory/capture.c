/* SPDX-License-Identifier: MIT */
/*
 * capture.c - the bracket around captures of graphs that use memory which is not symmetric.
 *
 * Between its ends captured calls get an entry each (core/captured.h). The second end is two
 * exchanges: one with all that the ranks must agree on and map, one that reports whether every
 * rank could. Then the entries become ready.
 */
#include <stdlib.h>

#include "core/captured.h"
#include "core/device_ops.h"
#include "core/failure.h"
#include "memory/rendezvous.h"
#include "oob/oob.h"
#include "util/status.h"

#define ABANDON_SECONDS                                                                \
    10.0 /* that a rank whose captures have failed waits for others */

static symm_status check(const symm_team *team, const char *function)
{
    symm_status status = symm__team_check_in(team, function);

    if (status != SYMM_OK)
        return status;
    if (!team->device_ops || team->far)
        return symm__fail(SYMM_ERR_UNSUPPORTED,
                          "%s: the team's calls do not use peers' memory from graphs: "
                          "it is on %s; capture without a bracket",
                          function, team->far ? "several hosts" : "the host backend");
    return symm__team_failed(team);
}

symm_status symm_team_capture_begin(symm_team *team)
{
    symm_status status = check(team, __func__);

    if (status != SYMM_OK)
        return status;
    pthread_mutex_lock(&team->channels);
    if (team->capturing)
        status = symm__fail(SYMM_ERR_IN_USE,
                            "symm_team_capture_begin: the team's bracket has begun "
                            "already; end it first (symm_team_capture_end)");
    else
        status = symm__captured_begin(team);
    pthread_mutex_unlock(&team->channels);
    return status;
}

/* The exchange that reports whether all could map all. With the context locked. */
static symm_status agree(symm_team *team, symm_status mine)
{
    struct symm_oob_message *acks = team->ctx->room.acks;
    symm_status status = symm__team_exchange(
        team, "capture end: have all mapped all?", team->ctx->timeout,
        &(struct symm_own_message){.status = mine}, acks);

    symm__oob_messages_finish(acks, team->size);
    return status;
}

/* With the context locked. why: the bracket is abandoned; NULL: it is not. *ended: as
 * symm__captured_ready has it. */
static symm_status end(symm_team *team, const char *why, bool *ended)
{
    struct symm_oob_message *messages = team->ctx->room.messages;
    const double most = why ? ABANDON_SECONDS : team->ctx->timeout;
    const double timeout = team->ctx->timeout < most ? team->ctx->timeout : most;
    struct symm_own_message own = {0};
    int *fds;
    void *bytes;
    symm_status status;

    own.status =
        symm__captured_pack(team, why, &bytes, &own.bytes_count, &fds, &own.fds_count);
    own.bytes = bytes;
    own.fds = fds;
    status = symm__team_exchange(team, "capture end", timeout, &own, messages);
    free(bytes);
    free(fds);
    if (status == SYMM_OK)
        status = symm__captured_compare(team, messages);
    if (status == SYMM_OK) /* equal messages: all come to this exchange, or none */
        status = agree(team, symm__captured_map(team, messages));
    if (status == SYMM_OK)
        status = symm__captured_ready(team, messages, ended);
    else
        symm__captured_fail(team);
    symm__oob_messages_finish(messages, team->size);
    return status;
}

/* Unmaps released memory once the calls under way that may use it have ended. */
static void sweep(symm_team *team)
{
    team->ctx->device_ops->settle(team->ctx);
    pthread_mutex_lock(&team->ctx->lock);
    symm__captured_sweep(team);
    pthread_mutex_unlock(&team->ctx->lock);
}

/* Fails the team with the reason: others may wait for this rank in any call of the team. */
static symm_status fail_abandoned(symm_team *team, const char *why)
{
    char sentence[SYMM_ERROR_BYTES];

    symm__error_save(sentence);
    return symm__team_fail(team, SYMM_ERR_ABORTED,
                           "rank %d has abandoned its captures%s%.80s, and %s",
                           team->ctx->rank, *why ? ": " : "", why, sentence);
}

/* Both ends of a bracket. function: the caller's name. */
static symm_status finish(symm_team *team, const char *function, const char *why)
{
    symm_status status;
    bool begun, ended = false;

    pthread_mutex_lock(&team->channels);
    begun = team->capturing;
    team->capturing = false;
    pthread_mutex_unlock(&team->channels);
    if (!begun)
        return symm__fail(SYMM_ERR_INVALID,
                          "%s: no symm_team_capture_begin came before it", function);
    pthread_mutex_lock(&team->ctx->lock);
    team->ctx->in_rendezvous = team;
    status = symm__team_failed(team);
    if (status == SYMM_OK)
        status = end(team, why, &ended);
    else
        symm__captured_fail(team);
    team->ctx->in_rendezvous = NULL;
    pthread_mutex_unlock(&team->ctx->lock);
    if (ended)
        sweep(team);
    if (status == SYMM_ERR_TIMEOUT && why)
        return fail_abandoned(team, why);
    if (status == SYMM_ERR_TIMEOUT || status == SYMM_ERR_PEER_DEAD)
        return symm__rendezvous_failed(team, "the end of a capture", status);
    return status;
}

symm_status symm_team_capture_end(symm_team *team)
{
    symm_status status = symm__team_check(team);

    return status == SYMM_OK ? finish(team, __func__, NULL) : status;
}

symm_status symm_team_capture_abandon(symm_team *team, const char *why)
{
    symm_status status = symm__team_check(team);

    if (status == SYMM_OK)
        status = finish(team, __func__, why ? why : "");
    /* This is the bracket's outcome, not a failure of the team. */
    if (status == SYMM_ERR_ABORTED && symm__team_failed(team) == SYMM_OK)
        return SYMM_OK;
    return status;
}

/* ---- The end of memory ----------------------------------------------------------------- */

static symm_status release(symm_team *team, const void *ptr, size_t bytes)
{
    symm_status status = symm__captured_release(team, ptr, bytes);
    char sentence[SYMM_ERROR_BYTES];

    if (status == SYMM_OK)
        return SYMM_OK;
    /* Replays might go on with memory that the caller frees. */
    symm__error_save(sentence);
    (void)symm__team_fail(team, SYMM_ERR_ABORTED,
                          "rank %d could not end captured calls whose memory goes: %s",
                          team->ctx->rank, sentence);
    return symm__fail_quiet(status, sentence);
}

symm_status symm_team_capture_release(symm_team *team, const void *ptr, size_t bytes)
{
    symm_status status = symm__team_check(team);

    return status == SYMM_OK ? release(team, ptr, bytes) : status;
}

struct gone {
    const void *ptr;
    size_t bytes;
    symm_status status;
};

static void release_one(symm_team *team, void *arg)
{
    struct gone *gone = arg;
    symm_status status = symm__team_check_in(team, "symm_capture_release");

    if (status == SYMM_OK)
        status = release(team, gone->ptr, gone->bytes);
    if (gone->status == SYMM_OK)
        gone->status = status;
}

symm_status symm_capture_release(const void *ptr, size_t bytes)
{
    struct gone gone = {.ptr = ptr, .bytes = bytes, .status = SYMM_OK};

    if (bytes > 0)
        symm__captured_each(release_one, &gone);
    return gone.status;
}
