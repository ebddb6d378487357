/* SPDX-License-Identifier: MIT */
/*
 * test_driver_trigger.c - when a kernel lets its dependent become resident (round.cuh, "Dependent
 * launch"; p2p.cu): one that may wait for long must not before its wait is over, else a queue
 * behind it fills the device. The kernels run on the processor; their triggers are counted.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "heaps.h"
#include "kernel_call.h"
#include "simt_block.h"

#define BYTES ((uint64_t)1 << 20)
#define COUNT ((size_t)64)
#define MOST  4 /* ranks */

/* A launch of rank 0 that counts. */
struct watched {
    struct simt_watch watch; /* first */
    struct heaps *heaps;
    const struct kernel_call *call; /* NULL: a wait */
    pthread_t peers[MOST];
    int triggers,
        when_stalled; /* when_stalled: triggers before the peers came; -1: it did not wait */
    bool passes;      /* the kernel in front has ended */
};

/* ---- One rank ---------------------------------------------------------------------- */

static heaps_kernel kernel_of(const struct heaps *heaps, int rank,
                              const struct kernel_call *call,
                              struct symm_cuda_args *args,
                              struct symm_cuda_shape *shape)
{
    struct symm_cuda_kernel kernel;
    struct symm_cuda_query query;

    *args = heaps_args(heaps, rank, CHANNEL);
    kernel_call_args(call, args);
    args->in_offset = heaps->buffers;
    args->out_offset = heaps->buffers + BYTES / 2;
    args->in = heaps_at(heaps, rank, args->in_offset);
    args->out = heaps_at(heaps, rank, args->out_offset);
    args->flags |= SYMM_CUDA_DEPENDENT | call->flags;
    query = kernel_call_query(call, heaps->size, 8, &args->scratch);
    if (!symm__cuda_kernel_find(&query, &kernel, shape) ||
        strstr(kernel.name, "multimem")) /* these heaps have no multicast memory */
        return NULL;
    return heaps_find(kernel.name);
}

struct peer {
    const struct watched *of;
    int rank;
};

static void *run_peer(void *arg)
{
    struct peer *peer = arg;
    struct symm_cuda_args args;
    struct symm_cuda_shape shape;
    heaps_kernel kernel =
        kernel_of(peer->of->heaps, peer->rank, peer->of->call, &args, &shape);

    heaps_launch(kernel, &args, shape.blocks, shape.threads);
    return NULL;
}

/* All threads wait: the peers come now. */
static void stalled(struct simt_watch *watch)
{
    static struct peer peers[MOST];
    struct watched *w = (struct watched *)watch;

    w->when_stalled = w->triggers;
    if (!w->call)
        symm_device_signal(&w->heaps->team[1], 0, 4, 1);
    for (int r = 1; w->call && r < w->heaps->size; r++) {
        peers[r] = (struct peer){w, r};
        assert_int_equal(pthread_create(&w->peers[r], NULL, run_peer, &peers[r]), 0);
    }
}

static void triggered(struct simt_watch *watch)
{
    ((struct watched *)watch)->triggers++;
}

static bool may_pass(struct simt_watch *watch)
{
    return ((struct watched *)watch)->passes;
}

static struct heaps *open_heaps(int size)
{
    const struct heaps_options options = {.size = size,
                                          .ll = 1 << 16,
                                          .lamport = 3 << 16,
                                          .stage = 1 << 16,
                                          .only = 1 + (int)CHANNEL,
                                          .buffers = BYTES};

    return heaps_create(&options);
}

/* Whether the block has ended. */
static bool run_watched(struct watched *w, heaps_kernel kernel,
                        const struct symm_cuda_args *args, unsigned threads)
{
    bool (*cluster)(heaps_kernel kernel, const struct symm_cuda_args *args,
                    unsigned blocks, unsigned threads, unsigned block,
                    struct simt_watch *watch);

    *(void **)&cluster = heaps_symbol("simt_cluster");
    assert_non_null(cluster);
    assert_non_null(kernel);
    w->watch = (struct simt_watch){stalled, triggered, may_pass};
    w->triggers = 0;
    w->when_stalled = -1;
    return cluster(kernel, args, 1, threads, 0, &w->watch);
}

/* ---- Tests ------------------------------------------------------------------------- */

/* Whether the call has a kernel of one block that waits. It triggers when its peers have come. */
static bool triggers_late(int size, const struct kernel_call *call)
{
    struct watched w = {.heaps = open_heaps(size), .call = call, .passes = false};
    struct symm_cuda_args args;
    struct symm_cuda_shape shape;
    heaps_kernel kernel = kernel_of(w.heaps, 0, call, &args, &shape);
    const bool found = kernel && shape.blocks == 1;

    if (found) {
        assert_false(run_watched(&w, kernel, &args, shape.threads));
        assert_int_equal(w.triggers, 0);
        w.passes = true;
        assert_true(run_watched(&w, kernel, &args, shape.threads));
        for (int r = 1; r < size; r++)
            pthread_join(w.peers[r], NULL);
        if (call->flags & SYMM_CUDA_EARLY)
            assert_true(w.when_stalled > 0);
        else
            assert_int_equal(w.when_stalled, 0);
        assert_true(w.triggers > 0);
        heaps_check(w.heaps, CHANNEL);
    }
    heaps_destroy(w.heaps);
    return found;
}

/* Every collective by every algorithm. */
static void test_collectives(void **unused)
{
    int found = 0;

    (void)unused;
    for (int size = 2; size <= MOST; size++)
        for (int k = 0; k < SYMM_KIND_ALL_REDUCE_NORM; k++)
            for (int a = 0; a < SYMM_ALGORITHM_COUNT; a++)
                for (int early = 0; early < 2; early++) {
                    const struct kernel_call call = {
                        .kind = (enum symm_kind)k,
                        .algorithm = (enum symm_algorithm)a,
                        .dtype = SYMM_FLOAT32,
                        .op = SYMM_SUM,
                        .root = size - 1,
                        .count = k == SYMM_KIND_BARRIER ? 0 : COUNT,
                        .flags = early ? SYMM_CUDA_EARLY : 0};

                    found += triggers_late(size, &call);
                }
    assert_true(found >= 3 * 2 * 18);
}

/* A wait triggers at once, or where it is met. */
static void test_wait(void **unused)
{
    (void)unused;
    for (int early = 0; early < 2; early++) {
        struct watched w = {.heaps = open_heaps(2), .passes = true};
        struct symm_cuda_args args = heaps_args(w.heaps, 0, CHANNEL);

        args.flags = SYMM_CUDA_DEPENDENT | (early ? SYMM_CUDA_EARLY : 0);
        args.peer = 1;
        args.signal = 4;
        assert_true(run_watched(&w, heaps_find("symm_p2p_signal_wait"), &args, 32));
        assert_int_equal(w.when_stalled > 0, early);
        assert_true(w.when_stalled >= 0 && w.triggers > 0);
        heaps_destroy(w.heaps);
    }
}

/* A put triggers before the kernel in front has ended if it is told to. */
static void test_put(void **unused)
{
    static const char *const names[] = {"symm_p2p_put", "symm_p2p_signal"};

    (void)unused;
    for (int k = 0; k < 4; k++) {
        struct watched w = {.heaps = open_heaps(2)};
        struct symm_cuda_args args = heaps_args(w.heaps, 0, CHANNEL);

        args.flags = SYMM_CUDA_DEPENDENT | (k % 2 ? SYMM_CUDA_RELAY : 0);
        args.peer = 1;
        args.signal = 4;
        args.in = heaps_at(w.heaps, 0, w.heaps->buffers);
        args.out = heaps_at(w.heaps, 1, w.heaps->buffers);
        args.bytes = 64;
        assert_false(run_watched(&w, heaps_find(names[k / 2]), &args, 32));
        assert_int_equal(w.triggers > 0, k % 2);
        w.passes = true;
        assert_true(run_watched(&w, heaps_find(names[k / 2]), &args, 32));
        assert_true(w.triggers > 0);
        heaps_destroy(w.heaps);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_wait),
        cmocka_unit_test(test_put),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
