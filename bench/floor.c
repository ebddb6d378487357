/* SPDX-License-Identifier: MIT */
/*
 * floor.c - the reachable floor of an all-reduce between processes of one machine:
 * minimal C11 atomics over a memfd mapping, float32 sum, no error handling.
 *
 * A separate program, for comparisons: it shares no code with libsymm. Modes:
 *   copyin   each rank copies its input into its own shared slot (two in turn); after
 *            one round of signals it adds all slots into its private output
 *   symm     the input is in shared memory: a round, the sum of all, a second round
 *   symm1    as symm without the second round, two inputs in turn: a lower bound
 *   twoshot  in place in shared memory: each rank adds its slice of all buffers and
 *            writes the sum to each
 * Method: method.h; the slowest rank's median counts. The first result of a size is checked
 * whole, later results in three elements. Exit status 2: an unknown argument; 1: a wrong result.
 */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3") /* without vectorised sums the floor would be too high */
#endif

#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "method.h"

#define MOST_RANKS 16
#define MOST_SIZES 32
#define SLOT       ((size_t)64 << 20) /* the largest size; two slots per rank */
#define PIECE      4096               /* elements that twoshot adds at a time */

enum mode { COPYIN, SYMM, SYMM1, TWOSHOT, MODES };
static const char *const mode_names[MODES] = {"copyin", "symm", "symm1", "twoshot"};

struct pad { /* one per rank: the round at which it has arrived */
    _Alignas(128) _Atomic uint32_t epoch;
};

struct shared { /* followed by the slots */
    struct pad pads[MOST_RANKS];
    _Alignas(4096) double figures[MOST_RANKS][MOST_SIZES][FIGURES];
};

struct rank {
    struct shared *shared;
    char *slots;
    enum mode mode;
    bool yields; /* a waiting rank calls sched_yield */
    int rank, size;
    uint32_t epoch;
    int half; /* which of the two slots is in use */
};

struct run {
    enum mode mode;
    bool yields;
    int ranks;
    double scale; /* of the iteration counts */
    size_t sizes[MOST_SIZES];
    int size_count;
};

/* ---- The all-reduces ------------------------------------------------------------- */

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* A round of signals between all ranks. */
static void synchronize(struct rank *me)
{
    /* release: pairs with the acquire below */
    atomic_store_explicit(&me->shared->pads[me->rank].epoch, ++me->epoch,
                          memory_order_release);
    for (int k = 1; k < me->size; k++) {
        _Atomic uint32_t *epoch = &me->shared->pads[(me->rank + k) % me->size].epoch;
        unsigned polls = 0;
        /* acquire: pairs with the release above */
        while ((int32_t)(atomic_load_explicit(epoch, memory_order_acquire) -
                         me->epoch) < 0) {
            if (++polls >= 200 && me->yields)
                sched_yield();
            else if (polls > 64)
                relax();
        }
    }
}

static float *slot(const struct rank *me, int rank, int half)
{
    return (float *)(void *)(me->slots + ((size_t)rank * 2 + (size_t)half) * SLOT);
}

/* out[i] = in[0][i] + in[1][i] + ..., in rank order; out overlaps none of them. */
static void add(float *restrict out, float *const *in, int n, size_t begin, size_t end)
{
    const float *a = in[0], *b = in[n > 1], *c = in[n > 2 ? 2 : 0],
                *d = in[n > 3 ? 3 : 0];

    if (n == 2) {
        for (size_t i = begin; i < end; i++)
            out[i - begin] = a[i] + b[i];
    } else if (n == 4) {
        for (size_t i = begin; i < end; i++)
            out[i - begin] = ((a[i] + b[i]) + c[i]) + d[i];
    } else {
        for (size_t i = begin; i < end; i++) {
            float sum = a[i];
            for (int p = 1; p < n; p++)
                sum += in[p][i];
            out[i - begin] = sum;
        }
    }
}

static void find_slots(const struct rank *me, int half, float **slots)
{
    for (int p = 0; p < me->size; p++)
        slots[p] = slot(me, p, half);
}

static void run_copyin(struct rank *me, const float *in, float *out, size_t count)
{
    float *slots[MOST_RANKS];

    memcpy(slot(me, me->rank, me->half), in, count * sizeof *in);
    synchronize(me);
    find_slots(me, me->half, slots);
    add(out, slots, me->size, 0, count);
    me->half ^= 1;
}

static void run_symm(struct rank *me, float *out, size_t count)
{
    float *slots[MOST_RANKS];

    synchronize(me);
    find_slots(me, me->half, slots);
    add(out, slots, me->size, 0, count);
    if (me->mode == SYMM1) {
        me->half ^= 1;
        return;
    }
    synchronize(me);
}

static void run_twoshot(struct rank *me, size_t count)
{
    size_t begin = count * (size_t)me->rank / (size_t)me->size;
    size_t end = count * ((size_t)me->rank + 1) / (size_t)me->size;
    float *slots[MOST_RANKS], sums[PIECE];

    synchronize(me);
    find_slots(me, 0, slots);
    for (size_t i = begin; i < end; i += PIECE) {
        size_t until = i + PIECE < end ? i + PIECE : end;
        add(sums, slots, me->size, i, until);
        for (int p = 0; p < me->size; p++)
            memcpy(slots[p] + i, sums, (until - i) * sizeof *sums);
    }
    synchronize(me);
}

static void all_reduce(struct rank *me, const float *in, float *out, size_t count)
{
    if (me->mode == COPYIN)
        run_copyin(me, in, out, count);
    else if (me->mode == TWOSHOT)
        run_twoshot(me, count);
    else
        run_symm(me, out, count);
}

/* ---- Measuring ------------------------------------------------------------------- */

struct buffers {
    struct rank *me;
    size_t count; /* elements of the size that is measured */
    float *private_in, *private_out;
    float *times;
};

static float *input_of(const struct buffers *buffers)
{
    const struct rank *me = buffers->me;

    return me->mode == COPYIN ? buffers->private_in : slot(me, me->rank, me->half);
}

static float *output_of(const struct buffers *buffers)
{
    const enum mode mode = buffers->me->mode;

    return mode == SYMM || mode == SYMM1 ? buffers->private_out : input_of(buffers);
}

/* The sum over the ranks of (base + rank). */
static float expected(const struct rank *me, int base)
{
    return (float)(me->size * base + me->size * (me->size - 1) / 2);
}

static void check_whole(const struct buffers *buffers)
{
    struct rank *me = buffers->me;
    const size_t count = buffers->count;
    float *in = input_of(buffers), *out = output_of(buffers);

    for (size_t i = 0; i < count; i++)
        in[i] = (float)(i % 31) + (float)me->rank;
    all_reduce(me, in, out, count);
    for (size_t i = 0; i < count; i++) {
        if (out[i] != expected(me, (int)(i % 31))) {
            fprintf(stderr, "floor: rank %d: element %zu of %zu is wrong\n", me->rank,
                    i, count);
            _exit(1);
        }
    }
    /* No rank refills its input while a slower peer may still read it. */
    all_reduce(me, input_of(buffers), output_of(buffers), count);
}

static double time_call(void *arg, int base)
{
    const struct buffers *buffers = arg;
    struct rank *me = buffers->me;
    const size_t count = buffers->count;
    float *in = input_of(buffers), *out = output_of(buffers);
    float value = (float)(base + me->rank), sum = expected(me, base);

    for (size_t i = 0; i < count; i++)
        in[i] = value;
    double begin = now();
    all_reduce(me, in, out, count);
    double elapsed = now() - begin;
    if (out[0] != sum || out[count / 2] != sum || out[count - 1] != sum) {
        fprintf(stderr, "floor: rank %d: a result of %zu elements is stale\n", me->rank,
                count);
        _exit(1);
    }
    return elapsed;
}

static void measure(struct buffers *buffers, const struct run *run, int which)
{
    struct rank *me = buffers->me;
    size_t bytes = run->sizes[which];

    buffers->count = bytes / sizeof(float);
    check_whole(buffers);
    memset(input_of(buffers), 0, bytes);
    time_all(time_call, buffers, buffers->times, iterations_for(bytes, run->scale),
             me->shared->figures[me->rank][which]);
    all_reduce(me, input_of(buffers), output_of(buffers), buffers->count);
}

static void run_rank(struct rank *me, const struct run *run)
{
    struct buffers buffers = {.me = me};

    pin(me->rank);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    memset(slot(me, me->rank, 0), 0, 2 * SLOT);
    buffers.private_in = aligned_alloc(4096, SLOT);
    buffers.private_out = aligned_alloc(4096, SLOT);
    buffers.times =
        calloc((size_t)iterations_for(0, run->scale), sizeof *buffers.times);
    if (!buffers.private_in || !buffers.private_out || !buffers.times) {
        fprintf(stderr, "floor: rank %d: out of memory\n", me->rank);
        _exit(1);
    }
    memset(buffers.private_in, 0, SLOT);
    memset(buffers.private_out, 0, SLOT);
    for (int k = 0; k < run->size_count; k++)
        measure(&buffers, run, k);
    _exit(0);
}

/* ---- The program ----------------------------------------------------------------- */

static void report(const struct run *run, const struct shared *shared)
{
    for (int k = 0; k < run->size_count; k++) {
        double most[FIGURES] = {0};
        for (int r = 0; r < run->ranks; r++)
            for (int f = 0; f < FIGURES; f++)
                if (shared->figures[r][k][f] > most[f])
                    most[f] = shared->figures[r][k][f];
        printf("floor %s ranks=%d bytes=%zu n=%d median=%.3f us p99=%.3f min=%.3f "
               "mean=%.3f\n",
               mode_names[run->mode], run->ranks, run->sizes[k],
               iterations_for(run->sizes[k], run->scale), most[MEDIAN], most[P99],
               most[LEAST], most[MEAN]);
    }
}

static int run_all(const struct run *run)
{
    size_t head = sizeof(struct shared), bytes = head + (size_t)run->ranks * 2 * SLOT;
    int fd = memfd_create("floor", MFD_CLOEXEC), failed = 0;
    pid_t pids[MOST_RANKS];
    struct shared *shared;

    if (fd < 0 || ftruncate(fd, (off_t)bytes)) {
        perror("floor: memfd");
        return 1;
    }
    shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED) {
        perror("floor: mmap");
        return 1;
    }
    for (int r = 0; r < run->ranks; r++) {
        struct rank me = {.shared = shared,
                          .slots = (char *)shared + head,
                          .mode = run->mode,
                          .yields = run->yields,
                          .rank = r,
                          .size = run->ranks};
        pids[r] = fork();
        if (pids[r] == 0)
            run_rank(&me, run);
        failed |= pids[r] < 0;
    }
    for (int r = 0; r < run->ranks; r++) {
        int status = 0;
        if (failed || waitpid(-1, &status, 0) < 0 || status) {
            for (int k = 0; k < run->ranks; k++)
                if (pids[k] > 0)
                    kill(pids[k], SIGKILL);
            return 1;
        }
    }
    report(run, shared);
    return 0;
}

static int usage(void)
{
    fprintf(stderr, "usage: floor copyin|symm|symm1|twoshot [-r RANKS] [-w spin|yield] "
                    "[-s BYTES,BYTES,...] [-x SCALE]\n");
    return 2;
}

static bool parse_sizes(struct run *run, char *text)
{
    char *save = NULL, *end;

    run->size_count = 0;
    for (char *word = strtok_r(text, ",", &save); word;
         word = strtok_r(NULL, ",", &save)) {
        size_t bytes = strtoul(word, &end, 10);
        if (*end || bytes < sizeof(float) || bytes > SLOT ||
            run->size_count == MOST_SIZES)
            return false;
        run->sizes[run->size_count++] = bytes;
    }
    return run->size_count > 0;
}

int main(int argc, char **argv)
{
    struct run run = {.mode = MODES,
                      .ranks = 2,
                      .scale = 1,
                      .sizes = {8, 1024, 8192, 65536, 524288, 4194304, 67108864},
                      .size_count = 7};
    bool right = true;
    int flag;

    while ((flag = getopt(argc, argv, "r:w:s:x:")) != -1) {
        if (flag == 'r')
            run.ranks = atoi(optarg);
        else if (flag == 'w' && strcmp(optarg, "yield") == 0)
            run.yields = true;
        else if (flag == 'w')
            right = right && strcmp(optarg, "spin") == 0;
        else if (flag == 's')
            right = right && parse_sizes(&run, optarg);
        else if (flag == 'x')
            run.scale = atof(optarg);
        else
            return usage();
    }
    for (int m = 0; m < MODES; m++)
        if (argc == optind + 1 && strcmp(argv[optind], mode_names[m]) == 0)
            run.mode = (enum mode)m;
    if (!right || run.mode == MODES || run.ranks < 2 || run.ranks > MOST_RANKS ||
        !(run.scale > 0 && run.scale <= 1000))
        return usage();
    return run_all(&run);
}
