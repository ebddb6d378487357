/* SPDX-License-Identifier: MIT */
/*
 * sim_driver.h - a CUDA driver for each rank in the simulator (sim.h): the fake driver
 * (fake_cuda.h) of lib/libfake_cuda_sim.so, whose streams are fibers of the rank.
 *
 * Each rank has a copy of the library, as each process has one, and all thread-local variables of
 * its own (sim_config.libraries). The device goes on while its rank is stopped, and ends with it.
 * For suites with `ctest: replaces symm__cuda_driver`.
 */
#ifndef SYMM_TESTS_SIM_DRIVER_H
#define SYMM_TESTS_SIM_DRIVER_H

#include "cuda/driver.h"
#include "sim.h"

struct sim_driver_config {
    unsigned slow;       /* operations of streams in 1024 that are slow, */
    double slow_seconds; /* by so much at most: before they begin */
};
extern struct sim_driver_config sim_driver_config;

/* Outside of simulations: loads the copies, which it writes into the folder; false: a message. */
bool sim_driver_open(const char *folder);
/* The running rank's, also functions that the table has not. */
void *sim_driver_symbol(const char *name);
/* What a rank has not given back to its driver. */
int sim_driver_leaks(int rank);

#endif
