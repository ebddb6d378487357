/* SPDX-License-Identifier: MIT */
/*
 * heap.h - an allocator of offsets: deterministic, without the memory itself. One thread at a
 * time changes a heap; any may look a block up.
 *
 * Invariants (symm__heap_check): blocks are sorted and tile [begin, end) without gaps; two FREE
 * neighbours have an edge between them; used == sum of LIVE bytes; every offset is a multiple of
 * SYMM_HEAP_ALIGN. The same calls give the same offsets on every rank: the lowest offset
 * that fits is taken. No block lies on both sides of an edge.
 * A freed block is RETIRED until symm__heap_commit: peers may still read it.
 */
#ifndef SYMM_CORE_HEAP_H
#define SYMM_CORE_HEAP_H

#include "symm/symm.h"

#define SYMM_HEAP_ALIGN 256u

enum symm_block_state { SYMM_BLOCK_FREE, SYMM_BLOCK_LIVE, SYMM_BLOCK_RETIRED };

struct symm_block {
    size_t offset, bytes; /* bytes: rounded up to SYMM_HEAP_ALIGN */
    size_t requested;     /* LIVE: what was asked for */
    enum symm_block_state state;
    bool edge;   /* at its offset */
    uint64_t id; /* LIVE: the caller's (alloc_id, 0 = anonymous) */
};

struct symm_heap {
    size_t begin, end;         /* the range; multiples of SYMM_HEAP_ALIGN */
    size_t used, peak;         /* LIVE bytes; top: see symm__heap_top */
    struct symm_block *blocks; /* sorted by offset; owned */
    size_t count, capacity;
};

symm_status symm__heap_init(struct symm_heap *heap, size_t begin,
                            size_t end) SYMM_MUST_CHECK;
void symm__heap_finish(struct symm_heap *heap); /* zeroed or finished heaps are fine */
/* bytes 0 takes one unit. SYMM_ERR_NOMEM says bytes, largest hole and range. */
symm_status symm__heap_alloc(struct symm_heap *heap, size_t bytes, uint64_t id,
                             size_t *offset) SYMM_MUST_CHECK;
symm_status symm__heap_free(struct symm_heap *heap, size_t offset) SYMM_MUST_CHECK;
/* Makes an edge: memory before and after `offset`, which must be FREE, will be of two segments. At
 * the range's end it does nothing. Only SYMM_ERR_NOMEM and SYMM_ERR_OVERFLOW are possible. */
symm_status symm__heap_edge(struct symm_heap *heap, size_t offset) SYMM_MUST_CHECK;
void symm__heap_edge_drop(struct symm_heap *heap, size_t offset);
/* FREE at once: for a block that no peer has ever mapped. An unknown offset is ignored. */
void symm__heap_discard(struct symm_heap *heap, size_t offset);
void symm__heap_commit(struct symm_heap *heap); /* RETIRED becomes FREE */
size_t symm__heap_top(
    const struct symm_heap *heap); /* end of the last block that isn't FREE */
/* Changes whenever a block of any heap ceases to be LIVE; never 0. */
uint64_t symm__heap_freed(void);
/* The block that `offset` lies in; false: outside the range. May be called while another thread
 * changes the heap. */
bool symm__heap_look_up(const struct symm_heap *heap, size_t offset,
                        struct symm_block *block);
bool symm__heap_check(const struct symm_heap *heap);

/* A heap as symm_heap_write writes it: plain data, made by the context. */
struct symm_heap_segment {
    uint64_t address; /* of this rank's mapping */
    size_t bytes;
    const char *team;                /* "world", "team 3" */
    const struct symm_block *blocks; /* those that begin in it, with absolute offsets */
    size_t count;
    /* of the segment: block address = address + (block.offset - offset) */
    size_t offset;
};
/* format "json" or "pickle" (memory_viz's snapshot, readable by Python's pickle). */
symm_status symm__heap_write(int fd, const char *format, int rank,
                             const struct symm_heap_segment *segments,
                             size_t count) SYMM_MUST_CHECK;

#endif
