/* SPDX-License-Identifier: MIT */
/* device.c - see device.h. */
#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "images.h"

bool device_real(void)
{
    return harness_env("SYMM_TEST_GPU", 0) == 1;
}

void device_suite(void)
{
    setenv("SYMM_BACKEND", "cuda", 1);
    if (device_real())
        return;
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

int device_ranks(int most)
{
    int have = device_real() ? count_gpus() : most;

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
