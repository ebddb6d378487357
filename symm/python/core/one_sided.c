/* SPDX-License-Identifier: MIT */
/* one_sided.c - Team's put, get and signals, and its two-sided send and recv, also with
 * batches. */
#include <string.h>

#include "python/core/request.h"

/* ---- Arguments --------------------------------------------------------------------------- */

/* dst and src of as many bytes. -1: raised. */
static int take_copy(struct core_request *r, PyObject *dst, PyObject *src)
{
    struct core_array *d = core_request_array(r, "dst", dst, true), *s;
    size_t bytes;

    if (!d)
        return -1;
    s = core_request_array(r, "src", src, false);
    if (!s)
        return -1;
    bytes = (size_t)s->count * symm_dtype_size(s->dtype);
    if ((size_t)d->count * symm_dtype_size(d->dtype) != bytes)
        return core_raise(SYMM_ERR_INVALID, "%s(): src has %zu bytes, dst %zu",
                          r->operation->name, bytes,
                          (size_t)d->count * symm_dtype_size(d->dtype));
    r->in = s->ptr;
    r->out = d->ptr;
    r->count = bytes;
    return 0;
}

static int parse_put(struct core_request *r, PyObject *const *args, Py_ssize_t count,
                     PyObject *keywords)
{
    static struct core_params params = {
        "put", 3, 3, {"dst", "src", "peer", "signal", CORE_OPTIONS}, {NULL}};
    PyObject *v[CORE_NAMES];

    if (core_args(&params, args, count, keywords, v) < 0 ||
        take_copy(r, v[0], v[1]) < 0 || core_int("put", "peer", v[2], &r->peer) < 0)
        return -1;
    if (v[3] && v[3] != Py_None) {
        if (core_int("put", "signal", v[3], &r->signal) < 0)
            return -1;
        if (r->signal < 0)
            return core_raise(SYMM_ERR_INVALID,
                              "put(): signal %d: give 0 to 255, or None", r->signal);
    }
    return core_request_options(r, v + 4);
}

static int parse_get(struct core_request *r, PyObject *const *args, Py_ssize_t count,
                     PyObject *keywords)
{
    static struct core_params params = {
        "get", 3, 3, {"dst", "src", "peer", CORE_OPTIONS}, {NULL}};
    PyObject *v[CORE_NAMES];

    if (core_args(&params, args, count, keywords, v) < 0 ||
        take_copy(r, v[0], v[1]) < 0 || core_int("get", "peer", v[2], &r->peer) < 0)
        return -1;
    return core_request_options(r, v + 3);
}

static int take_signal(struct core_request *r, struct core_params *params,
                       PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    PyObject *v[CORE_NAMES];

    if (core_args(params, args, count, keywords, v) < 0 ||
        core_int(params->what, "peer", v[0], &r->peer) < 0 ||
        core_int(params->what, "signal", v[1], &r->signal) < 0)
        return -1;
    return core_request_options(r, v + 2);
}

static int parse_signal(struct core_request *r, PyObject *const *args, Py_ssize_t count,
                        PyObject *keywords)
{
    static struct core_params params = {
        "signal", 2, 2, {"peer", "signal", CORE_OPTIONS}, {NULL}};

    return take_signal(r, &params, args, count, keywords);
}

static int parse_signal_wait(struct core_request *r, PyObject *const *args,
                             Py_ssize_t count, PyObject *keywords)
{
    static struct core_params params = {
        "signal_wait", 2, 2, {"peer", "signal", CORE_OPTIONS}, {NULL}};

    return take_signal(r, &params, args, count, keywords);
}

/* One array to or from a peer. */
static int take_message(struct core_request *r, struct core_params *params, bool is_out,
                        PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    PyObject *v[CORE_NAMES];
    struct core_array *x;

    if (core_args(params, args, count, keywords, v) < 0)
        return -1;
    x = core_request_array(r, "x", v[0], is_out);
    if (!x || core_int(params->what, "peer", v[1], &r->peer) < 0)
        return -1;
    r->in = r->out = x->ptr;
    r->dtype = x->dtype;
    r->count = (size_t)x->count;
    return core_request_options(r, v + 2);
}

static int parse_send(struct core_request *r, PyObject *const *args, Py_ssize_t count,
                      PyObject *keywords)
{
    static struct core_params params = {
        "send", 2, 2, {"x", "peer", CORE_OPTIONS}, {NULL}};

    return take_message(r, &params, false, args, count, keywords);
}

static int parse_recv(struct core_request *r, PyObject *const *args, Py_ssize_t count,
                      PyObject *keywords)
{
    static struct core_params params = {
        "recv", 2, 2, {"x", "peer", CORE_OPTIONS}, {NULL}};

    return take_message(r, &params, true, args, count, keywords);
}

/* ---- Calls ------------------------------------------------------------------------------- */

static symm_status issue_put(const struct core_request *r, symm_work **work)
{
    return r->signal < 0 ? symm_put(r->team->handle, r->out, r->in, r->count, r->peer,
                                    &r->call, work)
                         : symm_put_signal(r->team->handle, r->out, r->in, r->count,
                                           r->peer, r->signal, &r->call, work);
}

static symm_status issue_get(const struct core_request *r, symm_work **work)
{
    return symm_get(r->team->handle, r->out, r->in, r->count, r->peer, &r->call, work);
}

static symm_status issue_signal(const struct core_request *r, symm_work **work)
{
    return symm_signal(r->team->handle, r->peer, r->signal, &r->call, work);
}

static symm_status issue_signal_wait(const struct core_request *r, symm_work **work)
{
    return symm_signal_wait(r->team->handle, r->peer, r->signal, &r->call, work);
}

static symm_status issue_send(const struct core_request *r, symm_work **work)
{
    return symm_send(r->team->handle, r->in, r->count, r->dtype, r->peer, &r->call,
                     work);
}

static symm_status issue_recv(const struct core_request *r, symm_work **work)
{
    return symm_recv(r->team->handle, r->out, r->count, r->dtype, r->peer, &r->call,
                     work);
}

enum { PUT, GET, SIGNAL, SIGNAL_WAIT, SEND, RECV };

const struct core_operation core_one_sided[] = {
    [PUT] = {"put", parse_put, issue_put},
    [GET] = {"get", parse_get, issue_get},
    [SIGNAL] = {"signal", parse_signal, issue_signal},
    [SIGNAL_WAIT] = {"signal_wait", parse_signal_wait, issue_signal_wait},
    [SEND] = {"send", parse_send, issue_send},
    [RECV] = {"recv", parse_recv, issue_recv},
    {NULL, NULL, NULL},
};

#define METHOD(name, index)                                                            \
    PyObject *core_team_##name(PyObject *self, PyObject *const *args,                  \
                               Py_ssize_t count, PyObject *keywords)                   \
    {                                                                                  \
        return core_request_call(self, &core_one_sided[index], args, count, keywords); \
    }

METHOD(put, PUT)
METHOD(get, GET)
METHOD(signal, SIGNAL)
METHOD(signal_wait, SIGNAL_WAIT)
METHOD(send, SEND)
METHOD(recv, RECV)

/* ---- Batches ----------------------------------------------------------------------------- */

/*
 * p2p([("send" | "recv", x, peer), ...], *, stream, site, timeout, work): symm_p2p_batch. The
 * batch keeps its own arrays, for a request has room for two.
 */
struct batch {
    Py_ssize_t count;
    symm_p2p_op *ops;
    struct core_array *arrays;
    PyObject *list; /* a tuple of the caller's operations, which holds their arrays */
};

static int take_op(core_team *team, PyObject *item, symm_p2p_op *op,
                   struct core_array *array)
{
    PyObject *x;
    const char *kind;

    if (!PyTuple_Check(item) || !PyArg_ParseTuple(item, "sOi", &kind, &x, &op->peer)) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError,
                     "p2p(): each operation is ('send' or 'recv', array, peer), "
                     "not %R",
                     item);
        return -1;
    }
    op->size = sizeof(*op);
    op->kind = strcmp(kind, "send") == 0 ? SYMM_P2P_SEND : SYMM_P2P_RECV;
    if (op->kind == SYMM_P2P_RECV && strcmp(kind, "recv") != 0)
        return core_raise(SYMM_ERR_INVALID, "p2p(): '%s': 'send' or 'recv'", kind);
    if (core_array_get("p2p", "array", x, array) < 0)
        return -1;
    op->ptr = array->ptr;
    op->count = (size_t)array->count;
    op->dtype = array->dtype;
    if (op->kind == SYMM_P2P_RECV && array->read_only) {
        core_array_drop(array);
        return core_raise(SYMM_ERR_INVALID, "p2p(): an array to receive is read-only");
    }
    if (array->is_cuda && team->ctx->is_host) {
        core_array_drop(array);
        return core_raise(
            SYMM_ERR_INVALID,
            "p2p(): an array is device memory, but the team's backend is host");
    }
    return 0;
}

static void batch_drop(struct batch *batch)
{
    for (Py_ssize_t i = 0; i < batch->count; i++)
        core_array_drop(&batch->arrays[i]);
    PyMem_Free(batch->ops);
    PyMem_Free(batch->arrays);
    Py_XDECREF(batch->list);
}

static int batch_take(core_team *team, PyObject *list, struct batch *batch)
{
    Py_ssize_t n;

    *batch = (struct batch){.list = PySequence_Tuple(list)};
    if (!batch->list) {
        if (PyErr_ExceptionMatches(PyExc_TypeError) && !PyIter_Check(list))
            return core_refuse_type("p2p", "operations", "a sequence of tuples", list);
        return -1;
    }
    n = PyTuple_Size(batch->list);
    batch->ops = PyMem_Calloc((size_t)n + 1, sizeof(*batch->ops));
    batch->arrays = PyMem_Calloc((size_t)n + 1, sizeof(*batch->arrays));
    if (!batch->ops || !batch->arrays) {
        PyErr_NoMemory();
        return -1;
    }
    for (; batch->count < n; batch->count++) {
        PyObject *item = PyTuple_GetItem(batch->list, batch->count);

        if (take_op(team, item, &batch->ops[batch->count],
                    &batch->arrays[batch->count]) < 0)
            return -1;
    }
    return 0;
}

static PyObject *batch_run(struct core_request *r, const struct batch *batch)
{
    core_team *team = r->team;
    PyObject *held = NULL;
    PyThreadState *state;
    symm_work *work = NULL;
    symm_status status;

    if (r->wants_work || (r->call.stream && team->ctx->is_host))
        held = Py_NewRef(batch->list);
    state = core_team_enter(team);
    status = symm_p2p_batch(team->handle, batch->ops, (int)batch->count, &r->call,
                            r->wants_work ? &work : NULL);
    return core_call_end(team, state, status, r->call.stream, work, held);
}

PyObject *core_team_p2p(PyObject *self, PyObject *const *args, Py_ssize_t count,
                        PyObject *keywords)
{
    static const struct core_operation operation = {"p2p", NULL, NULL};
    static struct core_params params = {
        "p2p", 1, 1, {"operations", CORE_OPTIONS}, {NULL}};
    struct core_request r = {.operation = &operation, .team = (core_team *)self};
    PyObject *v[CORE_NAMES], *result = NULL;
    struct batch batch;

    if (core_args(&params, args, count, keywords, v) < 0 ||
        core_team_check(r.team, "p2p") < 0)
        return NULL;
    if (batch_take(r.team, v[0], &batch) == 0) {
        if (batch.count > 0) /* whose maker's stream is meant by stream=None */
            r.array[r.arrays++] = batch.arrays[0];
        if (core_request_options(&r, v + 1) == 0)
            result = batch_run(&r, &batch);
    }
    batch_drop(&batch);
    return result;
}

/* recv_any(x, *, ...): no work and no stream, for the sender's rank is what it returns. */
PyObject *core_team_recv_any(PyObject *self, PyObject *const *args, Py_ssize_t count,
                             PyObject *keywords)
{
    static const struct core_operation operation = {"recv_any", NULL, NULL};
    static struct core_params params = {"recv_any", 1, 1, {"x", CORE_OPTIONS}, {NULL}};
    struct core_request r = {.operation = &operation, .team = (core_team *)self};
    PyObject *v[CORE_NAMES], *result = NULL;
    const struct core_array *x = NULL;
    int source = -1;

    if (core_args(&params, args, count, keywords, v) < 0 ||
        core_team_check(r.team, "recv_any") < 0)
        return NULL;
    x = core_request_array(&r, "x", v[0], true);
    if (x && core_request_options(&r, v + 1) == 0) {
        symm_p2p_op op = {.size = sizeof(op),
                          .kind = SYMM_P2P_RECV,
                          .ptr = x->ptr,
                          .count = (size_t)x->count,
                          .dtype = x->dtype,
                          .peer = SYMM_ANY_PEER,
                          .source = &source};

        if (r.wants_work || r.call.stream) {
            core_raise(SYMM_ERR_INVALID,
                       "recv_any(): takes neither a stream nor work=True");
        } else {
            PyThreadState *state = core_team_enter(r.team);

            result = core_call_end(
                r.team, state, symm_p2p_batch(r.team->handle, &op, 1, &r.call, NULL),
                NULL, NULL, NULL);
        }
    }
    core_request_drop(&r);
    if (!result)
        return NULL;
    Py_DECREF(result);
    return PyLong_FromLong(source);
}
