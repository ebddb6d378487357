/* SPDX-License-Identifier: MIT */
/*
 * dlpack.h - DLPack's binary interface (github.com/dmlc/dlpack, versions 0.8, 1.1 and 1.3), and
 * arrays in and out by it.
 */
#ifndef SYMM_PYTHON_DLPACK_H
#define SYMM_PYTHON_DLPACK_H

#include "python/core/core.h"

#define DL_CPU       1  /* kDLCPU */
#define DL_CUDA      2  /* kDLCUDA */
#define DL_CUDA_HOST 3  /* kDLCUDAHost: pinned */
#define DL_MANAGED   13 /* kDLCUDAManaged */
#define DL_BOOL      6  /* kDLBool */
#define DL_READ_ONLY 1u

struct dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides; /* elements; strides NULL: row-major */
    uint64_t byte_offset;
};

struct dl_managed {
    struct dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *self);
};

struct dl_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dl_versioned *self);
    uint64_t flags;
    struct dl_tensor tensor;
};

/* DLPackExchangeAPI: what a type's __dlpack_c_exchange_api__ points to, from 1.3 on. */
struct dl_exchange {
    uint32_t major, minor;
    const struct dl_exchange *older; /* NULL: none */
    void (*allocate)(void);
    void (*from_object)(void);
    void (*to_object)(void);
    /* Borrows: valid until the object changes. May be NULL. 0, or -1: raised. */
    int (*view)(void *object, struct dl_tensor *tensor);
    int (*current_stream)(int32_t device_type, int32_t device_id, void **stream);
};

/* Buffer.__dlpack__ and __dlpack_device__. */
PyObject *core_buffer_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t count,
                             PyObject *keywords);
PyObject *core_buffer_dlpack_device(PyObject *self, PyObject *unused);
/*
 * Fills an array by the exchange functions of the object's own type, without a Python call.
 * 1: done. 0: the type has none, or the dtype is unknown. -1: raised.
 */
int core_dlpack_view(const char *what, const char *name, PyObject *object,
                     struct core_array *array);
/* Fills an array from an object with __dlpack__. */
int core_dlpack_take(const char *what, const char *name, PyObject *object,
                     struct core_array *array);

#endif
