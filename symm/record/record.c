/* SPDX-License-Identifier: MIT */
/*
 * record.c - see record.h: a recorder's start and end, and the public annotations.
 *
 * symm_record_depend names no context, so the process keeps a list of its recorders: the
 * streams show which one is meant, else there is only one, else it is the one that this
 * thread called last. The list and its lock are the only state outside of contexts.
 */
#include "record/record.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/team.h"
#include "util/forked.h"
#include "util/log.h"
#include "util/options.h"
#include "util/status.h"

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct symm_recorder *list_first;
static uint64_t list_serial;
static int list_count; /* atomic: read without the lock where nothing is recorded */
static __thread uint64_t last_serial; /* the recorder that this thread called last */

/* The recorders are those of the parent's contexts. */
static void forget_all(void)
{
    symm__lock_renew(&list_lock);
    list_first = NULL;
    list_count = 0;
}
SYMM_IN_FORKED_CHILD(forget_all)

void symm__record_trouble(struct symm_recorder *recorder, const char *format, ...)
{
    va_list args;

    if (recorder->trouble[0])
        return;
    va_start(args, format);
    vsnprintf(recorder->trouble, sizeof(recorder->trouble), format, args);
    va_end(args);
}

uint64_t symm__record_key(void)
{
    uint64_t key = 0;

    if (!symm__option(SYMM_OPTION_RECORD))
        return 0;
    /* getrandom failed: still different from other jobs' numbers */
    if (getrandom(&key, sizeof(key), 0) != (ssize_t)sizeof(key))
        key = (uint64_t)getpid();
    return key ? key : 1;
}

/* ---- Start and end -------------------------------------------------------------------- */

/* Sets the file's name. The folder is made if only its last part is missing. */
static symm_status name_file(struct symm_recorder *recorder, const char *folder)
{
    struct stat is;

    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return symm__fail_errno(
            SYMM_ERR_SYSTEM, errno,
            "SYMM_RECORD='%s': rank %d cannot make the folder; name "
            "one that exists and can be written",
            folder, recorder->ctx->rank);
    if (stat(folder, &is) != 0 || !S_ISDIR(is.st_mode))
        return symm__fail(SYMM_ERR_INVALID,
                          "SYMM_RECORD='%s': rank %d finds no folder there; name one, "
                          "each rank writes a file into it",
                          folder, recorder->ctx->rank);
    if (asprintf(&recorder->path, "%s/%016llx.rank%d.json", folder,
                 (unsigned long long)recorder->job, recorder->ctx->rank) < 0) {
        recorder->path = NULL;
        return symm__fail(SYMM_ERR_NOMEM, "SYMM_RECORD: no memory for a path");
    }
    return SYMM_OK;
}

static void segment_free(struct symm_record_segment *segment)
{
    free(segment->events);
    *segment = (struct symm_record_segment){0};
}

static void recorder_free(struct symm_recorder *recorder)
{
    for (int t = 0; t < recorder->team_count; t++)
        free(recorder->teams[t].ranks);
    for (int32_t s = 0; s < recorder->site_count; s++)
        free(recorder->sites[s]);
    free(recorder->teams);
    free(recorder->buffers);
    free(recorder->places);
    free(recorder->sites);
    free(recorder->site_slots);
    segment_free(&recorder->head);
    segment_free(&recorder->period);
    segment_free(&recorder->current);
    pthread_mutex_destroy(&recorder->lock);
    free(recorder->path);
    free(recorder);
}

static void list_add(struct symm_recorder *recorder)
{
    pthread_mutex_lock(&list_lock);
    recorder->serial = ++list_serial;
    recorder->next = list_first;
    list_first = recorder;
    __atomic_fetch_add(&list_count, 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&list_lock);
}

static void list_remove(const struct symm_recorder *recorder)
{
    struct symm_recorder **at = &list_first;

    pthread_mutex_lock(&list_lock);
    while (*at && *at != recorder)
        at = &(*at)->next;
    if (*at) {
        *at = recorder->next;
        __atomic_fetch_sub(&list_count, 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&list_lock);
}

symm_status symm__record_open(symm_ctx *ctx, uint64_t job)
{
    const char *folder = symm__option(SYMM_OPTION_RECORD);
    struct symm_recorder *recorder;
    symm_status status;

    if (!folder)
        return SYMM_OK;
    recorder = calloc(1, sizeof(*recorder));
    if (!recorder)
        return symm__fail(SYMM_ERR_NOMEM, "SYMM_RECORD: no memory for a recorder");
    pthread_mutex_init(&recorder->lock, NULL);
    recorder->ctx = ctx;
    recorder->job = job;
    recorder->period_team = -1;
    recorder->stream_count = 1; /* the default one: NULL */
    for (int s = 0; s < SYMM_MAX_TEAMS; s++)
        recorder->team_of[s] = -1;
    status = name_file(recorder, folder);
    /* so that a file that cannot be written is found now, not at the end */
    if (status == SYMM_OK)
        status = symm__record_write(recorder, false);
    if (status != SYMM_OK) {
        recorder_free(recorder);
        return status;
    }
    ctx->recorder = recorder;
    list_add(recorder);
    symm__log(SYMM_LOG_INFO, "records into %s", recorder->path);
    return SYMM_OK;
}

void symm__record_close(symm_ctx *ctx, bool forked)
{
    struct symm_recorder *recorder = ctx->recorder;

    if (!recorder)
        return;
    ctx->recorder = NULL;
    if (forked) /* the parent's threads may hold the locks: leave the list to the parent */
        return;
    list_remove(recorder);
    if (!ctx->teams[0]) /* symm_init failed: there is nothing to keep */
        unlink(recorder->path);
    else if (symm__record_write(recorder, true) != SYMM_OK)
        symm__log(SYMM_LOG_ERROR, "the record of rank %d is lost: %s", ctx->rank,
                  symm_last_error());
    recorder_free(recorder);
}

/* ---- Public annotations --------------------------------------------------------------- */

static symm_status annotate(symm_record_kind kind, const char *function,
                            symm_team *team, const void *ptr, size_t bytes,
                            const void *stream)
{
    struct symm_record_call call = {
        .kind = kind, .team = team, .stream = stream, .count = bytes};
    symm_status status = symm__team_check_in(team, function);

    if (status != SYMM_OK || !symm__is_recorded(team->ctx))
        return status;
    if (!ptr)
        return symm__fail(SYMM_ERR_INVALID, "%s of %zu bytes: ptr is NULL", function,
                          bytes);
    if ((uintptr_t)ptr + bytes < (uintptr_t)ptr)
        return symm__fail(SYMM_ERR_OVERFLOW,
                          "%s: %zu bytes at %p reach beyond the address space",
                          function, bytes, ptr);
    if (kind == SYMM_RECORD_WRITE) {
        call.out = ptr;
        call.out_bytes = bytes;
    } else {
        call.in = ptr;
        call.in_bytes = bytes;
    }
    last_serial = team->ctx->recorder->serial;
    symm__record_calls(&call, 1, NULL);
    return SYMM_OK;
}

symm_status symm_record_write(symm_team *team, const void *ptr, size_t bytes,
                              void *stream)
{
    if (__builtin_expect(team && !team->ctx->recorder, 1))
        return SYMM_OK;
    return annotate(SYMM_RECORD_WRITE, __func__, team, ptr, bytes, stream);
}

symm_status symm_record_read(symm_team *team, const void *ptr, size_t bytes,
                             void *stream)
{
    if (__builtin_expect(team && !team->ctx->recorder, 1))
        return SYMM_OK;
    return annotate(SYMM_RECORD_READ, __func__, team, ptr, bytes, stream);
}

symm_status symm_record_period(symm_team *team)
{
    symm_status status;

    if (__builtin_expect(team && !team->ctx->recorder, 1))
        return SYMM_OK;
    status = symm__team_check(team);
    if (status != SYMM_OK || !symm__is_recorded(team->ctx))
        return status;
    last_serial = team->ctx->recorder->serial;
    symm__record_period(team->ctx->recorder, team);
    return SYMM_OK;
}

/* Does the recorder's context have this stream, or one of its events? The list is locked. */
static bool knows(struct symm_recorder *recorder, const void *stream)
{
    bool found = stream && symm__stream_index(recorder->ctx, stream) >= 0;

    pthread_mutex_lock(&recorder->lock);
    for (int i = 1; stream && i < recorder->stream_count; i++)
        found = found || recorder->streams[i] == stream;
    pthread_mutex_unlock(&recorder->lock);
    return found;
}

static struct symm_recorder *recorder_of(const void *stream, const void *on)
{
    struct symm_recorder *last = NULL;

    for (struct symm_recorder *r = list_first; r; r = r->next) {
        if (knows(r, stream) || knows(r, on))
            return r;
        if (r->serial == last_serial)
            last = r;
    }
    return list_first && !list_first->next ? list_first : last;
}

symm_status symm_record_depend(void *stream, void *on)
{
    struct symm_recorder *recorder;

    if (__builtin_expect(__atomic_load_n(&list_count, __ATOMIC_RELAXED) == 0, 1))
        return SYMM_OK;
    pthread_mutex_lock(&list_lock); /* held: the recorder stays */
    recorder = recorder_of(stream, on);
    if (recorder)
        symm__record_depend(recorder, stream, on);
    pthread_mutex_unlock(&list_lock);
    if (recorder)
        return SYMM_OK;
    return symm__fail(SYMM_ERR_NOT_FOUND,
                      "symm_record_depend: streams %p and %p are of none of the "
                      "contexts that this process records; use a stream with its "
                      "context first",
                      stream, on);
}
