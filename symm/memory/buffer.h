/* SPDX-License-Identifier: MIT */
/*
 * buffer.h - buffers, for what hands their memory to other libraries.
 */
#ifndef SYMM_MEMORY_BUFFER_H
#define SYMM_MEMORY_BUFFER_H

#include "core/team.h"

/* Hands the hold to `what`'s tensor. SYMM_ERR_INVALID: it is not the caller's. */
symm_status symm__buffer_export(symm_buffer *buffer, const char *what) SYMM_MUST_CHECK;
/* The end of an exported hold. */
void symm__buffer_return(symm_buffer *buffer);
/* The anonymous buffer that begins at this rank's address; NULL: none. */
symm_buffer *symm__buffer_at(symm_team *team, const void *ptr);

#endif
