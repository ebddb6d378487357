/* SPDX-License-Identifier: MIT */
/* contenders.c - see contenders.h. */
#include "norm/contenders.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECKED (1 << 18) /* elements of a size, about */
#define PEER_UNITS                                                                     \
    24 /* of float32's last place: it takes rsqrtf, and sums in float32 */

static const char default_shapes[] =
    "1x512,1x2048,2x4096,8x4096,32x4096,128x4096,512x4096,1x8192,8x7168,64x8192";

/* ---- Options ------------------------------------------------------------------------- */

static int usage(const char *program)
{
    fprintf(
        stderr,
        "usage: %s [--shapes ROWSxHIDDEN,...] [--calls N] [--replays N] [--only NAME]\n"
        "          [--peer libnorm_peer.so] [--processors N] [--watch SECONDS] [-o "
        "FILE]\n",
        program);
    return 2;
}

static bool parse_shapes(struct norm_bench *bench, const char *text)
{
    for (bench->shape_count = 0; *text && bench->shape_count < NORM_SHAPES;) {
        struct norm_shape *shape = &bench->shapes[bench->shape_count];
        int used = 0;

        if (sscanf(text, "%zux%zu%n", &shape->rows, &shape->hidden, &used) != 2 ||
            shape->rows < 1 || shape->rows > 1 << 20 || shape->hidden < 1 ||
            shape->hidden > SYMM_NORM_MAX_HIDDEN)
            return false;
        bench->shape_count++;
        text += used + (text[used] == ',');
    }
    return *text == 0 && bench->shape_count > 0;
}

static void open_peer(struct norm_bench *bench)
{
    void *library = bench->peer ? dlopen(bench->peer, RTLD_NOW) : NULL, *found = NULL;

    if (library)
        found = dlsym(library, "norm_peer_launch");
    if (bench->peer && !found)
        fprintf(stderr, "left out: TensorRT-LLM's kernel: %s\n", dlerror());
    memcpy(&bench->launch_peer, &found, sizeof found);
}

int norm_bench_parse(struct norm_bench *bench, const char *program, int argc,
                     char **argv)
{
    const char *shapes = default_shapes;

    bench->calls = 50;
    bench->replays = 200;
    bench->seconds = 20;
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *flag = argv[i], *text = argv[i + 1];

        if (strcmp(flag, "--shapes") == 0)
            shapes = text;
        else if (strcmp(flag, "--calls") == 0)
            bench->calls = atoi(text);
        else if (strcmp(flag, "--replays") == 0)
            bench->replays = atoi(text);
        else if (strcmp(flag, "--processors") == 0)
            bench->processors = atoi(text);
        else if (strcmp(flag, "--watch") == 0)
            bench->seconds = atof(text);
        else if (strcmp(flag, "--only") == 0)
            bench->only = text;
        else if (strcmp(flag, "--peer") == 0)
            bench->peer = text;
        else if (strcmp(flag, "-o") == 0)
            bench->out = text;
        else
            return usage(program);
    }
    if (argc % 2 == 0 || bench->calls < 1 || bench->replays < 1 ||
        bench->seconds <= 0 || !parse_shapes(bench, shapes))
        return usage(program);
    open_peer(bench);
    return 0;
}

size_t norm_bench_most(const struct norm_bench *bench)
{
    size_t most = 0;

    for (int i = 0; i < bench->shape_count; i++) {
        const size_t bytes = bench->shapes[i].rows * bench->shapes[i].hidden * 2;

        most = bytes > most ? bytes : most;
    }
    return most;
}

/* ---- The contenders ------------------------------------------------------------------ */

static void add(struct norm_bench *bench, const char *name, enum norm_what what,
                bool fp8, struct norm_peer_kind peer)
{
    struct norm_contender *made = &bench->contenders[bench->count];

    if (bench->only && strncmp(name, bench->only, strlen(bench->only)) != 0)
        return;
    *made = (struct norm_contender){.what = what, .fp8 = fp8, .peer = peer};
    snprintf(made->name, sizeof made->name, "%s%s", name, fp8 ? ", fp8" : "");
    made->times = calloc((size_t)bench->replays, sizeof *made->times);
    if (!made->times)
        abort();
    bench->count++;
}

static void add_peers(struct norm_bench *bench, bool fp8)
{
    char name[32];

    for (int kind = 0; kind < 16; kind++) {
        const struct norm_peer_kind peer = {kind & 1, kind >> 1 & 1, kind >> 2 & 1,
                                            kind >> 3 & 1};

        if (peer.early && (peer.two_shot || !peer.dependent))
            continue; /* the same kernel */
        snprintf(name, sizeof name, "trt %s%s%s%s",
                 peer.two_shot ? "two-shot" : "one-shot", peer.fp32 ? " fp32" : "",
                 peer.dependent ? " pdl" : "", peer.early ? " early" : "");
        add(bench, name, NORM_PEER, fp8, peer);
    }
}

void norm_bench_begin(struct norm_bench *bench)
{
    static const struct norm_peer_kind none;

    for (int i = 0; i < bench->count; i++)
        free(bench->contenders[i].times);
    bench->count = 0;
    add(bench, "all_reduce", NORM_PLAIN, false, none);
    add(bench, "all_reduce + norm", NORM_UNFUSED, false, none);
    for (int fp8 = 0; fp8 < 2; fp8++) {
        add(bench, "fused", NORM_FUSED, fp8, none);
        add(bench, "fused constant", NORM_CONSTANT, fp8, none);
        if (bench->launch_peer)
            add_peers(bench, fp8);
    }
}

struct norm_contender *norm_bench_turn(struct norm_bench *bench, int round, int i)
{
    struct norm_contender *c = &bench->contenders[round % 2 ? bench->count - 1 - i : i];

    return c->dropped ? NULL : c;
}

bool norm_bench_peer(const struct norm_bench *bench,
                     const struct norm_contender *contender, const symm_norm *norm,
                     int ranks, int rank, void **workspace, void *stream, bool prints)
{
    const struct norm_peer_call call = {.kind = contender->peer,
                                        .ranks = ranks,
                                        .rank = rank,
                                        .rows = (int)norm->rows,
                                        .hidden = (int)norm->hidden,
                                        .workspace = workspace,
                                        .in = norm->in,
                                        .weight = norm->weight,
                                        .residual = norm->residual_out,
                                        .norm = norm->norm_out,
                                        .quant = norm->quant_out,
                                        .scale = norm->scale,
                                        .eps = norm->eps,
                                        .stream = stream};
    char error[256] = "";

    if (bench->launch_peer(&call, error, sizeof error) == 0)
        return true;
    if (prints)
        fprintf(stderr, "%zux%zu, %s: %s\n", norm->rows, norm->hidden, contender->name,
                error);
    return false;
}

symm_norm norm_call_of(const struct norm_contender *contender,
                       const struct norm_shape *shape)
{
    return (symm_norm){
        .size = sizeof(symm_norm),
        .rows = shape->rows,
        .hidden = shape->hidden,
        .dtype = SYMM_BFLOAT16,
        .quant = contender->fp8 ? SYMM_NORM_QUANT_TENSOR : SYMM_NORM_QUANT_NONE,
        .flags = contender->what == NORM_CONSTANT ? SYMM_NORM_CONSTANT : 0,
        .eps = NORM_EPS};
}

/* ---- Inputs and checks ------------------------------------------------------------------ */

void norm_fill_rows(const struct norm_shape *shape, int rank, char array, size_t step,
                    size_t rows, void *to)
{
    const float most = array == 'i' ? 1 : array == 'r' ? 4 : 2;
    const uint64_t seed = shape->rows * 1000003 + shape->hidden * 64 + (uint64_t)rank +
                          ((uint64_t)array << 48);

    for (size_t row = 0; row < rows; row++)
        norm_fill(SYMM_BFLOAT16, seed + (row * step << 24), most, shape->hidden,
                  (char *)to + row * shape->hidden * 2);
}

/* The expected values of a size; of a large one those of every step-th row. */
struct expected {
    struct norm_shape shape, some;
    size_t step;
    int ranks, calls;
    void *in[8], *weight;
    void *residual[2]; /* before the last call; [1]: partial sums are rounded */
};

static void *rows_of(const struct expected *e, int rank, char array)
{
    const size_t rows = array == 'w' ? 1 : e->some.rows;
    void *made = malloc(rows * e->shape.hidden * 2);

    if (!made)
        abort();
    norm_fill_rows(&e->shape, rank, array, e->step, rows, made);
    return made;
}

static const struct expected *expect(const struct norm_shape *shape, int ranks,
                                     int calls)
{
    static struct expected e;

    if (e.shape.rows == shape->rows && e.shape.hidden == shape->hidden)
        return &e;
    for (int r = 0; r < e.ranks; r++)
        free(e.in[r]);
    free(e.weight);
    free(e.residual[0]);
    free(e.residual[1]);
    e = (struct expected){
        .shape = *shape, .some = *shape, .ranks = ranks, .calls = calls};
    e.step = 1 + shape->rows * shape->hidden / CHECKED;
    e.some.rows = (shape->rows + e.step - 1) / e.step;
    e.weight = rows_of(&e, 0, 'w');
    for (int r = 0; r < ranks; r++)
        e.in[r] = rows_of(&e, r, 'i');
    for (int partial = 0; partial < 2; partial++) {
        const symm_norm norm = {.rows = e.some.rows,
                                .hidden = shape->hidden,
                                .dtype = SYMM_BFLOAT16,
                                .flags = partial ? SYMM_NORM_ROUND_PARTIAL : 0};

        e.residual[partial] = rows_of(&e, 0, 'r');
        for (int i = 1; i < calls; i++)
            norm_advance(&norm, (const void *const *)e.in, ranks, e.residual[partial]);
    }
    return &e;
}

/* The rows that are checked, out of all of them. NULL: there is no such array. */
static void *taken(const struct expected *e, const void *all, size_t element)
{
    const size_t row = e->shape.hidden * element;
    char *made = all ? malloc(e->some.rows * row) : NULL;

    if (all && !made)
        abort();
    for (size_t i = 0; made && i < e->some.rows; i++)
        memcpy(made + i * row, (const char *)all + i * e->step * row, row);
    return made;
}

void norm_contender_check(struct norm_contender *contender,
                          const struct norm_shape *shape, int ranks, int calls,
                          const symm_norm *found, float scale)
{
    const struct expected *e = expect(shape, ranks, calls);
    const bool peer = contender->what == NORM_PEER;
    symm_norm norm = norm_call_of(contender, &e->some);
    struct norm_error error;
    size_t wrong;

    norm.flags |= peer && !contender->peer.fp32 ? SYMM_NORM_ROUND_PARTIAL : 0;
    norm.residual_in = e->residual[(norm.flags & SYMM_NORM_ROUND_PARTIAL) != 0];
    norm.weight = e->weight;
    norm.sum_out = taken(e, found->sum_out, 2);
    norm.residual_out = taken(e, found->residual_out, 2);
    norm.norm_out = taken(e, found->norm_out, 2);
    norm.quant_out = taken(e, found->quant_out, 1);
    norm.scale = norm.quant_out ? &scale : NULL;
    wrong = norm_wrong(&norm, (const void *const *)e->in, ranks,
                       peer ? PEER_UNITS : NORM_UNITS, &error);
    if (wrong > 0 && contender->wrong == 0)
        fprintf(stderr, "%zux%zu, %s: %s, row %zu, column %zu is %g instead of %g\n",
                shape->rows, shape->hidden, contender->name, error.array,
                error.row * e->step, error.column, error.found, error.wanted);
    contender->wrong += wrong;
    free(norm.sum_out);
    free(norm.residual_out);
    free(norm.norm_out);
    free(norm.quant_out);
}

/* ---- Output -------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

void norm_contender_finish(struct norm_contender *contender, int replays)
{
    qsort(contender->times, (size_t)replays, sizeof(double), compare);
    contender->median = contender->times[replays / 2];
    contender->p99 = contender->times[replays * 99 / 100];
}

/* The fastest one of `what`. */
static const struct norm_contender *best(const struct norm_bench *bench,
                                         enum norm_what what, bool fp8)
{
    const struct norm_contender *found = NULL;

    for (int i = 0; i < bench->count; i++) {
        const struct norm_contender *c = &bench->contenders[i];

        if (c->what == what && c->fp8 == fp8 && !c->dropped && c->wrong == 0 &&
            (!found || c->median < found->median))
            found = c;
    }
    return found;
}

static void print_best(const struct norm_contender *c)
{
    if (c)
        printf("  %6.2f (%6.2f)", c->median, c->p99);
    else
        printf("  %15s", "N/A");
}

static void print_row(const struct norm_bench *bench, const struct norm_shape *shape)
{
    const struct norm_contender *peer = best(bench, NORM_PEER, false);

    printf("%5zu x %5zu", shape->rows, shape->hidden);
    print_best(best(bench, NORM_PLAIN, false));
    print_best(best(bench, NORM_UNFUSED, false));
    print_best(best(bench, NORM_FUSED, false));
    print_best(best(bench, NORM_CONSTANT, false));
    print_best(peer);
    print_best(best(bench, NORM_FUSED, true));
    print_best(best(bench, NORM_CONSTANT, true));
    print_best(best(bench, NORM_PEER, true));
    printf("  %s\n", peer ? peer->name : "");
    fflush(stdout);
}

static void print_head(const struct norm_bench *bench)
{
    printf("# bfloat16, %d calls in a graph, each with the last one's residual; us a "
           "call: "
           "median (p99) of %d replays\n# %11s",
           bench->calls, bench->replays, "rows x hidden");
    for (int i = 0; i < 8; i++)
        printf("  %15s",
               (const char *const[]){"all_reduce", "+ norm kernel", "fused",
                                     "fused constant", "best trt", "fused fp8",
                                     "constant fp8", "best trt fp8"}[i]);
    printf("\n");
}

void norm_bench_row(struct norm_bench *bench, const struct norm_shape *shape,
                    bool prints)
{
    FILE *file = bench->file;

    if (prints && bench->out && !file) {
        bench->file = file = fopen(bench->out, "we");
        if (file)
            fprintf(file, "rows\thidden\tcontender\tmedian_us\tp99_us\twrong\n");
        else
            fprintf(stderr, "-o: %s cannot be written\n", bench->out);
    }
    if (prints && shape == bench->shapes)
        print_head(bench);
    if (prints)
        print_row(bench, shape);
    for (int i = 0; i < bench->count; i++) {
        const struct norm_contender *c = &bench->contenders[i];

        bench->wrong += c->wrong;
        bench->failed += c->dropped;
        if (file)
            fprintf(file, "%zu\t%zu\t%s\t%.4f\t%.4f\t%s\n", shape->rows, shape->hidden,
                    c->name, c->median, c->p99,
                    c->dropped ? "failed"
                    : c->wrong ? "wrong"
                               : "0");
    }
    if (file)
        fflush(file);
}

int norm_bench_end(struct norm_bench *bench, bool prints)
{
    if (prints)
        printf("# %zu wrong elements, %d contenders of a size left out\n", bench->wrong,
               bench->failed);
    for (int i = 0; i < bench->count; i++)
        free(bench->contenders[i].times);
    if (bench->file)
        fclose(bench->file);
    return bench->wrong > 0 || bench->failed > 0;
}
