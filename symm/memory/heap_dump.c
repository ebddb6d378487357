/* SPDX-License-Identifier: MIT */
/*
 * heap_dump.c - a heap as text: JSON, or the pickle that pytorch.org/memory_viz shows.
 *
 * Guarantees: an error of the descriptor is reported, also the last one.
 * Refuses: unknown formats.
 */
#include "core/heap.h"

#include <inttypes.h>
#include <string.h>

#include "util/emit.h"
#include "util/status.h"

/* ---- Parts ----------------------------------------------------------------------- */

/*
 * A block's part of one segment. The parts tile the segment: a block that runs over its
 * end goes on in the next one, and what no block covers (a team's signal pad) is a part
 * too.
 */
struct part {
    size_t bytes;
    size_t requested;
    const struct symm_block *block; /* NULL: no block covers this */
};

struct cursor {
    const struct symm_heap_segment *segment;
    size_t next;                     /* index of the next block of the segment */
    size_t at;                       /* offset after the last part */
    const struct symm_block *before; /* of an earlier segment, reaching into it */
};

static size_t block_end(const struct symm_block *block)
{
    size_t end;

    return __builtin_add_overflow(block->offset, block->bytes, &end) ? SIZE_MAX : end;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The next part of the segment; false at its end. */
static bool next_part(struct cursor *cursor, struct part *part)
{
    const struct symm_heap_segment *segment = cursor->segment;
    size_t end = segment->offset + segment->bytes;
    const struct symm_block *block = NULL;

    if (cursor->at >= end)
        return false;
    if (cursor->before != NULL && block_end(cursor->before) > cursor->at) {
        block = cursor->before;
    } else {
        while (cursor->next < segment->count &&
               block_end(&segment->blocks[cursor->next]) <= cursor->at)
            cursor->next++;
        if (cursor->next < segment->count)
            block = &segment->blocks[cursor->next];
    }
    size_t stop = end;
    if (block != NULL && block->offset > cursor->at) {
        stop = smaller(block->offset, end);
        block = NULL;
    } else if (block != NULL) {
        stop = smaller(block_end(block), end);
    }
    part->bytes = stop - cursor->at;
    part->block = block;
    part->requested = 0;
    if (block != NULL && block->requested > cursor->at - block->offset)
        part->requested =
            smaller(block->requested - (cursor->at - block->offset), part->bytes);
    cursor->at = stop;
    return true;
}

/*
 * The block that may reach into segment s from an earlier one, or NULL. Segments of a
 * team follow each other by offset.
 */
static const struct symm_block *reaching(const struct symm_heap_segment *segments,
                                         size_t s)
{
    for (size_t i = s; i > 0; i--) {
        const struct symm_heap_segment *earlier = &segments[i - 1];
        if (earlier->count == 0)
            continue;
        const struct symm_block *last = &earlier->blocks[earlier->count - 1];
        return last->offset < segments[s].offset ? last : NULL;
    }
    return NULL;
}

static struct cursor first_part(const struct symm_heap_segment *segments, size_t s)
{
    return (struct cursor){.segment = &segments[s],
                           .at = segments[s].offset,
                           .before = reaching(segments, s)};
}

struct sums {
    uint64_t live, retired, free, other, requested;
};

static void add_segment(const struct symm_heap_segment *segments, size_t s,
                        struct sums *sums)
{
    struct part part;

    for (struct cursor c = first_part(segments, s); next_part(&c, &part);) {
        if (part.block == NULL)
            sums->other += part.bytes;
        else if (part.block->state == SYMM_BLOCK_LIVE)
            sums->live += part.bytes;
        else if (part.block->state == SYMM_BLOCK_RETIRED)
            sums->retired += part.bytes;
        else
            sums->free += part.bytes;
        sums->requested += part.requested;
    }
}

/* ---- JSON ------------------------------------------------------------------------ */

static const char *const state_names[] = {[SYMM_BLOCK_FREE] = "free",
                                          [SYMM_BLOCK_LIVE] = "live",
                                          [SYMM_BLOCK_RETIRED] = "retired"};

static void json_totals(struct symm_emit *emit,
                        const struct symm_heap_segment *segments, size_t count)
{
    uint64_t committed = 0, live_blocks = 0;
    struct sums sums = {0};

    for (size_t s = 0; s < count; s++) {
        add_segment(segments, s, &sums);
        committed += segments[s].bytes;
        for (size_t b = 0; b < segments[s].count; b++)
            live_blocks += segments[s].blocks[b].state == SYMM_BLOCK_LIVE;
    }
    symm__emit_key(emit, "totals");
    symm__emit_begin_map(emit);
    symm__emit_key_unsigned(emit, "segments", count);
    symm__emit_key_unsigned(emit, "committed_bytes", committed);
    symm__emit_key_unsigned(emit, "live_blocks", live_blocks);
    symm__emit_key_unsigned(emit, "live_bytes", sums.live);
    symm__emit_key_unsigned(emit, "requested_bytes", sums.requested);
    symm__emit_key_unsigned(emit, "retired_bytes", sums.retired);
    symm__emit_key_unsigned(emit, "free_bytes", sums.free);
    symm__emit_key_unsigned(emit, "other_bytes", sums.other); /* signal pads */
    symm__emit_end_map(emit);
}

static void json_block(struct symm_emit *emit, const struct symm_block *block)
{
    symm__emit_begin_map(emit);
    symm__emit_key_unsigned(emit, "offset", block->offset);
    symm__emit_key_unsigned(emit, "bytes", block->bytes);
    symm__emit_key_string(emit, "state", state_names[block->state]);
    if (block->state == SYMM_BLOCK_LIVE) {
        symm__emit_key_unsigned(emit, "alloc_id", block->id);
        symm__emit_key_unsigned(emit, "requested", block->requested);
    }
    symm__emit_end_map(emit);
}

static void write_json(struct symm_emit *emit, int rank,
                       const struct symm_heap_segment *segments, size_t count)
{
    symm__emit_begin_map(emit);
    symm__emit_key_string(emit, "format", "symm-heap/1");
    symm__emit_key_string(emit, "version", symm_version());
    symm__emit_key_signed(emit, "rank", rank);
    json_totals(emit, segments, count);
    symm__emit_key(emit, "segments");
    symm__emit_begin_list(emit);
    for (size_t s = 0; s < count; s++) {
        symm__emit_begin_map(emit);
        symm__emit_key_string(emit, "team", segments[s].team);
        symm__emit_key_unsigned(emit, "address", segments[s].address);
        symm__emit_key_unsigned(emit, "offset", segments[s].offset);
        symm__emit_key_unsigned(emit, "bytes", segments[s].bytes);
        symm__emit_key(emit, "blocks");
        symm__emit_begin_list(emit);
        for (size_t b = 0; b < segments[s].count; b++)
            json_block(emit, &segments[s].blocks[b]);
        symm__emit_end_list(emit);
        symm__emit_end_map(emit);
    }
    symm__emit_end_list(emit);
    symm__emit_end_map(emit);
}

/* ---- The viewer's snapshot ------------------------------------------------------- */

/*
 * The viewer computes addresses by adding up the sizes of a segment's blocks and draws
 * a block inside one segment: so a part here is a block there.
 */

/* One frame; the viewer shows it as "world:0:alloc_id 17". */
static void pickle_frames(struct symm_emit *emit, const char *team,
                          const struct symm_block *block)
{
    char name[64];

    symm__emit_key(emit, "frames");
    symm__emit_begin_list(emit);
    if (block != NULL && block->state != SYMM_BLOCK_FREE) {
        if (block->state == SYMM_BLOCK_RETIRED)
            snprintf(name, sizeof(name), "freed, not reusable yet");
        else
            snprintf(name, sizeof(name), "alloc_id %" PRIu64, block->id);
        symm__emit_begin_map(emit);
        symm__emit_key_string(emit, "filename", team);
        symm__emit_key_unsigned(emit, "line", 0);
        symm__emit_key_string(emit, "name", name);
        symm__emit_end_map(emit);
    }
    symm__emit_end_list(emit);
}

static void pickle_part(struct symm_emit *emit, const struct symm_heap_segment *segment,
                        const struct part *part, size_t offset)
{
    const char *state = "inactive";
    size_t requested = 0;

    if (part->block != NULL && part->block->state == SYMM_BLOCK_LIVE) {
        state = "active_allocated";
        requested = part->requested;
    } else if (part->block != NULL && part->block->state == SYMM_BLOCK_RETIRED) {
        state = "active_pending_free";
        requested = part->bytes;
    }
    symm__emit_begin_map(emit);
    symm__emit_key_unsigned(emit, "address",
                            segment->address + (offset - segment->offset));
    symm__emit_key_unsigned(emit, "size", part->bytes);
    symm__emit_key_unsigned(emit, "requested_size", requested);
    symm__emit_key_string(emit, "state", state);
    pickle_frames(emit, segment->team, part->block);
    symm__emit_end_map(emit);
}

static void pickle_segment(struct symm_emit *emit,
                           const struct symm_heap_segment *segments, size_t s)
{
    const struct symm_heap_segment *segment = &segments[s];
    struct sums sums = {0};
    struct part part;

    add_segment(segments, s, &sums);
    symm__emit_begin_map(emit);
    symm__emit_key_unsigned(emit, "device", 0);
    symm__emit_key_unsigned(emit, "address", segment->address);
    symm__emit_key_unsigned(emit, "total_size", segment->bytes);
    symm__emit_key_unsigned(emit, "allocated_size", sums.live);
    symm__emit_key_unsigned(emit, "active_size", sums.live + sums.retired);
    symm__emit_key_unsigned(emit, "stream", 0);
    symm__emit_key_string(emit, "segment_type", "large");
    symm__emit_key(emit, "frames");
    symm__emit_begin_list(emit);
    symm__emit_end_list(emit);
    symm__emit_key(emit, "blocks");
    symm__emit_begin_list(emit);
    for (struct cursor c = first_part(segments, s);;) {
        size_t offset = c.at;
        if (!next_part(&c, &part))
            break;
        pickle_part(emit, segment, &part, offset);
    }
    symm__emit_end_list(emit);
    symm__emit_end_map(emit);
}

/*
 * The device's trace is empty: the heap keeps no history, and the viewer then shows the
 * state as it is. Every rank's snapshot is that of device 0, the viewer's first choice.
 */
static void write_pickle(struct symm_emit *emit,
                         const struct symm_heap_segment *segments, size_t count)
{
    symm__emit_begin_map(emit);
    symm__emit_key(emit, "segments");
    symm__emit_begin_list(emit);
    for (size_t s = 0; s < count; s++)
        pickle_segment(emit, segments, s);
    symm__emit_end_list(emit);
    symm__emit_key(emit, "device_traces");
    symm__emit_begin_list(emit);
    symm__emit_begin_list(emit);
    symm__emit_end_list(emit);
    symm__emit_end_list(emit);
    symm__emit_end_map(emit);
}

/* ---- The whole ------------------------------------------------------------------- */

symm_status symm__heap_write(int fd, const char *format, int rank,
                             const struct symm_heap_segment *segments, size_t count)
{
    const bool json = strcmp(format, "json") == 0;
    struct symm_emit emit;
    int error;

    if (!json && strcmp(format, "pickle") != 0)
        return symm__fail(
            SYMM_ERR_INVALID,
            "symm_heap_write: no format '%.40s'; there are 'json' and 'pickle'",
            format);
    symm__emit_init_fd(&emit, json ? SYMM_EMIT_JSON : SYMM_EMIT_PICKLE, fd);
    if (json)
        write_json(&emit, rank, segments, count);
    else
        write_pickle(&emit, segments, count);
    error = symm__emit_finish(&emit);
    return error == 0 ? SYMM_OK
                      : symm__fail_errno(SYMM_ERR_SYSTEM, error,
                                         "symm_heap_write: descriptor %d cannot be "
                                         "written",
                                         fd);
}
