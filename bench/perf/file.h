/* SPDX-License-Identifier: MIT */
/*
 * file.h - writes files of symm-perf whole or not at all.
 */
#ifndef PERF_FILE_H
#define PERF_FILE_H

#include <stdio.h>

/* Writes under a temporary name beside `path`, then renames it; a device, a pipe or the
 * target of a link is written in place. An exit status, after a message that names `flag`. */
int perf_file_write(const char *path, const char *flag,
                    void (*write)(FILE *file, const void *arg), const void *arg);

/*
 * Whether perf_file_write can write to `path` now: opens it, changes nothing. It cannot
 * foresee that the disk fills up later. An exit status, after the same message.
 */
int perf_file_check(const char *path, const char *flag);

#endif
