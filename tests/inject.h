/* SPDX-License-Identifier: MIT */
/*
 * inject.h - makes a chosen call fail, and keeps accounts of what is held.
 *
 * A suite that is linked with --wrap for the names in wrap.txt includes inject_wrap.h,
 * whose functions ask inject_fails before they call what they stand for. Only calls of
 * armed threads count and fail: the thread that has called inject_begin, and those
 * that it starts from then on. Calls are counted from 1.
 *
 * The accounts cover every thread of the process: blocks of memory that were allocated
 * and not freed, mappings that were made where the kernel liked and not undone.
 */
#ifndef SYMM_TESTS_INJECT_H
#define SYMM_TESTS_INJECT_H

#include <stdbool.h>
#include <stddef.h>

enum inject_mode {
    INJECT_ONCE,      /* the k-th call that can fail fails */
    INJECT_AGAIN,     /* the same without calls that receive */
    INJECT_FOREVER,   /* it and all that follow */
    INJECT_INTERRUPT, /* the k-th call that a signal can interrupt is interrupted */
    INJECT_STORM      /* half of those calls, at random; k is the seed */
};

/* What can become of a call. */
#define INJECT_CAN_FAIL      1u
#define INJECT_CAN_INTERRUPT 2u
#define INJECT_RECEIVES      4u /* it learns what peers have done: can't be undone */

#define INJECT_NAME_BYTES 24

struct inject_report {
    long calls;                    /* of armed threads, of the mode's kind */
    long injected;                 /* of those, how many failed */
    char first[INJECT_NAME_BYTES]; /* the first function that failed */
};

void inject_begin(enum inject_mode mode, long k);
/* Disarms all threads. */
void inject_end(struct inject_report *report);

/* For wrappers: must this call fail? Sets errno, to `error` or EINTR. */
bool inject_fails(const char *name, int error, unsigned can);
bool inject_armed(void);      /* is the calling thread? */
void inject_arm_thread(void); /* one that an armed thread has started */

void inject_account_begin(void);
void inject_account_block(const void *block); /* NULL: none was made */
void inject_account_freed(const void *block); /* NULL: nothing happens */
void inject_account_mapped(const void *at);   /* by mmap, not at a fixed place */
void inject_account_unmapped(const void *at);
/* What is held more than at inject_account_begin. */
void inject_account_read(long *blocks, long *mappings);

#endif
