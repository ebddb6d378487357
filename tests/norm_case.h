/* SPDX-License-Identifier: MIT */
/*
 * norm_case.h - random all_reduce_norm calls whose results are checked: for ranks on any backend.
 *
 * A case is drawn from its number, alike on all ranks; what ranks may do differently (alignment,
 * private memory) is drawn from the rank, too. Arrays lie in one block of memory that the caller
 * gives: of the host, or of a device that the host can reach (the fake driver's).
 */
#ifndef SYMM_TESTS_NORM_CASE_H
#define SYMM_TESTS_NORM_CASE_H

#include "symm/norm.h"

#define NORM_CASE_BYTES                                                                \
    ((size_t)12 << 20) /* of the block, for cases up to NORM_CASE_ELEMENTS */
#define NORM_CASE_ELEMENTS 200000

struct norm_case {
    symm_norm norm;      /* the call's, with pointers into the block */
    size_t rows, hidden; /* drawn */
    bool in_place, residual_in_place;
    uint64_t number, seed;
    char text[320]; /* of norm_case_check, about the first wrong result */
};

/* Draws case `number` and fills this rank's inputs. shift: bytes by which arrays are moved, a
 * multiple of 4 below 64. most: elements of the rows, at most. */
void norm_case_draw(struct norm_case *c, uint64_t number, size_t most, int rank,
                    size_t shift, char *block);
/* How many results are wrong after the call; c->text is about the first one. */
size_t norm_case_check(struct norm_case *c, int ranks);

#endif
