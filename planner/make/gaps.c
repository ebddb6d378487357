/* SPDX-License-Identifier: MIT */
/*
 * gaps.c - see gaps.h. A buffer can come between X and Y if its seat is one from which on X is
 * over, and if it is over at Y's seat. The former are the end of a track, so the soonest end of
 * all of these decides.
 */
#include "make/gaps.h"

static void find_soonest(const struct lifetimes *lives, int period, int *soonest)
{
    const size_t tracks = (size_t)lives->tracks;

    for (int t = 0; t < lives->tracks; t++) {
        const int begin = lives->track_start[t], end = lives->track_start[t + 1];
        for (int i = end - 1; i >= begin; i--) {
            const int *over = lives->over[period] + (size_t)lives->on_track[i] * tracks;
            int *row = soonest + (size_t)i * tracks;
            for (size_t y = 0; y < tracks; y++)
                row[y] = i + 1 < end && row[tracks + y] < over[y] ? row[tracks + y]
                                                                  : over[y];
        }
    }
}

static void find_soonest_of_all(const struct lifetimes *lives, int *soonest)
{
    const size_t tracks = (size_t)lives->tracks;

    for (size_t y = 0; y < tracks; y++)
        soonest[y] = lives->count;
    for (int b = 0; b < lives->count; b++)
        for (size_t y = 0; y < tracks && !lives->always[b]; y++)
            if (lives->over[0][(size_t)b * tracks + y] < soonest[y])
                soonest[y] = lives->over[0][(size_t)b * tracks + y];
}

bool symm__gaps_make(struct gaps *gaps, struct pool *pool,
                     const struct lifetimes *lives)
{
    const size_t count = (size_t)lives->count + 1, tracks = (size_t)lives->tracks + 1;

    *gaps = (struct gaps){.lives = lives};
    gaps->soonest_of_all = symm__pool_alloc(pool, tracks, sizeof(int));
    if (!gaps->soonest_of_all)
        return false;
    find_soonest_of_all(lives, gaps->soonest_of_all);
    for (int period = 0; period < (lives->loop ? 2 : 1); period++) {
        gaps->soonest[period] = symm__pool_alloc(pool, count, tracks * sizeof(int));
        if (!gaps->soonest[period])
            return false;
        find_soonest(lives, period, gaps->soonest[period]);
    }
    return true;
}

/* Whether a buffer that begins `from` periods after X, when X is over, may be over before the Y
 * that begins `to` periods after that buffer. */
static bool fits(const struct gaps *gaps, int x, int from, int y, int to)
{
    const struct lifetimes *lives = gaps->lives;
    const size_t tracks = (size_t)lives->tracks;

    for (int t = 0; t < lives->tracks; t++) {
        const int place =
            lives->track_start[t] + lives->over[from][(size_t)x * tracks + (size_t)t];
        if (place < lives->track_start[t + 1] &&
            gaps->soonest[to][(size_t)place * tracks + (size_t)lives->track[y]] <=
                lives->seat[y])
            return true;
    }
    return false;
}

static bool may_begin_after(const struct lifetimes *lives, int x)
{
    for (int t = 0; t < lives->tracks; t++)
        if (lives->over[0][(size_t)x * (size_t)lives->tracks + (size_t)t] <
            lives->track_start[t + 1] - lives->track_start[t])
            return true;
    return false;
}

bool symm__gap_is_open(const struct gaps *gaps, int before, int after, bool wraps)
{
    const struct lifetimes *lives = gaps->lives;

    if (after < 0)
        return may_begin_after(lives, before);
    if (lives->track[after] < 0)
        return false;
    if (before < 0)
        return gaps->soonest_of_all[lives->track[after]] <= lives->seat[after];
    if (!wraps)
        return fits(gaps, before, 0, after, 0);
    return fits(gaps, before, 0, after, 1) || fits(gaps, before, 1, after, 0);
}
