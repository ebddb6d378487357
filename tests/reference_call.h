/* SPDX-License-Identifier: MIT */
/*
 * reference_call.h - one collective call as a test case: makes it by its kind, and computes
 * its expected result.
 */
#ifndef SYMM_TESTS_REFERENCE_CALL_H
#define SYMM_TESTS_REFERENCE_CALL_H

#include "reference.h"

enum kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, ALL_TO_ALL, KINDS };
extern const char *const kind_names[KINDS];

struct reference_call {
    enum kind kind;
    symm_dtype dtype;
    symm_op op;
    size_t count; /* elements, the call's argument */
    int root;
    uint32_t seed; /* of the inputs: reference_fill */
};

/* Blocks of `count` elements in a rank's input or output, of n ranks. */
size_t reference_in_blocks(enum kind kind, int n);
size_t reference_out_blocks(enum kind kind, int n);
/* Writes the rank's expected output to `out`. */
void reference_expect(const struct reference_call *c, int n, int rank, char *out);
symm_status reference_invoke(const struct reference_call *c, symm_team *team,
                             const void *in, void *out, const symm_call *call,
                             symm_work **work);

#endif
