/* SPDX-License-Identifier: MIT */
/*
 * team_object.h - makes a team and ends it: memory, pad, channels, what its backend and its
 * engine need. The caller decides which ranks are members (team.c, team_shrink.c).
 *
 * The world's range is the first half of the heap. The second half is cut into ranges of
 * team_bytes; a team's slot (the index of its records in control pages) names its range.
 */
#ifndef SYMM_SETUP_TEAM_OBJECT_H
#define SYMM_SETUP_TEAM_OBJECT_H

#include "core/slots.h"
#include "core/team.h"

/* An object for up to `most` ranks, without memory or a place in the heap. */
symm_status symm__team_alloc(symm_ctx *ctx, int most, symm_team **team) SYMM_MUST_CHECK;
/* Gives the team its place and opens it with its members: the first `size` of made->world_rank,
 * which the caller has set. Collective; with the context locked. On error the caller frees it. */
symm_status symm__team_complete(symm_team *made, uint32_t uid, int slot, int size,
                                double timeout) SYMM_MUST_CHECK;
/* The first step of symm__team_complete, in which no peer takes part: who the members are, where
 * they are, and the team's range. On error the caller frees it. */
symm_status symm__team_tables(symm_team *team, uint32_t uid, int slot,
                              int size) SYMM_MUST_CHECK;
/* Identifier of a child of `parent`; (step, part) is unique among its children. The parts of a
 * split are its colours, which are below all others: */
#define SYMM_PART_SHRUNK  0x80000000u
#define SYMM_PART_CREATED 0x80000001u /* and the world rank whose number the step is */
uint32_t symm__team_uid(const symm_team *parent, uint32_t step, uint32_t part);
struct symm_slots symm__team_slots(const symm_ctx *ctx); /* that are taken here */
/* The lowest that is not taken on any of `size` ranks; SYMM_ERR_NOMEM. */
symm_status symm__team_slot(const symm_ctx *ctx, const struct symm_slots *taken,
                            int size, int *slot) SYMM_MUST_CHECK;

void symm__team_free(symm_team *team);

/* World team at init; pads of all ranks are mapped on return. before: the tag of the exchange
 * that led to this one. `mine`: a failure of this rank before this step, reported to all.
 * Collective. */
symm_status symm__team_create_world(symm_ctx *ctx, uint64_t before, symm_status mine,
                                    double timeout) SYMM_MUST_CHECK;

#endif
