/* SPDX-License-Identifier: MIT */
/*
 * random.h - bytes that no other process can foresee: keys, secrets, nonces.
 */
#ifndef SYMM_UTIL_RANDOM_H
#define SYMM_UTIL_RANDOM_H

#include "symm/symm.h"

/* Up to 256 bytes. SYMM_ERR_SYSTEM if the kernel gives none. */
symm_status symm__random(void *bytes, size_t count) SYMM_MUST_CHECK;

#endif
