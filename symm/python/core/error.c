/* SPDX-License-Identifier: MIT */
/* error.c - the exceptions: one class for each status, all of them symm.Error. */
#include <string.h>

#include "python/core/core.h"

struct error_class {
    const char *name; /* "symm.PeerDead" */
    PyObject **also;  /* a second base, or NULL */
    const char *doc;
    PyObject *class;
};

static PyObject *error_base;

/* By -status. */
static struct error_class classes[] = {
    [0] = {NULL, NULL, NULL, NULL},
    [1] = {"symm.Invalid", &PyExc_ValueError, "An argument is not valid.", NULL},
    [2] = {"symm.NoMemory", &PyExc_MemoryError, "Memory or address space is exhausted.",
           NULL},
    [3] = {"symm.SystemFailure", NULL, "A system call failed.", NULL},
    [4] = {"symm.Unsupported", &PyExc_NotImplementedError,
           "Not available on this backend or in this build.", NULL},
    [5] = {"symm.InUse", NULL, "The object is still held.", NULL},
    [6] = {"symm.Busy", NULL, "The stream or channel is in use by another call.", NULL},
    [7] = {"symm.Timeout", &PyExc_TimeoutError,
           "A peer did not arrive before the deadline.", NULL},
    [8] = {"symm.PeerDead", &PyExc_ConnectionError, "A peer has died.", NULL},
    [9] = {"symm.Mismatch", NULL, "The ranks do not make the same call.", NULL},
    [10] = {"symm.Damaged", NULL, "Shared control memory holds impossible values.",
            NULL},
    [11] = {"symm.Aborted", NULL, "Another rank has failed.", NULL},
    [12] = {"symm.JobError", NULL,
            "The launcher's variables are incomplete or contradict each other.", NULL},
    [13] = {"symm.Refused", NULL, "A peer or its memory was refused.", NULL},
    [14] = {"symm.NotFound", &PyExc_LookupError, "No such object.", NULL},
    [15] = {"symm.Overflow", &PyExc_OverflowError, "A size does not fit.", NULL},
    [16] = {"symm.Forked", NULL, "The context belongs to the parent process.", NULL},
};

#define CLASSES ((int)(sizeof(classes) / sizeof(classes[0])))

static int add_class(PyObject *module, struct error_class *class, int status)
{
    PyObject *bases, *value, *members;
    int failed;

    bases = class->also ? PyTuple_Pack(2, error_base, *class->also)
                        : PyTuple_Pack(1, error_base);
    members = PyDict_New();
    value = PyLong_FromLong(status);
    if (!bases || !members || !value ||
        PyDict_SetItemString(members, "status", value) < 0)
        return -1;
    class->class = PyErr_NewExceptionWithDoc(class->name, class->doc, bases, members);
    Py_DECREF(bases);
    Py_DECREF(members);
    Py_DECREF(value);
    if (!class->class)
        return -1;
    failed =
        PyModule_AddObjectRef(module, class->name + sizeof("symm.") - 1, class->class);
    return failed;
}

int core_errors_add(PyObject *module)
{
    PyObject *members = Py_BuildValue("{s:i}", "status", 0);

    if (!members)
        return -1;
    error_base = PyErr_NewExceptionWithDoc(
        "symm.Error",
        "Base of all errors of libsymm: str(error) is one sentence, error.status the\n"
        "symm_status (negative).",
        PyExc_RuntimeError, members);
    Py_DECREF(members);
    if (!error_base || PyModule_AddObjectRef(module, "Error", error_base) < 0)
        return -1;
    for (int i = 1; i < CLASSES; i++)
        if (add_class(module, &classes[i], -i) < 0)
            return -1;
    return 0;
}

static PyObject *class_of(symm_status status)
{
    const int i = -(int)status;

    return i > 0 && i < CLASSES ? classes[i].class : error_base;
}

int core_raise_last(symm_status status)
{
    /* The sentence may quote bytes of a peer or of a file name. */
    PyObject *text = PyUnicode_DecodeUTF8(
        symm_last_error(), (Py_ssize_t)strlen(symm_last_error()), "replace");

    if (text) {
        PyErr_SetObject(class_of(status), text);
        Py_DECREF(text);
    }
    return -1;
}

int core_raise(symm_status status, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    PyErr_FormatV(class_of(status), format, list);
    va_end(list);
    return -1;
}
