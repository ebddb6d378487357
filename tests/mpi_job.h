/* SPDX-License-Identifier: MIT */
/*
 * mpi_job.h - for suites whose ranks are an MPI job: a suite starts itself under mpirun, and
 * its ranks give numbers whose sums and products every type holds exactly.
 */
#ifndef SYMM_TESTS_MPI_JOB_H
#define SYMM_TESTS_MPI_JOB_H

#include "harness.h"
#include "kernels/launch.h"

#ifndef SYMM_MPI_PLUGIN
#define SYMM_MPI_PLUGIN ""
#define SYMM_MPIEXEC    ""
#endif

/* Ends the suite with 77 where there is no MPI. */
void mpi_suite(void);
/* Runs this program as `PROGRAM rank MODE` on so many ranks; 0: without mpirun, alone.
 * 0 if all have ended with 0. */
int mpi_start(int ranks, const char *mode);

/* A small number that the type holds exactly, as its bits. */
void mpi_encode(symm_dtype dtype, double value, void *to);
/* What rank r gives as element i: 1 or 2. */
double mpi_given(int r, size_t i);
/* What that makes over all ranks; whole: in a type of integers. */
double mpi_combined(symm_op op, int ranks, size_t i, bool whole);

struct symm_engine_comm;
/* A collective among `ranks` ranks, of which this is rank `me`. */
struct mpi_trial {
    struct symm_engine_comm *comm; /* NULL: the library's */
    int me, ranks;
    enum symm_kind kind;
    symm_dtype dtype;
    symm_op op;
    size_t count;
    bool in_place;
};
/* What element i of its output must be. */
double mpi_wanted(const struct mpi_trial *trial, int root, size_t i);
/* Is out's element i the number? 0, or 1 with a word on stderr. */
int mpi_check(const char *out, size_t i, symm_dtype dtype, double wanted,
              const char *what);

#endif
