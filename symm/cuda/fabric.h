/* SPDX-License-Identifier: MIT */
/*
 * fabric.h - memory that ranks of other hosts map, in an NVLink domain wider than a host: the
 * slots of struct symm_fabric_ops (core/backend.h).
 *
 * A handle of 64 bytes (CUmemFabricHandle) takes the place of a descriptor. It owns nothing: it
 * can be imported as long as the memory lives at its owner. Memory made with a handle also keeps
 * its descriptor, which ranks of the same host use.
 */
#ifndef SYMM_CUDA_FABRIC_H
#define SYMM_CUDA_FABRIC_H

#include "cuda/device.h"

extern const struct symm_fabric_ops symm__cuda_fabric;

/* Tries what a device can do alone, for the report: makes memory, exports it, imports it again
 * and reads it back. On error *step says at which step. */
symm_status symm__cuda_fabric_try(struct symm_backend *backend, const char **step,
                                  CUresult *result) SYMM_MUST_CHECK;

#endif
