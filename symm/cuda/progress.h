/* SPDX-License-Identifier: MIT */
/*
 * progress.h - shows tools how far the device is (SYMM_SIGHT=1). All but open and close with
 * launcher->lock held.
 */
#ifndef SYMM_CUDA_PROGRESS_H
#define SYMM_CUDA_PROGRESS_H

#include "cuda/launcher.h"

/* Failures are logged; then tools see less, and all else works. */
void symm__cuda_progress_open(struct symm_cuda_launcher *launcher);
void symm__cuda_progress_close(struct symm_cuda_launcher *launcher);
void symm__cuda_progress_poll(struct symm_cuda_launcher *launcher);
/* To be called when a team ends. Waits, for a second at most, until nothing of the team is read
 * any more. */
void symm__cuda_progress_forget(struct symm_cuda_launcher *launcher,
                                struct symm_cuda_team *cuda);

#endif
