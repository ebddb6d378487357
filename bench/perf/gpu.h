/* SPDX-License-Identifier: MIT */
/*
 * gpu.h - this rank's GPU: memory, copies, graphs, events.
 *
 * The driver is opened at run time (SYMM_CUDA_LIBRARY, else libcuda.so.1), so that
 * symm-perf starts on machines without a driver. The device's primary context becomes
 * current on the opening thread, so that libsymm uses the same device. If a call of the
 * driver fails, a message names the call and its result.
 */
#ifndef PERF_GPU_H
#define PERF_GPU_H

#include "symm/symm.h"

struct perf_gpu;

/* NULL, without a message: no driver, or no device. */
struct perf_gpu *perf_gpu_open(int local_rank);
void perf_gpu_close(struct perf_gpu *gpu);       /* NULL is allowed */
int perf_gpu_driver(const struct perf_gpu *gpu); /* 13000 */
/* How device `from` reaches `to`: 'A' with atomics (NVLink), 'P' without, '-' not at all. */
char perf_gpu_link(const struct perf_gpu *gpu, int from, int to);

/* Zeroed device memory; NULL after a message. */
void *perf_gpu_alloc(struct perf_gpu *gpu, size_t bytes);
void perf_gpu_free(struct perf_gpu *gpu, void *memory);
/* Copies between memories of either kind, and returns when the copy is done. SYMM_ERR_SYSTEM:
 * after a message; so do the functions below. */
symm_status perf_gpu_copy(struct perf_gpu *gpu, void *dst, const void *src,
                          size_t bytes);
symm_status perf_gpu_fill(struct perf_gpu *gpu, void *dst, int byte, size_t bytes);
/* Waits until the stream is idle. */
symm_status perf_gpu_wait(struct perf_gpu *gpu, void *stream);

/* Queues a copy on the stream, and returns at once. */
symm_status perf_gpu_copy_later(struct perf_gpu *gpu, void *dst, const void *src,
                                size_t bytes, void *stream);
symm_status perf_gpu_fill_later(struct perf_gpu *gpu, void *dst, int byte, size_t bytes,
                                void *stream);

/* Later work of stream `after` waits for the work queued on `before` now. */
symm_status perf_gpu_order(struct perf_gpu *gpu, void *before, void *after);
/* The same for several streams by one event; a NULL stream is skipped. */
symm_status perf_gpu_fork(struct perf_gpu *gpu, void *before, void *const *after,
                          int count);

/* Work queued on the stream between begin and end goes into a graph. */
symm_status perf_gpu_capture(struct perf_gpu *gpu, void *stream);
symm_status perf_gpu_captured(struct perf_gpu *gpu, void *stream, void **graph);
symm_status perf_gpu_replay(struct perf_gpu *gpu, void *graph, void *stream);
void perf_gpu_graph_free(struct perf_gpu *gpu, void *graph);

/* Marks 0 and 1 on a stream; elapsed waits for both and gives the microseconds between. */
symm_status perf_gpu_mark(struct perf_gpu *gpu, int which, void *stream);
symm_status perf_gpu_elapsed(struct perf_gpu *gpu, double *microseconds);

#endif
