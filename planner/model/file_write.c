/* SPDX-License-Identifier: MIT */
/*
 * file_write.c - files of programs and plans, whole or not there.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "model/program_private.h"
#include "util/file.h"
#include "util/status.h"

static symm_status write_text(const char *path, const char *text, size_t length)
{
    struct symm_file file;
    const int fd = symm__file_begin(&file, path);
    int error;

    if (fd < 0)
        return symm__fail_errno(SYMM_ERR_SYSTEM, errno, "%s: cannot be created", path);
    error = symm__write_all(fd, text, length);
    if (close(fd) != 0 && error == 0)
        error = errno;
    error = symm__file_end(&file, error);
    if (error != 0)
        return symm__fail_errno(SYMM_ERR_SYSTEM, error, "%s: cannot be written", path);
    return SYMM_OK;
}

symm_status symm__file_write(const char *path, char *text, size_t length)
{
    const symm_status status = write_text(path, text, length);

    free(text);
    return status;
}
