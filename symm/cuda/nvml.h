/* SPDX-License-Identifier: MIT */
/*
 * nvml.h - which NVLink domain a device is in, as NVML says.
 *
 * NVML (libnvidia-ml.so.1) is part of the driver. It is loaded at the first query; its struct is
 * declared here, so the build needs no header of it.
 */
#ifndef SYMM_CUDA_NVML_H
#define SYMM_CUDA_NVML_H

#include "core/backend.h"

/* bus: of the device, as the driver names it. SYMM_ERR_UNSUPPORTED: the device is in no domain over
 * hosts, or is not yet; the sentence says which. */
symm_status symm__nvml_clique(const char *bus,
                              struct symm_clique *clique) SYMM_MUST_CHECK;

#endif
