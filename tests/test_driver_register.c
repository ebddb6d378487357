/* SPDX-License-Identifier: MIT */
/*
 * test_driver_register.c - registered memory of the caller, over the fake driver, or on GPUs
 * with SYMM_TEST_GPU=1: of cuMemAlloc, of cuMemCreate, of several adjacent allocations; one
 * mapping per allocation; memory of symm_mem_alloc; refused memory; nothing is left.
 */
#include "core/registered.h"
#include "cuda/device.h"
#include "device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB   ((size_t)1 << 20)
#define CHUNK (2 * MIB)

static void on_cuda(symm_config *config, int rank, void *arg)
{
    (void)rank;
    (void)arg;
    config->backend = "cuda";
    config->team_bytes = 128 * MIB;
}

static int run(struct harness h)
{
    int status;
    pid_t child;
    fflush(NULL);
    child = fork();
    if (child == 0) {
        int failed = harness_run(&h);
        fflush(NULL);
        _exit(failed);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* ---- Memory of the caller -------------------------------------------------------- */

/* Address space with `chunks` allocations side by side, as a growing pool makes them. */
static int vmm_alloc(symm_ctx *ctx, int chunks, CUdeviceptr *base)
{
    const struct symm_cuda_driver *d = ctx->backend->driver;
    int ordinal = ctx->backend->device.ordinal;
    CUmemAllocationProp properties = symm__cuda_properties(ordinal);
    CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK(d->cuMemAddressReserve(base, (size_t)chunks * CHUNK, 0, 0, 0) ==
          CUDA_SUCCESS);
    for (int i = 0; i < chunks; i++) {
        CUmemGenericAllocationHandle memory;
        CHECK(d->cuMemCreate(&memory, CHUNK, &properties, 0) == CUDA_SUCCESS);
        CHECK(d->cuMemMap(*base + (size_t)i * CHUNK, CHUNK, 0, memory, 0) ==
              CUDA_SUCCESS);
        CHECK(d->cuMemRelease(memory) == CUDA_SUCCESS);
    }
    CHECK(d->cuMemSetAccess(*base, (size_t)chunks * CHUNK, &access, 1) == CUDA_SUCCESS);
    return 0;
}

static int vmm_free(symm_ctx *ctx, int chunks, CUdeviceptr base)
{
    const struct symm_cuda_driver *d = ctx->backend->driver;
    CHECK(d->cuMemUnmap(base, (size_t)chunks * CHUNK) == CUDA_SUCCESS);
    CHECK(d->cuMemAddressFree(base, (size_t)chunks * CHUNK) == CUDA_SUCCESS);
    return 0;
}

/* Own word at the begin and the end, then all peers'. */
static int check_seen(symm_ctx *ctx, symm_buffer *buffer, uint32_t seed)
{
    symm_team *team = symm_team_world(ctx);
    size_t last = symm_buffer_bytes(buffer) - sizeof(uint32_t);
    uint32_t mine = (uint32_t)symm_team_rank(team) * 100 + seed;
    CHECK_OK(symm__cuda_copy(ctx, symm_buffer_ptr(buffer), &mine, sizeof(mine)));
    CHECK_OK(symm__cuda_copy(ctx, (char *)symm_buffer_ptr(buffer) + last, &mine,
                             sizeof(mine)));
    CHECK_OK(symm_rendezvous(team));
    for (int m = 0; m < symm_team_size(team); m++) {
        char *theirs = symm_buffer_peer_ptr(buffer, m);
        uint32_t first = 0, end = 0;
        void *found = NULL;
        CHECK(theirs != NULL);
        CHECK_OK(symm__cuda_copy(ctx, &first, theirs, sizeof(first)));
        CHECK_OK(symm__cuda_copy(ctx, &end, theirs + last, sizeof(end)));
        CHECK_MESSAGE(first == (uint32_t)m * 100 + seed && end == first,
                      "of rank %d come %u and %u", m, first, end);
        CHECK(symm__registered_peer(team, (char *)symm_buffer_ptr(buffer) + 8, last - 8,
                                    m, &found));
        CHECK(found == theirs + 8);
        CHECK(
            !symm__registered_peer(team, symm_buffer_ptr(buffer), last + 5, m, &found));
    }
    CHECK_OK(symm_rendezvous(team));
    return 0;
}

static int count_opened(const symm_ctx *ctx)
{
    int count = 0;
    for (const char *o = (const char *)ctx->opened; o != NULL;
         memcpy(&o, o, sizeof(o))) /* its first member leads to the next */
        count++;
    return count;
}

static int body_legacy(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    symm_buffer *one, *two, *other;
    int peers = symm_team_size(team) - 1;
    void *memory, *more;
    (void)arg;
    CHECK_OK(symm__cuda_local_alloc(ctx->backend, MIB + 12345, &memory));
    CHECK_OK(symm_buffer_register(team, (char *)memory + 256, 4096, &one));
    CHECK(symm_buffer_ptr(one) == (char *)memory + 256);
    CHECK(symm_buffer_bytes(one) == 4096 && symm_buffer_offset(one) == SIZE_MAX);
    CHECK(symm_buffer_peer_ptr(one, (symm_team_rank(team) + 1) % 2) == NULL);
    CHECK_ZERO(check_seen(ctx, one, 1));
    CHECK(count_opened(ctx) == peers);
    /* The same allocation again: not opened twice. */
    CHECK_OK(symm_buffer_register(team, (char *)memory + 8192, 1234, &two));
    CHECK_ZERO(check_seen(ctx, two, 2));
    CHECK(count_opened(ctx) == peers);
    symm_buffer_release(one);
    CHECK_OK(symm_rendezvous(team));
    CHECK(count_opened(ctx) == peers);
    CHECK_ZERO(check_seen(ctx, two, 3));
    symm_buffer_release(two);
    CHECK_OK(symm_rendezvous(team));
    CHECK(count_opened(ctx) == 0);
    /* New memory, perhaps at the old address, is another allocation. */
    symm__cuda_local_free(ctx->backend, memory);
    CHECK_OK(symm__cuda_local_alloc(ctx->backend, MIB + 12345, &more));
    CHECK_OK(symm_buffer_register(team, more, MIB, &other));
    CHECK_ZERO(check_seen(ctx, other, 4));
    symm_buffer_release(other);
    CHECK_OK(symm_rendezvous(team));
    symm__cuda_local_free(ctx->backend, more);
    return 0;
}

static void nap(void *arg)
{
    (void)arg;
    harness_sleep(0.3);
}

/* Puts that are still on their way when the registration ends: they arrive, and only then is
 * the memory unmapped, which would end a device's context. */
static int body_in_flight(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    int rank = symm_team_rank(team), peer = (rank + 1) % symm_team_size(team);
    uint32_t word = 1000 + (uint32_t)rank, seen = 0;
    const char *algorithms[] = {NULL, "copy_engine"};
    symm_call call = {.size = sizeof(call)};
    symm_buffer *buffer;
    void *memory, *from;
    (void)arg;
    CHECK_OK(symm__cuda_local_alloc(ctx->backend, MIB, &memory));
    CHECK_OK(symm__cuda_local_alloc(ctx->backend, 4096, &from));
    CHECK_OK(symm__cuda_copy(ctx, from, &word, sizeof(word)));
    CHECK_OK(symm_stream_create(ctx, &call.stream));
    CHECK_OK(symm_buffer_register(team, memory, MIB, &buffer));
    CHECK_OK(symm_rendezvous(team));
    CHECK_OK(symm_stream_call(ctx, call.stream, nap, NULL));
    for (size_t i = 0; i < 2; i++) {
        call.algorithm = algorithms[i];
        CHECK_OK(symm_put(team, (char *)memory + 4096 * i, from, sizeof(word), peer,
                          &call, NULL));
    }
    symm_buffer_release(buffer);
    CHECK_OK(symm_rendezvous(team));
    CHECK(count_opened(ctx) == 0);
    CHECK_OK(symm_stream_synchronize(ctx, call.stream, HARNESS_AMPLE));
    call.algorithm = NULL;
    CHECK_OK(symm_barrier(team, &call, NULL)); /* the peer's puts have arrived, too */
    CHECK_OK(symm_stream_synchronize(ctx, call.stream, HARNESS_AMPLE));
    for (size_t i = 0; i < 2; i++) {
        CHECK_OK(symm__cuda_copy(ctx, &seen, (char *)memory + 4096 * i, sizeof(seen)));
        CHECK(seen == 1000 + (uint32_t)peer); /* two ranks: that one is the writer */
    }
    /* And no call finds it any more. */
    CHECK_STATUS(symm_put(team, memory, from, sizeof(word), peer, &call, NULL),
                 SYMM_ERR_INVALID);
    CHECK_ERROR("not symmetric memory");
    symm_stream_destroy(ctx, call.stream);
    symm__cuda_local_free(ctx->backend, from);
    symm__cuda_local_free(ctx->backend, memory);
    return 0;
}

static void in_flight(void **state)
{
    struct harness h = {
        .ranks = device_ranks(2), .body = body_in_flight, .configure = on_cuda};
    (void)state;
    assert_int_equal(run(h), 0);
}

static void legacy(void **state)
{
    struct harness h = {
        .ranks = device_ranks(2), .body = body_legacy, .configure = on_cuda};
    (void)state;
    assert_int_equal(run(h), 0);
    h.ranks = device_ranks(3);
    assert_int_equal(run(h), 0);
}

static int body_vmm(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    symm_buffer *inner, *across, *late;
    CUdeviceptr base;
    (void)arg;
    CHECK_ZERO(vmm_alloc(ctx, 3, &base));
    char *memory = (char *)(uintptr_t)base;
    CHECK_OK(symm_buffer_register(team, memory + 4096, 8192, &inner));
    CHECK_OK(
        symm_buffer_register(team, memory + MIB, 4 * MIB, &across)); /* all three */
    CHECK_ZERO(check_seen(ctx, inner, 5));
    CHECK_ZERO(check_seen(ctx, across, 6));
    symm_buffer_release(inner);
    CHECK_OK(symm_buffer_register(team, memory, CHUNK, &late));
    CHECK_ZERO(check_seen(ctx, late, 7));
    /* The memory lives as long as it is registered. */
    CHECK_ZERO(vmm_free(ctx, 3, base));
    uint32_t word = 0;
    int peer = (symm_team_rank(team) + 1) % symm_team_size(team);
    if (harness_rank() == 0 && ctx->thread_group == NULL) {
        CHECK_OK(symm__cuda_copy(ctx, &word, symm_buffer_peer_ptr(late, peer), 4));
        CHECK(word == (uint32_t)peer * 100 + 7);
    }
    return 0; /* the rest goes with the context */
}

static void vmm(void **state)
{
    struct harness h = {
        .ranks = device_ranks(2), .body = body_vmm, .configure = on_cuda};
    (void)state;
    assert_int_equal(run(h), 0);
    h.mode = HARNESS_THREADS;
    assert_int_equal(run(h), 0);
}

/* symm_mem_alloc's memory on the device; ranks end their registrations at different times. */
static int body_mem(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    symm_buffer *first, *second;
    void *memory, *more;
    uint32_t word = 1;
    (void)arg;
    CHECK_OK(symm_mem_alloc("cuda", ctx->backend->device.ordinal, MIB, &memory));
    CHECK_OK(symm__cuda_copy(ctx, &word, (char *)memory + MIB - 4, 4));
    CHECK(word == 0);
    CHECK_OK(symm_buffer_register(team, memory, 4096, &first));
    CHECK_ZERO(check_seen(ctx, first, 8));
    if (harness_rank() == 1)
        symm_buffer_release(first);
    CHECK_OK(symm_mem_alloc("cuda", ctx->backend->device.ordinal, 3 * MIB, &more));
    CHECK_OK(symm_buffer_register(team, (char *)memory + 8192, 4096, &second));
    CHECK_ZERO(check_seen(ctx, second, 9));
    if (harness_rank() != 1)
        symm_buffer_release(first);
    CHECK_OK(symm_buffer_register(team, (char *)more + 2 * MIB, 64, &first));
    CHECK_OK(symm_mem_free(more)); /* lives while it is registered */
    CHECK_ZERO(check_seen(ctx, first, 10));
    symm_buffer_release(first);
    symm_buffer_release(second);
    CHECK_OK(symm_rendezvous(team));
    CHECK(count_opened(ctx) == 0);
    CHECK_OK(symm_mem_free(memory));
    CHECK_STATUS(symm_mem_free(memory), SYMM_ERR_NOT_FOUND);
    CHECK_STATUS(symm_mem_alloc("cuda", 99, MIB, &memory), SYMM_ERR_INVALID);
    return 0;
}

static void mem(void **state)
{
    struct harness h = {
        .ranks = device_ranks(2), .body = body_mem, .configure = on_cuda};
    (void)state;
    assert_int_equal(run(h), 0);
    h.mode = HARNESS_THREADS;
    assert_int_equal(run(h), 0);
}

/* ---- What is refused ------------------------------------------------------------- */

static int body_refused(symm_ctx *ctx, void *arg)
{
    const int64_t shape = 4096, stride = 1;
    symm_team *team = symm_team_world(ctx);
    symm_buffer *buffer, *heap;
    void *memory, *host;
    (void)arg;
    CHECK_OK(symm__cuda_local_alloc(ctx->backend, MIB, &memory));
    CHECK_OK(symm__cuda_host_alloc(ctx, MIB, &host));
    CHECK_OK(symm_empty_strided_p2p(team, 1, &shape, &stride, SYMM_UINT8, 1, &heap));
    CHECK_STATUS(symm_buffer_register(team, symm_buffer_ptr(heap), 64, &buffer),
                 SYMM_ERR_INVALID);
    CHECK_ERROR("symmetric memory already");
    CHECK_STATUS(symm_buffer_register(team, host, 64, &buffer), SYMM_ERR_INVALID);
    CHECK_ERROR("not of this rank's device");
    CHECK_STATUS(symm_buffer_register(team, memory, MIB + 1, &buffer),
                 SYMM_ERR_INVALID);
    CHECK_ERROR("leave their allocation");
    CHECK_STATUS(symm_buffer_register(team, &buffer, 8, &buffer), SYMM_ERR_INVALID);
    CHECK_ERROR("no memory that CUDA knows");
    /* Ranks that differ are told, and may correct it. */
    CHECK_OK(
        symm_buffer_register(team, memory, harness_rank() == 1 ? 128 : 64, &buffer));
    CHECK_STATUS(symm_rendezvous(team), SYMM_ERR_MISMATCH);
    CHECK_ERROR("registration 0 of 128 bytes");
    CHECK_ERROR("registration 0 of 64 bytes");
    symm_buffer_release(buffer);
    CHECK_OK(symm_buffer_register(team, memory, 64, &buffer));
    CHECK_ZERO(check_seen(ctx, buffer, 8));
    symm__cuda_host_free(ctx, host);
    return 0;
}

static void refused(void **state)
{
    struct harness h = {
        .ranks = device_ranks(2), .body = body_refused, .configure = on_cuda};
    (void)state;
    const char *check = getenv("FAKE_CUDA_CHECK");
    setenv("FAKE_CUDA_CHECK", "0", 1); /* the caller's memory is left */
    int failed = run(h);
    if (check)
        setenv("FAKE_CUDA_CHECK", "1", 1);
    assert_int_equal(failed, 0);
}

static int body_threads(symm_ctx *ctx, void *arg)
{
    symm_buffer *buffer;
    void *memory;
    (void)arg;
    CHECK_OK(symm__cuda_local_alloc(ctx->backend, MIB, &memory));
    CHECK_STATUS(symm_buffer_register(symm_team_world(ctx), memory, 64, &buffer),
                 SYMM_ERR_UNSUPPORTED);
    CHECK_ERROR("ranks that are threads");
    symm__cuda_local_free(ctx->backend, memory);
    return 0;
}

static void threads(void **state)
{
    struct harness h = {.ranks = device_ranks(2),
                        .body = body_threads,
                        .configure = on_cuda,
                        .mode = HARNESS_THREADS};
    (void)state;
    assert_int_equal(run(h), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(legacy),  cmocka_unit_test(in_flight),
        cmocka_unit_test(vmm),     cmocka_unit_test(mem),
        cmocka_unit_test(refused), cmocka_unit_test(threads),
    };
    device_suite();
    if (device_ranks(2) < 2)
        return 77;
    if (!device_real())
        setenv("FAKE_CUDA_CHECK", "1", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
