/* SPDX-License-Identifier: MIT */
/* consensus.c - see consensus.h. */
#include "setup/consensus.h"

#include "util/status.h"

uint64_t symm__consensus_word(const symm_team *team, uint32_t attempt, int proposer,
                              uint32_t phases)
{
    return (uint64_t)team->uid << 32 | (uint64_t)attempt << 16 |
           (uint64_t)proposer << 8 | (phases & 0xff);
}

struct symm_consensus *symm__consensus_page(const symm_team *team, int member)
{
    return &symm__near_control(team->ctx, team->world_rank[member])
                ->agreement[team->slot];
}

/* Does a live team of this rank use the word, or did one that was shrunk? shrunk: the word of such
 * a team counts as free. */
static bool is_used(const symm_ctx *ctx, uint32_t consensus_word, bool shrunk)
{
    uint64_t word = __atomic_load_n(
        &symm__own_control(ctx)->consensus_word[consensus_word], __ATOMIC_RELAXED);

    for (int t = 0; t < SYMM_MAX_TEAMS; t++)
        if (ctx->teams[t] && ctx->teams[t]->rank == 0 &&
            ctx->teams[t]->consensus_word == consensus_word)
            return true;
    return !shrunk && (word >> 16 & 0xffff) != 0;
}

uint64_t symm__shrink_prepare(symm_team *team)
{
    symm_ctx *ctx = team->ctx;
    uint32_t consensus_word = 0, tries = 0;

    if (team->rank != 0)
        return 0;
    do
        consensus_word = ctx->consensus_words++ % SYMM_CONSENSUS_WORDS;
    while (is_used(ctx, consensus_word, tries++ > SYMM_CONSENSUS_WORDS));
    team->consensus_word = consensus_word;
    /* No rank joins before the exchange that follows. */
    __atomic_store_n(&symm__own_control(ctx)->consensus_word[consensus_word],
                     symm__consensus_word(team, 0, 0, SYMM_CONSENSUS_DONE),
                     __ATOMIC_RELEASE);
    return consensus_word;
}

symm_status symm__shrink_adopt(symm_team *team, uint32_t consensus_word)
{
    if (consensus_word >= SYMM_CONSENSUS_WORDS)
        return symm__fail(SYMM_ERR_REFUSED, "rank %d sent a malformed start of a team",
                          team->world_rank[0]);
    team->consensus_word = consensus_word;
    return SYMM_OK;
}
