/* SPDX-License-Identifier: MIT */
/*
 * liveness.h - how peers learn of this process's death within microseconds.
 *
 * A thread of the library holds a robust futex in the control page for life. When the
 * process dies the kernel sets bit 30 of that word before it frees the address space, so
 * that peers see the death in a plain load, however much memory the process had. The robust
 * list is the liveness's own (set_robust_list for that thread): nothing the kernel follows and
 * nothing glibc interprets lies in shared memory.
 */
#ifndef SYMM_OOB_LIVENESS_H
#define SYMM_OOB_LIVENESS_H

#include "symm/symm.h"

struct symm_liveness;

/* Starts the thread; returns when *live holds its id. live: in this rank's control page. */
symm_status symm__liveness_create(uint32_t *live,
                                  struct symm_liveness **liveness) SYMM_MUST_CHECK;
/* Marks *live as finished, ends and joins the thread. NULL is allowed. */
void symm__liveness_destroy(struct symm_liveness *liveness);
/* After fork, in the child: frees the memory without touching thread or page. */
void symm__liveness_abandon(struct symm_liveness *liveness);

/* A peer's process, to distinguish a death from a damaged page. */
struct symm_process {
    int pidfd;    /* -1: none; owned */
    int pid;      /* as seen from here; 0 = not visible */
    uint32_t tid; /* what *live held at the handshake */
};

/*
 * What a peer's live word says now. SYMM_OK: alive. SYMM_ERR_PEER_DEAD: the process is
 * dying, dead or has finalized (*why says which). SYMM_ERR_DAMAGED: the word is none that
 * the owner or the kernel writes and the process is alive. Takes a system call only if the
 * word is not the usual one.
 */
symm_status symm__process_check(const struct symm_process *process,
                                const uint32_t *live, const char **why);
/*
 * The same, but SYMM_OK for a process that has finalized. The word is read once: a caller that
 * asked for SYMM_LIVE_FINISHED first, and then called symm__process_check, would take a
 * process that finalizes in between for dead.
 */
symm_status symm__process_died(const struct symm_process *process, const uint32_t *live,
                               const char **why);
/* Has the owner finalized its context? The answer "true" is final. Its reason, such as another
 * rank's death, was visible before: a caller that names why a rank has ended looks for a death
 * after it has seen this. */
bool symm__process_finished(const uint32_t *live);
/* Is the process certainly ending, by its pidfd or /proc? Never waits. */
bool symm__process_ending(const struct symm_process *process);
/* Is the descriptor of a process, not of something else? *pid: its number; 0 = not visible. */
bool symm__process_is(int pidfd, int *pid);

#endif
