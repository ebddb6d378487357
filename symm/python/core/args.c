/* SPDX-License-Identifier: MIT */
/*
 * args.c - parameters of functions called by METH_FASTCALL | METH_KEYWORDS, and the plain
 * values among them. The limited API has no parser for that convention.
 */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "python/core/core.h"

static int intern_names(struct core_params *params)
{
    for (int i = 0; i < CORE_NAMES && params->names[i]; i++) {
        params->interned[i] = PyUnicode_InternFromString(params->names[i]);
        if (!params->interned[i])
            return -1;
    }
    return 0;
}

/* The parameter that `keyword` names; -1 with a TypeError. */
static int find(const struct core_params *params, PyObject *keyword)
{
    /* Keywords of calls in source code are interned: the first loop finds them. */
    for (int i = 0; i < CORE_NAMES && params->names[i]; i++)
        if (params->interned[i] == keyword)
            return i;
    for (int i = 0; i < CORE_NAMES && params->names[i]; i++)
        if (PyUnicode_CompareWithASCIIString(keyword, params->names[i]) == 0)
            return i;
    PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'",
                 params->what, keyword);
    return -1;
}

static int take_keywords(const struct core_params *params, PyObject *const *args,
                         PyObject *keywords, PyObject **values)
{
    const Py_ssize_t n = PyTuple_Size(keywords);

    for (Py_ssize_t k = 0; k < n; k++) {
        PyObject *keyword = PyTuple_GetItem(keywords, k);
        const int i = find(params, keyword);

        if (i < 0)
            return -1;
        if (values[i]) {
            PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%U'",
                         params->what, keyword);
            return -1;
        }
        values[i] = args[k];
    }
    return 0;
}

int core_args(struct core_params *params, PyObject *const *args, Py_ssize_t count,
              PyObject *keywords, PyObject **values)
{
    if (!params->interned[0] && params->names[0] && intern_names(params) < 0)
        return -1;
    if (count > params->positional) {
        PyErr_Format(PyExc_TypeError,
                     "%s() takes at most %d positional arguments (%zd given)",
                     params->what, params->positional, count);
        return -1;
    }
    for (Py_ssize_t i = 0; i < CORE_NAMES; i++)
        values[i] = i < count ? args[i] : NULL;
    if (keywords && take_keywords(params, args + count, keywords, values) < 0)
        return -1;
    for (int i = 0; i < params->required; i++)
        if (!values[i]) {
            PyErr_Format(PyExc_TypeError, "%s() missing required argument '%s'",
                         params->what, params->names[i]);
            return -1;
        }
    return 0;
}

int core_refuse_type(const char *what, const char *name, const char *wanted,
                     PyObject *object)
{
    PyErr_Format(PyExc_TypeError, "%s(): %s must be %s, not %R", what, name, wanted,
                 (PyObject *)Py_TYPE(object));
    return -1;
}

int core_int(const char *what, const char *name, PyObject *object, int *value)
{
    long number;

    if (!object || object == Py_None)
        return 0;
    number = PyLong_AsLong(object);
    if (number == -1 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            return core_refuse_type(what, name, "an integer", object);
        if (!PyErr_ExceptionMatches(PyExc_OverflowError))
            return -1;
        PyErr_Clear();
        number = LONG_MAX;
    }
    if (number < INT32_MIN || number > INT32_MAX)
        return core_raise(SYMM_ERR_INVALID, "%s(): %s %S does not fit 32 bits", what,
                          name, object);
    *value = (int)number;
    return 0;
}

int core_size(const char *what, const char *name, PyObject *object, size_t *value)
{
    unsigned long long number;
    PyObject *integer;

    if (!object || object == Py_None)
        return 0;
    if (!PyIndex_Check(object))
        return core_refuse_type(what, name, "an integer", object);
    integer = PyNumber_Index(object); /* numpy's integers are none of Python's */
    if (!integer)
        return -1;
    number = PyLong_AsUnsignedLongLong(integer);
    Py_DECREF(integer);
    if (number == (unsigned long long)-1 && PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_OverflowError))
            return -1;
        PyErr_Clear();
        return core_raise(SYMM_ERR_INVALID, "%s(): %s %S is negative or above 64 bits",
                          what, name, object);
    }
    *value = (size_t)number;
    return 0;
}

int core_seconds(const char *what, const char *name, PyObject *object, double *value)
{
    double number;

    if (!object || object == Py_None)
        return 0;
    number = PyFloat_AsDouble(object);
    if (number == -1.0 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            return core_refuse_type(what, name, "a number of seconds", object);
        return -1;
    }
    if (isnan(number) || number < 0)
        return core_raise(SYMM_ERR_INVALID,
                          "%s(): %s %S is no number of seconds: give 0 or more", what,
                          name, object);
    *value = number;
    return 0;
}

Py_ssize_t core_length(const char *what, const char *name, const char *wanted,
                       PyObject *object)
{
    Py_ssize_t n = PyUnicode_Check(object) ? -1 : PySequence_Size(object);

    if (n >= 0 && PySequence_Check(object))
        return n;
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError))
        return -1;
    return core_refuse_type(what, name, wanted, object);
}

int core_text(const char *what, const char *name, PyObject *object, const char **value)
{
    const char *text;
    Py_ssize_t length;

    if (!object || object == Py_None)
        return 0;
    if (!PyUnicode_Check(object))
        return core_refuse_type(what, name, "a str", object);
    text = PyUnicode_AsUTF8AndSize(object, &length);
    if (!text)
        return -1;
    if ((Py_ssize_t)strlen(text) != length)
        return core_raise(SYMM_ERR_INVALID, "%s(): %s contains a NUL character", what,
                          name);
    *value = text;
    return 0;
}

/* torch.float8_e4m3fn is "float8_e4m3" here; str(torch.x) begins with "torch.". */
static const char *plain_name(const char *name)
{
    if (strncmp(name, "torch.", 6) == 0)
        name += 6;
    return strcmp(name, "float8_e4m3fn") == 0 ? "float8_e4m3" : name;
}

/* numpy's dtypes of another byte order have the names of the machine's own. */
static bool is_swapped(PyObject *dtype)
{
    PyObject *order = PyObject_GetAttrString(dtype, "byteorder");
    const bool swapped = order && PyUnicode_Check(order) &&
                         PyUnicode_CompareWithASCIIString(order, ">") == 0;

    PyErr_Clear();
    Py_XDECREF(order);
    return swapped;
}

/*
 * A name ("bfloat16"), or an object that has one: numpy's dtypes by .name, their classes by
 * .__name__, torch's dtypes by str(). The object that ml_dtypes names float8_e4m3 is another
 * format than ours, whose overflow is a NaN.
 */
int core_dtype(const char *what, PyObject *object, symm_dtype *dtype)
{
    PyObject *text = NULL;
    const char *name;
    int result = -1;

    if (PyUnicode_Check(object)) {
        text = Py_NewRef(object);
    } else if (is_swapped(object)) {
        return core_raise(SYMM_ERR_INVALID,
                          "%s(): dtype %S has another byte order than this machine",
                          what, object);
    } else {
        text = PyObject_GetAttrString(object, "name");
        if (!text || !PyUnicode_Check(text)) {
            PyErr_Clear();
            Py_XDECREF(text);
            text = PyType_Check(object) ? PyObject_GetAttrString(object, "__name__")
                                        : PyObject_Str(object);
        }
    }
    name = text && PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    if (name) {
        if (!PyUnicode_Check(object) && strcmp(name, "float8_e4m3") == 0)
            core_raise(
                SYMM_ERR_UNSUPPORTED,
                "%s(): dtype float8_e4m3 of ml_dtypes has infinities; libsymm's is "
                "its float8_e4m3fn",
                what);
        else if (symm_dtype_parse(plain_name(name), dtype) == SYMM_OK)
            result = 0;
        else
            core_raise(SYMM_ERR_INVALID, "%s(): %s", what, symm_last_error());
    }
    Py_XDECREF(text);
    return result;
}

int core_op(const char *what, PyObject *object, symm_op *op)
{
    const char *name = NULL;

    *op = SYMM_SUM;
    if (core_text(what, "op", object, &name) < 0)
        return -1;
    if (name && symm_op_parse(name, op) != SYMM_OK)
        return core_raise(SYMM_ERR_INVALID, "%s(): %s", what, symm_last_error());
    return 0;
}
