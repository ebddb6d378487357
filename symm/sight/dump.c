/* SPDX-License-Identifier: MIT */
/* dump.c - see dump.h. */
#include "sight/dump.h"

#include "symm/symm.h"

static void dump_teams(struct symm_emit *emit, const struct symm_sight_page *page)
{
    symm__emit_key(emit, "teams");
    symm__emit_begin_list(emit);
    for (int i = 0; i < SYMM_SIGHT_TEAMS; i++) {
        const struct symm_sight_team *team = &page->team[i];

        if (team->uid == 0)
            continue;
        symm__emit_begin_map(emit);
        symm__emit_key_unsigned(emit, "uid", team->uid);
        symm__emit_key_signed(emit, "slot", i);
        symm__emit_key_unsigned(emit, "number", team->number);
        symm__emit_key_string(emit, "name", team->name);
        symm__emit_key_signed(emit, "rank", team->rank);
        symm__emit_key_signed(emit, "size", team->size);
        symm__emit_key(emit, "members");
        symm__emit_begin_list(emit);
        for (int m = 0; m < team->size && m < SYMM_SIGHT_MEMBERS; m++)
            symm__emit_signed(emit, team->member[m]);
        symm__emit_end_list(emit);
        symm__emit_end_map(emit);
    }
    symm__emit_end_list(emit);
}

static void dump_sites(struct symm_emit *emit, const struct symm_sight_page *page,
                       const struct symm_sight_now *now)
{
    symm__emit_key(emit, "sites");
    symm__emit_begin_list(emit);
    for (int i = 0; i < SYMM_SIGHT_SITES; i++) {
        const struct symm_sight_site *site = &page->site[i];

        if (site->id == 0)
            continue;
        symm__emit_begin_map(emit);
        symm__emit_key_unsigned(emit, "id", site->id);
        symm__emit_key_unsigned(emit, "team", site->team_uid);
        symm__emit_key_unsigned(emit, "channel", site->channel);
        symm__emit_key_string(emit, "op", site->op);
        symm__emit_key_string(emit, "name", site->name);
        symm__emit_key_unsigned(emit, "bytes", site->bytes);
        symm__emit_key_unsigned(emit, "count", site->count);
        symm__emit_key_string(emit, "dtype", site->dtype);
        symm__emit_key_string(emit, "reduction", site->reduction);
        symm__emit_key_signed(emit, "root", site->root);
        symm__emit_key_signed(emit, "signal", site->signal);
        symm__emit_key_string(emit, "algorithm", site->algorithm);
        symm__emit_key_string(emit, "reason", site->reason);
        symm__emit_key_bool(emit, "fallback", site->fallback != 0);
        symm__emit_key_unsigned(emit, "calls", site->calls);
        symm__emit_key_unsigned(emit, "timed", site->timed);
        symm__emit_key_unsigned(emit, "timed_ns",
                                symm__sight_span(page, now, site->ticks));
        symm__emit_end_map(emit);
    }
    symm__emit_end_list(emit);
}

static void dump_call(struct symm_emit *emit, const struct symm_sight_page *page,
                      const struct symm_sight_now *now,
                      const struct symm_sight_call *call)
{
    symm__emit_begin_map(emit);
    symm__emit_key_unsigned(emit, "number", call->word >> 8);
    symm__emit_key_string(emit, "state", symm__sight_state_name(call->word & 0xff));
    symm__emit_key_unsigned(emit, "site", call->site);
    symm__emit_key_unsigned(emit, "step", call->epoch);
    if (call->begin != 0)
        symm__emit_key_unsigned(emit, "begin_ns",
                                symm__sight_ns(page, now, call->begin));
    if (call->end != 0)
        symm__emit_key_unsigned(emit, "end_ns", symm__sight_ns(page, now, call->end));
    symm__emit_end_map(emit);
}

/* In the order of their numbers. */
static void dump_calls(struct symm_emit *emit, const struct symm_sight_page *page,
                       const struct symm_sight_now *now)
{
    const struct symm_sight_call *list[SYMM_SIGHT_CALLS];

    symm__emit_key(emit, "last_calls");
    symm__emit_begin_list(emit);
    for (int i = symm__sight_calls(page, list); i-- > 0;)
        dump_call(emit, page, now, list[i]);
    symm__emit_end_list(emit);
}

static void dump_waits(struct symm_emit *emit, const struct symm_sight_page *page,
                       const struct symm_sight_now *now)
{
    symm__emit_key(emit, "waits");
    symm__emit_begin_list(emit);
    for (int i = 0; i < SYMM_SIGHT_WAITS; i++) {
        const struct symm_sight_wait *wait = &page->wait[i];

        if (wait->since == 0)
            continue;
        symm__emit_begin_map(emit);
        symm__emit_key_unsigned(emit, "team", wait->team_uid);
        symm__emit_key_unsigned(emit, "channel", wait->channel);
        symm__emit_key_unsigned(emit, "step", wait->epoch);
        symm__emit_key_string(emit, "op", wait->op);
        symm__emit_key_string(emit, "name", wait->name);
        symm__emit_key_unsigned(emit, "bytes", wait->bytes);
        symm__emit_key_unsigned(emit, "since_ns", wait->since);
        symm__emit_key_unsigned(emit, "waited_ns",
                                wait->since < now->ns ? now->ns - wait->since : 0);
        symm__emit_key_signed(emit, "missing", wait->missing);
        symm__emit_key(emit, "awaited");
        symm__emit_begin_list(emit);
        for (int k = 0; k < wait->missing && k < SYMM_SIGHT_AWAITED; k++)
            symm__emit_signed(emit, wait->awaited[k]);
        symm__emit_end_list(emit);
        symm__emit_end_map(emit);
    }
    symm__emit_end_list(emit);
}

/* CUDA: how far the device is. */
static void dump_progress(struct symm_emit *emit, const struct symm_sight_page *page)
{
    symm__emit_key(emit, "progress");
    symm__emit_begin_list(emit);
    for (int i = 0; i < SYMM_SIGHT_PROGRESS; i++) {
        const struct symm_sight_progress *progress = &page->progress[i];

        if (progress->team_uid == 0)
            continue;
        symm__emit_begin_map(emit);
        symm__emit_key_unsigned(emit, "team", progress->team_uid);
        symm__emit_key_unsigned(emit, "channel", progress->channel);
        symm__emit_key_unsigned(emit, "ended", progress->ended);
        symm__emit_key_unsigned(emit, "launched", progress->launched);
        symm__emit_key_unsigned(emit, "looked_ns", progress->looked);
        symm__emit_end_map(emit);
    }
    symm__emit_end_list(emit);
}

static void dump_failures(struct symm_emit *emit, const struct symm_sight_page *page)
{
    symm__emit_key_unsigned(emit, "failed", page->failures);
    symm__emit_key(emit, "failures");
    symm__emit_begin_list(emit);
    for (int i = 0; i < SYMM_SIGHT_FAILURES; i++) {
        const struct symm_sight_failure *failure = &page->failure[i];

        if (failure->status == 0)
            continue;
        symm__emit_begin_map(emit);
        symm__emit_key_unsigned(emit, "team", failure->team_uid);
        symm__emit_key_signed(emit, "status", failure->status);
        symm__emit_key_string(emit, "status_name",
                              symm_status_name((symm_status)failure->status));
        symm__emit_key_string(emit, "sentence", failure->sentence);
        symm__emit_end_map(emit);
    }
    symm__emit_end_list(emit);
}

/* Clocks: times of the page are nanoseconds of CLOCK_MONOTONIC of its host; `real` is UTC. */
static void dump_clock(struct symm_emit *emit, const struct symm_sight_page *page,
                       const struct symm_sight_now *now)
{
    symm__emit_key(emit, "clock");
    symm__emit_begin_map(emit);
    symm__emit_key_string(emit, "ticks", page->ticks_tsc ? "counter" : "nanoseconds");
    symm__emit_key_unsigned(emit, "opened_ticks", page->opened_ticks);
    symm__emit_key_unsigned(emit, "opened_ns", page->opened_ns);
    symm__emit_key_unsigned(emit, "opened_real_ns", page->opened_real_ns);
    symm__emit_key_unsigned(emit, "now_ticks", now->tsc);
    symm__emit_key_unsigned(emit, "now_ns", now->ns);
    symm__emit_key_unsigned(emit, "now_real_ns", now->real_ns);
    symm__emit_end_map(emit);
}

void symm__sight_dump(struct symm_emit *emit, const struct symm_sight_page *page,
                      const struct symm_sight_now *now,
                      const struct symm_sight_process *process)
{
    symm__emit_begin_map(emit);
    symm__emit_key_string(emit, "job", page->job);
    symm__emit_key_signed(emit, "rank", page->rank);
    symm__emit_key_signed(emit, "size", page->size);
    symm__emit_key_string(emit, "host", page->host);
    symm__emit_key_signed(emit, "pid", process->pid);
    symm__emit_key_string(emit, "command", process->command);
    symm__emit_key_string(emit, "process", process->state);
    symm__emit_key_string(emit, "backend", page->backend);
    symm__emit_key_string(emit, "version", page->version);
    symm__emit_key_bool(emit, "timed", page->times != 0);
    symm__emit_key_bool(emit, "finalizing", page->finished != 0);
    dump_clock(emit, page, now);
    symm__emit_key_unsigned(emit, "calls", page->calls);
    symm__emit_key_unsigned(emit, "left_out", page->left_out);
    symm__emit_key_unsigned(emit, "whole_after", page->whole);
    dump_teams(emit, page);
    dump_sites(emit, page, now);
    dump_calls(emit, page, now);
    dump_waits(emit, page, now);
    dump_progress(emit, page);
    dump_failures(emit, page);
    symm__emit_end_map(emit);
}
