/* SPDX-License-Identifier: MIT */
/*
 * sweep.c - an allocator's view of a placement.
 *
 * The arena is a list of blocks in the order of addresses, each an item or a gap; two
 * gaps are never neighbors, and the last block is a gap without end. Gaps are also in a
 * treap (Seidel and Aragon): for first fit by address, with the largest gap of each
 * subtree; for best fit by size, then address. A node's priority is a hash of its index,
 * so the shape depends on nothing but the items.
 */
#include "pack/sweep.h"

#define NONE       (-1)
#define LOOK_ITEMS 1024 /* between two readings of the clock */

struct gap_block {
    int64_t offset, end;
    int previous, next;
    int left, right; /* in the treap, while it is a gap */
    int64_t largest; /* gap in the subtree */
    bool is_gap;
};

struct sweep {
    const struct place_model *m;
    struct gap_block *blocks;
    int *free_blocks, free_count;
    int root;
    bool best_fit;
    int *ends, *next_end; /* items by last section: lists */
    int *block_of;        /* by item */
    int64_t *offsets;
};

/* ---- The treap ------------------------------------------------------------------- */

static int64_t room(const struct gap_block *block)
{
    return block->end - block->offset;
}

static uint32_t priority(int block)
{
    uint32_t h = (uint32_t)block * UINT32_C(0x9e3779b1);

    h ^= h >> 15;
    h *= UINT32_C(0x85ebca6b);
    return h ^ h >> 13;
}

static bool before(const struct sweep *s, int a, int b)
{
    const struct gap_block *x = &s->blocks[a], *y = &s->blocks[b];

    if (s->best_fit && room(x) != room(y))
        return room(x) < room(y);
    return x->offset < y->offset;
}

static void update(struct sweep *s, int node)
{
    struct gap_block *b = &s->blocks[node];

    b->largest = room(b);
    if (b->left != NONE && s->blocks[b->left].largest > b->largest)
        b->largest = s->blocks[b->left].largest;
    if (b->right != NONE && s->blocks[b->right].largest > b->largest)
        b->largest = s->blocks[b->right].largest;
}

/* Cuts the subtree into the gaps before `gap` and those after it. */
static void split(struct sweep *s, int node, int gap, int *low, int *high)
{
    if (node == NONE) {
        *low = *high = NONE;
        return;
    }
    if (before(s, node, gap)) {
        split(s, s->blocks[node].right, gap, &s->blocks[node].right, high);
        *low = node;
    } else {
        split(s, s->blocks[node].left, gap, low, &s->blocks[node].left);
        *high = node;
    }
    update(s, node);
}

static int join(struct sweep *s, int low, int high)
{
    if (low == NONE || high == NONE)
        return low == NONE ? high : low;
    if (priority(low) > priority(high)) {
        s->blocks[low].right = join(s, s->blocks[low].right, high);
        update(s, low);
        return low;
    }
    s->blocks[high].left = join(s, low, s->blocks[high].left);
    update(s, high);
    return high;
}

static void insert_below(struct sweep *s, int *node, int gap)
{
    struct gap_block *b = &s->blocks[gap];

    if (*node != NONE && priority(*node) >= priority(gap)) {
        insert_below(
            s, before(s, gap, *node) ? &s->blocks[*node].left : &s->blocks[*node].right,
            gap);
    } else {
        split(s, *node, gap, &b->left, &b->right);
        *node = gap;
    }
    update(s, *node);
}

static void insert_gap(struct sweep *s, int gap)
{
    s->blocks[gap].is_gap = true;
    insert_below(s, &s->root, gap);
}

static void remove_below(struct sweep *s, int *node, int gap)
{
    struct gap_block *b = &s->blocks[*node];

    if (*node == gap) {
        *node = join(s, b->left, b->right);
        return;
    }
    remove_below(s, before(s, gap, *node) ? &b->left : &b->right, gap);
    update(s, *node);
}

static void remove_gap(struct sweep *s, int gap)
{
    remove_below(s, &s->root, gap);
    s->blocks[gap].is_gap = false;
}

static void refresh_below(struct sweep *s, int node, int gap)
{
    const struct gap_block *b = &s->blocks[node];

    if (node != gap)
        refresh_below(s, before(s, gap, node) ? b->left : b->right, gap);
    update(s, node);
}

/* Moves a gap's ends; sorted by address, the gap keeps its place in the treap. */
static void resize_gap(struct sweep *s, int gap, int64_t offset, int64_t end)
{
    if (s->best_fit)
        remove_gap(s, gap);
    s->blocks[gap].offset = offset;
    s->blocks[gap].end = end;
    if (s->best_fit)
        insert_gap(s, gap);
    else
        refresh_below(s, s->root, gap);
}

/* The first gap in the treap's order with `size` bytes; the endless one always has. */
static int first_gap(const struct sweep *s, int64_t size)
{
    int node = s->root, found = NONE;

    while (s->best_fit && node != NONE) {
        bool fits = room(&s->blocks[node]) >= size;
        found = fits ? node : found;
        node = fits ? s->blocks[node].left : s->blocks[node].right;
    }
    while (!s->best_fit && node != NONE) {
        const struct gap_block *b = &s->blocks[node];
        if (b->left != NONE && s->blocks[b->left].largest >= size) {
            node = b->left;
        } else if (room(b) >= size) {
            found = node;
            break;
        } else {
            node = b->right;
        }
    }
    return found;
}

/* ---- Blocks ---------------------------------------------------------------------- */

static void unlink_block(struct sweep *s, int block)
{
    const struct gap_block *b = &s->blocks[block];

    if (b->previous != NONE)
        s->blocks[b->previous].next = b->next;
    if (b->next != NONE)
        s->blocks[b->next].previous = b->previous;
    s->free_blocks[s->free_count++] = block;
}

/* The item's bytes go to the gaps beside it, or become one. */
static void release(struct sweep *s, int item)
{
    int block = s->block_of[item];
    int previous = s->blocks[block].previous, next = s->blocks[block].next;
    int64_t offset = s->blocks[block].offset, end = s->blocks[block].end;
    bool joins_previous = previous != NONE && s->blocks[previous].is_gap;
    bool joins_next = next != NONE && s->blocks[next].is_gap;

    if (joins_previous && joins_next) {
        end = s->blocks[next].end;
        remove_gap(s, next);
        unlink_block(s, next);
    }
    if (joins_previous)
        resize_gap(s, previous, s->blocks[previous].offset, end);
    else if (joins_next)
        resize_gap(s, next, offset, s->blocks[next].end);
    if (joins_previous || joins_next)
        unlink_block(s, block);
    else
        insert_gap(s, block);
}

/* A block at the front of the gap, which keeps at least a byte. */
static int cut_front(struct sweep *s, int gap, int64_t size)
{
    int block = s->free_blocks[--s->free_count];
    struct gap_block *g = &s->blocks[gap];

    s->blocks[block] = (struct gap_block){.offset = g->offset,
                                          .end = g->offset + size,
                                          .previous = g->previous,
                                          .next = gap};
    if (g->previous != NONE)
        s->blocks[g->previous].next = block;
    g->previous = block;
    resize_gap(s, gap, g->offset + size, g->end);
    return block;
}

static int64_t place_item(struct sweep *s, int item)
{
    int64_t size = s->m->size[item], offset;
    int gap = first_gap(s, size);
    struct gap_block *b = &s->blocks[gap];

    offset = b->offset;
    if (b->end - size > offset) {
        s->block_of[item] = cut_front(s, gap, size);
        return offset;
    }
    remove_gap(s, gap);
    s->block_of[item] = gap;
    return offset;
}

/* ---- The sweep ------------------------------------------------------------------- */

static void run(struct sweep *s, struct place_state *state, const int *order)
{
    const struct place_model *m = s->m;
    int section = 0, gap = s->free_blocks[--s->free_count];

    s->blocks[gap] =
        (struct gap_block){.end = INT64_MAX, .previous = NONE, .next = NONE};
    insert_gap(s, gap);
    for (int i = 0; i < m->count; i++) {
        int last = m->range[i].last;
        s->next_end[i] = s->ends[last];
        s->ends[last] = i;
    }
    for (int k = 0; k < m->count; k++) {
        int item = order[k];
        if (k % LOOK_ITEMS == 0 && !symm__pack_go_on(state) && state->peak < INT64_MAX)
            return;
        while (section < m->range[item].first)
            for (int i = s->ends[++section]; i != NONE; i = s->next_end[i])
                release(s, i);
        s->offsets[item] = place_item(s, item);
    }
    symm__pack_keep(state, s->offsets);
}

symm_status symm__pack_sweep(struct place_state *state, const int *order, bool best_fit)
{
    const struct place_model *m = state->model;
    /* Each item adds a block at most, and each gap is beside an item. */
    size_t n = (size_t)m->count + 1, blocks = 2 * n + 2;
    struct sweep s = {.m = m, .best_fit = best_fit, .root = NONE};
    struct pool pool = {0};
    symm_status status = SYMM_OK;

    s.blocks = symm__pool_alloc(&pool, blocks, sizeof *s.blocks);
    s.free_blocks = symm__pool_alloc(&pool, blocks, sizeof *s.free_blocks);
    s.ends = symm__pool_alloc(&pool, (size_t)m->sections + 1, sizeof *s.ends);
    s.next_end = symm__pool_alloc(&pool, n, sizeof *s.next_end);
    s.block_of = symm__pool_alloc(&pool, n, sizeof *s.block_of);
    s.offsets = symm__pool_alloc(&pool, n, sizeof *s.offsets);
    if (pool.failed) {
        status = symm__pack_nomem(m->count);
    } else {
        while ((size_t)s.free_count < blocks) {
            s.free_blocks[s.free_count] = (int)blocks - 1 - s.free_count;
            s.free_count++;
        }
        for (int t = 0; t <= m->sections; t++)
            s.ends[t] = NONE;
        run(&s, state, order);
    }
    symm__pool_free(&pool);
    return status;
}
