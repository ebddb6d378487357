/* SPDX-License-Identifier: MIT */
/*
 * clock.h - monotonic time as seconds in a double, for timeouts.
 *
 * A timeout given by a caller is a span. It becomes a deadline, a point in time ("until"),
 * once, so that several waits in a row share it. Times of different processes of one
 * host compare.
 */
#ifndef SYMM_UTIL_CLOCK_H
#define SYMM_UTIL_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline double symm__now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A span as the kernel takes it; negative spans are 0, endless ones a week. */
static inline struct timespec symm__timespec(double seconds)
{
    const double longest = 7 * 86400.0;
    double span = seconds > 0 ? (seconds < longest ? seconds : longest) : 0;
    struct timespec out;
    out.tv_sec = (time_t)span;
    out.tv_nsec = (__typeof__(out.tv_nsec))((span - (double)out.tv_sec) * 1e9);
    return out;
}

/* The same in nanoseconds, for kernels. */
static inline uint64_t symm__nanoseconds(double seconds)
{
    const struct timespec span = symm__timespec(seconds);
    return (uint64_t)span.tv_sec * 1000000000u + (uint64_t)span.tv_nsec;
}

/* The point in time that is a span from now, for waits with a time limit. */
static inline struct timespec symm__until(double seconds)
{
    struct timespec span = symm__timespec(seconds), until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += span.tv_sec + (until.tv_nsec + span.tv_nsec) / 1000000000;
    until.tv_nsec = (until.tv_nsec + span.tv_nsec) % 1000000000;
    return until;
}

/* May end early, by a signal: callers loop over a condition anyway. */
static inline void symm__sleep(double seconds)
{
    struct timespec span = symm__timespec(seconds);
    (void)nanosleep(&span, NULL);
}

#endif
