/* SPDX-License-Identifier: MIT */
/*
 * direct.c - a collective on a Team from a thread of another runtime, which has neither the GIL
 * nor the types of this module (XLA's handlers).
 */
#include <stdio.h>

#include "python/core/core.h"
#include "python/symm/jax/src/call.h"

/* The raised exception's text, which ends here. */
static void take_error(char *error, size_t bytes)
{
    PyObject *type, *value, *traceback, *text, *utf8 = NULL;

    PyErr_Fetch(&type, &value, &traceback);
    text = value ? PyObject_Str(value) : NULL;
    if (text)
        utf8 = PyUnicode_AsUTF8String(text);
    snprintf(error, bytes, "symm: %s", utf8 ? PyBytes_AsString(utf8) : "the call failed");
    PyErr_Clear();
    Py_XDECREF(utf8);
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
}

static symm_status run(symm_team *team, const struct symm_jax_call *c)
{
    const symm_call call = {.size = sizeof(call), .stream = c->stream};
    const symm_dtype dtype = (symm_dtype)c->dtype;

    switch ((enum symm_jax_kind)c->kind) {
    case SYMM_JAX_ALL_REDUCE:
        return symm_all_reduce(team, c->in, c->out, c->count, dtype, (symm_op)c->op, &call,
                               NULL);
    case SYMM_JAX_REDUCE_SCATTER:
        return symm_reduce_scatter(team, c->in, c->out, c->count, dtype, (symm_op)c->op,
                                   &call, NULL);
    case SYMM_JAX_ALL_GATHER:
        return symm_all_gather(team, c->in, c->out, c->count, dtype, &call, NULL);
    case SYMM_JAX_ALL_TO_ALL:
        return symm_all_to_all(team, c->in, c->out, c->count, dtype, &call, NULL);
    case SYMM_JAX_BROADCAST:
    case SYMM_JAX_KINDS:
        break;
    }
    return symm_broadcast(team, c->in, c->out, c->count, dtype, c->root, &call, NULL);
}

/* A symm_jax_call_fn. */
static int direct_call(void *object, const struct symm_jax_call *call, char *error,
                       size_t bytes)
{
    const PyGILState_STATE gil = PyGILState_Ensure();
    core_team *team = object;
    symm_status status = SYMM_ERR_INVALID;

    if (call->size == sizeof(*call) && core_team_check(team, "symm.jax") == 0) {
        PyThreadState *state = core_team_enter(team);

        status = run(team->handle, call);
        if (core_team_left(team, state, status) < 0)
            take_error(error, bytes);
    } else {
        take_error(error, bytes);
    }
    PyGILState_Release(gil);
    return status;
}

PyObject *core_direct_call(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyLong_FromVoidPtr((void *)(uintptr_t)direct_call);
}
