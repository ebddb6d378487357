/* SPDX-License-Identifier: MIT */
/*
 * file.h - writes descriptors, and files that are whole or not there.
 */
#ifndef SYMM_UTIL_FILE_H
#define SYMM_UTIL_FILE_H

#include <stddef.h>
#include <sys/types.h>

/* write(2), again after EINTR, whose SIGPIPE or SIGXFSZ the program does not see: EPIPE, or EFBIG
 * beyond RLIMIT_FSIZE, is an error and no more. */
ssize_t symm__write_quietly(int fd, const void *data, size_t bytes);
/* Writes all of it, quietly. Returns 0 or an errno. */
int symm__write_all(int fd, const void *data, size_t bytes);
/* Ends a file that was written beside its place, so that `path` is whole or as it was: closes fd,
 * and renames the file or, after an error (an errno), removes it. Returns 0 or an errno. */
int symm__file_finish(int fd, int error, const char *beside, const char *path);

#endif
