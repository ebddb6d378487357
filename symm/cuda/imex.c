/* SPDX-License-Identifier: MIT */
/* imex.c - see imex.h. */
#include "cuda/imex.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *symm__imex_missing(const char *folder, char *text, size_t bytes)
{
    const char prefix[] = "channel";
    DIR *list = opendir(folder);
    char path[320], closed[300] = "";

    for (const struct dirent *e = list ? readdir(list) : NULL; e; e = readdir(list)) {
        if (strncmp(e->d_name, prefix, sizeof(prefix) - 1) != 0)
            continue;
        snprintf(path, sizeof(path), "%.60s/%s", folder, e->d_name);
        if (access(path, R_OK | W_OK) == 0) {
            closedir(list);
            return NULL;
        }
        snprintf(closed, sizeof(closed), "%.40s", e->d_name);
    }
    if (list)
        closedir(list);
    if (closed[0])
        snprintf(
            text, bytes,
            "this process may not open the IMEX channel %.60s/%s: give the user or the "
            "container that device",
            folder, closed);
    else
        snprintf(text, bytes,
                 "there is no IMEX channel in %.60s: make one (nvidia-modprobe -c 0 "
                 "-s, or the module's NVreg_CreateImexChannel0=1), give it to the "
                 "container, and run nvidia-imex on all hosts of the NVLink domain",
                 folder);
    return text;
}
