/* SPDX-License-Identifier: MIT */
/*
 * test_host_heap.c - the allocator of offsets, and a heap as a file.
 *
 * The allocator is compared with a simple model: one byte for each unit of 256 bytes.
 * symm__heap_check runs after every step. Python's json and pickle modules read the dumps
 * back (skipped without python3), and check that the pickle has only opcodes that the
 * viewer's reader supports.
 * ctest: no-threads
 */
#include "core/heap.h"
#include "harness.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define UNIT ((size_t)SYMM_HEAP_ALIGN)

static void assert_error(const char *part)
{
    if (strstr(symm_last_error(), part) == NULL)
        fail_msg("'%s' is not in '%s'", part, symm_last_error());
}

static size_t take(struct symm_heap *heap, size_t bytes, uint64_t id)
{
    size_t offset = SIZE_MAX;

    assert_int_equal(symm__heap_alloc(heap, bytes, id, &offset), SYMM_OK);
    assert_true(symm__heap_check(heap));
    return offset;
}

static void give(struct symm_heap *heap, size_t offset)
{
    assert_int_equal(symm__heap_free(heap, offset), SYMM_OK);
    assert_true(symm__heap_check(heap));
}

static void settle(struct symm_heap *heap)
{
    symm__heap_commit(heap);
    assert_true(symm__heap_check(heap));
}

/* ---- The rules, one by one ------------------------------------------------------- */

static void test_lowest_fit(void **state)
{
    struct symm_heap heap;
    (void)state;

    assert_int_equal(symm__heap_init(&heap, 4 * UNIT, 24 * UNIT), SYMM_OK);
    assert_true(symm__heap_check(&heap));
    assert_int_equal(symm__heap_top(&heap), 4 * UNIT);
    size_t a = take(&heap, 2 * UNIT, 1), b = take(&heap, UNIT + 1, 2);
    size_t c = take(&heap, 0, 3), d = take(&heap, 3 * UNIT, 4);
    assert_int_equal(a, 4 * UNIT);
    assert_int_equal(b, 6 * UNIT);
    assert_int_equal(c, 8 * UNIT);
    assert_int_equal(d, 9 * UNIT);
    assert_int_equal(heap.used, 8 * UNIT);
    assert_int_equal(symm__heap_top(&heap), 12 * UNIT);

    struct symm_block found;
    for (size_t at = 0; at < 26 * UNIT; at += UNIT / 2) {
        bool inside = at >= 4 * UNIT && at < 24 * UNIT;

        assert_int_equal(symm__heap_look_up(&heap, at, &found), inside);
        if (inside)
            assert_true(at >= found.offset && at - found.offset < found.bytes);
    }
    assert_true(symm__heap_look_up(&heap, b + UNIT, &found));
    assert_int_equal(found.id, 2);

    /* Not before settle: peers may still read what was freed. */
    give(&heap, a);
    give(&heap, c);
    assert_int_equal(take(&heap, UNIT, 5), 12 * UNIT);
    settle(&heap);
    assert_int_equal(take(&heap, UNIT, 6), a);
    assert_int_equal(take(&heap, 2 * UNIT, 7), 13 * UNIT); /* neither hole is enough */
    assert_int_equal(take(&heap, UNIT, 8), a + UNIT);
    assert_int_equal(take(&heap, 1, 9), c);
    symm__heap_finish(&heap);
    symm__heap_finish(&heap);
}

static void test_coalescing(void **state)
{
    struct symm_heap heap;
    size_t at[5];
    (void)state;

    assert_int_equal(symm__heap_init(&heap, 0, 8 * UNIT), SYMM_OK);
    for (uint64_t i = 0; i < 5; i++)
        at[i] = take(&heap, UNIT, i + 1);
    give(&heap, at[3]);
    give(&heap, at[1]);
    settle(&heap);
    assert_int_equal(heap.count, 6);
    give(&heap, at[2]); /* joins its left and right neighbours */
    settle(&heap);
    assert_int_equal(heap.count, 4);
    assert_int_equal(take(&heap, 3 * UNIT, 6), at[1]);
    give(&heap, at[1]);
    give(&heap, at[4]); /* joins the rest of the range */
    give(&heap, at[0]);
    assert_int_equal(symm__heap_top(&heap), 5 * UNIT); /* RETIRED counts */
    settle(&heap);
    assert_int_equal(heap.count, 1);
    assert_int_equal(heap.used, 0);
    assert_int_equal(heap.peak, 5 * UNIT);
    assert_int_equal(symm__heap_top(&heap), 0);
    symm__heap_finish(&heap);
}

/* A segment ends at an edge: no block lies on both sides of it, now or later. */
static void test_edges(void **state)
{
    struct symm_heap heap;
    (void)state;

    assert_int_equal(symm__heap_init(&heap, 0, 16 * UNIT), SYMM_OK);
    assert_int_equal(take(&heap, UNIT, 1), 0);
    assert_int_equal(symm__heap_edge(&heap, 4 * UNIT), SYMM_OK);
    assert_true(symm__heap_check(&heap));
    assert_int_equal(take(&heap, 4 * UNIT, 2), 4 * UNIT); /* not in [1, 5) */
    assert_int_equal(take(&heap, 3 * UNIT, 3), UNIT);
    assert_int_equal(symm__heap_edge(&heap, 8 * UNIT),
                     SYMM_OK); /* a block begins there */
    assert_int_equal(symm__heap_edge(&heap, 16 * UNIT), SYMM_OK); /* the end: nothing */
    give(&heap, UNIT);
    give(&heap, 4 * UNIT);
    settle(&heap); /* [1, 4), [4, 8) and [8, 16) stay apart */
    assert_int_equal(heap.count, 4);
    assert_int_equal(take(&heap, 5 * UNIT, 4), 8 * UNIT);
    symm__heap_discard(&heap, 8 * UNIT);
    assert_int_equal(heap.count, 4);
    symm__heap_edge_drop(&heap, 4 * UNIT);
    assert_true(symm__heap_check(&heap));
    assert_int_equal(heap.count, 3);
    assert_int_equal(take(&heap, 7 * UNIT, 5), UNIT);
    symm__heap_finish(&heap);
}

static void test_refusals(void **state)
{
    struct symm_heap heap = {0};
    size_t offset = 77;
    (void)state;

    assert_int_equal(symm__heap_init(&heap, UNIT, 0), SYMM_ERR_INVALID);
    assert_int_equal(symm__heap_init(&heap, 1, UNIT), SYMM_ERR_INVALID);
    assert_int_equal(symm__heap_init(&heap, 0, UNIT + 1), SYMM_ERR_INVALID);
    assert_error("multiples of 256");
    symm__heap_finish(&heap);

    assert_int_equal(symm__heap_init(&heap, UNIT, 5 * UNIT), SYMM_OK);
    for (size_t less = 0; less < UNIT - 1; less += 51) {
        assert_int_equal(symm__heap_alloc(&heap, SIZE_MAX - less, 9, &offset),
                         SYMM_ERR_OVERFLOW);
        assert_true(symm__heap_check(&heap));
    }
    assert_int_equal(symm__heap_alloc(&heap, SIZE_MAX - UNIT + 1, 9, &offset),
                     SYMM_ERR_NOMEM);
    assert_int_equal(symm__heap_alloc(&heap, 4 * UNIT + 1, 9, &offset), SYMM_ERR_NOMEM);
    assert_error("alloc_id 9");
    assert_error("largest is 1024 bytes");
    assert_error("[256, 1280)");
    assert_int_equal(offset, 77);
    assert_int_equal(heap.used, 0);
    assert_int_equal(heap.peak, 0);

    size_t a = take(&heap, 2 * UNIT, 0);
    assert_int_equal(symm__heap_free(&heap, a + 1), SYMM_ERR_NOT_FOUND);
    assert_int_equal(symm__heap_free(&heap, a + UNIT), SYMM_ERR_NOT_FOUND);
    assert_int_equal(symm__heap_free(&heap, SIZE_MAX), SYMM_ERR_NOT_FOUND);
    assert_int_equal(symm__heap_free(&heap, 0), SYMM_ERR_NOT_FOUND);
    assert_error("offset 0");
    assert_int_equal(symm__heap_free(&heap, 3 * UNIT), SYMM_ERR_NOT_FOUND); /* FREE */
    give(&heap, a);
    assert_int_equal(symm__heap_free(&heap, a), SYMM_ERR_NOT_FOUND); /* RETIRED */
    assert_error("freed before");
    settle(&heap);
    assert_int_equal(symm__heap_free(&heap, a), SYMM_ERR_NOT_FOUND);
    assert_true(symm__heap_check(&heap));
    symm__heap_finish(&heap);
}

static void test_extremes(void **state)
{
    struct symm_heap heap;
    size_t offset, top = SIZE_MAX - SIZE_MAX % UNIT;
    (void)state;

    assert_int_equal(symm__heap_init(&heap, 0, 0), SYMM_OK); /* an empty range */
    assert_true(symm__heap_check(&heap));
    assert_int_equal(symm__heap_alloc(&heap, 0, 1, &offset), SYMM_ERR_NOMEM);
    assert_int_equal(symm__heap_free(&heap, 0), SYMM_ERR_NOT_FOUND);
    settle(&heap);
    assert_int_equal(symm__heap_top(&heap), 0);
    symm__heap_finish(&heap);

    /* Nearly everything. */
    assert_int_equal(symm__heap_init(&heap, UNIT, top), SYMM_OK);
    assert_int_equal(take(&heap, top - 2 * UNIT, 1), UNIT);
    assert_int_equal(take(&heap, UNIT, 2), top - UNIT);
    assert_int_equal(symm__heap_alloc(&heap, 1, 3, &offset), SYMM_ERR_NOMEM);
    assert_int_equal(symm__heap_top(&heap), top);
    give(&heap, UNIT);
    settle(&heap);
    assert_int_equal(take(&heap, 1, 4), UNIT);
    symm__heap_finish(&heap);
}

static void test_check_finds_damage(void **state)
{
    struct symm_heap heap;
    (void)state;

    assert_int_equal(symm__heap_init(&heap, 0, 8 * UNIT), SYMM_OK);
    take(&heap, UNIT, 1);
    take(&heap, UNIT, 2);
    struct symm_block *block = &heap.blocks[1];
    struct symm_block whole = *block;
#define DAMAGE(change)                                                                 \
    do {                                                                               \
        change;                                                                        \
        assert_false(symm__heap_check(&heap));                                         \
        *block = whole;                                                                \
        assert_true(symm__heap_check(&heap));                                          \
    } while (0)
    DAMAGE(block->offset += UNIT);
    DAMAGE(block->bytes += UNIT);
    DAMAGE(block->bytes = 0);
    DAMAGE(block->bytes = SIZE_MAX - UNIT + 1);
    DAMAGE(block->requested = UNIT + 1);
    DAMAGE(block->state = SYMM_BLOCK_RETIRED);
    DAMAGE(block->state = (enum symm_block_state)7);
#undef DAMAGE
    heap.used += UNIT;
    assert_false(symm__heap_check(&heap));
    heap.used -= UNIT;
    heap.peak = 0;
    assert_false(symm__heap_check(&heap));
    symm__heap_finish(&heap);
}

/* ---- Against the model ----------------------------------------------------------- */

#define MODEL_UNITS    300
#define MODEL_LIVE_MAX 300

enum { MODEL_FREE, MODEL_LIVE, MODEL_RETIRED };

struct model {
    unsigned char unit[MODEL_UNITS];
    bool edge[MODEL_UNITS]; /* before the unit */
    struct {
        size_t at, units;
    } live[MODEL_LIVE_MAX];
    size_t count, used, peak;
};

static size_t model_fit(const struct model *model, size_t units)
{
    for (size_t at = 0; at + units <= MODEL_UNITS; at++) {
        size_t length = 0;
        while (length < units && model->unit[at + length] == MODEL_FREE &&
               !(length > 0 && model->edge[at + length]))
            length++;
        if (length == units)
            return at;
    }
    return SIZE_MAX;
}

static void model_alloc(struct model *model, size_t at, size_t units)
{
    memset(model->unit + at, MODEL_LIVE, units);
    model->live[model->count].at = at;
    model->live[model->count].units = units;
    model->count++;
    model->used += units;
    if (model->used > model->peak)
        model->peak = model->used;
}

static void model_compare(const struct model *model, const struct symm_heap *heap,
                          size_t begin)
{
    static const unsigned char names[] = {
        [SYMM_BLOCK_FREE] = MODEL_FREE,
        [SYMM_BLOCK_LIVE] = MODEL_LIVE,
        [SYMM_BLOCK_RETIRED] = MODEL_RETIRED,
    };
    size_t top = 0;

    assert_true(symm__heap_check(heap));
    assert_int_equal(heap->used, model->used * UNIT);
    assert_int_equal(heap->peak, model->peak * UNIT);
    for (size_t b = 0; b < heap->count; b++) {
        const struct symm_block *block = &heap->blocks[b];
        size_t first = (block->offset - begin) / UNIT;
        for (size_t i = first; i < first + block->bytes / UNIT; i++) {
            assert_int_equal(model->unit[i], names[block->state]);
            assert_int_equal(model->edge[i], i == first && block->edge);
        }
    }
    for (size_t i = 0; i < MODEL_UNITS; i++)
        top = model->unit[i] != MODEL_FREE ? i + 1 : top;
    assert_int_equal(symm__heap_top(heap), begin + top * UNIT);
}

/* Makes an edge, or drops one that exists, as symm__memory_grow does when it cannot commit. */
static void random_edge(struct model *model, struct symm_heap *heap, size_t begin,
                        size_t at)
{
    if (model->unit[at] != MODEL_FREE)
        return;
    if (model->edge[at])
        symm__heap_edge_drop(heap, begin + at * UNIT);
    else
        assert_int_equal(symm__heap_edge(heap, begin + at * UNIT), SYMM_OK);
    model->edge[at] = !model->edge[at];
}

static void random_step(struct model *model, struct symm_heap *heap, size_t begin,
                        uint64_t *seed)
{
    uint64_t dice = harness_random(seed) % 100, value = harness_random(seed);
    size_t offset = SIZE_MAX;

    if (dice < 55) {
        size_t bytes = (size_t)(value % (dice < 50 ? 6 * UNIT : 60 * UNIT));
        size_t units = bytes == 0 ? 1 : (bytes + UNIT - 1) / UNIT;
        size_t at = model_fit(model, units);
        symm_status status = symm__heap_alloc(heap, bytes, value, &offset);
        assert_int_equal(status, at == SIZE_MAX ? SYMM_ERR_NOMEM : SYMM_OK);
        if (at == SIZE_MAX)
            return;
        assert_int_equal(offset, begin + at * UNIT);
        model_alloc(model, at, units);
    } else if (dice < 90 && model->count > 0) {
        size_t which = (size_t)(value % model->count);
        size_t at = model->live[which].at, units = model->live[which].units;
        assert_int_equal(symm__heap_free(heap, begin + at * UNIT), SYMM_OK);
        memset(model->unit + at, MODEL_RETIRED, units);
        model->used -= units;
        model->live[which] = model->live[--model->count];
    } else if (dice < 91) {
        random_edge(model, heap, begin, (size_t)(value % MODEL_UNITS));
    } else if (dice < 96) {
        bool begins = false;
        size_t at = (size_t)(value % (MODEL_UNITS + 4));
        for (size_t i = 0; i < model->count; i++)
            begins = begins || model->live[i].at == at;
        if (!begins)
            assert_int_equal(symm__heap_free(heap, begin + at * UNIT),
                             SYMM_ERR_NOT_FOUND);
    } else {
        symm__heap_commit(heap);
        for (size_t i = 0; i < MODEL_UNITS; i++) {
            if (model->unit[i] == MODEL_RETIRED)
                model->unit[i] = MODEL_FREE;
        }
    }
}

static void test_random_against_model(void **state)
{
    uint64_t seed = (uint64_t)harness_env("SYMM_TEST_SEED", 20261120);
    (void)state;

    print_message("seed %llu (SYMM_TEST_SEED)\n", (unsigned long long)seed);
    for (size_t run = 0; run < 30; run++) {
        struct model model = {.count = 0};
        struct symm_heap heap;
        size_t begin = run * 7 * UNIT;
        assert_int_equal(symm__heap_init(&heap, begin, begin + MODEL_UNITS * UNIT),
                         SYMM_OK);
        for (int step = 0; step < 2000; step++) {
            random_step(&model, &heap, begin, &seed);
            model_compare(&model, &heap, begin);
        }
        symm__heap_finish(&heap);
    }
}

/* The same calls on two heaps: equal block for block, offset for offset. */
static void test_deterministic(void **state)
{
    struct symm_heap heap[2];
    size_t offset[2] = {0, 0};
    (void)state;

    for (int i = 0; i < 2; i++)
        assert_int_equal(symm__heap_init(&heap[i], 0, 1000 * UNIT), SYMM_OK);
    uint64_t seed = 5;
    for (int step = 0; step < 3000; step++) {
        uint64_t value = harness_random(&seed);
        for (int i = 0; i < 2; i++) {
            if (value % 3 != 0) {
                symm_status ignored = symm__heap_alloc(&heap[i], (size_t)(value % 9000),
                                                       value, &offset[i]);
                (void)ignored;
            } else if (heap[i].count > 0) {
                size_t at = heap[i].blocks[value / 3 % heap[i].count].offset;
                symm_status ignored = symm__heap_free(&heap[i], at);
                (void)ignored;
            }
            if (value % 17 == 0)
                symm__heap_commit(&heap[i]);
        }
        assert_int_equal(offset[0], offset[1]);
    }
    assert_int_equal(heap[0].count, heap[1].count);
    for (size_t b = 0; b < heap[0].count; b++) {
        assert_int_equal(heap[0].blocks[b].offset, heap[1].blocks[b].offset);
        assert_int_equal(heap[0].blocks[b].state, heap[1].blocks[b].state);
        assert_true(heap[0].blocks[b].id == heap[1].blocks[b].id);
    }
    for (int i = 0; i < 2; i++)
        symm__heap_finish(&heap[i]);
}

/* ---- No memory for the records --------------------------------------------------- */

static int run_out_of_memory(void)
{
    struct symm_heap heap;
    struct rlimit limit = {1, 1};
    size_t offset, count = 1, failed = 0;

    if (symm__heap_init(&heap, 0, (size_t)1 << 40) != SYMM_OK)
        return 2;
    /* From here on the address space can't grow: realloc of a large array fails. */
    while (failed == 0 && count < 100000) {
        if (heap.count == heap.capacity && heap.capacity >= 8192 &&
            setrlimit(RLIMIT_AS, &limit) != 0)
            return 3;
        struct symm_heap before = heap;
        symm_status status = symm__heap_alloc(&heap, 1, count, &offset);
        if (status == SYMM_OK) {
            count++;
            continue;
        }
        if (status != SYMM_ERR_NOMEM || strstr(symm_last_error(), "records") == NULL)
            return 4;
        if (memcmp(&before, &heap, sizeof(heap)) != 0 || !symm__heap_check(&heap))
            return 5;
        failed = count;
    }
    if (failed == 0)
        return 6;
    /* It still works where no record is needed: an exact fit. */
    if (symm__heap_free(&heap, 0) != SYMM_OK)
        return 7;
    symm__heap_commit(&heap);
    if (symm__heap_alloc(&heap, 1, 1, &offset) != SYMM_OK || offset != 0)
        return 8;
    return symm__heap_check(&heap) ? 0 : 9;
}

static void test_no_memory(void **state)
{
    int status;
    (void)state;

    if (HARNESS_SLOW)
        skip(); /* sanitizers end the program when their own memory can't grow */
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(run_out_of_memory());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- Dumps ----------------------------------------------------------------------- */

/*
 * Two segments of "world" that lie side by side: 17 in the first, 18 runs from the
 * first into the second, a retired block, then free; and one of a team with nothing in
 * it.
 */
static const struct symm_block world_first[] = {
    {0x1000, 0x400, 1000, SYMM_BLOCK_LIVE, false, 17},
    {0x1400, 0x300, 0, SYMM_BLOCK_FREE, false, 0},
    {0x1700, 0x1000, 0xf80, SYMM_BLOCK_LIVE, false, UINT64_MAX},
};
static const struct symm_block world_second[] = {
    {0x2700, 0x100, 0, SYMM_BLOCK_RETIRED, false, 0},
    {0x2800, (size_t)1 << 36, 0, SYMM_BLOCK_FREE, false, 0},
};
static const struct symm_heap_segment segments[] = {
    {0x7f0000001000, 0x1000, "world", world_first, 3, 0x1000},
    {0x7f0000002000, 0x1000, "world", world_second, 2, 0x2000},
    {0x7f0010000000, 0x2000, "team 3 \"\xff\"", NULL, 0, (size_t)1 << 38},
};

static const char check_json[] =
    "import json, sys\n"
    "d = json.load(open(sys.argv[1]))\n"
    "assert d['format'] == 'symm-heap/1' and d['rank'] == 5, d\n"
    "assert d['totals'] == {'segments': 3, 'committed_bytes': 0x4000,\n"
    "  'live_blocks': 2,\n"
    "  'live_bytes': 0x1400, 'requested_bytes': 1000 + 0xf80, 'retired_bytes': 0x100,\n"
    "  'free_bytes': 0xb00, 'other_bytes': 0x2000}, d['totals']\n"
    "s = d['segments']\n"
    "assert [x['team'] for x in s] == ['world', 'world', 'team 3 \"\\ufffd\"'], s\n"
    "assert s[0]['address'] == 0x7f0000001000 and s[0]['offset'] == 0x1000\n"
    "assert s[0]['blocks'][0] == {'offset': 0x1000, 'bytes': 0x400, 'state': 'live',\n"
    "  'alloc_id': 17, 'requested': 1000}, s[0]\n"
    "assert s[0]['blocks'][2]['alloc_id'] == 2**64 - 1\n"
    "assert [b['state'] for b in s[1]['blocks']] == ['retired', 'free']\n";

static const char check_pickle[] =
    "import pickle, pickletools, sys\n"
    "raw = open(sys.argv[1], 'rb').read()\n"
    "known = set('PROTO EMPTY_DICT EMPTY_LIST MARK SETITEMS APPEND BINUNICODE '\n"
    "  'BININT1 BININT2 BININT LONG1 NEWTRUE NEWFALSE NONE STOP'.split())\n"
    "used = {op.name for op, arg, at in pickletools.genops(raw)}\n"
    "assert used <= known, used - known\n"
    "d = pickle.loads(raw)\n"
    "assert set(d) == {'segments', 'device_traces'} and d['device_traces'] == [[]]\n"
    "for s in d['segments']:\n"
    "  at = s['address']\n"
    "  for b in s['blocks']:\n" /* they tile the segment: the viewer adds sizes up */
    "    assert b['address'] == at and b['size'] >= b['requested_size'], b\n"
    "    at += b['size']\n"
    "  assert at == s['address'] + s['total_size'], s\n"
    "  assert s['device'] == 0 and s['stream'] == 0 and s['segment_type'] == 'large'\n"
    "a, b, c = d['segments']\n"
    "assert [x['state'] for x in a['blocks']] == ['active_allocated', 'inactive',\n"
    "  'active_allocated'], a\n"
    "assert a['allocated_size'] == 0x400 + 0x900 and a['active_size'] == 0xd00, a\n"
    "f = a['blocks'][0]\n"
    "assert f['frames'] == [{'filename': 'world', 'line': 0,\n"
    "  'name': 'alloc_id 17'}], f\n"
    "assert f['size'] == 0x400 and f['requested_size'] == 1000\n"
    "tail, head, old, free = a['blocks'][2], *b['blocks']\n"
    "assert tail['size'] == 0x900 and tail['requested_size'] == 0x900\n"
    "assert head['size'] == 0x700 and head['requested_size'] == 0x680, head\n"
    "assert head['frames'] == tail['frames'] != []\n"
    "assert tail['frames'][0]['name'] == 'alloc_id %d' % (2**64 - 1)\n"
    "assert old['state'] == 'active_pending_free' and free['state'] == 'inactive'\n"
    "assert b['allocated_size'] == 0x700 and b['active_size'] == 0x800, b\n"
    "assert free['size'] == 0x800 and free['frames'] == []\n"
    "assert [x['size'] for x in c['blocks']] == [0x2000]\n";

static char directory[256], target[300];

static int make_directory(void **state)
{
    (void)state;
    harness_directory(directory, sizeof(directory));
    snprintf(target, sizeof(target), "%s/heap.out", directory);
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    harness_remove(directory);
    return 0;
}

static symm_status write_heap(const char *format, int rank,
                              const struct symm_heap_segment *all, size_t count)
{
    int fd = open(target, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    symm_status status = symm__heap_write(fd, format, rank, all, count);

    (void)close(fd);
    return status;
}

static void run_python(const char *script)
{
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        execlp("python3", "python3", "-c", script, target, (char *)NULL);
        _exit(77);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_write_json(void **state)
{
    (void)state;
    assert_int_equal(write_heap("json", 5, segments, 3), SYMM_OK);
    run_python(check_json);
}

static void test_write_pickle(void **state)
{
    (void)state;
    assert_int_equal(write_heap("pickle", 5, segments, 3), SYMM_OK);
    run_python(check_pickle);
}

static void test_write_nothing(void **state)
{
    (void)state;
    assert_int_equal(write_heap("pickle", 0, NULL, 0), SYMM_OK);
    run_python("import pickle, sys\n"
               "assert pickle.load(open(sys.argv[1], 'rb')) == {'segments': [], "
               "'device_traces': [[]]}\n");
    assert_int_equal(write_heap("json", 0, NULL, 0), SYMM_OK);
    run_python("import json, sys\n"
               "assert json.load(open(sys.argv[1]))['segments'] == []\n");
}

/* A full disk: files may not grow beyond 4 KiB in this child. */
static int write_too_much(void)
{
    struct rlimit limit = {4096, 4096};

    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
        return 2;
    static struct symm_block many[500];
    for (size_t i = 0; i < 500; i++)
        many[i] = (struct symm_block){i * UNIT, UNIT, 1, SYMM_BLOCK_LIVE, false, i};
    struct symm_heap_segment one = {0x10000, 500 * UNIT, "world", many, 500, 0};
    if (write_heap("json", 0, &one, 1) != SYMM_ERR_SYSTEM)
        return 3;
    if (strstr(symm_last_error(), "EFBIG") == NULL)
        return 4;
    return 0;
}

static void test_write_errors(void **state)
{
    int status;
    (void)state;

    assert_int_equal(symm__heap_write(1, "svg", 0, segments, 3), SYMM_ERR_INVALID);
    assert_error("'svg'");
    assert_error("'json' and 'pickle'");
    assert_int_equal(symm__heap_write(-1, "json", 0, segments, 3), SYMM_ERR_SYSTEM);
    assert_error("EBADF");
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(write_too_much());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
#define IN_DIRECTORY(test)                                                             \
    cmocka_unit_test_setup_teardown(test, make_directory, remove_directory)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lowest_fit),
        cmocka_unit_test(test_coalescing),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_check_finds_damage),
        cmocka_unit_test(test_random_against_model),
        cmocka_unit_test(test_deterministic),
        cmocka_unit_test(test_no_memory),
        IN_DIRECTORY(test_write_json),
        IN_DIRECTORY(test_write_pickle),
        IN_DIRECTORY(test_write_nothing),
        IN_DIRECTORY(test_write_errors),
    };
#undef IN_DIRECTORY
    return cmocka_run_group_tests_name("heap", tests, NULL, NULL);
}
