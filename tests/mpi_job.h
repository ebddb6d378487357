/* SPDX-License-Identifier: MIT */
/*
 * mpi_job.h - for suites whose ranks are an MPI job: a suite starts itself under mpirun. The
 * inputs are numbers whose sums and products are exact in every type.
 */
#ifndef SYMM_TESTS_MPI_JOB_H
#define SYMM_TESTS_MPI_JOB_H

#include "harness.h"
#include "kernels/launch.h"

#ifndef SYMM_MPI_PLUGIN
#define SYMM_MPI_PLUGIN ""
#define SYMM_MPIEXEC    ""
#endif

/* Ends the suite with 77 if there is no MPI. */
void mpi_suite(void);
/* Runs this program as `PROGRAM rank MODE` on `ranks` ranks (0: one process without
 * mpirun). 0 if all have ended with 0. */
int mpi_start(int ranks, const char *mode);

/* A small number that the type holds exactly, as its bits. */
void mpi_encode(symm_dtype dtype, double value, void *to);
/* Element i of rank r's input: 1 or 2. */
double mpi_given(int r, size_t i);
/* The reduction of element i over all ranks; whole: in an integer type. */
double mpi_combined(symm_op op, int ranks, size_t i, bool whole);

struct symm_engine_comm;
/* A collective of `ranks` ranks; this rank is `me`. */
struct mpi_trial {
    struct symm_engine_comm *comm; /* NULL: the library's */
    int me, ranks;
    enum symm_kind kind;
    symm_dtype dtype;
    symm_op op;
    size_t count;
    bool in_place;
};
/* The expected element i of its output. */
double mpi_wanted(const struct mpi_trial *trial, int root, size_t i);
/* 0 if element i of out is the number, or 1 after a message. */
int mpi_check(const char *out, size_t i, symm_dtype dtype, double wanted,
              const char *what);

#endif
