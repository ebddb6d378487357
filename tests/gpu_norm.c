/* SPDX-License-Identifier: MIT */
/*
 * gpu_norm.c - symm_all_reduce_norm of random shapes, options, types, places and alignments on
 * GPUs, every result checked by bench/norm/expect.h. One rank of a job (symmrun -n N -- gpu_norm).
 *
 * A batch is some calls, equal on all ranks but for the addresses in private memory. Its arrays lie
 * in two arenas, one symmetric and one private. The arenas are written whole, the calls are made one
 * by one or as a graph that is replayed with new inputs, with random waits between them that differ
 * from rank to rank, and the arenas are read back whole. Outputs are compared, what is no output
 * must be untouched, and a hash of all outputs must be the same on all ranks. Some calls are chains:
 * made several times, each with the residual of the one before in place.
 *
 * No kernel of its own, so it runs over the fake driver, too (SYMM_CUDA_LIBRARY).
 *
 *   --shapes N      calls that are checked (2000)   --seconds S     at most (600)
 *   --seed S        equal on all ranks (1)          --most N        elements of a call (32768)
 *   --delay US      at most (200)                   --deadline S    of a call (20)
 *   --algorithm A   instead of the library's choice
 *   --expect-wrong  exit status 0 if a wrong result or a failed call was seen: for planted bugs
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "norm/expect.h"
#include "norm/gpu.h"
#include "symm/symm.h"

#define CALLS 8 /* of a batch, at most */
#define CHAIN 4 /* calls of a chain, at most */
#define ROOM                                                                           \
    512 /* bytes around an array: its alignment, and what must stay untouched */
#define PLACES 2 /* arenas: private, symmetric */

/* The arrays of a call, in the order of the struct. */
enum array { IN, BIAS, RESIDUAL_IN, WEIGHT, SUM, RESIDUAL, NORM, QUANT, SCALE, ARRAYS };

struct options {
    long shapes;
    double seconds, deadline;
    uint64_t seed;
    size_t most;
    unsigned delay;
    const char *algorithm;
    bool expect_wrong;
};

struct call {
    symm_norm norm; /* addresses of the device */
    float most;     /* of its inputs */
    int times;      /* of a chain */
    int place[ARRAYS];
    size_t at[ARRAYS], bytes[ARRAYS]; /* in the arena; bytes 0: there is none */
    bool delayed;
};

struct arena {
    size_t bytes, used;
    char *device, *before, *after; /* the last two on the host */
    char *written;                 /* for each byte: whether it is an output's */
};

struct rank {
    struct options options;
    symm_ctx *ctx;
    symm_team *team;
    int me, n;
    symm_buffer *buffers[2];
    uint64_t *hashes; /* symmetric: own, all */
    struct arena arena[PLACES];
    void *stream;
    struct call calls[CALLS];
    int count;
    uint64_t random, own; /* equal on all ranks, and not */
    long done, chained, wrong, graphs;
};

static void ended(const struct rank *r, const char *what, const char *why)
{
    fprintf(stderr, "gpu_norm: rank %d: %s: %s\n", r->me, what, why);
    fflush(stdout);
    _exit(r->options.expect_wrong ? 0 : 2);
}

static void ok(const struct rank *r, symm_status status, const char *what)
{
    if (status != SYMM_OK)
        ended(r, what, symm_last_error());
}

static bool one_in(struct rank *r, unsigned n)
{
    return norm_random(&r->random) % n == 0;
}

/* ---- A call -------------------------------------------------------------------------- */

static size_t random_hidden(struct rank *r)
{
    static const size_t common[] = {512,  1024, 2048, 2880, 3072, 4096,
                                    5120, 6144, 7168, 8192, 16384};
    const uint64_t bits = norm_random(&r->random);
    const size_t limit =
        r->options.most < SYMM_NORM_MAX_HIDDEN ? r->options.most : SYMM_NORM_MAX_HIDDEN;
    size_t hidden = common[bits % 11];

    if (bits / 16 % 3 == 1)
        hidden = 8 * (1 + bits / 64 % 512);
    else if (bits / 16 % 3 == 2)
        hidden = 1 + bits / 64 % (bits / 8192 % 4 ? 300 : 5000);
    return hidden < limit ? hidden : limit;
}

static void random_numbers(struct rank *r, symm_norm *norm)
{
    static const symm_dtype dtypes[] = {SYMM_BFLOAT16, SYMM_BFLOAT16, SYMM_FLOAT16,
                                        SYMM_FLOAT32};
    static const float epsilons[] = {1e-6f, 1e-5f, 1e-3f};
    const uint64_t bits = norm_random(&r->random);
    size_t rows;

    norm->size = sizeof *norm;
    norm->hidden = random_hidden(r);
    rows = r->options.most / norm->hidden;
    rows >>= bits % 9;
    norm->rows = rows > 1 ? 1 + bits / 16 % rows : 1;
    norm->dtype = dtypes[bits >> 32 & 3];
    norm->quant = (symm_norm_quant)(bits >> 36 & 1 ? bits / 1024 % SYMM_NORM_QUANT_COUNT
                                                   : SYMM_NORM_QUANT_NONE);
    norm->flags = (bits >> 40 & 3 ? 0 : SYMM_NORM_ROUND_PARTIAL) |
                  (bits >> 42 & 1 ? SYMM_NORM_CONSTANT : 0);
    if (r->n != 2 && r->n != 4 && r->n != 8) /* no kernel rounds partial sums there */
        norm->flags &= ~SYMM_NORM_ROUND_PARTIAL;
    norm->eps = epsilons[(bits >> 44) % 3];
    norm->weight_offset = bits >> 50 & 3 ? 0 : 1;
}

/* Which arrays there are, and their sizes. */
static void random_arrays(struct rank *r, struct call *call)
{
    const symm_norm *norm = &call->norm;
    const uint64_t bits = norm_random(&r->random);
    const size_t row = norm->hidden * symm_dtype_size(norm->dtype),
                 all = norm->rows * row;

    call->bytes[IN] = all;
    call->bytes[BIAS] = bits & 3 ? 0 : row;
    call->bytes[RESIDUAL_IN] = bits >> 2 & 3 ? all : 0;
    call->bytes[WEIGHT] = bits >> 4 & 7 ? row : 0;
    call->bytes[SUM] = bits >> 7 & 3 ? 0 : all;
    call->bytes[RESIDUAL] = bits >> 9 & 3 ? all : 0;
    call->bytes[NORM] = bits >> 11 & 3 ? all : 0;
    call->bytes[QUANT] = norm->quant ? norm->rows * norm->hidden : 0;
    call->bytes[SCALE] =
        symm_norm_scales(norm->quant, norm->rows, norm->hidden) * sizeof(float);
    if (!call->bytes[SUM] && !call->bytes[RESIDUAL] && !call->bytes[QUANT])
        call->bytes[NORM] = all;
    /* weights that are said to be constant are, since they lie in no output */
    call->most = bits >> 16 & 15 ? (float)(1 << (bits >> 20 & 3)) : 0;
}

static void place(struct rank *r, struct call *call, enum array a, bool symmetric)
{
    struct arena *arena = &r->arena[symmetric];
    const size_t element = a == QUANT   ? 1
                           : a == SCALE ? sizeof(float)
                                        : symm_dtype_size(call->norm.dtype);
    /* the addresses of symmetric memory are the same on all ranks */
    const uint64_t bits = norm_random(symmetric ? &r->random : &r->own);
    const size_t odd = bits & 1 ? bits / 2 % 16 * element : 0;

    call->place[a] = symmetric;
    call->at[a] = (arena->used + ROOM / 2 + 63) / 64 * 64 + odd;
    arena->used = call->at[a] + call->bytes[a] + ROOM / 2;
    if (arena->used > arena->bytes)
        ended(r, "an arena", "is too small");
}

/* Array a lies where `of` does, which is read before. */
static void alias(struct call *call, enum array a, enum array of)
{
    call->place[a] = call->place[of];
    call->at[a] = call->at[of];
}

static void random_places(struct rank *r, struct call *call)
{
    static const enum array outputs[] = {SUM, RESIDUAL, NORM};
    bool in_free = true, residual_free = call->bytes[RESIDUAL_IN] > 0;

    call->times = 1;
    for (int a = 0; a < ARRAYS; a++) {
        const bool symmetric = (a == IN || (a >= SUM && a <= NORM)) && !one_in(r, 3);

        if (call->bytes[a] > 0)
            place(r, call, (enum array)a, symmetric);
    }
    for (int i = 0; i < 3; i++) {
        const enum array out = outputs[i];

        if (!call->bytes[out])
            continue;
        if (residual_free && one_in(r, out == RESIDUAL ? 2 : 8)) {
            alias(call, out, RESIDUAL_IN);
            residual_free = false;
            if (out == RESIDUAL && in_free && one_in(r, 2))
                call->times = 2 + (int)(norm_random(&r->random) % (CHAIN - 1));
        } else if (in_free && call->times == 1 && one_in(r, 6)) {
            alias(call, out, IN);
            in_free = false;
        }
    }
}

static void *address(const struct rank *r, const struct call *call, enum array a,
                     char *(*of)(const struct arena *arena))
{
    return call->bytes[a] ? of(&r->arena[call->place[a]]) + call->at[a] : NULL;
}

static char *device_of(const struct arena *arena)
{
    return arena->device;
}

static char *before_of(const struct arena *arena)
{
    return arena->before;
}

static char *after_of(const struct arena *arena)
{
    return arena->after;
}

/* The call with its inputs in one copy of the arenas and its outputs in another. */
static symm_norm located(const struct rank *r, const struct call *call,
                         char *(*in)(const struct arena *arena),
                         char *(*out)(const struct arena *arena))
{
    const bool reads = call->norm.quant == SYMM_NORM_QUANT_TENSOR;
    symm_norm norm = call->norm;

    norm.in = address(r, call, IN, in);
    norm.bias = address(r, call, BIAS, in);
    norm.residual_in = address(r, call, RESIDUAL_IN, in);
    norm.weight = address(r, call, WEIGHT, in);
    norm.sum_out = address(r, call, SUM, out);
    norm.residual_out = address(r, call, RESIDUAL, out);
    norm.norm_out = address(r, call, NORM, out);
    norm.quant_out = address(r, call, QUANT, out);
    norm.scale = address(r, call, SCALE, reads ? in : out);
    return norm;
}

/* ---- A batch ------------------------------------------------------------------------- */

static void make_batch(struct rank *r)
{
    r->count = 1 + (int)(norm_random(&r->random) % CALLS);
    for (int p = 0; p < PLACES; p++)
        r->arena[p].used = 0;
    for (int i = 0; i < r->count; i++) {
        struct call *call = &r->calls[i];

        memset(call, 0, sizeof *call);
        random_numbers(r, &call->norm);
        random_arrays(r, call);
        random_places(r, call);
        call->delayed = r->options.delay > 0 && norm_random(&r->own) % 4 == 0;
    }
}

static bool is_output(const struct call *call, int a)
{
    return a >= SUM && (a != SCALE || call->norm.quant != SYMM_NORM_QUANT_TENSOR);
}

/* The seed of an array's values; `in` differs from rank to rank. */
static uint64_t seed_of(const struct rank *r, uint64_t run, int call, int array,
                        int rank)
{
    return r->options.seed * 977 + run * 131071 + (uint64_t)call * 4096 +
           (uint64_t)array * 64 + (uint64_t)(array == IN ? rank : 0);
}

static void fill_array(const struct rank *r, struct call *call, uint64_t run, int i,
                       int a)
{
    const struct arena *arena = &r->arena[call->place[a]];
    char *to = arena->before + call->at[a];
    const size_t element = symm_dtype_size(call->norm.dtype);
    const uint64_t seed = seed_of(r, run, i, a, r->me);
    const float scale = (float)(1 + seed % 7) / 64;

    if (call->bytes[a] == 0)
        return;
    if (is_output(call, a))
        memset(arena->written + call->at[a], 1, call->bytes[a]);
    else if (a == SCALE)
        memcpy(to, &scale, sizeof scale);
    else
        norm_fill(call->norm.dtype, seed, a == WEIGHT ? 2 : call->most,
                  call->bytes[a] / element, to);
}

/* New inputs on the host, and the arenas on their way to the device. */
static void write_arenas(struct rank *r, uint64_t run)
{
    for (int p = 0; p < PLACES; p++) {
        memset(r->arena[p].before, 0xff, r->arena[p].used);
        memset(r->arena[p].written, 0, r->arena[p].used);
    }
    for (int i = 0; i < r->count; i++)
        for (int a = 0; a < ARRAYS; a++)
            fill_array(r, &r->calls[i], run, i, a);
    for (int p = 0; p < PLACES; p++)
        if (r->arena[p].used > 0)
            gpu_copy_later(r->arena[p].device, r->arena[p].before, r->arena[p].used,
                           r->stream);
}

static void wait_random(void *arg)
{
    struct rank *r = arg;
    static _Thread_local uint64_t state; /* of the driver's thread */
    uint64_t us;

    state += (uint64_t)r->me * 7919 + 1;
    us = norm_random(&state) % (r->options.delay + 1);
    usleep((useconds_t)us);
}

static void issue(struct rank *r)
{
    const symm_call how = {.size = sizeof how,
                           .site = "norm",
                           .stream = r->stream,
                           .algorithm = r->options.algorithm,
                           .timeout = r->options.deadline};

    for (int i = 0; i < r->count; i++) {
        const symm_norm norm = located(r, &r->calls[i], device_of, device_of);

        if (r->calls[i].delayed)
            gpu_call_later(wait_random, r, r->stream);
        for (int k = 0; k < r->calls[i].times; k++)
            ok(r, symm_all_reduce_norm(r->team, &norm, &how, NULL),
               "symm_all_reduce_norm");
    }
}

/* ---- Results ------------------------------------------------------------------------- */

/* Names of the arrays, and which of them lie at the place of another one before. */
static void describe(const struct call *call, char *text, size_t bytes)
{
    static const char *const names[ARRAYS] = {"in",       "bias",      "residual_in",
                                              "weight",   "sum_out",   "residual_out",
                                              "norm_out", "quant_out", "scale"};
    size_t used = 0;

    for (int a = 0; a < ARRAYS && used < bytes; a++) {
        const char *same = "";

        if (call->bytes[a] == 0)
            continue;
        for (int b = 0; b < a; b++)
            if (call->bytes[b] > 0 && call->place[b] == call->place[a] &&
                call->at[b] == call->at[a])
                same = b == IN ? " = in" : " = residual_in";
        used += (size_t)snprintf(text + used, bytes - used, " %s%s%s", names[a],
                                 call->place[a] ? " (symmetric)" : "", same);
    }
}

static void tell(const struct rank *r, int i, uint64_t run, const char *text)
{
    const symm_norm *norm = &r->calls[i].norm;
    char arrays[320] = "";

    describe(&r->calls[i], arrays, sizeof arrays);
    fprintf(stderr,
            "gpu_norm: rank %d: seed %" PRIu64 ", run %" PRIu64
            ", call %d (%zu x %zu of %s, quant %d, flags %u, %d times;%s): %s\n",
            r->me, r->options.seed, run, i, norm->rows, norm->hidden,
            symm_dtype_name(norm->dtype), (int)norm->quant, norm->flags,
            r->calls[i].times, arrays, text);
}

static void check_call(struct rank *r, int i, uint64_t run)
{
    struct call *call = &r->calls[i];
    symm_norm norm = located(r, call, before_of, after_of);
    const size_t count = norm.rows * norm.hidden;
    void *in[64];
    struct norm_error error;
    size_t wrong;
    char text[160];

    for (int p = 0; p < r->n; p++) {
        in[p] = malloc(call->bytes[IN]);
        if (!in[p])
            ended(r, "a check", "no memory");
        norm_fill(norm.dtype, seed_of(r, run, i, IN, p), call->most, count, in[p]);
    }
    for (int k = 1; k < call->times; k++) /* in `before`: it is no input any more */
        norm_advance(&norm, (const void *const *)in, r->n,
                     address(r, call, RESIDUAL_IN, before_of));
    wrong = norm_wrong(&norm, (const void *const *)in, r->n, NORM_UNITS, &error);
    if (wrong > 0) {
        snprintf(
            text, sizeof text,
            "%zu wrong, the first: %s, row %zu, column %zu is %.9g instead of %.9g",
            wrong, error.array ? error.array : "no memory", error.row, error.column,
            error.found, error.wanted);
        if (r->wrong++ < 10)
            tell(r, i, run, text);
    }
    for (int p = 0; p < r->n; p++)
        free(in[p]);
}

/* What is no output is as it was. */
static void check_rest(struct rank *r, uint64_t run)
{
    for (int p = 0; p < PLACES; p++) {
        const struct arena *arena = &r->arena[p];

        for (size_t b = 0; b < arena->used; b++)
            if (!arena->written[b] && arena->before[b] != arena->after[b]) {
                if (r->wrong++ < 10)
                    fprintf(stderr,
                            "gpu_norm: rank %d: run %" PRIu64
                            ": byte %zu of the %s arena was overwritten\n",
                            r->me, run, b, p ? "symmetric" : "private");
                break;
            }
    }
}

/* All outputs have the same bits on all ranks. */
static void check_same(struct rank *r, uint64_t run)
{
    const symm_call how = {.size = sizeof how, .stream = r->stream};
    uint64_t all[64], hash = 1469598103934665603u;

    for (int i = 0; i < r->count; i++)
        for (int a = SUM; a < ARRAYS; a++) {
            const unsigned char *at = address(r, &r->calls[i], (enum array)a, after_of);

            for (size_t b = 0; at && b < r->calls[i].bytes[a]; b++)
                hash = (hash ^ at[b]) * 1099511628211u;
        }
    gpu_copy(r->hashes, &hash, sizeof hash);
    ok(r,
       symm_all_gather(r->team, r->hashes, r->hashes + 64, 1, SYMM_UINT64, &how, NULL),
       "symm_all_gather");
    gpu_wait(r->stream);
    gpu_copy(all, r->hashes + 64, (size_t)r->n * sizeof *all);
    for (int p = 0; p < r->n; p++)
        if (all[p] != hash && r->wrong++ < 10)
            fprintf(stderr,
                    "gpu_norm: rank %d: run %" PRIu64 ": bits differ from rank %d's\n",
                    r->me, run, p);
}

static void check_batch(struct rank *r, uint64_t run)
{
    for (int p = 0; p < PLACES; p++)
        if (r->arena[p].used > 0)
            gpu_copy_later(r->arena[p].after, r->arena[p].device, r->arena[p].used,
                           r->stream);
    gpu_wait(r->stream);
    check_rest(r, run);
    check_same(r, run);
    for (int i = 0; i < r->count; i++) {
        check_call(r, i, run);
        r->chained += r->calls[i].times > 1;
        r->done++;
    }
    gpu_alive("a batch");
}

/* ---- The rank ------------------------------------------------------------------------ */

static void run_batch(struct rank *r, uint64_t *run)
{
    const bool graph = one_in(r, 2);
    void *made = NULL;

    make_batch(r);
    if (graph) {
        issue(r); /* lazy set-up is done before the capture */
        gpu_wait(r->stream);
        gpu_capture(r->stream);
        issue(r);
        made = gpu_captured(r->stream);
        r->graphs++;
    }
    for (int replay = 0; replay < (graph ? 2 : 1); replay++) {
        write_arenas(r, ++*run);
        if (r->options.delay > 0 && norm_random(&r->own) % 2)
            usleep((useconds_t)(norm_random(&r->own) % r->options.delay));
        if (graph)
            gpu_replay(made, r->stream);
        else
            issue(r);
        check_batch(r, *run);
    }
    if (graph)
        gpu_graph_free(made);
}

static symm_buffer *symmetric(struct rank *r, size_t bytes, uint64_t id, void **at)
{
    const int64_t shape = (int64_t)bytes, stride = 1;
    symm_buffer *made = NULL;

    ok(r, symm_empty_strided_p2p(r->team, 1, &shape, &stride, SYMM_UINT8, id, &made),
       "symm_empty_strided_p2p");
    *at = symm_buffer_ptr(made);
    return made;
}

static void open_rank(struct rank *r)
{
    const symm_config config = {.size = sizeof(config), .backend = "cuda"};
    const size_t bytes = CALLS * ARRAYS * (4 * r->options.most + 2 * ROOM);
    void *at = NULL;

    ok(r, symm_init(&config, &r->ctx), "symm_init");
    r->team = symm_team_world(r->ctx);
    r->me = symm_team_rank(r->team);
    r->n = symm_team_size(r->team);
    r->random = r->options.seed;
    r->own = r->options.seed * 31 + (uint64_t)r->me;
    r->stream = gpu_stream();
    for (int p = 0; p < PLACES; p++) {
        r->arena[p].bytes = bytes;
        r->arena[p].before = gpu_host(bytes);
        r->arena[p].after = gpu_host(bytes);
        r->arena[p].written = malloc(bytes);
        if (!r->arena[p].written)
            ended(r, "the start", "no memory");
    }
    r->arena[0].device = gpu_alloc(bytes, 0);
    r->buffers[0] = symmetric(r, bytes, 1, &at);
    r->arena[1].device = at;
    r->buffers[1] = symmetric(r, 128 * sizeof(uint64_t), 2, &at);
    r->hashes = at;
    ok(r, symm_rendezvous(r->team), "symm_rendezvous");
}

static void close_rank(struct rank *r)
{
    for (int p = 0; p < PLACES; p++) {
        gpu_host_free(r->arena[p].before);
        gpu_host_free(r->arena[p].after);
        free(r->arena[p].written);
    }
    gpu_free(r->arena[0].device);
    symm_buffer_release(r->buffers[0]);
    symm_buffer_release(r->buffers[1]);
    symm_finalize(r->ctx);
}

/* All ranks stop at the same batch: rank 0's clock counts. */
static bool goes_on(struct rank *r, double end)
{
    const symm_call how = {.size = sizeof how, .stream = r->stream};
    uint64_t on = r->done < r->options.shapes && gpu_clock() < end;

    gpu_copy(r->hashes, &on, sizeof on);
    ok(r, symm_broadcast(r->team, r->hashes, r->hashes, 1, SYMM_UINT64, 0, &how, NULL),
       "symm_broadcast");
    gpu_wait(r->stream);
    gpu_copy(&on, r->hashes, sizeof on);
    return on != 0;
}

static int usage(void)
{
    fprintf(stderr, "usage: gpu_norm [--shapes N] [--seconds S] [--seed S] [--most N] "
                    "[--delay US] [--deadline S] [--algorithm A] [--expect-wrong]\n");
    return 2;
}

static int parse(int argc, char **argv, struct options *o)
{
    for (int i = 1; i < argc; i++) {
        const char *flag = argv[i], *text = i + 1 < argc ? argv[i + 1] : NULL;

        if (strcmp(flag, "--expect-wrong") == 0) {
            o->expect_wrong = true;
            continue;
        }
        if (text && strcmp(flag, "--shapes") == 0)
            o->shapes = atol(text);
        else if (text && strcmp(flag, "--seconds") == 0)
            o->seconds = atof(text);
        else if (text && strcmp(flag, "--seed") == 0)
            o->seed = (uint64_t)atoll(text);
        else if (text && strcmp(flag, "--most") == 0)
            o->most = (size_t)atoll(text);
        else if (text && strcmp(flag, "--delay") == 0)
            o->delay = (unsigned)atol(text);
        else if (text && strcmp(flag, "--deadline") == 0)
            o->deadline = atof(text);
        else if (text && strcmp(flag, "--algorithm") == 0)
            o->algorithm = text;
        else
            return usage();
        i++;
    }
    return o->shapes < 1 || o->most < 64 || o->seconds <= 0 ? usage() : 0;
}

int main(int argc, char **argv)
{
    static struct rank r = {.options = {.shapes = 2000,
                                        .seconds = 600,
                                        .deadline = 20,
                                        .seed = 1,
                                        .most = 32768,
                                        .delay = 200}};
    const char *local = getenv("LOCAL_RANK");
    uint64_t run = 0;
    double end;

    if (parse(argc, argv, &r.options) != 0)
        return 2;
    if (!gpu_open(local ? atoi(local) : 0)) {
        printf("gpu_norm: no driver, or no GPU: skipped\n");
        return 77;
    }
    gpu_watch(r.options.deadline * 3 + 30);
    open_rank(&r);
    end = gpu_clock() + r.options.seconds;
    while (goes_on(&r, end))
        run_batch(&r, &run);
    printf("rank %d of %d: %ld calls of all_reduce_norm, %ld of them chains, %ld "
           "graphs, %ld "
           "wrong; the last one: %s\n",
           r.me, r.n, r.done, r.chained, r.graphs, r.wrong,
           symm_explain(r.team) ? symm_explain(r.team) : "");
    close_rank(&r);
    return (r.wrong != 0) == r.options.expect_wrong ? 0 : 1;
}
