/* SPDX-License-Identifier: MIT */
/*
 * test_plan_pack.c - properties of symm_pack on random lifetimes of several families.
 *
 * Each result is checked by code that shares nothing with the packer: no two buffers that
 * are live together share a byte, the bound is the largest load, and the peak is never
 * above that of first fit by (size, start), nor of first fit in the order of time. Equal
 * calls give equal offsets, and a time limit is kept. The seed is printed: SYMM_TEST_SEED
 * sets it, SYMM_TEST_LONG=1 runs more and larger problems.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness.h"
#include "symm/plan.h"

static uint64_t random_state;

static int64_t random_below(int64_t limit)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407U;
    return (int64_t)((random_state >> 20) % (uint64_t)limit);
}

/* ---- Families -------------------------------------------------------------------- */

enum family { UNIFORM, CACHE, STACK, NESTED, TIGHT, MIXED, FAMILIES };

static const char *const family_names[] = {"uniform", "cache", "stack",
                                           "nested",  "tight", "mixed"};

static void make_stack(symm_pack_item *items, int count)
{
    int *open = calloc((size_t)count + 1, sizeof(*open)), depth = 0, made = 0;

    assert_non_null(open);
    for (int64_t t = 0; made < count || depth > 0; t++) {
        if (made < count && (depth == 0 || random_below(100) < 52)) {
            items[made] = (symm_pack_item){t, 0, 256 * (1 + random_below(1024))};
            open[depth++] = made++;
        } else {
            items[open[--depth]].upper = t;
        }
    }
    free(open);
}

/* Cuts the piece in two, across time or across bytes; false: it is too small. */
static bool cut_piece(symm_pack_item *old, symm_pack_item *piece)
{
    *piece = *old;
    if (old->upper - old->lower > 64 && random_below(2)) {
        int64_t middle = old->lower + 1 + random_below(old->upper - old->lower - 1);
        old->upper = piece->lower = middle;
    } else if (old->bytes > 64) {
        piece->bytes = 1 + random_below(old->bytes - 1);
        old->bytes -= piece->bytes;
    } else {
        return false;
    }
    return true;
}

/* Cuts pieces in the order in which they were made. */
static void make_tight(symm_pack_item *items, int count)
{
    int cut = 0, made = 1;

    items[0] = (symm_pack_item){0, 1 << 20, 1 << 20};
    for (; made < count; cut++)
        made += cut_piece(&items[cut % made], &items[made]);
}

/* Cuts any piece; then no order of the list tells how. */
static void make_tight_at_random(symm_pack_item *items, int count)
{
    int made = 1;

    items[0] = (symm_pack_item){0, 1 << 20, 1 << 20};
    while (made < count)
        made += cut_piece(&items[random_below(made)], &items[made]);
    for (int i = count - 1; i > 0; i--) {
        int other = (int)random_below(i + 1);
        symm_pack_item item = items[i];
        items[i] = items[other];
        items[other] = item;
    }
}

static void make_family(enum family family, symm_pack_item *items, int count)
{
    int64_t slots[16] = {0};

    if (family == STACK)
        make_stack(items, count);
    if (family == TIGHT)
        make_tight(items, count);
    for (int i = 0; i < count; i++) {
        int64_t a = random_below(count), slot = random_below(16);
        int64_t length = 1 + random_below(40);
        if (family == UNIFORM)
            items[i] = (symm_pack_item){a, a + 1 + random_below(count / 20 + 2),
                                        256 * (1 + random_below(4096))};
        if (family == CACHE) {
            items[i] = (symm_pack_item){slots[slot], slots[slot] + length, 2 << 20};
            slots[slot] += length;
        }
        if (family == NESTED)
            items[i] = (symm_pack_item){i, 2 * (int64_t)count - i,
                                        256 * (1 + random_below(1024))};
        if (family == MIXED) /* few long and large ones, some of no bytes at all */
            items[i] =
                (symm_pack_item){a - 50, a + 1 + (random_below(10) ? length : count),
                                 random_below(7) * random_below(1 << 20)};
    }
}

/* ---- Judges ---------------------------------------------------------------------- */

static bool live_together(const symm_pack_item *a, const symm_pack_item *b)
{
    return a->lower < b->upper && b->lower < a->upper;
}

static const symm_pack_item *sorted_items;

static int by_size_and_start(const void *a, const void *b)
{
    const symm_pack_item *x = &sorted_items[*(const int *)a];
    const symm_pack_item *y = &sorted_items[*(const int *)b];

    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    if (x->lower != y->lower)
        return x->lower < y->lower ? -1 : 1;
    return *(const int *)a - *(const int *)b;
}

static int by_start(const void *a, const void *b)
{
    const symm_pack_item *x = &sorted_items[*(const int *)a];
    const symm_pack_item *y = &sorted_items[*(const int *)b];

    return x->lower != y->lower ? (x->lower < y->lower ? -1 : 1)
                                : by_size_and_start(a, b);
}

/* First fit in an order, by the definition: the lowest place that is free. */
static int64_t first_fit(const symm_pack_item *items, int count,
                         int (*compare)(const void *, const void *))
{
    int *order = calloc((size_t)count + 1, sizeof(*order));
    int64_t *offsets = calloc((size_t)count + 1, sizeof(*offsets)), peak = 0;

    assert_true(order && offsets);
    for (int i = 0; i < count; i++)
        order[i] = i;
    sorted_items = items;
    qsort(order, (size_t)count, sizeof(*order), compare);
    for (int k = 0; k < count; k++) {
        const symm_pack_item *item = &items[order[k]];
        int64_t at = 0;
        bool moved = true;
        while (moved && item->bytes > 0) {
            moved = false;
            for (int j = 0; j < k; j++) {
                const symm_pack_item *other = &items[order[j]];
                int64_t from = offsets[order[j]], to = from + other->bytes;
                if (live_together(item, other) && from < at + item->bytes && at < to) {
                    at = to;
                    moved = true;
                }
            }
        }
        offsets[order[k]] = at;
        peak = item->bytes > 0 && at + item->bytes > peak ? at + item->bytes : peak;
    }
    free(order);
    free(offsets);
    return peak;
}

static int64_t largest_load(const symm_pack_item *items, int count)
{
    int64_t largest = 0;

    for (int i = 0; i < count; i++) {
        int64_t load = 0;
        for (int j = 0; j < count; j++)
            if (items[j].lower <= items[i].lower && items[j].upper > items[i].lower)
                load += items[j].bytes;
        largest = load > largest ? load : largest;
    }
    return largest;
}

static void judge(const symm_pack_item *items, int count, const int64_t *offsets,
                  const symm_pack_result *result)
{
    int64_t peak = 0;

    for (int i = 0; i < count; i++) {
        if (items[i].bytes == 0)
            continue;
        assert_true(offsets[i] >= 0);
        peak = offsets[i] + items[i].bytes > peak ? offsets[i] + items[i].bytes : peak;
        for (int j = 0; j < i; j++)
            assert_true(items[j].bytes == 0 || !live_together(&items[i], &items[j]) ||
                        offsets[i] >= offsets[j] + items[j].bytes ||
                        offsets[j] >= offsets[i] + items[i].bytes);
    }
    assert_int_equal(result->peak, peak);
    assert_int_equal(result->lower_bound, largest_load(items, count));
    assert_true(result->peak >= result->lower_bound);
    assert_true(result->peak <= first_fit(items, count, by_size_and_start));
    assert_true(result->peak <= first_fit(items, count, by_start));
}

/* ---- Tests ----------------------------------------------------------------------- */

static symm_pack_result pack(const symm_pack_item *items, int count,
                             symm_pack_options options, int64_t *offsets)
{
    symm_pack_result result = {.size = sizeof(result)};

    options.size = sizeof(options);
    if (options.time_limit <= 0)
        options.time_limit = INFINITY;
    assert_int_equal(symm_pack(items, count, &options, offsets, &result), SYMM_OK);
    return result;
}

static void one_problem(enum family family, int count)
{
    size_t n = (size_t)count + 1;
    symm_pack_item *items = calloc(n, sizeof(*items));
    int64_t *offsets = calloc(n, sizeof(*offsets));
    int64_t *again = calloc(n, sizeof(*again));
    symm_pack_result fast, small;

    assert_true(items && offsets && again);
    make_family(family, items, count);
    fast = pack(items, count, (symm_pack_options){.greedy = true}, offsets);
    judge(items, count, offsets, &fast);
    assert_int_equal(
        pack(items, count, (symm_pack_options){.greedy = true}, again).nodes,
        fast.nodes);
    assert_memory_equal(offsets, again, (n - 1) * sizeof(*again));
    small = pack(items, count, (symm_pack_options){.time_limit = 0.02}, offsets);
    judge(items, count, offsets, &small);
    small = pack(items, count, (symm_pack_options){.capacity = fast.peak + 1}, offsets);
    assert_true(small.fits && small.proved && small.peak <= fast.peak + 1);
    free(items);
    free(offsets);
    free(again);
}

static char last_problem[80];

static int say_last(void **state)
{
    (void)state;
    print_message("the last was %s\n", last_problem);
    return 0;
}

/* Each problem has a seed of its own, so that one can be run alone. */
static void problem_of(uint64_t seed, int most)
{
    enum family family;
    int count;

    random_state = seed;
    family = (enum family)random_below(FAMILIES);
    count = (int)random_below(most);
    snprintf(last_problem, sizeof(last_problem),
             "SYMM_TEST_SEED=%" PRIu64 ": %d buffers, %s", seed, count,
             family_names[family]);
    one_problem(family, count);
}

/* Problems of which a peak was above that of first fit in the order of time. */
static void test_known(void **state)
{
    (void)state;
    problem_of(1795425356, 700);
}

static void test_families(void **state)
{
    const uint64_t seed = (uint64_t)harness_env("SYMM_TEST_SEED", (long)time(NULL));
    const bool is_long = harness_env("SYMM_TEST_LONG", 0) != 0;
    const int problems = is_long ? 2000 : HARNESS_SLOW ? 30 : 100;

    (void)state;
    print_message("SYMM_TEST_SEED=%" PRIu64 "\n", seed);
    for (int k = 0; k < problems; k++)
        problem_of(seed + (uint64_t)k, k % 10 ? 120 : is_long ? 4000 : 700);
}

/* Buffers cut out of a full rectangle lie without a gap, by a bounded search. */
static void test_tight(void **state)
{
    static const struct {
        int count;
        uint64_t seeds, nodes;
    } cases[] = {{100, 20, 30000}, {300, 20, 1000000}, {1000, 5, 100000}};

    (void)state;
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        int count = cases[c].count;
        symm_pack_item *items = calloc((size_t)count, sizeof(*items));
        int64_t *offsets = calloc((size_t)count, sizeof(*offsets));
        assert_true(items && offsets);
        for (uint64_t seed = 1; seed <= cases[c].seeds; seed++) {
            random_state = seed;
            make_tight_at_random(items, count);
            symm_pack_result small =
                pack(items, count, (symm_pack_options){0}, offsets);
            judge(items, count, offsets, &small);
            assert_int_equal(small.peak, small.lower_bound);
            assert_true(small.nodes <= cases[c].nodes);
        }
        free(items);
        free(offsets);
    }
}

static double cpu_seconds(void)
{
    struct timespec now;

    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now), 0);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The processor's time is what the limit bounds on a machine that others use, too. */
static void one_limit(enum family family, int count, double given)
{
    const double limit = given > 0 ? given : SYMM_PLAN_TIME_LIMIT;
    const symm_pack_options options = {.size = sizeof(options), .time_limit = given};
    symm_pack_result result = {.size = sizeof(result)};
    symm_pack_item *items = calloc((size_t)count + 1, sizeof(*items));
    int64_t *offsets = calloc((size_t)count + 1, sizeof(*offsets));
    double start;

    assert_true(items && offsets);
    random_state = (uint64_t)count;
    make_family(family, items, count);
    start = cpu_seconds();
    assert_int_equal(symm_pack(items, count, &options, offsets, &result), SYMM_OK);
    assert_true(cpu_seconds() - start <= 1.1 * limit);
    free(items);
    free(offsets);
}

static void test_limits(void **state)
{
    const double limit = HARNESS_SLOW ? 4 : 1;

    (void)state;
    one_limit(TIGHT, 3000, limit);  /* exact searches and others take turns */
    one_limit(MIXED, 20000, limit); /* tens of millions of pairs live together */
    one_limit(UNIFORM, 200000, limit);
    if (!HARNESS_SLOW)
        one_limit(TIGHT, 3000, 0); /* the default */
}

/* Large problems of which the optimum is known: the load. */
static void test_large(void **state)
{
    static const enum family known[] = {CACHE, STACK, NESTED};
    const int count = HARNESS_SLOW ? 20000 : 200000;
    symm_pack_item *items = calloc((size_t)count + 1, sizeof(*items));
    int64_t *offsets = calloc((size_t)count + 1, sizeof(*offsets));

    (void)state;
    assert_true(items && offsets);
    for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++) {
        symm_pack_result result;
        make_family(known[k], items, count);
        result = pack(items, count, (symm_pack_options){.greedy = true}, offsets);
        assert_int_equal(result.peak, result.lower_bound);
    }
    free(items);
    free(offsets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_known, say_last),
        cmocka_unit_test_teardown(test_families, say_last),
        cmocka_unit_test(test_tight), cmocka_unit_test(test_limits),
        cmocka_unit_test(test_large)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
