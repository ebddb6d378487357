/* SPDX-License-Identifier: MIT */
/*
 * request.c - parsing, running and dropping of requests, and Call, which keeps one.
 *
 * Arrays and streams: a call without a stream has ended when it returns. On a stream of the host
 * backend the request's arrays are held until the stream has run the call. On a CUDA stream they
 * are not: allocators of torch and CuPy reuse memory in the order of the stream, which is also
 * the call's.
 */
#include "python/core/request.h"

#include <stdlib.h>
#include <string.h>

/* ---- Arguments --------------------------------------------------------------------------- */

struct core_array *core_request_array(struct core_request *request, const char *name,
                                      PyObject *object, bool is_out)
{
    const char *what = request->operation->name;
    struct core_array *array = &request->array[request->arrays];

    if (core_array_get(what, name, object, array) < 0)
        return NULL;
    request->object[request->arrays++] = object;
    if (is_out && array->read_only) {
        core_raise(SYMM_ERR_INVALID, "%s(): %s is read-only", what, name);
        return NULL;
    }
    if (array->is_cuda && request->team->ctx->is_host) {
        core_raise(SYMM_ERR_INVALID,
                   "%s(): %s is device memory, but the team's backend is host", what,
                   name);
        return NULL;
    }
    return array;
}

static int take_numerics(const char *what, PyObject *object, uint32_t *numerics)
{
    static const struct {
        const char *name;
        uint32_t value;
    } known[] = {{"any", SYMM_NUMERICS_ANY},
                 {"same_bits", SYMM_NUMERICS_SAME_BITS},
                 {"rank_order", SYMM_NUMERICS_RANK_ORDER}};
    const char *name = NULL;

    if (core_text(what, "numerics", object, &name) < 0)
        return -1;
    if (!name)
        return 0;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(name, known[i].name) == 0) {
            *numerics = known[i].value;
            return 0;
        }
    return core_raise(SYMM_ERR_INVALID,
                      "%s(): numerics '%s': 'any', 'same_bits' or 'rank_order'", what,
                      name);
}

int core_request_options(struct core_request *request, PyObject *const *values)
{
    const char *what = request->operation->name;
    symm_call *call = &request->call;
    int work = 0;

    call->size = sizeof(*call);
    request->text[0] = values[1];
    request->text[1] = values[2];
    if (core_stream_get(what, values[0],
                        request->arrays > 0 ? &request->array[0] : NULL,
                        &call->stream) < 0 ||
        core_text(what, "site", values[1], &call->site) < 0 ||
        core_text(what, "algorithm", values[2], &call->algorithm) < 0 ||
        take_numerics(what, values[3], &call->numerics) < 0 ||
        core_seconds(what, "timeout", values[4], &call->timeout) < 0 ||
        core_int(what, "channel", values[5], &call->channel) < 0)
        return -1;
    if (values[6]) {
        work = PyObject_IsTrue(values[6]);
        if (work < 0)
            return -1;
    }
    request->wants_work = work;
    return 0;
}

/* ---- Running ----------------------------------------------------------------------------- */

/* The request's arrays; those by the buffer protocol as memoryviews, which pin them. */
static PyObject *hold(const struct core_request *request)
{
    PyObject *held = PyTuple_New(request->arrays);

    for (int i = 0; held && i < request->arrays; i++) {
        PyObject *object = request->array[i].view.obj
                               ? PyMemoryView_FromObject(request->object[i])
                               : Py_NewRef(request->object[i]);

        if (!object || PyTuple_SetItem(held, i, object) < 0)
            Py_CLEAR(held);
    }
    return held;
}

/* What a call on a stream uses until it has run. */
struct queued {
    PyObject *held;
    core_context *ctx; /* its end runs what is queued: valid */
};

/* On the stream's thread, after the call. */
static void drop_held(void *arg)
{
    struct queued *queued = arg;
    PyGILState_STATE gil;

    if (!core_callback_begin(&gil))
        return;
    core_pending(queued->ctx, -1);
    Py_DECREF(queued->held);
    free(queued);
    core_callback_end(gil);
}

/* Gives `held` to the stream until what is queued there has run; false: it did not take it.
 * Without the GIL. */
static bool queue_held(core_context *ctx, void *stream, PyObject *held)
{
    struct queued *queued = malloc(sizeof(*queued));

    if (!queued)
        return false;
    *queued = (struct queued){held, ctx};
    core_pending(ctx, 1);
    if (symm_stream_call(ctx->handle, stream, drop_held, queued) == SYMM_OK)
        return true;
    core_pending(ctx, -1);
    free(queued);
    return false;
}

PyObject *core_call_end(core_team *team, PyThreadState *state, symm_status status,
                        void *stream, symm_work *work, PyObject *held)
{
    const bool queued = held && status == SYMM_OK && stream && team->ctx->is_host;
    PyObject *result;

    if (queued && queue_held(team->ctx, stream, held))
        held = NULL; /* the stream's now; a Work needs no arrays of its own */
    if (core_team_left(team, state, status) < 0)
        result = NULL;
    else
        result = work ? core_work_new(team->ctx, work, held) : Py_NewRef(Py_None);
    Py_XDECREF(held);
    return result;
}

PyObject *core_request_run(struct core_request *request)
{
    core_team *team = request->team;
    PyObject *held = NULL;
    PyThreadState *state;
    symm_work *work = NULL;
    symm_status status;

    if (core_team_check(team, request->operation->name) < 0)
        return NULL;
    if (request->wants_work || (request->call.stream && team->ctx->is_host)) {
        held = hold(request);
        if (!held)
            return NULL;
    }
    state = core_team_enter(team);
    status = request->operation->issue(request, request->wants_work ? &work : NULL);
    return core_call_end(team, state, status, request->call.stream, work, held);
}

void core_request_drop(struct core_request *request)
{
    for (int i = 0; i < request->arrays; i++)
        core_array_drop(&request->array[i]);
    request->arrays = 0;
}

PyObject *core_request_call(PyObject *team, const struct core_operation *operation,
                            PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    struct core_request request;
    PyObject *result = NULL;

    request.operation = operation;
    request.team = (core_team *)team;
    request.arrays = 0;
    request.signal = -1;
    memset(&request.call, 0, sizeof(request.call));
    if (core_team_check(request.team, operation->name) == 0 &&
        operation->parse(&request, args, count, keywords) == 0)
        result = core_request_run(&request);
    core_request_drop(&request);
    return result;
}

/* ---- Call -------------------------------------------------------------------------------- */

typedef struct core_call {
    PyObject_HEAD struct core_request
        request; /* its team, objects and texts are strong */
    bool complete; /* so they are by now */
} core_call;

static const struct core_operation *find(const char *name)
{
    for (const struct core_operation *o = core_collectives; o->name; o++)
        if (strcmp(o->name, name) == 0)
            return o;
    for (const struct core_operation *o = core_one_sided; o->name; o++)
        if (strcmp(o->name, name) == 0)
            return o;
    return NULL;
}

PyObject *core_team_prepare(PyObject *team, PyObject *const *args, Py_ssize_t count,
                            PyObject *keywords)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(core_call_type, Py_tp_alloc);
    const struct core_operation *operation;
    struct core_request *request;
    const char *name = NULL;
    core_call *call;

    if (count < 1) {
        PyErr_SetString(PyExc_TypeError,
                        "prepare() missing required argument 'operation'");
        return NULL;
    }
    if (core_team_check((core_team *)team, "prepare") < 0 ||
        core_text("prepare", "operation", args[0], &name) < 0)
        return NULL;
    operation = name ? find(name) : NULL;
    if (!operation) {
        core_raise(SYMM_ERR_INVALID, "prepare(): operation %R is none of Team's calls",
                   args[0]);
        return NULL;
    }
    call = (core_call *)alloc(core_call_type, 0);
    if (!call)
        return NULL;
    request = &call->request;
    request->operation = operation;
    request->team = (core_team *)team;
    request->signal = -1;
    if (operation->parse(request, args + 1, count - 1, keywords) < 0) {
        core_request_drop(request);
        request->team = NULL;
        memset(request->text, 0, sizeof(request->text));
        Py_DECREF(call);
        return NULL;
    }
    Py_INCREF(team);
    for (int i = 0; i < request->arrays; i++)
        Py_INCREF(request->object[i]);
    for (int i = 0; i < 2; i++)
        Py_XINCREF(request->text[i]);
    call->complete = true;
    return (PyObject *)call;
}

static PyObject *call_call(PyObject *self, PyObject *args, PyObject *keywords)
{
    core_call *call = (core_call *)self;

    if (PyTuple_Size(args) > 0 || (keywords && PyDict_Size(keywords) > 0)) {
        PyErr_SetString(PyExc_TypeError, "a symm.Call takes no arguments");
        return NULL;
    }
    return core_request_run(&call->request);
}

static PyObject *call_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<symm.Call %s>",
                                ((core_call *)self)->request.operation->name);
}

/* As of a Work. */
static int call_traverse(PyObject *self, visitproc visit, void *arg)
{
    const struct core_call *call = (core_call *)self;

    Py_VISIT(Py_TYPE(self));
    for (int i = 0; call->complete && i < call->request.arrays; i++)
        Py_VISIT(call->request.object[i]);
    return 0;
}

static void call_dealloc(PyObject *self)
{
    struct core_request *request = &((core_call *)self)->request;
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    for (int i = 0; i < request->arrays; i++) {
        core_array_drop(&request->array[i]);
        Py_DECREF(request->object[i]);
    }
    for (int i = 0; i < 2; i++)
        Py_XDECREF(request->text[i]);
    Py_XDECREF((PyObject *)request->team);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyType_Slot slots[] = {
    {Py_tp_doc, "A call with its arguments resolved: call() makes it. Team.prepare."},
    {Py_tp_dealloc, call_dealloc},
    {Py_tp_traverse, call_traverse},
    {Py_tp_repr, call_repr},
    {Py_tp_call, call_call},
    {0, NULL},
};

PyType_Spec core_call_spec = {
    "symm.Call", sizeof(core_call), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
