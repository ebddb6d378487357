/* SPDX-License-Identifier: MIT */
/* memory_room.h - whether the machine has memory for an allocation. */
#ifndef SYMM_UTIL_MEMORY_ROOM_H
#define SYMM_UTIL_MEMORY_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Whether `bytes` more can be allocated and leave the machine a rest, as far as the kernel tells;
 * true if it does not tell. false: *available is what there is. Limits of a control group are not
 * looked at. Sets no error.
 */
bool symm__memory_fits(size_t bytes, uint64_t *available);

#endif
