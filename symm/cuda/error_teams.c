/* SPDX-License-Identifier: MIT */
/* error_teams.c - see error_teams.h. */
#include "cuda/error_teams.h"

#include <stdio.h>
#include <stdlib.h>

#include "cuda/launcher.h"

/* Hardware queues of a context: at most, without CUDA_DEVICE_MAX_CONNECTIONS, and so with MPS. The
 * last was found on H200 with driver 580.159.04; CUDA's documents do not tell it. */
#define QUEUES_MOST 32
#define QUEUES      8
#define QUEUES_MPS  2

int symm__cuda_queues(const symm_ctx *ctx, const char **why)
{
    const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    const long queues = text ? strtol(text, NULL, 10) : 0;
    const bool set = queues > 0, mps = ctx->backend->device.mps > 0;

    if (why)
        *why = set ? "" : mps ? " is not set, and MPS is used" : " is not set";
    if (set)
        return queues > QUEUES_MOST ? QUEUES_MOST : (int)queues;
    return mps ? QUEUES_MPS : QUEUES;
}

/* The teams of a context may be read under the launcher's lock, which the watchdog holds. */
static void teams_lock(const symm_team *team, const struct symm_cuda_facts *facts)
{
    if (!facts->by_watchdog)
        pthread_mutex_lock(&team->ctx->launcher->lock);
}

static void teams_unlock(const symm_team *team, const struct symm_cuda_facts *facts)
{
    if (!facts->by_watchdog)
        pthread_mutex_unlock(&team->ctx->launcher->lock);
}

/* The streams on which any team of this rank has calls; counts no further than `most`. */
static int streams_in_use(const symm_team *team, const struct symm_cuda_facts *facts,
                          int most)
{
    uint64_t seen[QUEUES_MOST];
    int count = 0;

    teams_lock(team, facts);
    for (const struct symm_cuda_team *t = team->ctx->launcher->teams; t; t = t->next)
        for (int c = 0; c < SYMM_CHANNELS && count < most; c++) {
            uint64_t id =
                __atomic_load_n(&t->team->channel[c].stream_id, __ATOMIC_RELAXED);
            int at = 0;

            while (at < count && seen[at] != id)
                at++;
            if (id != 0 && at == count)
                seen[count++] = id;
        }
    teams_unlock(team, facts);
    return count;
}

const char *symm__cuda_queue_text(const symm_team *team,
                                  const struct symm_cuda_facts *facts, char *text,
                                  size_t bytes)
{
    const int queues = symm__cuda_queues(team->ctx, NULL);
    char used[40] = "its only hardware queue";

    text[0] = '\0';
    if (streams_in_use(team, facts, queues) < queues)
        return text;
    if (queues > 1)
        snprintf(used, sizeof(used), "all its %d hardware queues", queues);
    snprintf(
        text, bytes,
        "; rank %d uses %s (CUDA_DEVICE_MAX_CONNECTIONS, at most %d), so a stream that "
        "waits may hold up another",
        team->ctx->rank, used, QUEUES_MOST);
    return text;
}

bool symm__cuda_reason_of(const symm_team *team, const struct symm_cuda_facts *facts,
                          uint32_t number, char *why, size_t bytes)
{
    const struct symm_cuda_team *other;
    bool known = true;

    why[0] = '\0';
    teams_lock(team, facts);
    other = team->ctx->launcher->teams;
    while (other && other->team->number != number)
        other = other->next;
    if (other) {
        /* acquire: pairs with the release in team_mark */
        known = __atomic_load_n(&other->team->failed, __ATOMIC_ACQUIRE) != SYMM_OK;
        if (known)
            snprintf(why, bytes, "%s", other->team->failure);
    }
    for (int i = 0; i < SYMM_CUDA_ENDED && !other; i++)
        if (team->ctx->launcher->ended[i].number == number)
            snprintf(why, bytes, "%s", team->ctx->launcher->ended[i].why);
    teams_unlock(team, facts);
    return known;
}
