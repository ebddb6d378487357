/* SPDX-License-Identifier: MIT */
/*
 * metrics.c - see metrics.h: the counters, and how they are kept when a site is replaced.
 *
 * A table has one row for each operation, algorithm and class of sizes; a table of fallbacks has
 * the reason, too. When the file is written, the counts of present sites are added to a copy of
 * the tables. A table that is full adds new rows to its last row, "other".
 */
#include "sight/metrics.h"

#include <string.h>

/* ---- Rows ------------------------------------------------------------------------------ */

static int class_of(uint64_t bytes)
{
    int class = 0;

    if (bytes == 0)
        return -1;
    while (class < 31 && UINT64_C(1) << 2 * class < bytes)
        class ++;
    return class;
}

static void put_name(char *to, size_t bytes, const char *name)
{
    snprintf(to, bytes, "%s", name);
}

static struct symm_metrics_row *row_of(struct symm_metrics_table *table,
                                       const struct symm_sight_site *site)
{
    const int class = class_of(site->bytes);
    struct symm_metrics_row *row = table->row;

    for (int i = 0; i < table->rows; i++, row++)
        if (row->size_class == class && strcmp(row->op, site->op) == 0 &&
            strcmp(row->algorithm, site->algorithm) == 0)
            return row;
    if (table->rows == SYMM_METRICS_ROWS)
        return &table->row[SYMM_METRICS_ROWS - 1];
    row = &table->row[table->rows++];
    row->size_class = class;
    put_name(row->op, sizeof(row->op), site->op);
    put_name(row->algorithm, sizeof(row->algorithm), site->algorithm);
    if (table->rows == SYMM_METRICS_ROWS) {
        row->size_class = -1;
        put_name(row->op, sizeof(row->op), "other");
        row->algorithm[0] = '\0';
    }
    return row;
}

static struct symm_metrics_fallback *fallback_of(struct symm_metrics_table *table,
                                                 const struct symm_sight_site *site)
{
    struct symm_metrics_fallback *row = table->fallback;

    for (int i = 0; i < table->fallbacks; i++, row++)
        if (strcmp(row->op, site->op) == 0 &&
            strcmp(row->algorithm, site->algorithm) == 0 &&
            strcmp(row->reason, site->reason) == 0)
            return row;
    if (table->fallbacks == SYMM_METRICS_FALLBACKS)
        return &table->fallback[SYMM_METRICS_FALLBACKS - 1];
    row = &table->fallback[table->fallbacks++];
    put_name(row->op, sizeof(row->op), site->op);
    put_name(row->algorithm, sizeof(row->algorithm), site->algorithm);
    put_name(row->reason, sizeof(row->reason), site->reason);
    if (table->fallbacks == SYMM_METRICS_FALLBACKS) {
        put_name(row->op, sizeof(row->op), "other");
        row->algorithm[0] = row->reason[0] = '\0';
    }
    return row;
}

/* With sight->lock held, so that the site stays what it is. */
static void add(struct symm_metrics_table *table, const struct symm_sight_site *site)
{
    const uint64_t calls = __atomic_load_n(&site->calls, __ATOMIC_RELAXED);
    struct symm_metrics_row *row;

    if (site->id == 0 || calls == 0)
        return;
    row = row_of(table, site);
    row->calls += calls;
    row->bytes += calls * site->bytes;
    row->timed += __atomic_load_n(&site->timed, __ATOMIC_RELAXED);
    row->ticks += __atomic_load_n(&site->ticks, __ATOMIC_RELAXED);
    if (site->fallback)
        fallback_of(table, site)->calls += calls;
}

void symm__metrics_retire(struct symm_metrics *metrics,
                          const struct symm_sight_site *site)
{
    if (metrics)
        add(&metrics->past, site);
}

void symm__metrics_failed(struct symm_metrics *metrics, symm_status status)
{
    const int at = -(int)status;

    if (metrics && at > 0 && at < SYMM_METRICS_STATUSES)
        __atomic_fetch_add(&metrics->failed[at], 1, __ATOMIC_RELAXED);
}

void symm__metrics_waited(struct symm_metrics *metrics, const int *ranks, int count,
                          uint64_t ns, bool first)
{
    for (int i = 0; metrics && i < count; i++) {
        struct symm_metrics_wait *wait;

        if (ranks[i] < 0 || ranks[i] >= metrics->size)
            continue;
        wait = &metrics->wait[ranks[i]];
        __atomic_fetch_add(&wait->ns, ns, __ATOMIC_RELAXED);
        if (first)
            __atomic_fetch_add(&wait->waits, 1, __ATOMIC_RELAXED);
    }
}

void symm__metrics_sum(struct symm_metrics *metrics, const struct symm_sight_page *page)
{
    metrics->shown = metrics->past;
    for (int i = 0; i < SYMM_SIGHT_SITES; i++)
        add(&metrics->shown, &page->site[i]);
}
