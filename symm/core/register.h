/* SPDX-License-Identifier: MIT */
/*
 * register.h - memory of the caller that peers map: what buffer.c, segments.c and
 * memory/rendezvous.c see of cuda/register.c. Only the CUDA backend has it.
 */
#ifndef SYMM_CORE_REGISTER_H
#define SYMM_CORE_REGISTER_H

#include "core/context.h"

/* A registered buffer's offset, which it has for the manifest alone, begins here. */
#define SYMM_REGISTERED ((size_t)1 << 63)

/* With the context locked, all of these. Looks at the memory and makes the buffer. */
symm_status symm__register_add(symm_team *team, void *ptr, size_t bytes,
                               symm_buffer *buffer) SYMM_MUST_CHECK;
/* The buffer goes; what peers have mapped goes behind the next rendezvous. */
void symm__register_remove(symm_buffer *buffer);
/* What is new, as bytes and descriptors for the exchange: both of malloc, the descriptors
 * stay the registrations'. NULL and 0: nothing is. */
symm_status symm__register_pack(const symm_team *team, void **bytes, size_t *count,
                                int **fds, int *fds_count) SYMM_MUST_CHECK;
/* Maps what a member has sent. */
symm_status symm__register_map(symm_team *team, int member, const void *bytes,
                               size_t count, const int *fds,
                               int fds_count) SYMM_MUST_CHECK;
/* Has every member on this host sent each new registration of mine? */
symm_status symm__register_check(const symm_team *team) SYMM_MUST_CHECK;
void symm__register_undo(symm_team *team); /* a rank could not: mappings go */
void symm__register_done(symm_team *team); /* all could; what was removed goes */
void symm__register_close(symm_team *team);

void *symm__register_ptr(const symm_buffer *buffer, int peer); /* NULL: not mapped */

#endif
