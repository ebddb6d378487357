/* SPDX-License-Identifier: MIT */
/*
 * test_host_api.c - wrong arguments and bad input: a status, and an error with the value.
 *
 * Wrong arguments are detected before anything is sent, outputs stay untouched, and the
 * team still works. Also names, tables, and reports about the machine.
 */
#include "harness.h"
#include "symm/tools.h"

#include <limits.h>
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define POISON ((void *)(uintptr_t)0x5a5a5a5a)

static struct harness simple(harness_body body, int ranks)
{
    struct harness h;
    memset(&h, 0, sizeof(h));
    h.ranks = ranks;
    h.body = body;
    return h;
}

/* The team is as good as new after a local error. */
static int still_works(symm_team *team)
{
    int in = 3, out = 0;
    CHECK_OK(symm_all_reduce(team, &in, &out, 1, SYMM_INT32, SYMM_SUM, NULL, NULL));
    CHECK(out == 3 * symm_team_size(team));
    return 0;
}

/* ---- Names and tables ------------------------------------------------------------ */

static void names_and_tables(void **state)
{
    symm_dtype dtype = SYMM_INT8;
    symm_op op = SYMM_MAX;
    symm_algorithm algorithm = SYMM_ALGORITHM_COPY_IN;
    (void)state;
    assert_string_equal(symm_version(), SYMM_VERSION_STRING);
#define NAME(name, value, text)                                                        \
    assert_string_equal(symm_status_name(SYMM_##name), "SYMM_" #name);                 \
    assert_string_equal(symm_status_text(SYMM_##name), text);
    SYMM_STATUS_MAP(NAME)
#undef NAME
    assert_non_null(symm_status_name((symm_status)-999));
    assert_non_null(symm_status_text((symm_status)77));
#define DTYPE(name, value, json, bytes)                                                \
    assert_int_equal(symm_dtype_size(SYMM_##name), bytes);                             \
    assert_string_equal(symm_dtype_name(SYMM_##name), json);                           \
    assert_int_equal(symm_dtype_parse(json, &dtype), SYMM_OK);                         \
    assert_int_equal(dtype, SYMM_##name);
    SYMM_DTYPE_MAP(DTYPE)
#undef DTYPE
#define OP(name, value, json)                                                          \
    assert_string_equal(symm_op_name(SYMM_##name), json);                              \
    assert_int_equal(symm_op_parse(json, &op), SYMM_OK);                               \
    assert_int_equal(op, SYMM_##name);
    SYMM_OP_MAP(OP)
#undef OP
#define ALGORITHM(id, value, name)                                                     \
    assert_int_equal(SYMM_ALGORITHM_##id, value);                                      \
    assert_string_equal(symm_algorithm_name(SYMM_ALGORITHM_##id), name);               \
    assert_int_equal(symm_algorithm_parse(name, &algorithm), SYMM_OK);                 \
    assert_int_equal(algorithm, SYMM_ALGORITHM_##id);
    SYMM_ALGORITHM_MAP(ALGORITHM)
#undef ALGORITHM
    assert_string_equal(symm_algorithm_name(SYMM_ALGORITHM_PUT), "put");
    assert_null(symm_algorithm_name(SYMM_ALGORITHM_COUNT));
    assert_null(symm_algorithm_name((symm_algorithm)-1));
    assert_int_equal(symm_algorithm_parse("put", &algorithm), SYMM_ERR_INVALID);
    assert_non_null(strstr(symm_last_error(), "'put', allowed: ll_push lamport_push"));
    assert_int_equal(symm_algorithm_parse("ll_pus", &algorithm), SYMM_ERR_INVALID);
    assert_int_equal(algorithm, SYMM_ALGORITHM_ENGINE);
    assert_int_equal(symm_dtype_size((symm_dtype)99), 0);
    assert_null(symm_dtype_name((symm_dtype)-1));
    assert_null(symm_op_name((symm_op)55));
    dtype = SYMM_INT8;
    assert_int_equal(symm_dtype_parse("float128", &dtype), SYMM_ERR_INVALID);
    assert_non_null(strstr(symm_last_error(), "float128"));
    assert_int_equal(dtype, SYMM_INT8);
    assert_int_equal(symm_op_parse("xor", &op), SYMM_ERR_INVALID);
    assert_non_null(strstr(symm_last_error(), "xor"));
    assert_int_equal(symm_dtype_parse(NULL, &dtype), SYMM_ERR_INVALID);
    assert_int_equal(symm_op_parse("sum", NULL), SYMM_ERR_INVALID);
}

/* Every code, size and number of lanes against the table of dlpack.h. */
static void dlpack_types(void **state)
{
    static const struct {
        uint8_t code, bits;
        symm_dtype dtype;
    } known[] = {
        {0, 8, SYMM_INT8},         {0, 16, SYMM_INT16},       {0, 32, SYMM_INT32},
        {0, 64, SYMM_INT64},       {1, 8, SYMM_UINT8},        {1, 16, SYMM_UINT16},
        {1, 32, SYMM_UINT32},      {1, 64, SYMM_UINT64},      {2, 16, SYMM_FLOAT16},
        {2, 32, SYMM_FLOAT32},     {2, 64, SYMM_FLOAT64},     {4, 16, SYMM_BFLOAT16},
        {10, 8, SYMM_FLOAT8_E4M3}, {12, 8, SYMM_FLOAT8_E5M2}, {6, 8, SYMM_UINT8}};
    const int count = sizeof(known) / sizeof(known[0]);
    symm_dtype dtype;
    uint8_t code, bits;

    (void)state;
    for (int c = 0; c < 256; c++)
        for (int b = 0; b < 256; b++) {
            int at = 0;

            while (at < count && (known[at].code != c || known[at].bits != b))
                at++;
            dtype = (symm_dtype)77;
            assert_int_equal(symm_dtype_from_dlpack((uint8_t)c, (uint8_t)b, 1, &dtype),
                             at < count ? SYMM_OK : SYMM_ERR_INVALID);
            assert_int_equal(dtype, at < count ? known[at].dtype : 77);
        }
    for (int i = 0; i < count; i++) {
        if (known[i].code == 6)
            continue;
        assert_int_equal(symm_dtype_to_dlpack(known[i].dtype, &code, &bits), SYMM_OK);
        assert_int_equal(code, known[i].code);
        assert_int_equal(bits, known[i].bits);
    }
    assert_int_equal(symm_dtype_from_dlpack(5, 64, 1, &dtype), SYMM_ERR_INVALID);
    assert_non_null(
        strstr(symm_last_error(), "found code 5 with 64 bits, allowed: int"));
    for (int lanes = 0; lanes < 65536; lanes += lanes < 8 ? 1 : 8191)
        if (lanes != 1) {
            assert_int_equal(symm_dtype_from_dlpack(2, 32, (uint16_t)lanes, &dtype),
                             SYMM_ERR_INVALID);
            assert_non_null(strstr(symm_last_error(), "found lanes"));
        }
    assert_int_equal(symm_dtype_from_dlpack(2, 32, 1, NULL), SYMM_ERR_INVALID);
    code = bits = 99;
    assert_int_equal(symm_dtype_to_dlpack((symm_dtype)99, &code, &bits),
                     SYMM_ERR_INVALID);
    assert_non_null(strstr(symm_last_error(), "dtype 99 is unknown"));
    assert_int_equal(symm_dtype_to_dlpack(SYMM_INT8, NULL, &bits), SYMM_ERR_INVALID);
    assert_int_equal(symm_dtype_to_dlpack(SYMM_INT8, &code, NULL), SYMM_ERR_INVALID);
    assert_true(code == 99 && bits == 99);
}

static void option_table(void **state)
{
    symm_option_info info;
    bool timeout = false;
    int index;
    (void)state;
    setenv("SYMM_TIMEOUT", "12.5", 1);
    for (index = 0; index < 1000; index++) {
        memset(&info, 0, sizeof(info));
        info.size = sizeof(info);
        symm_status status = symm_option_at(index, &info);
        if (status == SYMM_ERR_NOT_FOUND)
            break;
        assert_int_equal(status, SYMM_OK);
        assert_true(strncmp(info.name, "SYMM_", 5) == 0);
        assert_non_null(info.fallback);
        assert_true(info.help != NULL && info.help[0] != '\0');
        assert_true(
            strcmp(info.kind, "string") == 0 || strcmp(info.kind, "bytes") == 0 ||
            strcmp(info.kind, "seconds") == 0 || strcmp(info.kind, "integer") == 0 ||
            strcmp(info.kind, "flag") == 0);
        if (strcmp(info.name, "SYMM_TIMEOUT") == 0) {
            timeout = true;
            assert_string_equal(info.value, "12.5");
            assert_string_equal(info.kind, "seconds");
        }
    }
    unsetenv("SYMM_TIMEOUT");
    assert_true(timeout && index > 5 && index < 1000);
    info.size = sizeof(info);
    assert_int_equal(symm_option_at(-1, &info), SYMM_ERR_NOT_FOUND);
    assert_int_equal(symm_option_at(0, NULL), SYMM_ERR_INVALID);
}

/* ---- Buffers --------------------------------------------------------------------- */

#define PLACE_REFUSED(ndim, shape, stride, dtype, status, text)                        \
    do {                                                                               \
        symm_buffer *none_yet = POISON;                                                \
        CHECK_STATUS(                                                                  \
            symm_empty_strided_p2p(team, ndim, shape, stride, dtype, 9, &none_yet),    \
            status);                                                                   \
        CHECK(none_yet == POISON);                                                     \
        CHECK_ERROR(text);                                                             \
    } while (0)

static int body_bad_buffers(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    symm_buffer *buffer = NULL;
    static const int64_t one = 1, minus = -5, ten = 10, big = INT64_MAX;
    static const int64_t two_big[2] = {(int64_t)1 << 40, (int64_t)1 << 40},
                         ones[17] = {1};
    static const int64_t wide[2] = {2, 2}, far[2] = {INT64_MAX, INT64_MAX};
    static const int64_t none[2] = {0, 5}, flat[2] = {1, 1};
    (void)arg;
    PLACE_REFUSED(-1, &ten, &one, SYMM_INT8, SYMM_ERR_INVALID, "-1");
    PLACE_REFUSED(17, ones, ones, SYMM_INT8, SYMM_ERR_INVALID, "17");
    PLACE_REFUSED(INT_MAX, ones, ones, SYMM_INT8, SYMM_ERR_INVALID, "2147483647");
    PLACE_REFUSED(1, &minus, &one, SYMM_INT8, SYMM_ERR_INVALID, "-5");
    PLACE_REFUSED(1, &ten, &minus, SYMM_INT8, SYMM_ERR_INVALID, "-5");
    PLACE_REFUSED(1, &ten, &one, (symm_dtype)99, SYMM_ERR_INVALID, "99");
    PLACE_REFUSED(1, &ten, &one, (symm_dtype)-1, SYMM_ERR_INVALID, "-1");
    PLACE_REFUSED(1, NULL, &one, SYMM_INT8, SYMM_ERR_INVALID, "shape");
    PLACE_REFUSED(1, &ten, NULL, SYMM_INT8, SYMM_ERR_INVALID, "stride");
    PLACE_REFUSED(1, &big, &ten, SYMM_INT8, SYMM_ERR_OVERFLOW, "9223372036854775807");
    PLACE_REFUSED(1, &big, &one, SYMM_FLOAT64, SYMM_ERR_OVERFLOW,
                  "9223372036854775807");
    PLACE_REFUSED(2, two_big, two_big, SYMM_INT8, SYMM_ERR_OVERFLOW, "1099511627776");
    PLACE_REFUSED(2, wide, far, SYMM_INT8, SYMM_ERR_OVERFLOW, "9223372036854775807");
    PLACE_REFUSED(1, &two_big[0], &one, SYMM_INT8, SYMM_ERR_NOMEM, "1099511627776");
    CHECK_STATUS(symm_empty_strided_p2p(team, 1, &ten, &one, SYMM_INT8, 9, NULL),
                 SYMM_ERR_INVALID);
    CHECK_STATUS(symm_empty_strided_p2p(NULL, 1, &ten, &one, SYMM_INT8, 9, &buffer),
                 SYMM_ERR_INVALID);
    CHECK_ERROR("team");
    /* No elements: a buffer of no bytes, or a clear refusal; never a crash. */
    symm_status status =
        symm_empty_strided_p2p(team, 2, none, flat, SYMM_INT8, 10, &buffer);
    CHECK(status == SYMM_OK || status == SYMM_ERR_INVALID);
    if (status == SYMM_OK) {
        CHECK(symm_buffer_bytes(buffer) == 0);
        symm_buffer_release(buffer);
    }
    CHECK_STATUS(symm_buffer_register(team, &buffer, 8, &buffer), SYMM_ERR_UNSUPPORTED);
    CHECK_STATUS(symm_team_load_plan(team, NULL), SYMM_ERR_INVALID);
    CHECK_STATUS(symm_team_load_plan(NULL, NULL), SYMM_ERR_INVALID);
    CHECK_STATUS(symm_rendezvous(NULL), SYMM_ERR_INVALID);
    CHECK_STATUS(symm_alloc_id_free(NULL, 3), SYMM_ERR_INVALID);
    CHECK_OK(symm_rendezvous(team)); /* refused calls are no entries: ranks agree */
    CHECK_OK(symm_empty_strided_p2p(team, 1, &ten, &one, SYMM_INT8, 9, &buffer));
    CHECK_OK(symm_rendezvous(team));
    CHECK(symm_buffer_peer_ptr(buffer, symm_team_size(team)) == NULL);
    CHECK(symm_buffer_peer_ptr(buffer, -1) == NULL);
    CHECK(symm_buffer_multicast_ptr(buffer) == NULL);
    symm_buffer_release(buffer);
    return still_works(team);
}

static void bad_buffers(void **state)
{
    (void)state;
    assert_int_equal(harness_run_both(simple(body_bad_buffers, 2)), 0);
}

/* ---- Collectives and puts -------------------------------------------------------- */

struct memory {
    symm_buffer *buffer;
    char *sym;       /* 4096 bytes of symmetric memory */
    char priv[4096]; /* and of other memory */
};

static int memory_open(struct memory *m, symm_team *team)
{
    const int64_t count = 4096, stride = 1;
    CHECK_OK(
        symm_empty_strided_p2p(team, 1, &count, &stride, SYMM_INT8, 1, &m->buffer));
    CHECK_OK(symm_rendezvous(team));
    m->sym = symm_buffer_ptr(m->buffer);
    return 0;
}

#define REFUSE(call, status, text)                                                     \
    do {                                                                               \
        CHECK_STATUS(call, status);                                                    \
        CHECK_ERROR(text);                                                             \
    } while (0)

static int body_bad_collectives(symm_ctx *ctx, void *arg)
{
    symm_team *t = symm_team_world(ctx);
    static _Thread_local struct memory m;
    symm_work *work = POISON;
    const symm_dtype i32 = SYMM_INT32, bad = (symm_dtype)99;
    const symm_op sum = SYMM_SUM, odd = (symm_op)55;
    char *p = m.priv;
    (void)arg;
    CHECK_ZERO(memory_open(&m, t));
    REFUSE(symm_all_reduce(NULL, p, p, 1, i32, sum, NULL, NULL), SYMM_ERR_INVALID,
           "team");
    REFUSE(symm_all_reduce(t, NULL, p, 1, i32, sum, NULL, NULL), SYMM_ERR_INVALID,
           "in");
    REFUSE(symm_all_reduce(t, p, NULL, 1, i32, sum, NULL, &work), SYMM_ERR_INVALID,
           "out");
    REFUSE(symm_all_reduce(t, p, p, 1, bad, sum, NULL, &work), SYMM_ERR_INVALID, "99");
    REFUSE(symm_all_reduce(t, p, p, 1, i32, odd, NULL, &work), SYMM_ERR_INVALID, "55");
    for (int d = 0; d <= SYMM_FLOAT8_E5M2; d++) {
        REFUSE(symm_all_reduce(t, p, p, 1, (symm_dtype)d, SYMM_BAND, NULL, &work),
               SYMM_ERR_INVALID,
               "allowed: sum avg prod min max (band is for integers)");
        REFUSE(symm_reduce_scatter(t, p, p, 1, (symm_dtype)d, SYMM_BXOR, NULL, &work),
               SYMM_ERR_INVALID, "reduce_scatter: found bxor of ");
        CHECK_ERROR(symm_dtype_name((symm_dtype)d));
    }
    REFUSE(symm_all_reduce(t, p + 2, p, 1, i32, sum, NULL, NULL), SYMM_ERR_INVALID,
           "align");
    REFUSE(symm_all_reduce(t, p, p + 1, 1, i32, sum, NULL, NULL), SYMM_ERR_INVALID,
           "align");
    REFUSE(symm_all_reduce(t, m.sym + 1, m.sym + 1, 1, SYMM_BFLOAT16, sum, NULL, NULL),
           SYMM_ERR_INVALID, "align");
    REFUSE(symm_all_reduce(t, p, p, SIZE_MAX, i32, sum, NULL, NULL), SYMM_ERR_OVERFLOW,
           "18446744073709551615");
    REFUSE(symm_all_reduce(t, p, p, SIZE_MAX / 2, i32, sum, NULL, NULL),
           SYMM_ERR_OVERFLOW, "9223372036854775807");
    REFUSE(symm_reduce_scatter(t, p, p, SIZE_MAX / 4, i32, sum, NULL, NULL),
           SYMM_ERR_OVERFLOW, "4611686018427387903");
    REFUSE(symm_all_gather(t, p, p, SIZE_MAX / 4, i32, NULL, NULL), SYMM_ERR_OVERFLOW,
           "4611686018427387903");
    REFUSE(symm_all_to_all(t, p, p, SIZE_MAX / 4, i32, NULL, NULL), SYMM_ERR_OVERFLOW,
           "4611686018427387903");
    REFUSE(symm_reduce_scatter(t, p, p, 1, i32, odd, NULL, NULL), SYMM_ERR_INVALID,
           "55");
    REFUSE(symm_all_gather(t, p, NULL, 1, i32, NULL, NULL), SYMM_ERR_INVALID, "out");
    REFUSE(symm_all_gather(t, p, p, 1, bad, NULL, NULL), SYMM_ERR_INVALID, "99");
    REFUSE(symm_all_to_all(t, NULL, p, 1, i32, NULL, NULL), SYMM_ERR_INVALID, "in");
    REFUSE(symm_broadcast(t, p, p, 1, i32, -1, NULL, NULL), SYMM_ERR_INVALID, "-1");
    REFUSE(symm_broadcast(t, p, p, 1, i32, 77, NULL, NULL), SYMM_ERR_INVALID, "77");
    REFUSE(symm_broadcast(t, p, p, 1, bad, 0, NULL, NULL), SYMM_ERR_INVALID, "99");
    REFUSE(symm_barrier(NULL, NULL, NULL), SYMM_ERR_INVALID, "team");
    CHECK(work == POISON); /* outputs only on success */
    CHECK_ZERO(still_works(t));
    /* Nothing to move: NULL is as good as any pointer, and it still synchronises. */
    CHECK_OK(symm_all_reduce(t, NULL, NULL, 0, i32, sum, NULL, NULL));
    symm_buffer_release(m.buffer);
    return still_works(t);
}

/* A call that is longer than its buffer would reach into the next one, here and at peers. */
static int body_overruns(symm_ctx *ctx, void *arg)
{
    symm_team *t = symm_team_world(ctx), *half;
    const int64_t shape = 1000, stride = 1;
    static _Thread_local struct memory m;
    const symm_dtype i8 = SYMM_INT8;
    const symm_op sum = SYMM_SUM;
    symm_buffer *next, *sub;
    char *p = m.priv, *s, *n;
    (void)arg;
    CHECK_OK(symm_empty_strided_p2p(t, 1, &shape, &stride, i8, 7, &next));
    CHECK_ZERO(memory_open(&m, t));
    s = m.sym;
    n = symm_buffer_ptr(next);
    CHECK_OK(symm_all_reduce(t, s, s, 4096, i8, sum, NULL, NULL));
    CHECK_OK(symm_all_reduce(t, s + 96, p, 4000, i8, sum, NULL, NULL));
    CHECK_OK(symm_all_reduce(t, s + 4096, s + 4096, 0, i8, sum, NULL, NULL));
    REFUSE(symm_all_reduce(t, s, p, 4097, i8, sum, NULL, NULL), SYMM_ERR_INVALID,
           "`in`");
    CHECK_ERROR("alloc_id 1 ");
    CHECK_ERROR("4096 bytes");
    REFUSE(symm_all_reduce(t, p, s + 97, 4000, i8, sum, NULL, NULL), SYMM_ERR_INVALID,
           "`out`");
    REFUSE(symm_all_gather(t, p, s, 2049, i8, NULL, NULL), SYMM_ERR_INVALID, "+4098");
    REFUSE(symm_reduce_scatter(t, s, p, 2049, i8, sum, NULL, NULL), SYMM_ERR_INVALID,
           "+4098");
    REFUSE(symm_broadcast(t, n, n, 1001, i8, 0, NULL, NULL), SYMM_ERR_INVALID,
           "alloc_id 7 ");
    REFUSE(symm_all_reduce(t, n + 1000, p, 1, i8, sum, NULL, NULL), SYMM_ERR_INVALID,
           "+1)");
    REFUSE(symm_all_reduce(t, p, s + ((size_t)1 << 28), 4, i8, sum, NULL, NULL),
           SYMM_ERR_INVALID, "in no buffer");
    /* Memory of another team is still somebody's, and a released one nobody's. */
    CHECK_OK(symm_team_split(t, 0, 0, &half));
    CHECK_OK(symm_empty_strided_p2p(half, 1, &shape, &stride, i8, 9, &sub));
    CHECK_OK(symm_rendezvous(half));
    CHECK_OK(symm_all_reduce(t, symm_buffer_ptr(sub), p, 1000, i8, sum, NULL, NULL));
    REFUSE(symm_all_reduce(t, symm_buffer_ptr(sub), p, 1001, i8, sum, NULL, NULL),
           SYMM_ERR_INVALID, "alloc_id 9 ");
    symm_buffer_release(next);
    CHECK_OK(symm_alloc_id_free(t, 7));
    REFUSE(symm_all_reduce(t, n, p, 1000, i8, sum, NULL, NULL), SYMM_ERR_INVALID,
           "given back");
    symm_buffer_release(sub);
    symm_buffer_release(m.buffer);
    return still_works(t);
}

static void overruns(void **state)
{
    (void)state;
    assert_int_equal(harness_run_both(simple(body_overruns, 2)), 0);
}

static void bad_collectives(void **state)
{
    (void)state;
    assert_int_equal(harness_run_both(simple(body_bad_collectives, 2)), 0);
}

static int body_bad_calls(symm_ctx *ctx, void *arg)
{
    symm_team *t = symm_team_world(ctx);
    static _Thread_local struct memory m;
    struct {
        symm_call call;
        char more[24];
    } longer;
    symm_call good, c;
    char *p = m.priv, site[5000];
    (void)arg;
    CHECK_ZERO(memory_open(&m, t));
    memset(&good, 0, sizeof(good));
    good.size = sizeof(good);
#define CALL symm_all_reduce(t, p, p + 2048, 4, SYMM_INT32, SYMM_SUM, &c, NULL)
    c = good;
    c.size = 0;
    REFUSE(CALL, SYMM_ERR_INVALID, "size");
    c = good;
    c.algorithm = "quantum";
    REFUSE(CALL, SYMM_ERR_INVALID, "quantum");
    c = good;
    c.numerics = 99;
    REFUSE(CALL, SYMM_ERR_INVALID, "99");
    c = good;
    c.timeout = -1.5;
    REFUSE(CALL, SYMM_ERR_INVALID, "-1.5");
    c = good;
    c.timeout = NAN;
    REFUSE(CALL, SYMM_ERR_INVALID, "nan");
#undef CALL
    c = good; /* a peer may still read what this rank overwrites */
    c.algorithm = "one_shot_pull";
    symm_status status =
        symm_all_reduce(t, m.sym, m.sym, 4, SYMM_INT32, SYMM_SUM, &c, NULL);
    CHECK_MESSAGE(status == SYMM_ERR_INVALID || status == SYMM_ERR_UNSUPPORTED,
                  "one_shot_pull in place: %s", symm_status_name(status));
    CHECK_ERROR("one_shot_pull");
    CHECK_ERROR("in place");
    CHECK_ZERO(still_works(t));

    memset(&longer, 0, sizeof(longer));
    longer.call.size = sizeof(longer);
    CHECK_OK(symm_barrier(t, &longer.call, NULL));
    longer.more[23] = 1;
    REFUSE(symm_barrier(t, &longer.call, NULL), SYMM_ERR_INVALID, "symm_call");
    memset(site, 'x', sizeof(site)); /* long and empty names of sites are names */
    site[sizeof(site) - 1] = '\0';
    c = good;
    c.site = site;
    CHECK_OK(symm_barrier(t, &c, NULL));
    c.site = "";
    CHECK_OK(symm_barrier(t, &c, NULL));
    c.site = "percent %s%n \"quoted\" \xff";
    CHECK_OK(symm_barrier(t, &c, NULL));
    CHECK(symm_explain(t) != NULL && symm_explain(t)[0] != '\0');
    symm_buffer_release(m.buffer);
    return still_works(t);
}

static void bad_calls(void **state)
{
    (void)state;
    assert_int_equal(harness_run_both(simple(body_bad_calls, 2)), 0);
}

static int body_bad_puts(symm_ctx *ctx, void *arg)
{
    symm_team *t = symm_team_world(ctx);
    static _Thread_local struct memory m;
    char *p = m.priv;
    const size_t huge = (size_t)1 << 50;
    (void)arg;
    CHECK_ZERO(memory_open(&m, t));
    REFUSE(symm_put(t, m.sym, p, 8, 2, NULL, NULL), SYMM_ERR_INVALID, "2");
    REFUSE(symm_put(t, m.sym, p, 8, -1, NULL, NULL), SYMM_ERR_INVALID, "-1");
    REFUSE(symm_put(t, NULL, p, 8, 0, NULL, NULL), SYMM_ERR_INVALID, "dst");
    REFUSE(symm_put(t, m.sym, NULL, 8, 0, NULL, NULL), SYMM_ERR_INVALID, "src");
    REFUSE(symm_put(t, p, m.sym, 8, 0, NULL, NULL), SYMM_ERR_INVALID, "symmetric");
    REFUSE(symm_put(t, m.sym, p, huge, 1, NULL, NULL), SYMM_ERR_INVALID,
           "1125899906842624");
    REFUSE(symm_get(t, p, p, 8, 1, NULL, NULL), SYMM_ERR_INVALID, "symmetric");
    REFUSE(symm_get(t, p, m.sym, 8, 31, NULL, NULL), SYMM_ERR_INVALID, "31");
    REFUSE(symm_put_signal(t, m.sym, p, 8, 1, 256, NULL, NULL), SYMM_ERR_INVALID,
           "256");
    REFUSE(symm_put_signal(t, m.sym, p, 8, 1, -1, NULL, NULL), SYMM_ERR_INVALID, "-1");
    REFUSE(symm_signal(t, 1, 300, NULL, NULL), SYMM_ERR_INVALID, "300");
    REFUSE(symm_signal(t, 9, 0, NULL, NULL), SYMM_ERR_INVALID, "9");
    REFUSE(symm_signal_wait(t, 0, -5, NULL, NULL), SYMM_ERR_INVALID, "-5");
    REFUSE(symm_signal_wait(t, -2, 0, NULL, NULL), SYMM_ERR_INVALID, "-2");
    REFUSE(symm_signal_wait(NULL, 0, 0, NULL, NULL), SYMM_ERR_INVALID, "team");
    CHECK_OK(symm_put(t, m.sym, p, 0, 1, NULL, NULL)); /* nothing to move */
    CHECK_OK(symm_put(t, m.sym + 4088, p, 8, 1 - symm_team_rank(t), NULL, NULL));
    REFUSE(symm_put(t, m.sym + 4089, p, 8, 1, NULL, NULL), SYMM_ERR_INVALID, "`dst`");
    REFUSE(symm_get(t, p, m.sym + 4089, 8, 1, NULL, NULL), SYMM_ERR_INVALID,
           "4096 bytes");
    REFUSE(symm_put(t, m.sym, m.sym + 4089, 8, 1, NULL, NULL), SYMM_ERR_INVALID,
           "`src`");
    REFUSE(symm_get(t, m.sym + 4089, m.sym, 8, 1, NULL, NULL), SYMM_ERR_INVALID,
           "`dst`");
    CHECK_OK(symm_barrier(t, NULL, NULL));
    symm_buffer_release(m.buffer);
    CHECK_OK(symm_alloc_id_free(t, 1));
    REFUSE(symm_put(t, m.sym, p, 8, 1, NULL, NULL), SYMM_ERR_INVALID, "given back");
    return still_works(t);
}

static void bad_puts(void **state)
{
    (void)state;
    assert_int_equal(harness_run_both(simple(body_bad_puts, 2)), 0);
}

static int body_bad_sends(symm_ctx *ctx, void *arg)
{
    symm_team *t = symm_team_world(ctx);
    char p[8] = {0};
    int peer = 1 - harness_rank();
    const symm_call call = {.size = sizeof(call), .algorithm = "engine"};

    (void)arg;
    REFUSE(symm_send(t, p, 1, SYMM_INT8, 55, NULL, NULL), SYMM_ERR_INVALID, "55");
    REFUSE(symm_recv(t, p, 1, SYMM_INT8, -2, NULL, NULL), SYMM_ERR_INVALID, "-2");
    /* an engine, if it is named, is not there */
    REFUSE(symm_send(t, p, 1, SYMM_INT8, peer, &call, NULL), SYMM_ERR_UNSUPPORTED,
           "engine");
    REFUSE(symm_recv(t, p, 1, SYMM_INT8, peer, &call, NULL), SYMM_ERR_UNSUPPORTED,
           "engine");
    return still_works(t);
}

static void bad_sends(void **state)
{
    (void)state;
    assert_int_equal(harness_run_both(simple(body_bad_sends, 2)), 0);
}

static int body_bad_rest(symm_ctx *ctx, void *arg)
{
    symm_team *team = symm_team_world(ctx);
    symm_work *work = NULL;
    symm_info info;
    bool done;
    int id = -1;
    (void)arg;
    CHECK(symm_team_world(NULL) == NULL);
    CHECK_STATUS(symm_team_split(team, 0, 0, NULL), SYMM_ERR_INVALID);
    CHECK_STATUS(symm_work_query(NULL, &done), SYMM_ERR_INVALID);
    CHECK_STATUS(symm_work_wait(NULL, NULL), SYMM_ERR_INVALID);
    CHECK_STATUS(symm_work_synchronize(NULL, 1), SYMM_ERR_INVALID);
    CHECK_STATUS(symm_work_then(NULL, NULL, NULL, NULL, &work), SYMM_ERR_INVALID);
    CHECK_STATUS(symm_stream_create(NULL, NULL), SYMM_ERR_INVALID);
    CHECK_STATUS(symm_stream_create(ctx, NULL), SYMM_ERR_INVALID);
    CHECK_STATUS(symm_stream_call(ctx, NULL, NULL, NULL), SYMM_ERR_INVALID);
    CHECK_STATUS(symm_trace_attach(ctx, NULL, NULL, &id), SYMM_ERR_INVALID);
    CHECK_STATUS(symm_heap_write(ctx, 1, NULL), SYMM_ERR_INVALID);
    CHECK_STATUS(symm_ctx_info(ctx, NULL), SYMM_ERR_INVALID);
    CHECK_STATUS(symm_ctx_info(NULL, &info), SYMM_ERR_INVALID);
    symm_team_destroy(NULL);
    symm_stream_destroy(ctx, NULL);
    symm_trace_detach(ctx, 12345);
    memset(&info, 0, sizeof(info));
    info.size = sizeof(info);
    CHECK_OK(symm_ctx_info(ctx, &info));
    CHECK(info.rank == harness_rank() && info.world_size == 2);
    CHECK(info.heap_bytes >= (size_t)1 << 30 && info.granularity >= 4096);
    CHECK(strcmp(info.backend, "host") == 0);
    return still_works(team);
}

static void bad_rest(void **state)
{
    (void)state;
    assert_int_equal(harness_run_both(simple(body_bad_rest, 2)), 0);
}

/* ---- The machine and the log ----------------------------------------------------- */

static int body_machine(symm_ctx *ctx, void *arg)
{
    char where[128] = "", path[] = "/tmp/symm-topology-XXXXXX";
    cpu_set_t before, after;
    int fd = mkstemp(path);
    (void)ctx;
    (void)arg;
    CHECK(fd >= 0);
    unlink(path);
    CHECK_OK(symm_topology_write(fd, "text"));
    CHECK(lseek(fd, 0, SEEK_CUR) > 10);
    CHECK_OK(symm_topology_write(fd, "json"));
    CHECK_STATUS(symm_topology_write(fd, "gif"), SYMM_ERR_INVALID);
    CHECK_ERROR("gif");
    CHECK_STATUS(symm_topology_write(-1, "text"), SYMM_ERR_SYSTEM);
    close(fd);
    CHECK(sched_getaffinity(0, sizeof(before), &before) == 0);
    CHECK_STATUS(symm_bind_self(-1, 2, where, sizeof(where)), SYMM_ERR_INVALID);
    CHECK_STATUS(symm_bind_self(2, 2, where, sizeof(where)), SYMM_ERR_INVALID);
    CHECK_STATUS(symm_bind_self(0, 0, where, sizeof(where)), SYMM_ERR_INVALID);
    CHECK_OK(symm_bind_self(0, 2, where, sizeof(where)));
    CHECK(where[0] != '\0');
    CHECK(sched_getaffinity(0, sizeof(after), &after) == 0);
    CHECK(CPU_COUNT(&after) >= 1 && CPU_COUNT(&after) <= CPU_COUNT(&before));
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        CHECK(!CPU_ISSET(cpu, &after) || CPU_ISSET(cpu, &before));
    CHECK_OK(symm_bind_self(0, 1, NULL, 0));
    return 0;
}

static void machine(void **state)
{
    (void)state;
    struct harness h = simple(body_machine, 1); /* in a child: it binds itself */
    h.without_ctx = true;
    assert_int_equal(harness_run(&h), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_tables), cmocka_unit_test(dlpack_types),
        cmocka_unit_test(option_table),     cmocka_unit_test(bad_buffers),
        cmocka_unit_test(bad_collectives),  cmocka_unit_test(overruns),
        cmocka_unit_test(bad_calls),        cmocka_unit_test(bad_puts),
        cmocka_unit_test(bad_sends),        cmocka_unit_test(bad_rest),
        cmocka_unit_test(machine),
    };
    harness_clear_environment();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
