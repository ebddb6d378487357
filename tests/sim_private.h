/* SPDX-License-Identifier: MIT */
/* sim_private.h - what the files of the simulator share (sim.h). */
#ifndef SYMM_TESTS_SIM_PRIVATE_H
#define SYMM_TESTS_SIM_PRIVATE_H

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/types.h>

#include "sim.h"

#define SIM_FIBERS   96
#define SIM_FD_FIRST 700 /* real descriptors are below */
#define SIM_FDS      1024
#define SIM_PID      70000 /* of rank 0; thread ids are 100 apart */
#define SIM_HELD     8

enum sim_state { SIM_FREE, SIM_READY, SIM_BLOCKED, SIM_ENDED };

struct sim_object;
struct robust_list_head;

struct sim_fiber {
    enum sim_state state;
    int rank; /* -1: the kernel's */
    int tid;
    bool first;   /* a rank's first thread */
    bool device;  /* of the rank's device: it goes on when the rank is stopped */
    uint64_t due; /* when it runs next, if it is ready, or its time limit */
    bool woken;
    const char *doing;
    const void *key; /* it waits for: a mutex, a condition, a fiber, a futex; NULL */
    size_t key_offset;
    /* A condition for which it will wait: it lets go of the mutex before. Signalled meanwhile? */
    const void *condition;
    bool signalled;
    const struct pollfd *polls; /* it waits for one of these */
    nfds_t poll_count;
    void *(*run)(void *);
    void *arg, *result;
    struct robust_list_head *robust;
    pthread_mutex_t *held[SIM_HELD];
    int held_count;
    void *stack, *sp, *tls;
    int error; /* errno */
};

struct sim_rank {
    bool dead;    /* was killed: nothing of it runs */
    bool exiting; /* PF_EXITING is to be seen */
    bool zombie;  /* its pidfd is readable */
    uint64_t calls, stopped_until, stopped;
    uint64_t allocations;
    unsigned pace; /* time that a call takes, in units */
};

struct sim {
    const struct sim_config *config;
    struct sim_result *result;
    struct sim_fiber fiber[SIM_FIBERS];
    int fibers; /* places that were used */
    struct sim_fiber *current;
    struct sim_rank rank[SIM_RANKS_MAX];
    uint64_t now, next_due, events, hash, random;
    uint64_t cut_at, cut_until; /* the same: never */
    unsigned broken;            /* connections between hosts that were lost */
    int tids;
    void *main_sp, *main_tls;
    const char *hung;
};

extern struct sim sim;

/* What the simulator uses for itself. */
void *__real_calloc(size_t count, size_t bytes);
char *__real_strdup(const char *text);
void __real_free(void *block);
int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);

/* ---- sim.c ----------------------------------------------------------------------- */

static inline bool sim_on(void)
{
    return sim.current != NULL;
}

uint64_t sim_below(uint64_t count); /* random */
void sim_event(const char *what, uint64_t a, uint64_t b);
/* Begins a system call: counts it, kills or stops the rank if it is time, lets others run. */
void sim_call(const char *name);
void sim_pass(uint64_t nanoseconds); /* time for the running fiber */
void sim_late(
    void); /* the running fiber has waited, and is late, if the seed says so */
/* Waits until woken, or until that time: false. */
bool sim_wait(const char *doing, const void *key, size_t offset, uint64_t until);
int sim_wake(const void *key, size_t offset, int most);
void sim_ready(struct sim_fiber *fiber, uint64_t at); /* no later than that */
bool sim_lacks(void);       /* whether this allocation fails; then errno is ENOMEM */
bool sim_interrupted(void); /* whether a signal comes; then errno is EINTR */
struct sim_fiber *sim_fiber_start(int rank, void *(*run)(void *), void *arg);
void sim_fiber_end(void *result) __attribute__((noreturn));

/* ---- sim_locals.c ---------------------------------------------------------------- */

void *sim_locals_own(void); /* of the running thread */
void *sim_locals_make(void);
void sim_locals_use(void *base);

/* ---- sim_files.c ----------------------------------------------------------------- */

void sim_files_died(int rank);   /* closes all of the rank's descriptors, in turn */
void sim_files_zombie(int rank); /* its pidfds become readable */
int sim_files_left(int rank);
/* The memory object at an address of a shared mapping, and its offset there; NULL: none. */
const void *sim_memory_at(const void *address, size_t *offset);
int sim_mappings_left(int rank);

/* ---- sim_wrap.c ------------------------------------------------------------------ */

extern const int sim_wrap_linked;
int sim_blocks_left(int rank);

#endif
