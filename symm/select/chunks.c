/* SPDX-License-Identifier: MIT */
/*
 * chunks.c - from which size on a collective over several hosts is cut (chunks.h).
 *
 * A function of its own, so that tests of calls that are cut can do with smaller ones.
 */
#include "select/chunks.h"

struct symm_chunks_limits symm__chunks_limits(enum symm_chunks_of what,
                                              enum symm_chunks_mode mode, size_t places,
                                              size_t hosts)
{
    const bool ring = mode == SYMM_CHUNKS_FASTER && what != SYMM_CHUNKS_SUMS;
    const bool blocks = what == SYMM_CHUNKS_BLOCKS;
    const size_t least = SYMM_CHUNK_LEAST * hosts * (ring ? SYMM_CHUNK_RING : 1);

    if (mode == SYMM_CHUNKS_NONE || (blocks && least > 2 * SYMM_CHUNK_MOST) ||
        (blocks && ring && 10 * (hosts - 1) <= hosts * places))
        return (struct symm_chunks_limits){0, 0};
    return (struct symm_chunks_limits){least, (blocks && ring ? 4 : 2) * least};
}
