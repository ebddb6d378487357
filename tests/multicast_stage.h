/* SPDX-License-Identifier: MIT */
/*
 * multicast_stage.h - a rank's memory; calls that the switch may reduce, with their results
 * checked.
 */
#ifndef SYMM_TESTS_MULTICAST_STAGE_H
#define SYMM_TESTS_MULTICAST_STAGE_H

#include "device.h"
#include "harness.h"

#define MIB ((size_t)1 << 20)
#define AREA_BYTES                                                                     \
    (3 * MIB) /* not a multiple of the granularity: areas share segments */
#define BACK  (AREA_BYTES / 2)
#define MOST  8
#define CASES 64

/* Reports of the ranks to each other and to the test; shared memory. */
struct reported {
    struct harness_sync sync;
    uint64_t hash[MOST][CASES];
    bool has[MOST][2];       /* has multicast: the first buffer, the second */
    uint64_t from[2], to[2]; /* driver calls of the opening, of the extension */
    _Atomic int warnings;
    char warning[512], notice[512];
};

struct stage {
    symm_ctx *ctx;
    symm_team *team;
    int rank, n, cases;
    symm_buffer *buffer[2];
    char *area[2], *private, *host, *wanted;
    struct reported *reported;
};

enum where { FIRST, SECOND, PRIVATE };

struct test_case {
    bool gather;
    symm_dtype dtype;
    size_t count;
    const char *algorithm;
    enum where in, out;
    bool in_place;
    size_t in_shift, out_shift; /* elements */
};

int stage_open(struct stage *s, symm_ctx *ctx, symm_team *team,
               struct reported *reported);
/* Allocates one more buffer, followed by its own rendezvous. */
symm_status stage_grow(struct stage *s, int index);
void stage_close(struct stage *s);
/* Makes the call; symm_explain must name the path, and the result be right on all ranks. */
int run_case(struct stage *s, const struct test_case *t, const char *path);

#endif
