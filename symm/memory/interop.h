/* SPDX-License-Identifier: MIT */
/* interop.h - what the runtime calls of interop.c. */
#ifndef SYMM_MEMORY_INTEROP_H
#define SYMM_MEMORY_INTEROP_H

#include "symm/symm.h"

/* The team goes: PyTorch's functions no longer find it. */
void symm__interop_forget(const symm_team *team);

#endif
