/* SPDX-License-Identifier: MIT */
/*
 * simt_pause.h - for simt.cpp: blocks that are late (SIMT_PAUSE).
 */
#ifndef SYMM_TESTS_SIMT_PAUSE_H
#define SYMM_TESTS_SIMT_PAUSE_H

#include <stdint.h>
#include <unistd.h>

/* One time of eight, up to `most` microseconds: other ranks go on, if nothing makes them wait for
 * this one. */
static inline void simt_pause(uint64_t most)
{
    static __thread uint64_t random;

    if (most == 0)
        return;
    if (random == 0)
        random = (uintptr_t)&random;
    random = random * 6364136223846793005u + 1442695040888963407u;
    if (random >> 61 == 0)
        usleep((useconds_t)((random >> 32) % most));
}

#endif
