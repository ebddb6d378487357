/* SPDX-License-Identifier: MIT */
/*
 * file_name.h - names of files that each rank writes: %r is the rank, %p the process, %% a %.
 */
#ifndef SYMM_UTIL_FILE_NAME_H
#define SYMM_UTIL_FILE_NAME_H

#include <stdbool.h>
#include <stddef.h>

/* rank < 0: not known, "none". False if the name does not fit. */
bool symm__file_name(const char *pattern, int rank, char *path, size_t bytes);
/* Whether the names of two ranks differ. */
bool symm__file_name_varies(const char *pattern);

#endif
