/* SPDX-License-Identifier: MIT */
/* file.c - see file.h. */
#include "perf/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "perf/job.h"
#include "tools/common/output.h"

static int refuse(const char *path, const char *flag, int error)
{
    if (!error)
        return PERF_RIGHT;
    fprintf(stderr, "symm-perf: %s: %s cannot be written: %s\n", flag, path,
            strerror(error));
    return PERF_REFUSED;
}

/* In a folder with the sticky bit another user's file cannot be replaced. */
static bool is_stuck(const char *path, const struct stat *is)
{
    const char *slash = strrchr(path, '/');
    size_t length = !slash ? 1 : slash == path ? 1 : (size_t)(slash - path);
    char *folder = strndup(slash ? path : ".", length);
    struct stat parent;
    bool stuck = folder && stat(folder, &parent) == 0 && (parent.st_mode & S_ISVTX) &&
                 geteuid() != 0 && parent.st_uid != geteuid() &&
                 is->st_uid != geteuid();

    free(folder);
    return stuck;
}

/* 0, or errno: can a file be made beside `path`? */
static int try_beside(const char *path)
{
    struct output output;
    int error = output_begin(&output, path);

    if (!error)
        (void)output_end(&output, ECANCELED);
    return error;
}

/* 0, or errno: can the target of `path` be opened? A pipe may get its reader later. */
static int try_special(const char *path)
{
    struct stat is;
    bool there = stat(path, &is) == 0;
    char *made;
    int fd;

    if (there && S_ISDIR(is.st_mode))
        return EISDIR;
    if (there && S_ISFIFO(is.st_mode))
        return access(path, W_OK) ? errno : 0;
    fd = open(path, O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    if (fd < 0)
        return errno;
    close(fd);
    /* a dangling link: open made its target */
    made = there ? NULL : realpath(path, NULL);
    if (made)
        unlink(made);
    free(made);
    return 0;
}

int perf_file_check(const char *path, const char *flag)
{
    struct stat is;

    if (lstat(path, &is) == 0 && !S_ISREG(is.st_mode))
        return refuse(path, flag, try_special(path));
    if (lstat(path, &is) == 0 && is_stuck(path, &is))
        return refuse(path, flag, EPERM);
    return refuse(path, flag, try_beside(path));
}

int perf_file_write(const char *path, const char *flag,
                    void (*write)(FILE *file, const void *arg), const void *arg)
{
    struct output output;
    int error = output_begin(&output, path);

    if (!error) {
        write(output.stream, arg);
        error = output_end(&output, 0);
    }
    return refuse(path, flag, error);
}
