/* SPDX-License-Identifier: MIT */
/*
 * inject.h - makes a chosen call fail, and counts blocks and mappings that are held.
 *
 * A suite that is linked with --wrap for the names in wrap.txt includes inject_wrap.h,
 * whose functions ask inject_fails before they call the wrapped function. Only calls of
 * armed threads count and fail: of the thread that called inject_begin, and of threads
 * that it starts later. Calls are counted from 1.
 *
 * The accounts cover every thread of the process: blocks of memory that were not freed,
 * mappings at addresses chosen by the kernel that were not unmapped.
 */
#ifndef SYMM_TESTS_INJECT_H
#define SYMM_TESTS_INJECT_H

#include <stdbool.h>
#include <stddef.h>

enum inject_mode {
    INJECT_ONCE,      /* the k-th call that can fail fails */
    INJECT_AGAIN,     /* the same; calls that receive do not count */
    INJECT_FOREVER,   /* the k-th and all later calls that can fail fail */
    INJECT_INTERRUPT, /* the k-th call that a signal can interrupt is interrupted */
    INJECT_STORM      /* half of those calls, at random; k is the seed */
};

/* Properties of a call. */
#define INJECT_CAN_FAIL      1u
#define INJECT_CAN_INTERRUPT 2u
#define INJECT_RECEIVES      4u /* it receives data of peers, which cannot be undone */

#define INJECT_NAME_BYTES 24

struct inject_report {
    long calls;    /* of armed threads, of the kind that the mode counts */
    long injected; /* how many of these failed */
    char first[INJECT_NAME_BYTES]; /* the first function that failed */
};

void inject_begin(enum inject_mode mode, long k);
/* Disarms all threads. */
void inject_end(struct inject_report *report);

/* For wrappers: whether this call must fail. Sets errno to `error` or EINTR. */
bool inject_fails(const char *name, int error, unsigned can);
bool inject_armed(void);      /* whether the calling thread is armed */
void inject_arm_thread(void); /* for a thread started by an armed thread */

void inject_account_begin(void);
void inject_account_block(const void *block); /* NULL: ignored */
void inject_account_freed(const void *block); /* NULL: ignored */
void inject_account_mapped(const void *at);   /* by mmap without MAP_FIXED */
void inject_account_unmapped(const void *at);
/* Blocks and mappings held beyond those of inject_account_begin. */
void inject_account_read(long *blocks, long *mappings);

#endif
