/* SPDX-License-Identifier: MIT */
/* memory_room.h - whether an allocation has room: on the machine, and in the process's limits. */
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

/*
 * Whether a file, also one in memory, may have so many bytes (RLIMIT_FSIZE). false: *limit is the
 * most. Beyond it the kernel sends SIGXFSZ, whose default action ends the process, instead of an
 * error alone. Sets no error.
 */
bool symm__file_size_fits(size_t bytes, uint64_t *limit);

#endif
