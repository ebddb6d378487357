/* SPDX-License-Identifier: MIT */
/*
 * captured.h - calls that graphs have captured on memory that is not symmetric, between
 * symm_team_capture_begin and symm_team_capture_end.
 *
 * A captured call has an entry in device memory (struct symm_cuda_pointers), whose address the
 * graph keeps. A bracket is what lies between the two functions. At its end the members exchange
 * where the arrays of all its calls lie; then the entries get the addresses and become ready, on
 * all ranks or on none. The k-th call of a bracket on one rank is the k-th of each rank: its key,
 * made of bracket and k, is part of its tag, so that ranks which make different k-th calls find a
 * mismatch.
 *
 * Guarantees: an entry becomes ready once at most, and is never used for another call. Memory
 * of cuMemCreate and symm_mem_alloc lives from the capture on until it is released. A call is
 * unusable from symm__captured_release on, at the peers from the next bracket's end on.
 * Refuses: memory that peers cannot map. The process has a list of the teams that have captured
 * calls, for releases that name no team; a team leaves it before its device's part ends.
 */
#ifndef SYMM_CORE_CAPTURED_H
#define SYMM_CORE_CAPTURED_H

#include "core/captured_site.h"
#include "core/team.h"

struct symm_oob_message;

/* An array of a call that peers read or write; bytes 0: they do not. */
struct symm_captured_array {
    const void *ptr;
    size_t bytes;
};

/* ---- With team->channels locked ------------------------------------------------------- */

symm_status symm__captured_begin(symm_team *team) SYMM_MUST_CHECK;
/* One more call of the bracket: its entry, and its key. SYMM_ERR_NOMEM; any other error: peers
 * cannot map the memory. */
symm_status
symm__captured_add(symm_team *team, const struct symm_captured_site *site,
                   const struct symm_captured_array arrays[SYMM_CAPTURED_ARRAYS],
                   const struct symm_cuda_pointers **entry,
                   uint64_t *key) SYMM_MUST_CHECK;

/* ---- With the context locked: the end of a bracket, in this order ---------------------- */

/* The message to the members: bytes and descriptors, both arrays of malloc; the runs keep the
 * descriptors. why: this rank abandons the bracket; NULL: it does not. */
symm_status symm__captured_pack(symm_team *team, const char *why, void **bytes,
                                size_t *count, int **fds,
                                int *fds_count) SYMM_MUST_CHECK;
/* Compares the members' calls; the result is the same on all members: SYMM_ERR_MISMATCH names the
 * first call that differs, SYMM_ERR_ABORTED the first member that abandons the bracket. */
symm_status
symm__captured_compare(const symm_team *team,
                       const struct symm_oob_message *messages) SYMM_MUST_CHECK;
/* Maps what the members have sent. */
symm_status symm__captured_map(symm_team *team,
                               const struct symm_oob_message *messages) SYMM_MUST_CHECK;
/* Makes the calls ready, once all members could map. *ended: members have released memory that is
 * still mapped here; calls that use it may run. */
symm_status symm__captured_ready(symm_team *team,
                                 const struct symm_oob_message *messages,
                                 bool *ended) SYMM_MUST_CHECK;
/* Makes the bracket's calls unusable: not all members could map. */
void symm__captured_fail(symm_team *team);
/* Unmaps released memory, once the calls that may use it have ended. */
void symm__captured_sweep(symm_team *team);

/* At the team's end, before its device's part, and after it. */
void symm__captured_unlist(symm_team *team);
void symm__captured_close(symm_team *team);

/* ---- Without a lock -------------------------------------------------------------------- */

/* Makes calls unusable that use some of this memory of this rank, which will be freed. */
symm_status symm__captured_release(symm_team *team, const void *ptr,
                                   size_t bytes) SYMM_MUST_CHECK;
/* Calls visit(team, arg) for each team of the process that has captured calls. */
void symm__captured_each(void (*visit)(symm_team *team, void *arg), void *arg);
/* Why call `index` was refused: "captured call 3 of ... was replayed before ...". false: the list
 * is in use, call again. */
bool symm__captured_text(symm_team *team, size_t index, char *text, size_t bytes);

#endif
