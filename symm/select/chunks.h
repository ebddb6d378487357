/* SPDX-License-Identifier: MIT */
/*
 * chunks.h - a collective over several hosts in chunks: which ones are cut, and how large they are.
 *
 * Pure functions of what all ranks share. call/hierarchical_chunks.c cuts calls by them, and
 * symm-perf's model predicts calls by them.
 */
#ifndef SYMM_SELECT_CHUNKS_H
#define SYMM_SELECT_CHUNKS_H

#include <stdbool.h>
#include <stddef.h>

/*
 * A call is made in chunks, so that the host's links and the network are busy at the same time.
 * What nothing hides is the first step of the first chunk, the last step of the last one, and the
 * engine's latency once for each chunk. So the chunks at both ends are small, each of the others
 * has twice the bytes of its neighbor, and there are few of them.
 *
 * The engine's latency grows with the hosts, and so does the least chunk. A call of less than two
 * of them is made in one piece. For all_reduce the numbers are measured with a network of known
 * speed, for the others they are the model's (docs/performance.md).
 */
#define SYMM_CHUNK_LEAST ((size_t)2 << 20) /* bytes, times hosts */
/* NCCL has a ring alone for the other collectives, whose latency grows faster. */
#define SYMM_CHUNK_RING  8 /* times as much is their least chunk */
#define SYMM_CHUNK_FIRST 8 /* the first chunk is this part of the call, and ... */
#define SYMM_CHUNK_SMALL                                                               \
    ((size_t)16 << 20) /* ... at most so large, where the least is less */
#define SYMM_CHUNK_MOST  ((size_t)64 << 20) /* any chunk, the same */
#define SYMM_CHUNK_ALIGN ((size_t)512)      /* bytes of each rank's part of a chunk */

/* SYMM_CHUNKS: no call is cut; those that are predicted to be faster so; all that are long. */
enum symm_chunks_mode { SYMM_CHUNKS_NONE, SYMM_CHUNKS_FASTER, SYMM_CHUNKS_ALL };

/* The call that is cut: an all_reduce; a reduce_scatter or an all_gather, each block of it; a
 * broadcast. */
enum symm_chunks_of { SYMM_CHUNKS_SUMS, SYMM_CHUNKS_BLOCKS, SYMM_CHUNKS_COPIES };

/* How a call is cut; all in elements of one rank's part. */
struct symm_chunks {
    size_t first, most, line;
};

/* A call in one piece. */
static inline struct symm_chunks symm__chunks_none(size_t part)
{
    return (struct symm_chunks){.first = part, .most = part, .line = 1};
}

/* In bytes of all ranks' data, as symm__chunks counts them: of a chunk, and of a call. */
struct symm_chunks_limits {
    size_t chunk, call; /* at least; call 0: none is cut */
};

/*
 * For hosts of `places` ranks each.
 *
 * A chunk of blocks is copied once more on each rank: all of its bytes. That has to be hidden by
 * the rail's step, which moves (hosts - 1) / (hosts * places) of them, at a sixteenth of the speed
 * (50 and 800 GB/s), and gains less than it takes: hence 10. The workspace has the room of about a
 * chunk.
 */
struct symm_chunks_limits symm__chunks_limits(enum symm_chunks_of what,
                                              enum symm_chunks_mode mode, size_t places,
                                              size_t hosts);

/* Of a call in which each of `ranks` ranks has `part` elements. `first` is then less than `part`,
 * or the call is made in one piece. */
static inline struct symm_chunks symm__chunks(size_t part, size_t element, size_t ranks,
                                              struct symm_chunks_limits limits)
{
    const size_t each = element * ranks, bytes = part * each;
    const size_t line = SYMM_CHUNK_ALIGN / element;
    size_t first = bytes / SYMM_CHUNK_FIRST, most;

    if (limits.call == 0 || bytes < limits.call)
        return symm__chunks_none(part);
    first = first > SYMM_CHUNK_SMALL ? SYMM_CHUNK_SMALL : first;
    first = first < limits.chunk ? limits.chunk : first;
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
