/* SPDX-License-Identifier: MIT */
/*
 * test_host_wide_missed.c - a rank of a team over several hosts misses a proposal of
 * symm_team_shrink: it makes the team of the next one while its neighbour, which does not know of
 * the death between the two, still tries the first.
 *
 * ctest: replaces symm__team_complete
 * ctest: replaces symm__relay_read
 */
#include "harness.h"
#include "setup/shrink_hosts_private.h"
#include "shrink_stage.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define RANKS 4

static int looks; /* left to this rank before it misses a proposal; 0: it misses none */
static bool dies; /* this rank, in the first proposal */

static void configure(symm_config *config, int rank, void *arg)
{
    (void)config;
    (void)arg;
    setenv("SYMM_HOST_ID", rank < RANKS / 2 ? "a" : "b", 1);
    setenv("SYMM_HOST_ADDRESS", "127.0.0.1", 1);
}

symm_status __real_symm__team_complete(symm_team *made, uint32_t uid, int slot,
                                       int size, double timeout);
symm_status __wrap_symm__team_complete(symm_team *made, uint32_t uid, int slot,
                                       int size, double timeout);
symm_status __wrap_symm__team_complete(symm_team *made, uint32_t uid, int slot,
                                       int size, double timeout)
{
    if (dies) {
        harness_sleep(0.1); /* the others then ask for deaths rarely */
        raise(SIGKILL);
    }
    return __real_symm__team_complete(made, uid, slot, size, timeout);
}

typedef void read_cell(void *user, int rank, const void *bytes, size_t count);
struct symm_relay;
uint64_t __real_symm__relay_read(struct symm_relay *relay, uint64_t tag, uint64_t since,
                                 read_cell *each, void *user);
uint64_t __wrap_symm__relay_read(struct symm_relay *relay, uint64_t tag, uint64_t since,
                                 read_cell *each, void *user);

static void find_round(void *user, int rank, const void *bytes, size_t count)
{
    uint32_t *round = user;

    if (rank == 0 && count >= sizeof(struct cell))
        *round = ((const struct cell *)bytes)->round;
}

uint64_t __wrap_symm__relay_read(struct symm_relay *relay, uint64_t tag, uint64_t since,
                                 read_cell *each, void *user)
{
    uint32_t round = looks == 1 ? 0 : 2;

    while (round < 2) {
        harness_sleep(2e-4);
        (void)__real_symm__relay_read(relay, tag, 0, find_round, &round);
    }
    looks -= looks > 0;
    return __real_symm__relay_read(relay, tag, since, each, user);
}

static int body(symm_ctx *ctx, void *arg)
{
    _Atomic int *over = arg;
    symm_team *world = symm_team_world(ctx), *team = NULL;
    const int me = symm_team_rank(world);

    looks = me == 2 ? 2 : 0;
    dies = me == 1;
    CHECK_OK(symm_team_shrink(world, &team));
    CHECK(shrink_members_of(team) == 0xd);
    CHECK_OK(symm_rendezvous(team));
    atomic_fetch_add(over, 1);
    CHECK(harness_until(over, RANKS - 1));
    return 0;
}

static void a_proposal_is_missed(void **state)
{
    _Atomic int *over = harness_shared(sizeof(*over));

    (void)state;
    for (int k = 0; k < (HARNESS_SLOW ? 2 : 4); k++) {
        struct harness h = {
            .ranks = RANKS, .body = body, .arg = over, .configure = configure};

        *over = 0;
        h.killed = 1 << 1;
        assert_int_equal(harness_run(&h), 0);
    }
    harness_shared_free(over, sizeof(*over));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_proposal_is_missed)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
