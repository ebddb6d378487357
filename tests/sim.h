/* SPDX-License-Identifier: MIT */
/*
 * sim.h - a job's ranks in one process, over a simulated clock, sockets, processes and threads.
 *
 * Each thread of each rank is a fiber; one runs at a time. A suite with the comment `ctest: sim` is
 * linked with --wrap for the names in sim_wrap.txt, whose functions (sim_wrap.c) act on what is
 * simulated when a fiber calls them. Every call costs simulated time, chosen by the seed, and the
 * fiber whose time is least runs next. The clock jumps to it: waits cost nothing. So a run is a
 * function of its configuration, and the hash of its events is equal each time.
 *
 * Simulated: clock, sleeps, futexes and robust lists, mutexes, conditions, threads, process ids,
 * pidfds, /proc/PID/stat, sockets (local seqpacket, TCP), poll, eventfds, random bytes,
 * environment variables, lack of memory.
 * Real: memory (memfds and mappings; a death does not end its mappings), directories and files.
 */
#ifndef SYMM_TESTS_SIM_H
#define SYMM_TESTS_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_RANKS_MAX 8
#define SIM_FOREVER   UINT64_MAX

struct sim_config {
    uint64_t seed;
    int ranks;
    int host_of[SIM_RANKS_MAX];
    void (*body)(int rank, void *arg); /* a rank's program */
    void *arg;
    /* A rank's variable; NULL: it is not set. */
    const char *(*variable)(int rank, const char *name, void *arg);
    uint64_t die_at
        [SIM_RANKS_MAX]; /* the rank's system call at which it is killed; 0: none */
    uint64_t stop_at[SIM_RANKS_MAX]; /* at which it is stopped; 0: none */
    double stop_seconds[SIM_RANKS_MAX];
    /* So many of the rank's allocations fail, from that one on; 0: none. They are blocks of memory,
     * mappings, memfds and their pages. */
    uint64_t lack_at[SIM_RANKS_MAX], lacks[SIM_RANKS_MAX];
    unsigned
        breaks; /* calls in 1024 at which a TCP connection between hosts is lost, */
    unsigned breaks_most; /* so many times in all; 0: any */
    unsigned
        slow; /* calls in 65536 that take milliseconds: the processor is taken away */
    /* Times in 1024 that a thread is late after a wait for a condition with a time limit, which is
     * how threads sleep that look at something now and then; and by how much at most. */
    unsigned lag;
    double lag_seconds;
    unsigned
        interrupt; /* calls in 1024 of a rank's first thread that a signal interrupts */
    double latency; /* of the network, seconds, at most */
    /* The network between the hosts of these bits and the others is cut at that time, for so long;
     * INFINITY: for ever. */
    unsigned cut_hosts;
    double cut_at, cut_seconds;
    size_t room;    /* bytes that a connection holds */
    double limit;   /* simulated seconds, after which the run counts as hung */
    bool trace;     /* prints events */
    bool
        libraries; /* that are loaded have thread-local variables: sim_locals_supported */
};

struct sim_result {
    uint64_t hash, events; /* of all events */
    double seconds;        /* simulated */
    const char *hung; /* NULL: all ranks have ended; else why the run was given up */
    char where[512];  /* hung: what the fibers do */
    uint64_t calls[SIM_RANKS_MAX];
    bool died[SIM_RANKS_MAX];
    double stopped[SIM_RANKS_MAX]; /* seconds in all */
    /* What ranks that ended by themselves have left. */
    int fds[SIM_RANKS_MAX], mappings[SIM_RANKS_MAX], threads[SIM_RANKS_MAX];
    int blocks[SIM_RANKS_MAX];
};

/* First in main: starts the program again, with addresses that are equal each time. The library has
 * tables by address, so that what it does may depend on them. */
void sim_begin(char **argv);
bool sim_locals_supported(void);

/* Once in a process: what it leaves behind ends with the process. */
void sim_run(const struct sim_config *config, struct sim_result *result);

/* For bodies. */
double sim_now(void);
void sim_sleep(double seconds);
int sim_rank(void);           /* -1: no fiber */
void sim_die(void);           /* the rank is killed now */
void sim_stop(void);          /* is stopped now, for its stop_seconds */
bool sim_is_dead(int rank);   /* has been killed */
bool sim_has_lacked(int rank); /* has an allocation of it failed? */
bool sim_is_cut(int a, int b); /* are these ranks' hosts cut off from each other now? */
double sim_stopped(int rank); /* for how long, until now */
uint64_t sim_random(void);    /* by the seed */
void sim_device_thread(
    void); /* the running thread is the rank's device: see sim_driver.c */
void sim_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
