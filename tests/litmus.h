/* SPDX-License-Identifier: MIT */
/*
 * litmus.h - litmus tests for C11's memory model: a program of two or three threads and an outcome
 * that must not be. litmus_search.c searches all its executions, litmus_run.c runs it.
 */
#ifndef SYMM_TESTS_LITMUS_H
#define SYMM_TESTS_LITMUS_H

#include <stdbool.h>

#define MOST  16 /* events of a program, with the initial writes */
#define PLACE 4  /* locations of a program */

enum { DATA, WORD, FLAG, MORE }; /* locations */

enum kind { END, WRITE, READ, ADD, SWAP, FENCE };
enum order { PLAIN, RELAXED, ACQUIRE, RELEASE, ACQ_REL, SEQ_CST };

/* One access. WRITE and SWAP store `value`, ADD adds it, READ awaits it unless it is ANY. What
 * follows an ADD or SWAP with `wants` is for the case that it reads that; 0: any. */
struct event {
    int thread;
    enum kind kind;
    int place;
    enum order order;
    int value, wants;
};
#define ANY (-1) /* of a READ: whatever comes */

/* Where `got[i]` is what event i has read. */
typedef bool outcome(const int *got);

struct litmus {
    const char *name;
    struct event events[MOST];
    outcome *forbidden; /* NULL: a race alone */
    outcome *run;       /* forbidden where it runs; NULL: the same */
};

struct litmus_count {
    long executions, found; /* found: those with the outcome */
};

/* What an ordering is weakened to: seq_cst to acquire and release, others to relaxed. */
enum order litmus_weaker(enum order order);
/* Counts the executions that C11 allows. weak: the event whose ordering is weakened; -1: none. */
struct litmus_count litmus_search(const struct litmus *test, int weak);

/* How often the outcome is seen. rounds: becomes the number that were run. */
long litmus_run(const struct litmus *test, int weak, long *rounds);

#endif
