/* SPDX-License-Identifier: MIT */
/*
 * event.c - see record.h: the events themselves, and the cuts between periods.
 *
 * A call is recorded after it has succeeded. Calls of one stream follow each other, so the
 * events of a stream are in the stream's order; between streams the order of the list means
 * something only at a depend, which is recorded at its place.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/device_ops.h"
#include "record/record.h"

/* ---- Sentences ------------------------------------------------------------------------ */

static void describe(const struct symm_recorder *recorder,
                     const struct symm_record_event *event, char *text, size_t bytes)
{
    const char *site = event->site >= 0 ? recorder->sites[event->site] : NULL;

    snprintf(text, bytes, "%s%s%.60s%s of %llu on stream %d",
             symm_record_kind_name((symm_record_kind)event->kind), site ? " at '" : "",
             site ? site : "", site ? "'" : "", (unsigned long long)event->count,
             event->stream);
}

/* ---- Segments ------------------------------------------------------------------------- */

static void append(struct symm_recorder *recorder,
                   const struct symm_record_event *event)
{
    struct symm_record_segment *segment = &recorder->current;

    recorder->done[event->stream]++;
    if (segment->count == SYMM_RECORD_EVENTS) {
        symm__record_trouble(recorder,
                             "it made more than %d calls without symm_record_period",
                             SYMM_RECORD_EVENTS);
        return;
    }
    if (symm__record_grow(recorder, (void **)&segment->events, segment->count,
                          &segment->room, sizeof(*event)))
        segment->events[segment->count++] = *event;
}

/* Compares the period that ends now with the first one. */
static void compare_period(struct symm_recorder *recorder)
{
    const struct symm_record_segment *a = &recorder->period, *b = &recorder->current;
    size_t least = a->count < b->count ? a->count : b->count, i = 0;
    char was[160] = "the period's end", is[160] = "the period's end";

    while (i < least && memcmp(&a->events[i], &b->events[i], sizeof(*a->events)) == 0)
        i++;
    if (i == a->count && i == b->count)
        return;
    if (i < a->count)
        describe(recorder, &a->events[i], was, sizeof(was));
    if (i < b->count)
        describe(recorder, &b->events[i], is, sizeof(is));
    symm__record_trouble(
        recorder,
        "its periods differ: event %zu of period %llu is %s, of period "
        "1 %s; call symm_record_period where all periods are alike",
        i, (unsigned long long)recorder->periods, is, was);
}

void symm__record_period(struct symm_recorder *recorder, const symm_team *team)
{
    int16_t index;

    pthread_mutex_lock(&recorder->lock);
    index = recorder->team_of[team->slot];
    if (recorder->periods == 0)
        recorder->period_team = index;
    /* calls on other teams mark the same period */
    if (index == recorder->period_team) {
        if (recorder->periods < 2) {
            *(recorder->periods == 0 ? &recorder->head : &recorder->period) =
                recorder->current;
            recorder->current = (struct symm_record_segment){0};
        } else {
            compare_period(recorder);
            recorder->current.count = 0;
        }
        recorder->periods++;
    }
    pthread_mutex_unlock(&recorder->lock);
}

/* ---- Calls ---------------------------------------------------------------------------- */

/* The buffer that begins an access, and where in it; -1: other memory. */
static void refer(const struct symm_recorder *recorder, const void *ptr, size_t bytes,
                  int32_t *buffer, uint64_t *at)
{
    ptrdiff_t found = ptr ? symm__record_find(recorder, ptr, bytes) : -1;
    const struct symm_record_place *place = &recorder->places[found < 0 ? 0 : found];

    *buffer = -1;
    *at = 0;
    if (found < 0 || place->offset > symm__record_offset(recorder, ptr))
        return; /* begins before the buffer: no call of the library does */
    *buffer = place->buffer;
    *at = symm__record_offset(recorder, ptr) - place->offset;
}

/* An annotation: one event for each buffer that it covers bytes of. */
static void append_local(struct symm_recorder *recorder,
                         const struct symm_record_call *call,
                         struct symm_record_event *event)
{
    const bool writes = call->kind == SYMM_RECORD_WRITE;
    const char *ptr = writes ? call->out : call->in;
    size_t begin = symm__record_offset(recorder, ptr);
    ptrdiff_t found = symm__record_find(recorder, ptr, call->count);

    for (size_t i = (size_t)found; found >= 0 && i < recorder->place_count; i++) {
        const struct symm_record_place *place = &recorder->places[i];
        size_t from = begin > place->offset ? begin : place->offset;
        size_t to = place->offset + place->bytes;

        if (place->offset >= begin + (call->count ? call->count : 1))
            break;
        if (begin + call->count < to)
            to = begin + call->count;
        recorder->buffers[place->buffer].described = true;
        if (call->count == 0)
            break; /* it touches nothing: the buffer is described, that is all */
        event->in = writes ? -1 : place->buffer;
        event->out = writes ? place->buffer : -1;
        event->in_at = writes ? 0 : from - place->offset;
        event->out_at = writes ? from - place->offset : 0;
        event->count = to - from;
        append(recorder, event);
    }
}

static void fill_norm(struct symm_record_event *event,
                      const struct symm_record_norm *norm)
{
    if (!norm)
        return;
    event->hidden = (uint32_t)norm->hidden;
    event->part = (uint8_t)norm->part;
    event->quant = (uint8_t)norm->quant;
    event->constant = norm->constant;
    event->reads = (uint8_t)norm->reads;
    event->writes = (uint8_t)norm->writes;
}

static void append_call(struct symm_recorder *recorder,
                        const struct symm_record_call *call, symm_work *work)
{
    struct symm_record_event event;

    memset(&event, 0, sizeof(event));
    event.kind = (uint8_t)call->kind;
    event.dtype = (uint8_t)call->dtype;
    event.op = (uint8_t)call->op;
    event.forced = call->algorithm != NULL;
    event.stream = (int16_t)symm__record_stream(recorder, call->stream);
    event.team = recorder->team_of[call->team->slot];
    event.peer = call->peer;
    event.signal = call->signal;
    event.site = symm__record_site(recorder, call->site);
    event.count = call->count;
    fill_norm(&event, call->norm);
    if (call->kind == SYMM_RECORD_WRITE || call->kind == SYMM_RECORD_READ) {
        append_local(recorder, call, &event);
    } else {
        refer(recorder, call->in, call->in_bytes, &event.in, &event.in_at);
        refer(recorder, call->out, call->out_bytes, &event.out, &event.out_at);
        append(recorder, &event);
    }
    if (work) {
        work->record_stream = event.stream + 1;
        work->record_mark = recorder->done[event.stream];
    }
}

void symm__record_calls(const struct symm_record_call *calls, int count,
                        symm_work *work)
{
    struct symm_recorder *recorder = calls->team->ctx->recorder;

    pthread_mutex_lock(&recorder->lock);
    for (int i = 0; i < count; i++)
        append_call(recorder, &calls[i], work);
    pthread_mutex_unlock(&recorder->lock);
}

static void append_depend(struct symm_recorder *recorder, int stream, int on)
{
    struct symm_record_event event;

    if (stream == on)
        return;
    memset(&event, 0, sizeof(event));
    event.kind = SYMM_RECORD_DEPEND;
    event.stream = (int16_t)stream;
    event.on = (int16_t)on;
    event.site = event.in = event.out = -1;
    append(recorder, &event);
}

void symm__record_depend(struct symm_recorder *recorder, const void *stream,
                         const void *on)
{
    pthread_mutex_lock(&recorder->lock);
    append_depend(recorder, symm__record_stream(recorder, stream),
                  symm__record_stream(recorder, on));
    pthread_mutex_unlock(&recorder->lock);
}

void symm__record_wait(const symm_work *work, const void *stream)
{
    struct symm_recorder *recorder = work->ctx->recorder;
    int on = work->record_stream - 1;

    if (on < 0)
        return;
    pthread_mutex_lock(&recorder->lock);
    /* A depend covers all events before it: if more followed the call on its stream, it would
     * claim too much order. Then no depend is recorded, and the plan shares less memory. */
    if (recorder->done[on] == work->record_mark)
        append_depend(recorder, symm__record_stream(recorder, stream), on);
    pthread_mutex_unlock(&recorder->lock);
}
