/* SPDX-License-Identifier: MIT */
/*
 * backend.h - the CUDA backend, for setup. No CUDA type appears here, so that builds without a
 * toolkit can include it: there `count` and `open` say that the build has no such backend.
 *
 * A rank drives one device with that device's primary context. The backend's functions may be
 * called from any thread: they push the context and pop it again.
 */
#ifndef SYMM_CUDA_BACKEND_H
#define SYMM_CUDA_BACKEND_H

#include "core/backend.h"

extern const struct symm_backend_ops symm__backend_cuda;

/* As `open`, for the device of that ordinal. For report.c: not in a build without CUDA. */
symm_status symm__cuda_open_device(int ordinal,
                                   struct symm_backend **backend) SYMM_MUST_CHECK;

#endif
