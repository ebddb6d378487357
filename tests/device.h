/* SPDX-License-Identifier: MIT */
/*
 * device.h - for suites that run on GPUs or over the fake driver: the rank's device, and a
 * team's buffers, each with a copy in host memory.
 *
 * A suite that begins with device_suite() runs its ranks on the CUDA backend: with
 * SYMM_TEST_GPU=1 on the machine's GPUs, one rank each, else on the fake driver. In a build
 * without kernels images.h provides modules for the fake driver.
 */
#ifndef SYMM_TESTS_DEVICE_H
#define SYMM_TESTS_DEVICE_H

#include "harness.h"
#include "perf/gpu.h"

/* Sets the environment of later ranks. Ends the program with 77 if SYMM_TEST_GPU is not 1
 * and no fake driver was built. */
void device_suite(void);
bool device_real(void);
/* The number of ranks that can run: at most `most`; on GPUs at most their number, unless
 * SYMM_OVERSUBSCRIBE=1 lets processes share them. */
int device_ranks(int most);

/* Memory that kernels can reach. */
struct device_area {
    struct perf_gpu *gpu;
    char *device; /* the argument of calls */
    char *host;   /* of the same size */
    size_t bytes;
    symm_buffer *buffer; /* NULL: private memory */
};

/* Opens the device of the calling rank. NULL after a message. */
struct perf_gpu *device_open(symm_ctx *ctx);
/* Symmetric if team is not NULL; the caller then makes the rendezvous. 0, or 1. */
int device_area_open(struct device_area *area, struct perf_gpu *gpu, symm_team *team,
                     size_t bytes);
void device_area_close(struct device_area *area);
/* Copy [at, at + bytes) from and to the host's copy. 0, or 1. */
int device_put(const struct device_area *area, size_t at, size_t bytes);
int device_get(const struct device_area *area, size_t at, size_t bytes);

#define DEVICE_STREAMS 32 /* of a rank, at most */

/* What most suites need of a rank of the world. */
struct device_rank {
    symm_ctx *ctx;
    symm_team *team; /* the world */
    struct perf_gpu *gpu;
    struct device_area in, out, heap; /* heap: symmetric */
    void *streams[DEVICE_STREAMS];
    int rank, n, count; /* count: streams */
};

/* Areas of so many bytes. heap 0: no symmetric area, and no rendezvous. 0, or 1. */
int device_rank_open(struct device_rank *s, symm_ctx *ctx, size_t in, size_t out,
                     size_t heap, int streams);
void device_rank_close(struct device_rank *s);
/* Some all_reduces of the ranks' numbers in the world plus 1, with arrays in symmetric or in private
 * memory, are right. 0, or 1. */
int device_sums(symm_team *team, struct perf_gpu *gpu, bool symmetric);

#endif
