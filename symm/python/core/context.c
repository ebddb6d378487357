/* SPDX-License-Identifier: MIT */
/*
 * context.c - symm.init and Context. finalize closes a context at once; its memory goes when no
 * other thread is in a call and no exported array is left (core_context_settle).
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "python/core/core.h"
#include "symm/tools.h"
#include "util/seconds.h"
#include <pythread.h>
#include <structmember.h>

core_context *core_contexts; /* that are not finalized; changed with the GIL held */

/* ---- Calls and the end ------------------------------------------------------------------- */

PyThreadState *core_enter(core_context *ctx)
{
    ctx->calls++;
    return PyEval_SaveThread();
}

void core_leave(core_context *ctx, PyThreadState *state)
{
    PyEval_RestoreThread(state);
    ctx->calls--;
    if (ctx->closed)
        core_context_settle(ctx);
}

int core_left(core_context *ctx, PyThreadState *state, symm_status status)
{
    PyEval_RestoreThread(
        state); /* the sentence is this thread's: later calls replace it */
    if (status != SYMM_OK)
        core_raise_last(status);
    ctx->calls--;
    if (ctx->closed)
        core_context_settle(ctx);
    return status == SYMM_OK ? 0 : -1;
}

int core_context_check(const core_context *ctx, const char *what)
{
    if (ctx->handle && !ctx->closed)
        return 0;
    return core_raise(SYMM_ERR_INVALID, "%s(): the context has been finalized", what);
}

static void unlink_context(core_context *ctx)
{
    if (ctx->before)
        ctx->before->next = ctx->next;
    else
        core_contexts = ctx->next;
    if (ctx->next)
        ctx->next->before = ctx->before;
    ctx->next = ctx->before = NULL;
}

static void finalize_now(core_context *ctx)
{
    symm_ctx *handle = ctx->handle;

    ctx->handle = NULL;
    unlink_context(ctx);
    Py_BEGIN_ALLOW_THREADS symm_finalize(handle);
    Py_END_ALLOW_THREADS
}

void core_context_settle(core_context *ctx)
{
    /* not from within a function of Work.notify: finalize waits for it */
    if (ctx->handle && ctx->closed && ctx->calls == 0 && ctx->exports == 0 &&
        ctx->notifying != PyThread_get_thread_ident())
        finalize_now(ctx);
}

/* ---- Threads of libsymm, and the end of the interpreter ---------------------------------- */

/*
 * A thread that wants the GIL while the interpreter ends is ended by it, under the feet of
 * libsymm, which then waits for it. So from some moment on none wants it.
 */
static int callbacks; /* threads between core_callback_begin and _end */
static bool ending;

bool core_callback_begin(PyGILState_STATE *gil)
{
    __atomic_add_fetch(&callbacks, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&ending, __ATOMIC_SEQ_CST)) {
        __atomic_sub_fetch(&callbacks, 1, __ATOMIC_SEQ_CST);
        return false;
    }
    *gil = PyGILState_Ensure();
    return true;
}

void core_callback_end(PyGILState_STATE gil)
{
    PyGILState_Release(gil);
    __atomic_sub_fetch(&callbacks, 1, __ATOMIC_SEQ_CST);
}

static void pause_without_gil(void)
{
    Py_BEGIN_ALLOW_THREADS usleep(1000);
    Py_END_ALLOW_THREADS
}

static core_context *first_open(void)
{
    core_context *ctx = core_contexts;

    while (ctx && ctx->ended)
        ctx = ctx->next;
    return ctx;
}

/* What its threads have to call, they call now, as symm_finalize has them do. */
static void await_callbacks(core_context *ctx)
{
    while (ctx->handle && ctx->calls == 0 && ctx->process == getpid() &&
           __atomic_load_n(&ctx->pending, __ATOMIC_SEQ_CST) > 0)
        pause_without_gil();
}

/*
 * Closes all contexts. One whose memory an array uses ends with its last array, while the
 * interpreter clears its modules, or with the process; one that a daemon thread is in a call of,
 * with the process.
 */
void core_contexts_end(void)
{
    core_context *ctx;

    while ((ctx = first_open())) {
        Py_INCREF((PyObject *)ctx);
        ctx->ended = ctx->closed = true;
        if (ctx->exports > 0)
            await_callbacks(ctx);
        core_context_settle(ctx);
        Py_DECREF((PyObject *)ctx);
    }
    __atomic_store_n(&ending, true, __ATOMIC_SEQ_CST);
    /* not for ever: a fork may have left a thread of the parent in it */
    for (int i = 0; i < 1000 && __atomic_load_n(&callbacks, __ATOMIC_SEQ_CST) > 0; i++)
        pause_without_gil();
}

/* ---- symm.init --------------------------------------------------------------------------- */

/* The caller's all-gather, and the exception that it raised. */
struct gather {
    PyObject *function, *type, *value, *traceback;
    int size;
};

/* Copies the world_size blocks of `result`, a sequence of bytes-like objects. */
static int copy_blocks(PyObject *result, int size, size_t bytes, char *out)
{
    for (int i = 0; i < size; i++) {
        PyObject *block = PySequence_GetItem(result, i);
        Py_buffer view;

        if (!block)
            return -1;
        if (PyObject_GetBuffer(block, &view, PyBUF_SIMPLE) < 0) {
            Py_DECREF(block);
            return -1;
        }
        if ((size_t)view.len == bytes)
            memcpy(out + (size_t)i * bytes, view.buf, bytes);
        else
            PyErr_Format(PyExc_ValueError,
                         "init(): allgather gave %zd bytes for rank %d, not %zu",
                         view.len, i, bytes);
        PyBuffer_Release(&view);
        Py_DECREF(block);
        if (PyErr_Occurred())
            return -1;
    }
    return 0;
}

static int gather(void *arg, const void *in, size_t bytes, void *out)
{
    struct gather *g = arg;
    const PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *mine = PyBytes_FromStringAndSize(in, (Py_ssize_t)bytes), *result = NULL;
    int failed = -1;

    if (mine)
        result = PyObject_CallFunctionObjArgs(g->function, mine, NULL);
    if (result)
        failed = copy_blocks(result, g->size, bytes, out);
    if (failed && !g->type)
        PyErr_Fetch(&g->type, &g->value, &g->traceback);
    PyErr_Clear();
    Py_XDECREF(mine);
    Py_XDECREF(result);
    PyGILState_Release(gil);
    return failed;
}

/* Reads what a call needs of the context's description. */
static int describe(core_context *ctx)
{
    symm_info info = {.size = sizeof(info)};

    if (symm_ctx_info(ctx->handle, &info) != SYMM_OK)
        return core_raise_last(SYMM_ERR_INVALID);
    ctx->is_host = strcmp(info.backend, "host") == 0;
    ctx->device = info.device;
    return 0;
}

static void link_context(core_context *ctx)
{
    ctx->process = getpid();
    ctx->before = NULL;
    ctx->next = core_contexts;
    if (core_contexts)
        core_contexts->before = ctx;
    core_contexts = ctx;
}

static PyObject *context_start(symm_config *config, struct gather *g, PyObject *group)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(core_context_type, Py_tp_alloc);
    core_context *ctx = (core_context *)alloc(core_context_type, 0);
    symm_status status;

    if (!ctx)
        return NULL;
    ctx->group = Py_XNewRef(group);
    Py_BEGIN_ALLOW_THREADS status = symm_init(config, &ctx->handle);
    Py_END_ALLOW_THREADS if (status == SYMM_OK)
    {
        link_context(ctx);
        if (describe(ctx) == 0)
            return (PyObject *)ctx;
    }
    else if (g->type)
    {
        PyErr_Restore(g->type, g->value, g->traceback);
        g->type = g->value = g->traceback = NULL;
    }
    else
    {
        core_raise_last(status);
    }
    Py_DECREF(ctx);
    return NULL;
}

/* Seconds that symm_init waits for all ranks; 0: the variable's value is none, which symm_init
 * says. */
static double init_seconds(const symm_config *config)
{
    symm_option_info info = {.size = sizeof(info)};
    double seconds = config->init_timeout;

    for (int i = 0; seconds == 0 && symm_option_at(i, &info) == SYMM_OK; i++)
        if (strcmp(info.name, "SYMM_INIT_TIMEOUT") == 0) {
            (void)symm__seconds_read(info.value ? info.value : info.fallback, &seconds);
            break;
        }
    return seconds;
}

static bool is_set(const char *name)
{
    const char *value = getenv(name);

    return value && *value;
}

/*
 * A job of torchrun over several hosts, for which no other bootstrap is configured: its ranks
 * connect by torch's store (symm._torchrun). Anything else is left to symm_init. Sets
 * g->function, or leaves it NULL.
 */
static int torchrun_gather(symm_config *config, struct gather *g)
{
    symm_job_info job = {.size = sizeof(job)};
    const double seconds = init_seconds(config);
    PyObject *module, *function;

    if (symm_job_detect(&job) != SYMM_OK || strcmp(job.source, "torchrun") != 0 ||
        job.local_size == job.world_size || !(seconds > 0) ||
        is_set("SYMM_BOOTSTRAP_PORT") || is_set("SYMM_STORE"))
        return 0;
    module = PyImport_ImportModule("symm._torchrun");
    if (!module)
        return -1;
    function = PyObject_CallMethod(module, "allgather", "iid", job.rank, job.world_size,
                                   seconds);
    Py_DECREF(module);
    if (!function)
        return -1;
    if (function == Py_None) {
        Py_DECREF(function);
        return 0;
    }
    g->function = function;
    config->rank = job.rank;
    config->world_size = job.world_size;
    config->local_rank = job.local_rank;
    config->local_size = job.local_size;
    return 0;
}

/* rank, size and what goes with them; a rank needs a size. */
static int set_job(symm_config *config, PyObject *const *values)
{
    config->local_rank = config->local_size = 0;
    if (core_int("init", "rank", values[1], &config->rank) < 0 ||
        core_int("init", "size", values[2], &config->world_size) < 0 ||
        core_int("init", "local_rank", values[3], &config->local_rank) < 0 ||
        core_int("init", "local_size", values[4], &config->local_size) < 0 ||
        core_text("init", "job_id", values[5], &config->job_id) < 0)
        return -1;
    if (values[2] && values[2] != Py_None && config->world_size < 1)
        return core_raise(SYMM_ERR_INVALID, "init(): size %d: give at least 1",
                          config->world_size);
    if (values[1] && values[1] != Py_None && config->world_size < 1)
        return core_raise(SYMM_ERR_INVALID,
                          "init(): rank without size: give both, or none "
                          "and start the job by a launcher");
    return 0;
}

PyObject *core_init(PyObject *module, PyObject *const *args, Py_ssize_t count,
                    PyObject *keywords)
{
    static struct core_params params = {
        "init",
        0,
        0,
        {"backend", "rank", "size", "local_rank", "local_size", "job_id", "allgather",
         "thread_group", "heap_bytes", "team_bytes", "timeout", "init_timeout"},
        {NULL}};
    symm_config config = {.size = sizeof(config)};
    symm_bootstrap bootstrap = {.size = sizeof(bootstrap), .allgather = gather};
    PyObject *v[CORE_NAMES], *group, *result;
    struct gather g = {0};

    (void)module;
    if (core_args(&params, args, count, keywords, v) < 0 ||
        core_text("init", "backend", v[0], &config.backend) < 0 ||
        set_job(&config, v) < 0 ||
        core_size("init", "heap_bytes", v[8], &config.heap_bytes) < 0 ||
        core_size("init", "team_bytes", v[9], &config.team_bytes) < 0 ||
        core_seconds("init", "timeout", v[10], &config.timeout) < 0 ||
        core_seconds("init", "init_timeout", v[11], &config.init_timeout) < 0)
        return NULL;
    group = v[7] == Py_None ? NULL : v[7];
    if (v[6] && v[6] != Py_None) {
        if (!PyCallable_Check(v[6])) {
            PyErr_SetString(PyExc_TypeError, "init(): allgather must be callable");
            return NULL;
        }
        g.function = Py_NewRef(v[6]);
    } else if (config.world_size == 0 && !config.job_id && !group &&
               torchrun_gather(&config, &g) < 0) {
        return NULL;
    }
    if (g.function) {
        g.size = config.world_size;
        bootstrap.arg = &g;
        config.bootstrap = &bootstrap;
    }
    if (group) {
        config.thread_group = core_group_handle(group);
        if (!config.thread_group) {
            Py_XDECREF(g.function);
            return NULL;
        }
    }
    result = context_start(&config, &g, group);
    Py_XDECREF(g.function);
    Py_XDECREF(g.type);
    Py_XDECREF(g.value);
    Py_XDECREF(g.traceback);
    return result;
}

/* ---- Context ----------------------------------------------------------------------------- */

static PyObject *context_world(PyObject *self, void *unused)
{
    core_context *ctx = (core_context *)self;
    PyObject *team;

    (void)unused;
    if (core_context_check(ctx, "Context.world") < 0)
        return NULL;
    if (ctx->world) {
        team = PyObject_CallNoArgs(ctx->world);
        if (!team || team != Py_None)
            return team;
        Py_DECREF(team);
    }
    team = core_team_new(ctx, symm_team_world(ctx->handle), true);
    if (!team)
        return NULL;
    Py_XDECREF(ctx->world);
    ctx->world = PyWeakref_NewRef(team, NULL);
    if (!ctx->world)
        Py_CLEAR(team);
    return team;
}

static PyObject *context_finalize(PyObject *self, PyObject *unused)
{
    core_context *ctx = (core_context *)self;

    (void)unused;
    ctx->closed = true;
    core_context_settle(ctx);
    Py_RETURN_NONE;
}

static PyObject *context_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (core_context_check((core_context *)self, "Context.__enter__") < 0)
        return NULL;
    return Py_NewRef(self);
}

static PyObject *context_exit(PyObject *self, PyObject *unused)
{
    (void)unused;
    return context_finalize(self, NULL);
}

static PyObject *context_info(PyObject *self, void *unused)
{
    core_context *ctx = (core_context *)self;
    symm_info info = {.size = sizeof(info)};
    symm_status status;

    (void)unused;
    if (core_context_check(ctx, "Context.info") < 0)
        return NULL;
    status = symm_ctx_info(ctx->handle, &info);
    if (status != SYMM_OK) {
        core_raise_last(status);
        return NULL;
    }
    return core_info_new(&info);
}

static PyObject *context_thread_group(PyObject *self, void *unused)
{
    core_context *ctx = (core_context *)self;

    (void)unused;
    return core_ref(ctx->group ? ctx->group : Py_None);
}

static PyObject *context_closed(PyObject *self, void *unused)
{
    const core_context *ctx = (core_context *)self;

    (void)unused;
    return PyBool_FromLong(ctx->closed || !ctx->handle);
}

/* heap_write(file, format="json"): file is a path or an open file's descriptor. */
static PyObject *context_heap_write(PyObject *self, PyObject *const *args,
                                    Py_ssize_t count, PyObject *keywords)
{
    static struct core_params params = {"heap_write", 2, 1, {"fd", "format"}, {NULL}};
    core_context *ctx = (core_context *)self;
    PyObject *v[CORE_NAMES];
    const char *format = "json";
    symm_status status;
    PyThreadState *state;
    int fd;

    if (core_args(&params, args, count, keywords, v) < 0 ||
        core_context_check(ctx, "Context.heap_write") < 0 ||
        core_text("heap_write", "format", v[1], &format) < 0)
        return NULL;
    fd = PyObject_AsFileDescriptor(v[0]);
    if (fd < 0) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            core_refuse_type("heap_write", "fd",
                             "an integer or an object with fileno()", v[0]);
        return NULL;
    }
    state = core_enter(ctx);
    status = symm_heap_write(ctx->handle, fd, format);
    if (core_left(ctx, state, status) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *context_stream(PyObject *self, PyObject *unused)
{
    core_context *ctx = (core_context *)self;
    void *handle = NULL;
    symm_status status;
    PyThreadState *state;

    (void)unused;
    if (core_context_check(ctx, "Context.stream") < 0)
        return NULL;
    state = core_enter(ctx);
    status = symm_stream_create(ctx->handle, &handle);
    if (core_left(ctx, state, status) < 0)
        return NULL;
    return core_stream_new(ctx, handle);
}

static void context_dealloc(PyObject *self)
{
    core_context *ctx = (core_context *)self;
    PyTypeObject *type = Py_TYPE(self);

    if (ctx->weak)
        PyObject_ClearWeakRefs(self);
    if (ctx->handle) {
        PyObject *kept_type, *value, *traceback;

        PyErr_Fetch(&kept_type, &value, &traceback);
        finalize_now(ctx);
        PyErr_Restore(kept_type, value, traceback);
    }
    Py_CLEAR(ctx->world);
    Py_CLEAR(ctx->group);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"finalize", context_finalize, METH_NOARGS,
     "finalize($self)\n--\n\n"
     "Ends the context: every later use of it, its teams and its buffers raises. Not\n"
     "collective. Memory goes once other threads' calls have ended and no exported "
     "array\n"
     "(numpy, torch) is left. Also done by `with`, when dropped, and at exit."},
    CORE_FAST("heap_write", context_heap_write,
              "heap_write($self, fd, format='json')\n--\n\n"
              "Writes this rank's heap to an open file or descriptor: 'json', or "
              "'pickle' for\n"
              "pytorch.org/memory_viz."),
    {"stream", context_stream, METH_NOARGS,
     "stream($self)\n--\n\nMakes a Stream: an ordered queue (host: a worker thread; "
     "CUDA: "
     "a\n"
     "non-blocking stream)."},
    {"__enter__", context_enter, METH_NOARGS, NULL},
    {"__exit__", context_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getters[] = {
    {"world", context_world, NULL, "The Team of all ranks.", NULL},
    {"info", context_info, NULL, "An Info: rank, backend, sizes of memory, ...", NULL},
    {"closed", context_closed, NULL, "Whether the context has been finalized.", NULL},
    {"thread_group", context_thread_group, NULL,
     "The ThreadGroup whose ranks are threads of this process, or None.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(core_context, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Everything that one rank has. Made by symm.init()."},
    {Py_tp_dealloc, context_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {Py_tp_members, members},
    {0, NULL},
};

PyType_Spec core_context_spec = {"symm.Context", sizeof(core_context), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                 slots};
