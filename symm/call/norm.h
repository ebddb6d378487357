/* SPDX-License-Identifier: MIT */
/*
 * norm.h - what a collective asks of an all_reduce_norm: the check of its arguments, what ranks
 * compare of them, and its arrays.
 */
#ifndef SYMM_CALL_NORM_H
#define SYMM_CALL_NORM_H

#include "core/team.h"
#include "symm/record_kinds.h"

/* Checks types, sizes, and the arrays beside rq->in and rq->out: they are aligned, within their
 * buffers, reached by the device, and overlap only where an output is `in` or residual_in
 * itself. */
symm_status symm__norm_check(symm_team *team, const symm_norm *norm) SYMM_MUST_CHECK;
/* Writes to a site what ranks must agree on beside rows and dtype. */
void symm__norm_site(const symm_norm *norm, struct symm_site *site);
struct symm_norm_array {
    symm_record_array name;
    const void *at;
    size_t bytes;
};
/* Fills in the arrays that the call reads or, `written`, writes, `in` first; returns how many they
 * are. */
#define SYMM_NORM_SIDE 5
int symm__norm_arrays(const symm_norm *norm, bool written,
                      struct symm_norm_array side[SYMM_NORM_SIDE]);
/* Whether every partial sum is rounded, which only sums in rank order can do. */
bool symm__norm_partial(const symm_norm *norm, int size);

#endif
