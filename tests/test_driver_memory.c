/* SPDX-License-Identifier: MIT */
/*
 * test_driver_memory.c - the heap on the CUDA backend, over the fake driver: the backend and
 * the device of a rank, its memory as seen by peers, and that nothing is left when it leaves
 * (else the fake driver ends the process with status 99).
 */
#include "cuda/device.h"
#include "harness.h"
#include "images.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB ((size_t)1 << 20)

/* The harness's run in a process of its own: CUDA that has begun does not survive fork. */
static int run(struct harness h)
{
    int status;
    pid_t child;
    fflush(NULL);
    child = fork();
    if (child == 0)
        exit(harness_run(&h));
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static int run_both(struct harness h)
{
    int failed;
    h.mode = HARNESS_PROCESSES;
    failed = run(h);
    h.mode = HARNESS_THREADS;
    return run(h) | failed;
}

static void on_cuda(symm_config *config, int rank, void *arg)
{
    (void)rank;
    (void)arg;
    config->backend = "cuda";
    config->team_bytes = 128 * MIB;
}

/* ---- What peers see -------------------------------------------------------------- */

static uint32_t word(int rank, uint32_t seed, size_t i)
{
    return (uint32_t)(rank + 1) * 1000003u + seed * 7919u + (uint32_t)i;
}

static int take(symm_team *team, size_t bytes, uint64_t id, symm_buffer **buffer)
{
    const int64_t shape = (int64_t)bytes, stride = 1;
    CHECK_OK(symm_empty_strided_p2p(team, 1, &shape, &stride, SYMM_UINT8, id, buffer));
    return 0;
}

/* Own words are stored, and read from every peer. Collective: by rendezvous, not kernels. */
static int check_seen(symm_ctx *ctx, symm_team *team, symm_buffer *buffer,
                      uint32_t seed)
{
    size_t bytes = symm_buffer_bytes(buffer) / 4 * 4, count = bytes / 4;
    uint32_t *words = malloc(bytes);
    int me = symm_team_rank(team);
    CHECK(words != NULL);
    for (size_t i = 0; i < count; i++)
        words[i] = word(symm_team_world_rank(team, me), seed, i);
    CHECK_OK(symm__cuda_copy(ctx, symm_buffer_ptr(buffer), words, bytes));
    CHECK_OK(symm_rendezvous(team));
    for (int m = 0; m < symm_team_size(team); m++) {
        int rank = symm_team_world_rank(team, m);
        void *theirs = symm_buffer_peer_ptr(buffer, m);
        CHECK(theirs != NULL);
        memset(words, 0, bytes);
        CHECK_OK(symm__cuda_copy(ctx, words, theirs, bytes));
        for (size_t i = 0; i < count; i++)
            CHECK_MESSAGE(words[i] == word(rank, seed, i),
                          "word %zu of rank %d is %u, not %u", i, rank, words[i],
                          word(rank, seed, i));
    }
    CHECK_OK(symm_rendezvous(team));
    free(words);
    return 0;
}

static int check_zero(symm_ctx *ctx, symm_buffer *buffer)
{
    size_t bytes = symm_buffer_bytes(buffer);
    char *copy = malloc(bytes), *zeros = calloc(1, bytes);
    CHECK(copy != NULL && zeros != NULL);
    CHECK_OK(symm__cuda_copy(ctx, copy, symm_buffer_ptr(buffer), bytes));
    CHECK(memcmp(copy, zeros, bytes) == 0);
    free(copy);
    free(zeros);
    return 0;
}

static int body_life(symm_ctx *ctx, void *arg)
{
    symm_team *world = symm_team_world(ctx), *half;
    symm_buffer *small, *large, *passing, *other;
    int rank = harness_rank();
    (void)arg;
    CHECK(ctx->ops->describe(ctx->backend) != NULL);
    CHECK(ctx->ops->describe(ctx->backend)->ordinal == rank);
    CHECK_ZERO(take(world, 8192, 1, &small));
    CHECK_ZERO(take(world, 5 * MIB + 4, 2, &large));
    CHECK_ZERO(check_zero(ctx, large));
    CHECK(symm_buffer_peer_ptr(large, 1 - (rank & 1)) == NULL ||
          symm_team_size(world) == 1);
    CHECK_ZERO(check_seen(ctx, world, small, 1));
    CHECK_ZERO(check_seen(ctx, world, large, 2));
    CHECK(symm_buffer_multicast_ptr(large) == NULL);
    for (uint32_t round = 0; round < 3; round++) { /* the place is used again */
        CHECK_OK(symm_team_split(world, rank & 1, rank, &half));
        CHECK_ZERO(take(half, (3 - round) * MIB, 0, &passing));
        CHECK_ZERO(check_seen(ctx, half, passing, 10 + round));
        CHECK_ZERO(take(world, MIB, 0, &other));
        CHECK_ZERO(check_seen(ctx, world, other, 20 + round));
        symm_buffer_release(other);
        symm_buffer_release(passing);
        symm_team_destroy(half);
    }
    CHECK_ZERO(check_seen(ctx, world, large, 3));
    symm_buffer_release(large);
    CHECK_OK(symm_alloc_id_free(world, 2));
    CHECK_OK(symm_rendezvous(world));
    CHECK_ZERO(take(world, 5 * MIB + 4, 3, &large));
    CHECK_ZERO(check_seen(ctx, world, large, 4));
    symm_buffer_release(large);
    symm_buffer_release(small);
    return 0;
}

static void life(void **state)
{
    static const int ranks[] = {1, 2, 4};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct harness h = {.ranks = ranks[i], .body = body_life, .configure = on_cuda};
        assert_int_equal(run_both(h), 0);
    }
}

/* A rank that leaves takes nothing from those that stay. */
static int body_leaves(symm_ctx *none, void *arg)
{
    symm_config config = harness_config();
    struct harness_sync *sync = arg;
    symm_buffer *buffer;
    symm_ctx *ctx = none;
    uint32_t got = 0, mine;
    int rank = harness_rank();
    CHECK_OK(symm_init(&config, &ctx));
    CHECK_ZERO(take(symm_team_world(ctx), 4096, 7, &buffer));
    mine = word(rank, 0, 0);
    CHECK_OK(symm__cuda_copy(ctx, symm_buffer_ptr(buffer), &mine, sizeof(mine)));
    CHECK_OK(symm_rendezvous(symm_team_world(ctx)));
    CHECK_ZERO(harness_sync_wait(sync, 2));
    if (rank == 1)
        symm_finalize(ctx);
    CHECK_ZERO(harness_sync_wait(sync, 2));
    if (rank == 0) {
        CHECK_OK(symm__cuda_copy(ctx, &got, symm_buffer_peer_ptr(buffer, 1), 4));
        CHECK(got == word(1, 0, 0));
        symm_finalize(ctx);
    }
    return 0;
}

static void one_leaves(void **state)
{
    struct harness_sync *sync = harness_shared(sizeof(*sync));
    struct harness h = {.ranks = 2,
                        .body = body_leaves,
                        .configure = on_cuda,
                        .arg = sync,
                        .without_ctx = true};
    (void)state;
    int failed = run_both(h);
    harness_shared_free(sync, sizeof(*sync));
    assert_int_equal(failed, 0);
}

/* ---- What it costs --------------------------------------------------------------- */

static int body_small(symm_ctx *ctx, void *arg)
{
    symm_info info = {.size = sizeof(info)};
    symm_buffer *buffer;
    (void)arg;
    for (uint64_t id = 1; id <= 1000; id++) {
        CHECK_ZERO(take(symm_team_world(ctx), 8192, id, &buffer));
        symm_buffer_release(buffer);
    }
    CHECK_OK(symm_rendezvous(symm_team_world(ctx)));
    CHECK_OK(symm_ctx_info(ctx, &info));
    CHECK(strcmp(info.backend, "cuda") == 0 && info.granularity == 2 * MIB);
    CHECK_MESSAGE(info.scratch_bytes > 0 && info.scratch_bytes <= 110 * MIB,
                  "%zu bytes of scratch", info.scratch_bytes);
    CHECK_MESSAGE(info.committed_bytes - info.scratch_bytes <= 12 * MIB,
                  "1000 call sites of 8 KiB take %zu bytes",
                  info.committed_bytes - info.scratch_bytes);
    return 0;
}

static void many_small_ones(void **state)
{
    struct harness h = {.ranks = 2, .body = body_small, .configure = on_cuda};
    (void)state;
    assert_int_equal(run_both(h), 0);
}

static int body_full(symm_ctx *ctx, void *arg)
{
    const int64_t shape = 512 * 1024 * 1024 / 4 * 3, stride = 1;
    symm_buffer *buffer, *small;
    (void)arg;
    CHECK_STATUS(symm_empty_strided_p2p(symm_team_world(ctx), 1, &shape, &stride,
                                        SYMM_UINT8, 1, &buffer),
                 SYMM_ERR_NOMEM);
    CHECK_ERROR("cuMemCreate failed with CUDA_ERROR_OUT_OF_MEMORY");
    CHECK_ERROR("402653184 bytes of device");
    CHECK_ZERO(take(symm_team_world(ctx), 4 * MIB, 1, &small));
    CHECK_ZERO(check_seen(ctx, symm_team_world(ctx), small, 1));
    return 0;
}

static void no_memory(void **state)
{
    struct harness h = {.ranks = 2, .body = body_full, .configure = on_cuda};
    (void)state;
    setenv("FAKE_CUDA_MEMORY", "268435456", 1); /* of each process */
    h.mode = HARNESS_PROCESSES;
    int failed = run(h);
    unsetenv("FAKE_CUDA_MEMORY");
    assert_int_equal(failed, 0);
}

static void small_team(symm_config *config, int rank, void *arg)
{
    on_cuda(config, rank, arg);
    config->team_bytes = 8 * MIB;
}

static int body_narrow(symm_ctx *ctx, void *arg)
{
    symm_team *team;
    (void)arg;
    CHECK_STATUS(symm_team_split(symm_team_world(ctx), 0, 0, &team), SYMM_ERR_NOMEM);
    CHECK_ERROR("SYMM_TEAM_BYTES");
    return body_small(ctx, NULL);
}

static void narrow_team(void **state)
{
    struct harness h = {.ranks = 2, .body = body_narrow, .configure = small_team};
    (void)state;
    assert_int_equal(run_both(h), 0);
}

/* ---- Which backend, which device ------------------------------------------------- */

struct choice {
    const char *backend[2]; /* of even and odd ranks; NULL: the default */
    symm_status status;
    const char *said, *taken;
};

static const struct choice *choice;

static void choose(symm_config *config, int rank, void *arg)
{
    (void)arg;
    config->backend = choice->backend[rank & 1];
    config->team_bytes = 128 * MIB;
}

static int body_choice(symm_ctx *none, void *arg)
{
    symm_config config = harness_config();
    symm_info info = {.size = sizeof(info)};
    symm_ctx *ctx = none;
    (void)arg;
    CHECK_STATUS(symm_init(&config, &ctx), choice->status);
    if (choice->status != SYMM_OK) {
        CHECK(ctx == NULL);
        CHECK_ERROR(choice->said);
        return 0;
    }
    CHECK_OK(symm_ctx_info(ctx, &info));
    CHECK_MESSAGE(strcmp(info.backend, choice->taken) == 0, "the backend is %s: %s",
                  info.backend, info.why_backend);
    CHECK_MESSAGE(strstr(info.why_backend, choice->said) != NULL, "because: %s",
                  info.why_backend);
    symm_finalize(ctx);
    return 0;
}

static int try_choice(const struct choice *given, const char *devices, int ranks)
{
    struct harness h = {
        .ranks = ranks, .body = body_choice, .configure = choose, .without_ctx = true};
    int failed;
    choice = given;
    setenv("FAKE_CUDA_DEVICES", devices, 1);
    failed = run_both(h);
    unsetenv("FAKE_CUDA_DEVICES");
    return failed;
}

static void backends(void **state)
{
    static const struct choice cuda = {{NULL, NULL}, SYMM_OK, "has a device", "cuda"},
                               few = {{NULL, NULL}, SYMM_OK, "1 CUDA device", "host"},
                               none = {{NULL, NULL}, SYMM_OK, "no CUDA: ", "host"},
                               many = {{NULL, NULL}, SYMM_OK, "has a device", "cuda"},
                               asked = {{"host", "host"}, SYMM_OK, "config", "host"};
    (void)state;
    assert_int_equal(try_choice(&cuda, "2", 2), 0);
    assert_int_equal(try_choice(&few, "1", 2), 0);
    assert_int_equal(try_choice(&none, "0", 2), 0);
    assert_int_equal(try_choice(&many, "16", 9), 0);
    assert_int_equal(try_choice(&asked, "2", 2), 0);
}

static void refusals(void **state)
{
    static const struct choice
        one = {{"cuda", "cuda"},
               SYMM_ERR_IN_USE,
               "ranks 0 and 1 are on one device",
               NULL},
        none = {{"cuda", "cuda"}, SYMM_ERR_UNSUPPORTED, "CUDA", NULL},
        mixed = {{"cuda", "host"}, SYMM_ERR_MISMATCH, "set SYMM_BACKEND alike", NULL},
        wrong = {{"rocm", "rocm"}, SYMM_ERR_INVALID, "'rocm' is unknown", NULL};
    (void)state;
    assert_int_equal(try_choice(&one, "1", 2), 0);
    assert_int_equal(try_choice(&none, "0", 1), 0);
    choice = &mixed;
    struct harness h = {
        .ranks = 2, .body = body_choice, .configure = choose, .without_ctx = true};
    assert_int_equal(run(h), 0); /* threads: the second fails before the first knows */
    assert_int_equal(try_choice(&wrong, "2", 1), 0);
}

static void no_peer_access(void **state)
{
    static const struct choice apart = {{"cuda", "cuda"},
                                        SYMM_ERR_UNSUPPORTED,
                                        "cannot reach the memory of device",
                                        NULL};
    (void)state;
    setenv("FAKE_CUDA_NO_PEER", "1", 1);
    int failed = try_choice(&apart, "2", 2);
    unsetenv("FAKE_CUDA_NO_PEER");
    assert_int_equal(failed, 0);
}

static int body_shared(symm_ctx *ctx, void *arg)
{
    const int devices = *(int *)arg;
    symm_info info = {.size = sizeof(info)};
    float values[24];
    symm_buffer *buffer;
    symm_work *work;
    CHECK_OK(symm_ctx_info(ctx, &info));
    CHECK(strcmp(info.backend, "cuda") == 0);
    CHECK_MESSAGE(strstr(info.why_backend, "ranks may share devices") != NULL,
                  "because: %s", info.why_backend);
    CHECK(ctx->ops->describe(ctx->backend)->ordinal == harness_rank() % devices);
    CHECK_ZERO(take(symm_team_world(ctx), sizeof(values), 1, &buffer));
    CHECK_ZERO(check_seen(ctx, symm_team_world(ctx), buffer, 1));
    for (int i = 0; i < 24; i++)
        values[i] = (float)(harness_rank() + i);
    CHECK_OK(symm__cuda_copy(ctx, symm_buffer_ptr(buffer), values, sizeof(values)));
    CHECK_OK(symm_all_reduce(symm_team_world(ctx), symm_buffer_ptr(buffer),
                             symm_buffer_ptr(buffer), 24, SYMM_FLOAT32, SYMM_SUM, NULL,
                             &work));
    CHECK_OK(symm_work_synchronize(work, 20));
    symm_work_release(work);
    CHECK_OK(symm__cuda_copy(ctx, values, symm_buffer_ptr(buffer), sizeof(values)));
    for (int i = 0; i < 24; i++)
        CHECK(values[i] == (float)(6 + 4 * i)); /* of ranks 0 to 3 */
    return 0;
}

static void by_default(symm_config *config, int rank, void *arg)
{
    (void)rank;
    (void)arg;
    config->backend = NULL;
    config->team_bytes = 128 * MIB;
}

static int run_shared(const char *count)
{
    int devices = atoi(count), failed;
    struct harness h = {.ranks = 4,
                        .mode = HARNESS_PROCESSES,
                        .body = body_shared,
                        .configure = by_default,
                        .arg = &devices};
    setenv("FAKE_CUDA_DEVICES", count, 1);
    failed = run(h);
    unsetenv("FAKE_CUDA_DEVICES");
    return failed;
}

/* Processes may share devices where that is asked for; threads, and engines, never do. */
static void oversubscribed(void **state)
{
    static const struct choice
        few = {{NULL, NULL}, SYMM_OK, "1 CUDA device", "host"},
        threads = {{"cuda", "cuda"}, SYMM_ERR_IN_USE, "or use SYMM_BACKEND=host", NULL},
        engine = {{"cuda", "cuda"}, SYMM_ERR_UNSUPPORTED, "share a device", NULL},
        wrong = {{NULL, NULL}, SYMM_ERR_INVALID, "SYMM_OVERSUBSCRIBE='yes'", NULL};
    struct harness h = {
        .ranks = 2, .body = body_choice, .configure = choose, .without_ctx = true};
    int failed;
    (void)state;
    setenv("SYMM_OVERSUBSCRIBE", "1", 1);
    setenv("FAKE_CUDA_DEVICES", "1", 1);
    h.mode = HARNESS_THREADS;
    choice = &few;
    failed = run(h);
    choice = &threads;
    failed |= run(h);
    h.mode = HARNESS_PROCESSES;
    choice = &engine;
    setenv("SYMM_ENGINE", "nccl", 1);
    failed |= run(h);
    unsetenv("SYMM_ENGINE");
    failed |= run_shared("2");
    setenv("FAKE_CUDA_NO_PEER", "1", 1); /* its own memory a device reaches */
    failed |= run_shared("1");
    unsetenv("FAKE_CUDA_NO_PEER");
    setenv("SYMM_OVERSUBSCRIBE", "yes", 1);
    failed |= try_choice(&wrong, "2", 2);
    unsetenv("SYMM_OVERSUBSCRIBE");
    assert_int_equal(failed, 0);
}

/* The device of the context that the thread has made current before. */
static int body_current(symm_ctx *none, void *arg)
{
    symm_config config = harness_config();
    const struct symm_cuda_driver *d;
    symm_ctx *ctx = none;
    CUcontext context, now;
    CUdevice device;
    int wanted = 3 - harness_rank();
    (void)arg;
    CHECK_OK(symm__cuda_driver(&d));
    CHECK(d->cuDeviceGet(&device, wanted) == CUDA_SUCCESS);
    CHECK(d->cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS);
    CHECK(d->cuCtxSetCurrent(context) == CUDA_SUCCESS);
    CHECK_OK(symm_init(&config, &ctx));
    CHECK(ctx->ops->describe(ctx->backend)->ordinal == wanted);
    CHECK_ZERO(body_small(ctx, NULL));
    symm_finalize(ctx);
    CHECK(d->cuCtxGetCurrent(&now) == CUDA_SUCCESS && now == context);
    CHECK(d->cuCtxSetCurrent(NULL) == CUDA_SUCCESS);
    CHECK(d->cuDevicePrimaryCtxRelease(device) == CUDA_SUCCESS);
    return 0;
}

static void current_context(void **state)
{
    struct harness h = {
        .ranks = 2, .body = body_current, .configure = on_cuda, .without_ctx = true};
    (void)state;
    assert_int_equal(run_both(h), 0);
}

static void vast(symm_config *config, int rank, void *arg)
{
    on_cuda(config, rank, arg);
    config->heap_bytes = (size_t)1 << 44;
    config->team_bytes = (size_t)1 << 32;
}

static int body_vast(symm_ctx *none, void *arg)
{
    symm_config config = harness_config();
    symm_ctx *ctx = none;
    (void)arg;
    CHECK_STATUS(symm_init(&config, &ctx), SYMM_ERR_NOMEM);
    CHECK_ERROR("cuMemAddressReserve");
    CHECK_ERROR("SYMM_HEAP_BYTES");
    return 0;
}

static void no_address_space(void **state)
{
    struct harness h = {
        .ranks = 8, .body = body_vast, .configure = vast, .without_ctx = true};
    (void)state;
    if (HARNESS_SLOW) /* sanitizers take most of the address space */
        skip();
    assert_int_equal(run(h), 0);
}

/* ---- A child --------------------------------------------------------------------- */

static int body_forked(symm_ctx *ctx, void *arg)
{
    symm_buffer *buffer;
    int status;
    pid_t child;
    (void)arg;
    CHECK_ZERO(take(symm_team_world(ctx), MIB, 1, &buffer));
    CHECK_OK(symm_rendezvous(symm_team_world(ctx)));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        bool good = symm_rendezvous(symm_team_world(ctx)) == SYMM_ERR_FORKED;
        void *memory;
        good = good && symm_mem_alloc("cuda", 0, MIB, &memory) != SYMM_OK &&
               strstr(symm_last_error(), "in a child that was forked after its parent");
        symm_finalize(ctx);
        _exit(good ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK_ZERO(check_seen(ctx, symm_team_world(ctx), buffer, 5));
    return 0;
}

static void forked_child(void **state)
{
    struct harness h = {.ranks = 2, .body = body_forked, .configure = on_cuda};
    (void)state;
    assert_int_equal(run(h), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(life),
        cmocka_unit_test(one_leaves),
        cmocka_unit_test(many_small_ones),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(narrow_team),
        cmocka_unit_test(backends),
        cmocka_unit_test(refusals),
        cmocka_unit_test(oversubscribed),
        cmocka_unit_test(no_peer_access),
        cmocka_unit_test(current_context),
        cmocka_unit_test(no_address_space),
        cmocka_unit_test(forked_child),
    };
    harness_clear_environment();
    setenv("SYMM_CUDA_LIBRARY", SYMM_FAKE_CUDA, 1);
    setenv("FAKE_CUDA_CHECK", "1", 1);
    unsetenv("SYMM_BACKEND");
    unsetenv("CUDA_VISIBLE_DEVICES");
    images_provide();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    images_remove();
    return failed;
}
