/* SPDX-License-Identifier: MIT */
/*
 * test_driver_bind.c - ranks over the fake driver are bound to cores near the GPU that they
 * get later, and binding does not start CUDA.
 *
 * A fake /sys and /proc shows two CPUs of this machine as two NUMA nodes; the first GPU is
 * near the second CPU. Skipped on a machine with one CPU.
 */
#include "cuda/device.h"
#include "device.h"
#include "driver.h"
#include "topology/bind.h"
#include "tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RANKS    2
#define FAKE_BUS "0000:%02x:00.0" /* from 160 on, see fake_cuda.h */

static char folder[256];
static int cpus[2];

#define put(text, ...) tree_put(folder, text, __VA_ARGS__)

/* Device d of the fake machine is near CPU 1 - d. */
static int make_machine(void **state)
{
    char text[64];
    (void)state;

    harness_directory(folder, sizeof(folder));
    snprintf(text, sizeof(text), "%d,%d", cpus[0], cpus[1]);
    put(text, "sys/devices/system/cpu/online");
    put("0-1", "sys/devices/system/node/online");
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof(text), "%d", cpus[i]);
        put(text, "sys/devices/system/node/node%d/cpulist", i);
        put(text, "sys/bus/pci/devices/" FAKE_BUS "/local_cpulist", 161 - i);
        snprintf(text, sizeof(text), "Model: \t Fake GPU\nDevice Minor: \t %d", i);
        put(text, "proc/driver/nvidia/gpus/" FAKE_BUS "/information", 160 + i);
        put("", "dev/nvidia%d", i);
    }
    setenv("FAKE_CUDA_DEVICES", "2", 1);
    return 0;
}

static int remove_machine(void **state)
{
    (void)state;
    unsetenv("CUDA_VISIBLE_DEVICES");
    harness_remove(folder);
    return 0;
}

static void on_cuda(symm_config *config, int rank, void *arg)
{
    (void)rank;
    (void)arg;
    config->backend = "cuda";
}

/* Binds, starts, and looks which device it got and where it may run. */
static int bind_rank(symm_ctx *ctx, void *arg)
{
    symm_config config = harness_config();
    int rank = harness_rank();
    struct symm_cpus got = {0};
    char where[128], list[64], bus[40];
    int node;
    (void)arg;

    CHECK_OK(symm__bind_self(folder, rank, RANKS, where, sizeof(where)));
    CHECK_OK(symm_init(&config, &ctx));
    const struct symm_device_info *device = ctx->ops->describe(ctx->backend);
    CHECK(device != NULL);
    CHECK(symm__gpu_object(folder, device->bus, list, sizeof(list), &node));
    CHECK_OK(symm__cpus_read(&got));
    CHECK(CPU_COUNT_S(got.bytes, got.set) == 1);
    CHECK_MESSAGE(CPU_ISSET_S((size_t)atoi(list), got.bytes, got.set),
                  "the device at %s is near CPU %s; %s", device->bus, list, where);
    snprintf(bus, sizeof(bus), ", near GPU %s", device->bus);
    CHECK_MESSAGE(strcasestr(where, bus), "%s, but the device is at %s", where,
                  device->bus);
    symm__cpus_finish(&got);
    symm_finalize(ctx);
    return 0;
}

static void test_nearest(void **state)
{
    const struct harness h = {
        .ranks = RANKS, .body = bind_rank, .configure = on_cuda, .without_ctx = true};
    (void)state;

    assert_int_equal(harness_run(&h), 0);
    setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
    assert_int_equal(harness_run(&h), 0);
}

/* By nodes, not by GPUs: rank 0 has the first CPU. */
static int bind_without(void *arg)
{
    struct symm_cpus got = {0};
    char where[128];

    CHECK_OK(symm__bind_self(folder, 0, *(const int *)arg, where, sizeof(where)));
    CHECK_MESSAGE(!strstr(where, "GPU"), "%s", where);
    CHECK_OK(symm__cpus_read(&got));
    CHECK(CPU_ISSET_S((size_t)cpus[0], got.bytes, got.set));
    symm__cpus_finish(&got);
    return 0;
}

static void test_without(void **state)
{
    const char *const host[] = {"SYMM_BACKEND=host", NULL};
    const char *const any[] = {"SYMM_BACKEND=", NULL};
    int ranks = RANKS, many = RANKS + 1;
    (void)state;

    assert_int_equal(driver_lives(bind_without, &ranks, host), 0);
    /* More ranks than GPUs: symm_init takes the host backend. */
    assert_int_equal(driver_lives(bind_without, &many, any), 0);
}

static int bind_near(void *arg)
{
    char where[128];
    (void)arg;

    /* Three ranks, two GPUs, and SYMM_BACKEND says cuda: rank 2 has the first one. */
    CHECK_OK(symm__bind_self(folder, 2, 3, where, sizeof(where)));
    CHECK_MESSAGE(strstr(where, "near GPU 0000:a0:00.0"), "%s", where);
    return 0;
}

static void test_driver_is_left_alone(void **state)
{
    const char *const settings[] = {"SYMM_BACKEND=cuda", "FAKE_CUDA_TRACE=1", NULL};
    char text[DRIVER_TEXT];
    (void)state;

    assert_int_equal(driver_child(bind_near, NULL, settings, text), 0);
    assert_string_equal(text, "");
}

int main(void)
{
#define ON_MACHINE(test)                                                               \
    cmocka_unit_test_setup_teardown(test, make_machine, remove_machine)
    const struct CMUnitTest tests[] = {
        ON_MACHINE(test_nearest),
        ON_MACHINE(test_without),
        ON_MACHINE(test_driver_is_left_alone),
    };
    struct symm_cpus allowed = {0};
    int count = 0;

    device_suite();
    if (symm__cpus_read(&allowed) != SYMM_OK)
        return 1;
    for (int cpu = 0; cpu < 1024 && count < 2; cpu++)
        if (CPU_ISSET_S((size_t)cpu, allowed.bytes, allowed.set))
            cpus[count++] = cpu;
    symm__cpus_finish(&allowed);
    if (count < 2 || device_real())
        return 77;
    return cmocka_run_group_tests_name("driver_bind", tests, NULL, NULL);
}
