/* SPDX-License-Identifier: MIT */
/*
 * plan_spread.c - moves buffers apart within an arena whose size is settled, so that fewer
 * pairs share bytes: every such pair is an entry of the certificate, to be read and proved.
 *
 * The largest first, buffers of one size side by side in rounds, each at the next place
 * where nothing conflicts. If one finds no place, the placement stays as it was.
 */
#include <stdlib.h>
#include <string.h>

#include "plan_private.h"
#include "program_private.h"

struct spread {
    const struct lifetimes *lives;
    int64_t arena;
    int64_t *offsets; /* -1: not placed yet */
};

static bool is_free(const struct spread *spread, int buffer, int64_t offset)
{
    const struct lifetimes *lives = spread->lives;
    const uint64_t *row = lives->conflicts + (size_t)buffer * lives->words;

    for (size_t w = 0; w < lives->words; w++) {
        for (uint64_t left = row[w]; left; left &= left - 1) {
            int other = (int)(w * 64) + __builtin_ctzll(left);
            int64_t at = spread->offsets[other];
            if (at >= 0 && at < offset + lives->sizes[buffer] &&
                offset < at + lives->sizes[other])
                return false;
        }
    }
    return true;
}

static bool place_next(struct spread *spread, int buffer, int64_t *cursor)
{
    const int64_t size = spread->lives->sizes[buffer];
    const int64_t places = size > 0 ? spread->arena / size : 1;

    for (int64_t i = 0; i < places; i++) {
        if (*cursor + size > spread->arena)
            *cursor = 0;
        int64_t offset = *cursor;
        *cursor += size;
        if (!is_free(spread, buffer, offset))
            continue;
        spread->offsets[buffer] = offset;
        return true;
    }
    return false;
}

/* Largest first; equal ones in the program's order. Quadratic at worst. */
static void sort_by_size(const struct lifetimes *lives, int *sorted)
{
    for (int b = 0; b < lives->count; b++) {
        int at = b;
        while (at > 0 && lives->sizes[sorted[at - 1]] < lives->sizes[b]) {
            sorted[at] = sorted[at - 1];
            at--;
        }
        sorted[at] = b;
    }
}

static size_t count_shared(const struct lifetimes *lives, const int64_t *offsets)
{
    size_t count = 0;

    for (int a = 0; a < lives->count; a++)
        for (int b = 0; b < a; b++)
            count += offsets[a] < offsets[b] + lives->sizes[b] &&
                     offsets[b] < offsets[a] + lives->sizes[a];
    return count;
}

symm_status symm__plan_spread(const struct lifetimes *lives, int64_t arena,
                              int64_t *offsets)
{
    const size_t count = (size_t)lives->count;
    struct spread spread = {.lives = lives, .arena = arena};
    int *sorted = calloc(count + 1, sizeof(*sorted));
    int64_t cursor = 0;
    bool all = true;

    spread.offsets = malloc((count + 1) * sizeof(*spread.offsets));
    if (!sorted || !spread.offsets) {
        free(sorted);
        free(spread.offsets);
        return symm__program_nomem(lives->order->program);
    }
    memset(spread.offsets, 0xff, (count + 1) * sizeof(*spread.offsets));
    sort_by_size(lives, sorted);
    for (int i = 0; i < lives->count && all; i++) {
        if (i > 0 && lives->sizes[sorted[i]] != lives->sizes[sorted[i - 1]])
            cursor = 0;
        all = place_next(&spread, sorted[i], &cursor);
    }
    if (all && count_shared(lives, spread.offsets) < count_shared(lives, offsets))
        memcpy(offsets, spread.offsets, count * sizeof(*offsets));
    free(sorted);
    free(spread.offsets);
    return SYMM_OK;
}
