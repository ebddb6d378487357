/* SPDX-License-Identifier: MIT */
/* collective.c - Team's collectives. Each gives its arrays' lengths to the C function as counts. */
#include <inttypes.h>

#include "python/core/request.h"

/* ---- Arguments --------------------------------------------------------------------------- */

/* The arrays of a collective of two: `in` and `out` of one dtype. -1: raised. */
static int take_pair(struct core_request *r, PyObject *out, PyObject *in)
{
    struct core_array *o = core_request_array(r, "out", out, true), *i;

    if (!o)
        return -1;
    i = core_request_array(r, "x", in, false);
    if (!i)
        return -1;
    if (i->dtype != o->dtype)
        return core_raise(SYMM_ERR_INVALID, "%s(): x is %s, out is %s",
                          r->operation->name, symm_dtype_name(i->dtype),
                          symm_dtype_name(o->dtype));
    r->in = i->ptr;
    r->out = o->ptr;
    r->dtype = o->dtype;
    return 0;
}

/* Raises unless `large` holds a block of `small` elements of each rank. */
static int check_blocks(const struct core_request *r, const char *name, int64_t large,
                        const char *other, int64_t small)
{
    if (large == small * r->team->size)
        return 0;
    return core_raise(
        SYMM_ERR_INVALID,
        "%s(): %s has %lld elements: %s has %lld, for %d ranks that makes %lld",
        r->operation->name, name, (long long)large, other, (long long)small,
        r->team->size, (long long)(small * r->team->size));
}

static int parse_all_reduce(struct core_request *r, PyObject *const *args,
                            Py_ssize_t count, PyObject *keywords)
{
    static struct core_params params = {
        "all_reduce", 3, 1, {"x", "out", "op", CORE_OPTIONS}, {NULL}};
    PyObject *v[CORE_NAMES];
    struct core_array *x;

    if (core_args(&params, args, count, keywords, v) < 0)
        return -1;
    if (v[1] && v[1] != Py_None && v[1] != v[0]) {
        if (take_pair(r, v[1], v[0]) < 0)
            return -1;
        if (r->array[0].count != r->array[1].count)
            return core_raise(
                SYMM_ERR_INVALID, "all_reduce(): x has %lld elements, out %lld",
                (long long)r->array[1].count, (long long)r->array[0].count);
    } else {
        x = core_request_array(r, "x", v[0], true);
        if (!x)
            return -1;
        r->in = r->out = x->ptr;
        r->dtype = x->dtype;
    }
    r->count = (size_t)r->array[0].count;
    return core_op("all_reduce", v[2], &r->op) < 0 ? -1
                                                   : core_request_options(r, v + 3);
}

static int parse_reduce_scatter(struct core_request *r, PyObject *const *args,
                                Py_ssize_t count, PyObject *keywords)
{
    static struct core_params params = {
        "reduce_scatter", 3, 2, {"out", "x", "op", CORE_OPTIONS}, {NULL}};
    PyObject *v[CORE_NAMES];

    if (core_args(&params, args, count, keywords, v) < 0 ||
        take_pair(r, v[0], v[1]) < 0 ||
        check_blocks(r, "x", r->array[1].count, "out", r->array[0].count) < 0)
        return -1;
    r->count = (size_t)r->array[0].count;
    return core_op("reduce_scatter", v[2], &r->op) < 0 ? -1
                                                       : core_request_options(r, v + 3);
}

static int parse_all_gather(struct core_request *r, PyObject *const *args,
                            Py_ssize_t count, PyObject *keywords)
{
    static struct core_params params = {
        "all_gather", 2, 2, {"out", "x", CORE_OPTIONS}, {NULL}};
    PyObject *v[CORE_NAMES];

    if (core_args(&params, args, count, keywords, v) < 0 ||
        take_pair(r, v[0], v[1]) < 0 ||
        check_blocks(r, "out", r->array[0].count, "x", r->array[1].count) < 0)
        return -1;
    r->count = (size_t)r->array[1].count;
    return core_request_options(r, v + 2);
}

static int parse_all_to_all(struct core_request *r, PyObject *const *args,
                            Py_ssize_t count, PyObject *keywords)
{
    static struct core_params params = {
        "all_to_all", 2, 2, {"out", "x", CORE_OPTIONS}, {NULL}};
    PyObject *v[CORE_NAMES];

    if (core_args(&params, args, count, keywords, v) < 0 ||
        take_pair(r, v[0], v[1]) < 0)
        return -1;
    if (r->array[0].count != r->array[1].count || r->array[0].count % r->team->size)
        return core_raise(
            SYMM_ERR_INVALID,
            "all_to_all(): out has %lld elements, x %lld: give both the same "
            "multiple of %d",
            (long long)r->array[0].count, (long long)r->array[1].count, r->team->size);
    r->count = (size_t)(r->array[0].count / r->team->size);
    return core_request_options(r, v + 2);
}

static int parse_broadcast(struct core_request *r, PyObject *const *args,
                           Py_ssize_t count, PyObject *keywords)
{
    static struct core_params params = {
        "broadcast", 2, 1, {"x", "root", CORE_OPTIONS}, {NULL}};
    PyObject *v[CORE_NAMES];
    struct core_array *x;

    r->peer = 0;
    if (core_args(&params, args, count, keywords, v) < 0 ||
        core_int("broadcast", "root", v[1], &r->peer) < 0)
        return -1;
    x = core_request_array(r, "x", v[0], r->peer != r->team->rank);
    if (!x)
        return -1;
    r->in = r->out = x->ptr;
    r->dtype = x->dtype;
    r->count = (size_t)x->count;
    return core_request_options(r, v + 2);
}

static int parse_barrier(struct core_request *r, PyObject *const *args,
                         Py_ssize_t count, PyObject *keywords)
{
    static struct core_params params = {"barrier", 0, 0, {CORE_OPTIONS}, {NULL}};
    PyObject *v[CORE_NAMES];

    return core_args(&params, args, count, keywords, v) < 0
               ? -1
               : core_request_options(r, v);
}

/* ---- Calls ------------------------------------------------------------------------------- */

static symm_status issue_all_reduce(const struct core_request *r, symm_work **work)
{
    return symm_all_reduce(r->team->handle, r->in, r->out, r->count, r->dtype, r->op,
                           &r->call, work);
}

static symm_status issue_reduce_scatter(const struct core_request *r, symm_work **work)
{
    return symm_reduce_scatter(r->team->handle, r->in, r->out, r->count, r->dtype,
                               r->op, &r->call, work);
}

static symm_status issue_all_gather(const struct core_request *r, symm_work **work)
{
    return symm_all_gather(r->team->handle, r->in, r->out, r->count, r->dtype, &r->call,
                           work);
}

static symm_status issue_all_to_all(const struct core_request *r, symm_work **work)
{
    return symm_all_to_all(r->team->handle, r->in, r->out, r->count, r->dtype, &r->call,
                           work);
}

static symm_status issue_broadcast(const struct core_request *r, symm_work **work)
{
    return symm_broadcast(r->team->handle, r->in, r->out, r->count, r->dtype, r->peer,
                          &r->call, work);
}

static symm_status issue_barrier(const struct core_request *r, symm_work **work)
{
    return symm_barrier(r->team->handle, &r->call, work);
}

enum {
    ALL_REDUCE,
    REDUCE_SCATTER,
    ALL_GATHER,
    ALL_TO_ALL,
    BROADCAST,
    BARRIER,
    ALL_REDUCE_NORM
};

const struct core_operation core_collectives[] = {
    [ALL_REDUCE] = {"all_reduce", parse_all_reduce, issue_all_reduce},
    [REDUCE_SCATTER] = {"reduce_scatter", parse_reduce_scatter, issue_reduce_scatter},
    [ALL_GATHER] = {"all_gather", parse_all_gather, issue_all_gather},
    [ALL_TO_ALL] = {"all_to_all", parse_all_to_all, issue_all_to_all},
    [BROADCAST] = {"broadcast", parse_broadcast, issue_broadcast},
    [BARRIER] = {"barrier", parse_barrier, issue_barrier},
    [ALL_REDUCE_NORM] = {"all_reduce_norm", core_norm_parse, core_norm_issue},
    {NULL, NULL, NULL},
};

#define METHOD(name, index)                                                            \
    PyObject *core_team_##name(PyObject *self, PyObject *const *args,                  \
                               Py_ssize_t count, PyObject *keywords)                   \
    {                                                                                  \
        return core_request_call(self, &core_collectives[index], args, count,          \
                                 keywords);                                            \
    }

METHOD(all_reduce, ALL_REDUCE)
METHOD(reduce_scatter, REDUCE_SCATTER)
METHOD(all_gather, ALL_GATHER)
METHOD(all_to_all, ALL_TO_ALL)
METHOD(broadcast, BROADCAST)
METHOD(barrier, BARRIER)
METHOD(all_reduce_norm, ALL_REDUCE_NORM)
