/* SPDX-License-Identifier: MIT */
/*
 * registered.h - memory of the caller that is mapped into all peers (symm_buffer_register).
 *
 * A registration is a buffer whose memory is a part of a run: allocations side by side, which
 * only the backend can pass on. Peers map whole runs, each once for all registrations that lie in
 * it, of all teams.
 *
 * Guarantees: memory of symm_mem_alloc, and of cuMemCreate, lives while it is registered, even if
 * the caller frees it. A registration that has ended stays mapped at the peers until the team's
 * next rendezvous, or its end; each rank waits for its calls in flight before it unmaps. Which
 * registrations have ended may differ between ranks: a rendezvous compares only the new ones.
 * Refuses: memory of the heap, memory that the backend cannot pass on, and, where ranks are
 * threads, runs by token.
 */
#ifndef SYMM_CORE_REGISTERED_H
#define SYMM_CORE_REGISTERED_H

#include "core/team.h"

/* A registered buffer's offset, which it has for the order in its team alone, begins here. */
#define SYMM_REGISTERED ((size_t)1 << 63)

/* ---- With the context locked ---------------------------------------------------------- */

/* Looks at the memory and fills the buffer's registration and offset. */
symm_status symm__registered_add(symm_team *team, void *ptr, size_t bytes,
                                 symm_buffer *buffer) SYMM_MUST_CHECK;
/* Ends the registration; what peers have mapped stays until the next rendezvous. */
void symm__registered_remove(symm_buffer *buffer);
/* Is the registration new for the team's next rendezvous? */
bool symm__registered_is_new(const symm_buffer *buffer);
/* Packs the registrations that members do not have yet, as bytes and descriptors for the exchange.
 * The caller frees both arrays; the registrations keep the descriptors. NULL and 0: there are
 * none. */
symm_status symm__registered_pack(const symm_team *team, void **bytes, size_t *count,
                                  int **fds, int *fds_count) SYMM_MUST_CHECK;
/* Maps what a member has sent. */
symm_status symm__registered_map(symm_team *team, int member, const void *bytes,
                                 size_t count, const int *fds,
                                 int fds_count) SYMM_MUST_CHECK;
/* Has every member on this host sent its part of each new registration of this rank? */
symm_status symm__registered_check(const symm_team *team) SYMM_MUST_CHECK;
void symm__registered_undo(symm_team *team); /* a rank could not map: unmaps */
void symm__registered_done(symm_team *team); /* all could map; frees what has ended */
void symm__registered_close(symm_team *team);

/* ---- Without a lock -------------------------------------------------------------------- */

/* Waits for calls that may use ended registrations, for the next symm__registered_done. It takes
 * as long as the calls do, each of which has a deadline. */
void symm__registered_settle(symm_team *team);
/* The buffer's address at a member; NULL: not mapped. */
void *symm__registered_ptr(const symm_buffer *buffer, int peer);
/* Is [ptr, ptr + bytes) registered memory of this rank? Then the peer's address. */
bool symm__registered_peer(symm_team *team, const void *ptr, size_t bytes, int peer,
                           void **theirs);

#endif
