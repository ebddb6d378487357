/* SPDX-License-Identifier: MIT */
/*
 * device.h - for suites that run on GPUs and, in their absence, over the fake driver: the
 * rank's device, and a team's buffers with a copy of each in memory of the host.
 *
 * A suite that begins with device_suite() runs its ranks on the CUDA backend: on the fake
 * driver unless SYMM_TEST_GPU=1, then on the machine's GPUs, as many ranks as there are. In a
 * build without kernels the fake driver gets modules by images.h.
 */
#ifndef SYMM_TESTS_DEVICE_H
#define SYMM_TESTS_DEVICE_H

#include "harness.h"
#include "perf/gpu.h"

/* Sets the environment for ranks that are started later. Ends the program with 77 where
 * neither GPUs are asked for nor a fake driver was built. */
void device_suite(void);
bool device_real(void);
/* Numbers of ranks that can run: on GPUs at most their number, else at most `most`. */
int device_ranks(int most);

/* Memory that kernels can reach. */
struct device_area {
    struct perf_gpu *gpu;
    char *device; /* what calls get */
    char *host;   /* as large */
    size_t bytes;
    symm_buffer *buffer; /* NULL: private memory */
};

/* Opens the rank's device; in a rank. NULL: failed, said so. */
struct perf_gpu *device_open(symm_ctx *ctx);
/* Symmetric if team is not NULL (a rendezvous follows by the caller). 0, or 1. */
int device_area_open(struct device_area *area, struct perf_gpu *gpu, symm_team *team,
                     size_t bytes);
void device_area_close(struct device_area *area);
/* [at, at + bytes) from and to the host's copy. 0, or 1. */
int device_put(const struct device_area *area, size_t at, size_t bytes);
int device_get(const struct device_area *area, size_t at, size_t bytes);

#endif
