/* SPDX-License-Identifier: MIT */
/*
 * file_write.c - files of programs and plans. A file is written beside its place and renamed,
 * so it is whole or not there.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/program_private.h"
#include "util/file.h"
#include "util/status.h"

#define BESIDE_ROOM   16   /* for ".new" and a number after a path */
#define BESIDE_NUMBER 1000 /* names that are tried before EEXIST is an error */

/* Opens a file that was not there, under a name that starts with the path. -1: errno. */
static int open_beside(const char *path, char *beside)
{
    const size_t room = strlen(path) + BESIDE_ROOM;
    int fd = -1;

    snprintf(beside, room, "%s.new", path);
    for (int i = 1; i <= BESIDE_NUMBER; i++) {
        fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST)
            break;
        snprintf(beside, room, "%s.new%d", path, i);
    }
    return fd;
}

/* A device, a pipe or a link (/dev/stdout) is written to; only a file is replaced. */
static symm_status write_beside(const char *path, char *beside, const char *text,
                                size_t length)
{
    struct stat is;
    bool special = lstat(path, &is) == 0 && !S_ISREG(is.st_mode);
    int fd = special ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)
                     : open_beside(path, beside);
    int error;

    if (fd < 0)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno, "%s: cannot be created", path);
    error = symm__write_all(fd, text, length);
    if (!special)
        error = symm__file_finish(fd, error, beside, path);
    else if (close(fd) != 0 && error == 0)
        error = errno;
    if (error != 0)
        return symm__fail_errno(SYMM_ERR_SYSTEM, error, "%s: cannot be written", path);
    return SYMM_OK;
}

symm_status symm__file_write(const char *path, char *text, size_t length)
{
    char *beside = malloc(strlen(path) + BESIDE_ROOM);
    const symm_status status =
        beside ? write_beside(path, beside, text, length)
               : symm__fail(SYMM_ERR_NOMEM, "%s: memory is exhausted", path);

    free(beside);
    free(text);
    return status;
}
