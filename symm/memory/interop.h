/* SPDX-License-Identifier: MIT */
/* interop.h - what the runtime calls of interop.c. */
#ifndef SYMM_MEMORY_INTEROP_H
#define SYMM_MEMORY_INTEROP_H

#include "symm/symm.h"

/* PyTorch's functions find the team no longer; false: it was not bound. */
bool symm__interop_forget(const symm_team *team);

#endif
