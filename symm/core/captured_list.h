/* SPDX-License-Identifier: MIT */
/* captured_list.h - the list of a team's captured calls, for captured.c and captured_exchange.c. */
#ifndef SYMM_CORE_CAPTURED_LIST_H
#define SYMM_CORE_CAPTURED_LIST_H

#include "core/captured_site.h"
#include "core/run.h"
#include "core/team.h"

/* Own allocations that calls use. */
struct symm_captured_run {
    struct symm_captured_run *next;
    struct symm_own_run own;
    struct symm_mem_hold *mem;
    size_t users;   /* arrays of calls that are not released */
    uint64_t index; /* in the message that is packed; NOT_SENT: not in it */
};

struct symm_captured_place {
    char *ptr;
    size_t bytes;                  /* 0: peers do not use the array */
    struct symm_captured_run *run; /* NULL: symmetric memory, or released */
    uint64_t offset;               /* in the run or the heap */
    struct symm_opened *opened[SYMM_DEVICE_RANKS]; /* by member; NULL: not of a run */
    char *at[SYMM_DEVICE_RANKS];                   /* by member */
};

enum symm_captured_state {
    SYMM_CAPTURED_OPEN, /* its bracket has not ended */
    SYMM_CAPTURED_READY,
    SYMM_CAPTURED_FAILED /* the end of its bracket has failed */
};

/* Whether the members know that this rank has released the call. */
enum symm_captured_report {
    SYMM_CAPTURED_UNREPORTED,
    SYMM_CAPTURED_SENT,
    SYMM_CAPTURED_REPORTED
};

struct symm_captured {
    struct symm_captured_site site;
    uint64_t key;
    enum symm_captured_state state;
    uint32_t released;                  /* by these members, a bit each */
    enum symm_captured_report reported; /* that this rank has released it */
    const void *gone;                   /* what this rank released */
    size_t gone_bytes;
    struct symm_captured_place place[SYMM_CAPTURED_ARRAYS];
};

struct symm_capture {
    symm_team *team;
    struct symm_capture *next;   /* in the process's list, guarded by the list's lock */
    pthread_mutex_t lock;        /* guards all below */
    uint64_t bracket;            /* number of the last one */
    bool ending;                 /* its message is being sent: runs stay */
    struct symm_captured *calls; /* owned */
    size_t count, capacity, first;  /* first: of the bracket */
    struct symm_captured_run *runs; /* owned */
};

#define SYMM_CAPTURED_NOT_SENT UINT64_MAX

/* With the lock of the list. */
/* The call no longer needs this rank's memory there. */
void symm__captured_place_end(struct symm_captured_place *place);
/* Frees runs that no call needs, unless a message with them is being sent. */
void symm__captured_runs_sweep(symm_team *team);

#endif
