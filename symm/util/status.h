/* SPDX-License-Identifier: MIT */
/*
 * status.h - how a failure is reported.
 *
 * The function that detects an error calls symm__fail once: it sets the thread's
 * symm_last_error() and logs one line. Functions that only pass a status on do neither.
 * A sentence says what failed, with the values, for whom ("rank 3"), and what to try.
 */
#ifndef SYMM_UTIL_STATUS_H
#define SYMM_UTIL_STATUS_H

#include <stdarg.h>

#include "symm/symm.h"

/* Longest sentence, with its NUL; longer ones lose words in their middle. */
#define SYMM_ERROR_BYTES 1408

symm_status symm__fail(symm_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Appends ": <strerror(error)> (<ENAME>)" where the C library knows the name. */
symm_status symm__fail_errno(symm_status status, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* SYMM_ERR_INVALID: "<function>: <argument> is NULL". */
symm_status symm__fail_null(const char *function, const char *argument);
/* Sets the sentence without logging: for records that were logged elsewhere. An empty one of a
 * failure, which only a peer can send, becomes one that says so. */
symm_status symm__fail_quiet(symm_status status, const char *sentence);

/* Keeps the thread's sentence, and brings it back: a call that succeeds leaves it alone. */
void symm__error_save(char sentence[SYMM_ERROR_BYTES]);
void symm__error_restore(const char sentence[SYMM_ERROR_BYTES]);

#endif
