/* SPDX-License-Identifier: MIT */
/*
 * test_host_misuse.c - invalid calls of every function of symm.h and interop.h: NULL, sizes
 * of structs of no version, numbers out of range, objects of a forked parent. Written from
 * the headers alone. ctest: cost 4
 *
 * A refused call returns the status that the header names, writes no output, and sets its
 * own error with the function's or the argument's name. Nothing crashes.
 */
#include "misuse.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "symm/interop.h"
#include "symm/plan.h"
#include "symm/tools.h"

struct world {
    symm_ctx *ctx;
    symm_team *team;
    symm_buffer *buffer;
    float *memory;
};

static int open_world(void **state)
{
    static struct world w;
    symm_config config = {.size = sizeof(config),
                          .backend = "host",
                          .world_size = 1,
                          .heap_bytes = (size_t)1 << 30,
                          .team_bytes = (size_t)64 << 20,
                          .timeout = 0.2};

    if (symm_init(&config, &w.ctx) != SYMM_OK)
        return 1;
    w.team = symm_team_world(w.ctx);
    if (symm_empty_strided_p2p(w.team, 1, (int64_t[]){64}, (int64_t[]){1}, SYMM_FLOAT32,
                               1, &w.buffer) != SYMM_OK ||
        symm_rendezvous(w.team) != SYMM_OK)
        return 1;
    w.memory = symm_buffer_ptr(w.buffer);
    *state = &w;
    return 0;
}

static int close_world(void **state)
{
    struct world *w = *state;

    symm_buffer_release(w->buffer);
    symm_finalize(w->ctx);
    return 0;
}

/* ---- Start ----------------------------------------------------------------------- */

static symm_status init_with(symm_config config)
{
    symm_ctx *ctx = (symm_ctx *)&config;
    symm_status status;

    config.size = config.size ? config.size : sizeof(config);
    status = symm_init(&config, &ctx);
    if (status == SYMM_OK)
        symm_finalize(ctx);
    else
        assert_ptr_equal(ctx, (symm_ctx *)&config); /* written only on success */
    return status;
}
#define INIT(...) init_with((symm_config){.backend = "host", __VA_ARGS__})

static int gather(void *arg, const void *in, size_t bytes, void *out)
{
    (void)arg;
    memcpy(out, in, bytes);
    return 0;
}

static void test_init(void **state)
{
    symm_bootstrap none = {.size = sizeof(none)}, one = {sizeof(one), gather, NULL};
    symm_bootstrap shorter = one, longer = one;
    const double bad_times[] = {-1, QUIET_NAN, 604801, 1e300};
    const size_t bad_sizes[] = {1, 7, 9, 4097, SIZE_MAX};
    struct {
        symm_config config;
        uint64_t more;
    } newer = {{.size = sizeof(newer)}, 1};
    symm_ctx *ctx;
    symm_thread_group *group;
    char long_id[506] = "";

    (void)state;
    INVALID("ctx", symm_init(NULL, NULL));
    for (size_t i = 0; i < 5; i++)
        INVALID("symm_config.size", INIT(.size = bad_sizes[i], .world_size = 1));
    INVALID("symm_config", symm_init(&newer.config, &ctx));
    for (size_t i = 0; i < 4; i++) {
        INVALID("timeout", INIT(.world_size = 1, .timeout = bad_times[i]));
        INVALID("init_timeout", INIT(.world_size = 1, .init_timeout = bad_times[i]));
    }
    INVALID("rank", INIT(.world_size = 1, .rank = 1));
    INVALID("rank", INIT(.world_size = 2, .rank = -1, .job_id = "x"));
    INVALID("world_size", INIT(.world_size = -1));
    INVALID("world_size", INIT(.rank = 1));
    INVALID("world_size", INIT(.rank = -1));
    INVALID("world_size", INIT(.local_size = 1));
    INVALID("job_id, bootstrap or thread_group", INIT(.world_size = 2, .job_id = NULL));
    INVALID("local_size", INIT(.world_size = 1, .local_size = 2));
    INVALID("local_size", INIT(.world_size = 1, .local_size = -1));
    INVALID("local_rank", INIT(.world_size = 1, .local_rank = 1, .local_size = 1));
    INVALID("job_id", INIT(.world_size = 2, .job_id = ""));
    INVALID("job_id", INIT(.world_size = 1, .job_id = ""));
    INVALID("job_id without world_size", INIT(.job_id = "misuse"));
    INVALID("job_id without world_size", INIT(.job_id = ""));
    memset(long_id, 'x', sizeof(long_id) - 1);
    INVALID("job_id has 505 bytes, more than 504",
            INIT(.world_size = 1, .job_id = long_id));
    GOOD(INIT(.world_size = 1, .job_id = long_id + 1));
    BAD(SYMM_ERR_UNSUPPORTED, "1000", INIT(.world_size = 1000, .job_id = "x"));
    INVALID("symm_config.backend: backend 'abacus'",
            init_with((symm_config){.world_size = 1, .backend = "abacus"}));
    setenv("SYMM_BACKEND", "abacus", 1); /* a variable that is wrong is named */
    INVALID("SYMM_BACKEND: backend 'abacus'",
            init_with((symm_config){.world_size = 1}));
    unsetenv("SYMM_BACKEND");
    setenv("SYMM_COSTS", "/dev/null", 1);
    INVALID("SYMM_COSTS: /dev/null", INIT(.world_size = 1));
    unsetenv("SYMM_COSTS");
    INVALID("heap_bytes", INIT(.world_size = 1, .heap_bytes = 1));
    INVALID("heap_bytes", INIT(.world_size = 1, .heap_bytes = SIZE_MAX));
    INVALID(
        "team_bytes is 2097152; give a multiple of 2097152 from 4194304 to 536870912",
        INIT(.world_size = 1, .heap_bytes = (size_t)1 << 30,
             .team_bytes = (size_t)2 << 20));
    INVALID("team_bytes", INIT(.world_size = 1, .team_bytes = 3));
    shorter.size = 1;
    longer.size = SIZE_MAX;
    INVALID("symm_bootstrap.size", INIT(.world_size = 1, .bootstrap = &shorter));
    INVALID("symm_bootstrap.size", INIT(.world_size = 1, .bootstrap = &longer));
    INVALID("allgather", INIT(.world_size = 1, .bootstrap = &none));
    GOOD(INIT(.world_size = 1, .bootstrap = &one));
    GOOD(INIT(.world_size = 1, .job_id = "misuse"));
    GOOD(INIT(.size = offsetof(symm_config, heap_bytes), .world_size = 1));
    INVALID("symm_thread_group_create", symm_thread_group_create(0, &group));
    INVALID("symm_thread_group_create", symm_thread_group_create(-1, &group));
    INVALID("symm_thread_group_create", symm_thread_group_create(100000, &group));
    INVALID("symm_thread_group_create: group is NULL",
            symm_thread_group_create(1, NULL));
    symm_thread_group_destroy(NULL);
    symm_finalize(NULL);
}

/* ---- Names, options, the machine ------------------------------------------------- */

static void test_names(void **state)
{
    struct world *w = *state;
    symm_option_info option = {.size = sizeof(option)};
    symm_job_info job = {.size = sizeof(job)};
    symm_info info = {.size = sizeof(info)};
    symm_dtype dtype;
    symm_op op;
    uint8_t byte;
    char where[64];
    int id;

    assert_string_equal(symm_status_name((symm_status)99), "SYMM_ERR_UNKNOWN");
    assert_non_null(symm_status_text((symm_status)-99));
    assert_null(symm_dtype_name((symm_dtype)-1));
    assert_null(symm_op_name((symm_op)55));
    assert_int_equal(symm_dtype_size((symm_dtype)99), 0);
    INVALID("symm_dtype_parse", symm_dtype_parse(NULL, &dtype));
    INVALID("symm_dtype_parse", symm_dtype_parse("int8", NULL));
    INVALID("''", symm_dtype_parse("", &dtype));
    INVALID("symm_dtype_from_dlpack", symm_dtype_from_dlpack(0, 8, 1, NULL));
    INVALID("symm_dtype_to_dlpack", symm_dtype_to_dlpack(SYMM_INT8, &byte, NULL));
    INVALID("symm_op_parse", symm_op_parse(NULL, &op));
    INVALID("symm_op_parse", symm_op_parse("sum", NULL));
    INVALID("symm_option_at", symm_option_at(0, NULL));
    BAD(SYMM_ERR_NOT_FOUND, "option", symm_option_at(-1, &option));
    BAD(SYMM_ERR_NOT_FOUND, "option", symm_option_at(INT32_MAX, &option));
    INVALID("symm_job_detect", symm_job_detect(NULL));
    INVALID("symm_ctx_info", symm_ctx_info(NULL, &info));
    INVALID("symm_ctx_info", symm_ctx_info(w->ctx, NULL));
    for (size_t size = 0; size < 8; size++) {
        option.size = job.size = info.size = size;
        INVALID("symm_option_info.size", symm_option_at(0, &option));
        INVALID("symm_job_info.size", symm_job_detect(&job));
        INVALID("symm_info.size", symm_ctx_info(w->ctx, &info));
    }
    option.size = job.size = info.size = SIZE_MAX;
    INVALID("symm_option_info.size", symm_option_at(0, &option));
    INVALID("symm_job_info.size", symm_job_detect(&job));
    INVALID("symm_info.size", symm_ctx_info(w->ctx, &info));
    INVALID("symm_bind_self", symm_bind_self(-1, 1, where, sizeof(where)));
    INVALID("symm_bind_self", symm_bind_self(1, 1, where, sizeof(where)));
    INVALID("symm_bind_self", symm_bind_self(0, 0, where, sizeof(where)));
    INVALID("symm_topology_write", symm_topology_write(1, NULL));
    INVALID("symm_topology_write", symm_topology_write(1, "xml"));
    BAD(SYMM_ERR_SYSTEM, "symm_topology_write", symm_topology_write(-1, "text"));
    INVALID("symm_cuda_write", symm_cuda_write(1, NULL, false));
    INVALID("symm_cuda_write", symm_cuda_write(1, "xml", false));
    BAD(SYMM_ERR_SYSTEM, "symm_cuda_write", symm_cuda_write(-1, "text", false));
    INVALID("symm_heap_write", symm_heap_write(NULL, 1, "json"));
    INVALID("symm_heap_write", symm_heap_write(w->ctx, 1, NULL));
    INVALID("xml", symm_heap_write(w->ctx, 1, "xml"));
    BAD(SYMM_ERR_SYSTEM, "symm_heap_write", symm_heap_write(w->ctx, -1, "json"));
    INVALID("symm_trace_attach", symm_trace_attach(NULL, NULL, NULL, &id));
    INVALID("symm_trace_attach", symm_trace_attach(w->ctx, NULL, NULL, &id));
    symm_trace_detach(NULL, 0);
    symm_trace_detach(w->ctx, 12345);
}

/* ---- Teams and memory ------------------------------------------------------------ */

static void test_teams(void **state)
{
    struct world *w = *state;
    symm_team *team = NULL;
    const symm_plan plan = {.size = 0};
    const void *device;
    const int one = INT32_MAX;

    assert_null(symm_team_world(NULL));
    assert_int_equal(symm_team_rank(NULL), -1);
    assert_int_equal(symm_team_size(NULL), 0);
    assert_int_equal(symm_team_world_rank(NULL, 0), -1);
    assert_int_equal(symm_team_world_rank(w->team, INT32_MIN), -1);
    INVALID("symm_team_split", symm_team_split(NULL, 0, 0, &team));
    INVALID("symm_team_split", symm_team_split(w->team, 0, 0, NULL));
    INVALID("symm_team_create", symm_team_create(NULL, &one, 1, 0, &team));
    INVALID("symm_team_create", symm_team_create(w->team, NULL, 1, 0, &team));
    INVALID("symm_team_create", symm_team_create(w->team, &one, 1, 0, NULL));
    INVALID("symm_team_create", symm_team_create(w->team, &one, INT32_MIN, 0, &team));
    INVALID("symm_team_create", symm_team_create(w->team, &one, INT32_MAX, 0, &team));
    INVALID("symm_team_create", symm_team_create(w->team, &one, 1, 0, &team));
    INVALID("symm_team_shrink", symm_team_shrink(NULL, &team));
    INVALID("symm_team_shrink", symm_team_shrink(w->team, NULL));
    INVALID("symm_team_device", symm_team_device(NULL, &device));
    INVALID("symm_team_device", symm_team_device(w->team, NULL));
    INVALID("symm_rendezvous", symm_rendezvous(NULL));
    INVALID("symm_team_load_plan", symm_team_load_plan(NULL, &plan));
    INVALID("symm_team_load_plan", symm_team_load_plan(w->team, NULL));
    INVALID("symm_team_load_plan", symm_team_load_plan(w->team, &plan)); /* size 0 */
    INVALID("symm_team_abort", symm_team_abort(NULL, "x"));
    INVALID("symm_team_set_name", symm_team_set_name(NULL, "x"));
    BAD(SYMM_ERR_INVALID, "at most",
        symm_team_set_name(w->team, "0123456789abcdef0123456789abcdef"));
    INVALID("symm_record_write", symm_record_write(NULL, &plan, 8, NULL));
    INVALID("symm_record_read", symm_record_read(NULL, &plan, 8, NULL));
    INVALID("symm_record_period", symm_record_period(NULL));
    assert_non_null(symm_explain(NULL));
    symm_team_destroy(NULL);
    symm_team_destroy(w->team); /* the world: ignored */
    GOOD(symm_barrier(w->team, NULL, NULL));
    GOOD(symm_team_split(w->team, -1, 0, &team));
    assert_null(team);
}

static symm_status place(symm_team *team, int ndim, int64_t shape, int64_t stride,
                         int dtype)
{
    symm_buffer *buffer;
    symm_status status = symm_empty_strided_p2p(team, ndim, &shape, &stride,
                                                (symm_dtype)dtype, 9, &buffer);

    if (status == SYMM_OK) {
        symm_buffer_release(buffer);
        assert_int_equal(symm_alloc_id_free(team, 9), SYMM_OK);
    }
    return status;
}

static void test_memory(void **state)
{
    struct world *w = *state;
    static const char *const name = "symm_empty_strided_p2p";
    const int64_t one[17] = {1};
    symm_buffer *b = NULL;

    INVALID(name, place(NULL, 1, 1, 1, SYMM_INT8));
    INVALID(name, place(w->team, -1, 1, 1, SYMM_INT8));
    INVALID(name, place(w->team, 17, 1, 1, SYMM_INT8));
    INVALID(name, place(w->team, INT32_MAX, 1, 1, SYMM_INT8));
    INVALID(name, place(w->team, 1, -1, 1, SYMM_INT8));
    INVALID(name, place(w->team, 1, 1, -1, SYMM_INT8));
    INVALID(name, place(w->team, 1, 1, 1, 99));
    INVALID(name, place(w->team, 1, 1, 1, -1));
    BAD(SYMM_ERR_OVERFLOW, name, place(w->team, 1, INT64_MAX, INT64_MAX, SYMM_FLOAT64));
    BAD(SYMM_ERR_OVERFLOW, name, place(w->team, 1, INT64_MAX, 1, SYMM_FLOAT64));
    BAD(SYMM_ERR_NOMEM, "bytes", place(w->team, 1, (int64_t)1 << 40, 1, SYMM_INT8));
    INVALID(name, symm_empty_strided_p2p(w->team, 1, NULL, one, SYMM_INT8, 9, &b));
    INVALID(name, symm_empty_strided_p2p(w->team, 1, one, NULL, SYMM_INT8, 9, &b));
    INVALID(name, symm_empty_strided_p2p(w->team, 1, one, one, SYMM_INT8, 9, NULL));
    BAD(SYMM_ERR_IN_USE, "alloc_id 1",
        symm_empty_strided_p2p(w->team, 1, one, one, SYMM_INT8, 1, &b));
    assert_null(b);
    GOOD(place(w->team, 0, 1, 1, SYMM_INT8));
    INVALID("symm_buffer_alloc", symm_buffer_alloc(NULL, 8, &b));
    INVALID("symm_buffer_alloc", symm_buffer_alloc(w->team, 8, NULL));
    BAD(SYMM_ERR_OVERFLOW, "symm_buffer_alloc",
        symm_buffer_alloc(w->team, SIZE_MAX, &b));
    BAD(SYMM_ERR_NOMEM, "", symm_buffer_alloc(w->team, PTRDIFF_MAX, &b));
    assert_null(b);
    INVALID("symm_buffer_register", symm_buffer_register(NULL, &b, 8, &b));
    INVALID("symm_buffer_register: ptr is NULL",
            symm_buffer_register(w->team, NULL, 8, &b));
    INVALID("symm_buffer_register", symm_buffer_register(w->team, &b, 0, &b));
    INVALID("symm_buffer_register: buffer is NULL",
            symm_buffer_register(w->team, &b, 8, NULL));
    BAD(SYMM_ERR_UNSUPPORTED, "host", symm_buffer_register(w->team, &b, 8, &b));
    INVALID("symm_alloc_id_free", symm_alloc_id_free(NULL, 1));
    INVALID("symm_alloc_id_free", symm_alloc_id_free(w->team, 0));
    BAD(SYMM_ERR_NOT_FOUND, "77", symm_alloc_id_free(w->team, 77));
    BAD(SYMM_ERR_IN_USE, "alloc_id 1", symm_alloc_id_free(w->team, 1));
    assert_null(symm_buffer_ptr(NULL));
    assert_int_equal(symm_buffer_bytes(NULL), 0);
    assert_int_equal(symm_buffer_offset(NULL), 0);
    assert_null(symm_buffer_peer_ptr(NULL, 0));
    assert_null(symm_buffer_peer_ptr(w->buffer, -1));
    assert_null(symm_buffer_peer_ptr(w->buffer, 1));
    assert_null(symm_buffer_multicast_ptr(NULL));
    symm_buffer_release(NULL);
}

/* ---- Calls ----------------------------------------------------------------------- */

static void test_calls(void **state)
{
    struct world *w = *state;
    symm_team *t = w->team;
    float *m = w->memory, other[64] = {0};
    const size_t huge = SIZE_MAX / 2;
    char *odd = (char *)other + 1;

    INVALID("all_reduce",
            symm_all_reduce(NULL, m, m, 1, SYMM_FLOAT32, SYMM_SUM, NULL, NULL));
    INVALID("reduce_scatter",
            symm_reduce_scatter(NULL, m, other, 1, SYMM_FLOAT32, SYMM_SUM, NULL, NULL));
    INVALID("all_gather", symm_all_gather(NULL, m, other, 1, SYMM_FLOAT32, NULL, NULL));
    INVALID("broadcast", symm_broadcast(NULL, m, m, 1, SYMM_FLOAT32, 0, NULL, NULL));
    INVALID("all_to_all", symm_all_to_all(NULL, m, other, 1, SYMM_FLOAT32, NULL, NULL));
    INVALID("barrier", symm_barrier(NULL, NULL, NULL));
    INVALID("`in`", symm_all_reduce(t, NULL, m, 1, SYMM_FLOAT32, SYMM_SUM, NULL, NULL));
    INVALID("`out`",
            symm_all_reduce(t, m, NULL, 1, SYMM_FLOAT32, SYMM_SUM, NULL, NULL));
    INVALID("aligned",
            symm_all_reduce(t, odd, m, 1, SYMM_FLOAT32, SYMM_SUM, NULL, NULL));
    INVALID("dtype", symm_all_reduce(t, m, m, 1, (symm_dtype)-1, SYMM_SUM, NULL, NULL));
    INVALID("reduction",
            symm_all_reduce(t, m, m, 1, SYMM_FLOAT32, (symm_op)77, NULL, NULL));
    BAD(SYMM_ERR_OVERFLOW, "all_reduce",
        symm_all_reduce(t, m, m, huge, SYMM_FLOAT32, SYMM_SUM, NULL, NULL));
    BAD(SYMM_ERR_OVERFLOW, "all_gather",
        symm_all_gather(t, m, other, huge, SYMM_FLOAT32, NULL, NULL));
    INVALID("`in`",
            symm_all_reduce(t, m, other, 65, SYMM_FLOAT32, SYMM_SUM, NULL, NULL));
    INVALID("root", symm_broadcast(t, m, m, 1, SYMM_FLOAT32, -1, NULL, NULL));
    INVALID("root", symm_broadcast(t, m, m, 1, SYMM_FLOAT32, 1, NULL, NULL));
    INVALID("symm_send", symm_send(t, m, 1, SYMM_FLOAT32, 1, NULL, NULL));
    INVALID("symm_send", symm_send(NULL, m, 1, SYMM_FLOAT32, 0, NULL, NULL));
    INVALID("symm_recv", symm_recv(NULL, m, 1, SYMM_FLOAT32, 0, NULL, NULL));
    INVALID("symm_p2p_batch", symm_p2p_batch(NULL, NULL, 0, NULL, NULL));
    INVALID("symm_p2p_batch", symm_p2p_batch(t, NULL, 1, NULL, NULL));
    INVALID("symm_p2p_batch", symm_p2p_batch(t, NULL, -1, NULL, NULL));
    INVALID("symm_put", symm_put(NULL, m, m, 4, 0, NULL, NULL));
    INVALID("symm_get", symm_get(NULL, m, m, 4, 0, NULL, NULL));
    INVALID("symm_put_signal", symm_put_signal(NULL, m, m, 4, 0, 0, NULL, NULL));
    INVALID("symm_signal", symm_signal(NULL, 0, 0, NULL, NULL));
    INVALID("symm_signal_wait", symm_signal_wait(NULL, 0, 0, NULL, NULL));
    INVALID("peer", symm_put(t, m, other, 4, 1, NULL, NULL));
    INVALID("peer", symm_get(t, other, m, 4, -1, NULL, NULL));
    INVALID("dst", symm_put(t, NULL, other, 4, 0, NULL, NULL));
    INVALID("src", symm_put(t, m, NULL, 4, 0, NULL, NULL));
    INVALID("symm_put", symm_put(t, other, m, 4, 0, NULL, NULL));
    INVALID("symm_put", symm_put(t, m, other, SIZE_MAX, 0, NULL, NULL));
    INVALID("signal", symm_put_signal(t, m, other, 4, 0, 256, NULL, NULL));
    INVALID("signal", symm_signal(t, 0, -1, NULL, NULL));
    INVALID("signal", symm_signal_wait(t, 0, INT32_MAX, NULL, NULL));
}

/* Every one-sided or collective call, with this symm_call. */
static void refuse_call(const struct world *w, const symm_call *c, const char *name)
{
    float *m = w->memory, other[64] = {0};
    symm_team *t = w->team;

    INVALID(name, symm_all_reduce(t, m, m, 1, SYMM_FLOAT32, SYMM_SUM, c, NULL));
    INVALID(name, symm_reduce_scatter(t, m, other, 1, SYMM_INT32, SYMM_MIN, c, NULL));
    INVALID(name, symm_all_gather(t, m, other, 1, SYMM_FLOAT32, c, NULL));
    INVALID(name, symm_broadcast(t, m, m, 1, SYMM_FLOAT32, 0, c, NULL));
    INVALID(name, symm_all_to_all(t, m, other, 1, SYMM_FLOAT32, c, NULL));
    INVALID(name, symm_barrier(t, c, NULL));
    INVALID(name, symm_put(t, m, other, 4, 0, c, NULL));
    INVALID(name, symm_get(t, other, m, 4, 0, c, NULL));
    INVALID(name, symm_put_signal(t, m, other, 4, 0, 0, c, NULL));
    INVALID(name, symm_signal(t, 0, 0, c, NULL));
    INVALID(name, symm_signal_wait(t, 0, 0, c, NULL));
}

/* Of two-sided calls the engine is asked for before the stream: here is none. */
static void refuse_all(const struct world *w, const symm_call *c, const char *name)
{
    float *m = w->memory;
    symm_team *t = w->team;
    const symm_p2p_op op = {.size = sizeof(op),
                            .kind = SYMM_P2P_SEND,
                            .ptr = m,
                            .count = 1,
                            .dtype = SYMM_FLOAT32};

    refuse_call(w, c, name);
    INVALID(name, symm_send(t, m, 1, SYMM_FLOAT32, 0, c, NULL));
    INVALID(name, symm_recv(t, m, 1, SYMM_FLOAT32, 0, c, NULL));
    INVALID(name, symm_p2p_batch(t, &op, 1, c, NULL));
}

static void test_call_structs(void **state)
{
    struct world *w = *state;
    const size_t sizes[] = {0, 1, 7, 9, 36, 4097, SIZE_MAX};
    const double times[] = {-1, -1e300, QUIET_NAN};
    static const char *const algorithms[] = {"", "nosuch", "lamport_push "};
    struct {
        symm_call call;
        uint64_t more;
    } newer = {{.size = sizeof(newer)}, 1};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        symm_call call = {.size = sizes[i]};

        refuse_all(w, &call, "symm_call.size");
    }
    refuse_all(w, &newer.call, "symm_call");
    for (size_t i = 0; i < 3; i++) {
        symm_call call = {.size = sizeof(call), .timeout = times[i]};

        refuse_all(w, &call, "timeout");
        call = (symm_call){.size = sizeof(call), .algorithm = algorithms[i]};
        refuse_all(w, &call, algorithms[i]);
    }
    {
        symm_call call = {.size = sizeof(call), .stream = w};

        refuse_call(w, &call, "stream");
        call = (symm_call){.size = sizeof(call), .numerics = 99};
        refuse_all(w, &call, "numerics 99");
    }
}

/* ---- Streams and work ------------------------------------------------------------ */

static void nothing(void *arg)
{
    (void)arg;
}

static symm_status fails(void *arg, void *stream)
{
    (void)arg, (void)stream;
    return SYMM_ERR_NOMEM;
}

static void ended(symm_status status, void *arg)
{
    (void)status, (void)arg;
}

static void test_streams(void **state)
{
    struct world *w = *state;
    symm_call call = {.size = sizeof(call)};
    symm_work *work = NULL, *next = NULL;
    void *stream;
    bool done;
    int fd;

    INVALID("symm_stream_create", symm_stream_create(NULL, &stream));
    INVALID("symm_stream_create", symm_stream_create(w->ctx, NULL));
    GOOD(symm_stream_create(w->ctx, &stream));
    INVALID("symm_stream_synchronize", symm_stream_synchronize(NULL, stream, 1));
    INVALID("stream", symm_stream_synchronize(w->ctx, w, 1));
    INVALID("symm_stream_synchronize: timeout",
            symm_stream_synchronize(w->ctx, stream, QUIET_NAN));
    INVALID("symm_stream_synchronize: timeout",
            symm_stream_synchronize(w->ctx, stream, -1e-9));
    INVALID("symm_stream_call", symm_stream_call(NULL, stream, nothing, NULL));
    INVALID("symm_stream_call", symm_stream_call(w->ctx, stream, NULL, NULL));
    INVALID("stream", symm_stream_call(w->ctx, w, nothing, NULL));
    INVALID("symm_work_query: work is NULL", symm_work_query(NULL, &done));
    INVALID("symm_work_wait", symm_work_wait(NULL, stream));
    INVALID("symm_work_synchronize", symm_work_synchronize(NULL, 1));
    INVALID("symm_work_then", symm_work_then(NULL, stream, fails, NULL, NULL));
    INVALID("symm_work_notify", symm_work_notify(NULL, ended, NULL));
    INVALID("symm_work_fd", symm_work_fd(NULL, &fd));
    assert_string_equal(symm_work_error(NULL), "");
    symm_work_release(NULL);
    symm_stream_destroy(NULL, stream);
    symm_stream_destroy(w->ctx, NULL);
    symm_stream_destroy(w->ctx, w);

    call.stream = stream;
    GOOD(symm_barrier(w->team, &call, &work));
    INVALID("symm_work_query: done is NULL", symm_work_query(work, NULL));
    INVALID("symm_work_synchronize: timeout", symm_work_synchronize(work, QUIET_NAN));
    INVALID("symm_work_synchronize: timeout", symm_work_synchronize(work, -1));
    INVALID("symm_work_then", symm_work_then(work, stream, NULL, NULL, NULL));
    INVALID("symm_work_notify", symm_work_notify(work, NULL, NULL));
    INVALID("symm_work_fd", symm_work_fd(work, NULL));
    INVALID("stream", symm_work_wait(work, w));
    INVALID("stream", symm_work_then(work, w, fails, NULL, &next));
    assert_null(next);
    GOOD(symm_work_synchronize(work, 0));
    GOOD(symm_work_then(work, stream, fails, NULL, &next));
    BAD(SYMM_ERR_NOMEM, "callback", symm_work_synchronize(next, 0));
    symm_work_release(next);
    symm_work_release(work);
    GOOD(symm_stream_synchronize(w->ctx, stream, 0));
    symm_stream_destroy(w->ctx, stream);
}

static void *own_stream;

/* A wait for what lies after itself: an error in time, not a hang. */
static void wait_for_self(void *arg)
{
    struct world *w = arg;

    BAD(SYMM_ERR_TIMEOUT, "stream", symm_stream_synchronize(w->ctx, own_stream, 0.05));
}

static void test_late_work(void **state)
{
    struct world *w = *state;
    symm_call call = {.size = sizeof(call)};
    symm_work *work;

    GOOD(symm_stream_create(w->ctx, &own_stream));
    GOOD(symm_stream_call(w->ctx, own_stream, wait_for_self, w));
    call.stream = own_stream;
    GOOD(symm_barrier(w->team, &call, &work));
    BAD(SYMM_ERR_TIMEOUT, "rank 0", symm_work_synchronize(work, 1e-3));
    GOOD(symm_work_synchronize(work, 0));
    symm_work_release(work);
    symm_stream_destroy(w->ctx, own_stream);
}

/* ---- Tensors --------------------------------------------------------------------- */

struct managed { /* DLPack's DLManagedTensor */
    struct {
        void *data;
        int32_t device[2], ndim;
        uint8_t type[4];
        int64_t *shape, *strides;
        uint64_t offset;
    } tensor;
    void *context;
    void (*deleter)(struct managed *);
};

/* The head of DLPack's DLManagedTensorVersioned. */
struct versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct versioned *);
};

static symm_status hold(symm_team *team, symm_buffer **buffer)
{
    return symm_empty_strided_p2p(team, 1, (int64_t[]){16}, (int64_t[]){1}, SYMM_INT32,
                                  70, buffer);
}

static void test_tensors(void **state)
{
    struct world *w = *state;
    symm_buffer *b, *again;
    struct managed *tensor;
    struct versioned *versioned;
    void *first = NULL, *second = NULL;

    INVALID("symm_buffer_dlpack", symm_buffer_dlpack(NULL, &first));
    INVALID("symm_buffer_dlpack_versioned", symm_buffer_dlpack_versioned(NULL, &first));
    GOOD(hold(w->team, &b));
    INVALID("symm_buffer_dlpack", symm_buffer_dlpack(b, NULL));
    GOOD(symm_buffer_dlpack(b, &first));
    INVALID("alloc_id 70", symm_buffer_dlpack(b, &second));
    INVALID("alloc_id 70", symm_buffer_dlpack_versioned(b, &second));
    assert_null(second);
    symm_buffer_release(b); /* the tensor's hold is not the caller's */
    BAD(SYMM_ERR_IN_USE, "alloc_id 70", hold(w->team, &again));
    tensor = first;
    tensor->deleter(tensor);
    INVALID("released", symm_buffer_dlpack(b, &second));
    GOOD(hold(w->team, &again));
    GOOD(symm_buffer_dlpack_versioned(again, &second));
    INVALID("alloc_id 70", symm_buffer_dlpack(again, &first));
    versioned = second;
    versioned->deleter(versioned);
    INVALID("symm_torch_bind", symm_torch_bind(NULL));
    mark();
    assert_null(symm_torch_alloc(8, 63, NULL));
    assert_non_null(strstr(symm_last_error(), "symm_torch_alloc"));
    GOOD(symm_torch_bind(w->team));
    for (int k = 0; k < 2; k++) {
        mark();
        assert_null(symm_torch_alloc(k ? SIZE_MAX : (size_t)1 << 50, 0, NULL));
        assert_null(strstr(symm_last_error(), "marker"));
    }
    mark();
    assert_null(symm_torch_alloc(8, -1, NULL));
    assert_non_null(strstr(symm_last_error(), "-1"));
    symm_torch_free(NULL, 0, 0, NULL);
    symm_torch_free(&b, 8, 0, NULL); /* none of ours: ignored */
    symm_torch_free(&b, 8, 77, NULL);
    INVALID("symm_torch_unbind", symm_torch_unbind(NULL));
    GOOD(symm_torch_unbind(w->team));
    BAD(SYMM_ERR_NOT_FOUND, "symm_torch_unbind", symm_torch_unbind(w->team));
    mark();
    assert_null(symm_torch_alloc(8, 0, NULL));
    assert_non_null(strstr(symm_last_error(), "no team is bound to device 0"));
    GOOD(symm_torch_bind(w->team));
}

/* ---- A forked child -------------------------------------------------------------- */

#define FORKED(name, call) BAD(SYMM_ERR_FORKED, name, call)

static void misuse_in_child(const struct world *w)
{
    symm_info info = {.size = sizeof(info)};
    symm_team *t = w->team, *team;
    symm_buffer *b;
    void *p;
    float *m = w->memory;

    FORKED("symm_ctx_info", symm_ctx_info(w->ctx, &info));
    FORKED("symm_team_split", symm_team_split(t, 0, 0, &team));
    FORKED("symm_team_create", symm_team_create(t, (int[]){0}, 1, 0, &team));
    FORKED("symm_team_shrink", symm_team_shrink(t, &team));
    FORKED("symm_empty_strided_p2p", hold(t, &b));
    FORKED("symm_rendezvous", symm_rendezvous(t));
    FORKED("symm_alloc_id_free", symm_alloc_id_free(t, 1));
    FORKED("symm_buffer_alloc", symm_buffer_alloc(t, 8, &b));
    FORKED("symm_buffer_register", symm_buffer_register(t, &b, 8, &b));
    FORKED("barrier", symm_barrier(t, NULL, NULL));
    FORKED("all_reduce",
           symm_all_reduce(t, m, m, 1, SYMM_FLOAT32, SYMM_SUM, NULL, NULL));
    FORKED("symm_put", symm_put(t, m, &info, 4, 0, NULL, NULL));
    FORKED("symm_signal_wait", symm_signal_wait(t, 0, 0, NULL, NULL));
    FORKED("symm_send", symm_send(t, m, 1, SYMM_FLOAT32, 0, NULL, NULL));
    FORKED("symm_stream_create", symm_stream_create(w->ctx, &p));
    FORKED("symm_buffer_dlpack", symm_buffer_dlpack(w->buffer, &p));
    FORKED("symm_team_load_plan", symm_team_load_plan(t, NULL));
    FORKED("symm_team_abort", symm_team_abort(t, "x"));
    FORKED("symm_team_set_name", symm_team_set_name(t, "x"));
    FORKED("symm_heap_write", symm_heap_write(w->ctx, 1, "json"));
    symm_buffer_release(w->buffer);
    symm_team_destroy(t);
    symm_finalize(w->ctx);
}

static void test_forked(void **state)
{
    pid_t child;
    int end;

    fflush(stdout);
    child = fork();
    if (child == 0) {
        complaints = 0;
        misuse_in_child(*state);
        fflush(stdout);
        _exit(complaints > 0);
    }
    assert_int_equal(waitpid(child, &end, 0), child);
    assert_true(WIFEXITED(end));
    assert_int_equal(WEXITSTATUS(end), 0);
    GOOD(symm_barrier(((struct world *)*state)->team, NULL, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_init),       cmocka_unit_test(test_names),
        cmocka_unit_test(test_teams),      cmocka_unit_test(test_memory),
        cmocka_unit_test(test_calls),      cmocka_unit_test(test_call_structs),
        cmocka_unit_test(test_streams),    cmocka_unit_test(test_late_work),
        cmocka_unit_test(test_tensors),    cmocka_unit_test(test_forked),
        cmocka_unit_test(test_complaints),
    };

    symm_log_sink(quiet, NULL);
    return cmocka_run_group_tests(tests, open_world, close_world);
}
