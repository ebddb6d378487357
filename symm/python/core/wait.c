/* SPDX-License-Identifier: MIT */
/*
 * wait.c - waits that a signal of Python interrupts, above all Ctrl-C. Python runs its handlers on
 * the process's first thread, between two of its own steps, and a wait of libsymm is one step. So a
 * wait there that lasts goes on in a thread of its own, and the first thread looks for signals
 * meanwhile. If a handler raises, the wait is left alone: its thread keeps the context and the object
 * until it ends. Other threads wait as they are.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "python/core/core.h"

#define SLICE 0.1 /* seconds between two looks for signals */
/* The first part of a wait with a timeout, which ends so much later. */
#define SHORT 0.001

struct wait {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    core_context *ctx; /* borrowed, as the object; counted once the wait is left */
    struct core_wait what;
    pid_t process;   /* that has the thread */
    bool done, left; /* left: the thread frees it */
    symm_status status;
    char text[2048];
};

static symm_status wait_for(const core_context *ctx, const struct core_wait *what,
                            double timeout)
{
    if (!what->work)
        return symm_stream_synchronize(ctx->handle, what->stream, timeout);
    return what->in_order ? symm_work_wait(what->work, NULL)
                          : symm_work_synchronize(what->work, timeout);
}

/* The same for so short that no signal need interrupt it. false: it goes on. */
static bool wait_first(const core_context *ctx, const struct core_wait *what,
                       symm_status *status)
{
    const double part = what->timeout > 0 ? SHORT : SLICE;
    bool done = false;

    if (!what->work) {
        *status = symm_stream_synchronize(ctx->handle, what->stream, part);
        return *status != SYMM_ERR_TIMEOUT;
    }
    *status = symm_work_synchronize(what->work, part);
    if (*status == SYMM_ERR_TIMEOUT) {
        /* this part's or the call's own, and the call may have ended since */
        *status = symm_work_query(what->work, &done);
        if (*status == SYMM_OK && !done)
            return false;
    }
    if (what->in_order)
        *status = symm_work_wait(what->work, NULL);
    return true;
}

static void wait_free(struct wait *wait)
{
    pthread_cond_destroy(&wait->ended);
    pthread_mutex_destroy(&wait->lock);
    free(wait);
}

/* In the thread, at the end of a wait that was left. */
static void drop(struct wait *wait)
{
    PyGILState_STATE gil;

    if (!core_callback_begin(&gil))
        return; /* the process ends */
    Py_DECREF(wait->what.object);
    wait->ctx->calls--;
    if (wait->ctx->closed)
        core_context_settle(wait->ctx);
    Py_DECREF((PyObject *)wait->ctx);
    wait_free(wait);
    core_callback_end(gil);
}

static void *run(void *arg)
{
    struct wait *wait = arg;
    const symm_status status = wait_for(wait->ctx, &wait->what, wait->what.timeout);
    bool left;

    pthread_mutex_lock(&wait->lock);
    wait->status = status;
    if (status != SYMM_OK)
        snprintf(wait->text, sizeof(wait->text), "%s", symm_last_error());
    wait->done = true;
    left = wait->left;
    pthread_cond_signal(&wait->ended);
    pthread_mutex_unlock(&wait->lock);
    if (left)
        drop(wait);
    return NULL;
}

/* NULL: no memory, or no thread. */
static struct wait *begin(core_context *ctx, const struct core_wait *what)
{
    struct wait *wait = calloc(1, sizeof(*wait));
    pthread_condattr_t monotonic;
    pthread_attr_t detached;
    sigset_t all, before;
    pthread_t thread;
    int error;

    if (!wait)
        return NULL;
    wait->ctx = ctx;
    wait->what = *what;
    wait->process = getpid();
    pthread_mutex_init(&wait->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&wait->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all,
                    &before); /* signals are the program's threads' */
    error = pthread_create(&thread, &detached, run, wait);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    if (error == 0)
        return wait;
    wait_free(wait);
    return NULL;
}

/* Without the GIL. */
static bool is_done(struct wait *wait)
{
    struct timespec until;
    bool done;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(1e9 * SLICE);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&wait->lock);
    while (!wait->done &&
           pthread_cond_timedwait(&wait->ended, &wait->lock, &until) == 0)
        ;
    done = wait->done;
    pthread_mutex_unlock(&wait->lock);
    return done;
}

/* A handler has raised: the thread has the wait from now on, unless it has ended. */
static void leave(struct wait *wait)
{
    bool left;

    pthread_mutex_lock(&wait->lock);
    left = !wait->done;
    if (left) { /* drop() gives back: it needs the GIL, which this thread has */
        Py_INCREF((PyObject *)wait->ctx);
        Py_INCREF(wait->what.object);
        wait->ctx->calls++;
        wait->left = true;
    }
    pthread_mutex_unlock(&wait->lock);
    if (!left)
        wait_free(wait);
}

/* In the child of a handler that has forked: the thread is the parent's, and so is its lock. */
static int wait_in_child(core_context *ctx, struct wait *wait, PyThreadState *state,
                         int raised)
{
    const struct core_wait what = wait->what;

    free(wait);
    if (raised == 0) /* libsymm refuses it */
        return core_left(ctx, state, wait_for(ctx, &what, what.timeout));
    core_leave(ctx, state);
    return -1;
}

/* core_enter was called. */
static int wait_on(core_context *ctx, struct wait *wait, PyThreadState *state)
{
    symm_status status;
    int raised;

    do {
        PyEval_RestoreThread(state);
        raised = PyErr_CheckSignals();
        state = PyEval_SaveThread();
        if (getpid() != wait->process)
            return wait_in_child(ctx, wait, state, raised);
    } while (raised == 0 && !is_done(wait));
    if (raised) {
        PyEval_RestoreThread(state);
        leave(wait);
        state = PyEval_SaveThread();
        core_leave(ctx, state);
        return -1;
    }
    status = wait->status;
    PyEval_RestoreThread(state);
    if (status != SYMM_OK)
        core_raise(status, "%s", wait->text);
    wait_free(wait);
    state = PyEval_SaveThread();
    core_leave(ctx, state);
    return status == SYMM_OK ? 0 : -1;
}

int core_wait(core_context *ctx, const struct core_wait *what)
{
    PyThreadState *state = core_enter(ctx);
    const bool sliced =
        gettid() == getpid() && !(what->timeout > 0 && what->timeout <= SLICE);
    struct wait *wait = NULL;
    symm_status status;

    if (sliced && wait_first(ctx, what, &status))
        return core_left(ctx, state, status);
    if (sliced)
        wait = begin(ctx, what);
    return wait ? wait_on(ctx, wait, state)
                : core_left(ctx, state, wait_for(ctx, what, what->timeout));
}
