/* SPDX-License-Identifier: MIT */
/*
 * test_host_heap_api.c - buffers of call sites: offsets, references, release, rendezvous.
 *
 * A call site gets the same memory during the team's life, at the same offset on all ranks;
 * nothing is reused before a rendezvous. If ranks differ, the rendezvous fails on all ranks
 * with the entry and the rank; after a correction they can continue. Trace hooks and the
 * heap dump show the existing buffers.
 */
#include "harness.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct shared {
    struct harness_sync sync;
    size_t offsets[HARNESS_MAX_RANKS][64];
    int culprit, kind;
    char directory[64];
};

static symm_status place(symm_team *team, int64_t count, symm_dtype dtype,
                         uint64_t alloc_id, symm_buffer **buffer)
{
    const int64_t stride = 1;
    return symm_empty_strided_p2p(team, 1, &count, &stride, dtype, alloc_id, buffer);
}

static bool disjoint(const symm_buffer *a, const symm_buffer *b)
{
    size_t x = symm_buffer_offset(a), y = symm_buffer_offset(b);
    return x + symm_buffer_bytes(a) <= y || y + symm_buffer_bytes(b) <= x;
}

static int run_both(void **state, harness_body body, int ranks)
{
    struct harness h;
    memset(&h, 0, sizeof(h));
    h.ranks = ranks;
    h.body = body;
    h.arg = *state;
    return harness_run_both(h);
}

/* ---- A call site's memory -------------------------------------------------------- */

static int body_same_memory(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    symm_buffer *buffer = NULL, *other = NULL;
    (void)arg;
    CHECK_OK(place(team, 1000, SYMM_FLOAT32, 5, &buffer));
    char *first = symm_buffer_ptr(buffer);
    size_t offset = symm_buffer_offset(buffer);
    CHECK(first != NULL && symm_buffer_bytes(buffer) == 4000);
    CHECK((uintptr_t)first % 256 == 0);
    memset(first, 1, 4000); /* usable before the rendezvous */
    first[3999] = 42;

    CHECK_STATUS(place(team, 1000, SYMM_FLOAT32, 5, &other), SYMM_ERR_IN_USE);
    CHECK_ERROR("5");
    CHECK(other == NULL);
    CHECK_STATUS(symm_alloc_id_free(team, 5), SYMM_ERR_IN_USE);
    CHECK_ERROR("5");
    symm_buffer_release(buffer);
    CHECK_OK(
        place(team, 1000, SYMM_FLOAT32, 5, &buffer)); /* before the rendezvous too */
    CHECK(symm_buffer_ptr(buffer) == first);
    CHECK_OK(symm_rendezvous(team));
    symm_buffer_release(buffer);
    for (int i = 0; i < 10; i++) {
        CHECK_OK(place(team, 1000, SYMM_FLOAT32, 5, &buffer));
        CHECK(symm_buffer_ptr(buffer) == first && symm_buffer_offset(buffer) == offset);
        CHECK(first[3999] == 42); /* and what lay in it */
        for (int p = 0; p < symm_team_size(team); p++)
            CHECK(symm_buffer_peer_ptr(buffer, p) != NULL);
        CHECK(symm_buffer_peer_ptr(buffer, symm_team_rank(team)) == first);
        symm_buffer_release(buffer);
        CHECK_OK(symm_rendezvous(team));
    }
    return 0;
}

static void same_memory_again(void **state)
{
    assert_int_equal(run_both(state, body_same_memory, 1), 0);
    assert_int_equal(run_both(state, body_same_memory, 3), 0);
}

static int body_differences(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    symm_buffer *buffer = NULL;
    const int64_t square[2] = {25, 40}, strides[2] = {40, 1};
    (void)arg;
    CHECK_OK(place(team, 1000, SYMM_FLOAT32, 6, &buffer));
    void *first = symm_buffer_ptr(buffer);
    symm_buffer_release(buffer);
    buffer = NULL;

    CHECK_STATUS(place(team, 1001, SYMM_FLOAT32, 6, &buffer), SYMM_ERR_MISMATCH);
    CHECK_ERROR("4000"); /* both sizes, and whose */
    CHECK_ERROR("4004");
    CHECK_ERROR("6");
    CHECK_STATUS(place(team, 999, SYMM_FLOAT32, 6, &buffer), SYMM_ERR_MISMATCH);
    CHECK_ERROR("3996");
    CHECK_STATUS(place(team, 1000, SYMM_INT32, 6, &buffer), SYMM_ERR_MISMATCH);
    CHECK_ERROR("float32");
    CHECK_ERROR("int32");
    CHECK(buffer == NULL);
    /* The error says nothing against peers: the team works on, and so does the site. */
    CHECK_OK(symm_rendezvous(team));
    CHECK_OK(symm_barrier(team, NULL, NULL));
    CHECK_OK(place(team, 1000, SYMM_FLOAT32, 6, &buffer));
    CHECK(symm_buffer_ptr(buffer) == first);
    symm_buffer_release(buffer);
    CHECK_OK(
        symm_empty_strided_p2p(team, 2, square, strides, SYMM_FLOAT32, 6, &buffer));
    CHECK(symm_buffer_ptr(buffer) == first); /* the same size in another shape */
    symm_buffer_release(buffer);

    CHECK_OK(symm_alloc_id_free(team, 6));
    CHECK_STATUS(symm_alloc_id_free(team, 6), SYMM_ERR_NOT_FOUND);
    CHECK_ERROR("6");
    CHECK_STATUS(symm_alloc_id_free(team, 987654321), SYMM_ERR_NOT_FOUND);
    CHECK_ERROR("987654321");
    CHECK_OK(place(team, 77, SYMM_INT8, 6, &buffer)); /* a new life */
    CHECK(symm_buffer_bytes(buffer) == 77);
    symm_buffer_release(buffer);
    return 0;
}

static void differences_are_named(void **state)
{
    assert_int_equal(run_both(state, body_differences, 2), 0);
}

static int body_extents(symm_ctx *ctx, void *arg)
{
    static const struct {
        int ndim;
        int64_t shape[3], stride[3];
        size_t elements;
    } cases[] = {
        {0, {0}, {0}, 1},
        {1, {1000}, {0}, 1}, /* all elements are one */
        {1, {10}, {3}, 28},
        {2, {4, 8}, {16, 1}, 56}, /* padded rows */
        {2, {4, 8}, {1, 4}, 32},  /* columns first */
        {3, {1, 5, 1}, {999, 2, 777}, 9},
    };
    symm_team *team = symm_team_world(ctx);
    symm_buffer *buffers[6];
    (void)arg;
    for (int i = 0; i < 6; i++) {
        CHECK_OK(symm_empty_strided_p2p(team, cases[i].ndim, cases[i].shape,
                                        cases[i].stride, SYMM_FLOAT32, (uint64_t)i + 1,
                                        &buffers[i]));
        CHECK_MESSAGE(symm_buffer_bytes(buffers[i]) == cases[i].elements * 4,
                      "case %d: %zu bytes", i, symm_buffer_bytes(buffers[i]));
    }
    for (int i = 0; i < 6; i++) {
        for (int k = 0; k < i; k++)
            CHECK(disjoint(buffers[i], buffers[k]));
    }
    CHECK_OK(symm_empty_strided_p2p(team, 0, NULL, NULL, SYMM_INT64, 100, buffers));
    CHECK(symm_buffer_bytes(buffers[0]) == 8);
    CHECK_OK(symm_rendezvous(team));
    return 0; /* finalize frees what is left */
}

static void extents_are_right(void **state)
{
    assert_int_equal(run_both(state, body_extents, 2), 0);
}

/* ---- Offsets and reuse ----------------------------------------------------------- */

static int compare_offsets(struct shared *shared, symm_team *team,
                           symm_buffer *const *buffers, int count)
{
    int me = symm_team_rank(team), n = symm_team_size(team);
    for (int i = 0; i < count; i++)
        shared->offsets[me][i] =
            buffers[i] != NULL ? symm_buffer_offset(buffers[i]) : 0;
    CHECK_ZERO(harness_sync_wait(&shared->sync, n));
    for (int p = 0; p < n; p++) {
        for (int i = 0; i < count; i++)
            CHECK_MESSAGE(shared->offsets[p][i] == shared->offsets[me][i],
                          "buffer %d lies at %zu here and at %zu on rank %d", i,
                          shared->offsets[me][i], shared->offsets[p][i], p);
    }
    CHECK_ZERO(harness_sync_wait(&shared->sync, n));
    return 0;
}

/* A random life of 40 call sites, the same on every rank: offsets agree, live ones
 * differ. */
static int body_random_life(symm_ctx *ctx, void *arg)
{
    enum { SITES = 40 };
    struct shared *shared = arg;
    symm_team *team = symm_team_world(ctx);
    symm_buffer *buffers[SITES] = {NULL};
    int64_t counts[SITES] = {0};
    uint64_t random = 99;
    int steps = HARNESS_SLOW ? 300 : 1500;
    for (int step = 0; step < steps; step++) {
        uint64_t z = harness_random(&random);
        int i = (int)(z % SITES);
        uint64_t id = (uint64_t)i + 1;
        if (buffers[i] == NULL && counts[i] == 0) {
            counts[i] = (int64_t)(1 + (z >> 16) % ((z >> 8) % 8 == 0 ? 3000000 : 5000));
            CHECK_OK(place(team, counts[i], SYMM_UINT8, id, &buffers[i]));
            unsigned char *bytes = symm_buffer_ptr(buffers[i]);
            bytes[0] = bytes[counts[i] - 1] = (unsigned char)i;
        } else if (buffers[i] == NULL) {
            CHECK_OK(place(team, counts[i], SYMM_UINT8, id, &buffers[i]));
        } else {
            const unsigned char *bytes = symm_buffer_ptr(buffers[i]);
            CHECK(bytes[0] == i && bytes[counts[i] - 1] == i);
            symm_buffer_release(buffers[i]);
            buffers[i] = NULL;
            if ((z >> 40) % 2 == 0) {
                CHECK_OK(symm_alloc_id_free(team, id));
                counts[i] = 0;
            }
        }
        if ((z >> 44) % 8 == 0)
            CHECK_OK(symm_rendezvous(team));
        for (int k = 0; k < SITES; k++) {
            bool both = k != i && buffers[k] != NULL && buffers[i] != NULL;
            CHECK(!both || disjoint(buffers[i], buffers[k]));
        }
        if (step % 50 == 0)
            CHECK_ZERO(compare_offsets(shared, team, buffers, SITES));
    }
    return 0;
}

static void offsets_agree(void **state)
{
    assert_int_equal(run_both(state, body_random_life, 1), 0);
    assert_int_equal(run_both(state, body_random_life, 3), 0);
}

static int body_reuse(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    symm_buffer *a = NULL, *b = NULL;
    const int64_t bytes = (int64_t)48 << 20;
    (void)arg;
    CHECK_OK(place(team, bytes, SYMM_UINT8, 1, &a));
    CHECK_OK(symm_rendezvous(team));
    size_t offset = symm_buffer_offset(a);
    symm_buffer_release(a);
    CHECK_OK(symm_alloc_id_free(team, 1));
    CHECK_OK(
        place(team, bytes, SYMM_UINT8, 2, &b)); /* a peer may still read the first */
    CHECK(symm_buffer_offset(b) + (size_t)bytes <= offset ||
          offset + (size_t)bytes <= symm_buffer_offset(b));
    CHECK_OK(symm_rendezvous(team));
    symm_buffer_release(b);
    CHECK_OK(symm_alloc_id_free(team, 2));
    /* 100 x 48 MiB fit a 1 GiB heap only if memory is reused. */
    for (int i = 0; i < 100; i++) {
        uint64_t id = i % 2 == 0 ? 0 : 3;
        CHECK_OK(symm_rendezvous(team));
        CHECK_OK(place(team, bytes, SYMM_UINT8, id, &a));
        symm_buffer_release(a);
        if (id != 0)
            CHECK_OK(symm_alloc_id_free(team, id));
    }
    CHECK_OK(symm_rendezvous(team));
    return 0;
}

static void memory_is_reused_after_rendezvous(void **state)
{
    assert_int_equal(run_both(state, body_reuse, 2), 0);
}

static int body_not_persistent(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    symm_buffer *a = NULL, *b = NULL;
    (void)arg;
    CHECK_OK(place(team, 100, SYMM_INT8, 0, &a));
    CHECK_OK(symm_buffer_alloc(team, 100, &b)); /* the same, of bytes */
    CHECK(symm_buffer_bytes(b) == 100);
    CHECK(disjoint(a, b));
    CHECK_OK(symm_rendezvous(team));
    symm_buffer_release(a);
    CHECK_STATUS(symm_alloc_id_free(team, 0), SYMM_ERR_INVALID);
    symm_buffer_release(b);
    symm_buffer_release(NULL);
    return 0;
}

static void alloc_id_zero(void **state)
{
    assert_int_equal(run_both(state, body_not_persistent, 2), 0);
}

static int body_exhaustion(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    symm_buffer *buffer = NULL;
    (void)arg;
    CHECK_STATUS(place(team, (int64_t)1 << 34, SYMM_INT8, 9, &buffer), SYMM_ERR_NOMEM);
    CHECK_ERROR("17179869184");
    CHECK(buffer == NULL);
    CHECK_OK(place(team, 100, SYMM_INT8, 9, &buffer)); /* nothing is left of it */
    CHECK_OK(symm_rendezvous(team));
    symm_buffer_release(buffer);
    return 0;
}

static void exhaustion_is_told(void **state)
{
    assert_int_equal(run_both(state, body_exhaustion, 2), 0);
}

/* ---- Ranks that differ ----------------------------------------------------------- */

enum difference { SIZE, DTYPE, SHAPE, ORDER, EXTRA, ID, NOT_FREED, DIFFERENCES };
static const char *const difference_names[DIFFERENCES] = {
    "size", "dtype", "shape", "order", "extra", "alloc_id", "not freed"};

/* What the culprit or the others allocate; buffers[0..1], ids[0..1]. */
static int allocate(symm_team *team, enum difference kind, bool culprit,
                    symm_buffer **buffers, uint64_t *ids)
{
    const int64_t tall[2] = {20, 10}, wide[2] = {10, 20};
    const int64_t tall_stride[2] = {10, 1}, wide_stride[2] = {20, 1};
    ids[0] = 4001;
    ids[1] = 4002;
    if (kind == ORDER && culprit) {
        ids[0] = 4002;
        ids[1] = 4001;
    } else if (kind == ID && culprit) {
        ids[1] = 4003;
    }
    CHECK_OK(place(team, 300, SYMM_FLOAT32, ids[0], &buffers[0]));
    if (kind == SIZE)
        CHECK_OK(place(team, culprit ? 5000 : 200, SYMM_FLOAT32, ids[1], &buffers[1]));
    else if (kind == DTYPE)
        CHECK_OK(
            place(team, 200, culprit ? SYMM_INT32 : SYMM_FLOAT32, ids[1], &buffers[1]));
    else if (kind == SHAPE)
        CHECK_OK(symm_empty_strided_p2p(team, 2, culprit ? wide : tall,
                                        culprit ? wide_stride : tall_stride,
                                        SYMM_FLOAT32, ids[1], &buffers[1]));
    else if (kind != EXTRA || culprit)
        CHECK_OK(place(team, 200, SYMM_FLOAT32, ids[1], &buffers[1]));
    return 0;
}

static int body_differs(symm_ctx *ctx, void *arg)
{
    struct shared *shared = arg;
    symm_team *team = symm_team_world(ctx);
    symm_buffer *buffers[2] = {NULL, NULL}, *old = NULL, *good = NULL;
    enum difference kind = (enum difference)shared->kind;
    bool culprit = symm_team_rank(team) == shared->culprit;
    uint64_t ids[2];
    char rank_text[32];
    snprintf(rank_text, sizeof(rank_text), "rank %d", shared->culprit);

    CHECK_OK(place(team, 64, SYMM_INT32, 7, &old));
    CHECK_OK(symm_rendezvous(team));
    symm_buffer_release(old);
    if (kind == NOT_FREED) {
        if (!culprit)
            CHECK_OK(symm_alloc_id_free(team, 7));
    } else {
        CHECK_ZERO(allocate(team, kind, culprit, buffers, ids));
    }
    CHECK_STATUS(symm_rendezvous(team), SYMM_ERR_MISMATCH);
    if (!culprit) /* the culprit sees another rank differ */
        CHECK_ERROR(rank_text);
    else
        CHECK_ERROR("rank ");
    CHECK_ERROR(kind == NOT_FREED ? "7" : "400");

    if (kind == NOT_FREED && culprit)
        CHECK_OK(symm_alloc_id_free(team, 7));
    for (int i = 0; i < 2 && kind != NOT_FREED; i++) {
        symm_buffer_release(buffers[i]);
        if (buffers[i] != NULL)
            CHECK_OK(symm_alloc_id_free(team, ids[i]));
    }
    CHECK_OK(symm_rendezvous(team));
    CHECK_OK(place(team, 500, SYMM_INT32, 4001, &good));
    CHECK_OK(symm_rendezvous(team));
    CHECK_ZERO(compare_offsets(shared, team, &good, 1));
    int *ints = symm_buffer_ptr(good);
    for (int i = 0; i < 500; i++)
        ints[i] = i + symm_team_rank(team);
    CHECK_OK(symm_all_reduce(team, ints, ints, 500, SYMM_INT32, SYMM_MAX, NULL, NULL));
    for (int i = 0; i < 500; i++)
        CHECK(ints[i] == i + symm_team_size(team) - 1);
    symm_buffer_release(good);
    return 0;
}

static void differing_ranks_learn_it(void **state)
{
    struct shared *shared = *state;
    int failed = 0;
    for (shared->kind = 0; shared->kind < DIFFERENCES; shared->kind++) {
        for (int n = 2; n <= 3; n++) {
            shared->culprit = (n + shared->kind) % n;
            if (run_both(state, body_differs, n) != 0) {
                failed = 1;
                fprintf(stderr, "  kind of difference: %s, rank %d of %d\n",
                        difference_names[shared->kind], shared->culprit, n);
            }
        }
    }
    assert_int_equal(failed, 0);
}

/* ---- Trace hooks and the dump ---------------------------------------------------- */

struct trace {
    struct {
        char *ptr;
        size_t bytes;
    } live[256];
    int count, events, errors;
};

static void record(void *arg, symm_trace_event event, void *ptr, size_t bytes)
{
    struct trace *t = arg;
    t->events++;
    if (event == SYMM_TRACE_ALLOC) {
        if (t->count == 256 || bytes == 0)
            t->errors++;
        else
            t->live[t->count++] = (typeof(t->live[0])){ptr, bytes};
        return;
    }
    for (int i = 0; i < t->count; i++) {
        if (t->live[i].ptr == ptr && t->live[i].bytes == bytes) {
            t->live[i] = t->live[--t->count];
            return;
        }
    }
    t->errors++; /* a segment goes that never came */
}

/* Whether segments cover all of the buffer; they may be adjacent. */
static bool covers(const struct trace *t, const symm_buffer *buffer)
{
    char *at = symm_buffer_ptr(buffer), *end = at + symm_buffer_bytes(buffer);
    for (int i = 0; at < end && i < t->count; i++) {
        if (t->live[i].ptr <= at && at < t->live[i].ptr + t->live[i].bytes) {
            at = t->live[i].ptr + t->live[i].bytes;
            i = -1; /* from the start: for what follows */
        }
    }
    return at >= end;
}

static int body_trace(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    symm_buffer *small = NULL, *large = NULL, *after = NULL;
    static _Thread_local struct trace early, late;
    int early_id = -1, late_id = -1;
    (void)arg;
    memset(&early, 0, sizeof(early));
    memset(&late, 0, sizeof(late));
    CHECK_OK(symm_trace_attach(ctx, record, &early, &early_id));
    CHECK_OK(place(team, 1000, SYMM_INT8, 1, &small));
    CHECK_OK(place(team, (int64_t)20 << 20, SYMM_INT8, 2, &large));
    CHECK_OK(symm_rendezvous(team));
    CHECK(covers(&early, small) && covers(&early, large));
    CHECK_OK(symm_trace_attach(ctx, record, &late, &late_id));
    CHECK(late_id != early_id);
    CHECK_MESSAGE(late.count == early.count, "a late hook got %d segments, %d exist",
                  late.count, early.count);
    CHECK(covers(&late, small) && covers(&late, large));
    symm_trace_detach(ctx, early_id);
    int events = early.events;
    CHECK_OK(place(team, (int64_t)30 << 20, SYMM_INT8, 3, &after));
    CHECK_OK(symm_rendezvous(team));
    CHECK(early.events == events && covers(&late, after));
    symm_buffer_release(after);
    CHECK_OK(symm_alloc_id_free(team, 3));
    CHECK_OK(symm_rendezvous(team));
    CHECK(covers(&late, small) && covers(&late, large));
    CHECK(early.errors == 0 && late.errors == 0);
    symm_trace_detach(ctx, late_id);
    symm_trace_detach(ctx, late_id); /* gone already: nothing happens */
    symm_buffer_release(small);
    symm_buffer_release(large);
    return 0;
}

static void trace_hooks(void **state)
{
    assert_int_equal(run_both(state, body_trace, 2), 0);
}

/* Skips one JSON value; NULL if there is none. Strict enough to find a broken writer.
 */
static const char *json_skip(const char *s, int depth)
{
    s += strspn(s, " \t\r\n");
    if (*s == '"') {
        for (s++; *s != '\0' && *s != '"'; s++)
            s += *s == '\\' && s[1] != '\0';
        return *s == '"' ? s + 1 : NULL;
    }
    if (*s != '{' && *s != '[') {
        size_t length = strspn(s, "+-.0123456789abcdefghijklmnopqrstuvwxyzE");
        return length > 0 ? s + length : NULL;
    }
    char open = *s++, close = open == '{' ? '}' : ']';
    for (bool first = true; depth > 0; first = false) {
        s += strspn(s, " \t\r\n");
        if (*s == close && first)
            return s + 1;
        if (open == '{') {
            s = *s == '"' ? json_skip(s, depth - 1) : NULL;
            s = s != NULL ? s + strspn(s, " \t\r\n") : NULL;
            if (s == NULL || *s++ != ':')
                return NULL;
        }
        s = json_skip(s, depth - 1);
        if (s == NULL)
            return NULL;
        s += strspn(s, " \t\r\n");
        if (*s == close)
            return s + 1;
        if (*s++ != ',')
            return NULL;
    }
    return NULL;
}

static size_t read_file(const char *path, char *text, size_t bytes)
{
    FILE *file = fopen(path, "rb");
    size_t length = file != NULL ? fread(text, 1, bytes - 1, file) : 0;
    if (file != NULL)
        fclose(file);
    text[length] = '\0';
    return length;
}

static symm_status write_heap(symm_ctx *ctx, const char *path, const char *format)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    symm_status status = symm_heap_write(ctx, fd, format);
    (void)close(fd);
    return status;
}

static int body_dump(symm_ctx *ctx, void *arg)
{
    const struct shared *shared = arg;
    symm_team *team = symm_team_world(ctx);
    symm_buffer *held = NULL, *released = NULL;
    char path[128];
    static _Thread_local char text[100000];
    CHECK_OK(place(team, 12345, SYMM_INT8, 80001, &held));
    CHECK_OK(place(team, 500, SYMM_FLOAT32, 80002, &released));
    CHECK_OK(symm_rendezvous(team));
    symm_buffer_release(released);

    snprintf(path, sizeof(path), "%s/heap.%d", shared->directory, harness_rank());
    CHECK_OK(write_heap(ctx, path, "json"));
    CHECK(read_file(path, text, sizeof(text)) > 0);
    const char *end = json_skip(text, 32);
    CHECK_MESSAGE(end != NULL && end[strspn(end, " \t\r\n")] == '\0',
                  "not JSON: %.200s", text);
    CHECK(strstr(text, "80001") != NULL && strstr(text, "80002") != NULL);

    CHECK_OK(write_heap(ctx, path, "pickle"));
    size_t length = read_file(path, text, sizeof(text));
    CHECK(length > 4 && (unsigned char)text[0] == 0x80 && text[length - 1] == '.');

    CHECK_STATUS(write_heap(ctx, path, "xml"), SYMM_ERR_INVALID);
    CHECK_ERROR("xml");
    CHECK_STATUS(symm_heap_write(ctx, -1, "json"), SYMM_ERR_SYSTEM);
    CHECK_ERROR("descriptor -1");
    symm_buffer_release(held);
    return 0;
}

static void heap_dump(void **state)
{
    struct shared *shared = *state;
    harness_directory(shared->directory, sizeof(shared->directory));
    int failed = run_both(state, body_dump, 2);
    harness_remove(shared->directory);
    assert_int_equal(failed, 0);
}

int main(void)
{
    struct shared *shared = harness_shared(sizeof(*shared));
    struct CMUnitTest tests[] = {
        cmocka_unit_test(same_memory_again),
        cmocka_unit_test(differences_are_named),
        cmocka_unit_test(extents_are_right),
        cmocka_unit_test(offsets_agree),
        cmocka_unit_test(memory_is_reused_after_rendezvous),
        cmocka_unit_test(alloc_id_zero),
        cmocka_unit_test(exhaustion_is_told),
        cmocka_unit_test(differing_ranks_learn_it),
        cmocka_unit_test(trace_hooks),
        cmocka_unit_test(heap_dump),
    };
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        tests[i].initial_state = shared;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
