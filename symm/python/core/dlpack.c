/* SPDX-License-Identifier: MIT */
/*
 * dlpack.c - buffers out and arrays in by DLPack. An exported tensor holds a reference to its
 * Buffer and counts as an export, so that its memory stays mapped until the consumer's deleter
 * has run, from whatever thread.
 */
#include "python/core/dlpack.h"

#include <stdio.h>
#include <string.h>

/* ---- Out ----------------------------------------------------------------------------- */

struct exported {
    union {
        struct dl_managed managed;
        struct dl_versioned versioned;
    };
    core_buffer *buffer; /* strong */
    int64_t shape[CORE_DIMS], stride[CORE_DIMS];
};

static void exported_free(struct exported *e)
{
    const PyGILState_STATE gil = PyGILState_Ensure();
    core_buffer *buffer = e->buffer;

    PyMem_Free(e);
    core_buffer_exported(buffer, -1);
    Py_DECREF((PyObject *)buffer);
    PyGILState_Release(gil);
}

static void managed_delete(struct dl_managed *self)
{
    exported_free((struct exported *)self);
}

static void versioned_delete(struct dl_versioned *self)
{
    exported_free((struct exported *)self);
}

/* A capsule that nobody consumed; a consumer renames it to "used_...". */
static void capsule_delete(PyObject *capsule)
{
    struct exported *e = NULL;

    if (PyCapsule_IsValid(capsule, "dltensor"))
        e = PyCapsule_GetPointer(capsule, "dltensor");
    else if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
        e = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    if (e)
        exported_free(e);
}

static int fill(struct exported *e, struct dl_tensor *tensor)
{
    const core_buffer *buffer = e->buffer;
    const core_context *ctx = buffer->team->ctx;
    symm_status status;

    memcpy(e->shape, buffer->shape, sizeof(e->shape));
    memcpy(e->stride, buffer->stride, sizeof(e->stride));
    *tensor = (struct dl_tensor){
        .data = buffer->ptr,
        .device_type = ctx->is_host ? DL_CPU : DL_CUDA,
        .device_id = ctx->is_host ? 0 : ctx->device,
        .ndim = buffer->ndim,
        .lanes = 1,
        .shape = e->shape,
        .strides = e->stride,
    };
    status = symm_dtype_to_dlpack(buffer->dtype, &tensor->code, &tensor->bits);
    return status ? core_raise_last(status) : 0;
}

static PyObject *export_as(core_buffer *buffer, bool versioned)
{
    struct exported *e = PyMem_Calloc(1, sizeof(*e));
    PyObject *capsule = NULL;

    if (!e)
        return PyErr_NoMemory();
    e->buffer = buffer;
    if (versioned) {
        e->versioned.major = 1;
        e->versioned.minor = 1;
        e->versioned.deleter = versioned_delete;
    } else {
        e->managed.deleter = managed_delete;
    }
    if (fill(e, versioned ? &e->versioned.tensor : &e->managed.tensor) == 0)
        capsule = PyCapsule_New(e, versioned ? "dltensor_versioned" : "dltensor",
                                capsule_delete);
    if (!capsule) {
        PyMem_Free(e);
        return NULL;
    }
    core_ref(buffer);
    core_buffer_exported(buffer, 1);
    return capsule;
}

/* Whether a consumer takes DLPack 1: max_version is None or (major, minor). -1: raised. */
static int takes_versioned(PyObject *version)
{
    long major;
    PyObject *first;

    if (!version || version == Py_None)
        return 0;
    first = PySequence_GetItem(version, 0);
    if (!first)
        return -1;
    major = PyLong_AsLong(first);
    Py_DECREF(first);
    return major == -1 && PyErr_Occurred() ? -1 : major >= 1;
}

/* dl_device: None or (type, id) of this buffer's own device. -1: raised. */
static int check_device(const core_buffer *buffer, PyObject *device)
{
    const core_context *ctx = buffer->team->ctx;
    int type, id;

    if (!device || device == Py_None)
        return 0;
    if (!PyArg_ParseTuple(device, "ii", &type, &id))
        return -1;
    if (type == (ctx->is_host ? DL_CPU : DL_CUDA) &&
        (ctx->is_host || id == ctx->device))
        return 0;
    PyErr_Format(
        PyExc_BufferError,
        "Buffer.__dlpack__(): the memory is on device (%d, %d), not (%d, %d), and is "
        "not copied",
        ctx->is_host ? DL_CPU : DL_CUDA, ctx->is_host ? 0 : ctx->device, type, id);
    return -1;
}

PyObject *core_buffer_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t count,
                             PyObject *keywords)
{
    static struct core_params params = {
        "__dlpack__", 0, 0, {"stream", "max_version", "dl_device", "copy"}, {NULL}};
    core_buffer *buffer = (core_buffer *)self;
    PyObject *values[CORE_NAMES];
    int versioned;

    if (core_args(&params, args, count, keywords, values) < 0 ||
        core_buffer_check(buffer, "__dlpack__") < 0 ||
        check_device(buffer, values[2]) < 0)
        return NULL;
    if (values[3] && values[3] != Py_None && PyObject_IsTrue(values[3])) {
        PyErr_SetString(
            PyExc_BufferError,
            "Buffer.__dlpack__(): copy=True: copy the array that shares the "
            "memory instead");
        return NULL;
    }
    versioned = takes_versioned(values[1]);
    return versioned < 0 ? NULL : export_as(buffer, versioned);
}

PyObject *core_buffer_dlpack_device(PyObject *self, PyObject *unused)
{
    const core_context *ctx = ((core_buffer *)self)->team->ctx;

    (void)unused;
    return Py_BuildValue("(ii)", ctx->is_host ? DL_CPU : DL_CUDA,
                         ctx->is_host ? 0 : ctx->device);
}

/* ---- In ------------------------------------------------------------------------------ */

/* Calls object.__dlpack__ for no stream: libsymm's call is ordered by the stream it gets. */
static PyObject *ask(PyObject *object, bool is_cuda)
{
    PyObject *method = PyObject_GetAttrString(object, "__dlpack__"), *empty, *keywords,
             *capsule;

    if (!method)
        return NULL;
    empty = PyTuple_New(0);
    keywords = is_cuda
                   ? Py_BuildValue("{s:(ii),s:i}", "max_version", 1, 1, "stream", -1)
                   : Py_BuildValue("{s:(ii)}", "max_version", 1, 1);
    capsule = empty && keywords ? PyObject_Call(method, empty, keywords) : NULL;
    if (!capsule && empty && keywords && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear(); /* DLPack before 1.0 has no max_version */
        PyDict_Clear(keywords);
        capsule = PyObject_Call(method, empty, keywords);
    }
    Py_XDECREF(empty);
    Py_XDECREF(keywords);
    Py_DECREF(method);
    return capsule;
}

static int device_of(PyObject *object, long *type, long *id)
{
    PyObject *pair = PyObject_CallMethod(object, "__dlpack_device__", NULL), *first,
             *second;
    int result = -1;

    if (!pair)
        return -1;
    first = PySequence_GetItem(pair, 0);
    second = PySequence_GetItem(pair, 1);
    if (first && second) {
        *type = PyLong_AsLong(first); /* an enum is an integer */
        *id = PyLong_AsLong(second);
        result = PyErr_Occurred() ? -1 : 0;
    }
    Py_XDECREF(first);
    Py_XDECREF(second);
    Py_DECREF(pair);
    return result;
}

static bool is_row_major(const struct dl_tensor *t)
{
    int64_t want = 1;
    bool result = true;

    for (int i = t->ndim - 1; t->strides && i >= 0; i--) {
        if (t->shape[i] != 1 && t->strides[i] != want)
            result = false;
        want *= t->shape[i];
    }
    return result || want == 0; /* no element: any strides will do */
}

static int take_extent(const char *what, const char *name, const struct dl_tensor *t,
                       struct core_array *array)
{
    if (!is_row_major(t))
        return core_raise(SYMM_ERR_INVALID,
                          "%s(): %s is not contiguous: pass a copy of it", what, name);
    array->ptr = (char *)t->data + t->byte_offset;
    array->count = 1;
    for (int i = 0; i < t->ndim; i++)
        array->count *= t->shape[i];
    return 0;
}

static int take_type(const char *what, const char *name, const struct dl_tensor *t,
                     symm_dtype *dtype)
{
    if (t->code != DL_BOOL && /* Python's sum of bools is no sum of bytes */
        symm_dtype_from_dlpack(t->code, t->bits, t->lanes, dtype) == SYMM_OK)
        return 0;
    return core_raise(
        SYMM_ERR_UNSUPPORTED,
        "%s(): %s has DLPack's type (code %d, %d bits, %d lanes), which libsymm "
        "does not know",
        what, name, t->code, t->bits, t->lanes);
}

int core_dlpack_take(const char *what, const char *name, PyObject *object,
                     struct core_array *array)
{
    const struct dl_tensor *t;
    PyObject *capsule;
    long type, id;

    if (device_of(object, &type, &id) < 0)
        return -1;
    array->is_cuda = type == DL_CUDA || type == DL_MANAGED;
    array->device = array->is_cuda ? (int)id : -1;
    capsule = ask(object, array->is_cuda);
    if (!capsule)
        return -1;
    array->extra = capsule; /* not consumed: its destructor gives the tensor back */
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        const struct dl_versioned *v =
            PyCapsule_GetPointer(capsule, "dltensor_versioned");

        t = &v->tensor;
        array->read_only = v->flags & DL_READ_ONLY;
    } else if (PyCapsule_IsValid(capsule, "dltensor")) {
        const struct dl_managed *m = PyCapsule_GetPointer(capsule, "dltensor");

        t = &m->tensor;
    } else {
        PyErr_Format(PyExc_TypeError, "%s(): %s.__dlpack__() gave no DLPack capsule",
                     what, name);
        return -1;
    }
    if (take_extent(what, name, t, array) < 0)
        return -1;
    return take_type(what, name, t, &array->dtype);
}

/* ---- In, by functions in C -------------------------------------------------------------- */

/*
 * The table of the type itself: a base's functions need not be right for a class that derives from
 * it, such as a tensor that is spread over devices.
 */
static const struct dl_exchange *find_exchange(PyTypeObject *type)
{
    static const char attribute[] = "__dlpack_c_exchange_api__";
    const struct dl_exchange *table = NULL;
    PyObject *dictionary = PyObject_GetAttrString((PyObject *)type, "__dict__");
    PyObject *capsule =
        dictionary ? PyMapping_GetItemString(dictionary, attribute) : NULL;

    if (capsule && PyCapsule_IsValid(capsule, "dlpack_exchange_api"))
        table = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    while (table && table->major > 1)
        table = table->older;
    Py_XDECREF(capsule);
    Py_XDECREF(dictionary);
    PyErr_Clear(); /* no such attribute */
    return table && table->major == 1 && table->view ? table : NULL;
}

/* Remembers some types, for ever: they live as long as their libraries. */
static const struct dl_exchange *exchange_of(PyTypeObject *type)
{
    static struct {
        PyTypeObject *type;
        const struct dl_exchange *table;
    } known[8];
    static size_t count;

    for (size_t i = 0; i < count; i++)
        if (known[i].type == type)
            return known[i].table;
    if (count == sizeof(known) / sizeof(known[0]))
        return find_exchange(type);
    known[count].table = find_exchange(type);
    known[count].type = core_ref(type);
    return known[count++].table;
}

/* The raised exception's first line; torch's have a stack of C++ after it. */
static int refuse_view(const char *what, const char *name)
{
    PyObject *type, *value, *traceback, *text;
    const char *all;
    char line[200];

    PyErr_Fetch(&type, &value, &traceback);
    text = value ? PyObject_Str(value) : NULL;
    all = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    snprintf(line, sizeof(line), "%s", all ? all : "no reason given");
    line[strcspn(line, "\n")] = '\0';
    core_raise(SYMM_ERR_UNSUPPORTED, "%s(): %s has no memory to share: %s", what, name,
               line);
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return -1;
}

int core_dlpack_view(const char *what, const char *name, PyObject *object,
                     struct core_array *array)
{
    const struct dl_exchange *table = exchange_of(Py_TYPE(object));
    struct dl_tensor t;

    if (!table)
        return 0;
    if (table->view(object, &t) < 0)
        return refuse_view(what, name);
    if (t.code == DL_BOOL ||
        symm_dtype_from_dlpack(t.code, t.bits, t.lanes, &array->dtype) != SYMM_OK)
        return 0; /* the maker's name of the dtype is better in a sentence */
    if (t.device_type != DL_CPU && t.device_type != DL_CUDA_HOST &&
        t.device_type != DL_CUDA && t.device_type != DL_MANAGED)
        return core_raise(
            SYMM_ERR_UNSUPPORTED,
            "%s(): %s is on DLPack's device type %d, neither the CPU nor CUDA", what,
            name, t.device_type);
    array->is_cuda = t.device_type == DL_CUDA || t.device_type == DL_MANAGED;
    array->device = array->is_cuda ? t.device_id : -1;
    array->exchange = table;
    return take_extent(what, name, &t, array) < 0 ? -1 : 1;
}
