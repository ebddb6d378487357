/* SPDX-License-Identifier: MIT */
/*
 * test_host_register.c - memory of symm_mem_alloc, registered with teams: peers' addresses, puts
 * and gets, ranks whose registrations end at different times, memory that is freed meanwhile.
 */
#include "harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB ((size_t)1 << 20)

static int next_of(const symm_team *team)
{
    return (symm_team_rank(team) + 1) % symm_team_size(team);
}

/* Writes a word that tells rank and seed, and reads all members'. Collective. */
static int check_words(symm_team *team, symm_buffer *buffer, uint32_t seed)
{
    const size_t last = symm_buffer_bytes(buffer) / sizeof(uint32_t) - 1;
    uint32_t *mine = symm_buffer_ptr(buffer);

    mine[0] = mine[last] = 100 * seed + (uint32_t)symm_team_rank(team);
    CHECK_OK(symm_barrier(team, NULL, NULL));
    for (int m = 0; m < symm_team_size(team); m++) {
        const uint32_t *theirs = symm_buffer_peer_ptr(buffer, m);

        CHECK(theirs != NULL);
        CHECK_MESSAGE(theirs[0] == 100 * seed + (uint32_t)m &&
                          theirs[last] == theirs[0],
                      "of rank %d come %u and %u", m, theirs[0], theirs[last]);
    }
    CHECK_OK(symm_barrier(team, NULL, NULL));
    return 0;
}

static int body_peers(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    symm_buffer *whole, *part;
    void *memory;

    (void)arg;
    CHECK_OK(symm_mem_alloc("host", -1, MIB + 12, &memory));
    for (size_t i = 0; i < MIB + 12; i++)
        CHECK(((char *)memory)[i] == 0);
    CHECK_OK(symm_buffer_register(team, memory, MIB + 12, &whole));
    CHECK_OK(symm_buffer_register(team, (char *)memory + 4096, 64, &part));
    CHECK(symm_buffer_ptr(part) == (char *)memory + 4096);
    CHECK(symm_buffer_offset(part) == SIZE_MAX && symm_buffer_bytes(part) == 64);
    CHECK(symm_team_size(team) == 1 ||
          symm_buffer_peer_ptr(part, next_of(team)) == NULL);
    CHECK_OK(symm_rendezvous(team));
    CHECK_ZERO(check_words(team, whole, 1));
    CHECK_ZERO(check_words(team, part, 2));
    /* One mapping serves both. */
    CHECK((char *)symm_buffer_peer_ptr(part, next_of(team)) ==
          (char *)symm_buffer_peer_ptr(whole, next_of(team)) + 4096);
    symm_buffer_release(whole);
    CHECK_OK(symm_rendezvous(team));
    CHECK_ZERO(check_words(team, part, 3));
    symm_buffer_release(part);
    CHECK_OK(symm_mem_free(memory));
    return 0;
}

/* One-sided calls find registered memory, of the whole team and of a part of it. */
static int body_one_sided(symm_ctx *ctx, void *arg)
{
    symm_team *world = symm_team_world(ctx), *teams[2] = {world, NULL};
    uint32_t *memory, word, seen = 0;

    (void)arg;
    CHECK_OK(symm_mem_alloc("host", -1, MIB, (void **)&memory));
    CHECK_OK(symm_team_split(world, symm_team_rank(world) % 2, 0, &teams[1]));
    for (int t = 0; t < 2; t++) {
        symm_team *team = teams[t];
        int rank = symm_team_rank(team), size = symm_team_size(team);
        symm_buffer *buffer;

        word = 7000 + (uint32_t)(10 * t + rank);
        CHECK_OK(symm_buffer_register(team, memory, MIB, &buffer));
        CHECK_STATUS(symm_put(team, memory + 8, &word, 4, next_of(team), NULL, NULL),
                     size > 1 ? SYMM_ERR_INVALID : SYMM_OK);
        CHECK_OK(symm_rendezvous(team));
        CHECK_OK(symm_put(team, memory + 8, &word, 4, next_of(team), NULL, NULL));
        CHECK_OK(symm_barrier(team, NULL, NULL));
        CHECK(memory[8] == 7000 + (uint32_t)(10 * t + (rank + size - 1) % size));
        CHECK_OK(symm_get(team, &seen, memory + 8, 4, next_of(team), NULL, NULL));
        CHECK(seen == word);
        CHECK_OK(symm_barrier(team, NULL, NULL));
        symm_buffer_release(buffer);
        /* Ended here, at once. */
        CHECK_STATUS(symm_put(team, memory + 8, &word, 4, next_of(team), NULL, NULL),
                     SYMM_ERR_INVALID);
        CHECK_ERROR("not symmetric memory");
    }
    CHECK_OK(symm_mem_free(memory));
    symm_team_destroy(teams[1]);
    return 0;
}

/* Ranks make and end registrations at times of their own. */
static int body_unequal(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    int rank = symm_team_rank(team);
    symm_buffer *kept = NULL, *buffer = NULL;
    void *memory, *more;

    (void)arg;
    CHECK_OK(symm_mem_alloc("host", -1, MIB, &memory));
    for (int i = 0; i < rank; i++) { /* none of these is there at a rendezvous */
        CHECK_OK(symm_buffer_register(team, memory, 64, &buffer));
        symm_buffer_release(buffer);
    }
    CHECK_OK(symm_buffer_register(team, memory, 4096, &kept));
    CHECK_OK(symm_rendezvous(team));
    CHECK_ZERO(check_words(team, kept, 4));
    for (uint32_t round = 0; round < 6; round++) {
        bool ends = (uint32_t)rank % 3 == round % 3;

        if (ends)
            symm_buffer_release(kept);
        /* The same run again, and one that nobody has. */
        CHECK_OK(symm_buffer_register(team, memory, 8192, &buffer));
        CHECK_OK(symm_rendezvous(team));
        CHECK_ZERO(check_words(team, buffer, 5 + round));
        CHECK_OK(symm_mem_alloc("host", -1, 3 * 4096, &more));
        if (!ends)
            symm_buffer_release(kept);
        kept = buffer;
        CHECK_OK(symm_buffer_register(team, more, 4096, &buffer));
        CHECK_OK(symm_mem_free(more)); /* lives while it is registered */
        CHECK_OK(symm_rendezvous(team));
        CHECK_ZERO(check_words(team, buffer, 50 + round));
        CHECK_ZERO(check_words(team, kept, 60 + round));
        symm_buffer_release(buffer);
    }
    CHECK_OK(symm_mem_free(memory));
    return 0; /* the last one goes with the context */
}

struct gate {
    _Atomic bool open;
};

static void wait_open(void *arg)
{
    struct gate *gate = arg;

    while (!gate->open)
        usleep(1000);
}

static void open_late(void *arg)
{
    struct gate *gate = arg;

    usleep(200000);
    gate->open = true;
}

/* A put that is queued when its registration ends: it arrives before the memory is unmapped. */
static int body_in_flight(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    uint32_t word = 900 + (uint32_t)symm_team_rank(team), *memory;
    int size = symm_team_size(team);
    symm_call call = {.size = sizeof(call)};
    struct gate gate = {false};
    symm_buffer *buffer;
    void *other;

    (void)arg;
    CHECK_OK(symm_mem_alloc("host", -1, MIB, (void **)&memory));
    CHECK_OK(symm_buffer_register(team, memory, MIB, &buffer));
    CHECK_OK(symm_rendezvous(team));
    CHECK_OK(symm_stream_create(ctx, &call.stream));
    CHECK_OK(symm_stream_create(ctx, &other));
    CHECK_OK(symm_stream_call(ctx, call.stream, wait_open, &gate));
    CHECK_OK(
        symm_put(team, memory + 1000, &word, sizeof(word), next_of(team), &call, NULL));
    CHECK_OK(symm_stream_call(ctx, other, open_late, &gate));
    symm_buffer_release(buffer);
    CHECK_OK(symm_rendezvous(team));
    CHECK(memory[1000] == 900 + (uint32_t)((symm_team_rank(team) + size - 1) % size));
    symm_stream_destroy(ctx, other);
    symm_stream_destroy(ctx, call.stream);
    CHECK_OK(symm_mem_free(memory));
    return 0;
}

static int body_refused(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    symm_buffer *buffer = NULL;
    void *memory = NULL;
    char plain[64];

    (void)arg;
    CHECK_STATUS(symm_mem_alloc("tpu", -1, 64, &memory), SYMM_ERR_INVALID);
    CHECK_ERROR("'tpu'");
    CHECK_STATUS(symm_mem_alloc(NULL, -1, 64, &memory), SYMM_ERR_INVALID);
    CHECK_STATUS(symm_mem_alloc("host", -1, 0, &memory), SYMM_ERR_INVALID);
    CHECK_STATUS(symm_mem_alloc("host", -1, 64, NULL), SYMM_ERR_INVALID);
    CHECK_STATUS(symm_mem_alloc("host", -1, SIZE_MAX, &memory), SYMM_ERR_OVERFLOW);
    CHECK_STATUS(symm_mem_alloc("host", -1, (size_t)1 << 60, &memory), SYMM_ERR_NOMEM);
    CHECK_ERROR("address space for symm_mem_alloc; ask for less");
    CHECK(memory == NULL);
    CHECK_OK(symm_mem_alloc("host", -1, 4096, &memory));
    CHECK_STATUS(symm_mem_free((char *)memory + 8), SYMM_ERR_NOT_FOUND);
    CHECK_STATUS(symm_mem_free(plain), SYMM_ERR_NOT_FOUND);
    CHECK_OK(symm_mem_free(NULL));
    CHECK_STATUS(symm_buffer_register(team, plain, 64, &buffer), SYMM_ERR_UNSUPPORTED);
    CHECK_ERROR("symm_mem_alloc");
    CHECK_STATUS(symm_buffer_register(team, memory, 4097, &buffer), SYMM_ERR_INVALID);
    CHECK_ERROR("leave their allocation");
    /* Ranks that differ are told, and may correct it. */
    CHECK_OK(symm_buffer_register(team, memory, symm_team_rank(team) == 1 ? 128 : 64,
                                  &buffer));
    CHECK_STATUS(symm_rendezvous(team), SYMM_ERR_MISMATCH);
    CHECK_ERROR("registration 0 of 128 bytes");
    CHECK_ERROR("registration 0 of 64 bytes");
    symm_buffer_release(buffer);
    CHECK_OK(symm_buffer_register(team, memory, 64, &buffer));
    CHECK_OK(symm_rendezvous(team));
    CHECK_ZERO(check_words(team, buffer, 9));
    CHECK_OK(symm_mem_free(memory));
    CHECK_STATUS(symm_mem_free(memory), SYMM_ERR_NOT_FOUND);
    CHECK_ZERO(check_words(team, buffer, 8)); /* it lives while it is registered */
    symm_buffer_release(buffer);
    return 0;
}

static void both(harness_body body, int ranks)
{
    assert_int_equal(harness_run_both((struct harness){.ranks = ranks, .body = body}),
                     0);
}

static void peers(void **state)
{
    (void)state;
    both(body_peers, 1);
    both(body_peers, 2);
    both(body_peers, 5);
}

static void one_sided(void **state)
{
    (void)state;
    both(body_one_sided, 4);
}

static void unequal(void **state)
{
    (void)state;
    both(body_unequal, 3);
}

static void in_flight(void **state)
{
    (void)state;
    both(body_in_flight, 3);
}

static void refused(void **state)
{
    (void)state;
    both(body_refused, 3);
}

/* Without any context, and after the last one. */
static void alone(void **state)
{
    void *memory[64];

    (void)state;
    for (int i = 0; i < 64; i++) {
        assert_int_equal(symm_mem_alloc("host", -1, 5000, &memory[i]), SYMM_OK);
        memset(memory[i], i, 5000);
    }
    for (int i = 0; i < 64; i++) {
        assert_int_equal(((char *)memory[i])[4999], i);
        assert_int_equal(symm_mem_free(memory[i]), SYMM_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone),     cmocka_unit_test(peers),
        cmocka_unit_test(one_sided), cmocka_unit_test(unequal),
        cmocka_unit_test(in_flight), cmocka_unit_test(refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
