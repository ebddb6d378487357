/* SPDX-License-Identifier: MIT */
/*
 * file.h - files that symm-perf writes: whole or not at all.
 */
#ifndef PERF_FILE_H
#define PERF_FILE_H

#include <stdio.h>

/* Writes under another name beside `path`, then renames; a device, a pipe, or what a link
 * leads to is written to. A line on stderr names the flag that asked for the file. An exit status. */
int perf_file_write(const char *path, const char *flag,
                    void (*write)(FILE *file, const void *arg), const void *arg);

/*
 * Whether perf_file_write can write there now, found out by opening, without a change of
 * what is there. A disk that fills up later is not foreseen. An exit status, after the same
 * line on stderr.
 */
int perf_file_check(const char *path, const char *flag);

#endif
