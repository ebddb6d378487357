/* SPDX-License-Identifier: MIT */
/* file_name.c - see file_name.h. */
#include "util/file_name.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool symm__file_name(const char *pattern, int rank, char *path, size_t bytes)
{
    size_t used = 0;

    for (const char *c = pattern; *c; c++) {
        char piece[16] = {*c, '\0'};

        if (*c == '%' && c[1] == 'r' && rank >= 0)
            snprintf(piece, sizeof(piece), "%d", rank);
        else if (*c == '%' && c[1] == 'r')
            snprintf(piece, sizeof(piece), "none");
        else if (*c == '%' && c[1] == 'p')
            snprintf(piece, sizeof(piece), "%ld", (long)getpid());
        if (*c == '%' && (c[1] == 'r' || c[1] == 'p' || c[1] == '%'))
            c++;
        if (used + strlen(piece) >= bytes)
            return false;
        memcpy(path + used, piece, strlen(piece));
        used += strlen(piece);
    }
    path[used] = '\0';
    return true;
}

bool symm__file_name_varies(const char *pattern)
{
    for (const char *c = pattern; *c; c++) {
        if (*c == '%' && (c[1] == 'r' || c[1] == 'p'))
            return true;
        if (*c == '%' && c[1] == '%')
            c++;
    }
    return false;
}
