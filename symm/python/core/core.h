/* SPDX-License-Identifier: MIT */
/*
 * core.h - what the files of the extension module symm._core share.
 *
 * The module is written against Python's limited API 3.11 and libsymm's public headers alone.
 *
 * Rules of all files:
 *  - Every call of libsymm that can wait runs without the GIL, between core_enter and
 *    core_leave. These count the context's calls, so that Context.finalize never takes memory
 *    from under another thread's call.
 *  - A Context outlives its Teams, Streams and Works, a Team its Buffers: each holds a
 *    reference to its owner. After Context.finalize or Team.destroy the objects stay and every
 *    use of them raises symm.Error.
 *  - An array that was exported (buffer protocol, DLPack) keeps memory mapped: finalize and
 *    destroy take effect when the last one is gone.
 *  - Functions return NULL or -1 with an exception set, as Python's own do.
 */
#ifndef SYMM_PYTHON_CORE_H
#define SYMM_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "symm/symm.h"

#define CORE_RANKS 64 /* of a team */
#define CORE_DIMS  16 /* of an array, as symm_empty_strided_p2p allows */
#define CORE_NAMES 24 /* of a function's parameters, at most */

typedef PyCFunction
    core_function; /* METH_FASTCALL | METH_KEYWORDS, cast as Python asks */
#define CORE_FAST(name, fn, doc)                                                       \
    {                                                                                  \
        name, (core_function)(void (*)(void))(fn), METH_FASTCALL | METH_KEYWORDS, doc  \
    }

/* ---- Objects ------------------------------------------------------------------------- */

typedef struct core_context {
    PyObject_HEAD symm_ctx *handle; /* NULL: finalized */
    PyObject *world;    /* weak reference to the world's Team; NULL: none yet */
    PyObject *group;    /* the ThreadGroup that it is a rank of; may be NULL */
    Py_ssize_t calls;   /* of libsymm, now in other threads */
    Py_ssize_t exports; /* arrays that use its memory */
    bool closed;        /* finalize was called; the handle goes with the last export */
    bool ended;         /* core_contexts_end has been here */
    Py_ssize_t pending; /* functions that its threads will call: core_callback_begin */
    pid_t process;      /* that has made it */
    unsigned long
        notifying;      /* the thread that calls a function of Work.notify; 0: none */
    bool is_host;       /* backend "host" */
    int device;         /* "cuda": this rank's device; else -1 */
    PyObject *weak;     /* list of weak references to it */
    struct core_context *next, *before; /* all that are not finalized; module.c */
} core_context;

typedef struct core_team {
    PyObject_HEAD symm_team *handle; /* NULL: destroyed */
    core_context *ctx;               /* strong */
    bool is_world;                   /* goes with the context */
    bool closed;                     /* destroy was called */
    int rank, size;
    Py_ssize_t calls;   /* of libsymm on the team, now in other threads */
    Py_ssize_t exports; /* arrays that use its memory */
    PyObject *weak;
} core_team;

typedef struct core_buffer {
    PyObject_HEAD symm_buffer *handle; /* NULL: released, or a view of a peer's copy */
    core_team *team;                   /* strong */
    /* of a view of a peer's copy: this rank's buffer; else NULL */
    struct core_buffer *owner;
    int rank;   /* whose copy this is */
    void *ptr;
    symm_dtype dtype;
    int ndim;
    int64_t shape[CORE_DIMS], stride[CORE_DIMS]; /* elements */
    int64_t pitch[CORE_DIMS];                    /* strides in bytes */
    int64_t count;                               /* product of shape */
    bool dense;                                  /* row-major, no gaps */
    uint64_t alloc_id;                           /* 0: none */
    PyObject *held;     /* what a registered buffer lies in; else NULL */
    Py_ssize_t exports; /* arrays that use it, and its views of peers' copies */
    PyObject *weak;
} core_buffer;

typedef struct core_work {
    PyObject_HEAD symm_work *handle;
    core_context *ctx; /* strong */
    PyObject *held;    /* what the call uses */
    int fd;            /* of fileno; -1: none */
} core_work;

typedef struct core_stream {
    PyObject_HEAD void *handle;
    core_context *ctx; /* strong */
} core_stream;

/* Counts a function that a thread of libsymm will call (1), or that it has called (-1). */
static inline void core_pending(core_context *ctx, int change)
{
    __atomic_add_fetch(&ctx->pending, change, __ATOMIC_SEQ_CST);
}

/* A new reference to one of these. */
static inline void *core_ref(void *object)
{
    Py_INCREF((PyObject *)object);
    return object;
}

extern PyTypeObject *core_context_type, *core_team_type, *core_buffer_type,
    *core_work_type, *core_stream_type, *core_call_type, *core_group_type,
    *core_capture_type;
extern PyType_Spec core_context_spec, core_team_spec, core_buffer_spec, core_work_spec,
    core_stream_spec, core_call_spec, core_group_spec, core_capture_spec;

/* ---- Errors (error.c) ------------------------------------------------------------------ */

int core_errors_add(PyObject *module);
/* Raises the status's class with libsymm's sentence; -1. */
int core_raise_last(symm_status status);
/* The same with a sentence of its own, in PyUnicode_FromFormat's language. */
int core_raise(symm_status status, const char *format, ...);

/* ---- Contexts (context.c) ---------------------------------------------------------------- */

/* Before and after a call of libsymm: counts it, gives the GIL up, takes it again. */
PyThreadState *core_enter(core_context *ctx);
void core_leave(core_context *ctx, PyThreadState *state);
/* core_leave, and core_raise_last unless status is SYMM_OK. -1: raised. */
int core_left(core_context *ctx, PyThreadState *state, symm_status status);
int core_context_check(const core_context *ctx, const char *what);
/* Ends what closed contexts and teams still hold, once nothing uses it. */
void core_context_settle(core_context *ctx);
void core_contexts_end(void); /* at exit */
/*
 * Around a function of ours that a thread of libsymm calls. begin takes the GIL; false: the
 * interpreter ends, and Python must be left alone. The context's `pending` counts the functions
 * that are queued; end counts one out.
 */
bool core_callback_begin(PyGILState_STATE *gil);
void core_callback_end(PyGILState_STATE gil);
extern core_context *core_contexts;

/* ---- Waits (wait.c) ---------------------------------------------------------------------- */

/* A wait for a Work or a Stream. */
struct core_wait {
    PyObject *object; /* borrowed */
    symm_work *work;  /* NULL: of the stream */
    bool in_order;    /* symm_work_wait instead of symm_work_synchronize */
    void *stream;
    double timeout;
};

/* Waits, and raises what the wait returns, or what a handler of a signal raises meanwhile: then the
 * wait goes on. 0, or -1. */
int core_wait(core_context *ctx, const struct core_wait *what);

/* ---- Teams (team.c) ---------------------------------------------------------------------- */

/* Takes over `handle`, unless it is the world. */
PyObject *core_team_new(core_context *ctx, symm_team *handle, bool is_world);
int core_team_check(const core_team *team, const char *what);
/* core_enter and the others, and the team's own count. */
PyThreadState *core_team_enter(core_team *team);
void core_team_leave(core_team *team, PyThreadState *state);
int core_team_left(core_team *team, PyThreadState *state, symm_status status);
void core_team_settle(core_team *team);

/* ---- Buffers (buffer.c) ------------------------------------------------------------------ */

/* Raises unless the buffer can be used. */
int core_buffer_check(const core_buffer *buffer, const char *what);
/* One export more (1) or fewer (-1) of the buffer, its team and its context. */
void core_buffer_exported(core_buffer *buffer, int change);

/* ---- Parameters (args.c) ------------------------------------------------------------------- */

/*
 * A function's parameters: `names` ends with NULL; the first `positional` may be given by
 * position, the first `required` must be given.
 */
struct core_params {
    const char *what; /* the function, for errors */
    int positional, required;
    const char *names[CORE_NAMES];
    PyObject *interned[CORE_NAMES]; /* of names; filled at the first call */
};

/* Fills values[i] (borrowed; NULL: not given) for each name. 0, or -1 with a TypeError. */
int core_args(struct core_params *params, PyObject *const *args, Py_ssize_t count,
              PyObject *keywords, PyObject **values);
/* Raises the TypeError that an argument must be what is `wanted`; -1. */
int core_refuse_type(const char *what, const char *name, const char *wanted,
                     PyObject *object);
/* NULL and None leave *value as it is. */
int core_int(const char *what, const char *name, PyObject *object, int *value);
int core_size(const char *what, const char *name, PyObject *object, size_t *value);
int core_seconds(const char *what, const char *name, PyObject *object, double *value);
int core_text(const char *what, const char *name, PyObject *object, const char **value);
/* The length of a sequence, which is no str; -1 with a TypeError that says what was `wanted`. */
Py_ssize_t core_length(const char *what, const char *name, const char *wanted,
                       PyObject *object);
int core_dtype(const char *what, PyObject *object, symm_dtype *dtype);
int core_op(const char *what, PyObject *object, symm_op *op);

/* ---- Arrays (array.c) ------------------------------------------------------------------------ */

/* An argument that is an array. Holds what keeps `ptr` valid until core_array_drop. */
struct core_array {
    void *ptr;
    int64_t count; /* elements */
    symm_dtype dtype;
    bool read_only;
    bool is_cuda;    /* memory of a device */
    int device;      /* of is_cuda; -1: not known */
    int maker;       /* enum core_maker: whose current stream is meant by stream=None */
    Py_buffer view;  /* view.obj != NULL: released by core_array_drop */
    PyObject *extra; /* a capsule or another owner; may be NULL */
    const struct dl_exchange *exchange; /* of its type (dlpack.h); may be NULL */
};

enum core_maker { CORE_OTHER, CORE_TORCH, CORE_CUPY };

int core_array_get(const char *what, const char *name, PyObject *object,
                   struct core_array *array);
void core_array_drop(struct core_array *array);
int core_array_add(PyObject *module); /* interns names */

/* ---- Calls (request.h) ----------------------------------------------------------------- */

/* Methods of Team. */
#define CORE_METHOD(name)                                                              \
    PyObject *core_team_##name(PyObject *self, PyObject *const *args,                  \
                               Py_ssize_t count, PyObject *keywords)
CORE_METHOD(all_reduce);
CORE_METHOD(all_reduce_norm);
CORE_METHOD(reduce_scatter);
CORE_METHOD(all_gather);
CORE_METHOD(all_to_all);
CORE_METHOD(broadcast);
CORE_METHOD(barrier);
CORE_METHOD(put);
CORE_METHOD(get);
CORE_METHOD(signal);
CORE_METHOD(signal_wait);
CORE_METHOD(send);
CORE_METHOD(recv);
CORE_METHOD(recv_any);
CORE_METHOD(p2p);
CORE_METHOD(prepare);
CORE_METHOD(record_write);
CORE_METHOD(record_read);
CORE_METHOD(record_depend);
CORE_METHOD(record_period);
CORE_METHOD(capture_abandon);
CORE_METHOD(capture_release);
PyObject *core_team_capture(PyObject *self, PyObject *unused);
PyObject *core_team_capture_begin(PyObject *self, PyObject *unused);
PyObject *core_team_capture_end(PyObject *self, PyObject *unused);

/* A stream argument; None: the current stream of the array's maker, else NULL. */
int core_stream_get(const char *what, PyObject *object, const struct core_array *array,
                    void **stream);

/* ---- Calls of other runtimes (direct.c) ------------------------------------------------ */

/* direct_call(): the address of a symm_jax_call_fn. */
PyObject *core_direct_call(PyObject *module, PyObject *unused);

/* ---- Others ---------------------------------------------------------------------------- */

PyObject *core_work_new(core_context *ctx, symm_work *handle, PyObject *held);
/* Methods of Work (notify.c). */
PyObject *core_work_notify(PyObject *self, PyObject *function);
PyObject *core_work_fileno(PyObject *self, PyObject *unused);
PyObject *core_work_await(PyObject *self);
PyObject *core_buffer_new(core_team *team, symm_buffer *handle, symm_dtype dtype,
                          int ndim, const int64_t *shape, const int64_t *stride,
                          uint64_t alloc_id);
/* Keeps `object` alive as long as the buffer. */
void core_buffer_hold(core_buffer *buffer, PyObject *object);
PyObject *core_stream_new(core_context *ctx, void *handle);
symm_thread_group *core_group_handle(PyObject *group); /* NULL with a TypeError */
PyObject *core_info_new(const symm_info *info);
int core_info_add(PyObject *module);
PyObject *core_init(PyObject *module, PyObject *const *args, Py_ssize_t count,
                    PyObject *keywords);

#endif
