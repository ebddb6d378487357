/* SPDX-License-Identifier: MIT */
/*
 * record.c - methods of Team that report the program's own work to the library while SYMM_RECORD
 * records its calls. Without SYMM_RECORD each method checks its arguments and does nothing.
 */
#include "python/core/core.h"

typedef symm_status record_fn(symm_team *team, const void *ptr, size_t bytes,
                              void *stream);

static PyObject *note_access(core_team *team, struct core_params *params,
                             record_fn *record, PyObject *const *args, Py_ssize_t count,
                             PyObject *keywords)
{
    PyObject *v[CORE_NAMES];
    struct core_array array;
    PyThreadState *state;
    symm_status status;
    void *stream;

    if (core_args(params, args, count, keywords, v) < 0 ||
        core_team_check(team, params->what) < 0 ||
        core_array_get(params->what, "x", v[0], &array) < 0)
        return NULL;
    if (core_stream_get(params->what, v[1], &array, &stream) < 0) {
        core_array_drop(&array);
        return NULL;
    }
    state = core_team_enter(team);
    status = record(team->handle, array.ptr,
                    (size_t)array.count * symm_dtype_size(array.dtype), stream);
    count = core_team_left(team, state, status);
    core_array_drop(&array);
    return count < 0 ? NULL : core_ref(Py_None);
}

PyObject *core_team_record_write(PyObject *self, PyObject *const *args,
                                 Py_ssize_t count, PyObject *keywords)
{
    static struct core_params params = {"record_write", 2, 1, {"x", "stream"}, {NULL}};

    return note_access((core_team *)self, &params, symm_record_write, args, count,
                       keywords);
}

PyObject *core_team_record_read(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                PyObject *keywords)
{
    static struct core_params params = {"record_read", 2, 1, {"x", "stream"}, {NULL}};

    return note_access((core_team *)self, &params, symm_record_read, args, count,
                       keywords);
}

PyObject *core_team_record_depend(PyObject *self, PyObject *const *args,
                                  Py_ssize_t count, PyObject *keywords)
{
    static struct core_params params = {
        "record_depend", 2, 2, {"stream", "on"}, {NULL}};
    core_team *team = (core_team *)self;
    PyObject *v[CORE_NAMES];
    PyThreadState *state;
    void *stream, *on;

    if (core_args(&params, args, count, keywords, v) < 0 ||
        core_team_check(team, "record_depend") < 0 ||
        core_stream_get("record_depend", v[0], NULL, &stream) < 0 ||
        core_stream_get("record_depend", v[1], NULL, &on) < 0)
        return NULL;
    state = core_team_enter(team);
    if (core_team_left(team, state, symm_record_depend(stream, on)) < 0)
        return NULL;
    Py_RETURN_NONE;
}

PyObject *core_team_record_period(PyObject *self, PyObject *const *args,
                                  Py_ssize_t count, PyObject *keywords)
{
    static struct core_params params = {"record_period", 0, 0, {NULL}, {NULL}};
    core_team *team = (core_team *)self;
    PyObject *v[CORE_NAMES];
    PyThreadState *state;

    if (core_args(&params, args, count, keywords, v) < 0 ||
        core_team_check(team, "record_period") < 0)
        return NULL;
    state = core_team_enter(team);
    if (core_team_left(team, state, symm_record_period(team->handle)) < 0)
        return NULL;
    Py_RETURN_NONE;
}
