/* SPDX-License-Identifier: MIT */
/*
 * text.h - reads small files, writes sizes, and makes text that may hold any bytes fit to be shown.
 */
#ifndef SYMM_UTIL_TEXT_H
#define SYMM_UTIL_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Control characters become '?', so that it is one line. What is not ASCII stays. */
void symm__one_line(char *text);
/* A peer's text, which may hold anything: ends it in its bytes (> 0), and makes all of it
 * printable ASCII. Returns it. */
const char *symm__printable(char *text, size_t bytes);
/* The same of the reason of a peer's failure; if nothing of it is to be seen, a sentence that says
 * so. */
const char *symm__reason(char *text, size_t bytes);
/* Copies a sentence; returns text. "..." replaces the middle of one that does not fit: its beginning
 * says what has failed, its end what to do. */
const char *symm__fit(char *text, size_t bytes, const char *sentence);
/* Reads what fits of the file whose path the format gives; the text ends in a NUL, also
 * after an error. Returns its length, or -1: errno. */
ssize_t symm__read_text(char *text, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Bytes of the well-formed UTF-8 sequence at s, 0 if there is none. The NUL ends every sequence. */
size_t symm__utf8(const unsigned char *s);
bool symm__is_utf8(const char *text);
/* "48 KiB", "1.5 GiB": at most four digits. Returns text. */
const char *symm__size_text(uint64_t size, char *text, size_t bytes);

#endif
