/* SPDX-License-Identifier: MIT */
/*
 * log.c - the files of --log-dir.
 *
 * The directory is opened once, and every file is opened in it by name, so a directory that
 * is renamed or replaced later is not followed. Guarantees: symmrun writes to a regular file
 * of this user with one name, or to none; opening never waits. Refuses links, second names
 * of a file (hard links), pipes, devices, sockets, directories and files of other users. A
 * file is emptied only after these checks, so a refusal leaves everything as it was.
 */
#include "tools/symmrun/symmrun.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_NAME_BYTES 32

static void log_name(int rank, int which, char name[LOG_NAME_BYTES])
{
    snprintf(name, LOG_NAME_BYTES, "rank%d.%s", rank, which == 0 ? "out" : "err");
}

/*
 * A link in a folder that all may write to can be another user's. Only a link that was seen
 * to be this user's own, or root's, is followed: others cannot replace that one meanwhile.
 */
static const char *open_directory(const char *path, int *fd)
{
    struct stat is;
    int follow = O_NOFOLLOW;

    if (lstat(path, &is) == 0 && S_ISLNK(is.st_mode)) {
        if (is.st_uid != geteuid() && is.st_uid != 0)
            return "it is a link of another user";
        follow = 0;
    }
    *fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | follow);
    return *fd < 0 ? strerror(errno) : NULL;
}

bool symmrun_log_open_directory(struct symmrun *run)
{
    const char *path = run->options.log_dir, *wrong;

    if (!path)
        return true;
    if (mkdir(path, 0777) != 0 && errno != EEXIST) {
        symmrun_say(run, "cannot make the directory '%.700s': %s", path,
                    strerror(errno));
        return false;
    }
    wrong = open_directory(path, &run->log_dir);
    if (!wrong)
        return true;
    symmrun_say(run, "cannot use '%.700s' for --log-dir: %s", path, wrong);
    return false;
}

/* NULL: the file may be emptied and written. */
static const char *check_file(int fd)
{
    struct stat is;

    if (fstat(fd, &is) != 0)
        return strerror(errno);
    if (!S_ISREG(is.st_mode))
        return "it is there already and is no regular file";
    if (is.st_nlink != 1)
        return "it is there already and has a second name (hard link)";
    if (is.st_uid != geteuid())
        return "it is there already and belongs to another user";
    if (ftruncate(fd, 0) != 0 || fcntl(fd, F_SETFL, O_WRONLY | O_APPEND) != 0)
        return strerror(errno);
    return NULL;
}

static const char *open_error(int error)
{
    if (error == ELOOP)
        return "it is there already and is a symbolic link";
    if (error == ENXIO || error == ENODEV || error == EISDIR)
        return "it is there already and is no regular file";
    return strerror(error);
}

int symmrun_log_open(struct symmrun *run, int rank, int which)
{
    char name[LOG_NAME_BYTES];
    const char *wrong;
    int fd;

    log_name(rank, which, name);
    /* O_NONBLOCK: a pipe without a reader is an error instead of a wait. */
    fd = openat(run->log_dir, name,
                O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY |
                    O_CLOEXEC,
                0666);
    wrong = fd < 0 ? open_error(errno) : check_file(fd);
    if (!wrong)
        return fd;
    if (fd >= 0)
        close(fd);
    symmrun_say(run, "cannot start rank %d: %.700s/%s cannot be written: %s", rank,
                run->options.log_dir, name, wrong);
    return -1;
}

void symmrun_log_check(struct symmrun *run, int rank, int which)
{
    struct symmrun_stream *stream = &run->ranks[rank].streams[which];
    char name[LOG_NAME_BYTES];

    if (stream->log_error == 0)
        return;
    log_name(rank, which, name);
    symmrun_say(run, "rank %d: %.700s/%s is incomplete: %s", rank, run->options.log_dir,
                name, strerror(stream->log_error));
    stream->log_error = 0;
    run->lost = true;
}
