/* SPDX-License-Identifier: MIT */
/*
 * test_host_tables.c - what a rank keeps of a large job: the places of 16,384 ranks on 2,048
 * hosts, a team of all of them, and teams of parts. The data structures alone: no peer exists.
 * ctest: cost 1
 * ctest: no-threads
 *
 * Prints bytes and seconds. The bounds are of malloc: 16 MiB in all, and 4 bytes a member of a
 * team where hosts have equally many ranks in order.
 */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/team.h"
#include "harness.h"
#include "host/host.h"
#include "setup/places.h"
#include "setup/team_object.h"

#include <cmocka.h>

#define RANKS 16384
#define EACH  8
#define HOSTS (RANKS / EACH)
#define MEBI  (1 << 20)

static size_t allocated(void)
{
    const struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

/* A context as symm_init has it after the bootstrap. `host_of`: where each rank is. */
static symm_ctx *context(int size, int rank, int (*host_of)(int rank))
{
    symm_ctx *ctx = calloc(1, sizeof(*ctx));
    struct symm_host_address *hosts = calloc((size_t)size, sizeof(*hosts));
    struct symm_world world;
    assert_non_null(ctx);
    assert_non_null(hosts);
    ctx->ops = &symm__backend_host; /* of which nothing is opened */
    ctx->rank = rank;
    ctx->size = size;
    ctx->stride = (size_t)1 << 40;
    ctx->team_bytes = (size_t)1 << 31;
    ctx->granularity = (size_t)2 << 20;
    for (int r = 0; r < size; r++) {
        hosts[r].host.id = UINT64_C(0x9e3779b97f4a7c15) * (uint64_t)(host_of(r) + 1);
        snprintf(hosts[r].host.name, SYMM_HOST_NAME, "host%d", host_of(r));
    }
    assert_int_equal(symm__room_open(ctx), SYMM_OK);
    assert_int_equal(symm__world_number(&world, rank, size, hosts), SYMM_OK);
    assert_int_equal(symm__places_take(ctx, &world), SYMM_OK);
    free(hosts);
    return ctx;
}

static void context_free(symm_ctx *ctx)
{
    symm__places_close(ctx);
    free(ctx);
}

/* The tables of a team of every `step`-th rank from `first` on; all of the own host's ranks if
 * the step is 1. */
static symm_team *team_of(symm_ctx *ctx, int first, int step, int slot)
{
    symm_team *team;
    int size = 0;

    assert_int_equal(symm__team_alloc(ctx, ctx->size, &team), SYMM_OK);
    for (int r = first; r < ctx->size; r += step)
        team->world_rank[size++] = r;
    assert_int_equal(symm__team_tables(team, 1, slot, size), SYMM_OK);
    return team;
}

static int in_order(int rank)
{
    return rank / EACH;
}

/* Hosts of 7, 8 and 9 ranks, in turns, and every host's ranks are spread over the job. */
static int spread(int rank)
{
    return rank % 24 < 7    ? rank / 24 * 3
           : rank % 24 < 15 ? rank / 24 * 3 + 1
                            : rank / 24 * 3 + 2;
}

static int scattered(int rank)
{
    return rank * 5 % HOSTS;
}

/* ---- Places -------------------------------------------------------------------------- */

static void check_places(const symm_ctx *ctx, int (*host_of)(int rank))
{
    int *count = calloc(RANKS, sizeof(*count)), next = 0;
    int *number = malloc(RANKS * sizeof(*number));

    assert_non_null(count);
    assert_non_null(number);
    memset(number, -1, RANKS * sizeof(*number));
    for (int r = 0; r < ctx->size; r++) {
        const int host = host_of(r);
        char name[SYMM_HOST_NAME];

        if (number[host] < 0)
            number[host] = next++;
        assert_int_equal(ctx->host_of[r], number[host]);
        assert_int_equal(ctx->local_of[r], count[host]++);
        assert_int_equal(symm__is_far(ctx, r), host != host_of(ctx->rank));
        snprintf(name, sizeof(name), "host%d", host);
        assert_string_equal(symm__host_of_rank(ctx, r), name);
    }
    assert_int_equal(ctx->hosts, next);
    assert_int_equal(ctx->local_size, count[host_of(ctx->rank)]);
    assert_int_equal(ctx->local[ctx->local_rank], ctx->rank);
    for (int p = 0; p < ctx->local_size; p++)
        assert_int_equal(ctx->local_of[ctx->local[p]], p);
    free(number);
    free(count);
}

static void places(void **state)
{
    static int (*const layouts[])(int) = {in_order, spread, scattered};

    (void)state;
    for (int i = 0; i < 3; i++) {
        symm_ctx *ctx = context(RANKS, 4711, layouts[i]);

        check_places(ctx, layouts[i]);
        context_free(ctx);
    }
}

static int crowd(int rank)
{
    return rank < 100 ? rank % 3 : 7;
}

static void too_many_on_a_host(void **state)
{
    struct symm_host_address hosts[165] = {0};
    struct symm_world world;

    (void)state;
    for (int r = 0; r < 165; r++) {
        hosts[r].host.id = (uint64_t)crowd(r);
        snprintf(hosts[r].host.name, SYMM_HOST_NAME, "node%d", crowd(r));
    }
    assert_int_equal(symm__world_number(&world, 0, 165, hosts), SYMM_ERR_UNSUPPORTED);
    assert_non_null(strstr(symm_last_error(), "host node7 has 65 ranks; at most 64"));
}

/* ---- Teams --------------------------------------------------------------------------- */

/* Against a count over all members. */
static void check_team(const symm_team *team)
{
    const symm_ctx *ctx = team->ctx;
    const struct symm_hierarchy *h = team->hierarchy;
    int *number = malloc((size_t)ctx->hosts * sizeof(*number)), next = 0;
    int *count = calloc((size_t)ctx->hosts, sizeof(*count)), local = 0;

    assert_non_null(number);
    assert_non_null(count);
    memset(number, -1, (size_t)ctx->hosts * sizeof(*number));
    for (int m = 0; m < team->size; m++) {
        const int host = ctx->host_of[team->world_rank[m]];

        if (number[host] < 0)
            number[host] = next++;
        assert_int_equal(symm__hierarchy_host(h, m), number[host]);
        assert_int_equal(symm__hierarchy_place(h, m), count[host]++);
        if (symm__is_far(ctx, team->world_rank[m])) {
            assert_int_equal(symm__team_place(team, m), -1);
            continue;
        }
        assert_int_equal(symm__team_place(team, m), local);
        assert_int_equal(team->local[local++], m);
    }
    assert_int_equal(h->hosts, next);
    assert_int_equal(team->local_size, local);
    assert_int_equal(h->places, local);
    assert_int_equal(team->local[team->local_rank], team->rank);
    assert_int_equal(h->here, team->local_rank);
    for (int i = 0; i < h->rail_count; i++)
        assert_true(h->rail[i] == team->rank || !h->equal ||
                    symm__hierarchy_place(h, h->rail[i]) == h->here);
    assert_int_equal(h->rail_count, h->equal || h->here == 0 ? h->hosts : 1);
    free(count);
    free(number);
}

static void members(void **state)
{
    static int (*const layouts[])(int) = {in_order, spread, scattered};

    (void)state;
    for (int i = 0; i < 3; i++)
        for (int step = 1; step <= 3; step += 2) {
            symm_ctx *ctx = context(RANKS, 4711, layouts[i]);
            symm_team *team = team_of(ctx, 4711 % step, step, 1);

            check_team(team);
            assert_true(team->hierarchy->regular ==
                        (layouts[i] == in_order && step == 1));
            assert_true((team->hierarchy->seat == NULL) == team->hierarchy->regular);
            symm__team_free(team);
            context_free(ctx);
        }
}

/* ---- Memory -------------------------------------------------------------------------- */

static void memory_of_a_large_job(void **state)
{
    const size_t before = allocated();
    const double begin = harness_now();
    symm_ctx *ctx = context(RANKS, RANKS - 3, in_order);
    const size_t places = allocated() - before;
    symm_team *world = team_of(ctx, 0, 1, 0), *teams[32];
    const size_t first = allocated() - before - places;
    size_t all;

    (void)state;
    for (int i = 0; i < 32; i++)
        teams[i] = team_of(ctx, 0, 1, i + 1);
    all = allocated() - before;
    printf("%d ranks on %d hosts: %.2f MiB for the context, %.1f KiB for the world, "
           "%.1f KiB "
           "for each of 32 teams of all ranks, %.2f MiB in all, %.0f ms\n",
           RANKS, HOSTS, (double)places / MEBI, (double)first / 1024,
           (double)(all - places - first) / 32 / 1024, (double)all / MEBI,
           1e3 * (harness_now() - begin));
    assert_true(places <= 4 * MEBI);
    assert_true(first <= 4 * RANKS + 4 * HOSTS + 64 * 1024);
    assert_true(all <= 16 * MEBI);
    for (int i = 0; i < 32; i++)
        symm__team_free(teams[i]);
    symm__team_free(world);
    context_free(ctx);
}

/* A team of one host's ranks pays for these alone. */
static void memory_of_a_small_team(void **state)
{
    symm_ctx *ctx = context(RANKS, 16, in_order);
    const size_t before = allocated();
    symm_team *team;
    size_t bytes;

    (void)state;
    assert_int_equal(symm__team_alloc(ctx, ctx->size, &team), SYMM_OK);
    for (int m = 0; m < EACH; m++)
        team->world_rank[m] = 16 + m;
    assert_int_equal(symm__team_tables(team, 1, 1, EACH), SYMM_OK);
    bytes = allocated() - before;
    printf("%.1f KiB for a team of %d ranks\n", (double)bytes / 1024, EACH);
    assert_true(bytes <= 64 * 1024);
    assert_null(team->hierarchy);
    symm__team_free(team);
    context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places),
        cmocka_unit_test(too_many_on_a_host),
        cmocka_unit_test(members),
        cmocka_unit_test(memory_of_a_large_job),
        cmocka_unit_test(memory_of_a_small_team),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
