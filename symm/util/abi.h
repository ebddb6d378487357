/* SPDX-License-Identifier: MIT */
/*
 * abi.h - structs whose size the caller gives in their first member, a size_t: programs that
 * were compiled with an older or a newer header.
 */
#ifndef SYMM_UTIL_ABI_H
#define SYMM_UTIL_ABI_H

#include "symm/symm.h"

/*
 * Copies a caller's struct that begins with its size into `own`, whose size is `bytes`. The
 * caller's may be shorter (older: the rest is zeroed) or longer (newer: the tail has to be
 * zero). SYMM_ERR_INVALID for what symm__struct_check refuses. `name`: "symm_call".
 */
symm_status symm__struct_take(const char *name, const void *given, void *own,
                              size_t bytes) SYMM_MUST_CHECK;
/*
 * Whether a size that the caller gave is one that a version may have: refuses less than a
 * size_t, more than 4096, and what cuts a field. `bytes`: the size in this version.
 */
symm_status symm__struct_check(const char *name, size_t size,
                               size_t bytes) SYMM_MUST_CHECK;
/*
 * The other way: fills the caller's struct, of a size that was checked, from `own`. A shorter
 * one gets the first members; of a longer one the tail stays. Its size stays as it is.
 */
void symm__struct_give(void *given, const void *own, size_t bytes);

#endif
