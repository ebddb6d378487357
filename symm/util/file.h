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
/* A file that is whole or as it was: it is written beside its place, then renamed. A device, a pipe
 * and a link (/dev/stdout) are written to: a rename would replace them. */
struct symm_file {
    const char *path;
    char *beside; /* NULL: written in place */
};
/* A descriptor that the caller writes and closes, or -1: errno, and there is nothing to end. */
int symm__file_begin(struct symm_file *file, const char *path);
/* Puts the closed file in its place or, after an error (an errno), removes it. Returns 0 or an
 * errno. */
int symm__file_end(struct symm_file *file, int error);

#endif
