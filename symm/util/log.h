/* SPDX-License-Identifier: MIT */
/*
 * log.h - one line, one write(2). Levels by SYMM_LOG (default "warn"): error, warn, info,
 * debug. SYMM_LOG_FILE takes %r (rank) and %p (pid). A sink replaces both. The library
 * never writes to stdout; without SYMM_LOG_FILE lines go to stderr.
 */
#ifndef SYMM_UTIL_LOG_H
#define SYMM_UTIL_LOG_H

enum symm_log_level { SYMM_LOG_ERROR, SYMM_LOG_WARN, SYMM_LOG_INFO, SYMM_LOG_DEBUG };

void symm__log(enum symm_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void symm__log_rank(int rank); /* the rank shown in this thread's lines */

#endif
