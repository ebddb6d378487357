/* SPDX-License-Identifier: MIT */
/*
 * dtype.h - what kind of number a dtype is, and which reductions it has; pure.
 *
 * The numbers of enum symm_dtype have no order to rely on: new types are appended.
 */
#ifndef SYMM_UTIL_DTYPE_H
#define SYMM_UTIL_DTYPE_H

#include "symm/symm.h"

/* Both false: the number is no dtype. */
bool symm__dtype_is_float(symm_dtype dtype);
bool symm__dtype_is_integer(symm_dtype dtype);
bool symm__dtype_is_float8(symm_dtype dtype);

/* False: the op is bitwise and the dtype is not an integer. */
bool symm__op_takes(symm_op op, symm_dtype dtype);
/* DLDataTypeCode of a known dtype. */
uint8_t symm__dtype_dlpack_code(symm_dtype dtype);

/* For sentences, separated by blanks: all dtypes, and the reductions that the dtype takes. */
const char *symm__dtype_names(void);
const char *symm__op_names(symm_dtype dtype);

#endif
