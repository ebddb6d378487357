/* SPDX-License-Identifier: MIT */
/*
 * peer.h - TensorRT-LLM's fused kernel as FlashInfer carries it: what libnorm_peer.so has.
 *
 * bench/setup_flashinfer.sh makes that library of peer.cu and of the headers in FlashInfer's wheel.
 * It has all_reduce + residual + RMSNorm of bfloat16 for 2, 4 and 8 ranks, with and without
 * a quantisation to e4m3 by a scale that lies in device memory. A wait of its kernels has no
 * deadline.
 */
#ifndef BENCH_NORM_PEER_H
#define BENCH_NORM_PEER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What of its variants a call takes. */
struct norm_peer_kind {
    int two_shot;  /* else one-shot, by Lamport packets */
    int fp32;      /* sums in float32; else each partial sum is rounded */
    int dependent; /* launched with programmatic dependent launch */
    int early;     /* one-shot: the next kernel may begin at once, not at the end */
};

struct norm_peer_call {
    struct norm_peer_kind kind;
    int ranks, rank;
    int rows, hidden;
    void **workspace; /* device memory: norm_peer_words(ranks) addresses */
    const void *in, *weight;
    void *residual;     /* in and out */
    void *norm, *quant; /* norm; or quant, which is e4m3, and scale */
    float *scale;
    float eps;
    void *stream;
};

/*
 * The addresses of a rank's workspace: of every rank's `sums`, then of every rank's `flags`, then
 * of every rank's `packets`, then this rank's own counters.
 *   sums      NORM_PEER_SUMS(bytes) bytes
 *   flags     NORM_PEER_FLAGS(ranks) bytes, zero
 *   packets   NORM_PEER_PACKETS(ranks, bytes) bytes, every 2 of which are 0x8000
 *   counters  5 int32: 0, 0, 0, ranks x bytes, 0
 */
#define NORM_PEER_WORDS(ranks)          (3 * (size_t)(ranks) + 1)
#define NORM_PEER_SUMS(bytes)           (2 * (size_t)(bytes))
#define NORM_PEER_FLAGS(ranks)          (256 * sizeof(int32_t) * (size_t)(ranks))
#define NORM_PEER_PACKETS(ranks, bytes) (3 * (size_t)(ranks) * (size_t)(bytes))

/* 0; else a sentence in error. */
typedef int norm_peer_launch_fn(const struct norm_peer_call *call, char *error,
                                size_t error_bytes);
int norm_peer_launch(const struct norm_peer_call *call, char *error,
                     size_t error_bytes);

#ifdef __cplusplus
}
#endif
#endif
