/* SPDX-License-Identifier: MIT */
/* group.c - ThreadGroup: ranks that are threads of this process. symm.ThreadRanks uses it. */
#include "python/core/core.h"

typedef struct core_group {
    PyObject_HEAD symm_thread_group *handle;
    int size;
} core_group;

symm_thread_group *core_group_handle(PyObject *group)
{
    if (Py_TYPE(group) == core_group_type)
        return ((core_group *)group)->handle;
    PyErr_Format(PyExc_TypeError,
                 "init(): thread_group must be a symm.ThreadGroup, not %R",
                 (PyObject *)Py_TYPE(group));
    return NULL;
}

static PyObject *group_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char size_name[] = "size", *names[] = {size_name, NULL};
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    symm_thread_group *handle;
    core_group *group;
    symm_status status;
    int size;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "i:ThreadGroup", names, &size))
        return NULL;
    status = symm_thread_group_create(size, &handle);
    if (status != SYMM_OK) {
        core_raise_last(status);
        return NULL;
    }
    group = (core_group *)alloc(type, 0);
    if (!group) {
        symm_thread_group_destroy(handle);
        return NULL;
    }
    group->handle = handle;
    group->size = size;
    return (PyObject *)group;
}

/* Contexts hold their group: all of them have gone before. */
static void group_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    symm_thread_group_destroy(((core_group *)self)->handle);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *group_size(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(((core_group *)self)->size);
}

static PyGetSetDef getters[] = {
    {"size", group_size, NULL, "The number of ranks.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc,
     "ThreadGroup(size)\n--\n\nRanks that are threads: each passes the group to\n"
     "symm.init(thread_group=group, rank=...)."},
    {Py_tp_new, group_new},
    {Py_tp_dealloc, group_dealloc},
    {Py_tp_getset, getters},
    {0, NULL},
};

PyType_Spec core_group_spec = {"symm.ThreadGroup", sizeof(core_group), 0,
                               Py_TPFLAGS_DEFAULT, slots};
