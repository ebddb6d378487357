/* SPDX-License-Identifier: MIT */
/*
 * test_driver_fake_multicast.c - the fake CUDA driver's multicast objects.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "driver_memory.h"

static int multicast(void *arg)
{
    CUmulticastObjectProp prop = {.numDevices = 2, .size = 2 * SEGMENT};
    CUmemAllocationProp where = device0;
    CUmemGenericAllocationHandle object, memory[2];
    CUdeviceptr view, plain[2];
    void *reached[FAKE_CUDA_MULTICAST_MAX];
    struct driver d;

    (void)arg;
    CHECK_ZERO(driver_start(&d));
    CHECK_CU(d.cu->cuMulticastCreate(&object, &prop));
    CHECK_CU(d.cu->cuMulticastAddDevice(object, 0));
    CHECK_CUDA(d.cu->cuMulticastAddDevice(object, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(d.cu->cuMulticastAddDevice(object, 1));
    CHECK_CUDA(d.cu->cuMulticastAddDevice(object, 2), CUDA_ERROR_INVALID_VALUE);
    for (int i = 0; i < 2; i++) {
        where.location.id = i;
        CHECK_CU(d.cu->cuMemCreate(&memory[i], 2 * SEGMENT, &where, 0));
        CHECK_CU(d.cu->cuMemAddressReserve(&plain[i], 2 * SEGMENT, 0, 0, 0));
        CHECK_CU(d.cu->cuMemMap(plain[i], 2 * SEGMENT, 0, memory[i], 0));
        CHECK_CU(d.cu->cuMemSetAccess(plain[i], 2 * SEGMENT, &access0, 1));
        CHECK_CU(
            d.cu->cuMulticastBindMem(object, SEGMENT, memory[i], SEGMENT, SEGMENT, 0));
    }
    CHECK_CUDA(d.cu->cuMulticastBindMem(object, SEGMENT, memory[0], 0, SEGMENT, 0),
               CUDA_ERROR_INVALID_VALUE); /* the device has memory there */
    CHECK_CU(d.cu->cuMemAddressReserve(&view, 2 * SEGMENT, 0, 0, 0));
    CHECK_CU(d.cu->cuMemMap(view, 2 * SEGMENT, 0, object, 0));
    CHECK_CU(d.cu->cuMemSetAccess(view, 2 * SEGMENT, &access0, 1));
    CHECK(d.multicast(host_pointer(view), reached) == 0); /* nothing is bound there */
    CHECK(d.multicast(host_pointer(plain[0]), reached) == 0);
    CHECK(d.multicast(host_pointer(view) + SEGMENT + 40, reached) == 2);
    strcpy(reached[0], "one");
    strcpy(reached[1], "two");
    CHECK(strcmp(host_pointer(plain[0]) + SEGMENT + 40, "one") == 0);
    CHECK(strcmp(host_pointer(plain[1]) + SEGMENT + 40, "two") == 0);
    for (int i = 0; i < 2; i++) {
        CHECK_CU(d.cu->cuMulticastUnbind(object, i, SEGMENT, SEGMENT));
        CHECK_CUDA(d.cu->cuMulticastUnbind(object, i, SEGMENT, SEGMENT),
                   CUDA_ERROR_INVALID_VALUE);
        CHECK_CU(d.cu->cuMemUnmap(plain[i], 2 * SEGMENT));
        CHECK_CU(d.cu->cuMemAddressFree(plain[i], 2 * SEGMENT));
        CHECK_CU(d.cu->cuMemRelease(memory[i]));
    }
    CHECK_CU(d.cu->cuMemUnmap(view, 2 * SEGMENT));
    CHECK_CU(d.cu->cuMemAddressFree(view, 2 * SEGMENT));
    CHECK_CU(d.cu->cuMemRelease(object));
    CHECK(d.leaks(stderr) == 1);
    return 0;
}

static int no_multicast(void *arg)
{
    CUmulticastObjectProp prop = {.numDevices = 2, .size = 2 * SEGMENT};
    CUmemGenericAllocationHandle object;
    struct driver d;

    (void)arg;
    CHECK_ZERO(driver_start(&d));
    CHECK_CUDA(d.cu->cuMulticastCreate(&object, &prop), CUDA_ERROR_NOT_SUPPORTED);
    return 0;
}

static void test_multicast(void **state)
{
    static const char *const settings[] = {"FAKE_CUDA_MULTICAST=1", NULL};

    (void)state;
    assert_int_equal(driver_lives(multicast, NULL, settings), 0);
    assert_int_equal(driver_lives(no_multicast, NULL, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_multicast)};

    if (HARNESS_TSAN)
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
