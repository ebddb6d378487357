/* SPDX-License-Identifier: MIT */
/*
 * plan_run.h - for tests of plans at run time: small programs, their plans in files, and
 * ranks that run them.
 *
 * Plans are in a folder that set_up makes. Functions of the first part are for tests and
 * fail by cmocka; functions of the second part are for ranks and return 0 or a status.
 */
#ifndef SYMM_TESTS_PLAN_RUN_H
#define SYMM_TESTS_PLAN_RUN_H

#include "harness.h"
#include "symm/plan.h"

#define PLAN_RUN_WORDS 1024 /* of a buffer, float32 */
#define PLAN_RUN_BYTES (PLAN_RUN_WORDS * sizeof(float))

int plan_run_set_up(void **state);
int plan_run_tear_down(void **state);

/* A loop of n buffers b0, b1, ...: each written, then reduced at s0, s1, ... */
symm_program *plan_run_cycle(int world, int n);
/* The same with three buffers, but all are written before the first is reduced. */
symm_program *plan_run_together(int world);
/* Each rank writes src0, puts it into the next rank's dst0 at hop0, waits, reads; then the
 * same with src1, dst1, hop1. */
symm_program *plan_run_ring(int world);
#define PLAN_RUN_LAYERS 3
enum {
    PLAN_RUN_IN,
    PLAN_RUN_RESIDUAL = PLAN_RUN_LAYERS,
    PLAN_RUN_WEIGHT,
    PLAN_RUN_OUT,
    PLAN_RUN_LAYER_BUFFERS = PLAN_RUN_OUT + PLAN_RUN_LAYERS
};
#define PLAN_RUN_HIDDEN (PLAN_RUN_WORDS / 4) /* 4 rows */
/* A loop of layers: each input is written and goes into an all_reduce_norm at n0, n1, ... with the
 * residual in place and a constant weight; its norm is read. At the end the residual is. */
symm_program *plan_run_layers(int world);
/* The call of layer i; x: a place for each of the program's buffers. */
symm_norm plan_run_layer(void *const x[PLAN_RUN_LAYER_BUFFERS], int i, uint32_t flags);
/* PLAN_RUN_WORDS values for such an array. */
void plan_run_draw(float *words, uint64_t seed);
/* Plans the program, calls `change` (may be NULL) to spoil the plan, which then has no hash,
 * and writes it into the folder; destroys the program. */
void plan_run_write(symm_program *program, const char *algorithm, const char *file,
                    void (*change)(symm_plan *plan));
/* Runs the body on 2 and 4 ranks, as processes and as threads, with the plan of cycle(n) in
 * the file "plan". */
void plan_run_with(harness_body body, int n, const char *algorithm,
                   void (*change)(symm_plan *plan), void *arg);

const char *plan_run_path(const char *file, char *path, size_t bytes);
symm_status plan_run_load(symm_team *team, const char *file);
symm_status plan_run_place(symm_team *team, uint64_t id, int64_t words,
                           symm_buffer **b);
/* alloc_ids 1 to n. */
int plan_run_place_all(symm_team *team, symm_buffer **buffers, int n);
float plan_run_value(int rank, int buffer, int period);
void plan_run_fill(symm_buffer *buffer, float value);
/* Counts words that are not `wanted`. */
int plan_run_wrong(const float *words, float wanted);
symm_status plan_run_reduce(symm_team *team, const char *site, symm_buffer *in,
                            float *out);
/* Runs periods of cycle(n) with random delays; adds this rank's wrong results to *wrong. */
int plan_run_periods(symm_team *team, symm_buffer **buffers, int n, int periods,
                     int *wrong);
int plan_run_close(symm_team *team, symm_buffer **buffers, int n);
/* Writes the plan of ring(2) without the entry barrier of its first put into "plan". */
void plan_run_write_left_out(void);
/* A body: rank 0 alone calls that barrier, which does nothing. */
int plan_run_left_out(symm_ctx *ctx, void *arg);

#endif
