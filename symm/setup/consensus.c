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

struct symm_agreement *symm__consensus_page(const symm_team *team, int member)
{
    return &team->ctx->control[team->world_rank[member]]->agreement[team->slot];
}

/* Does a live team of mine use it, or is it one that was shrunk? */
static bool is_used(const symm_ctx *ctx, uint32_t board, bool shrunk)
{
    uint64_t word =
        __atomic_load_n(&ctx->control[ctx->rank]->board[board], __ATOMIC_RELAXED);

    for (int t = 0; t < SYMM_MAX_TEAMS; t++)
        if (ctx->teams[t] && ctx->teams[t]->rank == 0 && ctx->teams[t]->board == board)
            return true;
    return !shrunk && (word >> 16 & 0xffff) != 0;
}

uint64_t symm__shrink_prepare(symm_team *team)
{
    symm_ctx *ctx = team->ctx;
    uint32_t board = 0, tries = 0;

    if (team->rank != 0)
        return 0;
    do
        board = ctx->boards++ % SYMM_BOARDS;
    while (is_used(ctx, board, tries++ > SYMM_BOARDS));
    team->board = board;
    /* Nobody joins before the exchange that follows. */
    __atomic_store_n(&ctx->control[ctx->rank]->board[board],
                     symm__consensus_word(team, 0, 0, SYMM_CONSENSUS_DONE),
                     __ATOMIC_RELEASE);
    return board;
}

symm_status symm__shrink_adopt(symm_team *team, const uint64_t *boards)
{
    if (boards[0] >= SYMM_BOARDS)
        return symm__fail(SYMM_ERR_REFUSED, "rank %d sent a malformed start of a team",
                          team->world_rank[0]);
    team->board = (uint32_t)boards[0];
    return SYMM_OK;
}
