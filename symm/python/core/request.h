/* SPDX-License-Identifier: MIT */
/*
 * request.h - one call of libsymm with its arguments resolved. Team's methods fill a request on
 * the stack, run it and drop it; a Call (Team.prepare) keeps one and runs it each time.
 */
#ifndef SYMM_PYTHON_REQUEST_H
#define SYMM_PYTHON_REQUEST_H

#include "python/core/core.h"

#include "symm/norm.h"

#define CORE_ARRAYS 9 /* of a call, at most */

struct core_request {
    const struct core_operation *operation;
    core_team *team; /* borrowed */
    const void *in;  /* of collectives, send and put */
    void *out;       /* of collectives, recv and get */
    size_t count;    /* as the C function counts; put and get: bytes */
    symm_dtype dtype;
    symm_op op;
    int peer;   /* or root */
    int signal; /* -1: none */
    symm_call call;
    symm_norm norm; /* of all_reduce_norm */
    bool wants_work;
    int arrays; /* in array[] */
    struct core_array array[CORE_ARRAYS];
    PyObject *object[CORE_ARRAYS]; /* that they were taken from; borrowed */
    PyObject *text[2]; /* that call.site and call.algorithm point into; borrowed */
};

/* An operation: how its arguments are read, and the C function that makes the call. */
struct core_operation {
    const char *name;
    int (*parse)(struct core_request *request, PyObject *const *args, Py_ssize_t count,
                 PyObject *keywords);
    symm_status (*issue)(const struct core_request *request, symm_work **work);
};

extern const struct core_operation core_collectives[]; /* ends with {0}; collective.c */
extern const struct core_operation core_one_sided[];   /* likewise; one_sided.c */

/* all_reduce_norm's; norm.c. */
int core_norm_parse(struct core_request *request, PyObject *const *args,
                    Py_ssize_t count, PyObject *keywords);
symm_status core_norm_issue(const struct core_request *request, symm_work **work);

/* What every call takes beside its own parameters, in this order at the end of params.names. */
#define CORE_OPTIONS                                                                   \
    "stream", "site", "algorithm", "numerics", "timeout", "channel", "work"

/* Takes an array into the request's next place; NULL: raised. is_out: it is written to. */
struct core_array *core_request_array(struct core_request *request, const char *name,
                                      PyObject *object, bool is_out);
/* values: of CORE_OPTIONS. To be called after the arrays are taken: their maker decides which
 * stream None means. */
int core_request_options(struct core_request *request, PyObject *const *values);

/*
 * After the C function, the GIL still given up: takes it again, raises for a status that is not
 * SYMM_OK, or returns None, or a Work where there is one. held (stolen; NULL: nothing): what
 * the call uses; it lives until a stream of the host backend has run the call, or as long as
 * the Work.
 */
PyObject *core_call_end(core_team *team, PyThreadState *state, symm_status status,
                        void *stream, symm_work *work, PyObject *held);

/* Parses, runs and drops a request. */
PyObject *core_request_call(PyObject *team, const struct core_operation *operation,
                            PyObject *const *args, Py_ssize_t count,
                            PyObject *keywords);
/* Runs a request: None or a Work; NULL: raised. */
PyObject *core_request_run(struct core_request *request);
void core_request_drop(struct core_request *request);

#endif
