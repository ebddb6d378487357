/* SPDX-License-Identifier: MIT */
/* test_host_work_after.c - handles outlive their context: work_after.h, on the host backend. */
#include "work_after.h"

static void test_host(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++)
        work_after("host");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_host)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
