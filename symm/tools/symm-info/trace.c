/* SPDX-License-Identifier: MIT */
/*
 * trace.c - symm-info trace: the traces of a job's ranks (SYMM_TRACE) as one file.
 *
 * Times of ranks on one host compare as they are; ranks of other hosts are moved by what their
 * host's CLOCK_REALTIME says, and the file states how far that may be off. A rank's file without
 * an end, since the rank died, is taken up to its last whole line.
 * Refuses: files of several jobs, a file that is no trace of symm, a line that is no event.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/args.h"
#include "tools/common/output.h"
#include "tools/symm-info/info.h"
#include "util/emit.h"

#define FORMAT "symm-trace/1" /* as in sight/trace_file.h */

struct trace {
    char *path;
    FILE *file;
    char *line; /* the last one that was read, without comma and newline; owned */
    size_t line_bytes;
    unsigned number;                    /* of the line */
    char job[128], boot[64], host[128]; /* as they stand in JSON */
    int64_t rank, size;
    int64_t offset_us, error_us; /* CLOCK_REALTIME; error -1: not known */
    int64_t shift_us;            /* that its times are moved by */
    int64_t dropped;
    bool cut; /* it has no end */
};

struct job {
    struct trace *traces; /* by ranks */
    int count;
    bool one_host;
};

static int fail(const char *path, const char *why)
{
    fprintf(stderr, "symm-info: %s: %s\n", path, why);
    return 1;
}

/* ---- Lines ------------------------------------------------------------------------------- */

/* Whether the text is one whole object: braces outside of strings close at its end. */
static bool is_object(const char *text)
{
    int depth = 0;
    bool quoted = false;

    if (*text != '{')
        return false;
    for (const char *c = text; *c; c++) {
        if (quoted && *c == '\\' && c[1])
            c++;
        else if (*c == '"')
            quoted = !quoted;
        else if (!quoted && *c == '{')
            depth++;
        else if (!quoted && *c == '}' && --depth == 0)
            return c[1] == '\0';
    }
    return false;
}

/* The next event: 1, the end: 0, a line that is not an event: -1. A last line that was cut is the
 * end. */
static int next_event(struct trace *trace)
{
    ssize_t length = getline(&trace->line, &trace->line_bytes, trace->file);
    char *line = trace->line;

    trace->number++;
    if (length <= 0 || line[length - 1] != '\n') {
        trace->cut = true;
        return 0;
    }
    line[length - 1] = '\0';
    if (strcmp(line, "]") == 0)
        return 0;
    if (*line == ',') /* what parts it from the line before */
        memmove(line, line + 1, (size_t)length - 1);
    return is_object(line) ? 1 : -1;
}

/* Behind `"key": `; NULL: the line has none. Quotes in strings are escaped, so the first place
 * where the key stands like this is the key. */
static char *value_of(char *line, const char *key)
{
    char pattern[64];
    char *at;

    snprintf(pattern, sizeof(pattern), "\"%s\": ", key);
    at = strstr(line, pattern);
    return at ? at + strlen(pattern) : NULL;
}

static bool get_number(char *line, const char *key, int64_t *value)
{
    const char *at = value_of(line, key);
    char *end;

    if (!at)
        return false;
    errno = 0;
    *value = strtoll(at, &end, 10);
    return end != at && errno == 0;
}

/* The string as it stands between its quotes. */
static bool get_string(char *line, const char *key, char *text, size_t bytes)
{
    const char *at = value_of(line, key);
    size_t length = 0;

    if (!at || *at++ != '"')
        return false;
    while (at[length] && at[length] != '"')
        length += at[length] == '\\' && at[length + 1] ? 2 : 1;
    if (at[length] != '"' || length >= bytes)
        return false;
    memcpy(text, at, length);
    text[length] = '\0';
    return true;
}

/* ---- Files ------------------------------------------------------------------------------- */

/* The first event. False: it is no trace of this format. */
static bool read_head(struct trace *trace)
{
    char format[32];
    char *line;

    if (getline(&trace->line, &trace->line_bytes, trace->file) != 2 ||
        strcmp(trace->line, "[\n") != 0 || next_event(trace) != 1)
        return false;
    trace->number = 2;
    line = trace->line;
    if (!get_string(line, "format", format, sizeof(format)) ||
        strcmp(format, FORMAT) != 0 ||
        !get_string(line, "job", trace->job, sizeof(trace->job)) ||
        !get_string(line, "boot", trace->boot, sizeof(trace->boot)) ||
        !get_string(line, "host", trace->host, sizeof(trace->host)) ||
        !get_number(line, "rank", &trace->rank) ||
        !get_number(line, "size", &trace->size) ||
        !get_number(line, "realtime_offset_us", &trace->offset_us))
        return false;
    if (!get_number(line, "realtime_error_us", &trace->error_us))
        trace->error_us = -1;
    return true;
}

static int add_file(struct job *job, const char *folder, const char *name)
{
    struct trace *grown =
        realloc(job->traces, ((size_t)job->count + 1) * sizeof(*grown));
    struct trace *trace;

    if (!grown)
        return fail(name, "no memory");
    job->traces = grown;
    trace = &grown[job->count++];
    memset(trace, 0, sizeof(*trace));
    if (asprintf(&trace->path, "%s/%s", folder, name) < 0) {
        trace->path = NULL;
        return fail(name, "no memory");
    }
    trace->file = fopen(trace->path, "re");
    if (!trace->file)
        return fail(trace->path, strerror(errno));
    if (!read_head(trace))
        return fail(trace->path, "no trace that SYMM_TRACE has made");
    return 0;
}

static int by_rank(const void *a, const void *b)
{
    const struct trace *one = a, *other = b;

    return one->rank < other->rank ? -1 : one->rank > other->rank;
}

/* Checks that the files belong together, and finds how far other hosts' clocks are from the first
 * rank's. */
static int align(struct job *job)
{
    const struct trace *first = job->traces;

    qsort(job->traces, (size_t)job->count, sizeof(*job->traces), by_rank);
    job->one_host = true;
    for (int i = 1; i < job->count; i++) {
        struct trace *trace = &job->traces[i];

        if (strcmp(trace->job, first->job) != 0 || trace->size != first->size)
            return fail(trace->path, "it is of another job than a file beside it; "
                                     "give each job a folder of its own");
        if (trace->rank == trace[-1].rank)
            return fail(trace->path, "a file beside it is of the same rank");
        if (strcmp(trace->boot, first->boot) == 0)
            continue;
        job->one_host = false;
        trace->shift_us = trace->offset_us - first->offset_us;
    }
    return 0;
}

static int open_folder(struct job *job, const char *path)
{
    DIR *folder = opendir(path);
    int status = 0;

    if (!folder)
        return fail(path, strerror(errno));
    for (const struct dirent *e = readdir(folder); e && status == 0;
         e = readdir(folder)) {
        const size_t length = strlen(e->d_name);

        if (length > 5 && strcmp(e->d_name + length - 5, ".json") == 0)
            status = add_file(job, path, e->d_name);
    }
    closedir(folder);
    if (status == 0 && job->count == 0)
        return fail(path, "no trace is there (NAME.json, as SYMM_TRACE makes them)");
    return status == 0 ? align(job) : status;
}

static void close_folder(struct job *job)
{
    for (int i = 0; i < job->count; i++) {
        free(job->traces[i].path);
        free(job->traces[i].line);
        if (job->traces[i].file)
            fclose(job->traces[i].file);
    }
    free(job->traces);
}

/* ---- Writing ----------------------------------------------------------------------------- */

/* The event, with its time moved. */
static void put_event(FILE *out, struct trace *trace)
{
    char *time = trace->shift_us ? value_of(trace->line, "ts") : NULL;
    char *rest;
    int64_t us;

    if (!time) {
        fputs(trace->line, out);
        return;
    }
    us = strtoll(time, &rest, 10) + trace->shift_us;
    fprintf(out, "%.*s%" PRId64 "%s", (int)(time - trace->line), trace->line, us, rest);
}

static int put_trace(FILE *out, struct trace *trace, bool first)
{
    int64_t dropped;
    int got = 1; /* the head has been read */

    do {
        char name[64];

        if (!first)
            fputs(",\n", out);
        first = false;
        put_event(out, trace);
        if (get_string(trace->line, "name", name, sizeof(name)) &&
            strcmp(name, "symm_trace_end") == 0 &&
            get_number(trace->line, "dropped", &dropped))
            trace->dropped = dropped;
        got = next_event(trace);
    } while (got > 0);
    if (got < 0) {
        fprintf(stderr, "symm-info: %s: line %u is no event\n", trace->path,
                trace->number);
        return 1;
    }
    return 0;
}

/* The largest error of two hosts' clocks together; -1: it is not known. */
static int64_t clock_error(const struct job *job)
{
    int64_t most = 0, next = 0;

    for (int i = 0; i < job->count && !job->one_host; i++) {
        const int64_t error = job->traces[i].error_us;
        bool same = false; /* host as an earlier rank's */

        for (int k = 0; k < i && !same; k++)
            same = strcmp(job->traces[k].boot, job->traces[i].boot) == 0;
        if (error < 0)
            return -1;
        if (same)
            continue;
        next = error > most ? most : error > next ? error : next;
        most = error > most ? error : most;
    }
    return most + next;
}

static void put_ranks(FILE *out, const struct job *job, const char *key, bool missing)
{
    const char *comma = "";

    fprintf(out, ",\n\"%s\": [", key);
    for (int64_t r = 0, i = 0; r < job->traces[0].size; r++) {
        const bool here = i < job->count && job->traces[i].rank == r;

        if (missing ? !here : here && job->traces[i].cut) {
            fprintf(out, "%s%" PRId64, comma, r);
            comma = ", ";
        }
        i += here;
    }
    fputc(']', out);
}

static void put_metadata(FILE *out, const struct job *job)
{
    const int64_t error = clock_error(job);
    int64_t dropped = 0;

    for (int i = 0; i < job->count; i++)
        dropped += job->traces[i].dropped;
    fprintf(out,
            "\n],\n\"displayTimeUnit\": \"ns\",\n\"otherData\": {\n"
            "\"format\": \"%s\",\n\"job\": \"%s\",\n\"ranks\": %" PRId64,
            FORMAT, job->traces[0].job, job->traces[0].size);
    put_ranks(out, job, "missing", true);
    put_ranks(out, job, "cut", false);
    fprintf(out, ",\n\"dropped\": %" PRId64 ",\n\"clock\": \"%s\"", dropped,
            job->one_host ? "CLOCK_MONOTONIC of the one host"
                          : "CLOCK_REALTIME of each host");
    if (error < 0)
        fprintf(out, ",\n\"clock_error_us\": null,\n\"clock_error\": \"not known: "
                     "a host's clock is not synchronised\"");
    else
        fprintf(out, ",\n\"clock_error_us\": %" PRId64, error);
    fputs("\n}\n}\n", out);
}

static int merge(struct job *job, FILE *out)
{
    int status = 0;

    fputs("{\"traceEvents\": [\n", out);
    for (int i = 0; i < job->count && status == 0; i++)
        status = put_trace(out, &job->traces[i], i == 0);
    if (status == 0)
        put_metadata(out, job);
    for (int i = 0; i < job->count; i++)
        if (job->traces[i].cut)
            fprintf(stderr,
                    "symm-info: %s has no end: the rank was killed, or goes on\n",
                    job->traces[i].path);
    return status;
}

static int merge_to(struct job *job, const char *path)
{
    struct output output;
    int error, status;

    if (!path)
        return merge(job, stdout); /* main flushes it */
    error = output_begin(&output, path);
    if (error != 0)
        return fail(path, strerror(error));
    status = merge(job, output.stream);
    error = output_end(&output, status == 0 ? 0 : EINVAL); /* merge has said why */
    return status == 0 && error != 0 ? fail(path, strerror(error)) : status;
}

int symm__info_trace(int argc, char **argv)
{
    const char *path = NULL;
    bool help = false;
    struct args_option options[] = {
        ARGS_ROW("output", 'o', ARGS_TEXT, &path),
        ARGS_ROW("help", 'h', ARGS_STOP, &help),
    };
    char error[256] = "one folder with traces is needed";
    struct job job = {0};
    int word = args_parse(argc, argv, options, sizeof(options) / sizeof(options[0]),
                          false, error, sizeof(error));
    int status;

    if (help || word < 0 || argc - word != 1) {
        if (!help)
            fprintf(stderr, "symm-info trace: %s\n", error);
        fprintf(help ? stdout : stderr, "usage: symm-info trace [-o FILE] DIR\n"
                                        "Merges the traces of a job's ranks.\n");
        return help ? 0 : 2;
    }
    status = open_folder(&job, argv[word]);
    if (status == 0)
        status = merge_to(&job, path);
    close_folder(&job);
    return status;
}
