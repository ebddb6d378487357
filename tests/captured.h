/* SPDX-License-Identifier: MIT */
/*
 * captured.h - for suites on graphs over memory that is not symmetric: a rank's memory and stream,
 * a list of calls of every collective and algorithm that uses peers' arrays, each with a place of
 * its own that differs by rank, and the check of their results.
 */
#ifndef SYMM_TESTS_CAPTURED_H
#define SYMM_TESTS_CAPTURED_H

#include "core/context.h"
#include "device.h"
#include "kernels/launch.h"

#define CAPTURED_MIB     ((size_t)1 << 20)
#define CAPTURED_AREA    (4 * CAPTURED_MIB)
#define CAPTURED_SECONDS HARNESS_AMPLE
#define CAPTURED_CALLS   64 /* places of calls; the list goes round */
#define CAPTURED_JOBS    15

struct captured_stage {
    symm_ctx *ctx;
    symm_team *team;
    struct perf_gpu *gpu;
    char *in, *out; /* device memory of CAPTURED_AREA bytes, of no heap */
    char *host;     /* of CAPTURED_AREA bytes */
    void *stream, *graph;
    int rank, n;
    bool mem;   /* of symm_mem_alloc */
    bool alike; /* inputs are at the same places on all ranks */
};

struct captured_job {
    enum symm_kind kind;
    const char *algorithm;
    symm_dtype dtype; /* of 4 bytes */
    bool in_place;
};

extern const struct captured_job captured_jobs[CAPTURED_JOBS];

int captured_area(struct captured_stage *s, char **area);
void captured_area_free(struct captured_stage *s, char *area);
/* mem: memory of symm_mem_alloc, else of cuMemAlloc. 0, or 1: so below. */
int captured_open(struct captured_stage *s, symm_ctx *ctx, bool mem);
void captured_close(struct captured_stage *s);

size_t captured_count(int k);
size_t captured_place(const struct captured_stage *s, bool in, int k);
/* Makes call k of a list. */
symm_status captured_make(const struct captured_stage *s, symm_team *team,
                          const struct captured_job *job, int k);
/* Element i of call k's input. */
int32_t captured_value(int rank, int k, int round, size_t i);
void captured_store(symm_dtype dtype, char *at, int32_t number);
int32_t captured_load(symm_dtype dtype, const char *at);
/* Element i of block q of call k's output. */
int32_t captured_wanted(const struct captured_stage *s, const struct captured_job *job,
                        int k, int round, int q, size_t i);
/* The inputs of all calls for a round; outputs get a pattern. */
int captured_fill(struct captured_stage *s, const struct captured_job *list, int calls,
                  int round);
/* A job of SYMM_KIND_COUNT is passed over. */
int captured_check(struct captured_stage *s, const struct captured_job *list, int calls,
                   int round);
int captured_capture(struct captured_stage *s, symm_team *team,
                     const struct captured_job *list, int calls, void **graph);
/* Fills, replays at a random time, checks. */
int captured_replay(struct captured_stage *s, void *graph,
                    const struct captured_job *list, int calls, int round);

/* Allocations of peers that are mapped here. */
int captured_opened(const symm_ctx *ctx);
/* Runs the ranks in a child, so that the fake driver can look for what is left at its end. 0 also
 * where the machine has fewer devices. */
int captured_run(struct harness h);

#endif
