/* SPDX-License-Identifier: MIT */
/*
 * norm.c - Team.all_reduce_norm: the arguments of symm_all_reduce_norm (norm.h) from arrays of
 * any maker. Counts and dtypes are compared here, since arrays have them and pointers do not;
 * the rest is libsymm's to check.
 */
#include <string.h>

#include "python/core/request.h"

/* The parameters' places in params.names. */
enum {
    INPUT,
    WEIGHT,
    EPS,
    RESIDUAL,
    BIAS,
    WEIGHT_OFFSET,
    SUM_OUT,
    RESIDUAL_OUT,
    NORM_OUT,
    QUANT_OUT,
    QUANT,
    SCALE,
    HIDDEN,
    ROUND_PARTIAL,
    CONSTANT,
    OPTIONS
};

static const char *const what = "all_reduce_norm";

static bool is_given(const PyObject *object)
{
    return object && object != Py_None;
}

/* NULL and None leave *value as it is. */
static int take_float(const char *name, PyObject *object, float *value)
{
    double number;

    if (!is_given(object))
        return 0;
    number = PyFloat_AsDouble(object);
    if (number == -1.0 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            PyErr_Format(PyExc_TypeError, "%s(): %s must be a number, not %R", what,
                         name, (PyObject *)Py_TYPE(object));
        return -1;
    }
    *value = (float)number;
    return 0;
}

static int take_flag(PyObject *object, uint32_t flag, uint32_t *flags)
{
    const int on = object ? PyObject_IsTrue(object) : 0;

    if (on > 0)
        *flags |= flag;
    return on < 0 ? -1 : 0;
}

/* ---- Arrays ------------------------------------------------------------------------------ */

/* Takes an array that may be None, then *pointer stays NULL. is_out: the call writes it. */
static int take_array(struct core_request *r, const char *name, PyObject *object,
                      bool is_out, int64_t count, void **pointer)
{
    const struct core_array *array;

    if (!is_given(object))
        return 0;
    array = core_request_array(r, name, object, is_out);
    if (!array)
        return -1;
    if (array->dtype != r->dtype)
        return core_raise(SYMM_ERR_INVALID, "%s(): %s is %s, input is %s", what, name,
                          symm_dtype_name(array->dtype), symm_dtype_name(r->dtype));
    if (array->count != count)
        return core_raise(SYMM_ERR_INVALID, "%s(): %s has %lld elements, not %lld",
                          what, name, (long long)array->count, (long long)count);
    *pointer = array->ptr;
    return 0;
}

/* The last entry of object.shape. -1: raised. */
static int take_columns(PyObject *object, size_t *hidden)
{
    PyObject *shape = PyObject_GetAttrString(object, "shape"), *last = NULL;
    int result = -1;

    if (shape)
        last = PySequence_GetItem(shape, -1);
    if (last)
        result = core_size(what, "hidden", last, hidden);
    else if (PyErr_ExceptionMatches(PyExc_AttributeError) ||
             PyErr_ExceptionMatches(PyExc_IndexError)) {
        PyErr_Clear();
        core_raise(
            SYMM_ERR_INVALID,
            "%s(): input has no last dimension: give hidden, the columns of a row",
            what);
    }
    Py_XDECREF(last);
    Py_XDECREF(shape);
    return result;
}

/* Rows and columns of input: as hidden says, else its last dimension. */
static int take_shape(struct core_request *r, PyObject *const *v)
{
    symm_norm *norm = &r->norm;
    const int64_t count = r->array[0].count;

    if (is_given(v[HIDDEN]) ? core_size(what, "hidden", v[HIDDEN], &norm->hidden) < 0
                            : take_columns(v[INPUT], &norm->hidden) < 0)
        return -1;
    if (norm->hidden < 1 || norm->hidden > SYMM_NORM_MAX_HIDDEN)
        return core_raise(SYMM_ERR_INVALID,
                          "%s(): a row has %zu columns, allowed: 1 to %d", what,
                          norm->hidden, SYMM_NORM_MAX_HIDDEN);
    if (count % (int64_t)norm->hidden)
        return core_raise(SYMM_ERR_INVALID,
                          "%s(): input has %lld elements, no multiple of hidden, %zu",
                          what, (long long)count, norm->hidden);
    norm->rows = (size_t)(count / (int64_t)norm->hidden);
    return 0;
}

static int take_rows(struct core_request *r, PyObject *const *v)
{
    symm_norm *norm = &r->norm;
    const int64_t all = r->array[0].count, row = (int64_t)norm->hidden;
    void *weight = NULL, *bias = NULL, *residual = NULL;

    if (take_array(r, "weight", v[WEIGHT], false, row, &weight) < 0 ||
        take_array(r, "bias", v[BIAS], false, row, &bias) < 0 ||
        take_array(r, "residual", v[RESIDUAL], false, all, &residual) < 0 ||
        take_array(r, "sum_out", v[SUM_OUT], true, all, &norm->sum_out) < 0 ||
        take_array(r, "residual_out", v[RESIDUAL_OUT], true, all, &norm->residual_out) <
            0 ||
        take_array(r, "norm_out", v[NORM_OUT], true, all, &norm->norm_out) < 0)
        return -1;
    norm->weight = weight;
    norm->bias = bias;
    norm->residual_in = residual;
    return 0;
}

/* ---- Quantisation ------------------------------------------------------------------------ */

static int take_mode(PyObject *object, symm_norm_quant *quant)
{
    static const char *const names[SYMM_NORM_QUANT_COUNT] = {
        [SYMM_NORM_QUANT_NONE] = "none",
        [SYMM_NORM_QUANT_TENSOR] = "tensor",
        [SYMM_NORM_QUANT_ROW] = "row",
        [SYMM_NORM_QUANT_GROUP] = "group",
        [SYMM_NORM_QUANT_GROUP_COLUMN] = "group_column",
    };
    const char *name = NULL;

    if (core_text(what, "quant", object, &name) < 0)
        return -1;
    if (!name)
        return 0;
    for (int i = 0; i < SYMM_NORM_QUANT_COUNT; i++)
        if (strcmp(name, names[i]) == 0) {
            *quant = (symm_norm_quant)i;
            return 0;
        }
    return core_raise(SYMM_ERR_INVALID,
                      "%s(): quant '%s': 'none', 'tensor', 'row', 'group' or "
                      "'group_column'",
                      what, name);
}

/* quant_out is float8_e4m3, or uint8 for makers that lack it; scale is float32. */
static int take_quant(struct core_request *r, PyObject *const *v)
{
    symm_norm *norm = &r->norm;
    const struct core_array *a;
    int64_t scales;

    if (!is_given(v[QUANT_OUT]) && !is_given(v[SCALE]) &&
        norm->quant == SYMM_NORM_QUANT_NONE)
        return 0;
    if (!is_given(v[QUANT_OUT]) || !is_given(v[SCALE]) ||
        norm->quant == SYMM_NORM_QUANT_NONE)
        return core_raise(
            SYMM_ERR_INVALID,
            "%s(): quant_out and scale are given together, and quant is not "
            "'none' then",
            what);
    a = core_request_array(r, "quant_out", v[QUANT_OUT], true);
    if (!a)
        return -1;
    if ((a->dtype != SYMM_FLOAT8_E4M3 && a->dtype != SYMM_UINT8) ||
        a->count != r->array[0].count)
        return core_raise(SYMM_ERR_INVALID,
                          "%s(): quant_out is %lld of %s, not %lld of float8_e4m3",
                          what, (long long)a->count, symm_dtype_name(a->dtype),
                          (long long)r->array[0].count);
    norm->quant_out = a->ptr;
    a = core_request_array(r, "scale", v[SCALE], norm->quant != SYMM_NORM_QUANT_TENSOR);
    if (!a)
        return -1;
    scales = (int64_t)symm_norm_scales(norm->quant, norm->rows, norm->hidden);
    if (a->dtype != SYMM_FLOAT32 || a->count != scales)
        return core_raise(
            SYMM_ERR_INVALID, "%s(): scale is %lld of %s, not %lld of float32", what,
            (long long)a->count, symm_dtype_name(a->dtype), (long long)scales);
    norm->scale = a->ptr;
    return 0;
}

/* ---- The call ---------------------------------------------------------------------------- */

int core_norm_parse(struct core_request *r, PyObject *const *args, Py_ssize_t count,
                    PyObject *keywords)
{
    static struct core_params params = {
        "all_reduce_norm",
        3,
        1,
        {"input", "weight", "eps", "residual", "bias", "weight_offset", "sum_out",
         "residual_out", "norm_out", "quant_out", "quant", "scale", "hidden",
         "round_partial", "constant", CORE_OPTIONS},
        {NULL}};
    symm_norm *norm = &r->norm;
    const struct core_array *input;
    PyObject *v[CORE_NAMES];

    if (core_args(&params, args, count, keywords, v) < 0)
        return -1;
    memset(norm, 0, sizeof(*norm));
    norm->size = sizeof(*norm);
    norm->eps = 1e-6f;
    norm->quant =
        is_given(v[QUANT_OUT]) ? SYMM_NORM_QUANT_TENSOR : SYMM_NORM_QUANT_NONE;
    input = core_request_array(r, "input", v[INPUT], false);
    if (!input)
        return -1;
    norm->in = input->ptr;
    norm->dtype = r->dtype = input->dtype;
    if (take_float("eps", v[EPS], &norm->eps) < 0 ||
        take_float("weight_offset", v[WEIGHT_OFFSET], &norm->weight_offset) < 0 ||
        take_flag(v[ROUND_PARTIAL], SYMM_NORM_ROUND_PARTIAL, &norm->flags) < 0 ||
        take_flag(v[CONSTANT], SYMM_NORM_CONSTANT, &norm->flags) < 0 ||
        take_mode(v[QUANT], &norm->quant) < 0 || take_shape(r, v) < 0 ||
        take_rows(r, v) < 0 || take_quant(r, v) < 0)
        return -1;
    return core_request_options(r, v + OPTIONS);
}

symm_status core_norm_issue(const struct core_request *r, symm_work **work)
{
    return symm_all_reduce_norm(r->team->handle, &r->norm, &r->call, work);
}
