/* SPDX-License-Identifier: MIT */
/*
 * write.c - a recorder's file, symm-record/1 (docs/planner.md): JSON, one for each
 * rank.
 *
 * Guarantees: the file appears whole or not at all. If the disk is full at the end, what
 * stays is the file of the start, which says that it is not complete.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "record/record.h"
#include "util/emit.h"
#include "util/file.h"
#include "util/status.h"

/* Ids may be hashes of 64 bits, and JSON's readers hold 63: as text. */
static void key_id(struct symm_emit *emit, const char *key, uint64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    symm__emit_key_string(emit, key, text);
}

static void put_numbers(struct symm_emit *emit, const char *key, const int64_t *numbers,
                        int count)
{
    symm__emit_key(emit, key);
    symm__emit_begin_list(emit);
    for (int i = 0; i < count; i++)
        symm__emit_signed(emit, numbers[i]);
    symm__emit_end_list(emit);
}

static void put_teams(struct symm_emit *emit, const struct symm_recorder *recorder)
{
    symm__emit_key(emit, "teams");
    symm__emit_begin_list(emit);
    for (int t = 0; t < recorder->team_count; t++) {
        const struct symm_record_team *team = &recorder->teams[t];

        symm__emit_begin_map(emit);
        symm__emit_key_string(emit, "name", team->name);
        symm__emit_key(emit, "ranks");
        symm__emit_begin_list(emit);
        for (int r = 0; r < team->size; r++)
            symm__emit_signed(emit, team->ranks[r]);
        symm__emit_end_list(emit);
        symm__emit_end_map(emit);
    }
    symm__emit_end_list(emit);
}

static void put_buffers(struct symm_emit *emit, const struct symm_recorder *recorder)
{
    symm__emit_key(emit, "buffers");
    symm__emit_begin_list(emit);
    for (int32_t b = 0; b < recorder->buffer_count; b++) {
        const struct symm_record_buffer *buffer = &recorder->buffers[b];

        symm__emit_begin_map(emit);
        key_id(emit, "alloc_id", buffer->alloc_id);
        symm__emit_key_signed(emit, "team", buffer->team);
        symm__emit_key_string(emit, "dtype", symm_dtype_name(buffer->dtype));
        put_numbers(emit, "shape", buffer->shape, buffer->ndim);
        put_numbers(emit, "stride", buffer->stride, buffer->ndim);
        symm__emit_key_signed(emit, "bytes", (int64_t)buffer->bytes);
        symm__emit_key_bool(emit, "described", buffer->described);
        symm__emit_key_bool(emit, "varies", buffer->varies);
        symm__emit_key_bool(emit, "reached", buffer->reached);
        symm__emit_end_map(emit);
    }
    symm__emit_end_list(emit);
}

static void put_reference(struct symm_emit *emit, const char *key, int32_t buffer,
                          uint64_t at)
{
    if (buffer >= 0)
        put_numbers(emit, key, (int64_t[]){buffer, (int64_t)at}, 2);
}

static void put_array(struct symm_emit *emit, const char *key, uint8_t array)
{
    const char *name = symm_record_array_name((symm_record_array)array);

    if (name)
        symm__emit_key_string(emit, key, name);
}

static void put_norm(struct symm_emit *emit, const struct symm_record_event *event)
{
    symm__emit_key(emit, "norm");
    symm__emit_begin_map(emit);
    symm__emit_key_signed(emit, "part", event->part);
    symm__emit_key_signed(emit, "hidden", event->hidden);
    symm__emit_key_signed(emit, "quant", event->quant);
    symm__emit_key_bool(emit, "constant", event->constant);
    put_array(emit, "reads", event->reads);
    put_array(emit, "writes", event->writes);
    symm__emit_end_map(emit);
}

static void put_event(struct symm_emit *emit, const struct symm_recorder *recorder,
                      const struct symm_record_event *event)
{
    const bool reduces = event->kind == SYMM_RECORD_ALL_REDUCE ||
                         event->kind == SYMM_RECORD_REDUCE_SCATTER;

    symm__emit_begin_map(emit);
    symm__emit_key_string(emit, "op",
                          symm_record_kind_name((symm_record_kind)event->kind));
    symm__emit_key_signed(emit, "stream", event->stream);
    if (event->kind == SYMM_RECORD_DEPEND) {
        symm__emit_key_signed(emit, "on", event->on);
    } else {
        symm__emit_key_signed(emit, "team", event->team);
        if (event->site >= 0)
            symm__emit_key_string(emit, "site", recorder->sites[event->site]);
        put_reference(emit, "in", event->in, event->in_at);
        put_reference(emit, "out", event->out, event->out_at);
        symm__emit_key_signed(emit, "count", (int64_t)event->count);
        if (event->forced)
            symm__emit_key_bool(emit, "forced", true);
        symm__emit_key_string(emit, "dtype", symm_dtype_name(event->dtype));
        if (reduces)
            symm__emit_key_string(emit, "reduce", symm_op_name(event->op));
        symm__emit_key_signed(emit, "peer", event->peer);
        symm__emit_key_signed(emit, "signal", event->signal);
        if (event->kind == SYMM_RECORD_ALL_REDUCE_NORM)
            put_norm(emit, event);
    }
    symm__emit_end_map(emit);
}

static void put_segment(struct symm_emit *emit, const struct symm_recorder *recorder,
                        const char *key, const struct symm_record_segment *segment)
{
    symm__emit_key(emit, key);
    symm__emit_begin_list(emit);
    for (size_t i = 0; i < segment->count; i++)
        put_event(emit, recorder, &segment->events[i]);
    symm__emit_end_list(emit);
}

static void put_all(struct symm_emit *emit, const struct symm_recorder *recorder,
                    bool complete)
{
    const symm_ctx *ctx = recorder->ctx;
    char job[24];

    snprintf(job, sizeof(job), "%016llx", (unsigned long long)recorder->job);
    symm__emit_begin_map(emit);
    symm__emit_key_string(emit, "format", "symm-record/1");
    symm__emit_key_string(emit, "name", program_invocation_short_name);
    symm__emit_key_string(emit, "job", job);
    symm__emit_key_signed(emit, "rank", ctx->rank);
    symm__emit_key_signed(emit, "world", ctx->size);
    symm__emit_key_string(emit, "backend", ctx->ops->name);
    symm__emit_key_bool(emit, "complete", complete);
    if (recorder->trouble[0])
        symm__emit_key_string(emit, "trouble", recorder->trouble);
    symm__emit_key_signed(emit, "periods", (int64_t)recorder->periods);
    put_teams(emit, recorder);
    symm__emit_key_signed(emit, "streams", recorder->stream_count);
    put_buffers(emit, recorder);
    put_segment(emit, recorder, "head", &recorder->head);
    put_segment(emit, recorder, "period", &recorder->period);
    put_segment(emit, recorder, "tail", &recorder->current);
    symm__emit_end_map(emit);
}

symm_status symm__record_write(const struct symm_recorder *recorder, bool complete)
{
    struct symm_emit emit;
    char *beside;
    int fd, error;

    if (asprintf(&beside, "%s.new", recorder->path) < 0)
        return symm__fail(SYMM_ERR_NOMEM, "SYMM_RECORD: no memory for a path");
    fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    error = fd < 0 ? errno : 0;
    if (fd >= 0) {
        symm__emit_init_fd(&emit, SYMM_EMIT_JSON, fd);
        put_all(&emit, recorder, complete);
        error = symm__file_finish(fd, symm__emit_finish(&emit), beside, recorder->path);
    }
    free(beside);
    if (error == 0)
        return SYMM_OK;
    return symm__fail_errno(SYMM_ERR_SYSTEM, error,
                            "SYMM_RECORD: rank %d cannot write %s", recorder->ctx->rank,
                            recorder->path);
}
