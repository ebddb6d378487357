/* SPDX-License-Identifier: MIT */
/*
 * output.c - see output.h.
 */
#include "tools/common/output.h"

#include <errno.h>
#include <unistd.h>

int output_begin(struct output *output, const char *path)
{
    const int fd = symm__file_begin(&output->file, path);
    int error;

    if (fd < 0)
        return errno;
    output->stream = fdopen(fd, "w");
    if (output->stream)
        return 0;
    error = errno;
    (void)close(fd);
    return symm__file_end(&output->file, error);
}

int output_end(struct output *output, int error)
{
    if (error == 0 && (fflush(output->stream) != 0 || ferror(output->stream)))
        error = errno != 0 ? errno : EIO;
    if (fclose(output->stream) != 0 && error == 0)
        error = errno;
    return symm__file_end(&output->file, error);
}
