/* SPDX-License-Identifier: MIT */
/*
 * array.c - arrays of any maker as a pointer, a count and a dtype. Tried in this order: a Buffer
 * of this module; DLPack's functions in C (torch from 2.11 on, tvm-ffi); other tensors of torch
 * by their methods (0.3 us; DLPack's capsule takes 2 us); the buffer protocol (numpy, bytearray,
 * array.array); __cuda_array_interface__ (CuPy, Numba); __array_interface__ (numpy's arrays of
 * bfloat16, which have no buffer format); DLPack's capsule (JAX). Nothing is copied: an array
 * that is not contiguous raises symm.Invalid.
 */
#include <stdint.h>
#include <string.h>

#include "python/core/core.h"
#include "python/core/dlpack.h"

/* Interned names, and torch's types, which are looked up once the program has imported torch. */
static struct {
    PyObject *data_ptr, *numel, *dtype, *is_contiguous, *is_cuda, *is_neg, *device,
        *index, *cai, *interface, *dlpack, *cupy;
} names;
static PyTypeObject *torch_tensor;
static PyObject *torch_dtypes; /* torch.dtype: our value as an int */

int core_array_add(PyObject *module)
{
    const struct {
        PyObject **name;
        const char *text;
    } all[] = {{&names.data_ptr, "data_ptr"},
               {&names.numel, "numel"},
               {&names.dtype, "dtype"},
               {&names.is_contiguous, "is_contiguous"},
               {&names.is_cuda, "is_cuda"},
               {&names.is_neg, "is_neg"},
               {&names.device, "device"},
               {&names.index, "index"},
               {&names.cai, "__cuda_array_interface__"},
               {&names.interface, "__array_interface__"},
               {&names.dlpack, "__dlpack__"},
               {&names.cupy, "cupy"}};

    (void)module;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        *all[i].name = PyUnicode_InternFromString(all[i].text);
        if (!*all[i].name)
            return -1;
    }
    return 0;
}

static int refuse_strides(const char *what, const char *name)
{
    return core_raise(SYMM_ERR_INVALID, "%s(): %s is not contiguous: pass a copy of it",
                      what, name);
}

/* ---- Our own ------------------------------------------------------------------------- */

static int take_buffer(const char *what, const char *name, core_buffer *buffer,
                       struct core_array *array)
{
    if (core_buffer_check(buffer, what) < 0)
        return -1;
    if (!buffer->dense)
        return refuse_strides(what, name);
    array->ptr = buffer->ptr;
    array->count = buffer->count;
    array->dtype = buffer->dtype;
    array->is_cuda = !buffer->team->ctx->is_host;
    array->device = buffer->team->ctx->device;
    return 0;
}

/* ---- torch --------------------------------------------------------------------------- */

static int learn_torch(PyObject *torch)
{
    static const char *const known[][2] = {{"float64", "float64"},
                                           {"float32", "float32"},
                                           {"float16", "float16"},
                                           {"bfloat16", "bfloat16"},
                                           {"float8_e4m3fn", "float8_e4m3"},
                                           {"float8_e5m2", "float8_e5m2"},
                                           {"int64", "int64"},
                                           {"int32", "int32"},
                                           {"int8", "int8"},
                                           {"uint64", "uint64"},
                                           {"uint32", "uint32"},
                                           {"uint8", "uint8"},
                                           {"int16", "int16"},
                                           {"uint16", "uint16"}};
    PyObject *tensor = PyObject_GetAttrString(torch, "Tensor");

    if (!tensor || !PyType_Check(tensor)) { /* torch is being imported just now */
        PyErr_Clear();
        Py_XDECREF(tensor);
        return 0;
    }
    torch_dtypes = PyDict_New();
    for (size_t i = 0; torch_dtypes && i < sizeof(known) / sizeof(known[0]); i++) {
        PyObject *key = PyObject_GetAttrString(torch, known[i][0]), *value;
        symm_dtype dtype;

        if (!key) { /* an old torch */
            PyErr_Clear();
            continue;
        }
        if (symm_dtype_parse(known[i][1], &dtype) != SYMM_OK)
            continue;
        value = PyLong_FromLong(dtype);
        if (!value || PyDict_SetItem(torch_dtypes, key, value) < 0)
            return -1;
        Py_DECREF(key);
        Py_DECREF(value);
    }
    torch_tensor = (PyTypeObject *)tensor;
    return torch_dtypes ? 0 : -1;
}

/* 1: `object` is a tensor of torch. -1: raised. */
static int is_torch(PyObject *object)
{
    if (!torch_tensor) {
        PyObject *modules = PySys_GetObject("modules"); /* borrowed */
        PyObject *torch = modules ? PyDict_GetItemString(modules, "torch") : NULL;

        if (!torch)
            return 0;
        if (learn_torch(torch) < 0)
            return -1;
        if (!torch_tensor)
            return 0;
    }
    return PyType_IsSubtype(Py_TYPE(object), torch_tensor);
}

/* object.name() as an integer; -1: raised. */
static int call_integer(PyObject *object, PyObject *name, int64_t *value)
{
    PyObject *result = PyObject_CallMethodObjArgs(object, name, NULL);

    if (!result)
        return -1;
    *value = PyLong_AsLongLong(result);
    Py_DECREF(result);
    return *value == -1 && PyErr_Occurred() ? -1 : 0;
}

/* object.name, or object.name() if `call`, as a truth value; -1: raised. */
static int truth(PyObject *object, PyObject *name, bool call)
{
    PyObject *result = call ? PyObject_CallMethodObjArgs(object, name, NULL)
                            : PyObject_GetAttr(object, name);
    int value;

    if (!result)
        return -1;
    value = PyObject_IsTrue(result);
    Py_DECREF(result);
    return value;
}

static int torch_device(PyObject *object, int *device)
{
    PyObject *of = PyObject_GetAttr(object, names.device), *index;

    if (!of)
        return -1;
    index = PyObject_GetAttr(of, names.index);
    Py_DECREF(of);
    if (!index)
        return -1;
    *device = (int)PyLong_AsLong(index);
    Py_DECREF(index);
    return PyErr_Occurred() ? -1 : 0;
}

/* 1: taken. 0: the object is no tensor of torch. -1: raised. */
static int try_torch(const char *what, const char *name, PyObject *object,
                     struct core_array *array)
{
    const int torch = is_torch(object);
    PyObject *dtype, *ours;
    int64_t ptr;
    int is_cuda, is_contiguous;

    if (torch <= 0)
        return torch;
    dtype = PyObject_GetAttr(object, names.dtype);
    if (!dtype)
        return -1;
    ours = PyDict_GetItemWithError(torch_dtypes, dtype);
    if (!ours) {
        if (!PyErr_Occurred())
            core_raise(SYMM_ERR_UNSUPPORTED,
                       "%s(): %s has dtype %S, which libsymm does not know", what, name,
                       dtype);
        Py_DECREF(dtype);
        return -1;
    }
    Py_DECREF(dtype);
    array->dtype = (symm_dtype)PyLong_AsLong(ours);
    is_contiguous = truth(object, names.is_contiguous, true);
    if (is_contiguous == 0)
        return refuse_strides(what, name);
    is_cuda = is_contiguous < 0 ? -1 : truth(object, names.is_cuda, false);
    if (is_cuda < 0 || call_integer(object, names.data_ptr, &ptr) < 0 ||
        call_integer(object, names.numel, &array->count) < 0)
        return -1;
    array->ptr = (void *)(intptr_t)ptr;
    array->is_cuda = is_cuda;
    array->maker = CORE_TORCH;
    return is_cuda && torch_device(object, &array->device) < 0 ? -1 : 1;
}

/*
 * torch negates x.conj().imag when it is read: its memory has other values. Only a view of one
 * element is contiguous among such. 1: `object` is none.
 */
static int refuse_negative(const char *what, const char *name, PyObject *object)
{
    const int torch = is_torch(object);
    const int negative = torch > 0 ? truth(object, names.is_neg, true) : torch;

    if (negative > 0)
        return core_raise(
            SYMM_ERR_INVALID,
            "%s(): %s is a negated view of its memory: pass %s.resolve_neg()", what,
            name, name);
    return negative < 0 ? -1 : 1;
}

/* ---- Array interfaces ------------------------------------------------------------------ */

/* "<f4" and object.dtype.name, which also knows bfloat16. */
static int take_typestr(const char *what, const char *name, PyObject *object,
                        PyObject *typestr, struct core_array *array)
{
    static const struct {
        const char *typestr;
        symm_dtype dtype;
    } known[] = {{"<f8", SYMM_FLOAT64}, {"<f4", SYMM_FLOAT32}, {"<f2", SYMM_FLOAT16},
                 {"<i8", SYMM_INT64},   {"<i4", SYMM_INT32},   {"|i1", SYMM_INT8},
                 {"<u8", SYMM_UINT64},  {"<u4", SYMM_UINT32},  {"|u1", SYMM_UINT8},
                 {"<i2", SYMM_INT16},   {"<u2", SYMM_UINT16}};
    PyObject *dtype;
    int result;

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (PyUnicode_CompareWithASCIIString(typestr, known[i].typestr) == 0) {
            array->dtype = known[i].dtype;
            return 0;
        }
    dtype = PyObject_GetAttr(object, names.dtype);
    PyErr_Clear();
    if (!dtype || PyUnicode_ReadChar(typestr, 0) == '>') {
        Py_XDECREF(dtype);
        return core_raise(
            SYMM_ERR_UNSUPPORTED,
            "%s(): %s has elements of type '%U', which libsymm does not know", what,
            name, typestr);
    }
    result = core_dtype(what, dtype, &array->dtype);
    Py_DECREF(dtype);
    return result;
}

/* Whether strides (None, or a tuple of bytes) are those of a row-major array. */
static int interface_contiguous(PyObject *shape, PyObject *strides, size_t element)
{
    int64_t want = (int64_t)element;

    if (!strides || strides == Py_None)
        return 1;
    for (Py_ssize_t i = PyTuple_Size(shape) - 1; i >= 0; i--) {
        const int64_t length = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
        PyObject *stride = PyTuple_GetItem(strides, i);

        if (!stride)
            return -1;
        if (length != 1 && PyLong_AsLongLong(stride) != want)
            return 0;
        want *= length;
    }
    return PyErr_Occurred() ? -1 : 1;
}

/* `object`.`interface` is a dictionary of NumPy's or CUDA's array interface. */
static int take_interface(const char *what, const char *name, PyObject *object,
                          PyObject *interface, struct core_array *array)
{
    PyObject *shape = PyDict_GetItemString(interface, "shape"),
             *data = PyDict_GetItemString(interface, "data"),
             *typestr = PyDict_GetItemString(interface, "typestr");
    unsigned long long ptr;
    int read_only, contiguous;

    if (!shape || !PyTuple_Check(shape) || !data || !PyTuple_Check(data) || !typestr ||
        !PyUnicode_Check(typestr)) {
        PyErr_Format(PyExc_TypeError,
                     "%s(): %s has an array interface without shape, data or "
                     "typestr",
                     what, name);
        return -1;
    }
    if (!PyArg_ParseTuple(data, "Kp", &ptr, &read_only) ||
        take_typestr(what, name, object, typestr, array) < 0)
        return -1;
    contiguous = interface_contiguous(shape, PyDict_GetItemString(interface, "strides"),
                                      symm_dtype_size(array->dtype));
    if (contiguous <= 0)
        return contiguous < 0 ? -1 : refuse_strides(what, name);
    array->count = 1;
    for (Py_ssize_t i = 0; i < PyTuple_Size(shape); i++)
        array->count *= PyLong_AsLongLong(PyTuple_GetItem(shape, i));
    array->ptr = (void *)(uintptr_t)ptr;
    array->read_only = read_only;
    return PyErr_Occurred() ? -1 : 0;
}

static bool is_cupy(PyObject *object)
{
    PyObject *module =
        PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__module__");
    bool result = false;

    if (module && PyUnicode_Check(module)) {
        const char *text = PyUnicode_AsUTF8AndSize(module, NULL);

        result = text && strncmp(text, "cupy", 4) == 0;
    }
    Py_XDECREF(module);
    PyErr_Clear();
    return result;
}

/* 1: taken. 0: the object has no such attribute. -1: raised. */
static int try_interface(const char *what, const char *name, PyObject *object,
                         PyObject *attribute, struct core_array *array)
{
    PyObject *interface = PyObject_GetAttr(object, attribute);
    int result;

    if (!interface) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError))
            return -1;
        PyErr_Clear();
        return 0;
    }
    if (!PyDict_Check(interface)) {
        Py_DECREF(interface);
        return 0;
    }
    if (attribute == names.cai) {
        array->is_cuda = true;
        array->maker = is_cupy(object) ? CORE_CUPY : CORE_OTHER;
    }
    result = take_interface(what, name, object, interface, array);
    Py_DECREF(interface);
    return result < 0 ? -1 : 1;
}

/* ---- Buffer protocol --------------------------------------------------------------------- */

static int take_format(const char *what, const char *name, const Py_buffer *view,
                       symm_dtype *dtype)
{
    const char *format = view->format ? view->format : "B";
    const char *type = format + (strchr("@=<", format[0]) && format[0] != '\0');
    static const struct {
        const char *types;
        int bytes;
        symm_dtype dtype;
    } known[] = {{"d", 8, SYMM_FLOAT64}, {"f", 4, SYMM_FLOAT32}, {"e", 2, SYMM_FLOAT16},
                 {"lq", 8, SYMM_INT64},  {"il", 4, SYMM_INT32},  {"b", 1, SYMM_INT8},
                 {"LQ", 8, SYMM_UINT64}, {"IL", 4, SYMM_UINT32}, {"Bc", 1, SYMM_UINT8},
                 {"h", 2, SYMM_INT16},   {"H", 2, SYMM_UINT16}};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (type[0] && !type[1] && strchr(known[i].types, type[0]) &&
            view->itemsize == known[i].bytes) {
            *dtype = known[i].dtype;
            return 0;
        }
    return core_raise(
        SYMM_ERR_UNSUPPORTED,
        "%s(): %s has elements of format '%s', which libsymm does not know", what, name,
        format);
}

/* 1: taken. 0: the object gives no such view. -1: raised. */
static int try_view(const char *what, const char *name, PyObject *object,
                    struct core_array *array)
{
    if (!PyObject_CheckBuffer(object))
        return 0;
    if (PyObject_GetBuffer(object, &array->view, PyBUF_FULL_RO) < 0) {
        array->view.obj = NULL;
        PyErr_Clear(); /* numpy: no format for this dtype */
        return 0;
    }
    if (!PyBuffer_IsContiguous(&array->view, 'C'))
        return refuse_strides(what, name);
    array->ptr = array->view.buf;
    array->count = array->view.itemsize ? array->view.len / array->view.itemsize : 0;
    array->read_only = array->view.readonly;
    return take_format(what, name, &array->view, &array->dtype) < 0 ? -1 : 1;
}

/* ---- Any ------------------------------------------------------------------------------- */

static int take_foreign(const char *what, const char *name, PyObject *object,
                        struct core_array *array)
{
    int taken = try_view(what, name, object, array);

    if (taken == 0)
        taken = try_interface(what, name, object, names.cai, array);
    if (taken == 0)
        taken = try_interface(what, name, object, names.interface, array);
    if (taken != 0)
        return taken;
    if (PyObject_HasAttr(object, names.dlpack))
        return core_dlpack_take(what, name, object, array) < 0 ? -1 : 1;
    PyErr_Format(
        PyExc_TypeError,
        "%s(): %s must be an array (symm.Buffer, torch, numpy, CuPy, DLPack), not %R",
        what, name, (PyObject *)Py_TYPE(object));
    return -1;
}

int core_array_get(const char *what, const char *name, PyObject *object,
                   struct core_array *array)
{
    int taken;

    array->device = -1;
    array->read_only = false;
    array->is_cuda = false;
    array->maker = CORE_OTHER;
    array->view.obj = NULL;
    array->extra = NULL;
    array->exchange = NULL;
    if (Py_TYPE(object) == core_buffer_type)
        return take_buffer(what, name, (core_buffer *)object, array);
    taken = core_dlpack_view(what, name, object, array);
    if (taken == 0)
        taken = try_torch(what, name, object, array);
    if (taken > 0 && array->count == 1)
        taken = refuse_negative(what, name, object);
    if (taken == 0)
        taken = take_foreign(what, name, object, array);
    if (taken < 0)
        core_array_drop(array);
    return taken < 0 ? -1 : 0;
}

void core_array_drop(struct core_array *array)
{
    if (array->view.obj)
        PyBuffer_Release(&array->view);
    array->view.obj = NULL;
    Py_CLEAR(array->extra);
}
