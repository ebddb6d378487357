/* SPDX-License-Identifier: MIT */
/*
 * runtime.c - the private directory in which the ranks of a job connect.
 *
 * The library's default, symm-<uid> in /tmp, has a name that every user of the machine can
 * take first. symmrun makes a directory with a random name and mode 0700, in XDG_RUNTIME_DIR
 * if that is this user's, else in /tmp, and passes it on as SYMM_RUNTIME_DIR. It is removed
 * with the sockets in it when the job ends, by the reaper when symmrun is killed.
 *
 * If both are killed, the directory stays. Its owner holds a lock (flock) on it, so the next
 * symmrun of this user finds the directories whose owner has died, and removes them.
 */
#include "tools/symmrun/symmrun.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define SWEEP_MAX   4096 /* names in the base directory that one sweep reads */
#define MAKE_TRIES  10
#define RANDOM_PART "XXXXXX"
/* What the library appends, "/symm-<uid>/<32 digits>", fits a socket's address with this. */
#define BASE_MAX 32

/* Removes the sockets, then the directories that are empty. */
static void remove_tree(int base, const char *name)
{
    char run[32];
    int outer = openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int inner = -1;
    DIR *list;

    if (outer < 0)
        return;
    snprintf(run, sizeof(run), "symm-%u", (unsigned)geteuid());
    inner = openat(outer, run, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    list = inner >= 0 ? fdopendir(inner) : NULL;
    for (const struct dirent *entry; list && (entry = readdir(list));) {
        if (entry->d_name[0] != '.')
            (void)unlinkat(inner, entry->d_name, 0);
    }
    if (list)
        closedir(list);
    else if (inner >= 0)
        close(inner);
    (void)unlinkat(outer, run, AT_REMOVEDIR);
    close(outer);
    (void)unlinkat(base, name, AT_REMOVEDIR);
}

/* The descriptor of a directory of this user's that has mode 0700, locked; -1: none. */
static int lock_own(int base, const char *name)
{
    int fd = openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat is;

    if (fd >= 0 && fstat(fd, &is) == 0 && is.st_uid == geteuid() &&
        (is.st_mode & 0777) == 0700 && is.st_nlink > 0 &&
        flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static void sweep(int base, const char *prefix)
{
    int fd = openat(base, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    const size_t length = strlen(prefix);

    if (!list) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (int i = 0; i < SWEEP_MAX; i++) {
        const struct dirent *entry = readdir(list);
        int lock;

        if (!entry)
            break;
        if (strncmp(entry->d_name, prefix, length) != 0 ||
            strlen(entry->d_name) != length + strlen(RANDOM_PART))
            continue;
        lock = lock_own(base, entry->d_name);
        if (lock < 0)
            continue;
        remove_tree(base, entry->d_name);
        close(lock);
    }
    closedir(list);
}

/* One directory, made and locked. A sweep can remove it in between: then another try. */
static bool make_in(struct symmrun_runtime *runtime, const char *path)
{
    char prefix[32];
    int base = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat is;

    if (base < 0)
        return false;
    snprintf(prefix, sizeof(prefix), "symmrun-%u-", (unsigned)geteuid());
    sweep(base, prefix);
    for (int i = 0; i < MAKE_TRIES && runtime->lock < 0; i++) {
        snprintf(runtime->path, sizeof(runtime->path), "%s/%s" RANDOM_PART, path,
                 prefix);
        if (!mkdtemp(runtime->path))
            break;
        (void)chmod(runtime->path, 0700); /* the umask may keep the owner out */
        runtime->lock = lock_own(base, strrchr(runtime->path, '/') + 1);
        if (runtime->lock >= 0 && lstat(runtime->path, &is) != 0) {
            close(runtime->lock);
            runtime->lock = -1;
        }
        if (runtime->lock < 0) /* no descriptor */
            (void)rmdir(runtime->path);
    }
    close(base);
    if (runtime->lock < 0)
        runtime->path[0] = '\0';
    return runtime->lock >= 0;
}

void symmrun_runtime_make(struct symmrun_runtime *runtime)
{
    const char *given = getenv("SYMM_RUNTIME_DIR");
    const char *login = secure_getenv("XDG_RUNTIME_DIR");
    struct stat is;

    *runtime = (struct symmrun_runtime){.lock = -1};
    if (given && *given)
        return;
    /* A variable that another user's login has left is common. */
    if (login && login[0] == '/' && strlen(login) <= BASE_MAX &&
        stat(login, &is) == 0 && S_ISDIR(is.st_mode) && is.st_uid == geteuid() &&
        make_in(runtime, login))
        return;
    (void)make_in(runtime, "/tmp");
}

void symmrun_runtime_remove(struct symmrun_runtime *runtime)
{
    if (runtime->path[0] != '\0')
        remove_tree(AT_FDCWD, runtime->path);
    if (runtime->lock >= 0)
        close(runtime->lock);
    *runtime = (struct symmrun_runtime){.lock = -1};
}
