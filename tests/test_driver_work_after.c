/* SPDX-License-Identifier: MIT */
/* test_driver_work_after.c - handles outlive their context: work_after.h, on the CUDA backend. */
#include "work_after.h"

#include "device.h"

static void test_cuda(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        work_after("cuda");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cuda)};

    device_suite();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
