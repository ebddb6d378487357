/* SPDX-License-Identifier: MIT */
/* module.c - the module symm._core: its types, errors and functions. */
#include "python/core/core.h"

PyTypeObject *core_context_type, *core_team_type, *core_buffer_type, *core_work_type,
    *core_stream_type, *core_call_type, *core_group_type;

/* ---- Info -------------------------------------------------------------------------------- */

static PyTypeObject *info_type;

static PyStructSequence_Field info_fields[] = {
    {"rank", "in the world"},
    {"world_size", "the number of ranks"},
    {"local_rank", "among the ranks of this host"},
    {"local_size", "the number of ranks on this host"},
    {"backend", "'host' or 'cuda'"},
    {"job_source", "the launcher that was recognized: 'symm', 'torchrun', ..."},
    {"isa", "instruction set of reductions: 'c', 'avx2', 'avx512'"},
    {"heap_bytes", "address space that a rank reserves"},
    {"committed_bytes", "memory that this rank has committed"},
    {"granularity", "bytes of the smallest segment"},
    {"scratch_bytes", "of committed_bytes: scratch of CUDA kernels"},
    {"why_backend", "why this backend was chosen: a sentence"},
    {"machine", "as cost tables name it"},
    {"hosts", "that the ranks are on"},
    {"host", "this rank's"},
    {"device", "CUDA: the ordinal of this rank's device; host: -1"},
    {NULL, NULL},
};

static PyStructSequence_Desc info_desc = {
    "symm.Info", "What symm_ctx_info says of a context; sizes in bytes.", info_fields,
    16};

int core_info_add(PyObject *module)
{
    info_type = PyStructSequence_NewType(&info_desc);
    return info_type ? PyModule_AddObjectRef(module, "Info", (PyObject *)info_type)
                     : -1;
}

PyObject *core_info_new(const symm_info *info)
{
    PyObject *values = Py_BuildValue(
        "(iiiisssnnnnssisi)", info->rank, info->world_size, info->local_rank,
        info->local_size, info->backend, info->job_source, info->isa,
        (Py_ssize_t)info->heap_bytes, (Py_ssize_t)info->committed_bytes,
        (Py_ssize_t)info->granularity, (Py_ssize_t)info->scratch_bytes,
        info->why_backend, info->machine, info->hosts, info->host, info->device);
    PyObject *result;

    if (!values)
        return NULL;
    result = PyObject_CallFunctionObjArgs((PyObject *)info_type, values, NULL);
    Py_DECREF(values);
    return result;
}

/* ---- The module -------------------------------------------------------------------------- */

static PyObject *finalize_all(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    core_contexts_end();
    Py_RETURN_NONE;
}

static PyObject *dtype_size(PyObject *module, PyObject *object)
{
    symm_dtype dtype;

    (void)module;
    if (core_dtype("dtype_size", object, &dtype) < 0)
        return NULL;
    return PyLong_FromSize_t(symm_dtype_size(dtype));
}

/* (backend, device, bytes) -> address; for allocators of other libraries. */
static PyObject *mem_alloc(PyObject *module, PyObject *args)
{
    const char *backend;
    PyThreadState *state;
    symm_status status;
    Py_ssize_t bytes;
    int device;
    void *ptr;

    (void)module;
    if (!PyArg_ParseTuple(args, "sin", &backend, &device, &bytes))
        return NULL;
    state = PyEval_SaveThread();
    status =
        symm_mem_alloc(backend, device, bytes < 0 ? SIZE_MAX : (size_t)bytes, &ptr);
    PyEval_RestoreThread(state);
    if (status != SYMM_OK) {
        core_raise_last(status);
        return NULL;
    }
    return PyLong_FromVoidPtr(ptr);
}

static PyObject *mem_free(PyObject *module, PyObject *address)
{
    void *ptr = PyLong_AsVoidPtr(address);
    PyThreadState *state;
    symm_status status;

    (void)module;
    if (PyErr_Occurred())
        return NULL;
    state = PyEval_SaveThread();
    status = symm_mem_free(ptr);
    PyEval_RestoreThread(state);
    if (status != SYMM_OK) {
        core_raise_last(status);
        return NULL;
    }
    Py_RETURN_NONE;
}

/*
 * Types, caches and the list of contexts are the process's, and threads of libsymm call into the
 * main interpreter: the end of another one would close all contexts.
 */
static int refuse_interpreter(void)
{
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) == 0)
        return 0;
    PyErr_SetString(
        PyExc_ImportError,
        "symm: this is a subinterpreter: libsymm is for the main interpreter "
        "of a process; start a process instead");
    return -1;
}

/* Of a subinterpreter Python copies the module, without a call of PyInit__core. */
static PyObject *check_interpreter(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    if (refuse_interpreter() < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    CORE_FAST(
        "init", core_init,
        "init(*, backend=None, rank=None, size=None, local_rank=None, local_size=None, "
        "job_id=None, allgather=None, thread_group=None, heap_bytes=0, team_bytes=0, "
        "timeout=0, init_timeout=0)\n--\n\n"
        "Joins the job that the launcher's environment describes, or that the "
        "arguments\n"
        "describe, and returns a Context. Collective over all ranks. allgather(block) "
        "gets\n"
        "this rank's bytes and returns those of all ranks in rank order; with it give "
        "rank\n"
        "and size. Under torchrun over several hosts torch's store is taken for it.\n\n"
        "backend: 'host' or 'cuda'; None: the best that works. thread_group: the ranks "
        "are\n"
        "threads. heap_bytes, team_bytes: address space of a rank and of a split team; "
        "0: 1 TiB\n"
        "and 2 GiB. timeout: seconds that calls wait for peers (0: 30), init_timeout: "
        "that\n"
        "init waits for all ranks (0: 60). Defaults come from the environment "
        "(symm_env(7)).\n\n"
        "Raises symm.JobError (the launcher's variables contradict each other), "
        "symm.Timeout,\n"
        "symm.Unsupported (no such backend here), symm.Refused, and what allgather "
        "raises."),
    {"finalize_all", finalize_all, METH_NOARGS,
     "finalize_all()\n--\n\nCloses every Context, at exit; memory that arrays "
     "use stays."},
    {"dtype_size", dtype_size, METH_O,
     "dtype_size(dtype, /)\n--\n\nBytes of an element; dtype: a name, or one of "
     "numpy's "
     "or torch's."},
    {"_check_interpreter", check_interpreter, METH_NOARGS, NULL},
    {"_direct_call", core_direct_call, METH_NOARGS, NULL},
    {"_mem_alloc", mem_alloc, METH_VARARGS, NULL},
    {"_mem_free", mem_free, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static int add_type(PyObject *module, const char *name, PyType_Spec *spec,
                    PyTypeObject **type)
{
    *type = (PyTypeObject *)PyType_FromSpec(spec);
    return *type ? PyModule_AddObjectRef(module, name, (PyObject *)*type) : -1;
}

static int fill(PyObject *module)
{
    if (add_type(module, "Context", &core_context_spec, &core_context_type) < 0 ||
        add_type(module, "Team", &core_team_spec, &core_team_type) < 0 ||
        add_type(module, "Buffer", &core_buffer_spec, &core_buffer_type) < 0 ||
        add_type(module, "Work", &core_work_spec, &core_work_type) < 0 ||
        add_type(module, "Stream", &core_stream_spec, &core_stream_type) < 0 ||
        add_type(module, "Call", &core_call_spec, &core_call_type) < 0 ||
        add_type(module, "ThreadGroup", &core_group_spec, &core_group_type) < 0 ||
        add_type(module, "_Capture", &core_capture_spec, &core_capture_type) < 0 ||
        core_errors_add(module) < 0 || core_info_add(module) < 0 ||
        core_array_add(module) < 0)
        return -1;
    return PyModule_AddStringConstant(module, "version", symm_version());
}

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "symm._core",
    .m_doc = "The binding of libsymm; import symm instead.",
    .m_size = -1, /* one interpreter: types and caches are static */
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void)
{
    PyObject *module = refuse_interpreter() < 0 ? NULL : PyModule_Create(&definition);

    if (module && fill(module) < 0)
        Py_CLEAR(module);
    return module;
}
