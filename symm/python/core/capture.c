/* SPDX-License-Identifier: MIT */
/* capture.c - Team's bracket around captures of graphs over memory that is not symmetric. */
#include "python/core/core.h"

#include <structmember.h>

PyTypeObject *core_capture_type;

/* What Team.capture returns. */
typedef struct core_capture {
    PyObject_HEAD core_team *team; /* strong */
} core_capture;

/* ---- The ends of a bracket --------------------------------------------------------------- */

/* Calls function for the team without the GIL. 0, or -1 with an exception. */
static int without_gil(core_team *team, const char *what,
                       symm_status (*function)(symm_team *team))
{
    PyThreadState *state;

    if (core_team_check(team, what) < 0)
        return -1;
    state = core_team_enter(team);
    return core_team_left(team, state, function(team->handle));
}

static int abandon(core_team *team, const char *what, const char *why)
{
    PyThreadState *state;

    if (core_team_check(team, what) < 0)
        return -1;
    state = core_team_enter(team);
    return core_team_left(team, state, symm_team_capture_abandon(team->handle, why));
}

static PyObject *none_unless(int failed)
{
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

PyObject *core_team_capture_begin(PyObject *self, PyObject *unused)
{
    (void)unused;
    return none_unless(
        without_gil((core_team *)self, "capture_begin", symm_team_capture_begin));
}

PyObject *core_team_capture_end(PyObject *self, PyObject *unused)
{
    (void)unused;
    return none_unless(
        without_gil((core_team *)self, "capture_end", symm_team_capture_end));
}

CORE_METHOD(capture_abandon)
{
    static struct core_params params = {"capture_abandon", 1, 0, {"why"}, {NULL}};
    const char *why = NULL;
    PyObject *v[CORE_NAMES];

    if (core_args(&params, args, count, keywords, v) < 0 ||
        core_text("capture_abandon", "why", v[0], &why) < 0)
        return NULL;
    return none_unless(abandon((core_team *)self, "capture_abandon", why));
}

/* ---- The end of memory ------------------------------------------------------------------- */

/* The memory of an array, or of an address with a number of bytes. */
static int take_memory(PyObject *x, PyObject *nbytes, const void **ptr, size_t *bytes)
{
    const bool given = nbytes && nbytes != Py_None;
    struct core_array array;

    if (!PyLong_Check(x)) {
        if (core_array_get("capture_release", "x", x, &array) < 0)
            return -1;
        *ptr = array.ptr;
        *bytes = (size_t)array.count * symm_dtype_size(array.dtype);
        core_array_drop(&array);
        return core_size("capture_release", "nbytes", nbytes, bytes);
    }
    if (!given)
        return core_raise(SYMM_ERR_INVALID,
                          "capture_release(): x is an address: give nbytes too");
    *ptr = PyLong_AsVoidPtr(x);
    if (PyErr_Occurred())
        return -1;
    return core_size("capture_release", "nbytes", nbytes, bytes);
}

CORE_METHOD(capture_release)
{
    static struct core_params params = {
        "capture_release", 2, 1, {"x", "nbytes"}, {NULL}};
    core_team *team = (core_team *)self;
    const void *ptr = NULL;
    PyObject *v[CORE_NAMES];
    PyThreadState *state;
    size_t bytes = 0;

    if (core_args(&params, args, count, keywords, v) < 0 ||
        core_team_check(team, "capture_release") < 0 ||
        take_memory(v[0], v[1], &ptr, &bytes) < 0)
        return NULL;
    state = core_team_enter(team);
    return none_unless(core_team_left(
        team, state, symm_team_capture_release(team->handle, ptr, bytes)));
}

/* ---- The context manager ----------------------------------------------------------------- */

PyObject *core_team_capture(PyObject *self, PyObject *unused)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(core_capture_type, Py_tp_alloc);
    core_capture *capture = (core_capture *)alloc(core_capture_type, 0);

    (void)unused;
    if (capture)
        capture->team = core_ref(self);
    return (PyObject *)capture;
}

static PyObject *capture_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    return none_unless(without_gil(((core_capture *)self)->team, "Team.capture",
                                   symm_team_capture_begin));
}

/* "ValueError: the text of it"; NULL: no memory, or its text raises. */
static PyObject *text_of(PyObject *kind, PyObject *value)
{
    PyObject *name = PyObject_GetAttrString(kind, "__name__");
    PyObject *text = name ? PyUnicode_FromFormat("%S: %S", name, value) : NULL;

    Py_XDECREF(name);
    return text;
}

/* The exception that is set goes; it becomes a note of `value`. */
static void add_note(PyObject *value)
{
    PyObject *kind, *error, *traceback, *done = NULL, *note = NULL;

    PyErr_Fetch(&kind, &error, &traceback);
    if (error)
        note = PyUnicode_FromFormat("symm: the capture's bracket was not abandoned: %S",
                                    error);
    if (note)
        done = PyObject_CallMethod(value, "add_note", "O", note);
    PyErr_Clear();
    Py_XDECREF(note);
    Py_XDECREF(done);
    Py_XDECREF(kind);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
}

/* The body has raised `value`, which goes on whatever becomes of the bracket. */
static void give_up(core_team *team, PyObject *kind, PyObject *value)
{
    PyObject *text = text_of(kind, value);
    const char *why = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;

    PyErr_Clear();
    if (abandon(team, "Team.capture", why) < 0)
        add_note(value);
    Py_XDECREF(text);
}

static PyObject *capture_exit(PyObject *self, PyObject *args)
{
    core_team *team = ((core_capture *)self)->team;
    PyObject *kind, *value, *traceback;

    if (!PyArg_ParseTuple(args, "OOO", &kind, &value, &traceback))
        return NULL;
    if (kind == Py_None)
        return none_unless(without_gil(team, "Team.capture", symm_team_capture_end));
    give_up(team, kind, value);
    Py_RETURN_FALSE;
}

static void capture_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    Py_CLEAR(((core_capture *)self)->team);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"__enter__", capture_enter, METH_NOARGS, NULL},
    {"__exit__", capture_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "A bracket around captures of graphs. Team.capture."},
    {Py_tp_dealloc, capture_dealloc},
    {Py_tp_methods, methods},
    {0, NULL},
};

PyType_Spec core_capture_spec = {"symm._Capture", sizeof(core_capture), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                 slots};
