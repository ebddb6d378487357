/* SPDX-License-Identifier: MIT */
/*
 * mpi_allreduce.c - times MPI_Allreduce of float32 sums by the method of symm-perf and
 * floor.c.
 *
 * Ranks are pinned; each rewrites its whole input before each call, untimed; the clock
 * is read before and after the call; nothing else orders the ranks. The first result
 * of a size is checked whole, later ones in three elements. Rank 0 prints the slowest
 * rank's figures. Usage: mpi_allreduce [NAME [SCALE [BYTES...]]]; a wrong result aborts
 * the job.
 */
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum figure { MEDIAN, P99, LEAST, MEAN, FIGURES };

struct bench {
    int rank, size;
    float *in, *out, *times;
};

static const long default_sizes[] = {8, 1024, 8192, 65536, 524288, 4194304, 67108864};

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static int compare_floats(const void *left, const void *right)
{
    float a = *(const float *)left, b = *(const float *)right;

    return (a > b) - (a < b);
}

static int iterations_for(long bytes, double scale)
{
    int iterations = bytes <= 8192      ? 20000
                     : bytes <= 65536   ? 8000
                     : bytes <= 524288  ? 2000
                     : bytes <= 4194304 ? 300
                                        : 30;

    iterations = (int)(iterations * scale);
    return iterations < 10 ? 10 : iterations;
}

/* The launcher must not bind, so that both MPIs are bound alike: rank r to the r-th
 * core of its affinity mask. */
static void pin(int rank)
{
    cpu_set_t all, one;
    size_t cpu = 0;
    int wanted;

    if (sched_getaffinity(0, sizeof all, &all) || CPU_COUNT(&all) == 0)
        return;
    wanted = rank % CPU_COUNT(&all);
    while (!CPU_ISSET(cpu, &all) || wanted-- > 0)
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}

static void expect(const struct bench *bench, int at, int count, int base)
{
    int n = bench->size;

    if (bench->out[at] == (float)(n * base + n * (n - 1) / 2))
        return;
    fprintf(stderr, "mpi_allreduce: rank %d: element %d of %d is wrong\n", bench->rank,
            at, count);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void call(const struct bench *bench, int count)
{
    MPI_Allreduce(bench->in, bench->out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void check_whole(const struct bench *bench, int count)
{
    for (int i = 0; i < count; i++) {
        bench->in[i] = (float)(i % 31 + bench->rank);
        bench->out[i] = -1;
    }
    call(bench, count);
    for (int i = 0; i < count; i++)
        expect(bench, i, count, i % 31);
}

static double time_call(const struct bench *bench, int count, int base)
{
    float value = (float)(base + bench->rank);

    for (int i = 0; i < count; i++)
        bench->in[i] = value;
    double begin = now();
    call(bench, count);
    double elapsed = now() - begin;
    expect(bench, 0, count, base);
    expect(bench, count / 2, count, base);
    expect(bench, count - 1, count, base);
    return elapsed;
}

static void measure(const struct bench *bench, const char *name, long bytes,
                    double scale)
{
    int count = (int)(bytes / (long)sizeof(float)),
        iterations = iterations_for(bytes, scale);
    double mine[FIGURES], slowest[FIGURES], total = 0;

    check_whole(bench, count);
    for (int i = -(iterations / 10 + 5); i < iterations; i++) {
        double elapsed = time_call(bench, count, i & 7);
        if (i >= 0) {
            bench->times[i] = (float)elapsed;
            total += elapsed;
        }
    }
    qsort(bench->times, (size_t)iterations, sizeof *bench->times, compare_floats);
    mine[MEDIAN] = (double)bench->times[iterations / 2];
    mine[P99] = (double)bench->times[(int)(iterations * 0.99)];
    mine[LEAST] = (double)bench->times[0];
    mine[MEAN] = total / iterations;
    MPI_Reduce(mine, slowest, FIGURES, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (bench->rank == 0) {
        printf(
            "%s ranks=%d bytes=%ld n=%d median=%.3f us p99=%.3f min=%.3f mean=%.3f\n",
            name, bench->size, bytes, iterations, slowest[MEDIAN], slowest[P99],
            slowest[LEAST], slowest[MEAN]);
        fflush(stdout);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "mpi";
    double scale = argc > 2 ? atof(argv[2]) : 1;
    size_t most = (size_t)64 << 20;
    struct bench bench;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &bench.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &bench.size);
    pin(bench.rank);
    bench.in = aligned_alloc(4096, most);
    bench.out = aligned_alloc(4096, most);
    bench.times = calloc((size_t)iterations_for(0, scale), sizeof *bench.times);
    if (!bench.in || !bench.out || !bench.times || !(scale > 0)) {
        fprintf(stderr, "mpi_allreduce: out of memory, or SCALE is not above 0\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    memset(bench.in, 0, most);
    memset(bench.out, 0, most);
    for (int i = 3; i < argc; i++) {
        long bytes = atol(argv[i]);
        if (bytes >= (long)sizeof(float) && (size_t)bytes <= most)
            measure(&bench, name, bytes, scale);
    }
    for (size_t i = 0; argc <= 3 && i < sizeof default_sizes / sizeof *default_sizes;
         i++)
        measure(&bench, name, default_sizes[i], scale);
    free(bench.in);
    free(bench.out);
    free(bench.times);
    MPI_Finalize();
    return 0;
}
