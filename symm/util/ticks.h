/* SPDX-License-Identifier: MIT */
/*
 * ticks.h - a time that costs a few nanoseconds to read: the processor's counter.
 *
 * symm__ticks_steady says whether the counter runs at one rate on all cores in all states of power;
 * where it does not, callers take symm__ticks_ns. Ticks have no unit: their rate is measured
 * against CLOCK_MONOTONIC.
 */
#ifndef SYMM_UTIL_TICKS_H
#define SYMM_UTIL_TICKS_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static inline uint64_t symm__ticks_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t symm__ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;

    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return symm__ticks_ns();
#endif
}

static inline bool symm__ticks_steady(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;

    /* "Invariant TSC": leaf 0x80000007, bit 8 of EDX (AMD64 and Intel 64 manuals, CPUID). */
    return __get_cpuid(0x80000007u, &a, &b, &c, &d) && (d >> 8 & 1) != 0;
#else
    return true;
#endif
}

#endif
