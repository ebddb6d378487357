/* SPDX-License-Identifier: MIT */
/*
 * chunks.h - an all_reduce over several hosts in chunks: how large they are.
 *
 * A pure function of what all ranks share. call/hierarchical.c cuts calls by it, and symm-perf's
 * model predicts them by it.
 */
#ifndef SYMM_SELECT_CHUNKS_H
#define SYMM_SELECT_CHUNKS_H

#include <stddef.h>

/*
 * An all_reduce is made in chunks, so that the host's links and the network are busy at the same
 * time. With n chunks an n-th of the shorter part is not hidden, and the engine's latency comes n
 * times. That grows with the hosts, and each of a host's ranks moves its share of a chunk at the
 * same time: so does the least chunk. A call of less than two of them is made in one piece. Not
 * measured over a network yet.
 */
#define SYMM_CHUNKS      4
#define SYMM_CHUNK_LEAST ((size_t)512 << 10) /* times ranks of a host, times hosts */
#define SYMM_CHUNK_MOST  ((size_t)16 << 20)  /* where the least is less */
#define SYMM_CHUNK_ALIGN ((size_t)512)       /* of each rank's part of a chunk */

/* Elements of a rank's part in one chunk, of `part` that each of a host's `places` ranks has in
 * the whole call. At least `part`: no chunks. */
static inline size_t symm__chunk_part(size_t part, size_t element, size_t places,
                                      size_t hosts)
{
    const size_t bytes = part * element * places, line = SYMM_CHUNK_ALIGN / element;
    const size_t least = SYMM_CHUNK_LEAST * places * hosts;
    size_t wanted = bytes / SYMM_CHUNKS;

    if (bytes < 2 * least)
        return part;
    wanted = wanted > SYMM_CHUNK_MOST ? SYMM_CHUNK_MOST : wanted;
    wanted = wanted < least ? least : wanted;
    wanted /= element * places;
    return (wanted + line - 1) / line * line;
}

#endif
