/* SPDX-License-Identifier: MIT */
/*
 * buffer.c - Buffer: symmetric memory as an array, and views of peers' copies of it. It is an
 * array by the buffer protocol and __array_interface__ (host), __cuda_array_interface__ (CUDA)
 * and DLPack (both). Arrays of the buffer protocol and of DLPack are counted as exports;
 * consumers of the two interfaces hold a reference to the Buffer instead, which release() cannot
 * see.
 */
#include <string.h>

#include "python/core/core.h"
#include "python/core/dlpack.h"
#include <structmember.h>

/* By symm_dtype. format: of the buffer protocol; NULL: it has none. */
static const struct {
    const char *format, *typestr;
} types[] = {
    [SYMM_FLOAT64] = {"d", "<f8"},      [SYMM_FLOAT32] = {"f", "<f4"},
    [SYMM_FLOAT16] = {"e", "<f2"},      [SYMM_BFLOAT16] = {NULL, "<V2"},
    [SYMM_FLOAT8_E4M3] = {NULL, "|V1"}, [SYMM_FLOAT8_E5M2] = {NULL, "|V1"},
    [SYMM_INT64] = {"q", "<i8"},        [SYMM_INT32] = {"i", "<i4"},
    [SYMM_INT8] = {"b", "|i1"},         [SYMM_UINT64] = {"Q", "<u8"},
    [SYMM_UINT32] = {"I", "<u4"},       [SYMM_UINT8] = {"B", "|u1"},
    [SYMM_INT16] = {"h", "<i2"},        [SYMM_UINT16] = {"H", "<u2"},
};

/* ---- Life -------------------------------------------------------------------------------- */

static core_buffer *buffer_alloc(core_team *team, symm_dtype dtype, int ndim,
                                 const int64_t *shape, const int64_t *stride)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(core_buffer_type, Py_tp_alloc);
    core_buffer *buffer = (core_buffer *)alloc(core_buffer_type, 0);
    int64_t want = 1;

    if (!buffer)
        return NULL;
    buffer->team = core_ref(team);
    buffer->rank = team->rank;
    buffer->dtype = dtype;
    buffer->ndim = ndim;
    buffer->count = 1;
    buffer->dense = true;
    for (int i = ndim - 1; i >= 0; i--) {
        buffer->shape[i] = shape[i];
        buffer->stride[i] = stride[i];
        buffer->pitch[i] = stride[i] * (int64_t)symm_dtype_size(dtype);
        buffer->dense &= shape[i] == 1 || stride[i] == want;
        want *= shape[i];
        buffer->count *= shape[i];
    }
    buffer->dense |= buffer->count == 0;
    return buffer;
}

PyObject *core_buffer_new(core_team *team, symm_buffer *handle, symm_dtype dtype,
                          int ndim, const int64_t *shape, const int64_t *stride,
                          uint64_t alloc_id)
{
    core_buffer *buffer = buffer_alloc(team, dtype, ndim, shape, stride);

    if (!buffer) {
        symm_buffer_release(handle);
        return NULL;
    }
    buffer->handle = handle;
    buffer->ptr = symm_buffer_ptr(handle);
    buffer->alloc_id = alloc_id;
    return (PyObject *)buffer;
}

void core_buffer_hold(core_buffer *buffer, PyObject *object)
{
    Py_XDECREF(buffer->held);
    buffer->held = Py_NewRef(object);
}

int core_buffer_check(const core_buffer *buffer, const char *what)
{
    if (core_team_check(buffer->team, what) < 0)
        return -1;
    if ((buffer->owner ? buffer->owner : buffer)->handle)
        return 0;
    return core_raise(SYMM_ERR_INVALID, "%s(): the buffer has been released", what);
}

void core_buffer_exported(core_buffer *buffer, int change)
{
    core_buffer *owner = buffer->owner ? buffer->owner : buffer;
    core_team *team = owner->team;
    core_context *ctx = team->ctx;

    owner->exports += change;
    team->exports += change;
    ctx->exports += change;
    if (change < 0) {
        core_team_settle(team);
        core_context_settle(ctx);
    }
}

/* Ends the hold; nothing if team or context have taken it with them. */
static void let_go(core_buffer *buffer)
{
    symm_buffer *handle = buffer->handle;
    core_team *team = buffer->team;
    PyThreadState *state;

    buffer->handle = NULL;
    if (!handle || !team->handle || !team->ctx->handle)
        return;
    state = core_team_enter(team);
    symm_buffer_release(handle);
    core_team_leave(team, state);
}

static PyObject *buffer_release(PyObject *self, PyObject *unused)
{
    core_buffer *buffer = (core_buffer *)self;

    (void)unused;
    if (buffer->owner) {
        core_raise(SYMM_ERR_INVALID,
                   "Buffer.release(): a view of rank %d's copy: release the "
                   "buffer that it was made from",
                   buffer->rank);
        return NULL;
    }
    if (buffer->exports > 0) {
        core_raise(SYMM_ERR_IN_USE,
                   "Buffer.release(): %zd arrays use the memory: drop them first",
                   buffer->exports);
        return NULL;
    }
    let_go(buffer);
    Py_CLEAR(buffer->held);
    Py_RETURN_NONE;
}

/* As of a Work: what a registered buffer lies in may refer to it. */
static int buffer_traverse(PyObject *self, visitproc visit, void *arg)
{
    core_buffer *buffer = (core_buffer *)self;

    Py_VISIT(Py_TYPE(self));
    Py_VISIT(buffer->held);
    Py_VISIT((PyObject *)buffer->owner);
    return 0;
}

static void buffer_dealloc(PyObject *self)
{
    core_buffer *buffer = (core_buffer *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject *kept_type, *value, *traceback;

    PyObject_GC_UnTrack(self);
    if (buffer->weak)
        PyObject_ClearWeakRefs(self);
    PyErr_Fetch(&kept_type, &value, &traceback);
    let_go(buffer);
    PyErr_Restore(kept_type, value, traceback);
    Py_CLEAR(buffer->held);
    Py_CLEAR(buffer->owner);
    Py_CLEAR(buffer->team);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* ---- Peers ------------------------------------------------------------------------------- */

static PyObject *buffer_peer(PyObject *self, PyObject *number)
{
    core_buffer *buffer = (core_buffer *)self, *view;
    core_buffer *owner = buffer->owner ? buffer->owner : buffer;
    int rank = -1;
    void *ptr;

    if (core_buffer_check(buffer, "Buffer.peer") < 0 ||
        core_int("Buffer.peer", "rank", number, &rank) < 0)
        return NULL;
    if (rank < 0 || rank >= owner->team->size) {
        core_raise(SYMM_ERR_INVALID, "Buffer.peer(): rank %d: the team has 0 to %d",
                   rank, owner->team->size - 1);
        return NULL;
    }
    if (rank == owner->team->rank)
        return core_ref(owner);
    ptr = symm_buffer_peer_ptr(owner->handle, rank);
    if (!ptr)
        Py_RETURN_NONE;
    view = buffer_alloc(owner->team, owner->dtype, owner->ndim, owner->shape,
                        owner->stride);
    if (!view)
        return NULL;
    view->owner = core_ref(owner);
    view->rank = rank;
    view->ptr = ptr;
    view->alloc_id = owner->alloc_id;
    return (PyObject *)view;
}

/* ---- As an array ------------------------------------------------------------------------- */

static int buffer_get(PyObject *self, Py_buffer *view, int flags)
{
    core_buffer *buffer = (core_buffer *)self;
    const char *format = types[buffer->dtype].format;
    const bool wants_strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES;

    view->obj = NULL;
    if (core_buffer_check(buffer, "Buffer") < 0)
        return -1;
    if (!buffer->team->ctx->is_host || !format) {
        PyErr_Format(PyExc_BufferError,
                     "symm.Buffer: %s has no buffer format: use as_numpy(), as_torch() "
                     "or DLPack",
                     buffer->team->ctx->is_host ? symm_dtype_name(buffer->dtype)
                                                : "device memory");
        return -1;
    }
    if (!buffer->dense &&
        (!wants_strides || (flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS ||
         (flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS)) {
        PyErr_SetString(PyExc_BufferError, "symm.Buffer: the memory is not contiguous");
        return -1;
    }
    if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && buffer->ndim > 1) {
        PyErr_SetString(PyExc_BufferError,
                        "symm.Buffer: the memory is not in Fortran's order");
        return -1;
    }
    *view = (Py_buffer){
        .buf = buffer->ptr,
        .obj = Py_NewRef(self),
        .len = (Py_ssize_t)(buffer->count * (int64_t)symm_dtype_size(buffer->dtype)),
        .itemsize = (Py_ssize_t)symm_dtype_size(buffer->dtype),
        .ndim = flags & PyBUF_ND ? buffer->ndim : 1,
        .format = flags & PyBUF_FORMAT ? (char *)(uintptr_t)format : NULL,
        .shape = flags & PyBUF_ND ? (Py_ssize_t *)buffer->shape : NULL,
        .strides = wants_strides ? (Py_ssize_t *)buffer->pitch : NULL,
    };
    core_buffer_exported(buffer, 1);
    return 0;
}

static void buffer_put_back(PyObject *self, Py_buffer *view)
{
    (void)view;
    core_buffer_exported((core_buffer *)self, -1);
}

static PyObject *tuple_of(const int64_t *values, int n)
{
    PyObject *tuple = PyTuple_New(n);

    for (int i = 0; tuple && i < n; i++) {
        PyObject *value = PyLong_FromLongLong(values[i]);

        if (!value || PyTuple_SetItem(tuple, i, value) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *interface_of(core_buffer *buffer, bool cuda)
{
    PyObject *shape, *strides, *result = NULL;

    if (buffer->team->ctx->is_host == cuda) {
        PyErr_Format(PyExc_AttributeError, "symm.Buffer: the memory is %s memory",
                     cuda ? "host" : "device");
        return NULL;
    }
    if (core_buffer_check(buffer, "Buffer") < 0)
        return NULL;
    shape = tuple_of(buffer->shape, buffer->ndim);
    strides = tuple_of(buffer->pitch, buffer->ndim);
    if (shape && strides)
        result = Py_BuildValue("{s:O,s:O,s:s,s:(KO),s:i}", "shape", shape, "strides",
                               strides, "typestr", types[buffer->dtype].typestr, "data",
                               (unsigned long long)(uintptr_t)buffer->ptr, Py_False,
                               "version", 3);
    Py_XDECREF(shape);
    Py_XDECREF(strides);
    return result;
}

static PyObject *buffer_array_interface(PyObject *self, void *unused)
{
    (void)unused;
    return interface_of((core_buffer *)self, false);
}

static PyObject *buffer_cuda_interface(PyObject *self, void *unused)
{
    (void)unused;
    return interface_of((core_buffer *)self, true);
}

/* symm._arrays.name(self) */
static PyObject *by_python(PyObject *self, const char *name)
{
    PyObject *module = PyImport_ImportModule("symm._arrays"), *result;

    if (!module)
        return NULL;
    result = PyObject_CallMethod(module, name, "O", self);
    Py_DECREF(module);
    return result;
}

static PyObject *buffer_as_torch(PyObject *self, PyObject *unused)
{
    (void)unused;
    return by_python(self, "as_torch");
}

static PyObject *buffer_as_numpy(PyObject *self, PyObject *unused)
{
    (void)unused;
    return by_python(self, "as_numpy");
}

/* ---- Attributes -------------------------------------------------------------------------- */

static PyObject *buffer_shape(PyObject *self, void *unused)
{
    const core_buffer *buffer = (core_buffer *)self;

    (void)unused;
    return tuple_of(buffer->shape, buffer->ndim);
}

static PyObject *buffer_strides(PyObject *self, void *unused)
{
    const core_buffer *buffer = (core_buffer *)self;

    (void)unused;
    return tuple_of(buffer->stride, buffer->ndim);
}

static PyObject *buffer_dtype(PyObject *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(symm_dtype_name(((core_buffer *)self)->dtype));
}

static PyObject *buffer_ptr(PyObject *self, void *unused)
{
    (void)unused;
    if (core_buffer_check((core_buffer *)self, "Buffer.ptr") < 0)
        return NULL;
    return PyLong_FromVoidPtr(((core_buffer *)self)->ptr);
}

static PyObject *buffer_multicast_ptr(PyObject *self, void *unused)
{
    core_buffer *buffer = (core_buffer *)self;

    (void)unused;
    if (core_buffer_check(buffer, "Buffer.multicast_ptr") < 0)
        return NULL;
    return PyLong_FromVoidPtr(buffer->handle ? symm_buffer_multicast_ptr(buffer->handle)
                                             : NULL);
}

static PyObject *buffer_offset(PyObject *self, void *unused)
{
    core_buffer *buffer = (core_buffer *)self;

    (void)unused;
    if (core_buffer_check(buffer, "Buffer.offset") < 0)
        return NULL;
    return PyLong_FromSize_t(
        symm_buffer_offset((buffer->owner ? buffer->owner : buffer)->handle));
}

static PyObject *buffer_nbytes(PyObject *self, void *unused)
{
    const core_buffer *buffer = (core_buffer *)self;

    (void)unused;
    return PyLong_FromLongLong(buffer->count * (int64_t)symm_dtype_size(buffer->dtype));
}

static PyObject *buffer_alloc_id(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(((core_buffer *)self)->alloc_id);
}

static PyObject *buffer_repr(PyObject *self)
{
    core_buffer *buffer = (core_buffer *)self;
    PyObject *shape = tuple_of(buffer->shape, buffer->ndim), *text;

    if (!shape)
        return NULL;
    text = PyUnicode_FromFormat(
        "<symm.Buffer %S %s, rank %d of %d%s>", shape, symm_dtype_name(buffer->dtype),
        buffer->rank, buffer->team->size,
        (buffer->owner ? buffer->owner : buffer)->handle ? "" : ", released");
    Py_DECREF(shape);
    return text;
}

static PyMethodDef methods[] = {
    {"release", buffer_release, METH_NOARGS,
     "release($self)\n--\n\nEnds the hold: the memory of a site stays its own, other "
     "memory "
     "is\n"
     "freed. Also done when the Buffer is dropped. symm.InUse while arrays use it."},
    {"peer", buffer_peer, METH_O,
     "peer($self, rank, /)\n--\n\nThe rank's copy as a Buffer; None where it is not "
     "mapped. "
     "After\n"
     "rendezvous(). Raises symm.Invalid for a rank that the team has not."},
    {"as_torch", buffer_as_torch, METH_NOARGS,
     "as_torch($self)\n--\n\nA torch.Tensor over the same memory, which keeps it "
     "alive."},
    {"as_numpy", buffer_as_numpy, METH_NOARGS,
     "as_numpy($self)\n--\n\nA numpy.ndarray over the same memory (host); bfloat16 and "
     "float8 need\n"
     "the package ml_dtypes."},
    CORE_FAST("__dlpack__", core_buffer_dlpack,
              "__dlpack__($self, *, stream=None, max_version=None, dl_device=None, "
              "copy=None)\n--\n\n"
              "The Buffer by DLPack; nothing is synchronized."),
    {"__dlpack_device__", core_buffer_dlpack_device, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getters[] = {
    {"shape", buffer_shape, NULL, "The lengths of the dimensions, a tuple.", NULL},
    {"strides", buffer_strides, NULL,
     "Elements from one index to the next of each dimension, a tuple.", NULL},
    {"dtype", buffer_dtype, NULL, "The name of the type: 'float32'.", NULL},
    {"ptr", buffer_ptr, NULL, "The address of this copy in this process.", NULL},
    {"multicast_ptr", buffer_multicast_ptr, NULL,
     "The address that reaches all ranks' copies at once (CUDA); 0: "
     "there is none.",
     NULL},
    {"offset", buffer_offset, NULL,
     "Bytes from the heap's beginning, the same on all ranks.", NULL},
    {"nbytes", buffer_nbytes, NULL, "Bytes of the elements.", NULL},
    {"alloc_id", buffer_alloc_id, NULL, "The number of the call site; 0: none.", NULL},
    {"__array_interface__", buffer_array_interface, NULL, "numpy's, version 3.", NULL},
    {"__cuda_array_interface__", buffer_cuda_interface, NULL, "Version 3.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef members[] = {
    {"ndim", T_INT, offsetof(core_buffer, ndim), READONLY, "The number of dimensions."},
    {"size", T_LONGLONG, offsetof(core_buffer, count), READONLY,
     "The number of elements."},
    {"rank", T_INT, offsetof(core_buffer, rank), READONLY, "Whose copy this is."},
    {"team", T_OBJECT_EX, offsetof(core_buffer, team), READONLY, "The Team."},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(core_buffer, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc,
     "Symmetric memory as an array. Team.empty, Team.register, Buffer.peer."},
    {Py_tp_dealloc, buffer_dealloc},
    {Py_tp_traverse, buffer_traverse},
    {Py_tp_repr, buffer_repr},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {Py_tp_members, members},
    {Py_bf_getbuffer, buffer_get},
    {Py_bf_releasebuffer, buffer_put_back},
    {0, NULL},
};

PyType_Spec core_buffer_spec = {
    "symm.Buffer", sizeof(core_buffer), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
