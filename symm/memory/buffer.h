/* SPDX-License-Identifier: MIT */
/*
 * buffer.h - buffers, for the files that pass their memory to other libraries.
 */
#ifndef SYMM_MEMORY_BUFFER_H
#define SYMM_MEMORY_BUFFER_H

#include "core/team.h"

/* Passes the hold to a tensor. `what`: the function, for errors. SYMM_ERR_INVALID: the caller has
 * no hold. */
symm_status symm__buffer_export(symm_buffer *buffer, const char *what) SYMM_MUST_CHECK;
/* Ends an exported hold. */
void symm__buffer_return(symm_buffer *buffer);
/* The anonymous buffer that begins at this rank's address; NULL: none. */
symm_buffer *symm__buffer_at(symm_team *team, const void *ptr);

#endif
