/* SPDX-License-Identifier: MIT */
/*
 * driver.c - opens the CUDA driver and fills the table (see driver.h).
 *
 * The first call in a process does this and keeps the result, or the error, for later callers: a
 * driver does not come or go while a process runs. The library is never closed.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cuda/driver.h"
#include "util/options.h"
#include "util/status.h"

/* The oldest driver that has all functions of the table is one for CUDA 12.1. */
#define OLDEST_DRIVER "530"

typedef CUresult get_v1(const char *, void **, int, cuuint64_t);
typedef CUresult get_v2(const char *, void **, int, cuuint64_t,
                        CUdriverProcAddressQueryResult *);

/* cuGetProcAddress in one of its two forms; the other is NULL. */
struct getter {
    get_v1 *v1; /* CUDA 11.3 */
    get_v2 *v2; /* 12.0 */
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct symm_cuda_driver table;
static symm_status table_status;
static char table_error[SYMM_ERROR_BYTES];

static void fail(symm_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void fail(symm_status status, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    vsnprintf(table_error, sizeof(table_error), format, list);
    va_end(list);
    table_status = status;
}

static void *take(const struct getter *get, const char *name, int version)
{
    void *function = NULL;
    CUdriverProcAddressQueryResult found;
    CUresult result =
        get->v2 ? get->v2(name, &function, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM,
                          &found)
                : get->v1(name, &function, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM);

    return result == CUDA_SUCCESS ? function : NULL;
}

/* The driver's own name for a result, even while the table is only half filled. */
static const char *name_of(CUresult result)
{
    const char *name = NULL;

    if (!table.cuGetErrorName || table.cuGetErrorName(result, &name) != CUDA_SUCCESS ||
        !name)
        name = "an unknown error";
    return name;
}

/* Takes every function that is there; false: fail() has been called. */
static bool fill(const struct getter *get, const char *library)
{
    static const struct {
        const char *name;
        int since;
        size_t member;
        bool optional;
    } entries[] = {
#define SYMM_CUDA_DRIVER_ENTRY(function, since)                                        \
    {#function, since, offsetof(struct symm_cuda_driver, function), false},
        SYMM_CUDA_DRIVER_MAP(SYMM_CUDA_DRIVER_ENTRY)
#undef SYMM_CUDA_DRIVER_ENTRY
#define SYMM_CUDA_DRIVER_ENTRY(function, since)                                        \
    {#function, since, offsetof(struct symm_cuda_driver, function), true},
            SYMM_CUDA_DRIVER_OPTIONAL(SYMM_CUDA_DRIVER_ENTRY)
#undef SYMM_CUDA_DRIVER_ENTRY
    };

    table.cuDriverGetVersion =
        (__typeof__(table.cuDriverGetVersion))take(get, "cuDriverGetVersion", 2020);
    if (!table.cuDriverGetVersion ||
        table.cuDriverGetVersion(&table.version) != CUDA_SUCCESS)
        table.version = 0;
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        void *function = take(get, entries[i].name, entries[i].since);

        if (!function && !entries[i].optional) {
            fail(SYMM_ERR_UNSUPPORTED,
                 "the CUDA driver is too old: %s is for CUDA %d.%d and lacks %s; a "
                 "driver of version " OLDEST_DRIVER " or newer is needed",
                 library, table.version / 1000, table.version % 1000 / 10,
                 entries[i].name);
            return false;
        }
        memcpy((char *)&table + entries[i].member, &function, sizeof(function));
    }
    return true;
}

/* The driver starts once, in the process that uses it. */
static const char *forked(CUresult result)
{
    return result == CUDA_ERROR_NOT_INITIALIZED
               ? "; CUDA does not work in a child that was forked after its parent had "
                 "begun to use it: start the process by exec, or fork earlier"
               : "";
}

static void start(const char *library)
{
    const char *function = "cuInit";
    CUresult result = table.cuInit(0);
    int devices = 0;

    if (result == CUDA_SUCCESS) {
        function = "cuDeviceGetCount";
        result = table.cuDeviceGetCount(&devices);
    }
    if (result == CUDA_ERROR_NO_DEVICE || (result == CUDA_SUCCESS && devices == 0))
        fail(SYMM_ERR_UNSUPPORTED,
             "there is no CUDA device: %s found none; look at nvidia-smi and at "
             "CUDA_VISIBLE_DEVICES, or set SYMM_BACKEND=host",
             library);
    else if (result == CUDA_ERROR_NOT_INITIALIZED)
        fail(SYMM_ERR_UNSUPPORTED, "the CUDA driver %s does not start: %s failed%s",
             library, function, forked(result));
    else if (result != CUDA_SUCCESS)
        fail(SYMM_ERR_UNSUPPORTED,
             "the CUDA driver %s does not start: %s failed with %s; does "
             "nvidia-smi work? SYMM_BACKEND=host needs no driver",
             library, function, name_of(result));
}

static void open_driver(void)
{
    const char *library = symm__option(SYMM_OPTION_CUDA_LIBRARY), *reason;
    struct getter get = {0};
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);

    if (!handle) {
        reason = dlerror();
        fail(SYMM_ERR_UNSUPPORTED,
             "there is no CUDA driver: dlopen of '%s' (SYMM_CUDA_LIBRARY) failed: %s; "
             "install the NVIDIA driver, or set SYMM_BACKEND=host",
             library, reason ? reason : "no reason given");
        return;
    }
    get.v2 = (get_v2 *)dlsym(handle, "cuGetProcAddress_v2");
    get.v1 = (get_v1 *)dlsym(handle, "cuGetProcAddress");
    if (!get.v2 && !get.v1) {
        fail(SYMM_ERR_UNSUPPORTED,
             "'%s' (SYMM_CUDA_LIBRARY) is no CUDA driver, or one older than CUDA 11.3: "
             "it lacks cuGetProcAddress; a driver of version " OLDEST_DRIVER
             " or newer is needed",
             library);
        return;
    }
    if (fill(&get, library))
        start(library);
}

symm_status symm__cuda_driver(const struct symm_cuda_driver **driver)
{
    pthread_once(&once, open_driver);
    if (table_status != SYMM_OK)
        return symm__fail(table_status, "%s", table_error);
    *driver = &table;
    return SYMM_OK;
}

static symm_status status_of(CUresult result)
{
    switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
        return SYMM_ERR_NOMEM;
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NOT_PERMITTED:
        return SYMM_ERR_UNSUPPORTED;
    default:
        return SYMM_ERR_SYSTEM;
    }
}

symm_status symm__cuda_check(const struct symm_cuda_driver *driver, CUresult result,
                             const char *function, const char *format, ...)
{
    const char *name = NULL, *text = NULL;
    char what[256];
    va_list list;

    if (result == CUDA_SUCCESS)
        return SYMM_OK;
    va_start(list, format);
    vsnprintf(what, sizeof(what), format, list);
    va_end(list);
    if (driver->cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
        name = "an unknown error";
    if (driver->cuGetErrorString(result, &text) != CUDA_SUCCESS || !text)
        text = "no text";
    return symm__fail(status_of(result), "%s failed with %s (%d, %s): %s%s", function,
                      name, (int)result, text, what, forked(result));
}
