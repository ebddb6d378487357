/* SPDX-License-Identifier: MIT */
/*
 * hosts.c - symm-info --hosts: a row for each host of the job, by symm_hosts_check.
 *
 * Rank 0 prints the table; another host's process says on stderr what is wrong with its own host.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "symm/tools.h"
#include "tools/symm-info/info.h"

struct table {
    FILE *file;
    struct symm_emit *emit; /* NULL: text */
    int rows;
};

/* "12.3 us", "-1.5 ms"; "-": not measured. */
static const char *time_text(double seconds, char *text, size_t bytes)
{
    double size = fabs(seconds);

    if (isnan(seconds))
        snprintf(text, bytes, "-");
    else if (size >= 1)
        snprintf(text, bytes, "%.3g s", seconds);
    else if (size >= 1e-3)
        snprintf(text, bytes, "%.3g ms", seconds * 1e3);
    else
        snprintf(text, bytes, "%.3g us", seconds * 1e6);
    return text;
}

static void print_row(struct table *table, const symm_host_report *host)
{
    char trip[32], offset[32], error[32], rank[16] = "?";

    if (table->rows++ == 0)
        fprintf(table->file, "%-6s %5s  %-20s %-20s %-8s %10s %10s %10s  %s\n", "rank",
                "ranks", "host", "address", "version", "round trip", "clock", "+-",
                "state");
    if (host->rank >= 0)
        snprintf(rank, sizeof(rank), "%d", host->rank);
    fprintf(
        table->file, "%-6s %5d  %-20s %-20s %-8s %10s %10s %10s  %s\n", rank,
        host->ranks, host->name[0] ? host->name : "?",
        host->address[0] ? host->address : "?", host->version[0] ? host->version : "?",
        time_text(host->round_trip, trip, sizeof(trip)),
        time_text(host->clock_offset, offset, sizeof(offset)),
        time_text(host->clock_error, error, sizeof(error)), host->good ? "ok" : "FAIL");
    if (!host->good)
        fprintf(table->file, "       %s\n", host->problem);
}

static void emit_seconds(struct symm_emit *emit, const char *key, double seconds)
{
    char text[32];

    snprintf(text, sizeof(text), "%.9f", seconds);
    symm__emit_key(emit, key);
    symm__emit_json(emit, isnan(seconds) ? "null" : text);
}

static void emit_row(struct symm_emit *emit, const symm_host_report *host)
{
    symm__emit_begin_map(emit);
    symm__emit_key_signed(emit, "rank", host->rank);
    symm__emit_key_signed(emit, "ranks", host->ranks);
    symm__emit_key_string(emit, "name", host->name);
    symm__emit_key_string(emit, "address", host->address);
    symm__emit_key_string(emit, "version", host->version);
    emit_seconds(emit, "round_trip", host->round_trip);
    emit_seconds(emit, "clock_offset", host->clock_offset);
    emit_seconds(emit, "clock_error", host->clock_error);
    symm__emit_key_bool(emit, "ok", host->good);
    symm__emit_key_string(emit, "problem", host->problem);
    symm__emit_end_map(emit);
}

static void take_row(void *arg, const symm_host_report *host)
{
    struct table *table = arg;

    if (table->emit)
        emit_row(table->emit, host);
    else
        print_row(table, host);
}

/* On rank 0 alone: the others have no table. */
static symm_status check(FILE *file, bool json, double timeout)
{
    struct symm_emit emit;
    struct table table = {.file = file, .emit = json ? &emit : NULL};
    symm_status status;

    if (!json)
        return symm_hosts_check(timeout, take_row, &table);
    symm__emit_init_file(&emit, SYMM_EMIT_JSON, file);
    symm__emit_begin_map(&emit);
    symm__emit_key_string(&emit, "format", "symm-info/1");
    symm__emit_key(&emit, "hosts");
    symm__emit_begin_list(&emit);
    status = symm_hosts_check(timeout, take_row, &table);
    symm__emit_end_list(&emit);
    symm__emit_end_map(&emit);
    if (symm__emit_finish(&emit) != 0 && status == SYMM_OK)
        return SYMM_ERR_SYSTEM; /* main says that the output cannot be written */
    return status;
}

bool symm__info_hosts(FILE *file, bool json, double timeout)
{
    symm_job_info job = {.size = sizeof(job)};
    symm_status status = symm_job_detect(&job);

    if (status == SYMM_OK && job.rank != 0)
        status = symm_hosts_check(timeout, take_row, &(struct table){.file = file});
    else if (status == SYMM_OK)
        status = check(file, json, timeout);
    if (status != SYMM_OK)
        fprintf(stderr, "symm-info: rank %d: %s\n", job.rank, symm_last_error());
    return status == SYMM_OK;
}
