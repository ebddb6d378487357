/* SPDX-License-Identifier: MIT */
/*
 * dtype.h - what kind of number a dtype is; pure.
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

/* DLDataTypeCode of a known dtype. */
uint8_t symm__dtype_dlpack_code(symm_dtype dtype);

#endif
