/* SPDX-License-Identifier: MIT */
/* sight_page.c - see sight_page.h. */
#include "sight_page.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const struct symm_sight_page *sight_page_open(int pid, char *entry, size_t bytes)
{
    char path[300], target[256];
    const struct symm_sight_page *page = NULL;
    DIR *list;

    snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    list = opendir(path);
    for (const struct dirent *e = list ? readdir(list) : NULL; e && !page;
         e = readdir(list)) {
        ssize_t got;
        int fd;
        void *at;

        snprintf(path, sizeof(path), "/proc/%d/fd/%s", pid, e->d_name);
        got = readlink(path, target, sizeof(target) - 1);
        if (got < 0)
            continue;
        target[got] = '\0';
        if (strncmp(target, "/memfd:symm-", 12) != 0)
            continue;
        fd = open(path, O_RDONLY | O_CLOEXEC);
        at = fd < 0 ? MAP_FAILED
                    : mmap(NULL, sizeof(*page), PROT_READ, MAP_SHARED, fd, 0);
        close(fd);
        if (at == MAP_FAILED)
            continue;
        page = at;
        snprintf(entry, bytes, "%s", target);
    }
    if (list)
        closedir(list);
    return page;
}

const struct symm_sight_site *sight_page_site(const struct symm_sight_page *page,
                                              const char *op, const char *name)
{
    for (int i = 0; i < SYMM_SIGHT_SITES; i++)
        if (page->site[i].id != 0 && strcmp(page->site[i].op, op) == 0 &&
            strcmp(page->site[i].name, name) == 0)
            return &page->site[i];
    return NULL;
}
