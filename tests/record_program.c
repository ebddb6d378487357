/* SPDX-License-Identifier: MIT */
/*
 * record_program.c - a user's program without any code for plans, for tests of SYMM_RECORD
 * and SYMM_PLAN: `record_program WHAT...`, each WHAT a word of the table in main.
 *
 * Each step of a loop fills buffers, reduces them and compares every element with the
 * expected result, so that a plan under which two live buffers share bytes is detected.
 * Exit status 1: an error, 2: a wrong element.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <symm/norm.h>
#include <symm/plan.h>
#include <symm/symm.h>

#define BUFFERS 6
#define COUNT   5000
#define STEPS   4
#define TRY(call)                                                                      \
    do {                                                                               \
        if ((call) != SYMM_OK) {                                                       \
            fprintf(stderr, "%s\n", symm_last_error());                                \
            return 1;                                                                  \
        }                                                                              \
    } while (0)

struct options {
    bool notes;   /* annotations */
    bool periods; /* symm_record_period */
    bool late;    /* values stay in their buffers until the step's end */
    bool partly;  /* buffer 0 is not annotated */
    bool teams;   /* halves of the world reduce, too */
    bool streams; /* odd buffers on a second stream */
    bool ring;    /* puts with signals to the next rank */
    bool root;    /* a broadcast whose input the root alone fills */
    bool extra;   /* the third step has one more call */
    bool dies;    /* rank 1 is killed in the second step */
    bool leaves;  /* rank 1 ends without symm_finalize */
    bool plans;   /* loads SYMM_TEST_PLAN by symm_team_load_plan */
    bool big_ids; /* alloc_ids of 64 bits */
    bool threads; /* ranks are 2 threads of this process */
    bool shares;  /* prints whether buffers 0 and 1 share their place */
    bool sizes;   /* calls count less from step to step */
    bool peers;   /* asks for a peer's address of buffer 1 */
    bool forces;  /* buffer 2's calls name their algorithm */
    bool norm;    /* an all_reduce_norm of buffers 0 to 3 */
    bool layers;  /* two all_reduce_norms, instead of sums */
    bool inside;  /* the first one's result begins inside its buffer */
    bool twice;   /* both have one site */
    bool weighs;  /* each step fills the weight, too, which is declared constant */
    bool warm;    /* a step in front of the first period */
};

struct rank {
    const struct options *o;
    symm_ctx *ctx;
    symm_team *world, *half;
    symm_buffer *buffers[BUFFERS];
    float *x[BUFFERS];
    void *side;
    int me, size, step;
    long wrong;
};

static uint64_t id_of(const struct rank *r, int b)
{
    return (r->o->big_ids ? UINT64_MAX - 100 : 100) + (uint64_t)b;
}

static symm_status wrote(const struct rank *r, int b, void *stream)
{
    if (!r->o->notes || (r->o->partly && b == 0))
        return SYMM_OK;
    return symm_record_write(r->world, r->x[b], COUNT * sizeof(float), stream);
}

static symm_status read_it(const struct rank *r, int b, void *stream)
{
    if (!r->o->notes || (r->o->partly && b == 0))
        return SYMM_OK;
    return symm_record_read(r->world, r->x[b], COUNT * sizeof(float), stream);
}

static float value_of(int rank, int b, int step)
{
    return (float)(rank + 10 * b + 100 * step);
}

static float sum_of(const struct rank *r, const symm_team *team, int b)
{
    float sum = 0;

    for (int m = 0; m < symm_team_size(team); m++)
        sum += value_of(symm_team_world_rank(team, m), b, r->step);
    return sum;
}

static void fill(struct rank *r, int b)
{
    for (int i = 0; i < COUNT; i++)
        r->x[b][i] = value_of(r->me, b, r->step);
}

static size_t count_of(const struct rank *r)
{
    return r->o->sizes ? (size_t)COUNT >> 3 * r->step : COUNT;
}

static void look(struct rank *r, int b, float wanted)
{
    for (size_t i = 0; i < count_of(r); i++)
        r->wrong += r->x[b][i] != wanted;
}

static int reduce(struct rank *r, int b)
{
    char site[32];
    symm_team *team = r->half && b % 2 ? r->half : r->world;
    void *stream = r->side && b % 2 ? r->side : NULL;
    const symm_call call = {.size = sizeof(call),
                            .site = site,
                            .stream = stream,
                            .algorithm = r->o->forces && b == 2 ? "copy_in" : NULL};

    snprintf(site, sizeof(site), "sum%d", b);
    fill(r, b);
    TRY(wrote(r, b, stream));
    if (stream) {
        symm_work *work;

        TRY(symm_all_reduce(team, r->x[b], r->x[b], count_of(r), SYMM_FLOAT32, SYMM_SUM,
                            &call, &work));
        TRY(symm_work_wait(work, NULL));
        symm_work_release(work);
    } else {
        TRY(symm_all_reduce(team, r->x[b], r->x[b], count_of(r), SYMM_FLOAT32, SYMM_SUM,
                            &call, NULL));
    }
    if (r->o->sizes && r->me == 0 && b == 0)
        printf("%zu: %s\n", count_of(r), symm_explain(team));
    if (r->o->late)
        return 0;
    TRY(read_it(r, b, NULL));
    look(r, b, sum_of(r, team, b));
    if (stream && r->o->notes) /* the next step's fill is after that look */
        TRY(symm_record_depend(stream, NULL));
    return 0;
}

/* Buffer 4 goes to the next rank's buffer 5. */
static int pass_on(struct rank *r)
{
    const symm_call call = {.size = sizeof(call), .site = "ring"};
    const int next = (r->me + 1) % r->size, before = (r->me + r->size - 1) % r->size;

    fill(r, 4);
    TRY(wrote(r, 4, NULL));
    TRY(symm_barrier(r->world, &call, NULL));
    TRY(symm_put_signal(r->world, r->x[5], r->x[4], COUNT * sizeof(float), next, 7,
                        &call, NULL));
    TRY(symm_signal_wait(r->world, before, 7, &call, NULL));
    TRY(read_it(r, 5, NULL));
    look(r, 5, value_of(before, 4, r->step));
    return 0;
}

static int from_root(struct rank *r)
{
    const symm_call call = {.size = sizeof(call), .site = "root"};

    if (r->me == 0) {
        fill(r, 3);
        TRY(wrote(r, 3, NULL));
    }
    TRY(symm_broadcast(r->world, r->x[3], r->x[3], COUNT, SYMM_FLOAT32, 0, &call,
                       NULL));
    TRY(read_it(r, 3, NULL));
    look(r, 3, value_of(0, 3, r->step));
    return 0;
}

/* The sum of buffer 0, plus buffer 1, is buffer 2, and normalised buffer 3. */
static int normalise(struct rank *r)
{
    const symm_call call = {.size = sizeof(call), .site = "norm"};
    const symm_norm norm = {.size = sizeof(norm),
                            .rows = 1,
                            .hidden = COUNT,
                            .dtype = SYMM_FLOAT32,
                            .in = r->x[0],
                            .residual_in = r->x[1],
                            .residual_out = r->x[2],
                            .norm_out = r->x[3]};

    for (int b = 0; b < 4; b++)
        for (int i = 0; i < COUNT && b != 1; i++)
            r->x[b][i] = value_of(r->me, b, r->step);
    for (int i = 0; i < COUNT; i++)
        r->x[1][i] = 5;
    for (int b = 0; b < 4; b++)
        TRY(wrote(r, b, NULL));
    TRY(symm_all_reduce_norm(r->world, &norm, &call, NULL));
    for (int b = 0; b < 4; b++)
        TRY(read_it(r, b, NULL));
    look(r, 1, 5);
    look(r, 2, sum_of(r, r->world, 0) + 5);
    for (int i = 0; i < COUNT; i++)
        r->wrong += !(r->x[3][i] > 0.999f && r->x[3][i] < 1.001f);
    return 0;
}

/* ---- Layers ----------------------------------------------------------------------- */

/* Buffers of two layers. The weight is filled once, in front of all steps. */
enum { FIRST, RESIDUAL, NORM, SECOND, QUANT, WEIGHT };
#define ROWS 4

/* All of a buffer, or less. */
static size_t hidden_of(const struct rank *r)
{
    return r->o->inside ? COUNT / ROWS - 50 : COUNT / ROWS;
}

/* The first has a constant weight. The second is in place, and quantised into a buffer that was
 * placed as float32; its scales are the rank's own. */
static symm_norm layer(const struct rank *r, float *const *x, int second, float *scales)
{
    symm_norm norm = {.size = sizeof(norm),
                      .rows = ROWS,
                      .hidden = hidden_of(r),
                      .dtype = SYMM_FLOAT32,
                      .flags = second ? 0 : SYMM_NORM_CONSTANT,
                      .eps = 1e-6f,
                      .in = x[FIRST],
                      .residual_in = x[RESIDUAL],
                      .residual_out = x[RESIDUAL],
                      .weight = x[WEIGHT],
                      .norm_out = x[NORM]};

    if (second) {
        norm.in = norm.norm_out = x[SECOND];
        norm.quant = SYMM_NORM_QUANT_ROW;
        norm.quant_out = x[QUANT];
        norm.scale = scales;
    }
    return norm;
}

static void compare(struct rank *r, const void *found, const void *wanted, size_t bytes)
{
    r->wrong += memcmp(found, wanted, bytes) != 0;
}

/* Calls on memory of the rank's own, which no plan knows, and on the buffers give the same. */
static int one_layer(struct rank *r, float *const *own, int second)
{
    const symm_call call = {.size = sizeof(call),
                            .site = second && !r->o->twice ? "second" : "first"};
    const int in = second ? SECOND : FIRST;
    float own_scales[ROWS], scales[ROWS], *x[BUFFERS];
    const symm_norm own_norm = layer(r, own, second, own_scales);
    const size_t elements = ROWS * own_norm.hidden;
    symm_norm norm;

    memcpy(x, r->x, sizeof(x));
    x[NORM] += r->o->inside ? 100 : 0;
    norm = layer(r, x, second, scales);
    for (int i = 0; i < COUNT; i++)
        own[in][i] = r->x[in][i] = value_of(r->me * i % 7, in, r->step);
    TRY(wrote(r, in, NULL));
    TRY(symm_all_reduce_norm(r->world, &own_norm, NULL, NULL));
    TRY(symm_all_reduce_norm(r->world, &norm, &call, NULL));
    TRY(read_it(r, second ? SECOND : NORM, NULL));
    compare(r, norm.norm_out, own_norm.norm_out, elements * sizeof(float));
    if (!second)
        return 0;
    TRY(read_it(r, QUANT, NULL));
    compare(r, norm.quant_out, own_norm.quant_out, elements);
    compare(r, scales, own_scales, sizeof(scales));
    return 0;
}

static int run_layers(struct rank *r)
{
    float *block = calloc(BUFFERS, COUNT * sizeof(float)), *own[BUFFERS];
    int status;

    if (!block)
        return 1;
    for (int b = 0; b < BUFFERS; b++)
        own[b] = block + (size_t)b * COUNT;
    memcpy(own[WEIGHT], r->x[WEIGHT], COUNT * sizeof(float));
    for (int i = 0; i < COUNT; i++)
        own[RESIDUAL][i] = r->x[RESIDUAL][i] = value_of(i % 11, RESIDUAL, r->step);
    TRY(wrote(r, RESIDUAL, NULL));
    if (r->o->weighs)
        TRY(wrote(r, WEIGHT, NULL));
    status = one_layer(r, own, 0);
    if (status == 0)
        status = one_layer(r, own, 1);
    if (status == 0) {
        TRY(read_it(r, RESIDUAL, NULL));
        compare(r, r->x[RESIDUAL], own[RESIDUAL], COUNT * sizeof(float));
    }
    free(block);
    return status;
}

static int one_step(struct rank *r)
{
    const int last = r->o->ring ? 4 : r->o->root ? 3 : BUFFERS;

    if (r->o->layers)
        return run_layers(r);

    if (r->o->dies && r->me == 1 && r->step == 1)
        raise(SIGKILL);
    for (int b = 0; b < last; b++)
        if (reduce(r, b))
            return 1;
    for (int b = 0; r->o->late && b < last; b++) {
        TRY(read_it(r, b, NULL));
        look(r, b, sum_of(r, r->half && b % 2 ? r->half : r->world, b));
    }
    if (r->o->extra && r->step == 2) {
        const symm_call call = {.size = sizeof(call), .site = "extra"};

        TRY(symm_all_reduce(r->world, r->x[0], r->x[0], 8, SYMM_FLOAT32, SYMM_SUM,
                            &call, NULL));
    }
    if (r->o->ring && pass_on(r))
        return 1;
    if (r->o->norm && normalise(r))
        return 1;
    return r->o->root ? from_root(r) : 0;
}

static int load_plan(struct rank *r)
{
    symm_plan *plan;

    TRY(symm_plan_read(getenv("SYMM_TEST_PLAN"), &plan));
    TRY(symm_team_load_plan(r->world, plan));
    symm_plan_destroy(plan); /* the team has a copy */
    return 0;
}

static int open_all(struct rank *r)
{
    r->world = symm_team_world(r->ctx);
    r->me = symm_team_rank(r->world);
    r->size = symm_team_size(r->world);
    if (r->o->plans && load_plan(r))
        return 1;
    if (r->o->teams)
        TRY(symm_team_split(r->world, r->me % 2, 0, &r->half));
    if (r->o->streams)
        TRY(symm_stream_create(r->ctx, &r->side));
    for (int b = 0; b < BUFFERS; b++)
        TRY(symm_empty_strided_p2p(r->world, 1, (int64_t[]){COUNT}, (int64_t[]){1},
                                   SYMM_FLOAT32, id_of(r, b), &r->buffers[b]));
    TRY(symm_rendezvous(r->world));
    for (int b = 0; b < BUFFERS; b++)
        r->x[b] = symm_buffer_ptr(r->buffers[b]);
    if (r->o->peers && !symm_buffer_peer_ptr(r->buffers[1], (r->me + 1) % r->size))
        return 1;
    for (int i = 0; i < COUNT && r->o->layers; i++)
        r->x[WEIGHT][i] = (float)(i % 5);
    if (r->o->shares && r->me == 0)
        printf("%s\n", r->x[0] == r->x[1] ? "shared" : "apart");
    return 0;
}

static int run_rank(struct rank *r)
{
    if (open_all(r))
        return 1;
    for (r->step = 0; r->step < STEPS; r->step++) {
        if (r->o->periods && (r->step > 0 || !r->o->warm))
            TRY(symm_record_period(r->world));
        if (one_step(r))
            return 1;
    }
    if (r->o->leaves && r->me == 1)
        _Exit(0);
    if (r->side)
        symm_stream_destroy(r->ctx, r->side);
    symm_finalize(r->ctx);
    if (r->wrong)
        fprintf(stderr, "rank %d: %ld wrong elements\n", r->me, r->wrong);
    return r->wrong ? 2 : 0;
}

/* ---- Ranks as threads ------------------------------------------------------------- */

struct thread {
    const struct options *o;
    symm_thread_group *group;
    int rank, status;
};

static void *run_thread(void *arg)
{
    struct thread *t = arg;
    const symm_config config = {.size = sizeof(config),
                                .world_size = 2,
                                .rank = t->rank,
                                .thread_group = t->group};
    struct rank rank = {.o = t->o};

    t->status = 1;
    if (symm_init(&config, &rank.ctx) == SYMM_OK)
        t->status = run_rank(&rank);
    else
        fprintf(stderr, "%s\n", symm_last_error());
    return NULL;
}

static int run_threads(const struct options *o)
{
    struct thread threads[2];
    pthread_t ids[2];
    symm_thread_group *group;

    TRY(symm_thread_group_create(2, &group));
    for (int r = 0; r < 2; r++) {
        threads[r] = (struct thread){.o = o, .group = group, .rank = r};
        if (pthread_create(&ids[r], NULL, run_thread, &threads[r]))
            return 1;
    }
    for (int r = 0; r < 2; r++)
        pthread_join(ids[r], NULL);
    symm_thread_group_destroy(group);
    return threads[0].status ? threads[0].status : threads[1].status;
}

int main(int argc, char **argv)
{
    static struct options o;
    static const struct {
        const char *word;
        bool *flag;
    } words[] = {
        {"notes", &o.notes},    {"periods", &o.periods}, {"late", &o.late},
        {"partly", &o.partly},  {"teams", &o.teams},     {"streams", &o.streams},
        {"ring", &o.ring},      {"root", &o.root},       {"extra", &o.extra},
        {"dies", &o.dies},      {"leaves", &o.leaves},   {"plans", &o.plans},
        {"bigids", &o.big_ids}, {"threads", &o.threads}, {"shares", &o.shares},
        {"warm", &o.warm},      {"peers", &o.peers},     {"forces", &o.forces},
        {"sizes", &o.sizes},    {"norm", &o.norm},       {"layers", &o.layers},
        {"inside", &o.inside},  {"twice", &o.twice},     {"weighs", &o.weighs}};
    struct rank rank = {.o = &o};

    for (int i = 1; i < argc; i++) {
        size_t w = 0;

        while (w < sizeof(words) / sizeof(*words) &&
               strcmp(argv[i], words[w].word) != 0)
            w++;
        if (w == sizeof(words) / sizeof(*words)) {
            fprintf(stderr, "record_program: unknown word '%s'\n", argv[i]);
            return 1;
        }
        *words[w].flag = true;
    }
    if (o.threads)
        return run_threads(&o);
    TRY(symm_init(NULL, &rank.ctx));
    return run_rank(&rank);
}
