/* SPDX-License-Identifier: MIT */
/*
 * request.h - a collective as the caller made it, and the check of its arguments.
 *
 * Refuses unknown types, sizes that overflow, NULL and unaligned pointers, ranges that leave
 * their buffer or that the device does not reach, and overlap that is not what in place means.
 */
#ifndef SYMM_CALL_REQUEST_H
#define SYMM_CALL_REQUEST_H

#include "core/team.h"

/* A call as the caller made it. */
struct symm_request {
    enum symm_kind kind;
    const void *in;
    void *out;
    size_t count;
    symm_dtype dtype;
    symm_op op;
    int root;
    /* all_reduce_norm; `out` may be NULL then: no output takes sums */
    const symm_norm *norm;
};

/* The results of symm__request_check. */
struct symm_checked {
    size_t bytes; /* of one rank's block */
    bool overlap, in_symmetric, out_symmetric;
    size_t in_offset, out_offset; /* in the heap, where they are symmetric */
};

/* How many elements of in and out a rank touches, in units of count. */
size_t symm__request_in_blocks(const struct symm_request *rq, int size);
size_t symm__request_out_blocks(const struct symm_request *rq, int size);
bool symm__request_reads(const symm_team *team, const struct symm_request *rq);
/* Types, sizes, pointers, overlap; then where the pointers lie, which select.h needs. */
symm_status symm__request_check(symm_team *team, const struct symm_request *rq,
                                struct symm_checked *checked) SYMM_MUST_CHECK;

#endif
