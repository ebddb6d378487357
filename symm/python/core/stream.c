/* SPDX-License-Identifier: MIT */
/*
 * stream.c - stream arguments, and Stream: an ordered queue of a context. A stream argument is
 * None, a handle, a Stream, or an object with __cuda_stream__ (torch, CuPy, cuda.core). None
 * means the current stream of the library that made the array, as its users expect.
 */
#include "python/core/core.h"
#include "python/core/dlpack.h"

/* ---- Arguments --------------------------------------------------------------------------- */

/* The current stream of `module`.`function`(device), an integer. */
static int current(const char *module, const char *function, int device, void **stream)
{
    static PyObject *cached; /* of torch: looked up once, it is asked in every call */
    PyObject *of = cached, *result;

    if (!of) {
        PyObject *imported = PyImport_ImportModule(module);

        of = imported ? PyObject_GetAttrString(imported, function) : NULL;
        Py_XDECREF(imported);
        if (!of)
            return -1;
        cached = of;
    }
    result = PyObject_CallFunction(of, "i", device);
    if (!result)
        return -1;
    *stream = PyLong_AsVoidPtr(result);
    Py_DECREF(result);
    return PyErr_Occurred() ? -1 : 0;
}

static int cupy_current(void **stream)
{
    PyObject *cuda = PyImport_ImportModule("cupy.cuda"), *of = NULL, *ptr = NULL;

    if (cuda)
        of = PyObject_CallMethod(cuda, "get_current_stream", NULL);
    if (of)
        ptr = PyObject_GetAttrString(of, "ptr");
    if (ptr)
        *stream = PyLong_AsVoidPtr(ptr);
    Py_XDECREF(ptr);
    Py_XDECREF(of);
    Py_XDECREF(cuda);
    return PyErr_Occurred() ? -1 : 0;
}

/* object.__cuda_stream__() -> (version, handle); older versions have it as an attribute. */
static int take_protocol(const char *what, PyObject *object, void **stream)
{
    PyObject *pair = PyObject_GetAttrString(object, "__cuda_stream__"), *called,
             *handle;

    if (!pair) {
        PyErr_Format(
            PyExc_TypeError,
            "%s(): stream must be None, a handle, a symm.Stream or an object with "
            "__cuda_stream__, not %R",
            what, (PyObject *)Py_TYPE(object));
        return -1;
    }
    if (PyCallable_Check(pair)) {
        called = PyObject_CallNoArgs(pair);
        Py_DECREF(pair);
        pair = called;
        if (!pair)
            return -1;
    }
    handle = PySequence_GetItem(pair, 1);
    Py_DECREF(pair);
    if (!handle)
        return -1;
    *stream = PyLong_AsVoidPtr(handle);
    Py_DECREF(handle);
    return PyErr_Occurred() ? -1 : 0;
}

int core_stream_get(const char *what, PyObject *object, const struct core_array *array,
                    void **stream)
{
    *stream = NULL;
    if (!object || object == Py_None) {
        if (!array || !array->is_cuda)
            return 0;
        if (array->exchange)
            return array->exchange->current_stream(DL_CUDA, array->device, stream);
        if (array->maker == CORE_TORCH)
            return current("torch._C", "_cuda_getCurrentRawStream", array->device,
                           stream);
        return array->maker == CORE_CUPY ? cupy_current(stream) : 0;
    }
    if (Py_TYPE(object) == core_stream_type) {
        const core_stream *own = (core_stream *)object;

        if (core_context_check(own->ctx, what) < 0)
            return -1;
        *stream = own->handle;
        return 0;
    }
    if (PyBool_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s(): stream must not be a bool", what);
        return -1;
    }
    if (PyLong_Check(object)) {
        *stream = PyLong_AsVoidPtr(object);
        if (!PyErr_Occurred())
            return 0;
        PyErr_Clear();
        return core_raise(SYMM_ERR_INVALID, "%s(): stream %S is no handle", what,
                          object);
    }
    return take_protocol(what, object, stream);
}

/* ---- Stream ------------------------------------------------------------------------------ */

PyObject *core_stream_new(core_context *ctx, void *handle)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(core_stream_type, Py_tp_alloc);
    core_stream *stream = (core_stream *)alloc(core_stream_type, 0);

    if (!stream) {
        symm_stream_destroy(ctx->handle, handle);
        return NULL;
    }
    stream->handle = handle;
    stream->ctx = core_ref(ctx);
    return (PyObject *)stream;
}

static PyObject *stream_synchronize(PyObject *self, PyObject *const *args,
                                    Py_ssize_t count, PyObject *keywords)
{
    static struct core_params params = {"synchronize", 1, 0, {"timeout"}, {NULL}};
    core_stream *stream = (core_stream *)self;
    PyObject *v[CORE_NAMES];
    double timeout = 0;

    if (core_args(&params, args, count, keywords, v) < 0 ||
        core_context_check(stream->ctx, "Stream.synchronize") < 0 ||
        core_seconds("synchronize", "timeout", v[0], &timeout) < 0)
        return NULL;
    if (core_wait(stream->ctx, &(struct core_wait){.object = self,
                                                   .stream = stream->handle,
                                                   .timeout = timeout}) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *stream_cuda_stream(PyObject *self, PyObject *unused)
{
    (void)unused;
    return Py_BuildValue("(iN)", 0, PyLong_FromVoidPtr(((core_stream *)self)->handle));
}

static PyObject *stream_handle(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromVoidPtr(((core_stream *)self)->handle);
}

static void stream_dealloc(PyObject *self)
{
    core_stream *stream = (core_stream *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject *kept_type, *value, *traceback;

    PyErr_Fetch(&kept_type, &value, &traceback);
    /* The end of a context destroys its streams. A context in which a thread still waits ends with the
     * process: to wait for its stream here could last for ever. */
    if (stream->handle && stream->ctx->handle && !stream->ctx->ended) {
        PyThreadState *state = core_enter(stream->ctx);

        symm_stream_destroy(stream->ctx->handle, stream->handle);
        core_leave(stream->ctx, state);
    }
    PyErr_Restore(kept_type, value, traceback);
    Py_CLEAR(stream->ctx);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    CORE_FAST(
        "synchronize", stream_synchronize,
        "synchronize($self, timeout=0)\n--\n\nWaits until all that was queued before "
        "has run. timeout:\n"
        "seconds; 0: ten times the context's. Raises symm.Timeout."),
    {"__cuda_stream__", stream_cuda_stream, METH_NOARGS, "(0, handle)"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getters[] = {
    {"handle", stream_handle, NULL, "The address that C functions take.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "An ordered queue of calls. Context.stream."},
    {Py_tp_dealloc, stream_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {0, NULL},
};

PyType_Spec core_stream_spec = {"symm.Stream", sizeof(core_stream), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                slots};
