/* SPDX-License-Identifier: MIT */
/*
 * driver.h - for suites on the fake CUDA driver: its functions, and child processes for code
 * that ends its process or must run before the driver starts.
 *
 * As on a real machine, the driver belongs to the process that starts it: a suite starts it
 * only in children, or in its own process after the last fork. Needs cuda.h.
 */
#ifndef SYMM_TESTS_DRIVER_H
#define SYMM_TESTS_DRIVER_H

#include "cuda/driver.h"
#include "fake_cuda.h"
#include "harness.h"

struct symm_cuda_args;

struct driver {
    const struct symm_cuda_driver *cu; /* NULL until driver_start */
    /* Not in the table: */
    __typeof__(&cuStreamBeginCapture) begin_capture;
    __typeof__(&cuStreamEndCapture) end_capture;
    __typeof__(&cuGraphInstantiate) instantiate;
    __typeof__(&cuGraphLaunch) graph_launch;
    __typeof__(&cuGraphDestroy) graph_destroy;
    __typeof__(&cuGraphExecDestroy) exec_destroy;
    __typeof__(&cuGraphRetainUserObject) retain_object;
    __typeof__(&cuUserObjectCreate) object_create;
    __typeof__(&cuUserObjectRelease) object_release;
    CUresult (*stream_id)(CUstream stream, unsigned long long *id);
    __typeof__(&fake_cuda_leaks) leaks;
    __typeof__(&fake_cuda_fail) fail_call;
    __typeof__(&fake_cuda_fail_named) fail_named;
    __typeof__(&fake_cuda_calls) calls;
    __typeof__(&fake_cuda_first) first;
    __typeof__(&fake_cuda_multicast) multicast;
    __typeof__(&fake_cuda_state) state;
    void (*simt_launch)(void (*kernel)(struct symm_cuda_args),
                        const struct symm_cuda_args *args, unsigned blocks,
                        unsigned threads);
    void *library;
};

/* Loads the fake driver and makes the library use it (SYMM_CUDA_LIBRARY). 0, or 1. */
int driver_load(struct driver *d);
/* Loads and starts it; the context of device 0 is current in this thread. 0, or 1. */
int driver_start(struct driver *d);
/* A function of the fake driver; never NULL. */
void *driver_symbol(const struct driver *d, const char *name);
/* A kernel of the fake driver; never NULL. */
void (*driver_kernel(const struct driver *d, const char *name))(struct symm_cuda_args);

/*
 * Runs body in a child process, which exits with body's result. `settings` is a list of
 * NAME=VALUE for its environment that ends with NULL, or NULL. Its stderr goes to `text`.
 * Returns the status of waitpid.
 */
#define DRIVER_TEXT 4096
int driver_child(int (*body)(void *arg), void *arg, const char *const *settings,
                 char text[DRIVER_TEXT]);
/* 0 if the process ended by abort or by a fault, with `words` on stderr. */
int driver_dies(int (*body)(void *arg), void *arg, const char *const *settings,
                const char *words);
/* 0 if the process exited with 0; else its stderr is printed. */
int driver_lives(int (*body)(void *arg), void *arg, const char *const *settings);

#define CHECK_CUDA(call, wanted)                                                       \
    do {                                                                               \
        CUresult result_ = (call);                                                     \
        if (result_ != (wanted))                                                       \
            return harness_fail(__FILE__, __LINE__, "%s: %d instead of %s", #call,     \
                                (int)result_, #wanted);                                \
    } while (0)
#define CHECK_CU(call) CHECK_CUDA(call, CUDA_SUCCESS)

#endif
