/* SPDX-License-Identifier: MIT */
/*
 * test_engine_nccl_start.c - conditions of the NCCL engine: loading, settings that must be
 * equal on all ranks, communicators that cannot be made, and the memory registered. (The
 * fake NCCL itself checks the order of registration.)
 * ctest: cost 8
 */
#include "engine_stage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* What the ranks have, by rank; NULL ends. */
struct ranks {
    const char *const *settings[4];
    const char *words; /* wanted in the error, or in what symm_recv says */
    double init_timeout;
};

static void apply(const char *const *settings)
{
    for (; settings && *settings; settings++) {
        const char *value = strchr(*settings, '=');
        char name[64];

        snprintf(name, sizeof(name), "%.*s", (int)(value - *settings), *settings);
        setenv(name, value + 1, 1);
    }
}

/* The job starts, and no rank has an engine. */
static int without(symm_ctx *none, void *arg)
{
    const struct ranks *ranks = arg;
    symm_config config = harness_config();
    struct engine_stage s;
    symm_ctx *ctx;
    double begin = harness_now();

    (void)none;
    apply(ranks->settings[harness_rank()]);
    CHECK_OK(symm_init(&config, &ctx));
    CHECK(harness_now() - begin < HARNESS_SOON); /* nobody waited for a deadline */
    CHECK_ZERO(engine_open(&s, ctx));
    CHECK_STATUS(symm_recv(s.team, s.in.device, 1, SYMM_INT32, 0, NULL, NULL),
                 SYMM_ERR_UNSUPPORTED);
    CHECK_ERROR("needs an engine");
    CHECK_ERROR(ranks->words);
    CHECK_OK(symm_all_reduce(s.team, s.in.device, s.out.device, 9, SYMM_INT32, SYMM_SUM,
                             NULL, NULL));
    CHECK_OK(symm_stream_synchronize(ctx, NULL, 0));
    engine_close(&s);
    symm_finalize(ctx);
    return 0;
}

/* No rank starts, and all say the same. */
static int not_at_all(symm_ctx *none, void *arg)
{
    const struct ranks *ranks = arg;
    symm_config config = harness_config();
    symm_ctx *ctx;
    double begin = harness_now();

    (void)none;
    if (ranks->init_timeout > 0)
        config.init_timeout = ranks->init_timeout;
    apply(ranks->settings[harness_rank()]);
    CHECK(symm_init(&config, &ctx) != SYMM_OK);
    CHECK_ERROR(ranks->words);
    CHECK(harness_now() - begin < HARNESS_SOON);
    return 0;
}

/* Each rank its own environment: as processes. */
static void run(harness_body body, struct ranks ranks)
{
    struct harness h = {.ranks = 3,
                        .body = body,
                        .arg = &ranks,
                        .team_bytes = (size_t)128 << 20,
                        .without_ctx = true};

    assert_int_equal(harness_run(&h), 0);
}

static const char *const by_default[] = {"SYMM_ENGINE=auto", NULL};
static const char *const none[] = {"SYMM_ENGINE=none", NULL};
static const char *const absent[] = {"SYMM_ENGINE=auto",
                                     "SYMM_NCCL_LIB=/nowhere/libnccl.so", NULL};
static const char *const missing[] = {"SYMM_NCCL_LIB=/nowhere/libnccl.so", NULL};
static const char *const old[] = {"FAKE_NCCL_VERSION=21701", NULL};
static const char *const older[] = {"FAKE_NCCL_VERSION=22703", NULL};
static const char *const unknown[] = {"SYMM_ENGINE=ncll", NULL};
static const char *const host[] = {"SYMM_BACKEND=host", NULL};
static const char *const pairs[] = {"SYMM_P2P_PAIRS=1", NULL};
static const char *const whole[] = {"SYMM_CHUNKS=0", NULL};
static const char *const broken[] = {"SYMM_ENGINE=auto",
                                     "FAKE_NCCL_FAIL=ncclCommInitRankConfig@1", NULL};
static const char *const no_id[] = {"FAKE_NCCL_FAIL=ncclGetUniqueId", NULL};
static const char *const stuck[] = {"FAKE_NCCL_HANG=ncclCommInitRankConfig@2", NULL};
static const char *const plugin[] = {"SYMM_ENGINE=/nowhere/engine.so", NULL};
static const char *const no_plugin[] = {"SYMM_ENGINE=" SYMM_FAKE_CUDA, NULL};

#define ALL(settings)                                                                  \
    {                                                                                  \
        settings, settings, settings                                                   \
    }

static void test_loading(void **state)
{
    (void)state;
    run(without, (struct ranks){ALL(none), "SYMM_ENGINE=none", 0});
    run(without, (struct ranks){ALL(absent), "/nowhere/libnccl.so", 0});
    run(without,
        (struct ranks){{by_default, absent, by_default}, "rank 1 has none", 0});
    run(not_at_all, (struct ranks){{NULL, absent, NULL}, "rank 1 has none", 0});
    run(not_at_all, (struct ranks){ALL(missing), "/nowhere/libnccl.so", 0});
    run(not_at_all, (struct ranks){{NULL, NULL, missing}, "/nowhere/libnccl.so", 0});
    run(not_at_all, (struct ranks){ALL(old), "2.18 or newer", 0});
    run(not_at_all, (struct ranks){{NULL, older, NULL}, "rank 1 has NCCL 2.27.3", 0});
    run(not_at_all, (struct ranks){ALL(unknown), "none of auto, none, nccl, mpi", 0});
    run(not_at_all, (struct ranks){ALL(host), "moves memory of the device", 0});
    run(not_at_all, (struct ranks){{NULL, pairs, NULL}, "SYMM_P2P_PAIRS", 0});
    run(not_at_all, (struct ranks){{NULL, NULL, whole}, "SYMM_CHUNKS", 0});
    run(not_at_all, (struct ranks){ALL(plugin), "/nowhere/engine.so", 0});
    run(not_at_all, (struct ranks){ALL(no_plugin), "no symm_engine", 0});
}

static void test_communicators(void **state)
{
    (void)state;
    run(without, (struct ranks){ALL(broken), "needs an engine", 0});
    run(not_at_all, (struct ranks){ALL(no_id), "ncclGetUniqueId", 0});
    run(not_at_all, (struct ranks){ALL(stuck), "has not made it on rank", 4});
}

/* ---- Memory ---------------------------------------------------------------------- */

static int segments(symm_ctx *ctx, void *arg)
{
    struct engine_stage s;
    struct device_area more;
    symm_team *team = NULL;
    int world, both, with_more;

    (void)arg;
    world = engine_registered(); /* the world's first segment */
    CHECK(world >= 1 && engine_windows() == 0);
    CHECK_ZERO(engine_open(&s, ctx));
    CHECK_OK(symm_team_split(s.team, 0, s.rank, &team));
    both = engine_registered(); /* each communicator has all of this rank's segments */
    CHECK_MESSAGE(both > world + 1, "%d, then %d", world, both);
    CHECK_ZERO(device_area_open(&more, s.gpu, team, (size_t)5 << 20));
    with_more = engine_registered(); /* at once, by both */
    CHECK_MESSAGE(with_more == both + 2, "%d, then %d", both, with_more);
    device_area_close(&more);
    symm_team_destroy(team);
    CHECK_MESSAGE(engine_registered() < both, "%d", engine_registered());
    engine_close(&s);
    return 0;
}

static int nothing(symm_ctx *ctx, void *arg)
{
    struct engine_stage s;
    symm_call call = {.size = sizeof(call), .algorithm = "engine"};

    (void)arg;
    CHECK_ZERO(engine_open(&s, ctx));
    CHECK(engine_registered() == 0 && engine_windows() == 0);
    CHECK_OK(symm_all_reduce(s.team, s.in.device, s.out.device, 9, SYMM_INT32, SYMM_SUM,
                             &call, NULL));
    CHECK_OK(symm_stream_synchronize(ctx, NULL, 0));
    engine_close(&s);
    return 0;
}

static int windows(symm_ctx *ctx, void *arg)
{
    struct engine_stage s;
    struct device_area more;
    symm_team *team = NULL;
    int before, after;

    (void)arg;
    CHECK(engine_windows() == 0); /* none without a rendezvous */
    CHECK_ZERO(engine_open(&s, ctx));
    before = engine_windows();
    CHECK(before >= 1);
    CHECK_ZERO(device_area_open(&more, s.gpu, s.team, (size_t)5 << 20));
    CHECK(engine_windows() == before);
    CHECK_OK(symm_rendezvous(s.team));
    after = engine_windows();
    CHECK(after == before + 1);
    CHECK_OK(symm_rendezvous(s.team)); /* nothing new */
    CHECK(engine_windows() == after);
    CHECK_OK(symm_team_split(s.team, 0, s.rank, &team));
    CHECK_OK(symm_rendezvous(team));
    CHECK(engine_windows() > after);
    symm_team_destroy(team);
    CHECK(engine_windows() == after);
    device_area_close(&more);
    engine_close(&s);
    return 0;
}

static const char *const registering[] = {"SYMM_NCCL_REGISTER=1", NULL};
static const char *const refusing[] = {"SYMM_NCCL_REGISTER=1",
                                       "FAKE_NCCL_FAIL=ncclCommRegister", NULL};
static const char *const with_windows[] = {"SYMM_NCCL_WINDOW=1", NULL};
static const char *const no_windows[] = {
    "SYMM_NCCL_WINDOW=1", "FAKE_NCCL_FAIL=ncclCommWindowRegister@1", NULL};

static void test_memory(void **state)
{
    (void)state;
    assert_int_equal(engine_run(segments, 2, HARNESS_PROCESSES, NULL, registering, 0),
                     0);
    assert_int_equal(engine_run(nothing, 2, HARNESS_PROCESSES, NULL, NULL, 0), 0);
    assert_int_equal(engine_run(nothing, 2, HARNESS_PROCESSES, NULL, refusing, 0), 0);
}

static void test_windows(void **state)
{
    (void)state;
    assert_int_equal(engine_run(windows, 3, HARNESS_PROCESSES, NULL, with_windows, 0),
                     0);
    assert_int_equal(engine_run(nothing, 3, HARNESS_PROCESSES, NULL, no_windows, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loading), cmocka_unit_test(test_communicators),
        cmocka_unit_test(test_memory), cmocka_unit_test(test_windows)};

    if (device_real())
        return 77; /* all of it asks the stand-in */
    engine_suite();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
