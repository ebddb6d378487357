/* SPDX-License-Identifier: MIT */
/*
 * rank_text.h - what error sentences say of other ranks: their numbers and statuses.
 *
 * Each rank of a list is written as "rank N", so that a search for one of them finds
 * it: "rank 2", "rank 2, rank 5 and rank 7". What does not fit is counted: "rank 1 and
 * 40 more".
 */
#ifndef SYMM_UTIL_RANK_TEXT_H
#define SYMM_UTIL_RANK_TEXT_H

#include "symm/symm.h"

/* Always ends in a NUL; bytes >= 32. */
void symm__ranks_text(const int *ranks, int count, char *text, size_t bytes);
/* The error status that a peer sent; SYMM_ERR_ABORTED for a number that is no error status. */
symm_status symm__peer_status(int32_t status);

#endif
