/* SPDX-License-Identifier: MIT */
/*
 * contenders.h - what pair.c and job.c compare at each size, their options and their output.
 *
 * Data are bfloat16. A contender is a graph of `calls` calls in which each call's residual is the
 * last one's. All contenders take turns for `replays` rounds, in one order and in the other.
 */
#ifndef BENCH_NORM_CONTENDERS_H
#define BENCH_NORM_CONTENDERS_H

#include "norm/expect.h"
#include "norm/peer.h"

#define NORM_CONTENDERS 32
#define NORM_SHAPES     64
#define NORM_EPS        1e-6f

enum norm_what {
    NORM_PLAIN,    /* all_reduce alone */
    NORM_UNFUSED,  /* all_reduce, and a kernel for the rest */
    NORM_FUSED,    /* one kernel */
    NORM_CONSTANT, /* the same, of weights that no kernel before it writes */
    NORM_PEER      /* TensorRT-LLM's kernel */
};

struct norm_contender {
    char name[40];
    enum norm_what what;
    bool fp8; /* quant_out by a scale in device memory, in place of norm_out */
    struct norm_peer_kind peer;
    bool dropped; /* it cannot do the size, or has failed */
    size_t wrong; /* elements of the checked replay */
    double *times, median, p99;
    void *graphs[8]; /* of each rank that the program has */
};

struct norm_shape {
    size_t rows, hidden;
};

struct norm_bench {
    struct norm_shape shapes[NORM_SHAPES];
    int shape_count, calls, replays, processors;
    double seconds;                   /* the watchdog's */
    const char *peer, *only, *out;    /* libnorm_peer.so; a name's begin; a file */
    norm_peer_launch_fn *launch_peer; /* NULL: no such library */
    struct norm_contender contenders[NORM_CONTENDERS];
    int count;
    size_t wrong; /* of all sizes */
    int failed;
    void *file;
};

/* 0, or 2 after a sentence. `program`: for its usage. */
int norm_bench_parse(struct norm_bench *bench, const char *program, int argc,
                     char **argv);
size_t norm_bench_most(const struct norm_bench *bench); /* bytes of the largest size */
/* For a size; times are empty. */
void norm_bench_begin(struct norm_bench *bench);
/* The contender whose turn it is: turn i of a round. NULL: that one is dropped. */
struct norm_contender *norm_bench_turn(struct norm_bench *bench, int round, int i);
/* Of the contender's times; then the row of the size, by the process that prints. */
void norm_contender_finish(struct norm_contender *contender, int replays);
void norm_bench_row(struct norm_bench *bench, const struct norm_shape *shape,
                    bool prints);
/* An exit status: 0, or 1 if something was wrong or failed. */
int norm_bench_end(struct norm_bench *bench, bool prints);

/* Queues TensorRT-LLM's kernel of a rank. False: it refuses the call; says so if `prints`. */
bool norm_bench_peer(const struct norm_bench *bench,
                     const struct norm_contender *contender, const symm_norm *norm,
                     int ranks, int rank, void **workspace, void *stream, bool prints);

/* What a call of the contender is, without addresses. */
symm_norm norm_call_of(const struct norm_contender *contender,
                       const struct norm_shape *shape);
/* Rows 0, step, 2 step, ... of an array: 'i' in, of a rank; 'r' residual before the first call;
 * 'w' weight, one row. */
void norm_fill_rows(const struct norm_shape *shape, int rank, char array, size_t step,
                    size_t rows, void *to);

/*
 * Checks what `calls` calls have left behind, in every element of small sizes and in some rows of
 * large ones. found: host copies of what the device has, in `sum_out`,
 * `residual_out`, `norm_out`, `quant_out`, as the contender has them. Adds to contender->wrong.
 */
void norm_contender_check(struct norm_contender *contender,
                          const struct norm_shape *shape, int ranks, int calls,
                          const symm_norm *found, float scale);

#endif
