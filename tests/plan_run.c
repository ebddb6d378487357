/* SPDX-License-Identifier: MIT */
/* plan_run.c - see plan_run.h. */
#include "plan_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char plan_run_folder[128];

/* ---- Programs and plans --------------------------------------------------------------- */

static void add_op(symm_program *program, symm_program_op op)
{
    op.size = sizeof(op);
    if (symm_program_add_op(program, &op) != SYMM_OK)
        fail_msg("%s", symm_last_error());
}

static int add_buffer(symm_program *program, const char *kind, int i)
{
    const int64_t words = PLAN_RUN_WORDS;
    char name[16];
    int buffer = -1;

    snprintf(name, sizeof(name), "%s%d", kind, i);
    assert_int_equal(
        symm_program_add_buffer(program, name, SYMM_FLOAT32, 1, &words, NULL, &buffer),
        SYMM_OK);
    return buffer;
}

/* A loop of n buffers b0, b1, ...: each written, then reduced at s0, s1, ... */
symm_program *plan_run_cycle(int world, int n)
{
    symm_program *program;
    char site[16];

    assert_int_equal(symm_program_create("cycle", world, true, &program), SYMM_OK);
    for (int i = 0; i < n; i++)
        add_buffer(program, "b", i);
    for (int i = 0; i < n; i++) {
        snprintf(site, sizeof(site), "s%d", i);
        add_op(program, (symm_program_op){.kind = SYMM_PROGRAM_WRITE,
                                          .buffers = &i,
                                          .buffer_count = 1});
        add_op(program,
               (symm_program_op){
                   .kind = SYMM_PROGRAM_ALL_REDUCE, .site = site, .in = i, .out = -1});
    }
    return program;
}

/* The same three, but all are written before the first is reduced. */
symm_program *plan_run_together(int world)
{
    static const int all[] = {0, 1, 2};
    symm_program *program;
    char site[16];

    assert_int_equal(symm_program_create("together", world, true, &program), SYMM_OK);
    for (int i = 0; i < 3; i++)
        add_buffer(program, "b", i);
    add_op(program, (symm_program_op){
                        .kind = SYMM_PROGRAM_WRITE, .buffers = all, .buffer_count = 3});
    for (int i = 0; i < 3; i++) {
        snprintf(site, sizeof(site), "s%d", i);
        add_op(program,
               (symm_program_op){
                   .kind = SYMM_PROGRAM_ALL_REDUCE, .site = site, .in = i, .out = -1});
    }
    return program;
}

/* Each rank writes src, sends it on as dst at hop, waits, reads; two of these in turn. */
symm_program *plan_run_ring(int world)
{
    symm_program *program;
    char site[16];

    assert_int_equal(symm_program_create("ring", world, true, &program), SYMM_OK);
    for (int i = 0; i < 2; i++) {
        int src = add_buffer(program, "src", i), dst = add_buffer(program, "dst", i);

        snprintf(site, sizeof(site), "hop%d", i);
        add_op(program, (symm_program_op){.kind = SYMM_PROGRAM_WRITE,
                                          .buffers = &src,
                                          .buffer_count = 1});
        add_op(program, (symm_program_op){.kind = SYMM_PROGRAM_PUT,
                                          .site = site,
                                          .in = src,
                                          .out = dst,
                                          .shift = 1});
        add_op(program, (symm_program_op){.kind = SYMM_PROGRAM_WAIT, .site = site});
        add_op(program, (symm_program_op){.kind = SYMM_PROGRAM_READ,
                                          .buffers = &dst,
                                          .buffer_count = 1});
    }
    return program;
}

static void add_local(symm_program *program, symm_program_kind kind, int buffer)
{
    add_op(program,
           (symm_program_op){.kind = kind, .buffers = &buffer, .buffer_count = 1});
}

static void add_layer(symm_program *program, int i)
{
    const symm_program_array residual = {true, PLAN_RUN_RESIDUAL};
    const symm_program_norm norm = {.size = sizeof(norm),
                                    .hidden = PLAN_RUN_HIDDEN,
                                    .constant = true,
                                    .residual_in = residual,
                                    .residual_out = residual,
                                    .weight = {true, PLAN_RUN_WEIGHT},
                                    .norm_out = {true, PLAN_RUN_OUT + i}};
    symm_program_op op = {
        .kind = SYMM_PROGRAM_ALL_REDUCE_NORM, .in = PLAN_RUN_IN + i, .out = -1};
    char site[16];

    snprintf(site, sizeof(site), "n%d", i);
    op.site = site;
    add_local(program, SYMM_PROGRAM_WRITE, PLAN_RUN_IN + i);
    assert_int_equal(symm_program_add_norm(program, &norm, &op.norm), SYMM_OK);
    add_op(program, op);
    add_local(program, SYMM_PROGRAM_READ, PLAN_RUN_OUT + i);
}

symm_program *plan_run_layers(int world)
{
    symm_program *program;

    assert_int_equal(symm_program_create("layers", world, true, &program), SYMM_OK);
    for (int i = 0; i < PLAN_RUN_LAYERS; i++)
        add_buffer(program, "in", i);
    add_buffer(program, "residual", 0);
    add_buffer(program, "weight", 0);
    for (int i = 0; i < PLAN_RUN_LAYERS; i++)
        add_buffer(program, "out", i);
    add_local(program, SYMM_PROGRAM_WRITE, PLAN_RUN_RESIDUAL);
    for (int i = 0; i < PLAN_RUN_LAYERS; i++)
        add_layer(program, i);
    add_local(program, SYMM_PROGRAM_READ, PLAN_RUN_RESIDUAL);
    return program;
}

symm_norm plan_run_layer(void *const x[PLAN_RUN_LAYER_BUFFERS], int i, uint32_t flags)
{
    return (symm_norm){.size = sizeof(symm_norm),
                       .rows = PLAN_RUN_WORDS / PLAN_RUN_HIDDEN,
                       .hidden = PLAN_RUN_HIDDEN,
                       .dtype = SYMM_FLOAT32,
                       .flags = flags,
                       .eps = 1e-6f,
                       .in = x[PLAN_RUN_IN + i],
                       .residual_in = x[PLAN_RUN_RESIDUAL],
                       .residual_out = x[PLAN_RUN_RESIDUAL],
                       .weight = x[PLAN_RUN_WEIGHT],
                       .norm_out = x[PLAN_RUN_OUT + i]};
}

void plan_run_draw(float *words, uint64_t seed)
{
    for (int i = 0; i < PLAN_RUN_WORDS; i++)
        words[i] = (float)(int64_t)(harness_random(&seed) % 2001 - 1000) / 512;
}

/* Plans the program, lets `change` spoil the plan, and writes it into the plan_run_folder. */
void plan_run_write(symm_program *program, const char *algorithm, const char *file,
                    void (*change)(symm_plan *plan))
{
    const symm_plan_options options = {.size = sizeof(options), .algorithm = algorithm};
    symm_plan *plan;
    char path[192];

    if (symm_plan_make(program, &options, &plan) != SYMM_OK)
        fail_msg("%s", symm_last_error());
    if (change) {
        /* a spoiled plan that nobody signed */
        plan->has_run_hash = plan->has_plan_hash = false;
        change(plan);
    }
    snprintf(path, sizeof(path), "%s/%s", plan_run_folder, file);
    assert_int_equal(symm_plan_write(plan, path), SYMM_OK);
    symm_plan_destroy(plan);
    symm_program_destroy(program);
}

const char *plan_run_path(const char *file, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/%s", plan_run_folder, file);
    return path;
}

symm_status plan_run_load(symm_team *team, const char *file)
{
    char path[192];
    symm_plan *plan = NULL;
    symm_status status =
        symm_plan_read_run(plan_run_path(file, path, sizeof(path)), &plan);

    if (status == SYMM_OK)
        status = symm_team_load_plan(team, plan);
    symm_plan_destroy(plan);
    return status;
}

symm_status plan_run_place(symm_team *team, uint64_t id, int64_t words, symm_buffer **b)
{
    const int64_t one = 1;

    return symm_empty_strided_p2p(team, 1, &words, &one, SYMM_FLOAT32, id, b);
}

int plan_run_place_all(symm_team *team, symm_buffer **buffers, int n)
{
    for (int i = 0; i < n; i++)
        CHECK_OK(plan_run_place(team, (uint64_t)i + 1, PLAN_RUN_WORDS, &buffers[i]));
    return 0;
}

/* ---- What ranks do -------------------------------------------------------------------- */

float plan_run_value(int rank, int buffer, int period)
{
    return (float)(1 + (rank * 7 + buffer * 3 + period) % 64);
}

void plan_run_fill(symm_buffer *buffer, float value)
{
    float *words = symm_buffer_ptr(buffer);

    for (int i = 0; i < PLAN_RUN_WORDS; i++)
        words[i] = value;
}

int plan_run_wrong(const float *words, float wanted)
{
    int wrong = 0;

    for (int i = 0; i < PLAN_RUN_WORDS; i++)
        wrong += memcmp(&words[i], &wanted, sizeof(wanted)) != 0;
    return wrong;
}

static void wait_some(uint64_t *random)
{
    double until = harness_now() + (double)(harness_random(random) % 60) * 1e-6;

    while (harness_now() < until)
        ;
}

symm_status plan_run_reduce(symm_team *team, const char *site, symm_buffer *in,
                            float *out)
{
    const symm_call call = {.size = sizeof(call), .site = site};

    return symm_all_reduce(team, symm_buffer_ptr(in), out, PLAN_RUN_WORDS, SYMM_FLOAT32,
                           SYMM_SUM, &call, NULL);
}

/* Periods of plan_run_cycle(n); the wrong words that this rank saw are added to *wrong. */
int plan_run_periods(symm_team *team, symm_buffer **buffers, int n, int periods,
                     int *wrong)
{
    uint64_t random = (uint64_t)symm_team_rank(team) + 1;
    float out[PLAN_RUN_WORDS], sum;
    char site[16];

    for (int k = 0; k < periods; k++) {
        for (int i = 0; i < n; i++) {
            snprintf(site, sizeof(site), "s%d", i);
            wait_some(&random);
            plan_run_fill(buffers[i], plan_run_value(symm_team_rank(team), i, k));
            wait_some(&random);
            CHECK_OK(plan_run_reduce(team, site, buffers[i], out));
            sum = 0;
            for (int r = 0; r < symm_team_size(team); r++)
                sum += plan_run_value(r, i, k);
            *wrong += plan_run_wrong(out, sum);
        }
    }
    return 0;
}

int plan_run_close(symm_team *team, symm_buffer **buffers, int n)
{
    CHECK_OK(symm_barrier(team, NULL, NULL));
    for (int i = 0; i < n; i++)
        symm_buffer_release(buffers[i]);
    return 0;
}

static const int sizes[] = {2, 4};

/* The body for each number of ranks, with plan_run_cycle(n) planned for it in "plan". */
void plan_run_with(harness_body body, int n, const char *algorithm,
                   void (*change)(symm_plan *plan), void *arg)
{
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct harness h = {.ranks = sizes[i], .body = body, .arg = arg};

        plan_run_write(plan_run_cycle(sizes[i], n), algorithm, "plan", change);
        assert_int_equal(harness_run_both(h), 0);
    }
}

int plan_run_set_up(void **state)
{
    (void)state;
    unsetenv("SYMM_CHECK");
    harness_directory(plan_run_folder, sizeof(plan_run_folder));
    return 0;
}

int plan_run_tear_down(void **state)
{
    (void)state;
    harness_remove(plan_run_folder);
    return 0;
}

static void drop_put_barrier(symm_plan *plan)
{
    plan->ops[0].entry_barrier = false;
}

void plan_run_write_left_out(void)
{
    plan_run_write(plan_run_ring(2), NULL, "plan", drop_put_barrier);
}

int plan_run_left_out(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    const symm_call call = {.size = sizeof(call), .site = "hop0"};
    symm_work *work;

    (void)arg;
    CHECK_OK(plan_run_load(team, "plan"));
    CHECK_OK(symm_rendezvous(team));
    if (symm_team_rank(team) == 0) {
        CHECK_OK(symm_barrier(team, &call, &work));
        CHECK_OK(symm_work_synchronize(work, HARNESS_AMPLE));
        symm_work_release(work);
        CHECK_MESSAGE(strstr(symm_explain(team), "nothing ran"), "%s",
                      symm_explain(team));
    }
    return 0;
}
