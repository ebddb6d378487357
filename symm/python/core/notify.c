/* SPDX-License-Identifier: MIT */
/*
 * notify.c - how a program learns that a Work has ended: Work.notify, Work.fileno and `await`.
 *
 * A function of notify is called on libsymm's thread, which must not finalize its own context. So
 * a context that the function closes, or of which it drops the last reference, is ended by the
 * main thread, or at exit.
 */
#include <unistd.h>

#include "python/core/core.h"
#include <pythread.h>

struct notice {
    PyObject *function;
    core_work *work;   /* holds the call's arrays */
    core_context *ctx; /* outlives work and function */
};

static struct notice *notice_new(core_work *work, PyObject *function)
{
    struct notice *notice = PyMem_Malloc(sizeof(*notice));

    if (!notice) {
        PyErr_NoMemory();
        return NULL;
    }
    notice->function = Py_NewRef(function);
    notice->work = core_ref(work);
    notice->ctx = core_ref(work->ctx);
    return notice;
}

/* All but the context, whose reference the caller gets. */
static core_context *notice_free(struct notice *notice)
{
    core_context *ctx = notice->ctx;

    Py_DECREF(notice->function);
    Py_DECREF((PyObject *)notice->work);
    PyMem_Free(notice);
    return ctx;
}

static int settle_later(void *arg)
{
    core_context *ctx = arg;

    core_context_settle(ctx);
    Py_DECREF((PyObject *)ctx);
    return 0;
}

/* Drops a context on libsymm's thread. */
static void context_drop(core_context *ctx)
{
    const bool ends = ctx->handle && (ctx->closed || Py_REFCNT((PyObject *)ctx) == 1);

    ctx->notifying = 0;
    if (!ends)
        Py_DECREF((PyObject *)ctx);
    else if (Py_AddPendingCall(settle_later, ctx) != 0)
        return; /* too many are pending: keeps the reference, and the exit ends the context */
}

/* The status as an exception, of the sentence that is this thread's; None: success. */
static PyObject *error_of(symm_status status)
{
    PyObject *type, *value, *traceback;

    if (status == SYMM_OK)
        return Py_NewRef(Py_None);
    core_raise_last(status);
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
}

static void call_function(symm_status status, void *arg)
{
    struct notice *notice = arg;
    PyGILState_STATE gil;
    PyObject *error, *result;

    if (!core_callback_begin(&gil))
        return;
    core_pending(notice->ctx, -1);
    notice->ctx->notifying = PyThread_get_thread_ident();
    error = error_of(status);
    result = PyObject_CallFunctionObjArgs(notice->function, error, NULL);
    if (!result)
        PyErr_WriteUnraisable(notice->function);
    Py_XDECREF(result);
    Py_XDECREF(error);
    context_drop(notice_free(notice));
    core_callback_end(gil);
}

PyObject *core_work_notify(PyObject *self, PyObject *function)
{
    core_work *work = (core_work *)self;
    struct notice *notice;
    PyThreadState *state;
    symm_status status;

    if (core_context_check(work->ctx, "Work.notify") < 0)
        return NULL;
    if (!PyCallable_Check(function)) {
        PyErr_SetString(PyExc_TypeError, "notify(): function must be callable");
        return NULL;
    }
    notice = notice_new(work, function);
    if (!notice)
        return NULL;
    core_pending(work->ctx, 1);
    state = core_enter(work->ctx);
    status = symm_work_notify(work->handle, call_function, notice);
    if (core_left(work->ctx, state, status) == 0)
        Py_RETURN_NONE; /* the notice may be gone */
    core_pending(work->ctx, -1);
    Py_DECREF((PyObject *)notice_free(notice));
    return NULL;
}

PyObject *core_work_fileno(PyObject *self, PyObject *unused)
{
    core_work *work = (core_work *)self;
    PyThreadState *state;
    symm_status status;
    int fd = -1;

    (void)unused;
    if (core_context_check(work->ctx, "Work.fileno") < 0)
        return NULL;
    if (work->fd < 0) {
        state = core_enter(work->ctx);
        status = symm_work_fd(work->handle, &fd);
        if (core_left(work->ctx, state, status) < 0)
            return NULL;
        if (work->fd < 0)
            work->fd = fd;
        else
            close(fd); /* another thread was faster */
    }
    return PyLong_FromLong(work->fd);
}

PyObject *core_work_await(PyObject *self)
{
    PyObject *module = PyImport_ImportModule("symm._await"), *result;

    if (!module)
        return NULL;
    result = PyObject_CallMethod(module, "wait", "O", self);
    Py_DECREF(module);
    return result;
}
