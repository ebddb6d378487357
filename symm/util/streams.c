/* SPDX-License-Identifier: MIT */
/* streams.c - see streams.h. */
#include "util/streams.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

void symm__streams_guard(void)
{
    const int error = errno;

    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        int guard;

        if (dup2(fd, fd) >= 0) /* it is open */
            continue;
        guard = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (guard > STDERR_FILENO) /* another thread was faster */
            close(guard);
    }
    errno = error;
}
