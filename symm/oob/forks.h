/* SPDX-License-Identifier: MIT */
/*
 * forks.h - a child of fork() closes its parent's connections to peers.
 *
 * A socket lives until the last process that holds it closes it. A child that outlived a
 * killed rank would keep its connections open, and ranks on other hosts would not learn of
 * the death. So a handler of fork() closes them in the child, which has no use for them: a
 * context belongs to one process.
 * Not covered: children made by clone() or _Fork(), which run no handlers.
 */
#ifndef SYMM_OOB_FORKS_H
#define SYMM_OOB_FORKS_H

#include "symm/symm.h"

/* Descriptors that a forked child closes, and sets to -1. */
struct symm_forks {
    struct symm_forks *next;
    int *fds; /* borrows */
    int count;
};

symm_status symm__forks_add(struct symm_forks *forks, int *fds,
                            int count) SYMM_MUST_CHECK;
/* Also of one that was never added (all zeros). */
void symm__forks_remove(struct symm_forks *forks);

#endif
