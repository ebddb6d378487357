/* SPDX-License-Identifier: MIT */
/* work.c - Work: the handle of one call. It holds the call's arrays until it is dropped. */
#include <string.h>
#include <unistd.h>

#include "python/core/core.h"

PyObject *core_work_new(core_context *ctx, symm_work *handle, PyObject *held)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(core_work_type, Py_tp_alloc);
    core_work *work = (core_work *)alloc(core_work_type, 0);

    if (!work) {
        symm_work_release(handle);
        return NULL;
    }
    work->handle = handle;
    work->ctx = core_ref(ctx);
    work->held = Py_XNewRef(held);
    work->fd = -1;
    return (PyObject *)work;
}

static PyObject *work_done(PyObject *self, PyObject *unused)
{
    core_work *work = (core_work *)self;
    PyThreadState *state;
    symm_status status;
    bool done = false;

    (void)unused;
    if (core_context_check(work->ctx, "Work.done") < 0)
        return NULL;
    state = core_enter(work->ctx);
    status = symm_work_query(work->handle, &done);
    if (core_left(work->ctx, state, status) < 0)
        return NULL;
    return PyBool_FromLong(done);
}

static PyObject *work_wait(PyObject *self, PyObject *const *args, Py_ssize_t count,
                           PyObject *keywords)
{
    static struct core_params params = {"wait", 1, 0, {"stream"}, {NULL}};
    core_work *work = (core_work *)self;
    PyObject *v[CORE_NAMES];
    PyThreadState *state;
    symm_status status;
    void *stream;

    if (core_args(&params, args, count, keywords, v) < 0 ||
        core_context_check(work->ctx, "Work.wait") < 0 ||
        core_stream_get("wait", v[0], NULL, &stream) < 0)
        return NULL;
    if (work->ctx->is_host && !stream)
        return core_wait(work->ctx, &(struct core_wait){.object = self,
                                                        .work = work->handle,
                                                        .in_order = true}) < 0
                   ? NULL
                   : Py_NewRef(Py_None);
    state = core_enter(work->ctx);
    status = symm_work_wait(work->handle, stream);
    if (core_left(work->ctx, state, status) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *work_synchronize(PyObject *self, PyObject *const *args,
                                  Py_ssize_t count, PyObject *keywords)
{
    static struct core_params params = {"synchronize", 1, 0, {"timeout"}, {NULL}};
    core_work *work = (core_work *)self;
    PyObject *v[CORE_NAMES];
    double timeout = 0;

    if (core_args(&params, args, count, keywords, v) < 0 ||
        core_context_check(work->ctx, "Work.synchronize") < 0 ||
        core_seconds("synchronize", "timeout", v[0], &timeout) < 0)
        return NULL;
    if (core_wait(work->ctx, &(struct core_wait){.object = self,
                                                 .work = work->handle,
                                                 .timeout = timeout}) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* What work_then gives to `call_function`; the exception, if the function raised. */
struct then {
    PyObject *function, *type, *value, *traceback;
};

static symm_status call_function(void *arg, void *stream)
{
    struct then *then = arg;
    const PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *handle = PyLong_FromVoidPtr(stream), *result = NULL;

    if (handle)
        result = PyObject_CallFunctionObjArgs(then->function, handle, NULL);
    if (!result)
        PyErr_Fetch(&then->type, &then->value, &then->traceback);
    Py_XDECREF(handle);
    Py_XDECREF(result);
    PyGILState_Release(gil);
    return then->type ? SYMM_ERR_ABORTED : SYMM_OK;
}

static PyObject *work_then(PyObject *self, PyObject *const *args, Py_ssize_t count,
                           PyObject *keywords)
{
    static struct core_params params = {"then", 2, 1, {"function", "stream"}, {NULL}};
    core_work *work = (core_work *)self;
    struct then then = {0};
    symm_work *next = NULL;
    PyObject *v[CORE_NAMES];
    PyThreadState *state;
    symm_status status;
    void *stream;

    if (core_args(&params, args, count, keywords, v) < 0 ||
        core_context_check(work->ctx, "Work.then") < 0 ||
        core_stream_get("then", v[1], NULL, &stream) < 0)
        return NULL;
    if (!PyCallable_Check(v[0])) {
        PyErr_SetString(PyExc_TypeError, "then(): function must be callable");
        return NULL;
    }
    then.function = v[0];
    state = core_enter(work->ctx);
    status = symm_work_then(work->handle, stream, call_function, &then, &next);
    if (then.type) {
        core_leave(work->ctx, state);
        symm_work_release(next);
        PyErr_Restore(then.type, then.value, then.traceback);
        return NULL;
    }
    if (core_left(work->ctx, state, status) < 0)
        return NULL;
    return core_work_new(work->ctx, next, work->held);
}

static PyObject *work_error(PyObject *self, void *unused)
{
    core_work *work = (core_work *)self;
    const char *text;

    (void)unused;
    if (core_context_check(work->ctx, "Work.error") < 0)
        return NULL;
    text = symm_work_error(work->handle);
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

/* Finds cycles of arrays that refer to a work of theirs; the arrays break them. */
static int work_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((core_work *)self)->held);
    return 0;
}

static void work_dealloc(PyObject *self)
{
    core_work *work = (core_work *)self;
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    if (work->fd >= 0)
        close(work->fd);
    if (work->handle && work->ctx->handle)
        symm_work_release(work->handle);
    Py_CLEAR(work->held);
    Py_CLEAR(work->ctx);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"done", work_done, METH_NOARGS,
     "done($self)\n--\n\nWhether the call is complete; raises its symm.Error if it has "
     "failed."},
    CORE_FAST(
        "wait", work_wait,
        "wait($self, stream=None)\n--\n\nOrders the stream after the call; without a "
        "stream (host)\n"
        "waits for it."),
    CORE_FAST(
        "synchronize", work_synchronize,
        "synchronize($self, timeout=0)\n--\n\nWaits for the call and raises if it has "
        "failed.\n"
        "symm.Timeout after `timeout` seconds: the call goes on."),
    CORE_FAST(
        "then", work_then,
        "then($self, function, stream=None)\n--\n\n"
        "Orders stream after the call and calls function(stream) at once, which may\n"
        "queue more there. A Work of both."),
    {"notify", core_work_notify, METH_O,
     "notify($self, function, /)\n--\n\n"
     "Calls function(error) once when the call has ended: None, or its symm.Error. "
     "Any\n"
     "number of functions. On a thread of libsymm, one function at a time, perhaps "
     "before\n"
     "notify returns; an exception goes to sys.unraisablehook. Context.finalize and\n"
     "Team.destroy call what is pending before they return. The Work and the call's "
     "arrays\n"
     "are kept until then. symm.Unsupported: the call was captured into a graph."},
    {"fileno", core_work_fileno, METH_NOARGS,
     "fileno($self)\n--\n\n"
     "An eventfd for select, poll and event loops: readable once the call has ended,\n"
     "right or failed. It belongs to the Work, which closes it when dropped: "
     "unregister\n"
     "it before. symm.SystemFailure: the process has too many descriptors."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getters[] = {
    {"error", work_error, NULL, "The failure's sentence; '' if there is none.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "The handle of one call, from work=True. `await work` in asyncio waits "
                "for its end "
                "and\nraises if it has failed."},
    {Py_tp_dealloc, work_dealloc},
    {Py_tp_traverse, work_traverse},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {Py_am_await, core_work_await},
    {0, NULL},
};

PyType_Spec core_work_spec = {
    "symm.Work", sizeof(core_work), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
