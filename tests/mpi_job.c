/* SPDX-License-Identifier: MIT */
/*
 * mpi_job.c - see mpi_job.h.
 */
#include "mpi_job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_whole(symm_dtype dtype)
{
    return strstr(symm_dtype_name(dtype), "int") != NULL;
}

void mpi_encode(symm_dtype dtype, double value, void *to)
{
    static const int mantissas[] = {0, 0, 10, 7, 3, 2},
                     biases[] = {0, 0, 15, 127, 7, 15};
    int64_t whole = (int64_t)value;
    float single = (float)value;
    size_t bytes = symm_dtype_size(dtype);
    if (dtype == SYMM_FLOAT64) {
        memcpy(to, &value, sizeof(value));
    } else if (dtype == SYMM_FLOAT32) {
        memcpy(to, &single, sizeof(single));
    } else if (!is_whole(dtype)) {
        int exponent = 0, bits = mantissas[dtype];
        double part = frexp(value, &exponent); /* 0.5 <= part < 1 */
        uint32_t raw = (uint32_t)((part * 2 - 1) * (1 << bits));
        raw |= (uint32_t)(exponent - 1 + biases[dtype]) << bits;
        memcpy(to, &raw, bytes);
    } else {
        memcpy(to, &whole, bytes);
    }
}

double mpi_given(int r, size_t i)
{
    return 1 + (double)((i * 7 + (size_t)r * 3 + i / 11) % 2);
}

double mpi_combined(symm_op op, int ranks, size_t i, bool whole)
{
    double sum = 0, product = 1, least = 9, most = 0;
    int all = 3, any = 0, odd = 0;
    for (int r = 0; r < ranks; r++) {
        double v = mpi_given(r, i);
        sum += v;
        product *= v;
        least = v < least ? v : least;
        most = v > most ? v : most;
        all &= (int)v;
        any |= (int)v;
        odd ^= (int)v;
    }
    switch (op) {
    case SYMM_SUM:
        return sum;
    case SYMM_AVG:
        return whole ? floor(sum / ranks) : sum / ranks;
    case SYMM_PROD:
        return product;
    case SYMM_MIN:
        return least;
    case SYMM_BAND:
        return all;
    case SYMM_BOR:
        return any;
    case SYMM_BXOR:
        return odd;
    default:
        return most;
    }
}

int mpi_check(const char *out, size_t i, symm_dtype dtype, double wanted,
              const char *what)
{
    char right[8] = {0};
    size_t bytes = symm_dtype_size(dtype);
    mpi_encode(dtype, wanted, right);
    CHECK_MESSAGE(memcmp(out + i * bytes, right, bytes) == 0,
                  "%s of %s: element %zu is not %g", what, symm_dtype_name(dtype), i,
                  wanted);
    return 0;
}

int mpi_start(int ranks, const char *mode)
{
    char self[4096], command[9000];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (length <= 0)
        return -1;
    self[length] = '\0';
    /* More ranks than cores, on this host alone, as whatever user runs the tests. */
    if (ranks == 0)
        snprintf(command, sizeof(command), "'%s' rank %s", self, mode);
    else
        snprintf(command, sizeof(command),
                 "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                 "OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl=self,vader,tcp "
                 "OMPI_MCA_mpi_yield_when_idle=1 timeout 300 '%s' -n %d '%s' rank %s",
                 SYMM_MPIEXEC, ranks, self, mode);
    return system(command);
}

void mpi_suite(void)
{
    if (SYMM_MPI_PLUGIN[0] == '\0' || access(SYMM_MPIEXEC, X_OK) != 0) {
        fprintf(stderr, "skipped: no MPI was found when the library was built\n");
        exit(77);
    }
    harness_clear_environment();
}

double mpi_wanted(const struct mpi_trial *t, int root, size_t i)
{
    bool whole = is_whole(t->dtype);
    size_t n = t->count, me = (size_t)t->me;
    switch (t->kind) {
    case SYMM_KIND_ALL_REDUCE:
        return mpi_combined(t->op, t->ranks, i, whole);
    case SYMM_KIND_REDUCE_SCATTER:
        return mpi_combined(t->op, t->ranks, me * n + i, whole);
    case SYMM_KIND_ALL_GATHER:
        return mpi_given((int)(i / n), i % n);
    case SYMM_KIND_BROADCAST:
        return mpi_given(root, i);
    default:
        return mpi_given((int)(i / n), me * n + i % n);
    }
}
