/* SPDX-License-Identifier: MIT */
/* captured_site.h - a captured call without its memory; equal on all ranks. */
#ifndef SYMM_CORE_CAPTURED_SITE_H
#define SYMM_CORE_CAPTURED_SITE_H

#include <stdint.h>

/* What the ranks compare of a call. No padding. */
struct symm_captured_site {
    uint64_t count;
    int32_t root;
    uint8_t kind, dtype, op, algorithm;
};

/* Its arrays. */
enum { SYMM_CAPTURED_IN, SYMM_CAPTURED_OUT, SYMM_CAPTURED_ARRAYS };

#endif
