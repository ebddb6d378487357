/* SPDX-License-Identifier: MIT */
/*
 * mpi_allreduce.c - times MPI_Allreduce of float32 sums by the method of symm-perf and
 * floor.c (method.h).
 *
 * Only the calls order the ranks. The first result of a size is checked whole, later results
 * in three elements. Rank 0 prints the slowest rank's figures. A wrong result aborts the job.
 * Usage: mpi_allreduce [NAME [SCALE [BYTES...]]]
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "method.h"

struct bench {
    int rank, size;
    int count; /* elements of the size that is measured */
    float *in, *out, *times;
};

static const long default_sizes[] = {8, 1024, 8192, 65536, 524288, 4194304, 67108864};

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

static double time_call(void *arg, int base)
{
    const struct bench *bench = arg;
    const int count = bench->count;
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

static void measure(struct bench *bench, const char *name, long bytes, double scale)
{
    int iterations = iterations_for((size_t)bytes, scale);
    double mine[FIGURES], slowest[FIGURES];

    bench->count = (int)(bytes / (long)sizeof(float));
    check_whole(bench, bench->count);
    time_all(time_call, bench, bench->times, iterations, mine);
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
    pin(bench.rank); /* the launcher must not bind: so both MPIs are bound alike */
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
