/* SPDX-License-Identifier: MIT */
/*
 * fake_nccl_calls.c - helpers of all calls of the fake NCCL: they count calls, make calls
 * fail or hang by name, and queue work on the fake driver's streams.
 */
#include "fake_nccl.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/clock.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of counts */
static struct {
    char name[32];
    uint64_t calls;
} counts[32];

void fake_nccl_die(const char *format, ...)
{
    char text[256];
    va_list list;

    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    fprintf(stderr, "fake NCCL: %s\n", text);
    abort();
}

void fake_nccl_count(const char *symbol)
{
    size_t i = 0;

    pthread_mutex_lock(&mutex);
    while (i < 31 && counts[i].name[0] && strcmp(counts[i].name, symbol) != 0)
        i++;
    snprintf(counts[i].name, sizeof(counts[i].name), "%s", symbol);
    counts[i].calls++;
    pthread_mutex_unlock(&mutex);
}

uint64_t fake_nccl_calls(const char *symbol)
{
    uint64_t calls = 0;

    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < 32; i++)
        if (strcmp(counts[i].name, symbol) == 0)
            calls = counts[i].calls;
    pthread_mutex_unlock(&mutex);
    return calls;
}

bool fake_nccl_named(const char *variable, const char *symbol, int rank)
{
    const char *at = getenv(variable);
    size_t length = strlen(symbol);

    for (; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, symbol, length) != 0)
            continue;
        if (at[length] == '\0' || at[length] == ',' ||
            (at[length] == '@' && atoi(at + length + 1) == rank))
            return true;
    }
    return false;
}

static atomic_int stuck;

int fake_nccl_stuck(void)
{
    return atomic_load(&stuck);
}

void fake_nccl_hold(const char *symbol, int rank, const atomic_bool *until)
{
    if (!fake_nccl_named("FAKE_NCCL_STUCK", symbol, rank))
        return;
    atomic_fetch_add(&stuck, 1);
    while (!until || !atomic_load(until))
        symm__sleep(1e-3);
    atomic_fetch_sub(&stuck, 1);
}

/* ---- The driver ------------------------------------------------------------------ */

void *fake_nccl_driver(const char *name)
{
    static _Atomic(void *) library;
    const char *path = getenv("SYMM_CUDA_LIBRARY");
    void *found = NULL;

    if (!library)
        library = dlopen(path ? path : "libfake_cuda.so", RTLD_NOW | RTLD_NOLOAD);
    if (library)
        found = dlsym(library, name);
    if (!found)
        fake_nccl_die("the fake CUDA driver is not loaded, or lacks %s", name);
    return found;
}

bool fake_nccl_has_device(void)
{
    int (*current)(void **) = (int (*)(void **))fake_nccl_driver("cuCtxGetCurrent");
    void *context = NULL;

    return current(&context) == 0 && context;
}

bool fake_nccl_is_capturing(void *stream)
{
    int (*ask)(void *, int *) =
        (int (*)(void *, int *))fake_nccl_driver("cuStreamIsCapturing");
    int capture = 0;

    return ask(stream, &capture) == 0 && capture != 0;
}

int fake_nccl_launch(void *stream, struct fake_work *work)
{
    int (*queue)(void *, void (*)(void *), void *) =
        (int (*)(void *, void (*)(void *), void *))fake_nccl_driver("cuLaunchHostFunc");
    const char *when = getenv("FAKE_NCCL_KERNEL");
    struct fake_comm *comm = work->comm;

    if (!fake_nccl_has_device())
        fake_nccl_die("an operation with no current device");
    work->captured = fake_nccl_is_capturing(stream);
    pthread_mutex_lock(&comm->lock);
    if (!work->captured) {
        atomic_fetch_add(&comm->flight, 1);
        work->ticketed = true;
        work->ticket = comm->tickets++;
    }
    pthread_mutex_unlock(&comm->lock);
    if (when && !work->captured)
        fake_nccl_launch_kernel(stream, work, when);
    else if (queue(stream, fake_work_run, work) != 0)
        fake_nccl_die("the stream takes no operation");
    atomic_store(&comm->looked, 0);
    if (comm->blocks)
        return SYMM_NCCL_SUCCESS;
    atomic_store(&comm->progress, 2);
    return SYMM_NCCL_IN_PROGRESS;
}
