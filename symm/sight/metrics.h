/* SPDX-License-Identifier: MIT */
/*
 * metrics.h - a rank's counters as metrics_file.h writes them.
 *
 * Calls are counted in the sites of the page, as without metrics; the counts of a site are kept
 * when another site takes its place. Counters never decrease. Functions that count take NULL and
 * do nothing then.
 */
#ifndef SYMM_SIGHT_METRICS_H
#define SYMM_SIGHT_METRICS_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

#include "sight/page.h"
#include "symm/symm.h"

/* Without SYMM_SIGHT=1 one call in so many is timed: a power of two. */
#define SYMM_METRICS_SAMPLE    64
#define SYMM_METRICS_ROWS      512
#define SYMM_METRICS_FALLBACKS 64
#define SYMM_METRICS_STATUSES  64

struct symm_metrics_row {
    int size_class; /* up to 4^size_class bytes; -1: none */
    char op[24], algorithm[24];
    uint64_t calls, bytes, timed, ticks;
};

struct symm_metrics_fallback {
    char op[24], algorithm[24], reason[144];
    uint64_t calls;
};

struct symm_metrics_table {
    int rows, fallbacks;
    struct symm_metrics_row row[SYMM_METRICS_ROWS];
    struct symm_metrics_fallback fallback[SYMM_METRICS_FALLBACKS];
};

struct symm_metrics_wait {
    uint64_t ns, waits; /* atomic */
};

struct symm_metrics {
    char path[PATH_MAX], draft[PATH_MAX];
    double interval;
    unsigned sample;                        /* one call in so many is timed */
    double tick_seconds;                    /* 0: not measured yet */
    /* the log has that the file cannot be written */
    bool told;
    /* past: of sites that were replaced; shown: of all */
    struct symm_metrics_table past, shown;
    uint64_t failed[SYMM_METRICS_STATUSES]; /* atomic, by -status */
    bool (*heap)(void *arg, uint64_t *used, uint64_t *committed);
    void *heap_arg;
    uint64_t heap_used, heap_committed; /* the last that `heap` gave */
    int size;                           /* of the job */
    struct symm_metrics_wait wait[];    /* [size], by world ranks */
};

/* Keeps the counts of a site whose place another one takes. With sight->lock held, as
 * symm__metrics_sum. */
void symm__metrics_retire(struct symm_metrics *metrics,
                          const struct symm_sight_site *site);
void symm__metrics_failed(struct symm_metrics *metrics, symm_status status);
/* Counts that the ranks were awaited for that long; first: the wait is new. Any thread. */
void symm__metrics_waited(struct symm_metrics *metrics, const int *ranks, int count,
                          uint64_t ns, bool first);
/* metrics->shown becomes all that was counted. */
void symm__metrics_sum(struct symm_metrics *metrics,
                       const struct symm_sight_page *page);
/* metrics_print.c */
void symm__metrics_print(FILE *file, const struct symm_metrics *metrics,
                         const struct symm_sight_page *page);

#endif
