/* SPDX-License-Identifier: MIT */
/* engine_stage.c - see engine_stage.h. */
#include "engine_stage.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum harness_mode engine_pass = HARNESS_PROCESSES;

void engine_suite(void)
{
    device_suite();
    setenv("SYMM_ENGINE", "nccl", 1);
#ifdef SYMM_FAKE_NCCL
    if (!device_real())
        setenv("SYMM_NCCL_LIB", SYMM_FAKE_NCCL, 1);
#endif
}

int engine_open(struct engine_stage *s, symm_ctx *ctx)
{
    memset(s, 0, sizeof(*s));
    s->ctx = ctx;
    s->team = symm_team_world(ctx);
    s->rank = symm_team_rank(s->team);
    s->n = symm_team_size(s->team);
    s->gpu = device_open(ctx);
    CHECK(s->gpu != NULL);
    CHECK_ZERO(device_area_open(&s->in, s->gpu, NULL, ENGINE_BYTES));
    CHECK_ZERO(device_area_open(&s->out, s->gpu, NULL, ENGINE_BYTES));
    CHECK_ZERO(device_area_open(&s->heap, s->gpu, s->team, ENGINE_BYTES));
    CHECK_OK(symm_rendezvous(s->team));
    CHECK_OK(symm_stream_create(ctx, &s->stream));
    return 0;
}

void engine_close(struct engine_stage *s)
{
    symm_stream_destroy(s->ctx, s->stream);
    device_area_close(&s->in);
    device_area_close(&s->out);
    device_area_close(&s->heap);
    perf_gpu_close(s->gpu);
}

int32_t engine_value(int r, size_t i)
{
    return (int32_t)(i * 5 + (size_t)r * 1000003);
}

int32_t *engine_ints(struct device_area *area)
{
    return (int32_t *)(void *)area->host;
}

int engine_give(struct engine_stage *s, struct device_area *area, size_t count)
{
    for (size_t i = 0; i < count; i++)
        engine_ints(area)[i] = engine_value(s->rank, i);
    return device_put(area, 0, count * sizeof(int32_t));
}

int engine_take(struct engine_stage *s, struct device_area *area, size_t count)
{
    CHECK_OK(symm_stream_synchronize(s->ctx, s->stream, HARNESS_AMPLE));
    return device_get(area, 0, count * sizeof(int32_t));
}

/* NULL on GPUs: NCCL counts nothing. */
static void *stand_in(const char *name)
{
    const char *path = getenv("SYMM_NCCL_LIB");
    void *library;

    if (device_real() || !path)
        return NULL;
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return library ? dlsym(library, name) : NULL;
}

uint64_t engine_calls(const char *symbol)
{
    uint64_t (*calls)(const char *) =
        (uint64_t(*)(const char *))stand_in("fake_nccl_calls");

    return calls ? calls(symbol) : 0;
}

int engine_registered(void)
{
    int (*count)(void) = (int (*)(void))stand_in("fake_nccl_registered");

    return count ? count() : 0;
}

int engine_windows(void)
{
    int (*count)(void) = (int (*)(void))stand_in("fake_nccl_windows");

    return count ? count() : 0;
}

int engine_stuck(void)
{
    int (*count)(void) = (int (*)(void))stand_in("fake_nccl_stuck");

    return count ? count() : 0;
}

/* Sets or takes back what `settings` names. */
static void apply(const char *const *settings, bool set)
{
    for (; settings && *settings; settings++) {
        const char *value = strchr(*settings, '=');
        char name[64];

        snprintf(name, sizeof(name), "%.*s", (int)(value - *settings), *settings);
        if (set)
            setenv(name, value + 1, 1);
        else
            unsetenv(name);
    }
}

int engine_run(harness_body body, int ranks, enum harness_mode mode, void *arg,
               const char *const *settings, double timeout)
{
    struct harness h = {.ranks = ranks,
                        .mode = mode,
                        .body = body,
                        .arg = arg,
                        .timeout = timeout,
                        .team_bytes = (size_t)128 << 20};
    int result;

    if (mode != engine_pass || device_ranks(ranks) < ranks)
        return 0;
    apply(settings, true);
    result = harness_run(&h);
    apply(settings, false);
    return result;
}
