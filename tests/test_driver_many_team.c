/* SPDX-License-Identifier: MIT */
/*
 * test_driver_many_team.c - teams of more than SYMM_FEW_RANKS on the CUDA backend, over the fake
 * driver: 16 ranks, and 36 with SYMM_TEST_LONG=1; then 12 ranks of 3 hosts in one NVLink domain,
 * and 72 of 18 hosts, as in a rack of that many GPUs, with SYMM_TEST_LONG=1.
 * ctest: cost 5
 * ctest: load 3
 *
 * Results of all collectives, chosen by the library and by name, are compared bit for bit with the
 * reference, in symmetric and in private memory; signals go around; a rank that makes another
 * call and one that leaves are named. What has no kernel is refused with the reason.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/context.h"
#include "device_stage.h"
#include "reference_call.h"
#include "symm/pad_layout.h"

#define AREA_BYTES ((size_t)8 << 20)

static symm_status invoke(struct device_stage *s, const struct reference_call *made,
                          const char *algorithm, bool private)
{
    const symm_call call = {.size = sizeof(call),
                            .site = made->seed == 0 ? "other" : kind_names[made->kind],
                            .algorithm = algorithm};
    const struct device_area *area = &s->area[private];
    symm_work *work = NULL;
    symm_status status = reference_invoke(made, s->team, area->device,
                                          area->device + AREA_BYTES / 2, &call, &work);

    if (status == SYMM_OK)
        status = symm_work_synchronize(work, HARNESS_AMPLE);
    symm_work_release(work);
    return status;
}

static int run_call(struct device_stage *s, const struct reference_call *made,
                    const char *algorithm, bool private)
{
    const size_t block = made->count * symm_dtype_size(made->dtype), n = (size_t)s->n;
    const size_t in = made->count * reference_in_blocks(made->kind, s->n);
    const size_t out = made->count * reference_out_blocks(made->kind, s->n);
    const struct device_area *area = &s->area[private];
    size_t where = 0;

    CHECK(block * n <= AREA_BYTES / 2);
    memset(area->host + AREA_BYTES / 2, 0xa5, block * n);
    reference_fill(made->dtype, made->op, made->seed, s->rank, 0, in, area->host);
    CHECK_ZERO(device_put(area, AREA_BYTES / 2, block * n));
    CHECK_ZERO(device_put(area, 0, in * symm_dtype_size(made->dtype)));
    CHECK_MESSAGE(invoke(s, made, algorithm, private) == SYMM_OK, "%s of %zu: %s",
                  kind_names[made->kind], made->count, symm_last_error());
    CHECK_ZERO(device_get(area, AREA_BYTES / 2, out * symm_dtype_size(made->dtype)));
    reference_expect(made, s->n, s->rank, s->wanted);
    CHECK_MESSAGE(reference_same(made->dtype, area->host + AREA_BYTES / 2, s->wanted,
                                 out, &where),
                  "%s of %zu %s: element %zu differs (%s)", kind_names[made->kind],
                  made->count, symm_dtype_name(made->dtype), where,
                  symm_explain(s->team));
    return 0;
}

static int collectives(struct device_stage *s)
{
    static const struct {
        symm_dtype dtype;
        symm_op op;
        size_t count;
        const char *algorithm;
    } calls[] = {{SYMM_BFLOAT16, SYMM_SUM, 5, NULL},
                 {SYMM_FLOAT32, SYMM_SUM, 20000, NULL},
                 {SYMM_FLOAT64, SYMM_MAX, 3001, NULL},
                 {SYMM_INT32, SYMM_SUM, 700, "copy_in"}};
    uint32_t seed = 0;

    for (int k = 0; k < KINDS; k++)
        for (int c = 0; c < 4; c++) {
            const struct reference_call made = {.kind = (enum kind)k,
                                                .dtype = calls[c].dtype,
                                                .op = calls[c].op,
                                                .count = calls[c].count,
                                                .root = s->n - 1,
                                                .seed = ++seed};

            CHECK_ZERO(run_call(s, &made, calls[c].algorithm, (c + k) % 3 == 0));
        }
    CHECK_OK(symm_barrier(s->team, NULL, NULL));
    return 0;
}

/* What teams of few ranks have alone. */
static int refusals(struct device_stage *s)
{
    const struct reference_call made = {
        .kind = ALL_REDUCE, .dtype = SYMM_FLOAT32, .count = 8, .seed = 1};

    CHECK_STATUS(invoke(s, &made, "lamport_push", false), SYMM_ERR_INVALID);
    CHECK_ERROR("in teams of more than 8 ranks");
    return 0;
}

/* A word goes to the rank after this one. */
static int signals(struct device_stage *s)
{
    const int after = (s->rank + 1) % s->n, before = (s->rank + s->n - 1) % s->n;
    const struct device_area *area = &s->area[0];
    int word = s->rank;

    memcpy(area->host, &word, sizeof(word));
    CHECK_ZERO(device_put(area, 0, sizeof(word)));
    CHECK_OK(symm_put_signal(s->team, area->device + 4096, area->device, sizeof(word),
                             after, 200, NULL, NULL));
    CHECK_OK(symm_signal_wait(s->team, before, 200, NULL, NULL));
    CHECK_OK(symm_stream_synchronize(s->ctx, NULL, 0));
    CHECK_ZERO(device_get(area, 4096, sizeof(word)));
    memcpy(&word, area->host + 4096, sizeof(word));
    CHECK(word == before);
    return 0;
}

static int body(symm_ctx *ctx, void *arg)
{
    struct reference_call made = {
        .kind = ALL_REDUCE, .dtype = SYMM_FLOAT32, .count = 8, .seed = 1};
    struct device_stage s;
    symm_status status;

    CHECK_ZERO(device_stage_open(&s, ctx, AREA_BYTES));
    CHECK(s.n > SYMM_FEW_RANKS);
    CHECK_ZERO(collectives(&s));
    CHECK_ZERO(refusals(&s));
    CHECK_ZERO(signals(&s));
    CHECK_ZERO(harness_sync_wait(arg, s.n)); /* no failure within the signals */
    made.seed = s.rank != 11; /* rank 11 is at another site */
    status = invoke(&s, &made, NULL, false);
    CHECK(status == SYMM_ERR_MISMATCH);
    CHECK_ERROR("rank 11 is at");
    device_stage_close(&s);
    return 0;
}

/* ---- One NVLink domain of several hosts -------------------------------------------- */

#define EACH 4 /* ranks of a host, as many as it has devices */

/* By rank 0's port: one host alone has no more than 64 ranks. */
static void configure(symm_config *config, int rank, void *arg)
{
    const char host[2] = {(char)('a' + rank / EACH), '\0'};

    (void)arg;
    setenv("SYMM_HOST_ID", host, 1);
    setenv("GROUP_RANK", host, 1);
    config->local_rank = rank % EACH;
    config->local_size = EACH;
}

static void set_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof(at);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char port[16];

    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    close(fd);
    snprintf(port, sizeof(port), "%d", ntohs(at.sin_port));
    setenv("SYMM_BOOTSTRAP_PORT", port, 1);
    setenv("SYMM_BOOTSTRAP_ADDR", "127.0.0.1", 1);
    setenv("SYMM_HOST_ADDRESS", "127.0.0.1", 1);
    setenv("SYMM_JOB_SECRET", "00112233445566778899aabbccddeeff", 1);
}

/* Steps of a model, each of the same calls: the later ones find them prepared. */
static int program(struct device_stage *s)
{
    static const struct {
        enum kind kind;
        symm_dtype dtype;
        size_t count;
        bool private;
    } calls[] = {{BROADCAST, SYMM_INT32, 64, true},
                 {ALL_REDUCE, SYMM_BFLOAT16, 4096, false},
                 {ALL_REDUCE, SYMM_BFLOAT16, 6000, true},
                 {REDUCE_SCATTER, SYMM_FLOAT32, 500, false},
                 {ALL_TO_ALL, SYMM_INT8, 300, false},
                 {ALL_GATHER, SYMM_FLOAT32, 501, false},
                 {ALL_REDUCE, SYMM_FLOAT32, 5, true}};

    for (uint32_t step = 0; step < 3; step++)
        for (uint32_t c = 0; c < sizeof(calls) / sizeof(*calls); c++) {
            const struct reference_call made = {.kind = calls[c].kind,
                                                .dtype = calls[c].dtype,
                                                .op = SYMM_SUM,
                                                .count = calls[c].count,
                                                .root = s->n / 2,
                                                .seed = 1 + 100 * step + c};

            CHECK_ZERO(run_call(s, &made, NULL, calls[c].private));
        }
    return 0;
}

static int body_domain(symm_ctx *ctx, void *arg)
{
    struct reference_call made = {
        .kind = ALL_REDUCE, .dtype = SYMM_FLOAT32, .count = 8, .seed = 1};
    char words[64];
    struct device_stage s;

    CHECK_ZERO(device_stage_open(&s, ctx, AREA_BYTES));
    CHECK_MESSAGE(ctx->places == s.n, "%d ranks are mapped: %s", ctx->places,
                  ctx->why_domain);
    CHECK_ZERO(program(&s));
    snprintf(words, sizeof(words), "NVLink domain: %d ranks on %d hosts", s.n,
             s.n / EACH);
    CHECK_MESSAGE(strstr(symm_explain(s.team), words), "%s", symm_explain(s.team));
    CHECK_ZERO(signals(&s)); /* between hosts as well */
    CHECK_ZERO(harness_sync_wait(arg, s.n));
    made.seed = s.rank != 11; /* the last rank of the third host is at another site */
    CHECK_STATUS(invoke(&s, &made, NULL, false), SYMM_ERR_MISMATCH);
    CHECK_ERROR("rank 11 is at");
    device_stage_close(&s);
    return 0;
}

static void test_domain(void **unused)
{
    const int ranks = harness_env("SYMM_TEST_LONG", 0) == 1 ? 72 : 12;
    struct harness_sync *sync = harness_shared(sizeof(*sync));
    const struct harness h = {.ranks = ranks,
                              .body = body_domain,
                              .arg = sync,
                              .configure = configure,
                              .mode = HARNESS_PROCESSES};

    (void)unused;
    assert_non_null(dlopen(SYMM_FAKE_NVML, RTLD_NOW | RTLD_LOCAL));
    setenv("SYMM_FABRIC", "1", 1);
    setenv("FAKE_CUDA_FABRIC", "1", 1);
    setenv("SYMM_ENGINE", "nccl", 1);
    setenv("SYMM_NCCL_LIB", SYMM_FAKE_NCCL, 1);
    set_port();
    assert_int_equal(harness_run(&h), 0);
    harness_shared_free(sync, sizeof(*sync));
    unsetenv("SYMM_BOOTSTRAP_PORT");
    unsetenv("SYMM_FABRIC");
    unsetenv("SYMM_ENGINE");
}

static int leaves(symm_ctx *ctx, void *arg)
{
    const struct reference_call made = {
        .kind = ALL_REDUCE, .dtype = SYMM_FLOAT32, .count = 4000, .seed = 1};
    struct device_stage s;

    (void)arg;
    CHECK_ZERO(device_stage_open(&s, ctx, AREA_BYTES));
    if (s.rank != s.n - 1) {
        CHECK(invoke(&s, &made, NULL, true) != SYMM_OK);
        CHECK_ERROR("rank 8");
    }
    device_stage_close(&s);
    return 0;
}

static void test_calls(void **unused)
{
    const int ranks = harness_env("SYMM_TEST_LONG", 0) == 1 ? 36 : 16;
    struct harness_sync *sync = harness_shared(sizeof(*sync));
    const struct harness h = {
        .ranks = ranks, .body = body, .arg = sync, .mode = HARNESS_PROCESSES};

    (void)unused;
    assert_int_equal(harness_run(&h), 0);
    harness_shared_free(sync, sizeof(*sync));
}

static void test_leaves(void **unused)
{
    const struct harness h = {.ranks = 9, .body = leaves, .mode = HARNESS_THREADS};

    (void)unused;
    assert_int_equal(harness_run(&h), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_calls),
                                       cmocka_unit_test(test_domain),
                                       cmocka_unit_test(test_leaves)};

    setenv("FAKE_CUDA_DEVICES", "16", 1);
    setenv("SYMM_OVERSUBSCRIBE", "1", 1); /* the fake driver has 16 devices at most */
    device_suite();
    if (device_real()) /* never run on so many GPUs */
        return 77;
    reference_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
