/* SPDX-License-Identifier: MIT */
/* seconds.h - reads a number of seconds: for options.c, and for libsymm_mpi.so and the Python
 * module, which cannot call the library's own functions. */
#ifndef SYMM_UTIL_SECONDS_H
#define SYMM_UTIL_SECONDS_H

#include <stdbool.h>

/* The longest timeout of a context, by symm_config or an option: a week. Longer ones are
 * taken for a mistake. */
#define SYMM_LONGEST_SECONDS 604800.0

/*
 * Text as "30" or "0.5", all of it, above 0 and at most SYMM_LONGEST_SECONDS. Not by strtod: its
 * decimal point is a comma in many a program's locale. false: *seconds is as it was.
 */
static inline bool symm__seconds_read(const char *text, double *seconds)
{
    double value = 0, unit = 0.1;
    const char *c = text;

    for (; *c >= '0' && *c <= '9' && value <= SYMM_LONGEST_SECONDS; c++)
        value = 10 * value + (*c - '0');
    if (c == text)
        return false;
    if (*c == '.') {
        for (c++; *c >= '0' && *c <= '9'; c++) {
            value += unit * (*c - '0');
            unit /= 10;
        }
        if (c[-1] == '.')
            return false;
    }
    /* Written so that a value too small to differ from 0 is refused, too. */
    if (*c != '\0' || !(value >= 1e-9) || value > SYMM_LONGEST_SECONDS)
        return false;
    *seconds = value;
    return true;
}

#endif
