/* SPDX-License-Identifier: MIT */
/* interop.h - what the runtime calls of interop.c. */
#ifndef SYMM_MEMORY_INTEROP_H
#define SYMM_MEMORY_INTEROP_H

#include "symm/symm.h"

/* Unbinds the team from PyTorch's functions; false: it was not bound. */
bool symm__interop_forget(const symm_team *team);

#endif
