/* SPDX-License-Identifier: MIT */
/*
 * page.h - what a rank shows of itself to tools: its teams, its call sites, its last calls, its
 * waits and its failures.
 *
 * The page is a sealed memfd, "symm-JOB-RANK", whose descriptor stays open until symm_finalize, so
 * that another process of the same user finds it in /proc/PID/fd and maps it for reading. The
 * rank alone writes it. No peer maps it, and the library reads nothing from it but its own
 * counters, so nothing in it can make a call wrong.
 *
 * Readers trust nothing: an entry counts if its first word is the same before and after the rest
 * was copied, and is not the mark of an entry that is being written; text may lack a NUL, and no
 * value is an index without a check. Words are stored last (release) and cleared first. All
 * strings are names as the library prints them, so a reader needs no table of it. A change of
 * anything here raises SYMM_SIGHT_LAYOUT.
 *
 * Times are ticks: of the processor's counter if `ticks_tsc`, else nanoseconds of
 * CLOCK_MONOTONIC. `opened_ticks` and `opened_ns` were read together; a reader on the same host
 * reads both clocks again and has the rate.
 */
#ifndef SYMM_SIGHT_PAGE_H
#define SYMM_SIGHT_PAGE_H

#include <stddef.h>
#include <stdint.h>

#define SYMM_SIGHT_MAGIC    0x73796d6d73656531u /* "symmsee1" */
#define SYMM_SIGHT_LAYOUT   3
#define SYMM_SIGHT_TEAMS    256
#define SYMM_SIGHT_MEMBERS  64   /* world ranks of a team that are listed */
#define SYMM_SIGHT_SITES    1024 /* a power of two */
#define SYMM_SIGHT_CALLS    1024 /* a power of two */
#define SYMM_SIGHT_WAITS    64
#define SYMM_SIGHT_AWAITED  16 /* ranks of a wait that are listed */
#define SYMM_SIGHT_FAILURES 16
#define SYMM_SIGHT_PROGRESS 256              /* channels of teams */
#define SYMM_SIGHT_CONTROL  UINT32_MAX       /* the channel of exchanges over sockets */
#define SYMM_SIGHT_PAIRS    (UINT32_MAX - 1) /* of one-sided calls, sends and receives */
#define SYMM_SIGHT_NAME     96
#define SYMM_SIGHT_SENTENCE 1272

struct symm_sight_team {
    uint32_t uid; /* 0: the slot is free; stored last */
    uint32_t number;
    int32_t rank, size;
    char name[64];                      /* "" or the program's */
    int32_t member[SYMM_SIGHT_MEMBERS]; /* world ranks, by team rank */
};

/* Calls of one operation with the same arguments. Calls may outlive their site: its place may
 * have been taken by a newer site. */
struct symm_sight_site {
    uint32_t id; /* at place id % SYMM_SIGHT_SITES; 0: none; stored last */
    uint32_t team_uid;
    uint64_t key;   /* of its arguments */
    int32_t root;   /* or peer; -1: none */
    int32_t signal; /* -1: none */
    uint32_t channel;
    uint32_t fallback;          /* 1: a slower algorithm; `reason` says why */
    uint64_t bytes;             /* that the call reads or moves on this rank */
    uint64_t count;             /* elements */
    uint64_t calls;             /* begun so far */
    uint64_t timed;             /* of `calls`, those that were timed and have ended */
    uint64_t ticks;             /* that these took in all */
    char op[24];                /* "all_reduce" */
    char dtype[16];             /* "float32" */
    char reduction[8];          /* "sum", or "" */
    char algorithm[24];         /* "one_shot", or "" */
    char reason[144];           /* why that one */
    char name[SYMM_SIGHT_NAME]; /* the program's name of the site, or "" */
};

enum symm_sight_state {
    SYMM_SIGHT_QUEUED = 1, /* on a stream of the host, not begun */
    SYMM_SIGHT_RUNNING,    /* host: it runs; CUDA: it is being launched */
    SYMM_SIGHT_LAUNCHED,   /* CUDA: its kernel is on a stream */
    SYMM_SIGHT_CAPTURED, /* CUDA: it is a node of a graph, which runs it at each replay */
    SYMM_SIGHT_DONE,     /* host */
    SYMM_SIGHT_FAILED,   /* it returned an error */
};

/*
 * A call that is queued or runs keeps its place: only its owner writes the entry, and a newer call
 * takes the next place, so numbers have gaps. Calls that have ended lose their places to newer
 * ones. A call that finds no free place in some tries is left out of the list.
 */
struct symm_sight_call {
    uint64_t word; /* number of the call << 8 | state, 0: being written; 0: none */
    uint64_t begin, end; /* ticks; 0: not timed, or not yet */
    uint32_t site;       /* id */
    /* Step of its channel; CUDA: launch of it; 0: not known yet, none. SYMM_SIGHT_PAIRS: how
     * many calls like it this rank had made with the peer, see call/seen.h. */
    uint32_t epoch;
};

/* A wait that has lasted a few milliseconds. */
struct symm_sight_wait {
    uint64_t since;    /* nanoseconds of CLOCK_MONOTONIC; 0: free; stored last */
    uint32_t claimed;  /* by a thread of the rank */
    uint32_t team_uid; /* 0: of no team */
    uint32_t epoch;
    uint32_t channel;
    uint64_t bytes;
    char op[24];
    char name[SYMM_SIGHT_NAME];          /* of the site */
    int32_t missing;                     /* ranks awaited; -1: not known */
    int32_t awaited[SYMM_SIGHT_AWAITED]; /* the first of them, world ranks */
};

struct symm_sight_failure {
    uint32_t team_uid;
    int32_t status; /* symm_status; stored last */
    char sentence[SYMM_SIGHT_SENTENCE];
};

/* CUDA, SYMM_SIGHT=1: how far the device is on a channel, by the last poll. */
struct symm_sight_progress {
    uint32_t team_uid; /* 0: free; stored last */
    uint32_t channel;
    uint32_t ended;    /* number of the last call that the device has ended */
    uint32_t launched; /* calls that the host has launched, beside those in graphs */
    uint64_t looked;   /* nanoseconds of CLOCK_MONOTONIC; stored last of an update */
};

struct symm_sight_page {
    uint64_t magic;
    uint32_t layout; /* SYMM_SIGHT_LAYOUT */
    uint32_t bytes;  /* of the page */
    int32_t rank, size;
    int32_t pid;
    uint32_t ticks_tsc;
    uint64_t opened_ticks, opened_ns, opened_real_ns; /* real: CLOCK_REALTIME */
    uint32_t times;                                   /* 1: every call is timed */
    uint32_t finished;                                /* symm_finalize has begun */
    char job[64], host[64], backend[16], version[16];
    uint64_t calls;    /* number of the last call; may lag while threads make calls */
    uint32_t sites;    /* id of the last site */
    uint32_t failures; /* ever */
    uint64_t left_out; /* calls that are not in the list */
    uint64_t whole;    /* the number after which no call is missing */
    uint8_t reserved[4096 - 256];
    struct symm_sight_team team[SYMM_SIGHT_TEAMS]; /* by slot */
    struct symm_sight_site site[SYMM_SIGHT_SITES];
    /* number n at n % SYMM_SIGHT_CALLS */
    struct symm_sight_call call[SYMM_SIGHT_CALLS];
    struct symm_sight_wait wait[SYMM_SIGHT_WAITS];
    struct symm_sight_failure failure[SYMM_SIGHT_FAILURES]; /* the first ones */
    struct symm_sight_progress progress[SYMM_SIGHT_PROGRESS];
};
_Static_assert(offsetof(struct symm_sight_page, team) == 4096, "layout");
_Static_assert(sizeof(struct symm_sight_site) == 384, "layout");
_Static_assert(sizeof(struct symm_sight_call) == 32, "layout");

#endif
