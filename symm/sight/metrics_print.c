/* SPDX-License-Identifier: MIT */
/* metrics_print.c - the metrics of a rank in Prometheus' text format; see metrics_file.h. */
#include <inttypes.h>

#include "sight/metrics.h"

struct printer {
    FILE *file;
    const struct symm_metrics *metrics;
    const struct symm_sight_page *page;
};

/* In a label's value \, " and the newline have an escape. */
static void put_value(FILE *file, const char *text)
{
    for (; *text; text++) {
        if (*text == '\\' || *text == '"' || *text == '\n')
            fputc('\\', file);
        fputc(*text == '\n' ? 'n' : *text, file);
    }
}

static void put_label(const struct printer *p, const char *name, const char *value)
{
    fprintf(p->file, ",%s=\"", name);
    put_value(p->file, value);
    fputc('"', p->file);
}

/* Name and the labels that all samples have; put_label adds others. */
static void begin(const struct printer *p, const char *name)
{
    fprintf(p->file, "%s{rank=\"%" PRId32 "\",job=\"", name, p->page->rank);
    put_value(p->file, p->page->job);
    fputc('"', p->file);
}

static void end_count(const struct printer *p, uint64_t value)
{
    fprintf(p->file, "} %" PRIu64 "\n", value);
}

/* Not by %f: its decimal point is a comma in many a program's locale. */
static void end_seconds(const struct printer *p, double value)
{
    const uint64_t ns = (uint64_t)(1e9 * value + 0.5);

    fprintf(p->file, "} %" PRIu64 ".%09" PRIu64 "\n", ns / 1000000000, ns % 1000000000);
}

static void family(const struct printer *p, const char *name, const char *type,
                   const char *help)
{
    fprintf(p->file, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* ---- Calls ------------------------------------------------------------------------------- */

static void begin_row(const struct printer *p, const char *name,
                      const struct symm_metrics_row *row)
{
    char size[24] = "0";

    if (row->size_class >= 0)
        snprintf(size, sizeof(size), "%" PRIu64, UINT64_C(1) << 2 * row->size_class);
    begin(p, name);
    put_label(p, "op", row->op);
    put_label(p, "algorithm", row->algorithm);
    put_label(p, "size", size);
}

static void put_counts(const struct printer *p, const char *name, const char *help,
                       size_t offset)
{
    const struct symm_metrics_table *table = &p->metrics->shown;

    family(p, name, "counter", help);
    for (int i = 0; i < table->rows; i++) {
        begin_row(p, name, &table->row[i]);
        end_count(p, *(const uint64_t *)((const char *)&table->row[i] + offset));
    }
}

static void put_calls(const struct printer *p)
{
    const struct symm_metrics_table *table = &p->metrics->shown;
    const char *name = "symm_call_seconds_total";
    char help[300];

    put_counts(p, "symm_calls_total",
               "Calls that this rank has begun, by operation, algorithm and size: at "
               "most so many bytes, a power of 4. A captured call counts once.",
               offsetof(struct symm_metrics_row, calls));
    put_counts(p, "symm_bytes_total", "Bytes that these calls read or moved here.",
               offsetof(struct symm_metrics_row, bytes));
    put_counts(p, "symm_timed_calls_total", "Of these calls, those that were timed.",
               offsetof(struct symm_metrics_row, timed));
    snprintf(help, sizeof(help), "Seconds in calls; on CUDA, in their launches. %s",
             p->metrics->sample == 1
                 ? "Every call is timed."
                 : "Estimated from samples: one call in " /* as SYMM_METRICS_SAMPLE */
                   "64 is timed and counts 64 times; SYMM_SIGHT=1 times every call.");
    family(p, name, "counter", help);
    for (int i = 0; i < table->rows; i++) {
        begin_row(p, name, &table->row[i]);
        end_seconds(p, p->metrics->tick_seconds * (double)table->row[i].ticks *
                           p->metrics->sample);
    }
}

static void put_fallbacks(const struct printer *p)
{
    const char *name = "symm_fallback_calls_total";
    const struct symm_metrics_table *table = &p->metrics->shown;

    family(p, name, "counter",
           "Calls by an engine or a slower algorithm for want of symmetric memory, a "
           "kernel or a plan's algorithm, with the reason.");
    for (int i = 0; i < table->fallbacks; i++) {
        begin(p, name);
        put_label(p, "op", table->fallback[i].op);
        put_label(p, "algorithm", table->fallback[i].algorithm);
        put_label(p, "reason", table->fallback[i].reason);
        end_count(p, table->fallback[i].calls);
    }
}

/* ---- The rest ------------------------------------------------------------------------------ */

static void put_waits(const struct printer *p)
{
    const struct symm_metrics *metrics = p->metrics;
    char peer[16];

    family(p, "symm_waits_total", "counter",
           "Waits of more than some milliseconds, by the rank that was awaited.");
    for (int r = 0; r < metrics->size; r++) {
        uint64_t waits = __atomic_load_n(&metrics->wait[r].waits, __ATOMIC_RELAXED);

        snprintf(peer, sizeof(peer), "%d", r);
        begin(p, "symm_waits_total");
        put_label(p, "peer", peer);
        end_count(p, waits);
    }
    family(p, "symm_wait_seconds_total", "counter",
           "Seconds of these waits, by the rank that was awaited; several may be "
           "awaited at a time.");
    for (int r = 0; r < metrics->size; r++) {
        uint64_t ns = __atomic_load_n(&metrics->wait[r].ns, __ATOMIC_RELAXED);

        snprintf(peer, sizeof(peer), "%d", r);
        begin(p, "symm_wait_seconds_total");
        put_label(p, "peer", peer);
        end_seconds(p, 1e-9 * (double)ns);
    }
}

static void put_failures(const struct printer *p)
{
    const char *name = "symm_failures_total";

    family(p, name, "counter", "Teams that have failed here, by status.");
    for (int i = 1; i < SYMM_METRICS_STATUSES; i++) {
        uint64_t failed = __atomic_load_n(&p->metrics->failed[i], __ATOMIC_RELAXED);

        if (failed == 0)
            continue;
        begin(p, name);
        put_label(p, "status", symm_status_name((symm_status)-i));
        end_count(p, failed);
    }
}

static void put_gauge(const struct printer *p, const char *name, const char *help,
                      uint64_t value)
{
    family(p, name, "gauge", help);
    begin(p, name);
    end_count(p, value);
}

void symm__metrics_print(FILE *file, const struct symm_metrics *metrics,
                         const struct symm_sight_page *page)
{
    const struct printer p = {file, metrics, page};

    family(&p, "symm_info", "gauge", "What the rank is; always 1.");
    begin(&p, "symm_info");
    put_label(&p, "host", page->host);
    put_label(&p, "backend", page->backend);
    put_label(&p, "version", page->version);
    end_count(&p, 1);
    put_gauge(&p, "symm_ranks", "Ranks of the job.", (uint64_t)page->size);
    put_gauge(&p, "symm_finished", "1: symm_finalize has begun.",
              __atomic_load_n(&page->finished, __ATOMIC_RELAXED));
    put_calls(&p);
    put_fallbacks(&p);
    put_waits(&p);
    put_failures(&p);
    put_gauge(&p, "symm_heap_used_bytes", "Symmetric memory in use by buffers here.",
              metrics->heap_used);
    put_gauge(&p, "symm_heap_committed_bytes",
              "Symmetric memory that this rank has committed, with pads and scratch.",
              metrics->heap_committed);
}
