/* SPDX-License-Identifier: MIT */
/*
 * test_driver_table.c - the table of the CUDA driver's functions: each is loaded with the
 * version of its present form; errors for no driver, no device, or an old driver. Every case
 * is a process of its own, since a process has one table.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <cudaTypedefs.h>
#include <pthread.h>
#include <string.h>

#include "driver.h"

/* cuda.h's present form is the one of the version in the map: cudaTypedefs.h has a type for
 * each function and version. */
#define SAME_TYPE(function, since)                                                     \
    _Static_assert(__builtin_types_compatible_p(PFN_##function##_v##since,             \
                                                __typeof__(&function)),                \
                   #function " has another form since " #since);
SYMM_CUDA_DRIVER_MAP(SAME_TYPE)

struct refusal {
    const char *setting, *more;
    const char *words[4]; /* all of them are in the sentence */
};

static int refused(void *arg)
{
    const struct refusal *refusal = arg;
    const struct symm_cuda_driver *driver = NULL;
    char first[1024];

    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(symm__cuda_driver(&driver), SYMM_ERR_UNSUPPORTED);
        CHECK(driver == NULL);
        for (int w = 0; w < 4 && refusal->words[w]; w++)
            CHECK_ERROR(refusal->words[w]);
        if (i == 0)
            snprintf(first, sizeof(first), "%s", symm_last_error());
        symm_last_error();
    }
    CHECK(strcmp(first, symm_last_error()) == 0);
    return 0;
}

static void test_refusals(void **state)
{
    static struct refusal cases[] = {
        {"SYMM_CUDA_LIBRARY=/nowhere/libcuda.so.1",
         NULL,
         {"there is no CUDA driver", "'/nowhere/libcuda.so.1' (SYMM_CUDA_LIBRARY)",
          "cannot open shared object file", "SYMM_BACKEND=host"}},
        {"SYMM_CUDA_LIBRARY=libm.so.6",
         NULL,
         {"'libm.so.6' (SYMM_CUDA_LIBRARY) is no CUDA driver",
          "lacks cuGetProcAddress"}},
        {"FAKE_CUDA_MISSING=cuMemSetAccess",
         NULL,
         {"too old", SYMM_FAKE_CUDA, "CUDA 13.0", "lacks cuMemSetAccess"}},
        {"FAKE_CUDA_MISSING=cuDriverGetVersion",
         NULL,
         {"too old", "lacks cuDriverGetVersion"}},
        {"FAKE_CUDA_VERSION=11080",
         NULL,
         {"too old", "CUDA 11.8", "lacks cuMulticastCreate", "version 530"}},
        {"FAKE_CUDA_DEVICES=0",
         NULL,
         {"there is no CUDA device", SYMM_FAKE_CUDA, "CUDA_VISIBLE_DEVICES"}},
        {"CUDA_VISIBLE_DEVICES=", NULL, {"there is no CUDA device"}},
        {"FAKE_CUDA_FAIL=2",
         NULL,
         {"does not start: cuInit failed with CUDA_ERROR_UNKNOWN", "nvidia-smi"}},
        {"FAKE_CUDA_FAIL=2",
         "FAKE_CUDA_FAIL_RESULT=3",
         {"does not start: cuInit failed; CUDA does not work in a child"}},
        {"FAKE_CUDA_FAIL=2", "FAKE_CUDA_FAIL_RESULT=34", {"CUDA_ERROR_STUB_LIBRARY"}},
        {"FAKE_CUDA_FAIL=2", "FAKE_CUDA_FAIL_RESULT=4711", {"an unknown error"}},
        {"FAKE_CUDA_FAIL=3", NULL, {"cuDeviceGetCount failed with CUDA_ERROR_UNKNOWN"}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *settings[] = {"SYMM_CUDA_LIBRARY=" SYMM_FAKE_CUDA, cases[i].setting,
                                  cases[i].more, NULL};

        if (driver_lives(refused, &cases[i], settings))
            fail_msg("%s", cases[i].setting);
    }
}

/* ---- A driver that works --------------------------------------------------------- */

static void *ask(void *arg)
{
    const struct symm_cuda_driver **driver = arg;

    if (symm__cuda_driver(driver) != SYMM_OK)
        *driver = NULL;
    return NULL;
}

static int filled(void *arg)
{
    const struct symm_cuda_driver *drivers[8] = {0}, *driver;
    pthread_t threads[8];

    (void)arg;
    for (int i = 0; i < 8; i++)
        CHECK(pthread_create(&threads[i], NULL, ask, &drivers[i]) == 0);
    for (int i = 0; i < 8; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK_OK(symm__cuda_driver(&driver));
    for (int i = 0; i < 8; i++)
        CHECK(drivers[i] == driver);
    CHECK(driver->version == 13000);
#define FILLED(function, since) CHECK(driver->function != NULL);
    SYMM_CUDA_DRIVER_MAP(FILLED)
    SYMM_CUDA_DRIVER_OPTIONAL(FILLED)
#undef FILLED
    return 0;
}

/* A driver that lacks only what it may lack. */
static int older(void *arg)
{
    const struct symm_cuda_driver *driver;

    (void)arg;
    CHECK_OK(symm__cuda_driver(&driver));
    CHECK(driver->version == 12030 && driver->cuLaunchKernelEx);
    CHECK(!driver->cuModuleGetFunctionCount && !driver->cuModuleEnumerateFunctions &&
          !driver->cuFuncLoad);
    return 0;
}

static int checked(void *arg)
{
    static const struct {
        CUresult result;
        symm_status status;
        const char *sentence;
    } cases[] = {
        {CUDA_ERROR_OUT_OF_MEMORY, SYMM_ERR_NOMEM,
         "cuMemCreate failed with CUDA_ERROR_OUT_OF_MEMORY (2, out of memory): 7 "
         "bytes"},
        {CUDA_ERROR_NOT_SUPPORTED, SYMM_ERR_UNSUPPORTED,
         "cuMemCreate failed with CUDA_ERROR_NOT_SUPPORTED (801, operation not "
         "supported): 7 bytes"},
        {CUDA_ERROR_NOT_PERMITTED, SYMM_ERR_UNSUPPORTED,
         "cuMemCreate failed with CUDA_ERROR_NOT_PERMITTED (800, operation not "
         "permitted): 7 bytes"},
        {CUDA_ERROR_INVALID_VALUE, SYMM_ERR_SYSTEM,
         "cuMemCreate failed with CUDA_ERROR_INVALID_VALUE (1, invalid argument): 7 "
         "bytes"},
        {(CUresult)4711, SYMM_ERR_SYSTEM,
         "cuMemCreate failed with an unknown error (4711, no text): 7 bytes"},
    };
    const struct symm_cuda_driver *driver;

    (void)arg;
    CHECK_OK(symm__cuda_driver(&driver));
    CHECK_OK(symm__cuda_check(driver, CUDA_SUCCESS, "cuMemCreate", "%d bytes", 7));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CHECK_STATUS(
            symm__cuda_check(driver, cases[i].result, "cuMemCreate", "%d bytes", 7),
            cases[i].status);
        CHECK_MESSAGE(strcmp(symm_last_error(), cases[i].sentence) == 0, "%s",
                      symm_last_error());
    }
    return 0;
}

static void test_filled(void **state)
{
    const char *settings[] = {"SYMM_CUDA_LIBRARY=" SYMM_FAKE_CUDA, NULL};

    (void)state;
    assert_int_equal(driver_lives(filled, NULL, settings), 0);
}

static void test_older(void **state)
{
    const char *settings[] = {"SYMM_CUDA_LIBRARY=" SYMM_FAKE_CUDA,
                              "FAKE_CUDA_VERSION=12030", NULL};

    (void)state;
    assert_int_equal(driver_lives(older, NULL, settings), 0);
}

static void test_check(void **state)
{
    const char *settings[] = {"SYMM_CUDA_LIBRARY=" SYMM_FAKE_CUDA, NULL};

    (void)state;
    assert_int_equal(driver_lives(checked, NULL, settings), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_filled),
        cmocka_unit_test(test_older),
        cmocka_unit_test(test_check),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
