/* SPDX-License-Identifier: MIT */
/* sim_begin.c - what a program does before its first simulation (sim.h). */
#include "sim.h"

#include <stdio.h>
#include <sys/personality.h>
#include <unistd.h>

#define ASK 0xffffffffu

void sim_begin(char **argv)
{
    const int now = personality(ASK);

    if (now < 0 || (now & ADDR_NO_RANDOMIZE))
        return;
    if (personality((unsigned long)(now | ADDR_NO_RANDOMIZE)) >= 0 &&
        (personality(ASK) & ADDR_NO_RANDOMIZE))
        execv("/proc/self/exe", argv);
    fprintf(stderr,
            "addresses are random here: a seed may run otherwise the next time\n");
}
