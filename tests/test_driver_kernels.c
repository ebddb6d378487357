/* SPDX-License-Identifier: MIT */
/*
 * test_driver_kernels.c - the push kernels, run on the processor by the shim of simt.h: ranks
 * are threads, heaps are plain memory, without the library's runtime.
 *
 * Compared bit for bit with the host's reductions: every algorithm, dtype and op, teams of 1
 * to 8, counts from 0 to several rounds of a small scratch, any alignment, in place, mixed
 * grids and orders, counters at their wrap. After a failure: the error records, outputs are
 * untouched, later calls return at once. Planted bugs must be detected.
 * ctest: cost 11
 * ctest: load 2
 */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <cmocka.h>

#include "kernels_rig.h"
#include "reference.h"

/* ---- One call of one rank ---------------------------------------------------------- */

/* Kernels of one round, and how often one was launched. */
static struct {
    const char *name;
    atomic_int launches;
} fast[] = {{"all_reduce_lamport_line_", 0},     {"all_reduce_pair_float", 0},
            {"all_reduce_pair_many_", 0},        {"all_reduce_ll_pair_", 0},
            {"all_reduce_ll_line_int32", 0},     {"reduce_scatter_ll_line_int32", 0},
            {"reduce_scatter_lamport_line_", 0}, {"reduce_scatter_pair_", 0},
            {"all_gather_ll_line_", 0},          {"all_to_all_ll_line_", 0},
            {"broadcast_ll_line_", 0},           {"all_reduce_two_shot_line_", 0},
            {"all_reduce_two_shot_wide_", 0},    {"reduce_scatter_pair_many_", 0}};

/* Whether a lane of this kernel takes one line: then the blocks may not be fewer. */
static bool one_line(const char *kernel)
{
    return strstr(kernel, "_line_") ||
           (strstr(kernel, "_pair_") && !strstr(kernel, "many"));
}

static void launch(struct rank *rank, const struct kernel_call *call, void *in,
                   void *out)
{
    struct rig *rig = rank->rig;
    const struct symm_cuda_query query =
        kernel_call_query(call, rig->size, 2 + (int)(call->seed % 3), &rig->scratch);
    struct symm_cuda_args args = rig_args(rank);
    struct symm_cuda_kernel kernel;
    struct symm_cuda_shape shape;
    kernel_fn function;

    kernel_call_args(call, &args);
    args.in = in;
    args.out = out;
    args.tag = call->tag + (rank->rank == rig->odd);
    if (!symm__cuda_kernel_find(&query, &kernel, &shape)) {
        rig_bad(rank, call, "no kernel");
        return;
    }
    if (call->blocks != 0 && call->blocks < shape.blocks && !one_line(kernel.name))
        shape.blocks = call->blocks;
    for (size_t i = 0; i < sizeof(fast) / sizeof(fast[0]); i++)
        if (strstr(kernel.name, fast[i].name))
            atomic_fetch_add(&fast[i].launches, 1);
    *(void **)&function = dlsym(rig->library, kernel.name);
    if (!function)
        rig_bad(rank, call, "no %s", kernel.name);
    else
        rig->launch(function, &args, shape.blocks, shape.threads);
}

/* Where a call's output begins; in place: where symm.h wants it. */
static char *place(struct rank *rank, const struct kernel_call *call, char **in)
{
    size_t element = symm_dtype_size(call->dtype), bytes = kernel_call_bytes(call);
    size_t step = kernel_call_random(&rank->random) % 2
                      ? element
                      : 16; /* ranks may differ in it */
    char *out = rank->out + GUARD + step * (kernel_call_random(&rank->random) % 17);

    *in = rank->in + step * (kernel_call_random(&rank->random) % 17);
    if (call->in_place)
        *in =
            call->kind == SYMM_KIND_ALL_GATHER ? out + (size_t)rank->rank * bytes : out;
    return out;
}

static void run_call(struct rank *rank, const struct kernel_call *call)
{
    struct rig *rig = rank->rig;
    size_t element = symm_dtype_size(call->dtype), where = 0;
    size_t bytes = kernel_call_out_count(call, rig->size) * element;
    size_t stride = kernel_call_in_count(call, rig->size) * element;
    char *in, *out = place(rank, call, &in);

    memset(rank->out, UNTOUCHED, bytes + 2 * GUARD + 17 * 16);
    rig_fill(call, rig->size, rank->rank, in);
    for (int r = 0; r < rig->size; r++)
        rig_fill(call, rig->size, r, rank->all + (size_t)r * stride);
    rig_expect(call, rig->size, rank->rank, rank->all, stride, rank->want);
    launch(rank, call, in, out);
    if (rank->record->state != 0)
        rig_bad(rank, call, "state %u, missing %x", rank->record->state,
                rank->record->missing[0]);
    else if (!reference_same(call->dtype, out, rank->want,
                             kernel_call_out_count(call, rig->size), &where))
        rig_bad(rank, call, "element %zu is wrong", where);
    else if (!rig_counters_agree(rank))
        rig_bad(rank, call, "blocks have other counters");
    for (size_t i = 0; i < GUARD && !call->in_place; i++)
        if (out[-1 - (ptrdiff_t)i] != UNTOUCHED || out[bytes + i] != UNTOUCHED)
            rig_bad(rank, call, "written beside the output");
}

static void *run_rank(void *arg)
{
    struct rank *rank = arg;
    struct rig *rig = rank->rig;

    pthread_barrier_wait(&rig->start);
    for (int c = 0; c < rig->count && rank->rank != rig->dead; c++) {
        struct timespec pause = {0, 0};

        if (rig->slow && kernel_call_random(&rank->random) % 8 == 0) {
            pause.tv_nsec = (long)(kernel_call_random(&rank->random) % 3000000);
            nanosleep(&pause, NULL);
        }
        run_call(rank, &rig->calls[c]);
        if (rank->bad != 0 && rig->stop_when_bad)
            break;
    }
    return NULL;
}

/* Runs the calls on all ranks; returns how many ranks saw something wrong. */
static int run(struct rig *rig, const struct kernel_call *calls, int count)
{
    pthread_t threads[SYMM_DEVICE_RANKS];
    int wrong = 0;

    rig->calls = calls;
    rig->count = count;
    for (int r = 0; r < rig->size; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &rig->ranks[r]),
                         0);
    for (int r = 0; r < rig->size; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < rig->size; r++)
        wrong += rig->ranks[r].bad != 0;
    return wrong;
}

static void run_well(struct rig *rig, const struct kernel_call *calls, int count)
{
    rig->stop_when_bad = true;
    if (run(rig, calls, count) == 0)
        return;
    for (int r = 0; r < rig->size; r++)
        if (rig->ranks[r].bad != 0)
            print_error("%s\n", rig->ranks[r].what);
    fail();
}

/* ---- What is called ---------------------------------------------------------------- */

#define MOST_CALLS 512

static const enum symm_algorithm pushes[] = {
    SYMM_ALGORITHM_LL_PUSH, SYMM_ALGORITHM_LAMPORT_PUSH, SYMM_ALGORITHM_TWO_SHOT_PUSH};

static bool carries(enum symm_algorithm algorithm, symm_dtype dtype)
{
    return algorithm != SYMM_ALGORITHM_LAMPORT_PUSH ||
           (reference_is_float(dtype) && dtype != SYMM_FLOAT64);
}

/* Few elements mostly; now and then enough for several rounds. */
static size_t some_count(uint32_t *random, symm_dtype dtype, size_t most)
{
    static const size_t counts[] = {0, 1, 2, 3, 7, 8, 9, 31, 63, 65, 255, 1001, 4097};
    size_t count =
        counts[kernel_call_random(random) % (sizeof(counts) / sizeof(counts[0]))];

    if (kernel_call_random(random) % 16 == 0)
        count = most / symm_dtype_size(dtype) - kernel_call_random(random) % 100;
    if (count * symm_dtype_size(dtype) > most)
        count = most / symm_dtype_size(dtype);
    return count;
}

/* The i-th sum of a common type, by a push in one shot or two; without a count. */
static struct kernel_call common_sum(int i, bool raw, uint32_t *seed)
{
    return (struct kernel_call){.kind = SYMM_KIND_ALL_REDUCE,
                                .algorithm = pushes[1 + i % 2],
                                .dtype = (symm_dtype)(SYMM_FLOAT32 + i / 2 % 3),
                                .op = SYMM_SUM,
                                .seed = kernel_call_random(seed),
                                .tag = 1 + kernel_call_random(seed) % 1000,
                                .blocks = kernel_call_random(seed) % 4,
                                .in_place = i % 5 == 0,
                                .raw = raw};
}

/* Half of the pairs on an even number of ranks, the others on an odd one. Up to 2 ranks, and
 * with SYMM_TEST_LONG=1: all. */
static bool takes_turn(int size, int a, int b)
{
    return size <= 2 || (a + b + size) % 2 == 0 ||
           harness_env("SYMM_TEST_LONG", 0) != 0;
}

static int reductions(struct kernel_call *calls, int size, uint32_t seed)
{
    int count = 0;

    for (int i = 0; i < 3 * REFERENCE_DTYPES * REFERENCE_OPS; i++) {
        struct kernel_call *call = &calls[count];
        symm_dtype dtype = (symm_dtype)(i / 3 % REFERENCE_DTYPES);

        if (i >= 3 * REFERENCE_DTYPES && !takes_turn(size, i % 3, i / 3))
            continue; /* all sums: some have kernels of their own */
        if (!carries(pushes[i % 3], dtype) ||
            !reference_takes(dtype, (symm_op)(i / 3 / REFERENCE_DTYPES)))
            continue;
        *call = (struct kernel_call){.kind = SYMM_KIND_ALL_REDUCE,
                                     .algorithm = pushes[i % 3],
                                     .dtype = dtype,
                                     .op = (symm_op)(i / 3 / REFERENCE_DTYPES),
                                     .seed = kernel_call_random(&seed),
                                     .tag = 1 + kernel_call_random(&seed) % 1000};
        call->count = some_count(&seed, dtype, 60000);
        call->blocks = kernel_call_random(&seed) % 4;
        call->in_place = kernel_call_random(&seed) % 4 == 0;
        call->raw = kernel_call_random(&seed) % 2 == 0;
        count++;
    }
    /* The kernels for sums of the common types, also with so much that all rounds wrap. */
    for (int i = 0; i < 12; i++) {
        struct kernel_call *call = &calls[count++];

        *call = common_sum(i, i >= 6, &seed);
        call->count =
            (40000 + kernel_call_random(&seed) % 20000) / symm_dtype_size(call->dtype);
    }
    /* Whole lines of every segment and others, up to what one round takes and beyond. */
    for (int i = 0; i < 36; i++) {
        static const uint32_t most[] = {40, 120, 240, 400};
        struct kernel_call *call = &calls[count++];

        *call = common_sum(i, i % 3 == 0, &seed);
        call->count = 128 * (size_t)(1 + kernel_call_random(&seed) % most[i / 2 % 4]) /
                          symm_dtype_size(call->dtype) +
                      kernel_call_random(&seed) % 3;
    }
    return count;
}

/* As much as a slot holds of the one sender, of each sender and in segments; a packet less, and one
 * more. */
static int full_slots(struct kernel_call *calls, int size, uint32_t seed)
{
    const size_t slot = RIG_LAMPORT_BYTES / 3, ll = RIG_LL_BYTES / 2 / 2;
    const size_t full[] = {slot, slot / 2, slot / (size_t)size, ll / (size_t)size};
    int count = 0;

    for (int i = 0; i < 12; i++) {
        struct kernel_call *call = &calls[count++];
        const bool is_ll = i % 4 == 3;

        *call = common_sum(i % 4 == 1, i % 3 == 0, &seed);
        call->dtype = is_ll ? SYMM_INT32 : (symm_dtype)(SYMM_FLOAT32 + i / 4);
        call->blocks = 0;
        if (is_ll)
            call->algorithm = SYMM_ALGORITHM_LL_PUSH, call->raw = false;
        call->count =
            (full[i % 4] + (is_ll ? 8 : 16) * (size_t)(i / 4) - (is_ll ? 8 : 16)) /
            symm_dtype_size(call->dtype);
    }
    return count;
}

static int moves(struct kernel_call *calls, int size, uint32_t seed)
{
    int count = 0;

    for (int i = 0; i < 8 * REFERENCE_DTYPES; i++) {
        static const enum symm_kind kinds[] = {
            SYMM_KIND_ALL_GATHER, SYMM_KIND_ALL_TO_ALL, SYMM_KIND_BROADCAST,
            SYMM_KIND_REDUCE_SCATTER};
        struct kernel_call *call = &calls[count];
        const bool own =
            i % 16 == 3; /* has a kernel of its own, if there is a lane each */

        if (!own && !takes_turn(size, i % 8, i / 8))
            continue;
        count++;
        *call = (struct kernel_call){
            .kind = kinds[i % 4],
            .algorithm = SYMM_ALGORITHM_LL_PUSH,
            .dtype = (symm_dtype)(i / 8),
            .op = reference_op((symm_dtype)(i / 8), (unsigned)i),
            .root = (int)(kernel_call_random(&seed) % (unsigned)size),
            .seed = kernel_call_random(&seed),
            .tag = 1 + kernel_call_random(&seed) % 1000};
        call->count = some_count(&seed, call->dtype, 30000);
        call->blocks = kernel_call_random(&seed) % 4;
        call->in_place = kernel_call_random(&seed) % 4 == 0;
        call->raw = call->kind != SYMM_KIND_REDUCE_SCATTER;
        if (own)
            call->dtype = SYMM_INT32, call->op = SYMM_SUM;
        if (i % 8 == 7 && (size == 2 || size == 4 || size == 8)) {
            call->algorithm = SYMM_ALGORITHM_LAMPORT_PUSH;
            call->dtype = (symm_dtype)(SYMM_FLOAT32 + i / 8 % 3);
            call->op = SYMM_SUM;
            /* a lane each; or between two ranks any number, in one round or in two */
            call->count = size == 2 && i / 8 % 3 > 0
                              ? (70000 + kernel_call_random(&seed) % 50000) /
                                    symm_dtype_size(call->dtype)
                              : (1 + kernel_call_random(&seed) % 250) * 2;
        }
    }
    return count;
}

static void shuffle(struct kernel_call *calls, int count, uint32_t seed)
{
    for (int i = count - 1; i > 0; i--) {
        int other = (int)(kernel_call_random(&seed) % (unsigned)(i + 1));
        struct kernel_call call = calls[i];

        calls[i] = calls[other];
        calls[other] = call;
    }
}

/* ---- Tests ------------------------------------------------------------------------- */

static void test_all(void **unused)
{
    static struct kernel_call calls[MOST_CALLS];

    (void)unused;
    for (int size = 1; size <= SYMM_FEW_RANKS; size++) {
        struct rig rig;
        uint32_t seed = 1000u + (uint32_t)size;
        int count = reductions(calls, size, seed);

        count += moves(calls + count, size, seed);
        count += full_slots(calls + count, size, seed);
        shuffle(calls, count, seed);
        rig_open(&rig, size, SYMM_FAKE_CUDA, 0, 0);
        run_well(&rig, calls, count);
        rig_close(&rig);
    }
    for (size_t i = 0; i < sizeof(fast) / sizeof(fast[0]); i++)
        if (atomic_load(&fast[i].launches) < 4)
            fail_msg("only %d launches of %s...", atomic_load(&fast[i].launches),
                     fast[i].name);
}

/* Calls of one round and of several, on ranks that are late: what has not been consumed there is
 * not overwritten. */
static void test_late(void **unused)
{
    struct kernel_call calls[36];

    (void)unused;
    setenv("SIMT_PAUSE", "1000", 1);
    for (int size = 2; size <= 4; size++) {
        uint32_t seed = 500u + (uint32_t)size;
        struct rig rig;

        for (int i = 0; i < 36; i++) {
            const size_t least[] = {100, 40000, 70000};

            calls[i] = common_sum(i / 3, i % 4 == 0, &seed);
            calls[i].blocks = 0;
            if (size == 2 && i % 4 > 0) /* its calls of two rounds */
                calls[i].algorithm = SYMM_ALGORITHM_LAMPORT_PUSH;
            if (i % 9 >= 7) {
                calls[i].kind =
                    i % 9 == 7 ? SYMM_KIND_REDUCE_SCATTER : SYMM_KIND_ALL_GATHER;
                calls[i].algorithm = SYMM_ALGORITHM_LL_PUSH;
            }
            calls[i].count = (least[i % 3] + kernel_call_random(&seed) % 20000) /
                             symm_dtype_size(calls[i].dtype);
        }
        rig_open(&rig, size, SYMM_FAKE_CUDA, SYMM_ROUND_LIMIT - 30, 0);
        run_well(&rig, calls, 36);
        rig_close(&rig);
    }
    unsetenv("SIMT_PAUSE");
}

static void test_wrap(void **unused)
{
    struct kernel_call calls[24];
    struct rig rig;

    (void)unused;
    for (int size = 2; size <= 3; size++) {
        for (int i = 0; i < 24; i++)
            calls[i] = (struct kernel_call){.kind = SYMM_KIND_ALL_REDUCE,
                                            .algorithm = pushes[i % 3],
                                            .dtype = SYMM_BFLOAT16,
                                            .op = SYMM_SUM,
                                            .count = 40u + (unsigned)i,
                                            .seed = (uint32_t)i,
                                            .tag = 7};
        rig_open(&rig, size, SYMM_FAKE_CUDA, SYMM_ROUND_LIMIT - 10, UINT32_MAX - 9);
        rig.slow = true;
        run_well(&rig, calls, 24);
        assert_int_equal(rig.ranks[0].state->block[CHANNEL][0].round, 14);
        assert_int_equal(rig.ranks[0].state->block[CHANNEL][159].call, 14);
        rig_close(&rig);
    }
}

static struct kernel_call simple(enum symm_algorithm algorithm)
{
    return (struct kernel_call){.kind = SYMM_KIND_ALL_REDUCE,
                                .algorithm = algorithm,
                                .dtype = SYMM_FLOAT32,
                                .op = SYMM_SUM,
                                .count = 3000,
                                .seed = 5,
                                .tag = 40};
}

/* Outputs hold what they held; the channel has stopped; a later call returns at once. */
static void check_stopped(struct rig *rig, struct rank *rank,
                          const struct kernel_call *call, uint32_t status)
{
    struct symm_device_block block = rank->state->block[CHANNEL][0];

    assert_int_equal(rank->state->failed[16 * CHANNEL], status);
    assert_int_not_equal(rank->state->stopped, 0);
    assert_int_equal(rank->result, status);
    for (size_t i = 0; i < kernel_call_bytes(call); i++)
        assert_int_equal(rank->out[GUARD + i], UNTOUCHED);
    rank->result = 0;
    rig->timeout = UINT64_MAX / 2; /* a wait would end the test */
    launch(rank, call, rank->in, rank->out + GUARD);
    assert_int_equal(rank->result, status);
    assert_int_equal(rank->state->block[CHANNEL][0].call, block.call);
    for (size_t i = 0; i < kernel_call_bytes(call); i++)
        assert_int_equal(rank->out[GUARD + i], UNTOUCHED);
}

/* Rank 2 of 4 makes no call. Again until the deadline is long enough for those who do. */
static void run_without_one(struct rig *rig, const struct kernel_call *call)
{
    double patience;

    HARNESS_PATIENCE(patience, 0.5)
    {
        bool alone = true;

        rig_open(rig, 4, SYMM_FAKE_CUDA, 0, 0);
        rig->timeout = (uint64_t)(patience * 1e9);
        rig->dead = 2;
        assert_int_equal(run(rig, call, 1), 3);
        for (int r = 0; r < 4; r++)
            alone &= r == 2 || rig->ranks[r].record->missing[0] == 1u << 2;
        if (alone)
            return;
        rig_close(rig);
    }
    fail_msg("others than rank 2 are missing");
}

static void test_dead(void **unused)
{
    struct rig rig;

    (void)unused;
    for (int a = 0; a < 3; a++) {
        struct kernel_call call = simple(pushes[a]);

        run_without_one(&rig, &call);
        for (int r = 0; r < 4; r++) {
            struct rank *rank = &rig.ranks[r];

            if (r == rig.dead)
                continue;
            assert_int_equal(rank->record->state, -SYMM_ERR_TIMEOUT);
            assert_int_equal(rank->record->missing[0], 1u << rig.dead);
            assert_int_equal(rank->record->channel, CHANNEL);
            assert_int_equal(rank->record->tag, 40);
            assert_int_equal(rank->record->counter, 1);
            check_stopped(&rig, rank, &call, (uint32_t)-SYMM_ERR_TIMEOUT);
        }
        /* Who comes late learns it at once. */
        rig.timeout = UINT64_MAX / 2;
        launch(&rig.ranks[2], &call, rig.ranks[2].in, rig.ranks[2].out);
        assert_int_equal(rig.ranks[2].record->state, -SYMM_ERR_ABORTED);
        assert_int_equal(rig.ranks[2].record->missing[0], 0xb);
        rig_close(&rig);
    }
}

/* Rank 1 makes another call: it sees that all others do, they that it does. */
static void run_mismatch(int size, enum symm_algorithm algorithm)
{
    const uint32_t others = (1u << size) - 1 - 2;
    struct kernel_call call = simple(algorithm);
    struct rig rig;

    rig_open(&rig, size, SYMM_FAKE_CUDA, 0, 0);
    rig.odd = 1;
    assert_int_equal(run(&rig, &call, 1), size);
    for (int r = 0; r < size; r++) {
        assert_int_equal(rig.ranks[r].record->state, -SYMM_ERR_MISMATCH);
        assert_true(rig.ranks[r].record->missing[0] != 0);
        assert_int_equal(rig.ranks[r].record->missing[0] & ~(r == 1 ? others : 2u), 0);
        assert_int_equal(rig.ranks[r].result, -SYMM_ERR_MISMATCH);
    }
    assert_int_equal(rig.ranks[0].record->seen[1], symm_device_word(41, 1));
    rig_close(&rig);
}

/* Between 2, 4 and 8 ranks there are kernels that close a call early. */
static void test_mismatch(void **unused)
{
    static const int sizes[] = {2, 3, 4, 8};

    (void)unused;
    for (int s = 0; s < 4; s++)
        for (int a = 0; a < 3; a++)
            run_mismatch(sizes[s], pushes[a]);
}

static void *abort_soon(void *arg)
{
    struct rig *rig = arg;
    struct timespec pause = {0, 100000000};

    nanosleep(&pause, NULL);
    for (int r = 0; r < rig->size; r++)
        __atomic_store_n(&rig->ranks[r].record->abort, (uint32_t)-SYMM_ERR_PEER_DEAD,
                         __ATOMIC_RELAXED);
    return NULL;
}

static void test_abort(void **unused)
{
    struct kernel_call call = simple(SYMM_ALGORITHM_TWO_SHOT_PUSH);
    pthread_t thread;
    struct rig rig;

    (void)unused;
    rig_open(&rig, 2, SYMM_FAKE_CUDA, 0, 0);
    rig.dead = 0;
    assert_int_equal(pthread_create(&thread, NULL, abort_soon, &rig), 0);
    assert_int_equal(run(&rig, &call, 1), 1);
    pthread_join(thread, NULL);
    assert_int_equal(rig.ranks[1].record->state, -SYMM_ERR_PEER_DEAD);
    for (int c = 0; c < SYMM_CHANNELS; c++) /* the host's reason concerns them all */
        assert_int_not_equal(rig.ranks[1].state->failed[16 * c], 0);
    check_stopped(&rig, &rig.ranks[1], &call, (uint32_t)-SYMM_ERR_PEER_DEAD);
    rig_close(&rig);
}

/* Rank 0 fails in a call. Rank 1, which is in the call after it or before it, learns it at once. */
static void run_apart(enum symm_algorithm algorithm, uint32_t first, uint32_t second)
{
    const struct kernel_call call = simple(algorithm);
    struct rig rig;

    rig_open(&rig, 2, SYMM_FAKE_CUDA, 0, 0);
    rig.timeout = UINT64_MAX / 2;
    for (int b = 0; b < SYMM_DEVICE_BLOCKS; b++) {
        rig.ranks[0].state->block[CHANNEL][b] =
            (struct symm_device_block){first, first};
        rig.ranks[1].state->block[CHANNEL][b] =
            (struct symm_device_block){second, second};
    }
    rig.ranks[0].record->abort = (uint32_t)-SYMM_ERR_PEER_DEAD;
    for (int r = 0; r < 2; r++)
        launch(&rig.ranks[r], &call, rig.ranks[r].in, rig.ranks[r].out);
    assert_int_equal(rig.ranks[0].record->state, -SYMM_ERR_PEER_DEAD);
    assert_int_equal(rig.ranks[1].record->state, -SYMM_ERR_ABORTED);
    assert_int_equal(rig.ranks[1].record->missing[0], 1);
    rig_close(&rig);
}

static void test_apart(void **unused)
{
    (void)unused;
    for (int a = 0; a < 3; a++) {
        run_apart(pushes[a], 5, 6);
        run_apart(pushes[a], 6, 5);
    }
}

/* Until a rank notices: how the ranks overtake each other is chance. */
static void run_plant(const char *library, const struct kernel_call *calls, int count)
{
    for (int tries = 0, seen = 0; seen == 0; tries++) {
        struct rig rig;

        assert_true(tries < 20);
        rig_open(&rig, 3, library, 0, 0);
        rig.timeout = 2000000000;
        rig.slow = true;
        seen = run(&rig, calls, count);
        rig_close(&rig);
    }
}

/* A sentinel that is not put back: old data is taken for new. */
static void test_plant_clear(void **unused)
{
    struct kernel_call calls[12];

    (void)unused;
    for (int i = 0; i < 12; i++) {
        calls[i] = simple(SYMM_ALGORITHM_LAMPORT_PUSH);
        calls[i].seed = (uint32_t)i;
    }
    run_plant(SYMM_PLANT_DIR "/libkernels_plant_lamport_clear.so", calls, 12);
}

/* A root that does not wait runs two calls ahead of a receiver. */
static void test_plant_early(void **unused)
{
    struct kernel_call calls[40];

    (void)unused;
    for (int i = 0; i < 40; i++) {
        calls[i] = simple(SYMM_ALGORITHM_LL_PUSH);
        calls[i].kind = SYMM_KIND_BROADCAST;
        calls[i].seed = (uint32_t)i;
    }
    run_plant(SYMM_PLANT_DIR "/libkernels_plant_early.so", calls, 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all),         cmocka_unit_test(test_late),
        cmocka_unit_test(test_wrap),        cmocka_unit_test(test_dead),
        cmocka_unit_test(test_mismatch),    cmocka_unit_test(test_abort),
        cmocka_unit_test(test_apart),       cmocka_unit_test(test_plant_clear),
        cmocka_unit_test(test_plant_early),
    };

    reference_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
