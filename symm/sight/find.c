/* SPDX-License-Identifier: MIT */
/* find.c - see find.h. */
#include "sight/find.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/text.h"

#define PREFIX "/memfd:symm-"
#define FIRST_PIDS                                                                     \
    "pid:[4026531836]" /* PROC_PID_INIT_INO of Linux: the host's namespace */

struct search {
    struct symm_sight_ranks *ranks;
    const char *job;
    int pid;
    int inner_pid; /* in its own namespace */
    char state;
    char command[32];
};

/* ---- The list ---------------------------------------------------------------------------- */

struct symm_sight_rank *symm__sight_ranks_add(struct symm_sight_ranks *ranks)
{
    struct symm_sight_rank *list, *rank;

    if (ranks->count >= SYMM_SIGHT_RANKS_MAX)
        return NULL;
    list = realloc(ranks->rank, (size_t)(ranks->count + 1) * sizeof(*list));
    if (!list)
        return NULL;
    ranks->rank = list;
    rank = &list[ranks->count];
    memset(rank, 0, sizeof(*rank));
    rank->state = '?';
    rank->page = calloc(1, sizeof(*rank->page));
    if (!rank->page)
        return NULL;
    ranks->count++;
    return rank;
}

static void drop_last(struct symm_sight_ranks *ranks)
{
    free(ranks->rank[--ranks->count].page);
}

void symm__sight_ranks_finish(struct symm_sight_ranks *ranks)
{
    while (ranks->count > 0)
        drop_last(ranks);
    free(ranks->rank);
    memset(ranks, 0, sizeof(*ranks));
}

static int by_job(const void *one, const void *other)
{
    const struct symm_sight_rank *a = one, *b = other;
    int order = strcmp(a->page->job, b->page->job);

    if (order == 0)
        order = a->page->rank < b->page->rank ? -1 : a->page->rank > b->page->rank;
    return order ? order : a->pid < b->pid ? -1 : a->pid > b->pid;
}

void symm__sight_ranks_sort(struct symm_sight_ranks *ranks)
{
    if (ranks->count > 0)
        qsort(ranks->rank, (size_t)ranks->count, sizeof(*ranks->rank), by_job);
}

const char *symm__sight_process_state(char state)
{
    switch (state) {
    case 'R':
        return "running";
    case 'S':
        return "sleeping";
    case 'D':
        return "in the kernel";
    case 'T':
        return "stopped";
    case 't':
        return "traced";
    case 'Z':
    case 'X':
        return "dead";
    default:
        return "?";
    }
}

char symm__sight_process_letter(const char *state)
{
    static const char letters[] = "RSDTtZ";

    for (const char *letter = letters; *letter; letter++)
        if (strcmp(state, symm__sight_process_state(*letter)) == 0)
            return *letter;
    return '?';
}

/* ---- One process ------------------------------------------------------------------------- */

/* Its state, its name, and its number in its own namespace, which its page has. */
static void read_process(struct search *search)
{
    char text[4096], *at;

    search->state = '?';
    search->inner_pid = search->pid;
    search->command[0] = '\0';
    if (symm__read_text(text, sizeof(text), "/proc/%d/stat", search->pid) > 0 &&
        (at = strrchr(text, ')')) && at[1] == ' ' && at[2])
        search->state = at[2];
    if (symm__read_text(text, sizeof(text), "/proc/%d/comm", search->pid) > 0) {
        text[strcspn(text, "\n")] = '\0';
        snprintf(search->command, sizeof(search->command), "%.31s", text);
        (void)symm__printable(search->command, sizeof(search->command));
    }
    if (symm__read_text(text, sizeof(text), "/proc/%d/status", search->pid) > 0 &&
        (at = strstr(text, "\nNSpid:"))) {
        at[1 + strcspn(at + 1, "\n")] = '\0';
        at = strrchr(at, '\t');
        if (at)
            search->inner_pid = atoi(at + 1);
    }
}

/* A child of a rank has its page open, too; the rank itself is the one to show. */
static void adopt(const struct search *search, struct symm_sight_rank *rank)
{
    bool own = search->inner_pid == rank->page->pid;

    if (rank->pid != 0 && !own)
        return;
    rank->pid = search->pid;
    rank->state = search->state;
    rank->orphan = !own;
    snprintf(rank->command, sizeof(rank->command), "%s", search->command);
}

static struct symm_sight_rank *known(const struct symm_sight_ranks *ranks,
                                     const struct stat *file)
{
    for (int i = 0; i < ranks->count; i++)
        if (ranks->rank[i].device == file->st_dev &&
            ranks->rank[i].inode == file->st_ino)
            return &ranks->rank[i];
    return NULL;
}

static void note_bad(struct search *search, const char *why)
{
    struct symm_sight_ranks *ranks = search->ranks;

    if (ranks->bad++ > 0)
        return;
    ranks->bad_pid = search->pid;
    snprintf(ranks->why, sizeof(ranks->why), "%s", why);
}

static void take_page(struct search *search, int fd)
{
    struct symm_sight_ranks *ranks = search->ranks;
    struct symm_sight_rank *rank;
    struct stat file;
    const char *why;

    if (fstat(fd, &file) != 0)
        return;
    rank = known(ranks, &file);
    if (rank) {
        adopt(search, rank);
        return;
    }
    rank = symm__sight_ranks_add(ranks);
    if (!rank) {
        note_bad(search, "was not read: too many pages");
        return;
    }
    rank->device = file.st_dev;
    rank->inode = file.st_ino;
    why = symm__sight_read(fd, rank->page);
    rank->now = symm__sight_now();
    if (why)
        note_bad(search, why);
    if (why || (search->job && !strstr(rank->page->job, search->job)))
        drop_last(ranks);
    else
        adopt(search, rank);
}

/* "/memfd:symm-JOB-RANK (deleted)"; segments and other memory have other names. */
static bool is_page_name(const char *target)
{
    const char *end = strstr(target, " (deleted)");
    const char *digits = end;

    if (strncmp(target, PREFIX, sizeof(PREFIX) - 1) != 0 || !end)
        return false;
    while (digits > target && digits[-1] >= '0' && digits[-1] <= '9')
        digits--;
    return digits < end && digits[-1] == '-';
}

static void look_at_entry(struct search *search, int list, const char *name)
{
    char target[256];
    ssize_t got = readlinkat(list, name, target, sizeof(target) - 1);
    int fd;

    if (got <= 0)
        return;
    target[got] = '\0';
    if (!is_page_name(target))
        return;
    if (search->state == '\0')
        read_process(search);
    /* O_NONBLOCK: what has that name may be a pipe */
    fd = openat(list, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0) {
        take_page(search, fd);
        close(fd);
    } else if (errno == EACCES || errno == EPERM) {
        note_bad(search, "may not be opened");
    }
}

static void look_into(struct search *search)
{
    char path[64];
    DIR *list;

    snprintf(path, sizeof(path), "/proc/%d/fd", search->pid);
    list = opendir(path);
    if (!list) {
        search->ranks->denied += errno == EACCES || errno == EPERM;
        return;
    }
    search->state = '\0'; /* not read yet */
    for (const struct dirent *e = readdir(list); e; e = readdir(list))
        if (e->d_name[0] != '.')
            look_at_entry(search, dirfd(list), e->d_name);
    closedir(list);
}

/* ---- All --------------------------------------------------------------------------------- */

static bool wanted(int pid, const int *pids, int count)
{
    for (int i = 0; i < count; i++)
        if (pids[i] == pid)
            return true;
    return count == 0;
}

int symm__sight_find(const char *job, const int *pids, int count,
                     struct symm_sight_ranks *ranks)
{
    struct search search = {.ranks = ranks, .job = job};
    const uid_t user = geteuid();
    char namespace[64] = "";
    DIR *list = opendir("/proc");

    memset(ranks, 0, sizeof(*ranks));
    if (!list)
        return errno;
    if (readlink("/proc/self/ns/pid", namespace, sizeof(namespace) - 1) > 0)
        ranks->namespace = strcmp(namespace, FIRST_PIDS) != 0;
    for (const struct dirent *e = readdir(list); e; e = readdir(list)) {
        char *end;
        long pid = strtol(e->d_name, &end, 10);
        struct stat process;

        if (pid <= 0 || pid > INT32_MAX || *end || !wanted((int)pid, pids, count) ||
            fstatat(dirfd(list), e->d_name, &process, 0) != 0)
            continue;
        search.pid = (int)pid;
        if (process.st_uid == user || user == 0)
            look_into(&search);
        else
            ranks->others++;
    }
    closedir(list);
    symm__sight_ranks_sort(ranks);
    return 0;
}

void symm__sight_tell_unread(const struct symm_sight_ranks *ranks, FILE *file)
{
    if (ranks->others > 0)
        fprintf(file, "%d process%s of other users could not be read: only root may\n",
                ranks->others, ranks->others == 1 ? "" : "es");
    if (ranks->denied > 0)
        fprintf(
            file,
            "%d process%s of yours could not be read: the kernel forbids it (another "
            "user namespace, changed privileges, or kernel.yama.ptrace_scope)\n",
            ranks->denied, ranks->denied == 1 ? "" : "es");
    if (ranks->bad > 0)
        fprintf(file,
                "%d memory file%s named like a rank's page could not be read: that of "
                "process %d %s\n",
                ranks->bad, ranks->bad == 1 ? "" : "s", ranks->bad_pid, ranks->why);
    if (ranks->namespace)
        fprintf(file, "this is a container's PID namespace: ranks outside of it cannot "
                      "be read from here\n");
}
