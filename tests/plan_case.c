/* SPDX-License-Identifier: MIT */
/*
 * plan_case.c - see plan_case.h.
 */
#include "plan_case.h"
#include "make/plan_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

#define UNIT 768        /* bytes; a multiple of 256 that 2, 3 and 4 ranks can share */
#define ROW  (UNIT / 4) /* float32 of a row of an all_reduce_norm */

const struct plan_case_edit plan_case_no_edit = {.drop = -1,
                                                 .shrink = -1,
                                                 .early = -1,
                                                 .new_loop = -1,
                                                 .move = -1,
                                                 .insert = -1,
                                                 .grow = -1};

static int below(uint64_t *random, int count)
{
    return (int)(harness_random(random) % (uint64_t)count);
}

static void *must(void *memory)
{
    if (!memory)
        abort();
    return memory;
}

static void must_work(symm_status status)
{
    if (status != SYMM_OK) {
        fprintf(stderr, "plan_case: %s\n", symm_last_error());
        abort();
    }
}

/* ---- Programs -------------------------------------------------------------------- */

struct maker {
    symm_program *program;
    uint64_t *random;
    const struct plan_case_limits *limits;
    int sites;
    char site[16];
};

static void add_partitions(struct maker *m)
{
    const int world = m->program->world;
    int ranks[INT8_MAX], partition;

    for (int r = 0; r < world; r++)
        ranks[r] = r;
    must_work(
        symm_program_add_partition(m->program, "one", world, 1, ranks, &partition));
    for (int r = 0; r < world; r++)
        ranks[r] = (r + 1) % world;
    must_work(
        symm_program_add_partition(m->program, "turned", 1, world, ranks, &partition));
    if (world % 2 == 0 && world > 2)
        must_work(symm_program_add_partition(m->program, "pairs", world / 2, 2, ranks,
                                             &partition));
}

static void add_op(struct maker *m, symm_program_op op)
{
    op.size = sizeof(op);
    if (op.kind != SYMM_PROGRAM_WRITE && op.kind != SYMM_PROGRAM_READ &&
        op.kind != SYMM_PROGRAM_DEPEND && !op.site) {
        snprintf(m->site, sizeof(m->site), "s%d", m->sites++);
        op.site = m->site;
    }
    op.early_start = m->limits->early && below(m->random, 4) == 0;
    if (symm_program_add_op(m->program, &op) != SYMM_OK)
        m->site[0] = '\0';
}

static void add_collective(struct maker *m, symm_program_op op)
{
    const symm_program *p = m->program;
    const int kind = below(m->random, 10);

    op.kind = kind < 5   ? SYMM_PROGRAM_ALL_REDUCE
              : kind < 6 ? SYMM_PROGRAM_REDUCE_SCATTER
              : kind < 7 ? SYMM_PROGRAM_ALL_GATHER
              : kind < 9 ? SYMM_PROGRAM_BROADCAST
                         : SYMM_PROGRAM_ALL_TO_ALL;
    op.in = below(m->random, p->buffer_count);
    op.out = below(m->random, 3) == 0 ? op.in
             : below(m->random, 3)    ? below(m->random, p->buffer_count)
                                      : -1;
    op.partition = below(m->random, 3) ? 0 : below(m->random, p->partition_count);
    if (op.kind == SYMM_PROGRAM_BROADCAST)
        op.root = below(m->random, p->partitions[op.partition].length);
    if (below(m->random, 5) == 0)
        op.count = UNIT / 2;
    if (op.kind == SYMM_PROGRAM_ALL_GATHER)
        op.count = UNIT / 4;
    add_op(m, op);
}

/* An array on some buffer, on memory elsewhere, or none. */
static symm_program_array draw_array(struct maker *m)
{
    const int kind = below(m->random, 8);

    return (symm_program_array){
        .given = kind < 5,
        .buffer = kind < 4 ? below(m->random, m->program->buffer_count) : -1};
}

/* The library refuses many: arrays that overlap, sizes that do not fit. */
static void add_norm(struct maker *m, symm_program_op op)
{
    symm_program_norm norm = {.size = sizeof(norm),
                              .hidden = ROW,
                              .dtype = SYMM_FLOAT32,
                              .constant = below(m->random, 4) == 0,
                              .residual_in = draw_array(m),
                              .weight = draw_array(m),
                              .norm_out = draw_array(m),
                              .residual_out = draw_array(m)};

    op.kind = SYMM_PROGRAM_ALL_REDUCE_NORM;
    op.in = below(m->random, m->program->buffer_count);
    op.partition =
        below(m->random, 3) ? 0 : below(m->random, m->program->partition_count);
    op.count = below(m->random, 3) ? 0 : ROW;
    if (below(m->random, 2)) /* as programs really look */
        norm.residual_out = norm.residual_in;
    if (below(m->random, 4) == 0)
        norm.norm_out = (symm_program_array){true, op.in};
    if (below(m->random, 3) == 0)
        norm.bias = draw_array(m);
    if (below(m->random, 3) == 0)
        norm.sum_out = draw_array(m);
    if (below(m->random, 3) == 0) {
        norm.quant = (symm_norm_quant)(1 + below(m->random, SYMM_NORM_QUANT_COUNT - 1));
        norm.quant_out = draw_array(m);
        norm.scale = draw_array(m);
        norm.quant_out.given = norm.scale.given = true;
    }
    must_work(symm_program_add_norm(m->program, &norm, &op.norm));
    add_op(m, op);
}

static void add_put(struct maker *m, symm_program_op op)
{
    symm_program_op wait = {.kind = SYMM_PROGRAM_WAIT, .stream = op.stream};
    char site[16];

    op.kind = SYMM_PROGRAM_PUT;
    op.in = below(m->random, m->program->buffer_count);
    op.out = below(m->random, m->program->buffer_count);
    if (op.in == op.out && below(m->random, 8))
        op.out = (op.in + 1) % m->program->buffer_count;
    op.shift = below(m->random, 4) ? 1 : below(m->random, 4);
    op.partition =
        below(m->random, 3) ? 0 : below(m->random, m->program->partition_count);
    add_op(m, op);
    if (m->site[0] == '\0' || below(m->random, 8) == 0)
        return;
    memcpy(site, m->site, sizeof(site));
    wait.site = site;
    if (below(m->random, 4) == 0)
        wait.stream = below(m->random, m->program->stream_count);
    add_op(m, wait);
}

static void add_any(struct maker *m)
{
    symm_program_op op = {
        .stream = below(m->random, 3) ? 0 : below(m->random, m->program->stream_count)};
    const int kind = below(m->random, 23);
    int buffers[2] = {below(m->random, m->program->buffer_count),
                      below(m->random, m->program->buffer_count)};

    if (kind < 10) {
        op.kind = kind < 6 ? SYMM_PROGRAM_WRITE : SYMM_PROGRAM_READ;
        op.buffers = buffers;
        op.buffer_count = buffers[0] != buffers[1] && below(m->random, 4) == 0 ? 2 : 1;
        add_op(m, op);
    } else if (kind < 16) {
        add_collective(m, op);
    } else if (kind < 19) {
        for (int tries = 0, ops = m->program->op_count;
             tries < 20 && m->program->op_count == ops; tries++)
            add_norm(m, op);
    } else if (kind < 21 || m->program->stream_count == 1) {
        add_put(m, op);
    } else {
        op.kind = SYMM_PROGRAM_DEPEND;
        op.stream = below(m->random, m->program->stream_count);
        op.on = below(m->random, m->program->stream_count);
        add_op(m, op);
    }
}

/* Producers and collectives in turn on slots of their own, as programs really look. */
static void add_slots(struct maker *m)
{
    const int sites = 1 + below(m->random, m->limits->max_ops / 2);
    const int slots = 1 + below(m->random, m->program->buffer_count);

    for (int i = 0; i < sites; i++) {
        int buffer = i % slots;
        symm_program_op op = {
            .kind = SYMM_PROGRAM_WRITE, .buffers = &buffer, .buffer_count = 1};
        add_op(m, op);
        op =
            (symm_program_op){.kind = SYMM_PROGRAM_ALL_REDUCE, .in = buffer, .out = -1};
        op.partition =
            below(m->random, 4) ? 0 : below(m->random, m->program->partition_count);
        add_op(m, op);
    }
}

symm_program *plan_case_program(uint64_t *random, const struct plan_case_limits *limits)
{
    struct maker m = {.random = random, .limits = limits};
    const int world = 2 + below(random, limits->max_world - 1);
    const int streams = below(random, 2) ? 1 : 1 + below(random, limits->max_streams);
    const int buffers = 1 + below(random, limits->max_buffers);
    const bool loop = below(random, 3) != 0;
    char name[24];
    int index;

    must_work(symm_program_create("random", world, loop, &m.program));
    for (int s = 0; s < streams; s++) {
        snprintf(name, sizeof(name), "stream%d", s);
        must_work(symm_program_add_stream(m.program, name, &index));
    }
    add_partitions(&m);
    for (int b = 0; b < buffers; b++) {
        snprintf(name, sizeof(name), "b%d", b);
        must_work(symm_program_add_bytes(
            m.program, name, (size_t)(UNIT * (1 + below(random, 2))), &index));
    }
    if (below(random, 4) == 0)
        add_slots(&m);
    else
        for (int ops = 1 + below(random, limits->max_ops); m.program->op_count < ops;)
            add_any(&m);
    if (symm_program_finish(m.program) == SYMM_OK)
        return m.program;
    symm_program_destroy(m.program); /* a wait that can never be met */
    return plan_case_program(random, limits);
}

/* A new buffer, written and reduced over the world on this stream. */
static void insert_use(symm_program *program, int stream)
{
    symm_program_op op = {.size = sizeof(op), .kind = SYMM_PROGRAM_WRITE};
    int buffer;

    must_work(symm_program_add_bytes(program, "inserted", UNIT, &buffer));
    op.stream = stream;
    op.buffers = &buffer;
    op.buffer_count = 1;
    must_work(symm_program_add_op(program, &op));
    op = (symm_program_op){.size = sizeof(op),
                           .kind = SYMM_PROGRAM_ALL_REDUCE,
                           .site = "inserted",
                           .stream = stream,
                           .in = buffer,
                           .out = -1};
    must_work(symm_program_add_op(program, &op));
}

symm_program *plan_case_edit(const symm_program *p, const struct plan_case_edit *edit)
{
    symm_program *copy;
    int index;

    must_work(symm_program_create(
        p->name, p->world, edit->new_loop < 0 ? p->loop : edit->new_loop, &copy));
    for (int s = 0; s < p->stream_count; s++)
        must_work(symm_program_add_stream(copy, p->streams[s], &index));
    for (int g = 1; g < p->partition_count; g++)
        must_work(symm_program_add_partition(
            copy, p->partitions[g].name, p->partitions[g].lists,
            p->partitions[g].length, p->partitions[g].ranks, &index));
    for (int b = 0; b < p->buffer_count; b++)
        must_work(symm_program_add_bytes(
            copy, p->buffers[b].name, p->buffers[b].bytes * (b == edit->grow ? 2 : 1),
            &index));
    for (int i = 0; i < p->op_count; i++) {
        symm_program_op op = p->ops[i];
        if (i == edit->insert)
            insert_use(copy, op.stream);
        if (i == edit->drop)
            continue;
        if (i == edit->move)
            op.stream = edit->stream;
        if (i == edit->early)
            op.early_start = !op.early_start;
        if (op.norm >= 0)
            must_work(symm_program_add_norm(copy, &p->norms[op.norm], &op.norm));
        if (i == edit->shrink) {
            op.partition = edit->partition;
            op.root = 0;
        }
        if (symm_program_add_op(copy, &op) != SYMM_OK)
            goto refused;
    }
    if (symm_program_finish(copy) == SYMM_OK)
        return copy;
refused:
    symm_program_destroy(copy);
    return NULL;
}

/* ---- Plans ----------------------------------------------------------------------- */

static struct plan_case *new_case(const symm_program *program)
{
    struct plan_case *c = must(calloc(1, sizeof(*c)));
    symm_plan *plan = &c->plan;

    c->program = program;
    plan->size = sizeof(*plan);
    plan->program = program->name;
    plan->world = program->world;
    plan->loop = program->loop;
    must_work(symm_program_hash(program, &plan->program_hash));
    plan->buffers =
        must(calloc((size_t)program->buffer_count + 1, sizeof(*plan->buffers)));
    plan->ops = must(calloc((size_t)program->op_count + 1, sizeof(*plan->ops)));
    plan->buffer_count = program->buffer_count;
    for (int b = 0; b < program->buffer_count; b++) {
        plan->buffers[b].name = program->buffers[b].name;
        plan->buffers[b].alloc_id = (uint64_t)b + 1;
        plan->buffers[b].bytes = program->buffers[b].bytes;
    }
    for (int i = 0; i < program->op_count; i++) {
        const symm_program_op *op = &program->ops[i];
        if (!op->site || op->kind == SYMM_PROGRAM_WAIT)
            continue;
        plan->ops[plan->op_count++] =
            (symm_plan_op){.site = op->site,
                           .algorithm = SYMM_ALGORITHM_PUT,
                           .channel = op->stream,
                           .norm = op->kind == SYMM_PROGRAM_ALL_REDUCE_NORM};
    }
    return c;
}

symm_status plan_case_make(symm_program *program, uint64_t *random, symm_plan **plan)
{
    symm_plan_options options = {.size = sizeof(options), .time_limit = 0.1};
    const int algorithm = below(random, 2 * SYMM_ALGORITHM_PUT);

    options.greedy = below(random, 2) == 1;
    if (algorithm < SYMM_ALGORITHM_PUT) {
        options.algorithm = symm_algorithm_name((symm_algorithm)algorithm);
        if (symm_plan_make(program, &options, plan) == SYMM_OK)
            return SYMM_OK;
        options.algorithm = NULL; /* it may not be able to do all of them */
    }
    return symm_plan_make(program, &options, plan);
}

static void fit_arena(symm_plan *plan)
{
    plan->arena_bytes = 0;
    for (int b = 0; b < plan->buffer_count; b++)
        if (plan->buffers[b].offset + plan->buffers[b].bytes > plan->arena_bytes)
            plan->arena_bytes = plan->buffers[b].offset + plan->buffers[b].bytes;
    plan->arena_bytes = (plan->arena_bytes + 255) / 256 * 256;
}

struct plan_case *plan_case_dedicated(const symm_program *program)
{
    struct plan_case *c = new_case(program);
    size_t offset = 0;
    int planned = 0;

    for (int b = 0; b < program->buffer_count; b++) {
        c->plan.buffers[b].offset = offset;
        offset += (program->buffers[b].bytes + 255) / 256 * 256;
    }
    for (int i = 0; i < program->op_count; i++) {
        const symm_program_op *op = &program->ops[i];
        if (!op->site || op->kind == SYMM_PROGRAM_WAIT)
            continue;
        symm_plan_op *p = &c->plan.ops[planned++];
        p->entry_barrier = true;
        p->exit_barrier = op->kind != SYMM_PROGRAM_PUT;
        if (op->kind != SYMM_PROGRAM_PUT)
            p->algorithm = op->in == op->out ? SYMM_ALGORITHM_TWO_SHOT_PULL
                                             : SYMM_ALGORITHM_ONE_SHOT_PULL;
    }
    plan_case_certify(c);
    return c;
}

/* `out` of the plan's op, -1 if it is private. */
static int out_of(const symm_program *program, int planned)
{
    for (int i = 0; i < program->op_count; i++)
        if (program->ops[i].site && program->ops[i].kind != SYMM_PROGRAM_WAIT &&
            planned-- == 0)
            return program->ops[i].out;
    return -1;
}

struct plan_case *plan_case_random(const symm_program *program, uint64_t *random)
{
    struct plan_case *c = plan_case_dedicated(program);
    const bool shared = below(random, 2) == 0;
    const int keep = 2 + below(random, 8); /* barriers: 1 of keep is dropped */

    for (int b = 0; shared && b < program->buffer_count; b++)
        if (below(random, 2))
            c->plan.buffers[b].offset = c->plan.buffers[below(random, b + 1)].offset;
    for (int i = 0; i < c->plan.op_count; i++) {
        symm_plan_op *p = &c->plan.ops[i];
        p->entry_barrier = below(random, keep) != 0;
        p->exit_barrier = p->exit_barrier && below(random, keep) != 0;
        if (p->algorithm == SYMM_ALGORITHM_PUT || below(random, 2))
            continue;
        p->algorithm = (symm_algorithm)below(random, SYMM_ALGORITHM_PUT);
        if (out_of(program, i) < 0 &&
            (p->algorithm == SYMM_ALGORITHM_TWO_SHOT_INPLACE ||
             p->algorithm == SYMM_ALGORITHM_COPY_ENGINE ||
             p->algorithm == SYMM_ALGORITHM_MULTIMEM_TWO_SHOT))
            p->algorithm = SYMM_ALGORITHM_ONE_SHOT_PULL;
    }
    fit_arena(&c->plan);
    return c;
}

struct plan_case *plan_case_copy(const symm_program *program, const symm_plan *plan)
{
    struct plan_case *c = new_case(program);

    for (int b = 0; b < plan->buffer_count; b++)
        c->plan.buffers[b] = plan->buffers[b];
    for (int i = 0; i < c->plan.op_count; i++)
        for (int k = 0; k < plan->op_count; k++)
            if (strcmp(plan->ops[k].site, c->plan.ops[i].site) == 0)
                c->plan.ops[i] = plan->ops[k];
    c->plan.certificate =
        must(calloc(plan->certificate_count + 1, sizeof(*c->plan.certificate)));
    for (size_t i = 0; i < plan->certificate_count; i++)
        c->plan.certificate[i] = plan->certificate[i];
    c->plan.certificate_count = plan->certificate_count;
    c->plan.has_proof = true;
    c->plan.chains = plan->chains;
    c->plan.chain_count = plan->chain_count;
    c->plan.antichain = plan->antichain;
    c->plan.antichain_count = plan->antichain_count;
    c->plan.dedicated_bytes = plan->dedicated_bytes;
    c->plan.lower_bound_bytes = plan->lower_bound_bytes;
    c->plan.lower_bound_proved = plan->lower_bound_proved;
    fit_arena(&c->plan);
    return c;
}

/* By the planner's own code, from the case's algorithms, barriers and offsets. What these
 * do not order gets entries that are not true, and stays for the checker to find. */
void plan_case_certify(struct plan_case *c)
{
    const symm_program *program = c->program;
    symm_algorithm *algorithms =
        must(calloc((size_t)program->op_count + 1, sizeof(*algorithms)));
    int64_t *offsets =
        must(calloc((size_t)program->buffer_count + 1, sizeof(*offsets)));
    struct plan_private private = {.plan = c->plan};
    struct order order;
    struct lifetimes lives;
    bool enough;
    int planned = 0;

    must_work(symm__order_init(&order, program));
    for (int i = 0; i < program->op_count; i++)
        if (program->ops[i].site && program->ops[i].kind != SYMM_PROGRAM_WAIT)
            algorithms[i] = c->plan.ops[planned++].algorithm;
    must_work(symm__order_set(&order, algorithms));
    for (int i = planned = 0; i < program->op_count; i++) {
        if (!program->ops[i].site || program->ops[i].kind == SYMM_PROGRAM_WAIT)
            continue;
        order.entry[i] = c->plan.ops[planned].entry_barrier;
        order.exit[i] = c->plan.ops[planned++].exit_barrier;
    }
    must_work(symm__order_try(&order, &enough));
    must_work(symm__lifetimes_make(&lives, &order));
    must_work(symm__lifetimes_clique(&lives));
    free(c->plan.certificate);
    symm__pool_free(&c->pool);
    private.plan.certificate = NULL;
    private.plan.certificate_count = 0;
    private.plan.chain_count = private.plan.antichain_count = 0;
    private.plan.dedicated_bytes = 0;
    for (int b = 0; b < program->buffer_count; b++) {
        offsets[b] = (int64_t) private.plan.buffers[b].offset;
        private.plan.buffers[b].turn = lives.always[b] ? -1 : lives.turn[b];
        private.plan.buffers[b].after = NULL;
        private.plan.buffers[b].after_count = 0;
        private.plan.dedicated_bytes += (size_t)lives.sizes[b];
    }
    must_work(symm__plan_certify(&private, &lives, offsets));
    c->plan = private.plan;
    c->pool = private.pool;
    c->plan.has_proof = true;
    fit_arena(&c->plan);
    c->plan.lower_bound_bytes = (size_t)lives.clique_bytes;
    c->plan.lower_bound_proved = c->plan.lower_bound_bytes == c->plan.arena_bytes;
    symm__lifetimes_finish(&lives);
    symm__order_finish(&order);
    free(algorithms);
    free(offsets);
}

void plan_case_free(struct plan_case *c)
{
    if (!c)
        return;
    free(c->plan.buffers);
    free(c->plan.ops);
    free(c->plan.certificate);
    symm__pool_free(&c->pool);
    free(c);
}

static void print_norm(const symm_program_norm *n)
{
    const struct {
        const char *name;
        symm_program_array array;
    } arrays[] = {{"bias", n->bias},
                  {"residual_in", n->residual_in},
                  {"weight", n->weight},
                  {"sum_out", n->sum_out},
                  {"residual_out", n->residual_out},
                  {"norm_out", n->norm_out},
                  {"quant_out", n->quant_out},
                  {"scale", n->scale}};

    fprintf(stderr, "; quant %d", (int)n->quant);
    for (size_t i = 0; i < sizeof(arrays) / sizeof(*arrays); i++)
        if (arrays[i].array.given)
            fprintf(stderr, " %s b%d", arrays[i].name, arrays[i].array.buffer);
}

void plan_case_print(const symm_program *program, const symm_plan *plan)
{
    const symm_plan_op *planned = plan->ops;

    fprintf(stderr, "world %d%s, streams %d\n", program->world,
            program->loop ? ", loop" : "", program->stream_count);
    for (int b = 0; b < plan->buffer_count; b++)
        fprintf(stderr, "  %s: %zu bytes at %zu\n", plan->buffers[b].name,
                plan->buffers[b].bytes, plan->buffers[b].offset);
    for (int i = 0; i < program->op_count; i++) {
        const symm_program_op *op = &program->ops[i];
        fprintf(stderr, "  %d: %s stream %d%s", i, symm_program_kind_name(op->kind),
                op->stream, op->early_start ? " early" : "");
        for (int k = 0; k < op->buffer_count; k++)
            fprintf(stderr, " b%d", op->buffers[k]);
        if (op->kind == SYMM_PROGRAM_DEPEND)
            fprintf(stderr, " on %d", op->on);
        if (op->site)
            fprintf(stderr, " %s", op->site);
        if (op->site && op->kind != SYMM_PROGRAM_WAIT) {
            fprintf(stderr,
                    " group %s in b%d out b%d count %zu root %d shift %d: %s%s%s",
                    program->partitions[op->partition].name, op->in, op->out, op->count,
                    op->root, op->shift, symm_algorithm_name(planned->algorithm),
                    planned->entry_barrier ? " entry" : "",
                    planned->exit_barrier ? " exit" : "");
            planned++;
        }
        if (op->norm >= 0)
            print_norm(&program->norms[op->norm]);
        fprintf(stderr, "\n");
    }
}
