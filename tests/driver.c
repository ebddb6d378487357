/* SPDX-License-Identifier: MIT */
/* driver.c - see driver.h. */
#if SYMM_HAVE_CUDA
#include "driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static int take(void *library, const char *name, void **function)
{
    *function = dlsym(library, name);
    CHECK_MESSAGE(*function, "the fake driver lacks %s", name);
    return 0;
}

int driver_load(struct driver *d)
{
    void *library;

    memset(d, 0, sizeof(*d));
    if (setenv("SYMM_CUDA_LIBRARY", SYMM_FAKE_CUDA, 1) != 0)
        return 1;
    library = dlopen(SYMM_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    CHECK_MESSAGE(library, "%s", dlerror());
    d->library = library;
    return take(library, "cuStreamBeginCapture_v2", (void **)&d->begin_capture) |
           take(library, "cuStreamEndCapture", (void **)&d->end_capture) |
           take(library, "cuGraphInstantiateWithFlags", (void **)&d->instantiate) |
           take(library, "cuGraphLaunch", (void **)&d->graph_launch) |
           take(library, "cuGraphDestroy", (void **)&d->graph_destroy) |
           take(library, "cuGraphExecDestroy", (void **)&d->exec_destroy) |
           take(library, "cuGraphRetainUserObject", (void **)&d->retain_object) |
           take(library, "cuUserObjectCreate", (void **)&d->object_create) |
           take(library, "cuUserObjectRelease", (void **)&d->object_release) |
           take(library, "cuStreamGetId", (void **)&d->stream_id) |
           take(library, "fake_cuda_leaks", (void **)&d->leaks) |
           take(library, "fake_cuda_fail", (void **)&d->fail_call) |
           take(library, "fake_cuda_fail_named", (void **)&d->fail_named) |
           take(library, "fake_cuda_calls", (void **)&d->calls) |
           take(library, "fake_cuda_first", (void **)&d->first) |
           take(library, "fake_cuda_multicast", (void **)&d->multicast) |
           take(library, "fake_cuda_state", (void **)&d->state) |
           take(library, "simt_launch", (void **)&d->simt_launch);
}

int driver_start(struct driver *d)
{
    CUcontext context;

    CHECK_ZERO(driver_load(d));
    CHECK_MESSAGE(symm__cuda_driver(&d->cu) == SYMM_OK, "%s", symm_last_error());
    CHECK_CU(d->cu->cuDevicePrimaryCtxRetain(&context, 0));
    CHECK_CU(d->cu->cuCtxSetCurrent(context));
    return 0;
}

void *driver_symbol(const struct driver *d, const char *name)
{
    void *symbol = dlsym(d->library, name);

    if (!symbol) {
        harness_fail(__FILE__, __LINE__, "the fake driver lacks %s", name);
        abort();
    }
    return symbol;
}

void (*driver_kernel(const struct driver *d, const char *name))(struct symm_cuda_args)
{
    return (void (*)(struct symm_cuda_args))driver_symbol(d, name);
}

/* ---- Children -------------------------------------------------------------------- */

static _Noreturn void child(int (*body)(void *arg), void *arg,
                            const char *const *settings, int out)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE};
    struct rlimit none = {0, 0};

    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        signal(faults[i], SIG_DFL); /* cmocka catches them */
    setrlimit(RLIMIT_CORE, &none);
    dup2(out, STDERR_FILENO);
    close(out);
    for (; settings && *settings; settings++) {
        const char *value = strchr(*settings, '=');
        char name[64];

        snprintf(name, sizeof(name), "%.*s", (int)(value - *settings), *settings);
        setenv(name, value + 1, 1);
    }
    exit(body(arg));
}

int driver_child(int (*body)(void *arg), void *arg, const char *const *settings,
                 char text[DRIVER_TEXT])
{
    size_t length = 0;
    ssize_t got;
    int ends[2], status = -1;
    pid_t pid;

    fflush(NULL);
    if (pipe(ends) != 0 || (pid = fork()) < 0)
        abort();
    if (pid == 0) {
        close(ends[0]);
        child(body, arg, settings, ends[1]);
    }
    close(ends[1]);
    do {
        char drain[256];

        got = length < DRIVER_TEXT - 1
                  ? read(ends[0], text + length, DRIVER_TEXT - 1 - length)
                  : read(ends[0], drain, sizeof(drain));
        if (got > 0 && length < DRIVER_TEXT - 1)
            length += (size_t)got;
    } while (got > 0 || (got < 0 && errno == EINTR));
    text[length] = '\0';
    close(ends[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

int driver_dies(int (*body)(void *arg), void *arg, const char *const *settings,
                const char *words)
{
    char text[DRIVER_TEXT];
    int status = driver_child(body, arg, settings, text);

    CHECK_MESSAGE(WIFSIGNALED(status),
                  "the process lives, but '%s' was expected; stderr:\n%s", words, text);
    CHECK_MESSAGE(strstr(text, words), "'%s' was expected on stderr, not:\n%s", words,
                  text);
    return 0;
}

int driver_lives(int (*body)(void *arg), void *arg, const char *const *settings)
{
    char text[DRIVER_TEXT];
    int status = driver_child(body, arg, settings, text);

    CHECK_MESSAGE(WIFEXITED(status) && WEXITSTATUS(status) == 0,
                  "status %#x; stderr:\n%s", status, text);
    return 0;
}
#else
typedef int driver_none; /* a file may not be empty */
#endif
