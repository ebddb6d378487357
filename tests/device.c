/* SPDX-License-Identifier: MIT */
/* device.c - see device.h. */
#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "images.h"

#define SUMS ((size_t)4000) /* elements of device_sums */

bool device_real(void)
{
    return harness_env("SYMM_TEST_GPU", 0) == 1;
}

/* Of device files: asking the driver would make this process unfit for forks. */
static int count_gpus(void)
{
    char path[32];
    int count = 0;

    do
        snprintf(path, sizeof(path), "/dev/nvidia%d", count);
    while (access(path, F_OK) == 0 && ++count < 64);
    return count;
}

void device_suite(void)
{
    setenv("SYMM_BACKEND", "cuda", 1);
    if (device_real()) {
        harness_most_threads = count_gpus();
        return;
    }
#ifdef SYMM_FAKE_CUDA
    if (access(SYMM_FAKE_CUDA, R_OK) == 0) {
        setenv("SYMM_CUDA_LIBRARY", SYMM_FAKE_CUDA, 1);
        images_provide();
        atexit(images_remove);
        return;
    }
#endif
    printf("neither a GPU (SYMM_TEST_GPU=1) nor the fake driver\n");
    exit(77);
}

int device_ranks(int most)
{
    bool shared = harness_env("SYMM_OVERSUBSCRIBE", 0) == 1;
    int have = device_real() && !shared ? count_gpus() : most;

    return have < most ? have : most;
}

struct perf_gpu *device_open(symm_ctx *ctx)
{
    symm_info info = {.size = sizeof(info)};
    struct perf_gpu *gpu;

    if (symm_ctx_info(ctx, &info) != SYMM_OK || strcmp(info.backend, "cuda") != 0) {
        harness_fail(__FILE__, __LINE__, "not on the CUDA backend");
        return NULL;
    }
    gpu = perf_gpu_open(info.local_rank);
    if (!gpu)
        harness_fail(__FILE__, __LINE__, "the device cannot be opened");
    return gpu;
}

int device_area_open(struct device_area *area, struct perf_gpu *gpu, symm_team *team,
                     size_t bytes)
{
    const int64_t shape = (int64_t)bytes, stride = 1;

    *area = (struct device_area){.gpu = gpu, .bytes = bytes};
    area->host = calloc(1, bytes);
    CHECK(area->host != NULL);
    if (!team) {
        area->device = perf_gpu_alloc(gpu, bytes);
        CHECK(area->device != NULL);
        return 0;
    }
    CHECK_OK(
        symm_empty_strided_p2p(team, 1, &shape, &stride, SYMM_UINT8, 0, &area->buffer));
    area->device = symm_buffer_ptr(area->buffer);
    return 0;
}

void device_area_close(struct device_area *area)
{
    if (area->buffer)
        symm_buffer_release(area->buffer);
    else if (area->device)
        perf_gpu_free(area->gpu, area->device);
    free(area->host);
    memset(area, 0, sizeof(*area));
}

int device_put(const struct device_area *area, size_t at, size_t bytes)
{
    CHECK_ZERO(perf_gpu_copy(area->gpu, area->device + at, area->host + at, bytes));
    return 0;
}

int device_get(const struct device_area *area, size_t at, size_t bytes)
{
    CHECK_ZERO(perf_gpu_copy(area->gpu, area->host + at, area->device + at, bytes));
    return 0;
}

int device_rank_open(struct device_rank *s, symm_ctx *ctx, size_t in, size_t out,
                     size_t heap, int streams)
{
    *s = (struct device_rank){
        .ctx = ctx, .team = symm_team_world(ctx), .count = streams};
    s->rank = symm_team_rank(s->team);
    s->n = symm_team_size(s->team);
    s->gpu = device_open(ctx);
    CHECK(s->gpu != NULL);
    CHECK_ZERO(device_area_open(&s->in, s->gpu, NULL, in));
    CHECK_ZERO(device_area_open(&s->out, s->gpu, NULL, out));
    if (heap > 0) {
        CHECK_ZERO(device_area_open(&s->heap, s->gpu, s->team, heap));
        CHECK_OK(symm_rendezvous(s->team));
    }
    for (int i = 0; i < streams; i++)
        CHECK_OK(symm_stream_create(ctx, &s->streams[i]));
    return 0;
}

void device_rank_close(struct device_rank *s)
{
    for (int i = 0; i < s->count; i++)
        symm_stream_destroy(s->ctx, s->streams[i]);
    device_area_close(&s->in);
    device_area_close(&s->out);
    device_area_close(&s->heap);
    perf_gpu_close(s->gpu);
}

int device_sums(symm_team *team, struct perf_gpu *gpu, bool symmetric)
{
    struct device_area in, out;
    int n = symm_team_size(team), me = symm_team_world_rank(team, symm_team_rank(team));
    float wanted = 0;
    for (int m = 0; m < n; m++)
        wanted += (float)(symm_team_world_rank(team, m) + 1);
    CHECK_ZERO(device_area_open(&in, gpu, symmetric ? team : NULL, SUMS * 4));
    CHECK_ZERO(device_area_open(&out, gpu, symmetric ? team : NULL, SUMS * 4));
    if (symmetric)
        CHECK_OK(symm_rendezvous(team));
    for (size_t i = 0; i < SUMS; i++)
        ((float *)(void *)in.host)[i] = (float)(me + 1);
    CHECK_ZERO(device_put(&in, 0, SUMS * 4));
    for (int i = 0; i < 3; i++) {
        symm_work *work = NULL;
        CHECK_OK(symm_all_reduce(team, in.device, out.device, SUMS, SYMM_FLOAT32,
                                 SYMM_SUM, NULL, &work));
        CHECK_OK(symm_work_synchronize(work, HARNESS_AMPLE));
        symm_work_release(work);
    }
    CHECK_ZERO(device_get(&out, 0, SUMS * 4));
    for (size_t i = 0; i < SUMS; i++)
        CHECK_MESSAGE(((float *)(void *)out.host)[i] == wanted,
                      "element %zu: %g, not %g", i,
                      (double)((float *)(void *)out.host)[i], (double)wanted);
    device_area_close(&in);
    device_area_close(&out);
    return 0;
}
