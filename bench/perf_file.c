/* SPDX-License-Identifier: MIT */
/* perf_file.c - see perf_file.h. */
#include "perf_file.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "perf_job.h"

/* 0, or errno. */
static int write_to(FILE *file, bool special,
                    void (*write)(FILE *file, const void *arg), const void *arg)
{
    int error;

    write(file, arg);
    error =
        ferror(file) || fflush(file) || (!special && fsync(fileno(file))) ? errno : 0;
    if (fclose(file) && !error)
        error = errno;
    return error;
}

int perf_file_write(const char *path, const char *flag,
                    void (*write)(FILE *file, const void *arg), const void *arg)
{
    struct stat is;
    bool special = lstat(path, &is) == 0 && !S_ISREG(is.st_mode); /* links, too */
    size_t bytes = strlen(path) + 16;
    char *fresh = malloc(bytes);
    FILE *file = NULL;
    int error = ENOMEM;

    if (fresh) {
        if (special)
            snprintf(fresh, bytes, "%s", path);
        else
            snprintf(fresh, bytes, "%s.%d", path, (int)getpid());
        file = fopen(fresh, "we");
        error = errno;
    }
    if (file) {
        error = write_to(file, special, write, arg);
        if (!error && !special && rename(fresh, path))
            error = errno;
        if (error && !special)
            unlink(fresh);
    }
    free(fresh);
    if (error)
        fprintf(stderr, "symm-perf: %s: %s cannot be written: %s\n", flag, path,
                strerror(error));
    return error ? PERF_REFUSED : PERF_RIGHT;
}
