/* SPDX-License-Identifier: MIT */
/*
 * mem.h - the memory that symm_mem_alloc has given out in this process: it lives until the
 * caller has freed it and no registration holds it.
 */
#ifndef SYMM_CORE_MEM_H
#define SYMM_CORE_MEM_H

#include "core/backend.h"

struct symm_mem_hold;

symm_status symm__mem_add(const struct symm_backend_ops *ops,
                          const struct symm_mem *mem) SYMM_MUST_CHECK;
/* The caller frees the memory that begins at ptr; false: there is none. */
bool symm__mem_remove(const void *ptr);
/* The memory that ptr lies in, kept until symm__mem_drop; NULL: none, or freed already. */
struct symm_mem_hold *symm__mem_hold(const void *ptr);
const struct symm_mem *symm__mem_of(const struct symm_mem_hold *hold);
void symm__mem_drop(struct symm_mem_hold *hold); /* NULL is allowed */

#endif
