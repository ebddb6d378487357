/* SPDX-License-Identifier: MIT */
/*
 * multicast_proof.h - the proof that a team's multicast memory works: known data, summed and
 * stored by the switch. Between the steps all members must have done the one before. Uses
 * the stage of channel 0 and leaves zeros there; no call has been made on the team yet.
 */
#ifndef SYMM_CUDA_MULTICAST_PROOF_H
#define SYMM_CUDA_MULTICAST_PROOF_H

#include "symm/symm.h"

symm_status symm__cuda_multicast_write(symm_team *team) SYMM_MUST_CHECK;
symm_status symm__cuda_multicast_reduce(symm_team *team) SYMM_MUST_CHECK;
symm_status symm__cuda_multicast_verify(symm_team *team) SYMM_MUST_CHECK;

#endif
