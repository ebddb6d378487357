/* SPDX-License-Identifier: MIT */
/*
 * heap.c - an allocator of offsets over a sorted array of blocks.
 *
 * Guarantees: the lowest offset that fits is taken, so equal calls give equal offsets
 * on every rank; a call that fails leaves the heap as it was; memory given back is
 * handed out again only after symm__heap_commit.
 * Refuses: ranges that aren't multiples of SYMM_HEAP_ALIGN, sizes that don't fit,
 * offsets at which no LIVE block begins.
 *
 * A heap has as many blocks as a program has call sites (tens to thousands), and calls look
 * theirs up only when they are made for the first time, or one has been freed. The checks and the
 * dump read the array from end to end.
 */
#include "core/heap.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "util/forked.h"
#include "util/status.h"

enum { FIRST_CAPACITY = 16 };

symm_status symm__heap_init(struct symm_heap *heap, size_t begin, size_t end)
{
    if (begin > end || begin % SYMM_HEAP_ALIGN != 0 || end % SYMM_HEAP_ALIGN != 0)
        return symm__fail(
            SYMM_ERR_INVALID,
            "heap: the range [%zu, %zu) must ascend and be made of multiples "
            "of %u bytes",
            begin, end, SYMM_HEAP_ALIGN);
    struct symm_block *blocks = calloc(FIRST_CAPACITY, sizeof(*blocks));
    if (blocks == NULL)
        return symm__fail(SYMM_ERR_NOMEM, "heap: no memory for %d block records",
                          FIRST_CAPACITY);
    *heap = (struct symm_heap){
        .begin = begin,
        .end = end,
        .blocks = blocks,
        .count = begin < end ? 1 : 0,
        .capacity = FIRST_CAPACITY,
    };
    if (heap->count == 1)
        blocks[0] = (struct symm_block){.offset = begin, .bytes = end - begin};
    return SYMM_OK;
}

/*
 * For calls that look up their buffers while another thread may allocate: the lock is held
 * while any heap changes, and never while a thread waits for a peer.
 */
static pthread_mutex_t changes = PTHREAD_MUTEX_INITIALIZER;
static uint64_t freed = 1;

static void renew_lock(void)
{
    symm__lock_renew(&changes);
}
SYMM_IN_FORKED_CHILD(renew_lock)

/* acquire, release: a thread that reads the new number finds the block no longer live. */
uint64_t symm__heap_freed(void)
{
    return __atomic_load_n(&freed, __ATOMIC_ACQUIRE);
}

static void note_freed(void)
{
    __atomic_fetch_add(&freed, 1, __ATOMIC_RELEASE);
}

void symm__heap_finish(struct symm_heap *heap)
{
    pthread_mutex_lock(&changes);
    note_freed();
    free(heap->blocks);
    *heap = (struct symm_heap){0};
    pthread_mutex_unlock(&changes);
}

/* Makes room for one block more; on failure nothing has changed. */
static symm_status grow(struct symm_heap *heap)
{
    size_t capacity, bytes;

    if (heap->count < heap->capacity)
        return SYMM_OK;
    if (__builtin_mul_overflow(heap->capacity, (size_t)2, &capacity) ||
        __builtin_mul_overflow(capacity, sizeof(*heap->blocks), &bytes))
        return symm__fail(SYMM_ERR_OVERFLOW, "heap: %zu block records are too many",
                          heap->capacity);
    struct symm_block *blocks = realloc(heap->blocks, bytes);
    if (blocks == NULL)
        return symm__fail(SYMM_ERR_NOMEM, "heap: no memory for %zu block records",
                          capacity);
    heap->blocks = blocks;
    heap->capacity = capacity;
    return SYMM_OK;
}

/* The first FREE block of at least `need` bytes, or count. *largest: of all FREE. */
static size_t find_fit(const struct symm_heap *heap, size_t need, size_t *largest)
{
    *largest = 0;
    for (size_t i = 0; i < heap->count; i++) {
        const struct symm_block *block = &heap->blocks[i];
        if (block->state != SYMM_BLOCK_FREE)
            continue;
        if (block->bytes >= need)
            return i;
        if (block->bytes > *largest)
            *largest = block->bytes;
    }
    return heap->count;
}

/* Makes block `at` `need` bytes long; what is left of it becomes a block after it. */
static symm_status cut(struct symm_heap *heap, size_t at, size_t need)
{
    struct symm_block *rest;
    symm_status status;

    if (heap->blocks[at].bytes == need)
        return SYMM_OK;
    status = grow(heap);
    if (status != SYMM_OK)
        return status;
    rest = &heap->blocks[at + 1];
    memmove(rest + 1, rest, (heap->count - at - 1) * sizeof(*rest));
    *rest = (struct symm_block){.offset = heap->blocks[at].offset + need,
                                .bytes = heap->blocks[at].bytes - need};
    heap->blocks[at].bytes = need;
    heap->count++;
    return SYMM_OK;
}

symm_status symm__heap_alloc(struct symm_heap *heap, size_t bytes, uint64_t id,
                             size_t *offset)
{
    size_t need, largest;

    if (__builtin_add_overflow(bytes, (size_t)SYMM_HEAP_ALIGN - 1, &need))
        return symm__fail(SYMM_ERR_OVERFLOW,
                          "heap: %zu bytes for alloc_id %" PRIu64
                          " can't be rounded up to a multiple of %u",
                          bytes, id, SYMM_HEAP_ALIGN);
    need -= need % SYMM_HEAP_ALIGN;
    if (need == 0)
        need = SYMM_HEAP_ALIGN;

    size_t at = find_fit(heap, need, &largest);
    if (at == heap->count)
        return symm__fail(
            SYMM_ERR_NOMEM,
            "heap: no hole for the %zu bytes of alloc_id %" PRIu64
            ": the largest is %zu bytes, of the range [%zu, %zu) %zu bytes "
            "are live; freed memory returns at the next rendezvous, a larger "
            "heap by SYMM_HEAP_BYTES or SYMM_TEAM_BYTES",
            need, id, largest, heap->begin, heap->end, heap->used);

    pthread_mutex_lock(&changes);
    symm_status status = cut(heap, at, need);
    if (status == SYMM_OK) {
        struct symm_block *block = &heap->blocks[at];
        block->requested = bytes;
        block->state = SYMM_BLOCK_LIVE;
        block->id = id;
        heap->used += need;
        if (heap->used > heap->peak)
            heap->peak = heap->used;
        *offset = block->offset;
    }
    pthread_mutex_unlock(&changes);
    return status;
}

/* The block that offset lies in, or NULL. */
static struct symm_block *block_at(const struct symm_heap *heap, size_t offset)
{
    size_t low = 0, high = heap->count; /* the last block that begins at or before it */

    if (offset < heap->begin || offset >= heap->end)
        return NULL;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (heap->blocks[middle].offset <= offset)
            low = middle;
        else
            high = middle;
    }
    return &heap->blocks[low];
}

bool symm__heap_look_up(const struct symm_heap *heap, size_t offset,
                        struct symm_block *block)
{
    const struct symm_block *found;

    pthread_mutex_lock(&changes);
    found = block_at(heap, offset);
    if (found)
        *block = *found;
    pthread_mutex_unlock(&changes);
    return found != NULL;
}

/* The block that begins at offset, or NULL. */
static struct symm_block *find_block(const struct symm_heap *heap, size_t offset)
{
    struct symm_block *found = block_at(heap, offset);

    return found && found->offset == offset ? found : NULL;
}

symm_status symm__heap_free(struct symm_heap *heap, size_t offset)
{
    struct symm_block *block = find_block(heap, offset);

    if (block == NULL)
        return symm__fail(SYMM_ERR_NOT_FOUND,
                          "heap: no block begins at offset %zu of the range [%zu, %zu)",
                          offset, heap->begin, heap->end);
    if (block->state != SYMM_BLOCK_LIVE)
        return symm__fail(
            SYMM_ERR_NOT_FOUND,
            "heap: the block at offset %zu is not live: it was freed before", offset);
    pthread_mutex_lock(&changes);
    heap->used -= block->bytes;
    block->state = SYMM_BLOCK_RETIRED;
    block->requested = 0;
    block->id = 0;
    note_freed();
    pthread_mutex_unlock(&changes);
    return SYMM_OK;
}

/* Joins neighbours that are FREE and have no edge between them. */
static void coalesce(struct symm_heap *heap)
{
    size_t kept = 0;

    for (size_t i = 0; i < heap->count; i++) {
        struct symm_block block = heap->blocks[i];
        if (block.state == SYMM_BLOCK_FREE && !block.edge && kept > 0 &&
            heap->blocks[kept - 1].state == SYMM_BLOCK_FREE)
            heap->blocks[kept - 1].bytes += block.bytes;
        else
            heap->blocks[kept++] = block;
    }
    heap->count = kept;
}

void symm__heap_commit(struct symm_heap *heap)
{
    pthread_mutex_lock(&changes);
    for (size_t i = 0; i < heap->count; i++)
        if (heap->blocks[i].state == SYMM_BLOCK_RETIRED)
            heap->blocks[i].state = SYMM_BLOCK_FREE;
    coalesce(heap);
    pthread_mutex_unlock(&changes);
}

void symm__heap_discard(struct symm_heap *heap, size_t offset)
{
    struct symm_block *block = find_block(heap, offset);

    if (block == NULL || block->state == SYMM_BLOCK_FREE)
        return;
    pthread_mutex_lock(&changes);
    if (block->state == SYMM_BLOCK_LIVE)
        heap->used -= block->bytes;
    *block = (struct symm_block){
        .offset = block->offset, .bytes = block->bytes, .edge = block->edge};
    note_freed();
    coalesce(heap);
    pthread_mutex_unlock(&changes);
}

symm_status symm__heap_edge(struct symm_heap *heap, size_t offset)
{
    struct symm_block *block = block_at(heap, offset);
    symm_status status = SYMM_OK;

    if (block == NULL)
        return SYMM_OK;
    pthread_mutex_lock(&changes);
    if (offset > block->offset) {
        size_t at = (size_t)(block - heap->blocks);

        status = cut(heap, at, offset - block->offset);
        block = &heap->blocks[at + 1]; /* the array may have moved */
    }
    if (status == SYMM_OK)
        block->edge = true;
    pthread_mutex_unlock(&changes);
    return status;
}

void symm__heap_edge_drop(struct symm_heap *heap, size_t offset)
{
    struct symm_block *block = find_block(heap, offset);

    if (block == NULL)
        return;
    pthread_mutex_lock(&changes);
    block->edge = false;
    coalesce(heap);
    pthread_mutex_unlock(&changes);
}

size_t symm__heap_top(const struct symm_heap *heap)
{
    for (size_t i = heap->count; i > 0; i--) {
        const struct symm_block *block = &heap->blocks[i - 1];
        if (block->state != SYMM_BLOCK_FREE)
            return block->offset + block->bytes;
    }
    return heap->begin;
}

static bool block_check(const struct symm_block *block)
{
    if (block->bytes == 0 || block->bytes % SYMM_HEAP_ALIGN != 0 ||
        block->offset % SYMM_HEAP_ALIGN != 0)
        return false;
    switch (block->state) {
    case SYMM_BLOCK_LIVE:
        return block->requested <= block->bytes;
    case SYMM_BLOCK_FREE:
    case SYMM_BLOCK_RETIRED:
        return block->requested == 0 && block->id == 0;
    }
    return false;
}

bool symm__heap_check(const struct symm_heap *heap)
{
    size_t at = heap->begin, used = 0;

    if (heap->begin > heap->end || heap->count > heap->capacity ||
        (heap->blocks == NULL && heap->capacity > 0))
        return false;
    for (size_t i = 0; i < heap->count; i++) {
        const struct symm_block *block = &heap->blocks[i];
        if (!block_check(block) || block->offset != at || block->bytes > heap->end - at)
            return false;
        if (i > 0 && block->state == SYMM_BLOCK_FREE && !block->edge &&
            block[-1].state == SYMM_BLOCK_FREE)
            return false;
        if (block->state == SYMM_BLOCK_LIVE)
            used += block->bytes;
        at += block->bytes;
    }
    return at == heap->end && used == heap->used && heap->used <= heap->peak;
}
