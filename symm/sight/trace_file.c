/* SPDX-License-Identifier: MIT */
/* trace_file.c - see trace_file.h: names, opening and writing; events are in trace_event.c. */
#include "sight/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sight/trace.h"
#include "sight/trace_event.h"
#include "util/file.h"
#include "util/file_name.h"
#include "util/log.h"
#include "util/options.h"
#include "util/status.h"

#define BATCH 4096 /* events of one write */

/* ---- Writing --------------------------------------------------------------------------- */

/* Events on their way to the file. */
struct batch {
    struct symm_sight *sight;
    FILE *file; /* in memory; NULL: none yet, or no memory */
    char *text;
    size_t bytes;
    int events;
};

static void tell(const struct symm_sight *sight, int error)
{
    if (!sight->trace->told)
        symm__log(SYMM_LOG_WARN, "the trace of rank %d is not written to %s: %s",
                  sight->page->rank, sight->trace->path, strerror(error));
    sight->trace->told = true;
}

static void flush(struct batch *batch)
{
    int error;

    if (!batch->file)
        return;
    error = fclose(batch->file) != 0
                ? errno
                : symm__write_all(batch->sight->trace->fd, batch->text, batch->bytes);
    if (error)
        tell(batch->sight, error);
    free(batch->text);
    batch->text = NULL;
    batch->file = NULL;
    batch->events = 0;
}

/* The stream for the next event, after the separator from the one before; NULL: no memory. */
static FILE *next(struct batch *batch)
{
    if (batch->events == BATCH)
        flush(batch);
    if (!batch->file)
        batch->file = open_memstream(&batch->text, &batch->bytes);
    if (!batch->file) {
        tell(batch->sight, errno);
        return NULL;
    }
    batch->events++;
    fputs(batch->sight->trace->empty ? "[\n" : ",", batch->file);
    batch->sight->trace->empty = false;
    return batch->file;
}

static void name_thread(struct batch *batch, int32_t thread, enum symm_trace_row row)
{
    struct symm_trace *trace = batch->sight->trace;
    const int most = (int)(sizeof(trace->named) / sizeof(trace->named[0]));
    FILE *file;

    for (int i = 0; i < trace->threads; i++)
        if (trace->named[i] == thread)
            return;
    if (trace->threads == most)
        return; /* it is shown by its number */
    trace->named[trace->threads++] = thread;
    file = next(batch);
    if (file)
        symm__trace_put_thread(file, batch->sight->page, thread, row);
}

/* The site of a call; an empty one if its description has gone. */
static struct symm_sight_site site_of(struct symm_sight *sight, uint32_t id)
{
    struct symm_sight_site site;

    pthread_mutex_lock(&sight->lock);
    site = sight->trace->sites[id % SYMM_TRACE_SITES];
    pthread_mutex_unlock(&sight->lock);
    if (site.id != id)
        memset(&site, 0, sizeof(site));
    return site;
}

/* Writes the call with that number if it has ended. */
static bool put_call(struct batch *batch, uint64_t number)
{
    struct symm_trace *trace = batch->sight->trace;
    struct symm_trace_call *call = &trace->calls[number % SYMM_TRACE_CALLS];
    /* acquire: pairs with the release in symm__trace_end */
    const uint64_t word = __atomic_load_n(&call->word, __ATOMIC_ACQUIRE);
    struct symm_sight_site site;
    FILE *file;

    if ((word & 0xff) == SYMM_SIGHT_QUEUED || (word & 0xff) == SYMM_SIGHT_RUNNING)
        return false;
    site = site_of(batch->sight, call->site);
    name_thread(batch, call->thread,
                call->queued ? SYMM_TRACE_STREAM : SYMM_TRACE_THREAD);
    file = next(batch);
    if (file)
        symm__trace_put_call(file, batch->sight->page, call, &site);
    /* release: pairs with the acquire in symm__trace_begin */
    __atomic_store_n(&call->word, 0, __ATOMIC_RELEASE);
    return true;
}

static void put_calls(struct batch *batch)
{
    struct symm_trace *trace = batch->sight->trace;
    int left = 0;

    for (int i = 0; i < trace->late_count; i++)
        if (!put_call(batch, trace->late[i]))
            trace->late[left++] = trace->late[i];
    trace->late_count = left;
    while (trace->late_count < SYMM_TRACE_LATE) {
        uint64_t *at = &trace->order[trace->read % SYMM_TRACE_CALLS];
        /* acquire: pairs with the release in symm__trace_begin */
        const uint64_t number = __atomic_load_n(at, __ATOMIC_ACQUIRE);

        if (number == 0)
            break;
        __atomic_store_n(at, 0, __ATOMIC_RELAXED); /* before its place is free */
        trace->read++;
        if (!put_call(batch, number))
            trace->late[trace->late_count++] = number;
    }
}

static bool is_device(const struct symm_sight_page *page)
{
    return strcmp(page->backend, "host") != 0;
}

/* Waits on a device are seen by one thread, may overlap between channels, and do not lie in the
 * calls' slices, which are launches: a channel's waits are a row of their own. */
static int32_t device_row(const struct symm_sight_page *page,
                          const struct symm_trace_note *note)
{
    const int team = symm__trace_team(page, note->team_uid);

    return SYMM_TRACE_DEVICE_ROWS + (team < 0 ? 0 : team) % 1000000 * 1000 +
           (int32_t)(note->channel % 1000);
}

static void put_notes(struct batch *batch)
{
    struct symm_trace *trace = batch->sight->trace;

    for (int i = 0;; i++) {
        struct symm_trace_note note;
        FILE *file;

        pthread_mutex_lock(&trace->lock);
        if (i >= trace->notes) {
            trace->notes = 0;
            pthread_mutex_unlock(&trace->lock);
            return;
        }
        note = trace->note[i];
        pthread_mutex_unlock(&trace->lock);
        if (note.kind == SYMM_TRACE_WAIT && is_device(batch->sight->page)) {
            note.thread = device_row(batch->sight->page, &note);
            name_thread(batch, note.thread, SYMM_TRACE_DEVICE);
        }
        file = next(batch);
        if (file)
            symm__trace_put_note(file, batch->sight->page, &note);
    }
}

void symm__trace_write(struct symm_sight *sight)
{
    struct batch batch = {.sight = sight};

    put_calls(&batch);
    put_notes(&batch);
    flush(&batch);
}

void symm__trace_finish(struct symm_sight *sight)
{
    struct symm_trace *trace = sight->trace;
    const uint64_t dropped = __atomic_load_n(&trace->dropped, __ATOMIC_RELAXED);
    struct batch batch = {.sight = sight};
    FILE *file = next(&batch);

    if (file) {
        symm__trace_put_end(file, sight->page, dropped, trace->late_count);
        fputs("]\n", file);
    }
    flush(&batch);
    if (dropped > 0)
        symm__log(SYMM_LOG_WARN,
                  "the trace of rank %d has %llu events less than there were; raise "
                  "SYMM_TRACE_LIMIT (%llu), or sample calls by SYMM_TRACE_SAMPLE",
                  sight->page->rank, (unsigned long long)dropped,
                  (unsigned long long)trace->limit);
}

/* ---- Opening --------------------------------------------------------------------------- */

/* A name that ends in .json is the file's; another one is the folder's, made if need be. */
static symm_status take_path(const char *given, const struct symm_sight *sight,
                             char *path, size_t bytes)
{
    const struct symm_sight_page *page = sight->page;
    const size_t length = strlen(given);
    char pattern[PATH_MAX], job[sizeof(page->job)];
    int printed;

    if (length >= 5 && strcmp(given + length - 5, ".json") == 0) {
        if (page->size > 1 && !symm__file_name_varies(given))
            return symm__fail(SYMM_ERR_INVALID,
                              "SYMM_TRACE='%.200s': %d ranks would write one file; put "
                              "%%r, the rank, into the name, or give a folder",
                              given, page->size);
        printed = snprintf(pattern, sizeof(pattern), "%s", given);
    } else {
        symm__sight_job(page->job, job, sizeof(job));
        printed = snprintf(pattern, sizeof(pattern), "%s/%s.rank%%r.json", given, job);
        if (mkdir(given, 0777) != 0 && errno != EEXIST)
            return symm__fail_errno(SYMM_ERR_SYSTEM, errno,
                                    "SYMM_TRACE: the folder '%.300s' cannot be made",
                                    given);
    }
    if (printed >= (int)sizeof(pattern) ||
        !symm__file_name(pattern, page->rank, path, bytes))
        return symm__fail(SYMM_ERR_INVALID, "SYMM_TRACE: the name is too long");
    return SYMM_OK;
}

static symm_status take_options(struct symm_trace *trace, const char *given,
                                const struct symm_sight *sight)
{
    int64_t limit, sample;
    symm_status status =
        symm__option_integer(SYMM_OPTION_TRACE_LIMIT, 1, INT64_MAX, &limit);

    if (status == SYMM_OK)
        status = symm__option_integer(SYMM_OPTION_TRACE_SAMPLE, 1, INT32_MAX, &sample);
    if (status != SYMM_OK)
        return status;
    trace->limit = (uint64_t)limit;
    trace->sample = (uint64_t)sample;
    return take_path(given, sight, trace->path, sizeof(trace->path));
}

/* Memory that costs nothing until it is used; NULL: there is none. */
static void *room(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return at == MAP_FAILED ? NULL : at;
}

#define CALLS_BYTES (SYMM_TRACE_CALLS * sizeof(struct symm_trace_call))
#define ORDER_BYTES (SYMM_TRACE_CALLS * sizeof(uint64_t))
#define SITES_BYTES (SYMM_TRACE_SITES * sizeof(struct symm_sight_site))

/* Empties a regular file, or makes one. A link would lead elsewhere, and a pipe makes its writer
 * wait for a reader. */
static symm_status open_file(struct symm_trace *trace, int rank)
{
    struct stat is;

    trace->fd =
        open(trace->path,
             O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK, 0644);
    if (trace->fd >= 0 && fstat(trace->fd, &is) == 0 && !S_ISREG(is.st_mode))
        errno = ENXIO;
    else if (trace->fd >= 0 && ftruncate(trace->fd, 0) == 0)
        return SYMM_OK;
    if (errno == ELOOP || errno == ENXIO)
        return symm__fail(SYMM_ERR_INVALID,
                          "SYMM_TRACE: rank %d finds a link, a pipe or a device at "
                          "'%.300s'; name a file",
                          rank, trace->path);
    return symm__fail_errno(SYMM_ERR_SYSTEM, errno,
                            "SYMM_TRACE: rank %d cannot write '%.300s'", rank,
                            trace->path);
}

symm_status symm__trace_open(struct symm_sight *sight)
{
    const char *given = symm__option(SYMM_OPTION_TRACE);
    struct symm_trace *trace;
    struct batch batch = {.sight = sight};
    symm_status status;
    FILE *file;

    if (!given)
        return SYMM_OK;
    trace = room(sizeof(*trace));
    if (!trace)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for the trace of a rank");
    trace->fd = -1;
    trace->empty = true;
    pthread_mutex_init(&trace->lock, NULL);
    sight->trace = trace;
    trace->calls = room(CALLS_BYTES);
    trace->order = room(ORDER_BYTES);
    trace->sites = room(SITES_BYTES);
    if (!trace->calls || !trace->order || !trace->sites)
        return symm__fail(SYMM_ERR_NOMEM, "no memory for the trace of a rank");
    status = take_options(trace, given, sight);
    if (status != SYMM_OK)
        return status;
    status = open_file(trace, sight->page->rank);
    if (status != SYMM_OK)
        return status;
    file = next(&batch);
    if (file)
        symm__trace_put_head(file, sight->page, trace->sample);
    flush(&batch);
    return SYMM_OK;
}

void symm__trace_close(struct symm_trace *trace)
{
    if (!trace)
        return;
    if (trace->calls)
        munmap(trace->calls, CALLS_BYTES);
    if (trace->order)
        munmap(trace->order, ORDER_BYTES);
    if (trace->sites)
        munmap(trace->sites, SITES_BYTES);
    if (trace->fd >= 0)
        close(trace->fd);
    pthread_mutex_destroy(&trace->lock);
    munmap(trace, sizeof(*trace));
}
