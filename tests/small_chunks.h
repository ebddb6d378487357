/* SPDX-License-Identifier: MIT */
/*
 * small_chunks.h - for suites with `ctest: replaces symm__chunks_limits`: calls over several hosts
 * are cut from an eighth of the library's bytes on, into chunks of an eighth. Their bytes are what
 * would take most of the time.
 */
#ifndef SYMM_TESTS_SMALL_CHUNKS_H
#define SYMM_TESTS_SMALL_CHUNKS_H

#include "select/chunks.h"

#define SMALLER 8

typedef struct symm_chunks_limits limits_fn(enum symm_chunks_of what,
                                            enum symm_chunks_mode mode, size_t places,
                                            size_t hosts);
limits_fn __real_symm__chunks_limits, __wrap_symm__chunks_limits;

struct symm_chunks_limits __wrap_symm__chunks_limits(enum symm_chunks_of what,
                                                     enum symm_chunks_mode mode,
                                                     size_t places, size_t hosts)
{
    struct symm_chunks_limits limits =
        __real_symm__chunks_limits(what, mode, places, hosts);

    limits.chunk /= SMALLER;
    limits.call /= SMALLER;
    return limits;
}

#endif
