/* SPDX-License-Identifier: MIT */
/*
 * gpu.h - the CUDA driver for the programs of this room, opened at run time
 * (SYMM_CUDA_LIBRARY, else libcuda.so.1). A call that fails ends the program with a sentence and
 * exit status 3; only gpu_open returns false instead.
 */
#ifndef BENCH_NORM_GPU_H
#define BENCH_NORM_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Opens device `device` modulo their number; its primary context becomes this thread's.
 * False: no driver, or no device. */
bool gpu_open(int device);
int gpu_processors(void);

/* Memory of the device, filled with `byte`, and pinned memory of the host, zero. */
void *gpu_alloc(size_t bytes, int byte);
void gpu_free(void *memory);
void *gpu_host(size_t bytes);
void gpu_host_free(void *memory);
/* Done when they return. */
void gpu_copy(void *to, const void *from, size_t bytes);
void gpu_fill(void *to, int byte, size_t bytes);
/* Queued. */
void gpu_copy_later(void *to, const void *from, size_t bytes, void *stream);
void gpu_fill_later(void *to, int byte, size_t bytes, void *stream);
void gpu_call_later(void (*function)(void *arg), void *arg, void *stream);

void *gpu_stream(void);
void gpu_stream_free(void *stream);
void gpu_wait(void *stream);
void *gpu_event(void);
void gpu_event_free(void *event);
void gpu_mark(void *event, void *stream);
void gpu_await(void *event, void *stream); /* the stream waits */
double gpu_us(void *first, void *last);    /* of events whose streams are idle */

/* Between the two, work queued on the stream goes into a graph, which gpu_captured returns. */
void gpu_capture(void *stream);
void *gpu_captured(void *stream);
void gpu_replay(void *graph, void *stream);
void gpu_graph_free(void *graph);

/* Kernels: a module of an image, a function of it, a launch. */
void *gpu_module(const void *image, const char *name);
void *gpu_function(void *module, const char *name);
void gpu_launch(void *function, unsigned blocks, unsigned threads, unsigned cluster,
                bool dependent, void *args, void *stream);

/* Ends the program, exit status 4, if gpu_alive is not called for so many seconds. */
void gpu_watch(double seconds);
void gpu_alive(const char *what);
double gpu_clock(void); /* seconds */

#endif
