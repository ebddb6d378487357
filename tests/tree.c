/* SPDX-License-Identifier: MIT */
/* tree.c - see tree.h. */
#include "tree.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

void tree_put(const char *folder, const char *text, const char *format, ...)
{
    char path[512];
    va_list args;

    int used = snprintf(path, sizeof(path), "%s/", folder);
    va_start(args, format);
    vsnprintf(path + used, sizeof(path) - (size_t)used, format, args);
    va_end(args);
    for (char *slash = path + strlen(folder);
         (slash = strchr(slash + 1, '/')) != NULL;) {
        *slash = '\0';
        if (mkdir(path, 0700) != 0)
            assert_int_equal(errno, EEXIST);
        *slash = '/';
    }
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fprintf(file, "%s\n", text);
    assert_int_equal(fclose(file), 0);
}
