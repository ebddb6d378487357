/* SPDX-License-Identifier: MIT */
/*
 * output.c - see output.h.
 */
#include "tools/common/output.h"

#include <errno.h>
#include <unistd.h>

#include "tools/common/args.h"

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
    if (error == 0)
        error = args_stream_error(output->stream);
    if (fclose(output->stream) != 0 && error == 0)
        error = errno;
    return symm__file_end(&output->file, error);
}
