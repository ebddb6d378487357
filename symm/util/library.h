/* SPDX-License-Identifier: MIT */
/*
 * library.h - shared libraries that are loaded when their first function is wanted, so that
 * libsymm needs the C library alone.
 *
 * All functions of the list must be there. A library that has been loaded stays so until
 * the process ends. A call that fails tries again when it is repeated.
 */
#ifndef SYMM_UTIL_LIBRARY_H
#define SYMM_UTIL_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

#include "symm/symm.h"

struct symm_library {
    const char *soname;
    const char *package; /* that has it, for the error's sentence */
    const struct symm_library_function {
        const char *name;
        size_t member; /* offset of its pointer in the table */
    } *functions;
    size_t count;
    void *table;
    bool loaded; /* private; the table is filled */
};

/* SYMM_ERR_UNSUPPORTED: the error names the user (the file to read), the library and the package
 * to install. user NULL: no error is set. Any thread. */
symm_status symm__library_load(struct symm_library *library,
                               const char *user) SYMM_MUST_CHECK;

#endif
