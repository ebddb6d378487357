/* SPDX-License-Identifier: MIT */
/*
 * random_program.c - a random user's program, for tests of SYMM_RECORD and SYMM_PLAN:
 * `random_program SEED [DELAY [silent]]`. It uses the public header alone.
 *
 * Three periods of one list of calls: fills and checks on the default stream and on a
 * second one, every collective in place and out of place on the world and on halves of it,
 * parts of buffers, puts with signals, and all_reduce_norms, which are compared with the same
 * call on memory that no plan knows. Each rank computes the content of all ranks'
 * buffers and compares each element that a check reads. Accesses are annotated unless
 * `silent`. Before the periods buffers are freed, and other buffers reuse their memory. With
 * DELAY each rank waits 0 to DELAY microseconds before each call. Exit status 1: an error,
 * 2: a wrong element.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <symm/norm.h>
#include <symm/symm.h>

#define BUFFERS 12
#define COUNT   240 /* elements; 2, 3 and 4 ranks can share them */
#define RANKS   4
#define CALLS   40
#define PERIODS 3
#define TRY(call)                                                                      \
    do {                                                                               \
        if ((call) != SYMM_OK) {                                                       \
            fprintf(stderr, "%s\n", symm_last_error());                                \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)

enum kind {
    WRITE,
    WRITE_PART,
    READ,
    REDUCE,
    SCATTER,
    GATHER,
    CAST,
    EXCHANGE,
    PUT,
    NORM,
    KINDS
};

struct call {
    enum kind kind;
    int in, out, root;
    int third; /* NORM: a buffer beside in and out */
    bool side, halves;
    char site[16];
};

struct program {
    symm_ctx *ctx;
    symm_team *world, *half, *team; /* team: of the call in hand */
    void *side;
    symm_buffer *buffers[BUFFERS];
    uint32_t *x[BUFFERS];
    uint32_t held[RANKS][BUFFERS][COUNT]; /* what must be there, on every rank */
    bool known[BUFFERS];                  /* all of it was written at some time */
    bool on_side[BUFFERS];                /* where it was touched last */
    struct call calls[CALLS];
    uint32_t apart[CALLS][3][COUNT]; /* NORM: its arrays again */
    int count, me, size;
    unsigned delay;
    bool silent;
};

static atomic_int wrong;

static unsigned draw(uint64_t *random, unsigned limit)
{
    *random = *random * 6364136223846793005ULL + 1442695040888963407ULL;
    return (unsigned)(*random >> 33) % limit;
}

/* ---- The list of calls --------------------------------------------------------------- */

static void draw_calls(struct program *p, uint64_t random)
{
    p->count = 10 + (int)draw(&random, CALLS - 10);
    for (int i = 0; i < p->count; i++) {
        struct call *call = &p->calls[i];

        /* Every second call fills what the next one mostly uses: lives are short. */
        call->kind = i % 2 == 0 ? WRITE : (enum kind)draw(&random, KINDS);
        call->in = (int)draw(&random, BUFFERS);
        if (i % 2 == 1 && draw(&random, 4))
            call->in = call[-1].in;
        call->out = (int)draw(&random, BUFFERS);
        call->side = draw(&random, 3) == 0;
        call->halves = p->half && draw(&random, 3) == 0;
        call->root = (int)draw(&random, (unsigned)(call->halves ? 2 : p->size));
        if (call->out == call->in && call->kind != REDUCE && call->kind != CAST)
            call->out = (call->in + 1) % BUFFERS;
        call->third = (call->out + 1) % BUFFERS == call->in ? (call->out + 2) % BUFFERS
                                                            : (call->out + 1) % BUFFERS;
        if (call->kind == PUT)
            call->halves = false;
        snprintf(call->site, sizeof(call->site), "call%d", i);
    }
}

/* ---- The program's own work ------------------------------------------------------------ */

struct work {
    uint32_t *at;
    size_t count;
    bool checks;
    uint32_t values[COUNT];
};

static void do_work(void *arg)
{
    struct work *work = arg;

    if (work->checks)
        wrong += memcmp(work->at, work->values, work->count * sizeof(*work->at)) != 0;
    else
        memcpy(work->at, work->values, work->count * sizeof(*work->at));
    free(work);
}

static void queue_work(struct program *p, void *stream, int buffer, size_t first,
                       size_t count, bool checks)
{
    struct work *work = malloc(sizeof(*work));

    if (!work)
        exit(1);
    work->at = p->x[buffer] + first;
    work->count = count;
    work->checks = checks;
    memcpy(work->values, p->held[p->me][buffer] + first, count * sizeof(*work->at));
    TRY(symm_stream_call(p->ctx, stream, do_work, work));
}

static void fill(struct program *p, const struct call *call, void *stream, int period)
{
    const bool part = call->kind == WRITE_PART;
    const size_t first = part ? COUNT / 4 : 0, count = part ? COUNT / 2 : COUNT;

    for (int r = 0; r < p->size; r++)
        for (size_t i = first; i < first + count; i++)
            p->held[r][call->in][i] = (uint32_t)(r + 100 * call->in + 7 * call->out +
                                                 10000 * period + 100000 * (int)i);
    p->known[call->in] |= !part;
    queue_work(p, stream, call->in, first, count, false);
    if (!p->silent)
        TRY(symm_record_write(p->world, p->x[call->in] + first, count * 4, stream));
}

static void check(struct program *p, const struct call *call, void *stream)
{
    if (p->known[call->in])
        queue_work(p, stream, call->in, 0, COUNT, true);
    if (!p->silent)
        TRY(symm_record_read(p->world, p->x[call->in], COUNT * 4, stream));
}

/* The host runs the default stream at once: it has to wait for the other one. */
static void order(struct program *p, int buffer, bool side)
{
    if (p->on_side[buffer] == side)
        return;
    if (!side)
        TRY(symm_stream_synchronize(p->ctx, p->side, 60));
    TRY(symm_record_depend(side ? p->side : NULL, side ? NULL : p->side));
    for (int b = 0; b < BUFFERS && !side; b++)
        p->on_side[b] = false; /* all of them are after the wait */
    p->on_side[buffer] = side;
}

/* ---- Calls ------------------------------------------------------------------------------- */

/* What a call leaves in the out of `rank`, which is member `place` of a team of n. */
static void expect(struct program *p, const struct call *call, int n, int place,
                   int rank, uint32_t in[RANKS][COUNT])
{
    const int block = COUNT / n;
    uint32_t *out = p->held[rank][call->out];

    for (int i = 0; i < COUNT; i++) {
        uint32_t sum = 0;
        for (int m = 0; m < n; m++)
            sum += in[m][call->kind == SCATTER ? place * block + i % block : i];
        if (call->kind == REDUCE || (call->kind == SCATTER && i < block))
            out[i] = sum;
        else if (call->kind == GATHER)
            out[i] = in[i / block][i % block];
        else if (call->kind == CAST)
            out[i] = in[call->root][i];
        else if (call->kind == EXCHANGE)
            out[i] = in[i / block][place * block + i % block];
        else if (call->kind == PUT)
            out[i] = in[(place + n - 1) % n][i];
    }
}

/* On all ranks: both halves of the world make the same call. */
static void expect_all(struct program *p, const struct call *call)
{
    const int halves = call->halves ? 2 : 1, n = p->size / halves;
    uint32_t in[RANKS][COUNT];

    for (int half = 0; half < halves; half++) {
        for (int m = 0; m < n; m++)
            memcpy(in[m], p->held[halves * m + half][call->in], sizeof(in[m]));
        for (int m = 0; m < n; m++)
            expect(p, call, n, m, halves * m + half, in);
    }
    p->known[call->out] =
        p->known[call->in] && (p->known[call->out] || call->kind != SCATTER);
}

static void communicate(struct program *p, const struct call *call, void *stream)
{
    const symm_call how = {.size = sizeof(how), .site = call->site, .stream = stream};
    uint32_t *in = p->x[call->in], *out = p->x[call->out];
    const size_t block = COUNT / (size_t)symm_team_size(p->team);
    const symm_dtype type = SYMM_UINT32;
    symm_work *work = NULL, **handle = stream ? &work : NULL;

    if (call->kind == REDUCE)
        TRY(symm_all_reduce(p->team, in, out, COUNT, type, SYMM_SUM, &how, handle));
    if (call->kind == SCATTER)
        TRY(symm_reduce_scatter(p->team, in, out, block, type, SYMM_SUM, &how, handle));
    if (call->kind == GATHER)
        TRY(symm_all_gather(p->team, in, out, block, type, &how, handle));
    if (call->kind == CAST)
        TRY(symm_broadcast(p->team, in, out, COUNT, type, call->root, &how, handle));
    if (call->kind == EXCHANGE)
        TRY(symm_all_to_all(p->team, in, out, block, type, &how, handle));
    symm_work_release(work);
    if (call->kind == PUT) {
        TRY(symm_barrier(p->world, &how, NULL));
        TRY(symm_put_signal(p->world, out, in, COUNT * 4, (p->me + 1) % p->size,
                            (int)(call - p->calls), &how, NULL));
        TRY(symm_signal_wait(p->world, (p->me + p->size - 1) % p->size,
                             (int)(call - p->calls), &how, NULL));
    }
    expect_all(p, call);
}

/* ---- Norms ------------------------------------------------------------------------------- */

struct shadow {
    uint32_t *buffers[3], (*apart)[COUNT]; /* in, the residual in place, the norm */
};

static void copy_arrays(void *arg)
{
    const struct shadow *s = arg;

    for (int i = 0; i < 2; i++)
        memcpy(s->apart[i], s->buffers[i], sizeof(s->apart[i]));
    free(arg);
}

static void compare_arrays(void *arg)
{
    const struct shadow *s = arg;

    for (int i = 1; i < 3; i++)
        wrong += memcmp(s->apart[i], s->buffers[i], sizeof(s->apart[i])) != 0;
    free(arg);
}

static void queue_shadow(struct program *p, const struct call *call, void *stream,
                         void (*fn)(void *arg))
{
    struct shadow *s = malloc(sizeof(*s));

    if (!s)
        exit(1);
    *s = (struct shadow){{p->x[call->in], p->x[call->out], p->x[call->third]},
                         p->apart[call - p->calls]};
    TRY(symm_stream_call(p->ctx, stream, fn, s));
    for (int i = 0; i < 2 && !p->silent; i++) {
        const int b = fn == copy_arrays ? (i ? call->out : call->in)
                                        : (i ? call->third : call->out);
        TRY(symm_record_read(p->world, p->x[b], COUNT * 4, stream));
    }
}

static void normalise(struct program *p, const struct call *call, void *stream)
{
    uint32_t(*apart)[COUNT] = p->apart[call - p->calls];
    uint32_t *const arrays[2][3] = {
        {apart[0], apart[1], apart[2]},
        {p->x[call->in], p->x[call->out], p->x[call->third]}};

    queue_shadow(p, call, stream, copy_arrays);
    for (int planned = 0; planned < 2; planned++) {
        const symm_call how = {
            .size = sizeof(how), .site = planned ? call->site : NULL, .stream = stream};
        const symm_norm norm = {.size = sizeof(norm),
                                .rows = 4,
                                .hidden = COUNT / 4,
                                .dtype = SYMM_FLOAT32,
                                .eps = 1,
                                .in = arrays[planned][0],
                                .residual_in = arrays[planned][1],
                                .residual_out = arrays[planned][1],
                                .norm_out = arrays[planned][2]};
        symm_work *work = NULL;

        TRY(symm_all_reduce_norm(p->team, &norm, &how, stream ? &work : NULL));
        symm_work_release(work);
    }
    queue_shadow(p, call, stream, compare_arrays);
    p->known[call->out] = p->known[call->third] = false;
}

static void run_period(struct program *p, int period, uint64_t *noise)
{
    TRY(symm_stream_synchronize(p->ctx, p->side, 60)); /* so that periods are alike */
    TRY(symm_record_depend(NULL, p->side));
    memset(p->on_side, 0, sizeof(p->on_side));
    for (int i = 0; i < p->count; i++) {
        const struct call *call = &p->calls[i];
        const bool local = call->kind <= READ;
        void *stream = call->side ? p->side : NULL;

        if (p->delay)
            usleep(draw(noise, p->delay));
        p->team = call->halves ? p->half : p->world;
        order(p, call->in, call->side);
        if (!local)
            order(p, call->out, call->side);
        if (call->kind == NORM)
            order(p, call->third, call->side);
        if (call->kind == READ)
            check(p, call, stream);
        else if (local)
            fill(p, call, stream, period);
        else if (call->kind == NORM)
            normalise(p, call, stream);
        else
            communicate(p, call, stream);
    }
}

/* ---- Memory ------------------------------------------------------------------------------ */

static void place(struct program *p, uint64_t id, symm_buffer **buffer)
{
    TRY(symm_empty_strided_p2p(p->world, 1, (int64_t[]){COUNT}, (int64_t[]){1},
                               SYMM_UINT32, id, buffer));
}

/* Buffers of before the periods; the others get their memory. */
static void use_and_free(struct program *p)
{
    const symm_call how = {.size = sizeof(how), .site = "first"};
    symm_buffer *first[BUFFERS];

    for (int b = 0; b < BUFFERS; b++)
        place(p, 500 + (uint64_t)b, &first[b]);
    TRY(symm_rendezvous(p->world));
    for (int b = 0; b < BUFFERS; b++) {
        uint32_t *x = symm_buffer_ptr(first[b]);
        memset(x, 1, COUNT * 4);
        TRY(symm_all_reduce(p->world, x, x, COUNT, SYMM_UINT32, SYMM_SUM,
                            b ? NULL : &how, NULL));
        wrong += x[COUNT - 1] != 0x01010101U * (uint32_t)p->size;
    }
    for (int b = 0; b < BUFFERS; b++) {
        symm_buffer_release(first[b]);
        TRY(symm_alloc_id_free(p->world, 500 + (uint64_t)b));
    }
}

int main(int argc, char **argv)
{
    static struct program p;
    const uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    uint64_t noise;

    TRY(symm_init(NULL, &p.ctx));
    p.world = symm_team_world(p.ctx);
    p.me = symm_team_rank(p.world);
    p.size = symm_team_size(p.world);
    p.delay = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
    p.silent = argc > 3 && strcmp(argv[3], "silent") == 0;
    noise = seed + 1000 * (uint64_t)p.me;
    if (p.size > RANKS)
        return 1;
    if (p.size == 4)
        TRY(symm_team_split(p.world, p.me % 2, 0, &p.half));
    TRY(symm_stream_create(p.ctx, &p.side));
    if (seed % 2)
        use_and_free(&p);
    for (int b = 0; b < BUFFERS; b++)
        place(&p, 900 + (uint64_t)b, &p.buffers[b]);
    TRY(symm_rendezvous(p.world));
    for (int b = 0; b < BUFFERS; b++) {
        p.x[b] = symm_buffer_ptr(p.buffers[b]);
        if (!p.silent)
            TRY(symm_record_write(p.world, p.x[b], 0, NULL));
    }
    draw_calls(&p, seed);
    for (int period = 0; period < PERIODS; period++) {
        TRY(symm_record_period(p.world));
        run_period(&p, period, &noise);
    }
    symm_stream_destroy(p.ctx, p.side);
    symm_finalize(p.ctx);
    if (wrong)
        fprintf(stderr, "rank %d: %d checks found wrong elements\n", p.me, wrong);
    return wrong ? 2 : 0;
}
