/* SPDX-License-Identifier: MIT */
/*
 * memory.c - how many processes of this job the kernel's out-of-memory killer has ended.
 *
 * A process that the out-of-memory killer ends dies of SIGKILL like any other. The kernel
 * counts these ends in a file of the memory cgroup: oom_kill in memory.events (version 2) or
 * in memory.oom_control (version 1), and for the whole machine in /proc/vmstat. The count
 * before the first rank is compared with the count at the death of a rank. If no file can
 * be read, nothing is reported.
 */
#include "tools/symmrun/symmrun.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CGROUPS "/sys/fs/cgroup"

/* The number after `key` in a file of lines "key number"; -1: there is none. */
static long long read_count(const char *path, const char *key)
{
    char line[256];
    const size_t length = strlen(key);
    long long count = -1;
    FILE *file = fopen(path, "re");

    while (file && count < 0 && fgets(line, sizeof(line), file)) {
        if (strncmp(line, key, length) == 0 && line[length] == ' ')
            count = strtoll(line + length + 1, NULL, 10);
    }
    if (file)
        fclose(file);
    return count;
}

static bool try_file(struct symmrun_memory *memory, const char *root, const char *group,
                     const char *events, const char *limit)
{
    /* The cgroup's root is "/": no second slash. */
    const char *folder = strcmp(group, "/") == 0 ? "" : group;
    int length =
        snprintf(memory->path, sizeof(memory->path), "%s%s/%s", root, folder, events);

    if (length < 0 || (size_t)length >= sizeof(memory->path))
        return false;
    memory->limit = limit;
    memory->kills = read_count(memory->path, "oom_kill");
    return memory->kills >= 0;
}

/* Is `name` one of the words in "cpu,memory"? */
static bool has_word(const char *list, const char *name)
{
    const size_t length = strlen(name);

    for (const char *at = list; (at = strstr(at, name)); at += length) {
        if ((at == list || at[-1] == ',') && (at[length] == ',' || at[length] == '\0'))
            return true;
    }
    return false;
}

/* One line of /proc/self/cgroup, "4:memory:/path" or "0::/path". */
static bool try_line(struct symmrun_memory *memory, char *line)
{
    char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;

    if (!group)
        return false;
    *list++ = '\0';
    *group++ = '\0';
    group[strcspn(group, "\n")] = '\0';
    if (has_word(list,
                 "memory")) /* without a cgroup namespace the mount is the cgroup */
        return try_file(memory, CGROUPS "/memory", group, "memory.oom_control",
                        "memory.limit_in_bytes") ||
               try_file(memory, CGROUPS "/memory", "/", "memory.oom_control",
                        "memory.limit_in_bytes");
    if (*list != '\0')
        return false;
    return try_file(memory, CGROUPS, group, "memory.events", "memory.max") ||
           try_file(memory, CGROUPS "/unified", group, "memory.events", "memory.max") ||
           try_file(memory, CGROUPS, "/", "memory.events", "memory.max");
}

void symmrun_memory_begin(struct symmrun_memory *memory)
{
    char line[2048];
    bool found = false;
    FILE *file = fopen("/proc/self/cgroup", "re");

    while (file && !found && fgets(line, sizeof(line), file))
        found = try_line(memory, line);
    if (file)
        fclose(file);
    if (found)
        return;
    snprintf(memory->path, sizeof(memory->path), "/proc/vmstat");
    memory->limit = NULL;
    memory->kills = read_count(memory->path, "oom_kill");
}

/* The limit's value, as the file beside the counter says; "": there is no limit. */
static void read_limit(const struct symmrun_memory *memory, char *text, size_t bytes)
{
    char path[sizeof(memory->path) + 32], value[32] = "";
    const char *slash = strrchr(memory->path, '/');
    FILE *file;

    text[0] = '\0';
    if (!memory->limit)
        return;
    snprintf(path, sizeof(path), "%.*s/%s", (int)(slash - memory->path), memory->path,
             memory->limit);
    file = fopen(path, "re");
    if (file && fgets(value, sizeof(value), file) && strspn(value, "0123456789") > 0 &&
        strtoull(value, NULL, 10) < 1ull << 62) /* version 1 has a number for "none" */
        snprintf(text, bytes, ", where %s is %llu bytes", memory->limit,
                 strtoull(value, NULL, 10));
    if (file)
        fclose(file);
}

bool symmrun_memory_struck(const struct symmrun_memory *memory, char *text,
                           size_t bytes)
{
    long long kills = memory->kills < 0 ? -1 : read_count(memory->path, "oom_kill");
    char limit[80];

    if (kills <= memory->kills)
        return false;
    read_limit(memory, limit, sizeof(limit));
    snprintf(text, bytes,
             "; the kernel's out-of-memory killer has ended %lld process%s since the "
             "start of the job (%.300s%s): give the job more memory, or make its "
             "buffers smaller",
             kills - memory->kills, kills - memory->kills == 1 ? "" : "es",
             memory->path, limit);
    return true;
}
