/* SPDX-License-Identifier: MIT */
/*
 * file.c - see file.h.
 */
#include "util/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BESIDE_ROOM   16   /* for ".new" and a number after a path */
#define BESIDE_NUMBER 1000 /* names that are tried before EEXIST is an error */

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

int symm__file_begin(struct symm_file *file, const char *path)
{
    struct stat is;
    int fd;

    *file = (struct symm_file){.path = path};
    if (lstat(path, &is) == 0 && !S_ISREG(is.st_mode))
        return open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666);
    file->beside = malloc(strlen(path) + BESIDE_ROOM);
    if (!file->beside)
        return -1;
    fd = open_beside(path, file->beside);
    if (fd < 0) {
        int error = errno;

        free(file->beside);
        errno = error;
    }
    return fd;
}

int symm__file_end(struct symm_file *file, int error)
{
    if (!file->beside)
        return error;
    if (error == 0 && rename(file->beside, file->path) != 0)
        error = errno;
    if (error != 0)
        (void)unlink(file->beside);
    free(file->beside);
    file->beside = NULL;
    return error;
}
