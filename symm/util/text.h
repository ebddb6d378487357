/* SPDX-License-Identifier: MIT */
/*
 * text.h - makes text that may hold any bytes fit to be shown.
 */
#ifndef SYMM_UTIL_TEXT_H
#define SYMM_UTIL_TEXT_H

#include <stddef.h>

/* Control characters become '?', so that it is one line. What is not ASCII stays. */
void symm__one_line(char *text);
/* A peer's text, which may hold anything: ends it in its bytes (> 0), and makes all of it
 * printable ASCII. Returns it. */
const char *symm__printable(char *text, size_t bytes);

#endif
