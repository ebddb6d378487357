/* SPDX-License-Identifier: MIT */
/*
 * test_host_left.c - a rank that finalizes because of another one does not hide that one.
 * ctest: cost 5
 *
 * Rank 2 is killed. Rank 1 learns of it in a team of both, finalizes, and leaves undone what rank 0
 * waits for. Rank 0's call begins after that, so it finds both: it must name rank 2. If rank 2 does not
 * die, but comes too late to a call of that team, rank 0 names rank 1, and what it failed with. If
 * rank 1 leaves for no reason, it is named alone.
 */
#include "harness.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/team.h"

enum left_call {
    LEFT_BARRIER,
    LEFT_ARRIVED,
    LEFT_SIGNAL_WAIT,
    LEFT_RECV,
    LEFT_SPLIT,
    LEFT_CREATE,
    LEFT_RENDEZVOUS,
    LEFT_CALLS
};

static const char *const left_names[] = {
    "symm_barrier",     "symm_barrier after rank 2 arrived",
    "symm_signal_wait", "symm_recv",
    "symm_team_split",  "symm_team_create",
    "symm_rendezvous"};

enum left_why { LEFT_DEATH, LEFT_LATE, LEFT_WELL, LEFT_WHYS };

static const char *const left_whys[] = {"rank 2 died", "rank 2 was late",
                                        "rank 1 left"};

struct left {
    enum left_call call;
    enum left_why why;
    bool dies; /* rank 2 */
    pid_t victim;
    _Atomic int pairs; /* ranks that have the team of rank 1 and rank 2 */
    _Atomic int left;  /* rank 1 has finalized */
};

static symm_status left_wait(symm_team *world, enum left_call call)
{
    const int members[] = {0, 1, 2};
    symm_team *team;
    int value = 0;

    switch (call) {
    case LEFT_BARRIER:
    case LEFT_ARRIVED:
        return symm_barrier(world, NULL, NULL);
    case LEFT_SIGNAL_WAIT:
        return symm_signal_wait(world, 1, 3, NULL, NULL);
    case LEFT_RECV:
        return symm_recv(world, &value, 1, SYMM_INT32, 1, NULL, NULL);
    case LEFT_SPLIT:
        return symm_team_split(world, 0, 0, &team);
    case LEFT_CREATE:
        return symm_team_create(world, members, 3, 7, &team);
    default:
        return symm_rendezvous(world);
    }
}

/* Waits until rank 2 has arrived in the barrier that this rank makes later. */
static int kill_arrived(symm_team *world, pid_t victim)
{
    struct symm_state *state = &world->channel[0].state;
    uint32_t next = state->epoch + 1;
    uint64_t *word = &state->slots[2][next & 1].word;
    double begin = harness_now();

    while ((uint32_t)symm_device_word_load(word) != next) {
        CHECK(harness_now() - begin < HARNESS_AMPLE);
        harness_sleep(0.001);
    }
    return kill(victim, SIGKILL);
}

/* Rank 1 learns of rank 2's fault. */
static int left_learn(symm_team *pair, enum left_why why)
{
    const symm_call brief = {.size = sizeof(brief), .timeout = 0.05};

    if (why == LEFT_DEATH)
        CHECK_STATUS(symm_barrier(pair, NULL, NULL), SYMM_ERR_PEER_DEAD);
    if (why == LEFT_LATE)
        CHECK_STATUS(symm_barrier(pair, &brief, NULL), SYMM_ERR_TIMEOUT);
    return 0;
}

static int left_named(enum left_why why)
{
    static const char before[] = "; rank 1 had failed before: rank 2 did not arrive at";

    CHECK_ERROR(why == LEFT_DEATH ? "rank 2 " : "rank 1 has finalized its context");
    CHECK_ERROR(why == LEFT_DEATH ? "died" : why == LEFT_LATE ? before : "rank 1 ");
    CHECK(why == LEFT_LATE || !strstr(symm_last_error(), "had failed before"));
    return 0;
}

static int left_body(symm_ctx *none, void *arg)
{
    struct left *s = arg;
    symm_config config = harness_config();
    symm_team *world, *pair = NULL;
    symm_status status;
    symm_ctx *ctx;

    (void)none;
    CHECK_OK(symm_init(&config, &ctx));
    world = symm_team_world(ctx);
    CHECK_OK(symm_team_split(world, harness_rank() > 0, 0, &pair));
    if (harness_rank() == 2)
        s->victim = getpid();
    atomic_fetch_add(&s->pairs, 1);
    CHECK(harness_until(&s->pairs, 3));
    if (harness_rank() == 2 && s->dies && s->call == LEFT_ARRIVED)
        CHECK_OK(symm_barrier(world, NULL, NULL)); /* until rank 0 kills it */
    if (harness_rank() == 2 && s->dies)
        kill(getpid(), SIGKILL);
    if (harness_rank() == 0 && s->dies && s->call == LEFT_ARRIVED)
        CHECK_ZERO(kill_arrived(world, s->victim));
    if (harness_rank() == 1) {
        CHECK_ZERO(left_learn(pair, s->why));
        symm_finalize(ctx);
        atomic_store(&s->left, 1);
        return 0;
    }
    if (harness_rank() == 0) {
        CHECK(harness_until(&s->left, 1));
        status = left_wait(world, s->call);
        atomic_store(&s->left, 2);
        CHECK_STATUS(status, SYMM_ERR_PEER_DEAD);
        CHECK_ZERO(left_named(s->why));
    }
    CHECK(harness_until(&s->left, 2)); /* else rank 2 would have left, too */
    symm_finalize(ctx);
    return 0;
}

static void names_the_cause(void **state)
{
    struct left *s = harness_shared(sizeof(*s));
    struct harness h = {.ranks = 3, .body = left_body, .arg = s, .without_ctx = true};

    int failed = 0;

    (void)state;
    for (int call = 0; call < LEFT_CALLS; call++) {
        for (int why = 0; why < LEFT_WHYS; why++) {
            *s = (struct left){.call = (enum left_call)call,
                               .why = (enum left_why)why,
                               .dies = why == LEFT_DEATH};
            h.killed = s->dies ? 1u << 2 : 0;
            if (harness_run(&h) == 0)
                continue;
            fprintf(stderr, "%s, %s\n", left_names[call], left_whys[why]);
            failed++;
        }
    }
    harness_shared_free(s, sizeof(*s));
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_the_cause),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
