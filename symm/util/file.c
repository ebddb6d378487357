/* SPDX-License-Identifier: MIT */
/*
 * file.c - see file.h.
 */
#include "util/file.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

ssize_t symm__write_quietly(int fd, const void *data, size_t bytes)
{
    const struct timespec now = {0, 0};
    sigset_t ours, raised, before, pending;
    ssize_t written;
    int error;

    sigemptyset(&ours);
    sigaddset(&ours, SIGPIPE);
    sigaddset(&ours, SIGXFSZ);
    error = pthread_sigmask(SIG_BLOCK, &ours, &before);
    if (error != 0) {
        errno = error;
        return -1;
    }
    sigpending(&pending);
    do {
        written = write(fd, data, bytes);
    } while (written < 0 && errno == EINTR);
    error = errno;
    /* A signal that was pending before belongs to the program and stays pending. write(2) may
     * return a count and raise SIGPIPE: the reader of a pipe has left after a part of the data. */
    raised = ours;
    if (sigismember(&pending, SIGPIPE))
        sigdelset(&raised, SIGPIPE);
    if (sigismember(&pending, SIGXFSZ))
        sigdelset(&raised, SIGXFSZ);
    if (written < 0 ? error == EPIPE || error == EFBIG : (size_t)written < bytes)
        while (sigtimedwait(&raised, NULL, &now) < 0 && errno == EINTR)
            ;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return written;
}

int symm__write_all(int fd, const void *data, size_t bytes)
{
    const char *at = data;

    while (bytes > 0) {
        ssize_t wrote = symm__write_quietly(fd, at, bytes);

        if (wrote == 0)
            return EIO;
        if (wrote < 0)
            return errno;
        at += wrote;
        bytes -= (size_t)wrote;
    }
    return 0;
}

int symm__file_finish(int fd, int error, const char *beside, const char *path)
{
    if (close(fd) != 0 && error == 0)
        error = errno;
    if (error == 0 && rename(beside, path) != 0)
        error = errno;
    if (error != 0)
        (void)unlink(beside);
    return error;
}
