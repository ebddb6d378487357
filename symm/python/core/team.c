/* SPDX-License-Identifier: MIT */
/* team.c - Team: some ranks of a job in an order; its members, allocations and plan. */
#include <string.h>

#include "python/core/core.h"
#include "python/core/team_docs.h"
#include <structmember.h>

#include "symm/plan.h"

/* ---- Life -------------------------------------------------------------------------------- */

PyObject *core_team_new(core_context *ctx, symm_team *handle, bool is_world)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(core_team_type, Py_tp_alloc);
    core_team *team = (core_team *)alloc(core_team_type, 0);

    if (!team) {
        if (!is_world)
            symm_team_destroy(handle);
        return NULL;
    }
    team->handle = handle;
    team->ctx = core_ref(ctx);
    team->is_world = is_world;
    team->rank = symm_team_rank(handle);
    team->size = symm_team_size(handle);
    return (PyObject *)team;
}

int core_team_check(const core_team *team, const char *what)
{
    if (core_context_check(team->ctx, what) < 0)
        return -1;
    if (team->handle && !team->closed)
        return 0;
    return core_raise(SYMM_ERR_INVALID, "%s(): the team has been destroyed", what);
}

PyThreadState *core_team_enter(core_team *team)
{
    team->calls++;
    return core_enter(team->ctx);
}

static void count_out(core_team *team)
{
    team->calls--;
    if (team->closed)
        core_team_settle(team);
}

void core_team_leave(core_team *team, PyThreadState *state)
{
    core_leave(team->ctx, state);
    count_out(team);
}

int core_team_left(core_team *team, PyThreadState *state, symm_status status)
{
    const int result = core_left(team->ctx, state, status);

    count_out(team);
    return result;
}

void core_team_settle(core_team *team)
{
    symm_team *handle = team->handle;
    PyThreadState *state;

    if (!handle || !team->closed || team->exports > 0 || team->calls > 0)
        return;
    team->handle = NULL;
    if (team->is_world || !team->ctx->handle)
        return; /* goes, or has gone, with the context */
    state = core_enter(team->ctx);
    symm_team_destroy(handle);
    core_leave(team->ctx, state);
}

static PyObject *team_destroy(PyObject *self, PyObject *unused)
{
    core_team *team = (core_team *)self;

    (void)unused;
    if (team->is_world) {
        core_raise(
            SYMM_ERR_INVALID,
            "Team.destroy(): the world goes with its context: Context.finalize()");
        return NULL;
    }
    team->closed = true;
    core_team_settle(team);
    Py_RETURN_NONE;
}

static void team_dealloc(PyObject *self)
{
    core_team *team = (core_team *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject *kept_type, *value, *traceback;

    if (team->weak)
        PyObject_ClearWeakRefs(self);
    PyErr_Fetch(&kept_type, &value, &traceback);
    team->closed = true;
    core_team_settle(team);
    PyErr_Restore(kept_type, value, traceback);
    Py_CLEAR(team->ctx);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* ---- Members ----------------------------------------------------------------------------- */

static PyObject *team_split(PyObject *self, PyObject *const *args, Py_ssize_t count,
                            PyObject *keywords)
{
    static struct core_params params = {"split", 2, 0, {"color", "key"}, {NULL}};
    core_team *team = (core_team *)self;
    symm_team *handle = NULL;
    PyObject *v[CORE_NAMES];
    PyThreadState *state;
    symm_status status;
    int color = -1, key = 0;

    if (core_args(&params, args, count, keywords, v) < 0 ||
        core_team_check(team, "split") < 0 ||
        core_int("split", "color", v[0], &color) < 0 ||
        core_int("split", "key", v[1], &key) < 0)
        return NULL;
    if (v[0] && v[0] != Py_None && color < 0) {
        core_raise(SYMM_ERR_INVALID,
                   "split(): color %d: give 0 or more, or None for no team", color);
        return NULL;
    }
    state = core_team_enter(team);
    status = symm_team_split(team->handle, color, key, &handle);
    if (core_team_left(team, state, status) < 0)
        return NULL;
    if (!handle)
        Py_RETURN_NONE;
    return core_team_new(team->ctx, handle, false);
}

/* Reads a sequence of ranks; the number of them, -1: raised. */
static int take_ranks(PyObject *object, int ranks[CORE_RANKS])
{
    Py_ssize_t n = core_length("subset", "ranks", "a sequence of integers", object);

    if (n > CORE_RANKS)
        return core_raise(SYMM_ERR_INVALID,
                          "subset(): %zd ranks: a team has at most %d", n, CORE_RANKS);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(object, i);
        int failed = !item || core_int("subset", "ranks", item, &ranks[i]) < 0;

        Py_XDECREF(item);
        if (failed)
            return -1;
    }
    return (int)n;
}

static PyObject *team_subset(PyObject *self, PyObject *const *args, Py_ssize_t count,
                             PyObject *keywords)
{
    static struct core_params params = {"subset", 2, 1, {"ranks", "key"}, {NULL}};
    core_team *team = (core_team *)self;
    symm_team *handle = NULL;
    int ranks[CORE_RANKS], n, key = 0;
    PyObject *v[CORE_NAMES];
    PyThreadState *state;
    symm_status status;

    if (core_args(&params, args, count, keywords, v) < 0 ||
        core_team_check(team, "subset") < 0 ||
        core_int("subset", "key", v[1], &key) < 0)
        return NULL;
    n = take_ranks(v[0], ranks);
    if (n < 0)
        return NULL;
    state = core_team_enter(team);
    status = symm_team_create(team->handle, ranks, n, key, &handle);
    if (core_team_left(team, state, status) < 0)
        return NULL;
    return core_team_new(team->ctx, handle, false);
}

static PyObject *team_shrink(PyObject *self, PyObject *unused)
{
    core_team *team = (core_team *)self;
    symm_team *handle = NULL;
    PyThreadState *state;
    symm_status status;

    (void)unused;
    if (core_team_check(team, "shrink") < 0)
        return NULL;
    state = core_team_enter(team);
    status = symm_team_shrink(team->handle, &handle);
    if (core_team_left(team, state, status) < 0)
        return NULL;
    return core_team_new(team->ctx, handle, false);
}

static PyObject *team_abort(PyObject *self, PyObject *const *args, Py_ssize_t count,
                            PyObject *keywords)
{
    static struct core_params params = {"abort", 1, 0, {"why"}, {NULL}};
    core_team *team = (core_team *)self;
    const char *why = NULL;
    PyObject *v[CORE_NAMES];
    PyThreadState *state;

    if (core_args(&params, args, count, keywords, v) < 0 ||
        core_team_check(team, "abort") < 0 || core_text("abort", "why", v[0], &why) < 0)
        return NULL;
    state = core_team_enter(team);
    if (core_team_left(team, state, symm_team_abort(team->handle, why)) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *team_world_ranks(PyObject *self, void *unused)
{
    core_team *team = (core_team *)self;
    PyObject *ranks;

    (void)unused;
    if (core_team_check(team, "Team.world_ranks") < 0)
        return NULL;
    ranks = PyTuple_New(team->size);
    for (int i = 0; ranks && i < team->size; i++) {
        PyObject *rank = PyLong_FromLong(symm_team_world_rank(team->handle, i));

        if (!rank || PyTuple_SetItem(ranks, i, rank) < 0)
            Py_CLEAR(ranks);
    }
    return ranks;
}

static PyObject *team_set_name(PyObject *self, PyObject *name)
{
    core_team *team = (core_team *)self;
    const char *text = NULL;
    symm_status status;

    if (core_team_check(team, "set_name") < 0 ||
        core_text("set_name", "name", name, &text) < 0)
        return NULL;
    status = symm_team_set_name(team->handle, text);
    if (status != SYMM_OK) {
        core_raise_last(status);
        return NULL;
    }
    Py_RETURN_NONE;
}

/* ---- Memory ------------------------------------------------------------------------------ */

static int take_length(const char *name, PyObject *object, int64_t *length)
{
    PyObject *integer = PyIndex_Check(object) ? PyNumber_Index(object) : NULL;
    int overflow = 0;

    if (!integer) {
        if (!PyErr_Occurred())
            PyErr_Format(
                PyExc_TypeError,
                "empty(): %s must be an integer or a sequence of them, not of %R", name,
                (PyObject *)Py_TYPE(object));
        return -1;
    }
    *length = PyLong_AsLongLongAndOverflow(integer, &overflow);
    Py_DECREF(integer);
    if (overflow)
        return core_raise(SYMM_ERR_OVERFLOW, "empty(): %s: %S does not fit 64 bits",
                          name, object);
    return 0;
}

/* Reads an int or a sequence of ints into lengths; the number of them, -1: raised. */
static int take_lengths(const char *name, PyObject *object, int64_t *lengths)
{
    Py_ssize_t n;

    if (PyIndex_Check(
            object)) { /* so are arrays of numpy and torch, which may have one element */
        if (take_length(name, object, lengths) == 0)
            return 1;
        if (!PySequence_Check(object) || !PyErr_ExceptionMatches(PyExc_TypeError))
            return -1;
        PyErr_Clear();
    }
    n = core_length("empty", name, "an integer or a sequence of them", object);
    if (n < 0)
        return -1;
    if (n > CORE_DIMS)
        return core_raise(SYMM_ERR_INVALID, "empty(): %s has %zd entries: at most %d",
                          name, n, CORE_DIMS);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(object, i);
        int failed = !item || take_length(name, item, &lengths[i]) < 0;

        Py_XDECREF(item);
        if (failed)
            return -1;
    }
    return (int)n;
}

/* Row-major strides, in elements. -1: raised (a length is negative, or the product too large). */
static int row_major(int ndim, const int64_t *shape, int64_t *stride)
{
    int64_t next = 1;

    for (int i = ndim - 1; i >= 0; i--) {
        if (shape[i] < 0)
            return core_raise(SYMM_ERR_INVALID, "empty(): shape[%d] is %lld", i,
                              (long long)shape[i]);
        stride[i] = next;
        if (shape[i] > 1 && __builtin_mul_overflow(next, shape[i], &next))
            return core_raise(SYMM_ERR_OVERFLOW,
                              "empty(): the shape has more than 2^63 elements");
    }
    return 0;
}

/*
 * The id of a call site's name, equal on all ranks and in every process: FNV-1a 64, then the
 * finalizer of splitmix64, never 0.
 */
static uint64_t site_id(const char *site)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (; *site; site++)
        hash = (hash ^ (unsigned char)*site) * 0x100000001b3u;
    hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ hash >> 27) * 0x94d049bb133111ebu;
    hash ^= hash >> 31;
    return hash ? hash : 1;
}

static PyObject *team_empty(PyObject *self, PyObject *const *args, Py_ssize_t count,
                            PyObject *keywords)
{
    static struct core_params params = {
        "empty", 2, 1, {"shape", "dtype", "strides", "site", "alloc_id"}, {NULL}};
    core_team *team = (core_team *)self;
    int64_t shape[CORE_DIMS], stride[CORE_DIMS];
    symm_dtype dtype = SYMM_FLOAT32;
    symm_buffer *handle = NULL;
    const char *site = NULL;
    size_t alloc_id = 0;
    PyObject *v[CORE_NAMES];
    PyThreadState *state;
    symm_status status;
    int ndim, strides;

    if (core_args(&params, args, count, keywords, v) < 0 ||
        core_team_check(team, "empty") < 0 ||
        (v[1] && v[1] != Py_None && core_dtype("empty", v[1], &dtype) < 0) ||
        core_text("empty", "site", v[3], &site) < 0 ||
        core_size("empty", "alloc_id", v[4], &alloc_id) < 0)
        return NULL;
    ndim = take_lengths("shape", v[0], shape);
    if (ndim < 0 || row_major(ndim, shape, stride) < 0)
        return NULL;
    if (v[2] && v[2] != Py_None) {
        strides = take_lengths("strides", v[2], stride);
        if (strides < 0)
            return NULL;
        if (strides != ndim) {
            core_raise(SYMM_ERR_INVALID, "empty(): %d strides for %d dimensions",
                       strides, ndim);
            return NULL;
        }
    }
    if (site && alloc_id) {
        core_raise(SYMM_ERR_INVALID, "empty(): site and alloc_id: give one of them");
        return NULL;
    }
    if (site)
        alloc_id = site_id(site);
    state = core_team_enter(team);
    status = symm_empty_strided_p2p(team->handle, ndim, shape, stride, dtype, alloc_id,
                                    &handle);
    if (core_team_left(team, state, status) < 0)
        return NULL;
    return core_buffer_new(team, handle, dtype, ndim, shape, stride, alloc_id);
}

static PyObject *team_rendezvous(PyObject *self, PyObject *unused)
{
    core_team *team = (core_team *)self;
    PyThreadState *state;
    symm_status status;

    (void)unused;
    if (core_team_check(team, "rendezvous") < 0)
        return NULL;
    state = core_team_enter(team);
    status = symm_rendezvous(team->handle);
    if (core_team_left(team, state, status) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* register(array): device memory of another maker. */
static PyObject *team_register(PyObject *self, PyObject *object)
{
    core_team *team = (core_team *)self;
    symm_buffer *handle = NULL;
    struct core_array array;
    PyThreadState *state;
    symm_status status;
    PyObject *buffer;
    int64_t one = 1;

    if (core_team_check(team, "register") < 0 ||
        core_array_get("register", "array", object, &array) < 0)
        return NULL;
    state = core_team_enter(team);
    status = symm_buffer_register(team->handle, array.ptr,
                                  (size_t)array.count * symm_dtype_size(array.dtype),
                                  &handle);
    core_array_drop(&array);
    if (core_team_left(team, state, status) < 0)
        return NULL;
    buffer = core_buffer_new(team, handle, array.dtype, 1, &array.count, &one, 0);
    if (buffer)
        core_buffer_hold((core_buffer *)buffer, object);
    return buffer;
}

/* free(site= or alloc_id=): gives a call site's memory back. */
static PyObject *team_free(PyObject *self, PyObject *const *args, Py_ssize_t count,
                           PyObject *keywords)
{
    static struct core_params params = {"free", 1, 0, {"site", "alloc_id"}, {NULL}};
    core_team *team = (core_team *)self;
    const char *site = NULL;
    size_t alloc_id = 0;
    PyObject *v[CORE_NAMES];
    PyThreadState *state;
    symm_status status;

    if (core_args(&params, args, count, keywords, v) < 0 ||
        core_team_check(team, "free") < 0 ||
        core_text("free", "site", v[0], &site) < 0 ||
        core_size("free", "alloc_id", v[1], &alloc_id) < 0)
        return NULL;
    if (!site == !alloc_id) {
        core_raise(SYMM_ERR_INVALID, "free(): give site or alloc_id");
        return NULL;
    }
    if (site)
        alloc_id = site_id(site);
    state = core_team_enter(team);
    status = symm_alloc_id_free(team->handle, alloc_id);
    if (core_team_left(team, state, status) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- Plans and explanations ---------------------------------------------------------------- */

static PyObject *team_load_plan(PyObject *self, PyObject *path)
{
    core_team *team = (core_team *)self;
    PyObject *bytes = NULL;
    symm_plan *plan = NULL;
    PyThreadState *state;
    symm_status status;
    char *text;

    if (core_team_check(team, "load_plan") < 0)
        return NULL;
    if (!PyUnicode_FSConverter(path, &bytes)) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            core_refuse_type("load_plan", "path", "a path", path);
        return NULL;
    }
    if (PyBytes_AsStringAndSize(bytes, &text, NULL) < 0) {
        Py_DECREF(bytes);
        return NULL;
    }
    state = core_team_enter(team);
    status = symm_plan_read_run(text, &plan);
    if (status == SYMM_OK)
        status = symm_team_load_plan(team->handle, plan);
    if (core_team_left(team, state, status) < 0)
        Py_CLEAR(bytes);
    symm_plan_destroy(plan);
    if (!bytes)
        return NULL;
    Py_DECREF(bytes);
    Py_RETURN_NONE;
}

static PyObject *team_explain(PyObject *self, PyObject *unused)
{
    core_team *team = (core_team *)self;
    const char *text;

    (void)unused;
    if (core_team_check(team, "explain") < 0)
        return NULL;
    text = symm_explain(team->handle);
    return PyUnicode_DecodeUTF8(text ? text : "", (Py_ssize_t)strlen(text ? text : ""),
                                "replace");
}

static PyObject *team_device_team(PyObject *self, void *unused)
{
    core_team *team = (core_team *)self;
    const void *device_team = NULL;
    symm_status status;

    (void)unused;
    if (core_team_check(team, "Team.device_team") < 0)
        return NULL;
    status = symm_team_device(team->handle, &device_team);
    if (status != SYMM_OK) {
        core_raise_last(status);
        return NULL;
    }
    return PyLong_FromVoidPtr((void *)(uintptr_t)device_team);
}

static PyObject *team_backend(PyObject *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(((core_team *)self)->ctx->is_host ? "host" : "cuda");
}

static PyObject *team_device(PyObject *self, void *unused)
{
    const core_context *ctx = ((core_team *)self)->ctx;

    (void)unused;
    return ctx->is_host ? PyUnicode_FromString("cpu")
                        : PyUnicode_FromFormat("cuda:%d", ctx->device);
}

static PyObject *team_closed(PyObject *self, void *unused)
{
    const core_team *team = (core_team *)self;

    (void)unused;
    return PyBool_FromLong(team->closed || !team->handle || team->ctx->closed ||
                           !team->ctx->handle);
}

static PyObject *team_repr(PyObject *self)
{
    const core_team *team = (core_team *)self;

    return PyUnicode_FromFormat("<symm.Team rank %d of %d%s>", team->rank, team->size,
                                team->is_world ? ", world" : "");
}

/* ---- The type ---------------------------------------------------------------------------- */

static PyMethodDef methods[] = {
    {"destroy", team_destroy, METH_NOARGS, DOC_DESTROY},
    CORE_FAST("split", team_split, DOC_SPLIT),
    CORE_FAST("subset", team_subset, DOC_SUBSET),
    {"shrink", team_shrink, METH_NOARGS, DOC_SHRINK},
    CORE_FAST("abort", team_abort, DOC_ABORT),
    {"set_name", team_set_name, METH_O, DOC_SET_NAME},
    CORE_FAST("empty", team_empty, DOC_EMPTY),
    {"rendezvous", team_rendezvous, METH_NOARGS, DOC_RENDEZVOUS},
    {"register", team_register, METH_O, DOC_REGISTER},
    CORE_FAST("free", team_free, DOC_FREE),
    {"load_plan", team_load_plan, METH_O, DOC_LOAD_PLAN},
    {"explain", team_explain, METH_NOARGS, DOC_EXPLAIN},
    CORE_FAST("record_write", core_team_record_write, DOC_RECORD_WRITE),
    CORE_FAST("record_read", core_team_record_read, DOC_RECORD_READ),
    CORE_FAST("record_depend", core_team_record_depend, DOC_RECORD_DEPEND),
    CORE_FAST("record_period", core_team_record_period, DOC_RECORD_PERIOD),
    {"capture", core_team_capture, METH_NOARGS, DOC_CAPTURE},
    {"capture_begin", core_team_capture_begin, METH_NOARGS, DOC_CAPTURE_BEGIN},
    {"capture_end", core_team_capture_end, METH_NOARGS, DOC_CAPTURE_END},
    CORE_FAST("capture_abandon", core_team_capture_abandon, DOC_CAPTURE_ABANDON),
    CORE_FAST("capture_release", core_team_capture_release, DOC_CAPTURE_RELEASE),
    CORE_FAST("prepare", core_team_prepare, DOC_PREPARE),
    CORE_FAST("all_reduce", core_team_all_reduce, DOC_ALL_REDUCE),
    CORE_FAST("all_reduce_norm", core_team_all_reduce_norm, DOC_ALL_REDUCE_NORM),
    CORE_FAST("reduce_scatter", core_team_reduce_scatter, DOC_REDUCE_SCATTER),
    CORE_FAST("all_gather", core_team_all_gather, DOC_ALL_GATHER),
    CORE_FAST("broadcast", core_team_broadcast, DOC_BROADCAST),
    CORE_FAST("all_to_all", core_team_all_to_all, DOC_ALL_TO_ALL),
    CORE_FAST("barrier", core_team_barrier, DOC_BARRIER),
    CORE_FAST("send", core_team_send, DOC_SEND),
    CORE_FAST("recv", core_team_recv, DOC_RECV),
    CORE_FAST("recv_any", core_team_recv_any, DOC_RECV_ANY),
    CORE_FAST("p2p", core_team_p2p, DOC_P2P),
    CORE_FAST("put", core_team_put, DOC_PUT),
    CORE_FAST("get", core_team_get, DOC_GET),
    CORE_FAST("signal", core_team_signal, DOC_SIGNAL),
    CORE_FAST("signal_wait", core_team_signal_wait, DOC_SIGNAL_WAIT),
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getters[] = {
    {"world_ranks", team_world_ranks, NULL, "The members' ranks in the world.", NULL},
    {"device_team", team_device_team, NULL,
     "Address of the struct symm_device_team (device.h) for kernels.", NULL},
    {"backend", team_backend, NULL, "'host' or 'cuda'.", NULL},
    {"device", team_device, NULL, "'cpu', or 'cuda:0' and so on.", NULL},
    {"closed", team_closed, NULL, "Whether the team can no longer be used.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef members[] = {
    {"rank", T_INT, offsetof(core_team, rank), READONLY, "This rank in the team."},
    {"size", T_INT, offsetof(core_team, size), READONLY, "The number of ranks."},
    {"ctx", T_OBJECT_EX, offsetof(core_team, ctx), READONLY, "The Context."},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(core_team, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc,
     "Some ranks of the job, in an order. Context.world, Team.split, Team.subset,\n"
     "Team.shrink."},
    {Py_tp_dealloc, team_dealloc},
    {Py_tp_repr, team_repr},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {Py_tp_members, members},
    {0, NULL},
};

PyType_Spec core_team_spec = {"symm.Team", sizeof(core_team), 0,
                              Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                              slots};
