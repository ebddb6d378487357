/* SPDX-License-Identifier: MIT */
/*
 * test_host_chunks.c - how a call over hosts is cut (select/chunks.h): all elements, once each;
 * small chunks at both ends, no more than twice their neighbor; as few as promised. Which are cut.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "select/chunks.h"

#define MIB ((size_t)1 << 20)

struct call {
    size_t bytes, element, places, hosts;
};

static size_t part_of(const struct call *call)
{
    return call->bytes / call->element / call->places;
}

static struct symm_chunks cut(const struct call *call)
{
    const size_t least = SYMM_CHUNK_LEAST * call->hosts;

    return symm__chunks(part_of(call), call->element, call->places,
                        (struct symm_chunks_limits){least, 2 * least});
}

/* Looks at every chunk; how many there are. */
static int walk(const struct call *call)
{
    const struct symm_chunks chunks = cut(call);
    const size_t each = call->element * call->places, part = part_of(call);
    size_t before = 0, left = part;
    int count = 0;

    if (chunks.first >= part)
        return 1;
    /* each rank's part of the least chunk, but for what rounding takes away */
    assert_true(chunks.first * each >= SYMM_CHUNK_LEAST * call->hosts);
    while (left > 0) {
        const size_t now = symm__chunk(&chunks, before, left);

        assert_true(now <= left && now >= chunks.first);
        /* The last chunk takes elements that are too few for one of their own. */
        assert_true(now <= chunks.most || (now == left && now < 2 * chunks.most));
        assert_true(before == 0 || now <= 2 * before);
        if (now < left) /* the last one has what is left */
            assert_int_equal(now * call->element % SYMM_CHUNK_ALIGN, 0);
        left -= now;
        before = now;
        count++;
    }
    return count;
}

static void test_every_size(void **state)
{
    static const size_t elements[] = {1, 2, 4, 8}, places[] = {2, 3, 8, 72},
                        hosts[] = {2, 5, 64, 2048};
    struct call call;

    (void)state;
    for (int i = 0; i < 4 * 4 * 4; i++) {
        call.element = elements[i % 4];
        call.places = places[i / 4 % 4];
        call.hosts = hosts[i / 16];
        for (call.bytes = 0; call.bytes < 64 * MIB; call.bytes += 997 * 1013)
            assert_true(walk(&call) <= 8);
        for (call.bytes = 1; call.bytes < (size_t)1 << 40;
             call.bytes += call.bytes / 3 + 1)
            assert_true((size_t)walk(&call) <= 10 + call.bytes / SYMM_CHUNK_MOST);
    }
}

static void check_list(size_t mib, size_t places, size_t hosts, const size_t *wanted)
{
    const struct call call = {mib * MIB, 2, places, hosts};
    const struct symm_chunks chunks = cut(&call);
    size_t before = 0, left = part_of(&call);

    for (; left > 0; left -= before) {
        before = symm__chunk(&chunks, before, left);
        assert_int_equal(before * 2 * places, *wanted * MIB);
        wanted++;
    }
    assert_int_equal(*wanted, 0);
}

static void test_some_sizes(void **state)
{
    (void)state;
    check_list(7, 2, 2, (const size_t[]){7, 0});
    check_list(8, 2, 2, (const size_t[]){4, 4, 0});
    check_list(16, 2, 2, (const size_t[]){4, 6, 6, 0});
    check_list(32, 8, 2, (const size_t[]){4, 8, 10, 5, 5, 0});
    check_list(256, 8, 2, (const size_t[]){16, 32, 64, 64, 40, 20, 20, 0});
    check_list(256, 4, 16, (const size_t[]){32, 64, 64, 48, 48, 0});
    check_list(1023, 8, 256, (const size_t[]){1023, 0});
}

static void check_limits(enum symm_chunks_of what, enum symm_chunks_mode mode,
                         size_t places, size_t hosts, size_t chunk, size_t call)
{
    const struct symm_chunks_limits limits =
        symm__chunks_limits(what, mode, places, hosts);

    assert_int_equal(limits.chunk, chunk * MIB);
    assert_int_equal(limits.call, call * MIB);
}

static void test_limits(void **state)
{
    static const struct {
        enum symm_chunks_of what;
        size_t places, hosts;
        size_t chunk, call, all; /* MiB; all: a chunk where all are cut */
    } rows[] = {
        {SYMM_CHUNKS_SUMS, 2, 2, 4, 8, 4},
        {SYMM_CHUNKS_SUMS, 8, 256, 512, 1024, 512},
        {SYMM_CHUNKS_COPIES, 8, 2, 32, 64, 4},
        {SYMM_CHUNKS_COPIES, 8, 256, 4096, 8192, 512},
        {SYMM_CHUNKS_BLOCKS, 4, 2, 32, 128, 4},
        {SYMM_CHUNKS_BLOCKS, 5, 2, 0, 0, 4}, /* the copy takes longer than the rail */
        {SYMM_CHUNKS_BLOCKS, 7, 4, 64, 256, 8},
        {SYMM_CHUNKS_BLOCKS, 8, 4, 0, 0, 8},
        {SYMM_CHUNKS_BLOCKS, 8, 8, 128, 512, 16},
        {SYMM_CHUNKS_BLOCKS, 4, 9, 0, 0, 18}, /* too much room */
        {SYMM_CHUNKS_BLOCKS, 8, 64, 0, 0, 128},
        {SYMM_CHUNKS_BLOCKS, 8, 65, 0, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const size_t places = rows[i].places, hosts = rows[i].hosts;

        check_limits(rows[i].what, SYMM_CHUNKS_NONE, places, hosts, 0, 0);
        check_limits(rows[i].what, SYMM_CHUNKS_FASTER, places, hosts, rows[i].chunk,
                     rows[i].call);
        check_limits(rows[i].what, SYMM_CHUNKS_ALL, places, hosts, rows[i].all,
                     2 * rows[i].all);
    }
    assert_int_equal(
        symm__chunks(1 << 28, 4, 8, (struct symm_chunks_limits){0, 0}).first, 1 << 28);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_size),
                                       cmocka_unit_test(test_some_sizes),
                                       cmocka_unit_test(test_limits)};

    return cmocka_run_group_tests_name("host_chunks", tests, NULL, NULL);
}
