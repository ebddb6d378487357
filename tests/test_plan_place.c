/* SPDX-License-Identifier: MIT */
/*
 * test_plan_place.c - packings: a check of every pair that shares no code with the packer,
 * the true optimum of small problems by trying all orders, the eleven hard instances
 * (tests/data/minimalloc), large and odd inputs.
 * ctest: cost 5
 * ctest: load 2
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "symm/plan.h"

#define MAX_SMALL 6
#define CAPACITY  INT64_C(1048576)

/* ---- Help ------------------------------------------------------------------------ */

static uint64_t random_state;

static int random_below(int limit)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407U;
    return (int)((random_state >> 33) % (uint64_t)limit);
}

static bool share_time(const symm_pack_item *a, const symm_pack_item *b)
{
    return a->lower < b->upper && b->lower < a->upper;
}

static int64_t peak_of(const symm_pack_item *items, int count, const int64_t *offsets)
{
    int64_t peak = 0;

    for (int i = 0; i < count; i++)
        if (items[i].bytes > 0 && offsets[i] + items[i].bytes > peak)
            peak = offsets[i] + items[i].bytes;
    return peak;
}

/* By comparing every pair. */
static bool valid(const symm_pack_item *items, int count, const int64_t *offsets)
{
    for (int i = 0; i < count; i++) {
        if (items[i].bytes == 0)
            continue;
        if (offsets[i] < 0)
            return false;
        for (int j = 0; j < i; j++)
            if (items[j].bytes > 0 && offsets[i] < offsets[j] + items[j].bytes &&
                offsets[j] < offsets[i] + items[i].bytes &&
                share_time(&items[i], &items[j]))
                return false;
    }
    return true;
}

enum mode {
    FAST,  /* milliseconds */
    FIT,   /* any placement within the capacity */
    SMALL, /* the lowest peak */
};

static symm_pack_result place(const symm_pack_item *items, int count, enum mode mode,
                              int64_t capacity, int64_t *offsets)
{
    symm_pack_options options = {.size = sizeof(options),
                                 .greedy = mode == FAST,
                                 .capacity = capacity,
                                 .time_limit = INFINITY};
    symm_pack_result result = {.size = sizeof(result)};

    assert_int_equal(symm_pack(items, count, &options, offsets, &result), SYMM_OK);
    assert_true(valid(items, count, offsets));
    assert_int_equal(peak_of(items, count, offsets), result.peak);
    assert_int_equal(result.fits, capacity == 0 || result.peak <= capacity);
    return result;
}

static void refused(const symm_pack_item *items, int count, symm_status status,
                    const char *says)
{
    symm_pack_result result = {.size = sizeof(result), .peak = -7};
    int64_t offsets[4] = {-7, -7, -7, -7};

    assert_int_equal(symm_pack(items, count, NULL, offsets, &result), status);
    assert_non_null(strstr(symm_last_error(), says));
    assert_int_equal(result.peak, -7);
    assert_int_equal(offsets[0], -7);
}

/* ---- Small problems, solved by trying everything --------------------------------- */

/*
 * Each item at each offset below the best peak, one after the other: slow, and free of
 * any idea of what a good placement looks like.
 */
static void try_all(const symm_pack_item *items, int count, int next, int64_t *offsets,
                    int64_t *best)
{
    if (next == count) {
        int64_t peak = peak_of(items, count, offsets);
        *best = peak < *best ? peak : *best;
        return;
    }
    for (int64_t offset = 0; offset + items[next].bytes < *best; offset++) {
        bool clear = true;
        for (int k = 0; k < next && clear; k++)
            clear = !share_time(&items[k], &items[next]) ||
                    offset >= offsets[k] + items[k].bytes ||
                    offsets[k] >= offset + items[next].bytes;
        if (!clear)
            continue;
        offsets[next] = offset;
        try_all(items, count, next + 1, offsets, best);
    }
}

static void test_optimum(void **state)
{
    (void)state;
    random_state = 1;
    for (int p = 0; p < (HARNESS_SLOW ? 150 : 900); p++) {
        symm_pack_item items[MAX_SMALL];
        int64_t offsets[MAX_SMALL], best = 40;
        symm_pack_result small, fit;
        int count = 1 + random_below(MAX_SMALL);

        for (int i = 0; i < count; i++) {
            int a = random_below(8), b = a + 1 + random_below(4);
            items[i] = (symm_pack_item){a, b, 1 + random_below(4)};
        }
        try_all(items, count, 0, offsets, &best);
        small = place(items, count, SMALL, 0, offsets);
        assert_true(small.proved);
        assert_int_equal(small.peak, best);
        fit = place(items, count, FIT, best, offsets);
        assert_true(fit.fits && fit.proved);
        if (best == 1)
            continue;
        fit = place(items, count, FIT, best - 1, offsets);
        assert_true(!fit.fits && fit.proved);
        assert_true(place(items, count, FAST, 0, offsets).peak >= best);
    }
}

/* ---- Larger random problems ------------------------------------------------------ */

static void check_medium(int count)
{
    symm_pack_item *items = calloc((size_t)count, sizeof(*items));
    int64_t *offsets = calloc((size_t)count, sizeof(*offsets));

    assert_true(items && offsets);
    for (int i = 0; i < count; i++) {
        int a = random_below(1000);
        items[i] = (symm_pack_item){a, a + 1 + random_below(200),
                                    256 * (1 + random_below(64))};
    }
    for (int mode = FAST; mode <= FIT; mode++) {
        int64_t fast = place(items, count, FAST, 0, offsets).peak;
        symm_pack_result result = place(items, count, (enum mode)mode, fast, offsets);
        assert_true(result.peak <= fast && result.peak >= result.lower_bound);
    }
    free(items);
    free(offsets);
}

static void test_medium(void **state)
{
    (void)state;
    random_state = 2;
    for (int k = 0; k < 10; k++)
        check_medium(120);
}

static void test_large(void **state)
{
    int count = HARNESS_SLOW ? 6000 : 60000;
    symm_pack_item *items = calloc((size_t)count, sizeof(*items));
    int64_t *offsets = calloc((size_t)count, sizeof(*offsets));
    symm_pack_options options = {
        .size = sizeof(options), .greedy = true, .time_limit = INFINITY};
    symm_pack_result result = {.size = sizeof(result)};

    (void)state;
    assert_true(items && offsets);
    random_state = 3;
    for (int i = 0; i < count; i++) {
        items[i].lower = random_below(count);
        items[i].upper = items[i].lower + 1 + random_below(60);
        items[i].bytes = 512 * (1 + random_below(100));
    }
    assert_int_equal(symm_pack(items, count, &options, offsets, &result), SYMM_OK);
    assert_true(result.fits && result.peak >= result.lower_bound);
    assert_true((double)result.peak < 1.3 * (double)result.lower_bound);
    /* Items that start at t or before and end after it, for some moments t. */
    for (int t = 0; t < count; t += count / 20) {
        for (int i = 0; i < count; i++)
            for (int j = 0; items[i].lower <= t && items[i].upper > t && j < i; j++)
                assert_true(items[j].lower > t || items[j].upper <= t ||
                            offsets[i] >= offsets[j] + items[j].bytes ||
                            offsets[j] >= offsets[i] + items[i].bytes);
    }
    free(items);
    free(offsets);
}

/* ---- The hard instances ---------------------------------------------------------- */

struct instance {
    symm_pack_item items[500];
    int64_t offsets[500];
    int count;
};

static void load(char name, struct instance *in)
{
    char path[512], line[256];
    FILE *file;

    snprintf(path, sizeof(path),
             SYMM_SOURCE_DIR "/tests/data/minimalloc/%c.1048576.csv", name);
    file = fopen(path, "re");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof(line), file));
    for (in->count = 0; fgets(line, sizeof(line), file); in->count++) {
        long long id, lower, upper, size;
        assert_true(in->count < 500);
        assert_int_equal(
            sscanf(line, "%lld,%lld,%lld,%lld", &id, &lower, &upper, &size), 4);
        in->items[in->count] = (symm_pack_item){lower, upper, size};
    }
    fclose(file);
}

static void test_fit(void **state)
{
    /* Cheapest first; the dear ones are left to builds without a sanitizer. */
    const char *names = HARNESS_SLOW ? "BCFGHK" : "BCFGHKJDAIE";
    struct instance *in = malloc(sizeof(*in));

    (void)state;
    assert_non_null(in);
    for (const char *name = names; *name; name++) {
        symm_pack_result result;
        load(*name, in);
        result = place(in->items, in->count, FIT, CAPACITY, in->offsets);
        assert_true(result.fits && result.proved);
    }
    free(in);
}

static void test_fast(void **state)
{
    struct instance *in = malloc(sizeof(*in));
    double product = 1;
    int64_t first[500];

    (void)state;
    assert_non_null(in);
    for (char name = 'A'; name <= 'K'; name++) {
        symm_pack_result result;
        load(name, in);
        result = place(in->items, in->count, FAST, 0, in->offsets);
        product *= (double)result.peak / (double)result.lower_bound;
        memcpy(first, in->offsets, sizeof(first));
        place(in->items, in->count, FAST, 0, in->offsets);
        assert_memory_equal(first, in->offsets,
                            (size_t)in->count * sizeof(*first)); /* deterministic */
    }
    assert_true(pow(product, 1.0 / 11) <= 1.10);
    free(in);
}

static void test_small(void **state)
{
    struct instance *in = malloc(sizeof(*in));
    symm_pack_result result;

    (void)state;
    assert_non_null(in);
    load('C', in);
    result = place(in->items, in->count, SMALL, 0, in->offsets);
    assert_true(result.proved);
    assert_int_equal(result.peak, 1039360);
    /* No peak can be below the load, and that needs no search. */
    result = place(in->items, in->count, FIT, 1039359, in->offsets);
    assert_true(!result.fits && result.proved);
    free(in);
}

/* ---- How a search ends ----------------------------------------------------------- */

static bool stop(void *arg, double seconds, int64_t best_peak, int64_t lower_bound,
                 uint64_t nodes)
{
    int *calls = arg;

    assert_true(seconds > 0 && best_peak > lower_bound && nodes > 0);
    return ++*calls < 2;
}

static void test_stop(void **state)
{
    struct instance *in = malloc(sizeof(*in));
    symm_pack_options options = {
        .size = sizeof(options), .capacity = 986112, .time_limit = INFINITY};
    symm_pack_result result = {.size = sizeof(result)};
    int calls = 0;

    (void)state;
    assert_non_null(in);
    load('D', in); /* nobody knows whether it fits into its load */
    options.time_limit = 0.05;
    assert_int_equal(symm_pack(in->items, in->count, &options, in->offsets, &result),
                     SYMM_OK);
    assert_true(!result.fits && !result.proved && result.seconds >= 0.05);
    assert_true(valid(in->items, in->count, in->offsets));
    options.time_limit = INFINITY;
    options.progress = stop;
    options.arg = &calls;
    assert_int_equal(symm_pack(in->items, in->count, &options, in->offsets, &result),
                     SYMM_OK);
    assert_int_equal(calls, 2);
    assert_true(!result.fits && valid(in->items, in->count, in->offsets));
    free(in);
}

/* ---- Odd inputs ------------------------------------------------------------------ */

static void test_odd(void **state)
{
    int64_t huge = INT64_C(1) << 62, offsets[3];
    symm_pack_item items[3] = {{0, 1, huge}, {1, 2, huge}, {INT64_MIN, INT64_MAX, 0}};

    (void)state;
    assert_int_equal(place(items, 0, SMALL, 0, offsets).peak, 0);
    assert_int_equal(place(items, 3, SMALL, 0, offsets).peak, huge);
    items[2].bytes = huge - 1;
    refused(items, 3, SYMM_ERR_OVERFLOW, "add up");
    items[2].bytes = items[1].bytes = 1;
    assert_int_equal(place(items, 3, SMALL, 0, offsets).peak, huge + 1);
}

static void test_refusals(void **state)
{
    const symm_pack_item negative = {0, 2, -1}, empty = {3, 3, 8}, turned = {3, 2, 8};

    (void)state;
    refused(&negative, 1, SYMM_ERR_INVALID, "item 0 has size -1");
    refused(&empty, 1, SYMM_ERR_INVALID, "[3, 3)");
    refused(&turned, 1, SYMM_ERR_INVALID, "item 0 is live in [3, 2)");
    refused(&empty, -1, SYMM_ERR_INVALID, "-1 items");
    refused(&empty, 1000001, SYMM_ERR_INVALID, "1000001 items");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optimum), cmocka_unit_test(test_medium),
        cmocka_unit_test(test_large),   cmocka_unit_test(test_fit),
        cmocka_unit_test(test_fast),    cmocka_unit_test(test_small),
        cmocka_unit_test(test_stop),    cmocka_unit_test(test_odd),
        cmocka_unit_test(test_refusals)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
