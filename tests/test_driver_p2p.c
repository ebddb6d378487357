/* SPDX-License-Identifier: MIT */
/*
 * test_driver_p2p.c - puts, signals and waits: the kernels of p2p.cu on the processor, and
 * the functions of symm/device.h that code generators call, as host code.
 *
 * Ranks are threads with heaps in plain memory (heaps.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"
#include "heaps.h"

#define AREA  ((uint64_t)1 << 20)
#define GUARD 64u
#define BLANK 0xa5 /* each byte where nothing was put */
#define SIZES 19
#define PUTS                                                                           \
    (6 * SIZES + 16) /* each aligned and not, by one block and by several; all ends */
#define LAST  (UINT32_MAX - 20) /* signals raised before: the count passes its limit */

struct job {
    int wrong[SYMM_DEVICE_RANKS];
    uint32_t result[SYMM_DEVICE_RANKS];
    uint32_t tag[SYMM_DEVICE_RANKS];
    bool silent; /* no signal is raised */
};

static struct heaps *open_heaps(int size, double timeout)
{
    struct heaps_options options = {.size = size,
                                    .timeout = timeout,
                                    .ll = 4096,
                                    .lamport = 4096,
                                    .stage = 4096,
                                    .buffers = 2 * AREA};

    return heaps_create(&options);
}

static void call(const char *name, const struct symm_cuda_args *args, unsigned blocks,
                 unsigned threads)
{
    heaps_launch(heaps_find(name), args, blocks, threads);
}

static unsigned char byte_of(int rank, int put, size_t i)
{
    return (unsigned char)((unsigned)rank * 89 + (unsigned)put * 31 + i * 7 + (i >> 8));
}

/* Sizes, alignments and grids of the k-th put, equal on all ranks. */
struct put {
    size_t bytes, from, to;
    unsigned blocks, threads;
};

static struct put put_of(int k)
{
    /* 512 and 1024 bytes are a packet of each thread; one block takes four in one round. */
    static const size_t sizes[SIZES] = {0,    1,    15,   16,   17,    496,  512,
                                        513,  528,  1024, 1040, 1500,  2048, 2063,
                                        2064, 4080, 4096, 5001, 100000};
    uint32_t z = (uint32_t)k * 2654435761u;
    struct put put = {.bytes = sizes[k % SIZES],
                      .from = z >> 8 & 31,
                      .to = z >> 16 & 31,
                      .blocks = 1 + (z >> 20) % 5,
                      .threads = 32 + 32 * (z >> 28 & 1)};

    if (k >= 6 * SIZES)
        put.bytes = 32 + (size_t)k % 16;
    if (k % 3 == 0 || k >= 6 * SIZES)
        put.from = put.to = 0;
    if (k / SIZES % 2 == 0)
        put.blocks = 1;
    return put;
}

static void ring(struct heaps *heaps, int rank, void *arg)
{
    struct job *job = arg;
    int size = heaps->size, to = (rank + 1) % size, from = (rank + size - 1) % size;
    uint64_t seed = (uint64_t)rank;

    for (int k = 0; k < PUTS; k++) {
        struct put put = put_of(k);
        struct symm_cuda_args args = heaps_args(heaps, rank, 1), wait = args;
        unsigned char *in = heaps_at(heaps, rank, heaps->buffers + put.from);
        unsigned char *mine =
            heaps_at(heaps, rank, heaps->buffers + AREA + GUARD + put.to);

        heaps_delay(&seed, 500);
        for (size_t i = 0; i < put.bytes; i++)
            in[i] = byte_of(rank, k, i);
        args.in = in;
        args.out = symm_device_peer(&heaps->team[rank], mine, to);
        args.bytes = put.bytes;
        args.peer = to;
        args.signal = k % 2;
        args.tag = 9;
        call("symm_p2p_put", &args, put.blocks, put.threads);
        wait.peer = from;
        wait.signal = k % 2;
        wait.tag = k % 5 == 0 ? 0 : 9; /* no name: not compared */
        call("symm_p2p_signal_wait", &wait, 1, 32);
        for (size_t i = 0; i < put.bytes; i++)
            job->wrong[rank] += mine[i] != byte_of(from, k, i);
        for (size_t i = 1; i <= 16; i++)
            job->wrong[rank] +=
                mine[-(ptrdiff_t)i] != BLANK || mine[put.bytes + i - 1] != BLANK;
        memset(mine, BLANK, put.bytes);
        /* Room for the next put: back to who sent. */
        args.peer = from;
        args.signal = 255;
        call("symm_p2p_signal", &args, 1, 32);
        wait.peer = to;
        wait.signal = 255;
        call("symm_p2p_signal_wait", &wait, 1, 32);
    }
}

static void test_ring(void **unused)
{
    (void)unused;
    for (int size = 1; size <= SYMM_FEW_RANKS; size += size < 3 ? 1 : 5) {
        struct heaps *heaps = open_heaps(size, 0);
        struct job job = {0};

        for (int r = 0; r < size; r++)
            memset(heaps_at(heaps, r, heaps->buffers + AREA), BLANK, AREA);
        for (int r = 0; r < size; r++)
            for (int p = 0; p < size; p++)
                for (int s = 0; s < SYMM_SIGNALS; s++) {
                    heaps->team[r].state->sent[p][s] = LAST;
                    heaps->team[r].state->awaited[p][s] = LAST;
                    symm_device_pad(&heaps->team[r], r)->signals[p][s] =
                        symm_device_word(9, LAST);
                }
        heaps_run(heaps, ring, &job);
        heaps_check(heaps, 1);
        for (int r = 0; r < size; r++) {
            assert_int_equal(job.wrong[r], 0);
            for (int s = 0; s < SYMM_SIGNALS; s++)
                assert_int_equal(heaps->team[r].state->done[(r + 1) % size][s], 0);
        }
        heaps_destroy(heaps);
    }
}

/* Rank 0 raises signal 4 three times before rank 1 waits for it three times, and once. */
static void ahead(struct heaps *heaps, int rank, void *arg)
{
    struct job *job = arg;
    struct symm_cuda_args args = heaps_args(heaps, rank, 2);

    args.signal = 4;
    args.peer = 1 - rank;
    args.tag = job->tag[rank];
    args.result = &job->result[rank];
    for (int k = 0; k < 3 && !job->silent; k++)
        call(rank == 0 ? "symm_p2p_signal" : "symm_p2p_signal_wait", &args, 1, 32);
    if (rank == 1)
        call("symm_p2p_signal_wait", &args, 1, 32);
}

static void check_failed(struct heaps *heaps, const struct job *job, uint32_t why,
                         uint32_t counter, uint64_t seen)
{
    const struct symm_device_record *record = heaps->team[1].record;

    assert_int_equal(record->state, why);
    assert_int_equal(record->channel, SYMM_CHANNELS);
    assert_int_equal(record->signal, 4);
    assert_int_equal(record->missing[0], 1);
    assert_int_equal(record->tag, job->tag[1]);
    assert_int_equal(record->counter, counter);
    assert_int_equal(record->seen[0], seen);
    assert_int_equal(job->result[1], why);
    assert_int_equal(heaps->team[1].state->failed[16 * 2], why);
    assert_int_equal(heaps->team[1].state->stopped, why);
    assert_int_equal(heaps->team[1].state->awaited[0][4], counter - 1);
    assert_int_equal(heaps->team[0].record->state, 0);
}

static void test_timeout(void **unused)
{
    struct heaps *heaps = NULL;
    struct job job = {.tag = {5, 5}};
    double patience;

    (void)unused;
    HARNESS_PATIENCE(patience, 0.2) /* for the signals that do come */
    {
        if (heaps)
            heaps_destroy(heaps);
        heaps = open_heaps(2, patience);
        heaps_run(heaps, ahead, &job);
        if (heaps->team[1].record->counter == 4)
            break;
    }
    check_failed(heaps, &job, -SYMM_ERR_TIMEOUT, 4, symm_device_word(5, 3));
    /* The channel has failed: a put after it does nothing, and says why. */
    struct symm_cuda_args args = heaps_args(heaps, 1, 2);
    args.in = heaps_at(heaps, 1, heaps->buffers);
    args.out = heaps_at(heaps, 0, heaps->buffers + AREA);
    memset((void *)(uintptr_t)args.in, 7, 64);
    args.bytes = 64;
    args.signal = 4;
    args.result = &job.result[0];
    call("symm_p2p_put", &args, 2, 32);
    assert_int_equal(job.result[0], -SYMM_ERR_TIMEOUT);
    assert_int_equal(*(unsigned char *)args.out, 0);
    assert_int_equal(heaps->team[1].state->sent[0][4], 0);
    heaps_destroy(heaps);
}

static void test_mismatch_and_abort(void **unused)
{
    struct heaps *heaps = open_heaps(2, 0);
    struct job job = {.tag = {5, 6}};

    (void)unused;
    /* One signal alone keeps its tag until it is awaited. */
    symm_device_signal(&heaps->team[0], 1, 4, 5);
    job.silent = true;
    heaps_run(heaps, ahead, &job);
    check_failed(heaps, &job, -SYMM_ERR_MISMATCH, 1, symm_device_word(5, 1));
    heaps_destroy(heaps);

    heaps = open_heaps(2, 0);
    heaps->team[1].record->abort = -SYMM_ERR_PEER_DEAD;
    heaps_run(heaps, ahead, &job);
    check_failed(heaps, &job, -SYMM_ERR_PEER_DEAD, 1, 0);
    heaps_destroy(heaps);
}

/* A kernel or the host has marked a failure. BEFORE: the failure is of another team, whose call is
 * in front on the stream; a kernel of that team marks that call's channel. */
enum mark { OF_KERNEL, OF_HOST, BEFORE_OF_KERNEL, BEFORE_OF_HOST, MARKS };

static void set_mark(struct heaps *heaps, enum mark mark, struct symm_cuda_args *args)
{
    struct symm_device_state *own = heaps->team[1].state;
    struct symm_device_state *other = heaps->team[0].state; /* as good as a team's */

    args->before = other;
    args->flags =
        mark < BEFORE_OF_KERNEL ? 0 : SYMM_CUDA_BEFORE | 5 << SYMM_CUDA_BEFORE_SHIFT;
    if (mark == OF_KERNEL)
        own->stopped = -SYMM_ERR_TIMEOUT;
    else if (mark == OF_HOST)
        own->reported = -SYMM_ERR_TIMEOUT;
    else if (mark == BEFORE_OF_KERNEL)
        other->failed[16 * 5] = -SYMM_ERR_TIMEOUT;
    else
        other->reported = -SYMM_ERR_TIMEOUT;
}

/* After a mark a kernel does nothing, also where the awaited signal is there, and says why. */
static void run_marked(enum mark mark, const char *kernel, unsigned blocks)
{
    struct heaps *heaps = open_heaps(2, 0);
    struct symm_cuda_args args = heaps_args(heaps, 1, 2);
    const struct symm_device_state *state = heaps->team[1].state;
    uint32_t result = 0;

    args.in = heaps_at(heaps, 1, heaps->buffers);
    args.out = heaps_at(heaps, 0, heaps->buffers + AREA);
    memset(heaps_at(heaps, 1, heaps->buffers), 7, 64);
    args.bytes = 64;
    args.signal = 4;
    args.result = &result;
    symm_device_pad(&heaps->team[1], 1)->signals[0][4] = symm_device_word(args.tag, 1);
    set_mark(heaps, mark, &args);
    call(kernel, &args, blocks, 32);
    assert_int_equal(result,
                     mark < BEFORE_OF_KERNEL ? -SYMM_ERR_TIMEOUT : -SYMM_ERR_ABORTED);
    assert_int_equal(*(unsigned char *)args.out, 0);
    assert_int_equal(symm_device_pad(&heaps->team[0], 0)->signals[1][4], 0);
    assert_int_equal(state->sent[0][4], 0);
    assert_int_equal(state->awaited[0][4], 0);
    assert_int_equal(state->done[0][4], 0);
    heaps_destroy(heaps);
}

static void test_marked(void **unused)
{
    (void)unused;
    for (int mark = 0; mark < MARKS; mark++) {
        run_marked((enum mark)mark, "symm_p2p_put", 1);
        run_marked((enum mark)mark, "symm_p2p_put", 3);
        run_marked((enum mark)mark, "symm_p2p_signal", 1);
        run_marked((enum mark)mark, "symm_p2p_signal_wait", 1);
    }
}

/* ---- symm/device.h as host code -------------------------------------------------- */

#define BARRIERS 300

/* Each rank writes its word before a barrier and reads everybody's after it. */
static void generated(struct heaps *heaps, int rank, void *arg)
{
    const struct symm_device_team *team = &heaps->team[rank];
    uint32_t *mine = heaps_at(heaps, rank, heaps->buffers);
    struct job *job = arg;
    uint64_t seed = 3 + (uint64_t)rank;

    for (uint32_t k = 1; k <= BARRIERS; k++) {
        uint32_t blocks = 1 + k % 3;

        heaps_delay(&seed, 100);
        mine[k & 1] = k;
        for (uint32_t b = 0; b < blocks; b++)
            job->wrong[rank] += symm_device_barrier(team, 5, b, blocks, 77) != 0;
        for (int p = 0; p < team->size; p++) {
            const uint32_t *theirs = symm_device_peer(team, mine, p);

            job->wrong[rank] += theirs[k & 1] != k;
        }
    }
}

static void test_device_barrier(void **unused)
{
    struct heaps_options options = {.size = 4,
                                    .ll = 4096,
                                    .lamport = 4096,
                                    .stage = 4096,
                                    .buffers = AREA,
                                    .first_round = SYMM_ROUND_LIMIT - 100};
    struct heaps *heaps = heaps_create(&options);
    struct job job = {0};

    (void)unused;
    assert_true(symm_device_layout_ok(&heaps->team[3]));
    heaps_run(heaps, generated, &job);
    heaps_check(heaps, 5);
    for (int r = 0; r < 4; r++)
        assert_int_equal(job.wrong[r], 0);
    assert_int_equal(heaps->team[0].state->block[5][0].round, BARRIERS - 100);
    heaps->team[3].layout++;
    assert_false(symm_device_layout_ok(&heaps->team[3]));
    heaps_destroy(heaps);
}

static void arrive(struct heaps *heaps, int rank, void *arg)
{
    struct job *job = arg;

    if (rank != 2 || !job->silent)
        job->result[rank] =
            (uint32_t)symm_device_barrier(&heaps->team[rank], 1, 0, 1, job->tag[rank]);
}

static void test_device_failures(void **unused)
{
    struct heaps *heaps = open_heaps(3, 0.2);
    struct job job = {.tag = {4, 4, 4}, .silent = true};

    (void)unused;
    heaps_run(heaps, arrive, &job);
    for (int r = 0; r < 2; r++) {
        const struct symm_device_record *record = heaps->team[r].record;

        /* Who ends first takes its arrival back. */
        assert_true(job.result[r] == SYMM_DEVICE_TIMEOUT ||
                    job.result[r] == SYMM_DEVICE_ABORTED);
        assert_int_equal(record->state, job.result[r]);
        assert_true((record->missing[0] & 4) != 0);
        assert_int_equal(record->channel, 1);
        assert_int_equal(record->counter, 1);
        assert_int_equal(heaps->team[r].state->stopped, job.result[r]);
        assert_int_equal(symm_device_barrier(&heaps->team[r], 1, 0, 1, 4),
                         job.result[r]);
    }
    assert_true(job.result[0] == SYMM_DEVICE_TIMEOUT ||
                job.result[1] == SYMM_DEVICE_TIMEOUT);
    heaps_destroy(heaps);

    heaps = open_heaps(3, 0);
    job = (struct job){.tag = {4, 4, 8}};
    heaps_run(heaps, arrive, &job);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(job.result[r], SYMM_DEVICE_MISMATCH);
        assert_int_equal(heaps->team[r].record->state, SYMM_DEVICE_MISMATCH);
        assert_true((heaps->team[r].record->missing[0] & (r == 2 ? 3u : 4u)) != 0);
    }
    heaps_destroy(heaps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring),
        cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_mismatch_and_abort),
        cmocka_unit_test(test_marked),
        cmocka_unit_test(test_device_barrier),
        cmocka_unit_test(test_device_failures),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
