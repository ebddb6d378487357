/* SPDX-License-Identifier: MIT */
/*
 * segments.h - a team's memory: commits this rank's, shares it, maps the peers'.
 */
#ifndef SYMM_CORE_SEGMENTS_H
#define SYMM_CORE_SEGMENTS_H

#include "core/team.h"

/* Commits own memory so that it reaches `end` (an offset in the heap). */
symm_status symm__memory_grow(symm_team *team, size_t end) SYMM_MUST_CHECK;
/*
 * Shares all new segments: what the ranks send is `digest` (compared by the caller through
 * `agree`, which sees every rank's) and one descriptor a segment. Nothing is mapped unless
 * agree returns SYMM_OK. `mine`: a failure of this rank before this step, reported to all.
 * Collective.
 */
typedef symm_status (*symm_agree_fn)(symm_team *team, const uint64_t *digests);
symm_status symm__memory_share(symm_team *team, const char *what, double timeout,
                               symm_status mine, uint64_t digest,
                               symm_agree_fn agree) SYMM_MUST_CHECK;
void symm__memory_release(
    symm_team *team); /* all of the team's memory, own and peers' */
size_t symm__memory_committed(const symm_team *team); /* own end */
/* arg: the context. Bytes of all its teams; false: it is locked. info.c */
bool symm__heap_usage(void *arg, uint64_t *used, uint64_t *committed);

#endif
