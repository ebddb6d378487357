/* SPDX-License-Identifier: MIT */
/* error_unpaired.h - the failure of a call whose peers have made another one on streams that are not
 * paired with any of this rank's: streams pair by equal first calls. */
#ifndef SYMM_CUDA_ERROR_UNPAIRED_H
#define SYMM_CUDA_ERROR_UNPAIRED_H

#include "cuda/error_facts.h"

/*
 * After a deadline: fails the team if a missing member is at such a call. SYMM_ERR_MISMATCH if it
 * is another call of the same site, or the same call on another named channel, so that the ranks
 * differ in what they ask for there; SYMM_ERR_TIMEOUT, naming both calls, if the member may only be
 * late. SYMM_OK: there is none.
 */
symm_status symm__cuda_report_unpaired(symm_team *team,
                                       const struct symm_cuda_facts *facts);

#endif
