/* SPDX-License-Identifier: MIT */
/* seen.c - see seen.h. */
#include "call/seen.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/launch.h"
#include "util/hash.h"

uint32_t symm__seen_site(const struct symm_team_channel *channel,
                         const struct symm_prepared_call *entry)
{
    const symm_team *team = channel->team;
    const struct symm_args *args = &entry->args;
    const enum symm_kind kind = (enum symm_kind)args->site.kind;
    const bool moves = kind != SYMM_KIND_BARRIER;
    const bool rooted = kind == SYMM_KIND_BROADCAST;
    const struct symm_sight_what what = {
        .op = symm__kind_name(kind),
        .dtype = moves ? symm_dtype_name((symm_dtype)args->site.dtype) : NULL,
        .reduction =
            symm__kind_reduces(kind) ? symm_op_name((symm_op)args->site.op) : NULL,
        .algorithm = symm_algorithm_name(entry->algorithm),
        .reason = entry->reason,
        .fallback = entry->fallback,
        .name = args->site.name,
        .team_uid = team->uid,
        .channel = (uint32_t)channel->index,
        .root = rooted ? team->world_rank[args->root] : -1,
        .signal = -1,
        .bytes =
            moves ? args->count * symm_dtype_size((symm_dtype)args->site.dtype) : 0,
        .count = moves ? args->count : 0,
    };

    return symm__sight_describe(team->ctx->sight, &what);
}

uint32_t *symm__seen_steps(symm_team *team)
{
    uint32_t *made = calloc(((size_t)team->size + 1) * SYMM_STEPS, sizeof(*made));
    uint32_t *found = NULL;

    if (!made)
        return NULL;
    /* release: the zeros, for a thread that finds the pointer */
    if (__atomic_compare_exchange_n(&team->steps, &found, made, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
        return made;
    free(made);
    return found;
}

uint64_t symm__seen_begin(symm_team *team, struct symm_sight_what *what,
                          uint32_t name_hash, uint32_t step,
                          enum symm_sight_state state)
{
    struct symm_sight *sight = team->ctx->sight;
    const uint64_t parts[4] = {(uint64_t)name_hash << 32 | team->uid,
                               (uint64_t)(uint32_t)what->root << 32 |
                                   (uint32_t)what->signal,
                               what->bytes, (uintptr_t)what->op};

    if (!sight)
        return 0;
    what->team_uid = team->uid;
    what->channel = SYMM_SIGHT_PAIRS;
    what->key = SYMM_FNV_BASIS;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        what->key =
            (what->key ^ parts[i] ^ parts[i] >> 29) * UINT64_C(0x9e3779b97f4a7c15);
    return symm__sight_begin(sight, symm__sight_find(sight, what), step, state);
}
