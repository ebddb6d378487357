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
 * time. What nothing hides is the scatter of the first chunk, the gather of the last one, and the
 * engine's latency once for each chunk. So the chunks at both ends are small, each of the others
 * has twice the bytes of its neighbor, and there are few of them.
 *
 * The engine's latency grows with the hosts, and so does the least chunk. A call of less than two
 * of them is made in one piece. The numbers are measured with a network of known speed
 * (docs/performance.md).
 */
#define SYMM_CHUNK_LEAST ((size_t)2 << 20) /* bytes of a host, times hosts */
#define SYMM_CHUNK_FIRST 8 /* the first chunk is this part of the call, and ... */
#define SYMM_CHUNK_SMALL                                                               \
    ((size_t)16 << 20) /* ... at most so large, where the least is less */
#define SYMM_CHUNK_MOST  ((size_t)64 << 20) /* any chunk, the same */
#define SYMM_CHUNK_ALIGN ((size_t)512)      /* bytes of each rank's part of a chunk */

/* How a call is cut; all in elements of one rank's part. */
struct symm_chunks {
    size_t first, most, line;
};

/* A call in one piece. */
static inline struct symm_chunks symm__chunks_none(size_t part)
{
    return (struct symm_chunks){.first = part, .most = part, .line = 1};
}

/* Of a call in which each of a host's `places` ranks has `part` elements. `first` is then less than
 * `part`, or the call is made in one piece. */
static inline struct symm_chunks symm__chunks(size_t part, size_t element,
                                              size_t places, size_t hosts)
{
    const size_t each = element * places, bytes = part * each;
    const size_t least = SYMM_CHUNK_LEAST * hosts;
    const size_t line = SYMM_CHUNK_ALIGN / element;
    size_t first = bytes / SYMM_CHUNK_FIRST, most;

    if (bytes < 2 * least)
        return symm__chunks_none(part);
    first = first > SYMM_CHUNK_SMALL ? SYMM_CHUNK_SMALL : first;
    first = first < least ? least : first;
    most = first > SYMM_CHUNK_MOST ? first : SYMM_CHUNK_MOST;
    return (struct symm_chunks){.first = (first / each + line - 1) / line * line,
                                .most = (most / each + line - 1) / line * line,
                                .line = line};
}

/* The next chunk, after one of `before` elements (0: the first one), if `left` are left. */
static inline size_t symm__chunk(const struct symm_chunks *chunks, size_t before,
                                 size_t left)
{
    const size_t half = (left / 2 + chunks->line - 1) / chunks->line * chunks->line;
    size_t next = before > 0 ? 2 * before : chunks->first;

    next = next > chunks->most ? chunks->most : next;
    next = next > half ? half : next;
    next = next < chunks->first ? chunks->first : next;
    return left < next + chunks->first ? left : next;
}

#endif
