/* SPDX-License-Identifier: MIT */
/*
 * fake_cuda.c - the fake driver's core (see fake_cuda.h): the lock, injected failures, the
 * list of objects alive, errors' names, and cuGetProcAddress.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <unistd.h>

#include "cuda/driver.h"
#include "fake_cuda_private.h"

pthread_mutex_t fake_mutex = PTHREAD_MUTEX_INITIALIZER;
struct fake_settings fake_settings;

static _Atomic pid_t process; /* that called cuInit; 0: none */
static struct fake_object *objects[FAKE_KINDS];
static uint64_t calls, fail_at;
static const char *called[1 << 16]; /* of calls 1, 2, ... */
static bool fail_forever;
static const char *fail_prefix; /* of the function of which a call fails; NULL: none */
static uint64_t fail_left;      /* calls of it until then */
static CUresult fail_result = CUDA_ERROR_UNKNOWN;
static __thread const char *function_now = "?";

/* ---- Basics ---------------------------------------------------------------------- */

uint64_t fake_env(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);

    return text && *text ? strtoull(text, NULL, 0) : fallback;
}

_Noreturn void fake_die(const char *format, ...)
{
    va_list list;

    va_start(list, format);
    fprintf(stderr, "fake CUDA driver: %s: ", function_now);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    abort();
}

int fake_lock(const char *function)
{
    if (sim_driver_call)
        sim_driver_call(function);
    pthread_mutex_lock(&fake_mutex);
    return 1;
}

void fake_unlock(int *locked)
{
    if (*locked)
        pthread_mutex_unlock(&fake_mutex);
}

static bool fails_now(const char *function)
{
    calls++;
    if (calls < sizeof(called) / sizeof(called[0]))
        called[calls] = function;
    if (fail_prefix && strncmp(function, fail_prefix, strlen(fail_prefix)) == 0 &&
        --fail_left == 0) {
        fail_prefix = NULL;
        return true;
    }
    return fail_at != 0 && (calls == fail_at || (fail_forever && calls > fail_at));
}

CUresult fake_enter(const char *function, unsigned needs, bool *injected)
{
    pid_t starter = process;

    function_now = function;
    *injected = fails_now(function);
    if (fake_settings.trace)
        fprintf(stderr, "fake CUDA driver: call %llu: %s%s\n",
                (unsigned long long)calls, function, *injected ? " fails" : "");
    if (fake_in_host_function())
        return *injected = false, CUDA_ERROR_NOT_PERMITTED;
    if ((needs & FAKE_INIT) && starter != getpid())
        return *injected = false, CUDA_ERROR_NOT_INITIALIZED;
    if ((needs & FAKE_CURRENT) == FAKE_CURRENT && !fake_current())
        return *injected = false, CUDA_ERROR_INVALID_CONTEXT;
    if (needs & FAKE_UNSAFE) {
        CUresult refused = fake_capture_unsafe();

        if (refused != CUDA_SUCCESS)
            return *injected = false, refused;
    }
    return *injected ? fail_result : CUDA_SUCCESS;
}

/* ---- What is alive --------------------------------------------------------------- */

void fake_list(enum fake_kind kind, void *made)
{
    struct fake_object *object = made;

    object->kind = kind;
    object->link = &objects[kind];
    object->next = objects[kind];
    if (object->next)
        object->next->link = &object->next;
    objects[kind] = object;
}

void *fake_new(enum fake_kind kind, size_t bytes)
{
    void *object = calloc(1, bytes);

    if (!object)
        fake_die("no memory");
    fake_list(kind, object);
    return object;
}

void fake_unlist(void *object)
{
    struct fake_object *o = object;

    *o->link = o->next;
    if (o->next)
        o->next->link = o->link;
    o->next = NULL;
    o->link = NULL;
}

void fake_delete(void *object)
{
    fake_unlist(object);
    free(object);
}

struct fake_object *fake_first(enum fake_kind kind)
{
    return objects[kind];
}

bool fake_is(enum fake_kind kind, const void *object)
{
    for (const struct fake_object *o = objects[kind]; o; o = o->next)
        if (o == object)
            return true;
    return false;
}

static const char *kind_name(enum fake_kind kind)
{
    static const char *const names[] = {
#define FAKE_KIND_NAME(id, name) name,
        FAKE_KIND_MAP(FAKE_KIND_NAME)
#undef FAKE_KIND_NAME
    };

    return names[kind];
}

void fake_expect(enum fake_kind kind, const void *object)
{
    if (!fake_is(kind, object))
        fake_die("%p is not among the %s that are alive (given back before?)", object,
                 kind_name(kind));
}

/* A handle without references lives on in its mappings, which are counted themselves; a
 * thread's own stream ends with the thread. */
static bool counts(const struct fake_object *object)
{
    if (object->kind == FAKE_STREAM)
        return !((const struct CUstream_st *)(const void *)object)->of_thread;
    return object->kind != FAKE_HANDLE ||
           ((const struct fake_memory *)(const void *)object)->handles > 0;
}

FAKE_API int fake_cuda_leaks(FILE *out)
{
    int all = 0;
    FAKE_LOCKED;

    for (int kind = 0; kind < FAKE_KINDS; kind++) {
        int count = 0;

        for (const struct fake_object *o = objects[kind]; o; o = o->next)
            count += counts(o);
        if (count != 0 && out)
            fprintf(out, "fake CUDA driver: %d %s\n", count,
                    kind_name((enum fake_kind)kind));
        all += count;
    }
    return all;
}

__attribute__((destructor)) static void at_exit(void)
{
    if (process != getpid())
        return;
    if (fake_settings.check && fake_cuda_leaks(NULL) != 0) {
        fprintf(stderr, "fake CUDA driver: alive at the exit of process %ld:\n",
                (long)getpid());
        fake_cuda_leaks(stderr);
        fflush(NULL);
        _exit(99);
    }
}

/* ---- Failures on demand ---------------------------------------------------------- */

FAKE_API void fake_cuda_fail(uint64_t k, bool forever, int result)
{
    FAKE_LOCKED;

    calls = 0;
    fail_at = k;
    fail_forever = forever;
    fail_result = (CUresult)result;
}

FAKE_API void fake_cuda_fail_named(const char *prefix, uint64_t k, int result)
{
    FAKE_LOCKED;

    fail_prefix = prefix;
    fail_left = k;
    fail_result = (CUresult)result;
}

FAKE_API uint64_t fake_cuda_calls(void)
{
    FAKE_LOCKED;

    return calls;
}

FAKE_API uint64_t fake_cuda_first(const char *prefix, uint64_t after)
{
    FAKE_LOCKED;

    for (uint64_t k = after + 1; k <= calls && k < sizeof(called) / sizeof(called[0]);
         k++)
        if (strncmp(called[k], prefix, strlen(prefix)) == 0)
            return k;
    return 0;
}

__attribute__((constructor)) static void at_load(void)
{
    const char *text = getenv("FAKE_CUDA_FAIL");
    char *rest;

    fake_settings.trace = fake_env("FAKE_CUDA_TRACE", 0) != 0;
    fake_settings.check = fake_env("FAKE_CUDA_CHECK", 0) != 0;
    fake_settings.version = (int)fake_env("FAKE_CUDA_VERSION", 13000);
    fake_settings.missing = getenv("FAKE_CUDA_MISSING");
    fail_result = (CUresult)fake_env("FAKE_CUDA_FAIL_RESULT", CUDA_ERROR_UNKNOWN);
    if (text && *text) {
        fail_at = strtoull(text, &rest, 10);
        fail_forever = *rest == '+';
    }
}

FAKE_API CUresult CUDAAPI cuInit(unsigned int flags)
{
    FAKE_ENTER(FAKE_NOTHING);
    pid_t none = 0;
    CUresult result;

    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (process == getpid())
        return CUDA_SUCCESS;
    if (process != 0) /* forked from a process that had begun to use the driver */
        return CUDA_ERROR_NOT_INITIALIZED;
    result = fake_devices_init();
    if (result == CUDA_SUCCESS)
        atomic_compare_exchange_strong(&process, &none, getpid());
    return result;
}

FAKE_API CUresult CUDAAPI cuDriverGetVersion(int *version)
{
    FAKE_ENTER(FAKE_NOTHING);
    *version = fake_settings.version;
    return CUDA_SUCCESS;
}

/* ---- Errors ---------------------------------------------------------------------- */

#define ERROR_MAP(X)                                                                   \
    X(CUDA_SUCCESS, "no error")                                                        \
    X(CUDA_ERROR_INVALID_VALUE, "invalid argument")                                    \
    X(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")                                       \
    X(CUDA_ERROR_NOT_INITIALIZED, "initialization error")                              \
    X(CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library")                        \
    X(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected")                      \
    X(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal")                             \
    X(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid")                      \
    X(CUDA_ERROR_INVALID_CONTEXT, "invalid device context")                            \
    X(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle")                            \
    X(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in this state")     \
    X(CUDA_ERROR_NOT_FOUND, "named symbol not found")                                  \
    X(CUDA_ERROR_NOT_READY, "device not ready")                                        \
    X(CUDA_ERROR_NOT_PERMITTED, "operation not permitted")                             \
    X(CUDA_ERROR_NOT_SUPPORTED, "operation not supported")                             \
    X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "not permitted when stream is capturing") \
    X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "capture failed by an earlier error")     \
    X(CUDA_ERROR_STREAM_CAPTURE_MERGE, "capture would merge two captures")             \
    X(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not begun in this stream")     \
    X(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capture has work that was not joined")      \
    X(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "capture depends on uncaptured work")       \
    X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "capture depends on the legacy stream")      \
    X(CUDA_ERROR_CAPTURED_EVENT, "event was last recorded in a capture")               \
    X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "capture was begun by another thread")   \
    X(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure")                          \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")          \
    X(CUDA_ERROR_UNKNOWN, "unknown error")

static CUresult error_text(CUresult error, bool name, const char **text)
{
    static const struct {
        CUresult error;
        const char *name, *text;
    } known[] = {
#define ERROR_ENTRY(id, words) {id, #id, words},
        ERROR_MAP(ERROR_ENTRY)
#undef ERROR_ENTRY
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (known[i].error == error) {
            *text = name ? known[i].name : known[i].text;
            return CUDA_SUCCESS;
        }
    }
    *text = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

FAKE_API CUresult CUDAAPI cuGetErrorName(CUresult error, const char **text)
{
    return error_text(error, true, text);
}

FAKE_API CUresult CUDAAPI cuGetErrorString(CUresult error, const char **text)
{
    return error_text(error, false, text);
}

/* ---- cuGetProcAddress ------------------------------------------------------------ */

/* What tests use besides the library's table. */
#define OTHERS_MAP(X)                                                                  \
    X(cuFuncGetAttribute, 2020)                                                        \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050)                               \
    X(cuStreamGetId, 12000)                                                            \
    X(cuUserObjectCreate, 11030)                                                       \
    X(cuUserObjectRetain, 11030)                                                       \
    X(cuUserObjectRelease, 11030)                                                      \
    X(cuGraphRetainUserObject, 11030)                                                  \
    X(cuGraphReleaseUserObject, 11030)                                                 \
    X(cuStreamBeginCapture, 10010)                                                     \
    X(cuStreamEndCapture, 10000)                                                       \
    X(cuGraphInstantiate, 12000)                                                       \
    X(cuGraphLaunch, 10000)                                                            \
    X(cuGraphDestroy, 10000)                                                           \
    X(cuGraphExecDestroy, 10000)

/* The same, of newer headers. */
#if CUDA_VERSION >= 12040
#define NEWER_MAP(X)                                                                   \
    X(cuDeviceGetDevResource, 12040)                                                   \
    X(cuDevSmResourceSplitByCount, 12040)                                              \
    X(cuDevResourceGenerateDesc, 12040)                                                \
    X(cuGreenCtxCreate, 12040)                                                         \
    X(cuGreenCtxDestroy, 12040)                                                        \
    X(cuCtxFromGreenCtx, 12040)                                                        \
    X(cuGreenCtxStreamCreate, 12050)                                                   \
    X(cuStreamGetCaptureInfo, 12030)
#else
#define NEWER_MAP(X)
#endif

static CUresult find(const char *symbol, void **function, int version,
                     CUdriverProcAddressQueryResult *status)
{
    static const struct {
        const char *name;
        int since;
        void *function;
    } known[] = {
#define KNOWN_ENTRY(function, since) {#function, since, (void *)function},
        SYMM_CUDA_DRIVER_MAP(KNOWN_ENTRY) SYMM_CUDA_DRIVER_OPTIONAL(KNOWN_ENTRY)
            OTHERS_MAP(KNOWN_ENTRY) NEWER_MAP(KNOWN_ENTRY)
#undef KNOWN_ENTRY
    };

    *function = NULL;
    *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (fake_settings.missing && strcmp(symbol, fake_settings.missing) == 0)
        return CUDA_ERROR_NOT_FOUND;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(symbol, known[i].name) != 0)
            continue;
        if (version < known[i].since || fake_settings.version < known[i].since) {
            *status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
            return CUDA_ERROR_NOT_FOUND;
        }
        *function = known[i].function;
        *status = CU_GET_PROC_ADDRESS_SUCCESS;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

#undef cuGetProcAddress
CUresult CUDAAPI cuGetProcAddress(const char *symbol, void **function, int version,
                                  cuuint64_t flags);
CUresult CUDAAPI cuGetProcAddress_v2(const char *symbol, void **function, int version,
                                     cuuint64_t flags,
                                     CUdriverProcAddressQueryResult *status);

FAKE_API CUresult CUDAAPI cuGetProcAddress_v2(const char *symbol, void **function,
                                              int version, cuuint64_t flags,
                                              CUdriverProcAddressQueryResult *status)
{
    CUdriverProcAddressQueryResult ignored;

    if (!symbol || !function || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    return find(symbol, function, version, status ? status : &ignored);
}

FAKE_API CUresult CUDAAPI cuGetProcAddress(const char *symbol, void **function,
                                           int version, cuuint64_t flags)
{
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}
