/* SPDX-License-Identifier: MIT */
/*
 * options.h - parsed values of the SYMM_* variables, which option_table.h lists.
 */
#ifndef SYMM_UTIL_OPTIONS_H
#define SYMM_UTIL_OPTIONS_H

#include "symm/symm.h"
#include "util/option_table.h"
#include "util/seconds.h"

/* Parsed values. A malformed one is SYMM_ERR_INVALID naming the variable that has it, value
 * and form. */
symm_status symm__option_integer(enum symm_option option, int64_t low, int64_t high,
                                 int64_t *value) SYMM_MUST_CHECK;
symm_status symm__option_bytes(enum symm_option option, size_t *value) SYMM_MUST_CHECK;
symm_status symm__option_seconds(enum symm_option option,
                                 double *value) SYMM_MUST_CHECK;
/* The same, or 0, which stands for no limit. */
symm_status symm__option_limit(enum symm_option option, double *value) SYMM_MUST_CHECK;
/* Checks a file that an option names, before it is read. SYMM_ERR_INVALID: a pipe or a device, whose
 * reading may never end. SYMM_OK if there is no file: opening it gives the error. */
symm_status symm__option_file(const char *path);

#endif
