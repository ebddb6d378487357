/* SPDX-License-Identifier: MIT */
/* error_exchange.c - see error_exchange.h. */
#include "cuda/error_exchange.h"

#include <stdio.h>

#include "core/failure.h"
#include "cuda/error_where.h"

const char *symm__cuda_exchange_text(const struct symm_cuda_facts *facts, int member,
                                     char *text, size_t bytes)
{
    const uint64_t told = facts->seen[member];

    snprintf(text, bytes, "exchange number %u of %u units in %u blocks (tag %08x)",
             facts->counter, (uint32_t)told & 0xffffffu, (uint32_t)told >> 24,
             (uint32_t)(told >> 32));
    return text;
}

symm_status symm__cuda_exchange_mismatch(symm_team *team,
                                         const struct symm_cuda_facts *facts)
{
    int peer = symm__members_first(&facts->missing);
    char mine[96], theirs[96], at[SYMM_CUDA_WHERE_BYTES];

    if (peer < 0 || peer >= team->local_size)
        peer = team->local_rank;
    return symm__team_fail(
        team, SYMM_ERR_MISMATCH,
        "rank %d is at %s, rank %d is at %s%s: the kernels of all ranks must make the "
        "same exchanges in the same order",
        symm__team_rank_at(team, peer),
        symm__cuda_exchange_text(facts, peer, theirs, sizeof(theirs)), team->ctx->rank,
        symm__cuda_exchange_text(facts, team->local_rank, mine, sizeof(mine)),
        symm__cuda_where_text(team, facts, at, sizeof(at)));
}

symm_status symm__cuda_exchange_timeout(symm_team *team,
                                        const struct symm_cuda_facts *facts, int peer)
{
    char mine[96], at[SYMM_CUDA_WHERE_BYTES];

    return symm__team_fail(
        team, SYMM_ERR_TIMEOUT,
        "rank %d %s %s within %g s; rank %d waits for its units%s; if it is only slow, "
        "raise the timeout (SYMM_TIMEOUT)",
        symm__team_rank_at(team, peer),
        facts->seen[peer] != 0 ? "began but did not send all of" : "did not come to",
        symm__cuda_exchange_text(facts, team->local_rank, mine, sizeof(mine)),
        facts->timeout, team->ctx->rank,
        symm__cuda_where_text(team, facts, at, sizeof(at)));
}
