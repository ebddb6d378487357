/* SPDX-License-Identifier: MIT */
/* trace_event.c - see trace_event.h. */
#include "sight/trace_event.h"

#include <inttypes.h>
#include <string.h>
#include <sys/timex.h>
#include <time.h>

#include "sight/read.h"
#include "util/emit.h"
#include "util/text.h"
#include "util/ticks.h"

/* ---- Pieces ------------------------------------------------------------------------------ */

/* An event up to its args, which are open. */
static void begin(struct symm_emit *emit, FILE *file, const char *name,
                  const char *phase, int rank, int64_t thread)
{
    symm__emit_init_file(emit, SYMM_EMIT_JSON, file);
    symm__emit_one_line(emit);
    symm__emit_begin_map(emit);
    symm__emit_key_string(emit, "name", name);
    symm__emit_key_string(emit, "ph", phase);
    symm__emit_key_signed(emit, "pid", rank);
    symm__emit_key_signed(emit, "tid", thread);
}

static void open_args(struct symm_emit *emit)
{
    symm__emit_key(emit, "args");
    symm__emit_begin_map(emit);
}

static void end(struct symm_emit *emit)
{
    symm__emit_end_map(emit); /* args */
    symm__emit_end_map(emit);
    (void)symm__emit_finish(emit); /* the file in memory tells at its end */
}

/* Nanoseconds, as the format's microseconds. */
static void key_time(struct symm_emit *emit, const char *key, uint64_t ns)
{
    char text[32];

    snprintf(text, sizeof(text), "%" PRIu64 ".%03u", ns / 1000, (unsigned)(ns % 1000));
    symm__emit_key(emit, key);
    symm__emit_json(emit, text);
}

static void key_slice(struct symm_emit *emit, const char *category, uint64_t from,
                      uint64_t to)
{
    symm__emit_key_string(emit, "cat", category);
    key_time(emit, "ts", from);
    key_time(emit, "dur", to > from ? to - from : 0);
}

static void key_text(struct symm_emit *emit, const char *key, const char *text)
{
    if (*text)
        symm__emit_key_string(emit, key, text);
}

int symm__trace_team(const struct symm_sight_page *page, uint32_t uid)
{
    const struct symm_sight_team *team = symm__sight_team_of(page, uid);

    return team ? (int)team->number : -1;
}

static void key_team(struct symm_emit *emit, const struct symm_sight_page *page,
                     uint32_t uid)
{
    const int number = symm__trace_team(page, uid);

    if (number >= 0)
        symm__emit_key_signed(emit, "team", number);
}

/* ---- Events ------------------------------------------------------------------------------ */

/* CLOCK_REALTIME less CLOCK_MONOTONIC, in microseconds, by the closest of some readings. */
static int64_t realtime_offset(void)
{
    uint64_t least = UINT64_MAX;
    int64_t offset = 0;

    for (int i = 0; i < 8; i++) {
        const uint64_t before = symm__ticks_ns();
        struct timespec real;
        uint64_t after;

        (void)clock_gettime(CLOCK_REALTIME, &real);
        after = symm__ticks_ns();
        if (after - before >= least)
            continue;
        least = after - before;
        offset = ((int64_t)real.tv_sec * 1000000000 + real.tv_nsec -
                  (int64_t)(before + least / 2)) /
                 1000;
    }
    return offset;
}

/* How far the host's CLOCK_REALTIME may be off, as the kernel knows from what sets it; null: it is
 * not being set. */
static void key_realtime(struct symm_emit *emit)
{
    struct timex state = {.modes = 0};
    const int clock = adjtimex(&state);

    symm__emit_key_signed(emit, "realtime_offset_us", realtime_offset());
    symm__emit_key(emit, "realtime_error_us");
    if (clock < 0 || clock == TIME_ERROR || (state.status & STA_UNSYNC) != 0)
        symm__emit_json(emit, "null");
    else
        symm__emit_signed(emit, state.maxerror);
}

void symm__trace_put_head(FILE *file, const struct symm_sight_page *page,
                          uint64_t sample)
{
    struct symm_emit emit;
    char name[120], boot[64];

    if (symm__read_text(boot, sizeof(boot), "/proc/sys/kernel/random/boot_id") < 0)
        boot[0] = '\0';
    boot[strcspn(boot, "\n")] = '\0';
    begin(&emit, file, "symm_trace", "M", page->rank, 0);
    open_args(&emit);
    symm__emit_key_string(&emit, "format", SYMM_TRACE_FORMAT);
    symm__emit_key_string(&emit, "job", page->job);
    symm__emit_key_signed(&emit, "rank", page->rank);
    symm__emit_key_signed(&emit, "size", page->size);
    symm__emit_key_string(&emit, "host", page->host);
    symm__emit_key_string(&emit, "boot", boot);
    symm__emit_key_signed(&emit, "process", page->pid);
    symm__emit_key_string(&emit, "backend", page->backend);
    symm__emit_key_string(&emit, "version", page->version);
    symm__emit_key_unsigned(&emit, "sample", sample);
    key_realtime(&emit);
    end(&emit);

    fputc(',', file);
    snprintf(name, sizeof(name), "rank %d on %s", page->rank, page->host);
    begin(&emit, file, "process_name", "M", page->rank, 0);
    open_args(&emit);
    symm__emit_key_string(&emit, "name", name);
    end(&emit);

    fputc(',', file);
    begin(&emit, file, "process_sort_index", "M", page->rank, 0);
    open_args(&emit);
    symm__emit_key_signed(&emit, "sort_index", page->rank);
    end(&emit);
}

void symm__trace_put_thread(FILE *file, const struct symm_sight_page *page,
                            int32_t thread, enum symm_trace_row row)
{
    const int at = thread - SYMM_TRACE_DEVICE_ROWS;
    struct symm_emit emit;
    char name[64];

    if (row == SYMM_TRACE_DEVICE)
        snprintf(name, sizeof(name), "device: team %d, channel %d", at / 1000,
                 at % 1000);
    else
        snprintf(name, sizeof(name), "%s %d",
                 row == SYMM_TRACE_STREAM ? "stream" : "thread", thread);
    begin(&emit, file, "thread_name", "M", page->rank, thread);
    open_args(&emit);
    symm__emit_key_string(&emit, "name", name);
    end(&emit);
}

static const char *state_name(unsigned state)
{
    switch (state) {
    case SYMM_SIGHT_LAUNCHED:
        return "launched";
    case SYMM_SIGHT_CAPTURED:
        return "captured";
    case SYMM_SIGHT_FAILED:
        return "failed";
    default:
        return "done";
    }
}

void symm__trace_put_call(FILE *file, const struct symm_sight_page *page,
                          const struct symm_trace_call *call,
                          const struct symm_sight_site *site)
{
    struct symm_emit emit;

    begin(&emit, file, site->id ? site->op : "call", "X", page->rank, call->thread);
    key_slice(&emit, "call", call->begin, call->end);
    open_args(&emit);
    symm__emit_key_unsigned(&emit, "number", call->word >> 8);
    symm__emit_key_string(&emit, "state", state_name(call->word & 0xff));
    symm__emit_key_unsigned(&emit, "epoch", call->epoch);
    if (call->queued)
        key_time(&emit, "queued_us", call->begin - call->queued);
    if (site->id) {
        key_team(&emit, page, site->team_uid);
        key_text(&emit, "site", site->name);
        symm__emit_key_unsigned(&emit, "bytes", site->bytes);
        symm__emit_key_unsigned(&emit, "channel", site->channel);
        key_text(&emit, "dtype", site->dtype);
        key_text(&emit, "reduction", site->reduction);
        key_text(&emit, "algorithm", site->algorithm);
        key_text(&emit, "reason", site->reason);
        if (site->root >= 0)
            symm__emit_key_signed(&emit, "peer", site->root);
        if (site->signal >= 0)
            symm__emit_key_signed(&emit, "signal", site->signal);
    }
    end(&emit);
}

static void put_wait(struct symm_emit *emit, const struct symm_sight_page *page,
                     const struct symm_trace_note *note)
{
    key_slice(emit, "wait", note->begin, note->end);
    open_args(emit);
    symm__emit_key_string(emit, "op", note->op);
    key_text(emit, "site", note->name);
    key_team(emit, page, note->team_uid);
    symm__emit_key_unsigned(emit, "epoch", note->epoch);
    symm__emit_key_unsigned(emit, "bytes", note->bytes);
    symm__emit_key(emit, "awaited");
    symm__emit_begin_list(emit);
    for (int i = 0; i < note->value && i < SYMM_SIGHT_AWAITED; i++)
        symm__emit_signed(emit, note->awaited[i]);
    symm__emit_end_list(emit);
}

void symm__trace_put_note(FILE *file, const struct symm_sight_page *page,
                          const struct symm_trace_note *note)
{
    struct symm_emit emit;

    switch (note->kind) {
    case SYMM_TRACE_WAIT:
        begin(&emit, file, "wait", "X", page->rank, note->thread);
        put_wait(&emit, page, note);
        break;
    case SYMM_TRACE_FAILURE:
        begin(&emit, file, "failure", "i", page->rank, note->thread);
        symm__emit_key_string(&emit, "cat", "failure");
        symm__emit_key_string(&emit, "s", "p"); /* as wide as the process */
        key_time(&emit, "ts", note->begin);
        open_args(&emit);
        symm__emit_key_string(&emit, "status",
                              symm_status_name((symm_status)note->value));
        symm__emit_key_string(&emit, "sentence", note->text);
        key_team(&emit, page, note->team_uid);
        break;
    case SYMM_TRACE_COUNTER:
        begin(&emit, file, note->name, "C", page->rank, 0);
        key_time(&emit, "ts", note->begin);
        open_args(&emit);
        symm__emit_key_signed(&emit, "value", note->value);
        break;
    }
    end(&emit);
}

void symm__trace_put_end(FILE *file, const struct symm_sight_page *page,
                         uint64_t dropped, int unfinished)
{
    struct symm_emit emit;

    begin(&emit, file, "symm_trace_end", "M", page->rank, 0);
    open_args(&emit);
    symm__emit_key_unsigned(&emit, "dropped", dropped);
    symm__emit_key_signed(&emit, "unfinished", unfinished);
    end(&emit);
}
