/* SPDX-License-Identifier: MIT */
/*
 * call.h - how XLA's handler (handler.c) calls a collective: by a function of symm._core, which
 * knows whether the team still exists.
 */
#ifndef SYMM_JAX_CALL_H
#define SYMM_JAX_CALL_H

#include <stddef.h>
#include <stdint.h>

enum symm_jax_kind {
    SYMM_JAX_ALL_REDUCE,
    SYMM_JAX_REDUCE_SCATTER,
    SYMM_JAX_ALL_GATHER,
    SYMM_JAX_ALL_TO_ALL,
    SYMM_JAX_BROADCAST,
    SYMM_JAX_KINDS
};

struct symm_jax_call {
    size_t size; /* sizeof(struct symm_jax_call) */
    int kind;    /* enum symm_jax_kind */
    int dtype, op, root;
    const void *in;
    void *out;
    size_t count; /* as the function of symm.h takes it */
    void *stream;
};

/*
 * From any thread, without the GIL. team: a Python object of type symm.Team that the caller keeps
 * alive. Returns a symm_status; if it isn't SYMM_OK, error has a sentence.
 */
typedef int (*symm_jax_call_fn)(void *team, const struct symm_jax_call *call, char *error,
                                size_t bytes);

#endif
