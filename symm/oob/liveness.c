/* SPDX-License-Identifier: MIT */
/*
 * liveness.c - see liveness.h. The list has one entry; its node is private memory and
 * futex_offset leads from it to the shared word.
 */
#include "oob/liveness.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "oob/control_page.h"
#include "util/status.h"
#include "util/text.h"
#include "util/thread.h"

#define PROCESS_EXITING 0x4u /* PF_EXITING in field 9 of /proc/PID/stat */
#define CONFIRM_SECONDS 0.020

enum { LIVENESS_STARTING, LIVENESS_HOLDING, LIVENESS_FAILED, LIVENESS_LEAVING };

struct symm_liveness {
    pthread_t thread;
    uint32_t *live;
    uint32_t phase; /* a private futex */
    int error;      /* of LIVENESS_FAILED */
    struct robust_list_head head;
    struct robust_list node;
};

static long futex(uint32_t *word, int operation, uint32_t value)
{
    return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL,
                   0);
}

static void set_phase(struct symm_liveness *liveness, uint32_t phase)
{
    /* release: pairs with the acquire in wait_while */
    __atomic_store_n(&liveness->phase, phase, __ATOMIC_RELEASE);
    futex(&liveness->phase, FUTEX_WAKE, INT_MAX);
}

static uint32_t wait_while(struct symm_liveness *liveness, uint32_t phase)
{
    uint32_t now;

    while ((now = __atomic_load_n(&liveness->phase, __ATOMIC_ACQUIRE)) == phase)
        futex(&liveness->phase, FUTEX_WAIT, phase);
    return now;
}

static void *keep(void *arg)
{
    struct symm_liveness *liveness = arg;
    uint32_t tid = (uint32_t)syscall(SYS_gettid);

    liveness->node.next = &liveness->head.list;
    liveness->head.list.next = &liveness->node;
    liveness->head.list_op_pending = NULL;
    liveness->head.futex_offset =
        (long)((intptr_t)liveness->live - (intptr_t)&liveness->node);
    if (syscall(SYS_set_robust_list, &liveness->head, sizeof(liveness->head)) != 0) {
        liveness->error = errno;
        set_phase(liveness, LIVENESS_FAILED);
        return NULL;
    }
    __atomic_store_n(liveness->live, tid, __ATOMIC_RELEASE);
    set_phase(liveness, LIVENESS_HOLDING);
    wait_while(liveness, LIVENESS_HOLDING);
    /* The word no longer belongs to this thread: the kernel must not mark it when the thread
     * ends. */
    liveness->head.list.next = &liveness->head.list;
    return NULL;
}

symm_status symm__liveness_create(uint32_t *live, struct symm_liveness **liveness)
{
    struct symm_liveness *k = calloc(1, sizeof(*k));
    int error;

    if (!k)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for the liveness thread");
    k->live = live;
    error = symm__thread_start(&k->thread, keep, k);
    if (error) {
        free(k);
        return symm__fail_errno(SYMM_ERR_SYSTEM, error,
                                "cannot start the liveness thread");
    }
    if (wait_while(k, LIVENESS_STARTING) == LIVENESS_FAILED) {
        error = k->error;
        pthread_join(k->thread, NULL);
        free(k);
        return symm__fail_errno(
            SYMM_ERR_SYSTEM, error,
            "set_robust_list, which shows a rank's death to its peers");
    }
    *liveness = k;
    return SYMM_OK;
}

void symm__liveness_destroy(struct symm_liveness *liveness)
{
    if (!liveness)
        return;
    __atomic_store_n(liveness->live, SYMM_LIVE_FINISHED, __ATOMIC_RELEASE);
    set_phase(liveness, LIVENESS_LEAVING);
    pthread_join(liveness->thread, NULL);
    free(liveness);
}

void symm__liveness_abandon(struct symm_liveness *liveness)
{
    free(liveness);
}

bool symm__process_is(int pidfd, int *pid)
{
    char text[512];
    const char *line;
    long number;

    *pid = 0;
    /* Signal 0 is not delivered. The kernel takes a directory of /proc, too: fdinfo does
     * not. */
    if (syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0) != 0 && errno == EBADF)
        return false;
    if (symm__read_text(text, sizeof(text), "/proc/self/fdinfo/%d", pidfd) <= 0)
        return true; /* no /proc: nothing says otherwise */
    line = strstr(text, "\nPid:");
    if (!line)
        return false;
    number = strtol(line + 5, NULL, 10);
    *pid = number > 0 ? (int)number : 0;
    return true;
}

/* Field 3 and field 9 of /proc/PID/stat; the name in field 2 may hold anything. */
static bool stat_says_ending(int pid)
{
    char text[512], *at;
    unsigned flags = 0;
    char state = 0;

    if (symm__read_text(text, sizeof(text), "/proc/%d/stat", pid) < 0)
        return errno == ENOENT || errno == ESRCH;
    at = strrchr(text, ')');
    if (!at || sscanf(at + 1, " %c %*d %*d %*d %*d %*d %u", &state, &flags) != 2)
        return false;
    return state == 'Z' || state == 'X' || (flags & PROCESS_EXITING);
}

bool symm__process_ending(const struct symm_process *process)
{
    struct pollfd poll_fd = {.fd = process->pidfd, .events = POLLIN};

    if (process->pidfd >= 0 && poll(&poll_fd, 1, 0) == 1)
        return true;
    return process->pid > 0 && stat_says_ending(process->pid);
}

/* `now`, what *live holds, is neither the thread's id nor SYMM_LIVE_FINISHED. */
static symm_status check_rest(const struct symm_process *process, uint32_t now,
                              const char **why)
{
    const struct timespec pause = {.tv_nsec = 200000};

    *why = "has died";
    if (symm__process_ending(process))
        return SYMM_ERR_PEER_DEAD;
    if ((now & ~SYMM_LIVE_WAITERS) == SYMM_LIVE_DIED) {
        /* The thread has ended and the process does not show yet that it ends, or it has called
         * exec. */
        for (double spent = 0; spent < CONFIRM_SECONDS; spent += 0.0002) {
            nanosleep(&pause, NULL);
            if (symm__process_ending(process))
                return SYMM_ERR_PEER_DEAD;
        }
        if (process->pidfd >= 0 || process->pid > 0)
            *why = "has replaced its program (exec)";
        return SYMM_ERR_PEER_DEAD; /* the kernel's mark: that rank's threads are gone */
    }
    *why = "is alive but its control page is damaged";
    return SYMM_ERR_DAMAGED;
}

bool symm__process_finished(const uint32_t *live)
{
    /* acquire: pairs with the release in symm__liveness_destroy */
    return __atomic_load_n(live, __ATOMIC_ACQUIRE) == SYMM_LIVE_FINISHED;
}

symm_status symm__process_died(const struct symm_process *process, const uint32_t *live,
                               const char **why)
{
    uint32_t now = __atomic_load_n(live, __ATOMIC_ACQUIRE);

    if (__builtin_expect(now == process->tid || now == SYMM_LIVE_FINISHED, 1))
        return SYMM_OK;
    return check_rest(process, now, why);
}

symm_status symm__process_check(const struct symm_process *process,
                                const uint32_t *live, const char **why)
{
    uint32_t now = __atomic_load_n(live, __ATOMIC_ACQUIRE);

    if (__builtin_expect(now == process->tid, 1))
        return SYMM_OK;
    if (now != SYMM_LIVE_FINISHED)
        return check_rest(process, now, why);
    *why = "has finalized its context";
    return SYMM_ERR_PEER_DEAD;
}
