/* SPDX-License-Identifier: MIT */
/* channel_table.c - see channel_table.h. */
#include "cuda/channel_table.h"

#include <string.h>

#include "util/clock.h"
#include "util/status.h"

/* In a team with ranks on other hosts each rank has its own table, of which only `engine` is
 * used. */
static struct symm_channel_table *table_of(const symm_team *team)
{
    if (team->far)
        return &symm__own_control(team->ctx)->channel_table[team->slot];
    return &symm__near_control(team->ctx, symm__team_rank_at(team, 0))
                ->channel_table[team->slot];
}

/* By line: the sum of the keys with which the member got no channel. */
static uint64_t *refusals_of(const symm_team *team, int member)
{
    return symm__near_control(team->ctx, symm__team_rank_at(team, member))
        ->channel_table[team->slot]
        .refusals;
}

uint64_t *symm__channel_progress(const symm_team *team, int member, int channel)
{
    static const uint64_t unknown = 0; /* is only read: the word is not this rank's */

    if (symm__team_far_at(team, member))
        return (uint64_t *)(uintptr_t)&unknown;
    return &symm__near_control(team->ctx, symm__team_rank_at(team, member))
                ->progress[team->slot][channel];
}

void symm__channel_table_open(symm_team *team)
{
    if (team->local_rank == 0 || team->far)
        memset(table_of(team), 0, sizeof(*table_of(team)));
    memset(refusals_of(team, team->local_rank), 0,
           SYMM_CHANNEL_LINES * sizeof(uint64_t));
    for (int c = 0; c < SYMM_CHANNELS; c++)
        __atomic_store_n(symm__channel_progress(team, team->local_rank, c), 0,
                         __ATOMIC_RELAXED);
}

/* ---- The lock --------------------------------------------------------------------------- */

void symm__channel_lock_break(const symm_ctx *ctx, uint32_t *lock, uint32_t holder)
{
    const char *why;
    int rank = (int)holder - 1;

    if (rank < 0 || rank >= ctx->size || rank == ctx->rank || symm__is_far(ctx, rank) ||
        symm__rank_check(ctx, rank, &why) == SYMM_OK)
        return;
    __atomic_compare_exchange_n(lock, &holder, 0, false, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
}

symm_status symm__channel_table_lock(symm_team *team)
{
    struct symm_channel_table *table = table_of(team);
    double end = symm__now() + team->ctx->timeout;
    uint32_t mine = (uint32_t)team->ctx->rank + 1, seen = 0;

    for (int turn = 1; !__atomic_compare_exchange_n(&table->lock, &seen, mine, false,
                                                    __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
         turn++) {
        if (turn % 64 == 0) {
            symm__sleep(0.0001);
            /* a dead holder's stores are single words, so the table is sound */
            symm__channel_lock_break(team->ctx, &table->lock, seen);
            if (symm__now() > end)
                return symm__fail(SYMM_ERR_TIMEOUT,
                                  "rank %d has held the table of channels for %g s; "
                                  "rank %d wants a channel for a stream",
                                  (int)seen - 1, team->ctx->timeout, team->ctx->rank);
        }
        seen = 0;
    }
    return SYMM_OK;
}

void symm__channel_table_unlock(symm_team *team)
{
    __atomic_store_n(&table_of(team)->lock, 0, __ATOMIC_RELEASE);
}

/* ---- Keys ------------------------------------------------------------------------------- */

uint64_t symm__channel_key(const symm_team *team, int channel)
{
    return __atomic_load_n(&table_of(team)->key[channel], __ATOMIC_SEQ_CST);
}

bool symm__channel_has_key(const symm_team *team, int channel, uint64_t key)
{
    return symm__channel_key(team, channel) == key;
}

static int find_key(const symm_team *team, uint64_t key)
{
    for (int c = 0; c < SYMM_CHANNELS; c++)
        if (symm__channel_has_key(team, c, key))
            return c;
    return -1;
}

/* By block: the last launch that has ended on the member's device. NULL: it is not mapped here. */
static const uint32_t *done_of(const symm_team *team, int member, int channel)
{
    struct symm_cuda_words *device;
    const struct symm_cuda_words *words = symm__cuda_tokens_find(team, member, &device);

    return words ? words->done[channel] : NULL;
}

/* Has the member's device ended the last launch of the progress word? */
static bool has_ended(symm_team *team, int member, int channel, uint64_t word)
{
    uint32_t blocks = (uint32_t)(word >> 8) & 0xff;
    const uint32_t *done = done_of(team, member, channel);

    if (word >> 32 == 0)
        return true;
    if (blocks > SYMM_DEVICE_BLOCKS || !done)
        return false;
    for (uint32_t b = 0; b < blocks; b++)
        /* acquire: the kernels' accesses are ordered before those of the next stream */
        if (__atomic_load_n(&done[b], __ATOMIC_ACQUIRE) != (uint32_t)(word >> 32))
            return false;
    return true;
}

/* Are all members' progress words equal, and none inside a call or held by a graph? *word: the
 * first one, with SYMM_CHANNEL_RETURNED if a member's has it. */
static bool is_quiet(symm_team *team, int channel, uint64_t *word)
{
    *word = __atomic_load_n(symm__channel_progress(team, 0, channel), __ATOMIC_SEQ_CST);
    for (int m = 1; m < team->local_size; m++) {
        uint64_t other =
            __atomic_load_n(symm__channel_progress(team, m, channel), __ATOMIC_SEQ_CST);

        if ((*word ^ other) & ~(uint64_t)SYMM_CHANNEL_RETURNED)
            return false;
        *word |= other;
    }
    return (*word & (SYMM_CHANNEL_INSIDE | SYMM_CHANNEL_PINNED)) == 0;
}

/* Quiet, and all launches have ended on all devices. */
static bool is_over(symm_team *team, int channel, uint64_t *word)
{
    if (!is_quiet(team, channel, word))
        return false;
    for (int m = 0; m < team->local_size; m++)
        if (!has_ended(team, m, channel, *word))
            return false;
    return true;
}

bool symm__channel_is_idle(symm_team *team, int channel)
{
    uint64_t word;

    return is_over(team, channel, &word) && !(word & SYMM_CHANNEL_RETURNED);
}

bool symm__channel_is_pinned(symm_team *team, int channel)
{
    for (int m = 0; m < team->local_size; m++)
        if (__atomic_load_n(symm__channel_progress(team, m, channel),
                            __ATOMIC_SEQ_CST) &
            SYMM_CHANNEL_PINNED)
            return true;
    return false;
}

bool symm__channel_ended(const symm_team *team, int place, int channel,
                         uint32_t *launch)
{
    const uint32_t *done = done_of(team, place, channel);

    if (done)
        *launch = __atomic_load_n(done, __ATOMIC_ACQUIRE);
    return done != NULL;
}

bool symm__channel_has_reached(symm_team *team, int channel, uint32_t launch)
{
    for (int m = 0; m < team->local_size; m++) {
        uint32_t ended;

        if (!symm__channel_ended(team, m, channel, &ended) ||
            (int32_t)(ended - launch) < 0)
            return false;
    }
    return true;
}

/* The channel has a new key: no launch of the new stream has decided to stay on it. Returns
 * true. */
static bool reset_stays(symm_team *team, int channel, uint64_t word)
{
    __atomic_store_n(&table_of(team)->stays[channel], (uint32_t)(word >> 32) - 1,
                     __ATOMIC_RELAXED);
    return true;
}

/* Gives the channel to another key if it is idle. */
static bool take_idle(symm_team *team, int channel, uint64_t key)
{
    struct symm_channel_table *table = table_of(team);
    uint64_t before, after,
        old = __atomic_load_n(&table->key[channel], __ATOMIC_SEQ_CST);

    if (!is_over(team, channel, &before))
        return false;
    __atomic_store_n(&table->key[channel], key, __ATOMIC_SEQ_CST);
    if (is_quiet(team, channel, &after) && after == before)
        return reset_stays(team, channel, before);
    __atomic_store_n(&table->key[channel], old, __ATOMIC_SEQ_CST);
    return false;
}

/* Gives the channel to the key if it has none. */
static bool take_free(symm_team *team, int channel, uint64_t key)
{
    if (!symm__channel_has_key(team, channel, 0))
        return false;
    __atomic_store_n(&table_of(team)->key[channel], key, __ATOMIC_SEQ_CST);
    return reset_stays(team, channel, 0);
}

static int tier_begin(int tier)
{
    return tier == 0 ? 0 : symm__cuda_tier_end(tier - 1);
}

/* Takes a free channel of [first, end); -1: none is. */
static int take_free_in(symm_team *team, int first, int end, uint64_t key)
{
    for (int c = first; c < end; c++)
        if (take_free(team, c, key))
            return c;
    return -1;
}

/* Takes a free channel of the tier, else the idle one whose last use by this rank is oldest. */
static int take_in_tier(symm_team *team, int tier, uint64_t key)
{
    const int first = tier_begin(tier), end = symm__cuda_tier_end(tier);
    int found = take_free_in(team, first, end, key);
    bool tried[SYMM_CHANNELS] = {false};

    for (int turn = first; turn < end && found < 0; turn++) {
        int oldest = -1;

        for (int c = first; c < end; c++)
            if (!tried[c] &&
                (oldest < 0 || team->channel[c].used < team->channel[oldest].used))
                oldest = c;
        tried[oldest] = true;
        if (take_idle(team, oldest, key))
            found = oldest;
    }
    return found;
}

/* Takes a channel of any tier. Small calls, too, get a free channel with much scratch, since large
 * ones may follow. Else tiers with less scratch than wanted are tried before those with more. */
static int take_any(symm_team *team, int tier, uint64_t key)
{
    int c = tier == 0 ? -1 : take_free_in(team, 0, symm__cuda_tier_end(1), key);

    for (int t = tier; t < SYMM_CUDA_TIERS && c < 0; t++)
        c = take_in_tier(team, t, key);
    for (int t = tier - 1; t >= 0 && c < 0; t--)
        c = take_in_tier(team, t, key);
    return c;
}

/* ---- Channels for streams ---------------------------------------------------------------- */

/* Has every member made the tries of the line that got no channel? The sums differ else, but for
 * one case in 2^62. */
static bool is_settled(const symm_team *team, uint32_t line)
{
    const uint64_t first =
        __atomic_load_n(&refusals_of(team, 0)[line], __ATOMIC_RELAXED);

    for (int m = 1; m < team->local_size; m++)
        if (__atomic_load_n(&refusals_of(team, m)[line], __ATOMIC_RELAXED) != first)
            return false;
    return true;
}

/* As by name. Sequences that share a line share its last refused try. So one may be refused because of
 * the other: then on all members, as that try does not go back before all have made it. */
int symm__channel_acquire(symm_team *team, const struct symm_channel_try *try, int tier)
{
    const uint32_t line = (uint32_t)(try->line >> 32) % SYMM_CHANNEL_LINES;
    uint32_t *refused = &table_of(team)->refused[line];
    uint64_t *own = &refusals_of(team, team->local_rank)[line];
    const bool settled = is_settled(team, line);
    const bool late = !settled && (int32_t)(__atomic_load_n(refused, __ATOMIC_RELAXED) -
                                            try->number) >= 0;
    int c = find_key(team, try->key);

    if (c < 0 && !late)
        c = take_any(team, tier, try->key);
    if (c >= 0)
        return c;
    if (!late)
        __atomic_store_n(refused, try->number, __ATOMIC_RELAXED);
    __atomic_store_n(own, *own + try->key, __ATOMIC_RELAXED);
    return -1;
}

/* A member makes its tries in turn. The key of a granted try stays in the table until all members
 * have made calls with it. So an earlier try whose key is not there was refused. The numbers of tries
 * wrap: members are less than 2^31 apart. */
bool symm__channel_acquire_named(symm_team *team, uint64_t key, int channel,
                                 uint32_t asked)
{
    uint32_t *refused = &table_of(team)->asked[channel];

    if (symm__channel_has_key(team, channel, key))
        return true;
    if ((int32_t)(__atomic_load_n(refused, __ATOMIC_RELAXED) - asked) >= 0)
        return false;
    if (take_free(team, channel, key) || take_idle(team, channel, key))
        return true;
    __atomic_store_n(refused, asked, __ATOMIC_RELAXED);
    return false;
}

int symm__channel_grow(symm_team *team, const struct symm_team_channel *channel,
                       uint64_t key, int tier)
{
    uint32_t *stays = &table_of(team)->stays[channel->index];
    int c;

    /* launch numbers wrap: members are less than 2^31 launches apart */
    if ((int32_t)(__atomic_load_n(stays, __ATOMIC_RELAXED) - channel->sequence) >= 0)
        return -1;
    c = find_key(team, key);
    for (int t = tier; t < symm__cuda_tier_of(channel->index) && c < 0; t++)
        c = take_in_tier(team, t, key);
    if (c < 0)
        __atomic_store_n(stays, channel->sequence, __ATOMIC_RELAXED);
    return c;
}

/* ---- The engine's channel ------------------------------------------------------------------ */

/* relaxed: the word alone counts, and never changes again */
bool symm__cuda_channel_engine(const struct symm_team_channel *channel)
{
    uint32_t *engine = &table_of(channel->team)->engine, seen = 0;
    const uint32_t mine = (uint32_t)channel->index + 1;

    return __atomic_compare_exchange_n(engine, &seen, mine, false, __ATOMIC_RELAXED,
                                       __ATOMIC_RELAXED) ||
           seen == mine;
}
