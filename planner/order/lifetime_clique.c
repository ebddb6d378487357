/* SPDX-License-Identifier: MIT */
/*
 * lifetime_clique.c - a set of buffers that pairwise conflict: no arena can be smaller. It is
 * large, but not always the largest.
 *
 * The buffers of one track that live at one first write pairwise conflict. Such a moment is
 * chosen on each track in turn, among the buffers that conflict with all chosen on the other
 * tracks, until the set no longer grows; the search starts from several tracks. Then buffers
 * that conflict with the whole set are added, as are those that live always. Of few buffers all
 * sets are tried, within a budget.
 */
#include <stdlib.h>
#include <string.h>

#include "model/program_private.h"
#include "order/lifetime.h"

#define MAX_STARTS  16
#define MAX_SWEEPS  4
#define EXACT_COUNT 512      /* buffers of which all sets are tried */
#define EXACT_WORDS 20000000 /* words that such a search may look at */

struct clique {
    struct pool pool; /* of all but best */
    struct lifetimes *lives;
    int partitions; /* tracks, and one for the buffers that no other can precede */
    int firsts;     /* how many these are, without those that live always */
    int **chosen;   /* by group: buffers */
    int *chosen_count;
    int64_t *chosen_bytes;
    int64_t *live;   /* room: by seat of a track */
    bool *fits;      /* by buffer of the group in hand */
    int *best;
    int best_count;
    int64_t best_bytes;
};

static int partition_count(const struct clique *clique, int partition)
{
    const struct lifetimes *lives = clique->lives;

    if (partition == lives->tracks)
        return clique->firsts;
    return lives->track_start[partition + 1] - lives->track_start[partition];
}

/* The buffers of a track by seat; after the tracks, those that have none. */
static const int *group_buffers(const struct clique *clique, int partition)
{
    return clique->lives->on_track + clique->lives->track_start[partition];
}

static bool fits_others(const struct clique *clique, int buffer, int partition)
{
    for (int g = 0; g < clique->partitions; g++)
        for (int i = 0; g != partition && i < clique->chosen_count[g]; i++)
            if (!symm__conflict(clique->lives, buffer, clique->chosen[g][i]))
                return false;
    return true;
}

static int over_at(const struct lifetimes *lives, int buffer, int track, int periods)
{
    return lives->over[periods][(size_t)buffer * (size_t)lives->tracks + (size_t)track];
}

/* Whether the buffer lives at the first write of the buffer in that seat of its track. */
static bool lives_at(const struct lifetimes *lives, int buffer, int track, int seat)
{
    if (lives->seat[buffer] <= seat)
        return lives->seat[buffer] == seat || over_at(lives, buffer, track, 0) > seat;
    return lives->loop && over_at(lives, buffer, track, 1) > seat;
}

/* The seat of a track with most live bytes, of buffers that fit. */
static int find_peak(struct clique *clique, int track)
{
    const int count = partition_count(clique, track);
    int best = 0;

    symm__lives_at_seats(clique->lives, track, clique->fits, clique->live);
    for (int i = 1; i < count; i++)
        if (clique->live[i] > clique->live[best])
            best = i;
    return best;
}

static void choose_partition(struct clique *clique, int partition)
{
    const struct lifetimes *lives = clique->lives;
    const int count = partition_count(clique, partition);
    const int *buffers = group_buffers(clique, partition);
    int peak = 0;

    clique->chosen_count[partition] = 0;
    clique->chosen_bytes[partition] = 0;
    for (int i = 0; i < count; i++)
        clique->fits[i] = fits_others(clique, buffers[i], partition);
    if (partition < lives->tracks)
        peak = find_peak(clique, partition);
    for (int i = 0; i < count; i++) {
        if (!clique->fits[i] || (partition < lives->tracks &&
                                 !lives_at(lives, buffers[i], partition, peak)))
            continue;
        clique->chosen[partition][clique->chosen_count[partition]++] = buffers[i];
        clique->chosen_bytes[partition] += lives->sizes[buffers[i]];
    }
}

static void keep_best(struct clique *clique)
{
    int64_t bytes = 0;

    for (int g = 0; g < clique->partitions; g++)
        bytes += clique->chosen_bytes[g];
    if (bytes <= clique->best_bytes)
        return;
    clique->best_bytes = bytes;
    clique->best_count = 0;
    for (int g = 0; g < clique->partitions; g++)
        for (int i = 0; i < clique->chosen_count[g]; i++)
            clique->best[clique->best_count++] = clique->chosen[g][i];
}

static void climb(struct clique *clique, int start)
{
    int64_t before;

    memset(clique->chosen_count, 0, (size_t)clique->partitions * sizeof(int));
    memset(clique->chosen_bytes, 0, (size_t)clique->partitions * sizeof(int64_t));
    for (int sweep = 0; sweep < MAX_SWEEPS; sweep++) {
        before = clique->best_bytes;
        for (int g = 0; g < clique->partitions; g++) {
            choose_partition(clique, (start + g) % clique->partitions);
            keep_best(clique);
        }
        if (clique->best_bytes == before && sweep > 0)
            return;
    }
}

static int compare_bytes(const void *left, const void *right, void *arg)
{
    const int a = *(const int *)left, b = *(const int *)right;
    const int64_t *sizes = arg;

    return sizes[a] != sizes[b] ? (sizes[a] < sizes[b] ? 1 : -1) : a < b ? -1 : a > b;
}

static bool fits_best(const struct clique *clique, int buffer)
{
    int i = 0;

    if (clique->lives->always[buffer])
        return true;
    while (i < clique->best_count &&
           symm__conflict(clique->lives, clique->best[i], buffer))
        i++;
    return i == clique->best_count;
}

/* Adds each buffer that conflicts with the whole set, the largest first. */
static bool augment(struct clique *clique)
{
    const struct lifetimes *lives = clique->lives;
    const size_t room = (size_t)lives->count + 1;
    int *sorted = symm__pool_alloc(&clique->pool, room, sizeof(*sorted));
    bool *taken = symm__pool_alloc(&clique->pool, room, sizeof(*taken));

    if (!sorted || !taken)
        return false;
    for (int b = 0; b < lives->count; b++)
        sorted[b] = b;
    for (int i = 0; i < clique->best_count; i++)
        taken[clique->best[i]] = true;
    qsort_r(sorted, (size_t)lives->count, sizeof(*sorted), compare_bytes, lives->sizes);
    for (int s = 0; s < lives->count; s++) {
        if (taken[sorted[s]] || !fits_best(clique, sorted[s]))
            continue;
        clique->best[clique->best_count++] = sorted[s];
        clique->best_bytes += lives->sizes[sorted[s]];
    }
    return true;
}

/* ---- All sets -------------------------------------------------------------------------- */

struct search {
    struct clique *clique;
    size_t words;
    uint64_t *rows; /* [buffer]: what it conflicts with */
    uint64_t *sets; /* one for each depth, and two more */
    int *taken;
    int64_t budget; /* words that may still be looked at */
};

static int lowest(const struct search *search, const uint64_t *set)
{
    for (size_t w = 0; w < search->words; w++)
        if (set[w])
            return (int)(w * 64) + __builtin_ctzll(set[w]);
    return -1;
}

/* At most this much can a clique within the set weigh: a colouring's classes, the heaviest
 * of each. `left` and `class` are room. */
static int64_t bound(struct search *search, const uint64_t *set, uint64_t *left,
                     uint64_t *class)
{
    const struct lifetimes *lives = search->clique->lives;
    int64_t total = 0;
    int buffer;

    memcpy(left, set, search->words * sizeof(uint64_t));
    while (lowest(search, left) >= 0) {
        int64_t heaviest = 0;
        memcpy(class, left, search->words * sizeof(uint64_t));
        while ((buffer = lowest(search, class)) >= 0) {
            left[buffer / 64] &= ~(1ULL << (buffer % 64));
            class[buffer / 64] &= ~(1ULL << (buffer % 64));
            for (size_t w = 0; w < search->words; w++)
                class[w] &= ~search->rows[(size_t)buffer * search->words + w];
            if (lives->sizes[buffer] > heaviest)
                heaviest = lives->sizes[buffer];
            search->budget -= (int64_t)search->words;
        }
        total += heaviest;
    }
    return total;
}

static void expand(struct search *search, int depth, int64_t weight)
{
    struct clique *clique = search->clique;
    uint64_t *set = search->sets + (size_t)depth * search->words;
    uint64_t *next = set + search->words;
    uint64_t *room = search->sets + (size_t)(clique->lives->count + 2) * search->words;

    if (weight > clique->best_bytes) {
        clique->best_bytes = weight;
        clique->best_count = depth;
        memcpy(clique->best, search->taken, (size_t)depth * sizeof(int));
    }
    while (search->budget > 0) {
        int buffer = lowest(search, set);
        if (buffer < 0 || weight + bound(search, set, room, room + search->words) <=
                              clique->best_bytes)
            return;
        set[buffer / 64] &= ~(1ULL << (buffer % 64));
        for (size_t w = 0; w < search->words; w++)
            next[w] = set[w] & search->rows[(size_t)buffer * search->words + w];
        search->taken[depth] = buffer;
        expand(search, depth + 1, weight + clique->lives->sizes[buffer]);
    }
}

static bool try_all_sets(struct clique *clique)
{
    const struct lifetimes *lives = clique->lives;
    const size_t count = (size_t)lives->count, words = count / 64 + 1;
    struct search search = {.clique = clique, .words = words, .budget = EXACT_WORDS};

    search.rows = symm__pool_alloc(&clique->pool, count + 1, words * sizeof(uint64_t));
    search.sets = symm__pool_alloc(&clique->pool, count + 4, words * sizeof(uint64_t));
    search.taken = symm__pool_alloc(&clique->pool, count + 1, sizeof(int));
    if (clique->pool.failed)
        return false;
    for (int a = 0; a < lives->count; a++) {
        search.sets[a / 64] |= 1ULL << (a % 64);
        for (int b = 0; b < lives->count; b++)
            if (a != b && symm__conflict(lives, a, b))
                search.rows[(size_t)a * words + (size_t)b / 64] |= 1ULL << (b % 64);
    }
    expand(&search, 0, 0);
    return true;
}

/* ---- All together ----------------------------------------------------------------------- */

static bool prepare(struct clique *clique)
{
    struct lifetimes *lives = clique->lives;
    const size_t count = (size_t)lives->count + 1;
    const size_t partitions = (size_t)lives->tracks + 1;
    struct pool *pool = &clique->pool;
    const int begin = lives->track_start[lives->tracks];

    for (int b = 0; b < lives->count; b++)
        if (lives->track[b] < 0 && !lives->always[b])
            lives->on_track[begin + clique->firsts++] = b;
    clique->partitions = lives->tracks + 1;
    clique->chosen = symm__pool_alloc(pool, partitions, sizeof(*clique->chosen));
    clique->chosen_count = symm__pool_alloc(pool, partitions, sizeof(int));
    clique->chosen_bytes = symm__pool_alloc(pool, partitions, sizeof(int64_t));
    clique->live = symm__pool_alloc(pool, count + 1, sizeof(int64_t));
    clique->fits = symm__pool_alloc(pool, count, sizeof(bool));
    clique->best = symm__pool_alloc(&lives->pool, count, sizeof(int));
    for (int g = 0; g < clique->partitions && clique->chosen; g++)
        clique->chosen[g] =
            symm__pool_alloc(pool, (size_t)partition_count(clique, g) + 1, sizeof(int));
    return !pool->failed && clique->best;
}

symm_status symm__lifetimes_clique(struct lifetimes *lives)
{
    struct clique clique = {.lives = lives};
    bool good = prepare(&clique);

    for (int s = 0; good && s < clique.partitions && s < MAX_STARTS; s++)
        climb(&clique, s);
    good = good && augment(&clique);
    if (good && lives->count <= EXACT_COUNT)
        good = try_all_sets(&clique);
    symm__pool_free(&clique.pool);
    lives->clique = clique.best;
    lives->clique_count = clique.best_count;
    lives->clique_bytes = clique.best_bytes;
    return good ? SYMM_OK : symm__program_nomem(lives->order->program);
}
