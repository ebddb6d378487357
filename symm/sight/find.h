/* SPDX-License-Identifier: MIT */
/*
 * find.h - the ranks of all jobs on this host: every page in /proc/PID/fd of processes that this
 * one may read.
 *
 * Descriptors are opened for reading alone and nothing is sent to a process, so ranks that are
 * stopped or hang are read like others. What could not be read is counted.
 */
#ifndef SYMM_SIGHT_FIND_H
#define SYMM_SIGHT_FIND_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#include "sight/read.h"

#define SYMM_SIGHT_RANKS_MAX 1024 /* pages that are kept */

struct symm_sight_rank {
    struct symm_sight_page *page; /* a copy, checked; owned */
    int pid;                      /* in the reader's namespace; 0: not known */
    char state;  /* of the process, as in /proc/PID/stat; '?': not known */
    bool orphan; /* the rank has ended; a child still has its page */
    char command[32];
    struct symm_sight_now now; /* when it was read */
    dev_t device;
    ino_t inode;
};

struct symm_sight_ranks {
    struct symm_sight_rank *rank; /* by job, rank, pid */
    int count;
    int others;     /* processes of other users, which were not read */
    int denied;     /* processes of this user that the kernel did not let it read */
    int bad;        /* files that have a page's name, */
    char why[80];   /* and what one of them is: "has another size ..." */
    int bad_pid;    /* its process */
    bool namespace; /* this process sees those of its own PID namespace alone */
};

/* job: NULL, or a part of the names of those wanted. pids[count]: the only processes; count 0: all.
 * 0, or an errno. */
int symm__sight_find(const char *job, const int *pids, int count,
                     struct symm_sight_ranks *ranks);
void symm__sight_ranks_finish(struct symm_sight_ranks *ranks);
/* A place for one more, zeroed, with a page; NULL: no memory, or too many. */
struct symm_sight_rank *symm__sight_ranks_add(struct symm_sight_ranks *ranks);
void symm__sight_ranks_sort(struct symm_sight_ranks *ranks);

/* A line for each kind of what could not be read, with the reason. */
void symm__sight_tell_unread(const struct symm_sight_ranks *ranks, FILE *file);

/* "stopped", "sleeping", ..., and back; '?': unknown. */
const char *symm__sight_process_state(char state);
char symm__sight_process_letter(const char *state);

/* Is the process stopped, by SIGSTOP or a debugger? Then its waits are those of the moment in
 * which it was stopped. */
static inline bool symm__sight_is_stopped(const struct symm_sight_rank *rank)
{
    return rank->state == 'T' || rank->state == 't';
}

#endif
