/* SPDX-License-Identifier: MIT */
/*
 * table.c - what a recorder's events refer to: teams, streams, buffers, sites.
 *
 * Ranks that make the same calls number all of these alike, except teams: a rank knows the
 * teams that it is in. So a team is named by its parent and the number of the split there,
 * which is the same on all members of the parent; others by the number that their members have
 * agreed on.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/team.h"
#include "record/record.h"
#include "util/hash.h"

static void exhausted(struct symm_recorder *recorder)
{
    symm__record_trouble(recorder, "memory was exhausted while it was recorded");
}

bool symm__record_grow(struct symm_recorder *recorder, void **list, size_t count,
                       size_t *room, size_t bytes)
{
    size_t more = *room ? 2 * *room : 32;
    void *grown;

    if (count < *room)
        return true;
    grown = realloc(*list, more * bytes);
    if (!grown) {
        exhausted(recorder);
        return false;
    }
    *list = grown;
    *room = more;
    return true;
}

/* ---- Teams ---------------------------------------------------------------------------- */

/* With the lock held. */
static void add_team(struct symm_recorder *recorder, const symm_team *team,
                     const char *name)
{
    struct symm_record_team *made;

    if (!symm__record_grow(recorder, (void **)&recorder->teams,
                           (size_t)recorder->team_count, &recorder->team_room,
                           sizeof(*recorder->teams)))
        return;
    made = &recorder->teams[recorder->team_count];
    *made = (struct symm_record_team){.size = team->size};
    snprintf(made->name, sizeof(made->name), "%s", name);
    made->ranks = malloc((size_t)team->size * sizeof(*made->ranks));
    if (!made->ranks || recorder->team_count > INT16_MAX) {
        free(made->ranks);
        symm__record_trouble(recorder, "it made more teams than can be recorded");
        return;
    }
    memcpy(made->ranks, team->world_rank, (size_t)team->size * sizeof(*made->ranks));
    recorder->team_of[team->slot] = (int16_t)recorder->team_count++;
}

void symm__record_team(const symm_team *team, const char *origin)
{
    struct symm_recorder *recorder = team->ctx->recorder;
    char name[64];

    pthread_mutex_lock(&recorder->lock);
    snprintf(name, sizeof(name), "%s%u", origin, team->number);
    add_team(recorder, team, team->slot == 0 ? origin : name);
    pthread_mutex_unlock(&recorder->lock);
}

void symm__record_split(const symm_team *parent, const symm_team *team)
{
    struct symm_recorder *recorder = parent->ctx->recorder;
    int16_t from = recorder->team_of[parent->slot];
    char name[64];

    pthread_mutex_lock(&recorder->lock);
    if (from >= 0) {
        struct symm_record_team *above = &recorder->teams[from];

        above->splits++;
        if (from == 0)
            snprintf(name, sizeof(name), "split%d", above->splits);
        else
            snprintf(name, sizeof(name), "%.50s.%d", above->name, above->splits);
        if (team)
            add_team(recorder, team, name);
    }
    pthread_mutex_unlock(&recorder->lock);
}

/* ---- Streams and sites ---------------------------------------------------------------- */

/* CUDA's name of the legacy default stream, (CUstream)1, is the NULL stream. */
int symm__record_stream(struct symm_recorder *recorder, const void *stream)
{
    if (!stream || (recorder->ctx->device_ops && (uintptr_t)stream == 1))
        return 0;
    for (int i = 1; i < recorder->stream_count; i++)
        if (recorder->streams[i] == stream)
            return i;
    if (recorder->stream_count == SYMM_RECORD_STREAMS) {
        symm__record_trouble(recorder,
                             "it used more than %d streams, and a program has no more",
                             SYMM_RECORD_STREAMS);
        return 0;
    }
    recorder->streams[recorder->stream_count] = (void *)(uintptr_t)stream;
    return recorder->stream_count++;
}

static size_t site_slot(const struct symm_recorder *recorder, const char *site)
{
    size_t hash = symm__fnv_short(symm__fnv_text(SYMM_FNV_BASIS, site));
    size_t mask = recorder->site_slot_count - 1;

    while (recorder->site_slots[hash & mask] >= 0 &&
           strcmp(recorder->sites[recorder->site_slots[hash & mask]], site) != 0)
        hash++;
    return hash & mask;
}

/* At most half of the slots are full. */
static bool grow_slots(struct symm_recorder *recorder)
{
    size_t count = recorder->site_slot_count ? 2 * recorder->site_slot_count : 256;
    int32_t *slots;

    if (2 * ((size_t)recorder->site_count + 1) <= recorder->site_slot_count)
        return true;
    slots = malloc(count * sizeof(*slots));
    if (!slots) {
        exhausted(recorder);
        return false;
    }
    memset(slots, 0xff, count * sizeof(*slots)); /* -1 */
    free(recorder->site_slots);
    recorder->site_slots = slots;
    recorder->site_slot_count = count;
    for (int32_t s = 0; s < recorder->site_count; s++)
        slots[site_slot(recorder, recorder->sites[s])] = s;
    return true;
}

int32_t symm__record_site(struct symm_recorder *recorder, const char *site)
{
    size_t slot;
    char *copy;

    if (!site || !*site || !grow_slots(recorder))
        return -1;
    slot = site_slot(recorder, site);
    if (recorder->site_slots[slot] >= 0)
        return recorder->site_slots[slot];
    copy = strdup(site);
    if (!copy || !symm__record_grow(recorder, (void **)&recorder->sites,
                                    (size_t)recorder->site_count, &recorder->site_room,
                                    sizeof(*recorder->sites))) {
        free(copy);
        exhausted(recorder);
        return -1;
    }
    recorder->sites[recorder->site_count] = copy;
    recorder->site_slots[slot] = recorder->site_count;
    return recorder->site_count++;
}

/* ---- Buffers -------------------------------------------------------------------------- */

size_t symm__record_offset(const struct symm_recorder *recorder, const void *ptr)
{
    const symm_ctx *ctx = recorder->ctx;

    return (uintptr_t)ptr - (uintptr_t)(symm__heap_base(ctx, ctx->rank));
}

/* Index of the first place that ends after `offset`. */
static size_t place_after(const struct symm_recorder *recorder, size_t offset)
{
    size_t low = 0, high = recorder->place_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct symm_record_place *place = &recorder->places[middle];

        if (place->offset + place->bytes <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

ptrdiff_t symm__record_find(const struct symm_recorder *recorder, const void *ptr,
                            size_t bytes)
{
    size_t offset = symm__record_offset(recorder, ptr), at;

    if (offset >= recorder->ctx->stride)
        return -1;
    at = place_after(recorder, offset);
    if (at == recorder->place_count ||
        recorder->places[at].offset >= offset + (bytes ? bytes : 1))
        return -1;
    return (ptrdiff_t)at;
}

static bool is_same_shape(const struct symm_record_buffer *made, const symm_buffer *b)
{
    return made->bytes == b->bytes && made->dtype == b->dtype &&
           made->ndim == b->ndim &&
           memcmp(made->shape, b->shape, sizeof(made->shape)) == 0 &&
           memcmp(made->stride, b->stride, sizeof(made->stride)) == 0;
}

/* The entry of (team, alloc_id): the same one when an id is freed and placed again. */
static int32_t buffer_entry(struct symm_recorder *recorder, const symm_buffer *buffer,
                            int16_t team)
{
    struct symm_record_buffer *made;

    for (int32_t b = 0; b < recorder->buffer_count; b++) {
        made = &recorder->buffers[b];
        if (made->alloc_id != buffer->alloc_id || made->team != team)
            continue;
        if (!is_same_shape(made, buffer))
            made->varies = true;
        return b;
    }
    if (!symm__record_grow(recorder, (void **)&recorder->buffers,
                           (size_t)recorder->buffer_count, &recorder->buffer_room,
                           sizeof(*recorder->buffers)))
        return -1;
    made = &recorder->buffers[recorder->buffer_count];
    *made = (struct symm_record_buffer){.alloc_id = buffer->alloc_id,
                                        .team = team,
                                        .dtype = buffer->dtype,
                                        .ndim = buffer->ndim,
                                        .bytes = buffer->bytes};
    memcpy(made->shape, buffer->shape, sizeof(made->shape));
    memcpy(made->stride, buffer->stride, sizeof(made->stride));
    return recorder->buffer_count++;
}

void symm__record_buffer(const symm_buffer *buffer)
{
    struct symm_recorder *recorder = buffer->team->ctx->recorder;
    struct symm_record_place place = {.offset = buffer->offset, .bytes = buffer->bytes};
    int16_t team = recorder->team_of[buffer->team->slot];
    size_t at;

    if (buffer->alloc_id == 0 || team < 0)
        return; /* a plan knows buffers by their ids */
    pthread_mutex_lock(&recorder->lock);
    if (buffer->planned)
        symm__record_trouble(recorder,
                             "it ran with a plan, under which buffers share bytes; "
                             "record it without SYMM_PLAN and symm_team_load_plan");
    place.buffer = buffer_entry(recorder, buffer, team);
    if (place.buffer >= 0 && place.bytes > 0 &&
        symm__record_grow(recorder, (void **)&recorder->places, recorder->place_count,
                          &recorder->place_room, sizeof(*recorder->places))) {
        at = place_after(recorder, place.offset);
        memmove(&recorder->places[at + 1], &recorder->places[at],
                (recorder->place_count - at) * sizeof(place));
        recorder->places[at] = place;
        recorder->place_count++;
    }
    pthread_mutex_unlock(&recorder->lock);
}

void symm__record_reached(const symm_buffer *buffer)
{
    struct symm_recorder *recorder = buffer->team->ctx->recorder;
    size_t at;

    pthread_mutex_lock(&recorder->lock);
    at = place_after(recorder, buffer->offset);
    if (at < recorder->place_count && recorder->places[at].offset == buffer->offset)
        recorder->buffers[recorder->places[at].buffer].reached = true;
    pthread_mutex_unlock(&recorder->lock);
}

void symm__record_unplace(const symm_buffer *buffer)
{
    struct symm_recorder *recorder = buffer->team->ctx->recorder;
    size_t at;

    pthread_mutex_lock(&recorder->lock);
    at = place_after(recorder, buffer->offset);
    if (buffer->alloc_id != 0 && at < recorder->place_count &&
        recorder->places[at].offset == buffer->offset) {
        recorder->place_count--;
        memmove(&recorder->places[at], &recorder->places[at + 1],
                (recorder->place_count - at) * sizeof(*recorder->places));
    }
    pthread_mutex_unlock(&recorder->lock);
}
