/* SPDX-License-Identifier: MIT */
/* memory_room.c - see memory_room.h. Free memory by sysinfo, else as /proc/meminfo has it. */
#include "util/memory_room.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#include "util/text.h"

#define REST ((uint64_t)64 << 20) /* for the kernel and other processes */

/* The bytes in the line that begins with `name`; 0: there is none. */
static uint64_t field(const char *text, const char *name)
{
    const char *at = strstr(text, name);

    return at == NULL ? 0 : (uint64_t)strtoull(at + strlen(name), NULL, 10) << 10;
}

bool symm__memory_fits(size_t bytes, uint64_t *available)
{
    char text[4096];
    struct sysinfo info;

    /* Mostly this is enough: free pages alone, without what the page cache would give back. */
    if (sysinfo(&info) == 0 &&
        (uint64_t)info.freeram * info.mem_unit / 2 > (uint64_t)bytes + REST)
        return true;
    if (symm__read_text(text, sizeof(text), "/proc/meminfo") <= 0 ||
        strstr(text, "\nMemAvailable:") == NULL)
        return true;
    *available = field(text, "\nMemAvailable:") + field(text, "\nSwapFree:");
    return *available >= REST && bytes <= *available - REST;
}

bool symm__file_size_fits(size_t bytes, uint64_t *limit)
{
    struct rlimit is;

    if (getrlimit(RLIMIT_FSIZE, &is) != 0 || is.rlim_cur == RLIM_INFINITY ||
        bytes <= is.rlim_cur)
        return true;
    *limit = is.rlim_cur;
    return false;
}
