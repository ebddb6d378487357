/* SPDX-License-Identifier: MIT */
/*
 * keep.c - decides which recorded events become ops, and which calls stay outside of the plan.
 *
 * A collective or put becomes an op if no other call of the period has its site, if every rank
 * makes it alike, over a team of a partition of the world, and if its input (of a put also
 * its target) is a buffer of the world. Every other call runs as without a plan, and the
 * buffers that it touches share bytes with none: they are *alone*. So are buffers that no
 * annotation describes, or of which the program has a peer's address. build.c puts an op on
 * a buffer that is alone between accesses of its own, which one stream can order. An op that
 * needs two streams for that stays outside as well, which may make further buffers alone.
 * Refuses ranks of one team that make different calls at one site.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "merge/merge.h"
#include "util/status.h"

static void note(struct merge *merge, const struct merge_event *event, const char *why)
{
    const struct merge_buffer *buffers = merge->records[0].buffers;
    int list[MERGE_BUFFERS];

    if (merge->report->first[0] || symm__merge_buffers(event, event->in, list) == 0)
        return;
    snprintf(merge->report->first, sizeof(merge->report->first),
             "%s%s%.60s%s on alloc_id %" PRIu64 ": %s",
             symm_record_kind_name(event->kind), event->site ? " at '" : "",
             event->site ? event->site : "", event->site ? "'" : "",
             buffers[list[0]].alloc_id, why);
}

static bool is_call(const struct merge_event *event)
{
    return symm__merge_is_collective(event) || event->kind == SYMM_RECORD_PUT_SIGNAL;
}

/* ---- Sites ------------------------------------------------------------------------- */

struct named {
    const char *site;
    int rank, index;
};

static int compare_named(const void *left, const void *right)
{
    const struct named *a = left, *b = right;
    int order = strcmp(a->site, b->site);

    if (order == 0)
        order = a->rank - b->rank;
    return order ? order : a->index - b->index;
}

/* All calls with a site, sorted by it; *count of them. */
static struct named *list_named(struct merge *merge, size_t *count)
{
    struct named *list;
    size_t room = 1;

    for (int r = 0; r < merge->world; r++)
        room += (size_t)merge->records[r].body.count;
    list = symm__pool_alloc(&merge->pool, room, sizeof(*list));
    *count = 0;
    for (int r = 0; list && r < merge->world; r++)
        for (int i = 0; i < merge->records[r].body.count; i++) {
            const struct merge_event *event = &merge->records[r].body.list[i];

            if (is_call(event) && event->site)
                list[(*count)++] =
                    (struct named){.site = event->site, .rank = r, .index = i};
        }
    if (list)
        qsort(list, *count, sizeof(*list), compare_named);
    return list;
}

static symm_status make_sites(struct merge *merge)
{
    size_t count, world = (size_t)merge->world;
    struct named *list = list_named(merge, &count);
    struct merge_site *site = NULL;

    merge->sites = symm__pool_alloc(&merge->pool, count + 1, sizeof(*merge->sites));
    if (merge->pool.failed)
        return symm__merge_nomem();
    for (size_t i = 0; i < count; i++) {
        struct merge_event *event =
            &merge->records[list[i].rank].body.list[list[i].index];

        if (!site || strcmp(site->name, list[i].site) != 0) {
            site = &merge->sites[merge->site_count++];
            *site = (struct merge_site){.name = list[i].site, .kept = true};
            site->first = symm__pool_alloc(&merge->pool, world, sizeof(*site->first));
            if (!site->first)
                return symm__merge_nomem();
            for (size_t r = 0; r < world; r++)
                site->first[r] = -1;
        }
        event->site_id = (int)(site - merge->sites);
        if (site->first[list[i].rank] >= 0)
            site->kept = false; /* its order among the others is not known */
        else
            site->first[list[i].rank] = list[i].index;
        if (!site->kept)
            note(merge, event, "its site is used more than once in a period");
    }
    return SYMM_OK;
}

static const struct merge_event *event_of(const struct merge *merge,
                                          const struct merge_site *site, int rank)
{
    return site->first[rank] < 0 ? NULL
                                 : &merge->records[rank].body.list[site->first[rank]];
}

static void call_text(const struct merge_event *event, char *text, size_t bytes)
{
    if (!event)
        snprintf(text, bytes, "does not call it");
    else
        snprintf(text, bytes, "calls %s%s%s of %zu %s on stream %d",
                 symm_record_kind_name(event->kind),
                 event->kind == SYMM_RECORD_ALL_REDUCE ||
                         event->kind == SYMM_RECORD_REDUCE_SCATTER
                     ? " "
                     : "",
                 event->kind == SYMM_RECORD_ALL_REDUCE ||
                         event->kind == SYMM_RECORD_REDUCE_SCATTER
                     ? symm_op_name(event->reduce)
                     : "",
                 event->count, symm_dtype_name(event->dtype), event->stream);
}

static bool norms_equal(const struct merge_norm *a, const struct merge_norm *b)
{
    bool equal =
        a->hidden == b->hidden && a->quant == b->quant && a->constant == b->constant;

    for (int i = 0; i < SYMM_RECORD_ARRAYS; i++)
        equal = equal && a->arrays[i].given == b->arrays[i].given;
    return equal;
}

/* Ranks of one team must agree on the call itself, not on where its data lie. */
static bool calls_equal(const struct merge_event *a, const struct merge_event *b)
{
    return a->kind == b->kind && a->stream == b->stream && a->count == b->count &&
           a->dtype == b->dtype && a->reduce == b->reduce &&
           (a->kind != SYMM_RECORD_BROADCAST || a->peer == b->peer) &&
           (!a->norm || norms_equal(a->norm, b->norm));
}

static symm_status contradiction(const struct merge_site *site, int one,
                                 const struct merge_event *a, int other,
                                 const struct merge_event *b)
{
    char is[160], was[160];

    call_text(a, is, sizeof(is));
    call_text(b, was, sizeof(was));
    return symm__fail(SYMM_ERR_INVALID,
                      "the ranks contradict each other at site '%.100s': rank %d %s, "
                      "rank %d %s; all ranks of a team make the same calls",
                      site->name, one, is, other, was);
}

/* A rank's call against those of all members of its team. */
static symm_status check_team(const struct merge *merge, const struct merge_site *site,
                              int rank)
{
    const struct merge_event *mine = event_of(merge, site, rank);
    const struct merge_team *team = &merge->records[rank].teams[mine->team];

    if (!symm__merge_is_collective(mine))
        return SYMM_OK; /* puts are one rank's own */
    for (int m = 0; m < team->size; m++) {
        const struct merge_event *other = event_of(merge, site, team->ranks[m]);

        if (!other || !calls_equal(mine, other))
            return contradiction(site, rank, mine, team->ranks[m], other);
    }
    return SYMM_OK;
}

/* ---- Which sites become ops -------------------------------------------------------- */

/* Does the rank's `in` count? Of a broadcast the root's does. */
static bool has_input(const struct merge *merge, int rank,
                      const struct merge_event *event)
{
    return event->kind != SYMM_RECORD_BROADCAST ||
           merge->records[rank].teams[event->team].place == event->peer;
}

int symm__merge_input(const struct merge *merge, const struct merge_site *site)
{
    for (int r = 0; r < merge->world; r++) {
        const struct merge_event *event = event_of(merge, site, r);

        if (event && has_input(merge, r, event))
            return event->in;
    }
    return -1;
}

/* In a program two arrays of a call are one buffer only in place. */
static bool norm_overlaps(const struct merge_norm *norm)
{
    static const symm_record_array outputs[] = {SYMM_RECORD_ARRAY_SUM_OUT,
                                                SYMM_RECORD_ARRAY_RESIDUAL_OUT,
                                                SYMM_RECORD_ARRAY_NORM_OUT};

    for (int i = 0; i < SYMM_RECORD_ARRAYS; i++)
        for (int k = 0; k < i; k++) {
            const struct merge_array *a = &norm->arrays[i], *b = &norm->arrays[k];
            const bool source =
                k == SYMM_RECORD_ARRAY_IN || k == SYMM_RECORD_ARRAY_RESIDUAL_IN;
            bool rows = false, reads = i <= SYMM_RECORD_ARRAY_WEIGHT;
            for (size_t o = 0; o < sizeof(outputs) / sizeof(*outputs); o++)
                rows = rows || i == (int)outputs[o];
            if (a->buffer >= 0 && a->buffer == b->buffer && !reads &&
                !(source && rows && a->at == b->at))
                return true;
        }
    return false;
}

/* Why a norm whose call all ranks make alike is no op; NULL: it can be. */
static const char *why_no_norm(const struct merge_norm *norm,
                               const struct merge_norm *model)
{
    for (int i = 0; i < SYMM_RECORD_ARRAYS; i++)
        if (norm->arrays[i].buffer != model->arrays[i].buffer ||
            norm->arrays[i].at != model->arrays[i].at)
            return "the teams or ranks make it differently";
    return norm_overlaps(norm) ? "two of its arrays lie in one buffer" : NULL;
}

static const char *why_not(const struct merge *merge, const struct merge_site *site,
                           int rank, const struct merge_event *event)
{
    const struct merge_record *record = &merge->records[rank], *first = merge->records;
    const struct merge_event *model = event_of(merge, site, 0);
    const struct merge_buffer *buffers = first->buffers;
    const bool put = event && event->kind == SYMM_RECORD_PUT_SIGNAL;
    int list[MERGE_BUFFERS], count;

    if (!event || !model)
        return "not every rank of the world makes the call";
    if (event->forced)
        return "the call names its algorithm itself";
    if (!calls_equal(event, model) ||
        strcmp(record->teams[event->team].name, first->teams[model->team].name) != 0 ||
        event->out != model->out || event->signal != model->signal ||
        (put && symm__merge_shift(record, event) != symm__merge_shift(first, model)))
        return "the teams or ranks make it differently";
    if (has_input(merge, rank, event) &&
        (event->in < 0 || event->in != symm__merge_input(merge, site)))
        return "its input is not one buffer of the world";
    if (put && event->out < 0)
        return "its target is not a buffer of the world";
    if (put &&
        (event->in_at || event->out_at || event->count != buffers[event->in].bytes ||
         buffers[event->out].bytes < event->count))
        return "it does not put the whole of its source";
    if (event->kind == SYMM_RECORD_ALL_GATHER && event->in == event->out)
        return "an all_gather in place";
    if (event->count == 0)
        return "it moves nothing";
    count = symm__merge_buffers(event, event->in, list);
    for (int i = 0; i < count; i++)
        if (buffers[list[i]].varies || buffers[list[i]].bytes == 0)
            return "the buffer was placed again with another shape";
    return event->norm ? why_no_norm(event->norm, model->norm) : NULL;
}

static symm_status judge_sites(struct merge *merge)
{
    int ranks[SYMM_PROGRAM_MAX_WORLD], lists, length;

    for (int s = 0; s < merge->site_count; s++) {
        struct merge_site *site = &merge->sites[s];
        const struct merge_event *model;

        for (int r = 0; r < merge->world; r++) {
            const struct merge_event *event = event_of(merge, site, r);
            const char *why;
            symm_status status =
                event && site->kept ? check_team(merge, site, r) : SYMM_OK;

            if (status != SYMM_OK)
                return status;
            why = site->kept ? why_not(merge, site, r, event) : NULL;
            if (!why)
                continue;
            for (int k = 0; k < merge->world; k++)
                if (event_of(merge, site, k))
                    note(merge, event_of(merge, site, k), why);
            site->kept = false;
        }
        model = event_of(merge, site, 0);
        if (site->kept &&
            !symm__merge_partition(merge, merge->records[0].teams[model->team].name,
                                   ranks, &lists, &length)) {
            note(merge, model, "its teams do not divide the world into equal parts");
            site->kept = false;
        }
    }
    return SYMM_OK;
}

/* ---- Waits ------------------------------------------------------------------------- */

struct counted {
    int team, signal, shift;
    int order; /* in the body */
    bool waits;
    struct merge_event *event;
};

static int compare_counted(const void *left, const void *right)
{
    const struct counted *a = left, *b = right;

    if (a->team != b->team)
        return a->team - b->team;
    if (a->signal != b->signal)
        return a->signal - b->signal;
    if (a->shift != b->shift)
        return a->shift - b->shift;
    if (a->waits != b->waits)
        return a->waits - b->waits;
    return a->order - b->order;
}

static bool counts(const struct merge_event *event)
{
    return event->kind == SYMM_RECORD_PUT_SIGNAL || event->kind == SYMM_RECORD_SIGNAL ||
           event->kind == SYMM_RECORD_WAIT;
}

/* Signals minus waits before the period. If not 0, a wait of the period takes an earlier
 * signal, and the counter's waits are not matched. */
static int outstanding(const struct merge_record *record, const struct counted *one)
{
    int sum = 0;

    for (int i = 0; record->head.list != record->body.list && i < record->head.count;
         i++) {
        const struct merge_event *event = &record->head.list[i];

        if (counts(event) && event->team == one->team && event->signal == one->signal &&
            symm__merge_shift(record, event) == one->shift)
            sum += event->kind == SYMM_RECORD_WAIT ? -1 : 1;
    }
    return sum;
}

/* One counter's events, puts first: the k-th wait is for the k-th put. */
static void pair_waits(const struct merge *merge, const struct merge_record *record,
                       const struct counted *list, int count)
{
    int puts = 0, waits;
    bool good;

    while (puts < count && !list[puts].waits)
        puts++;
    waits = count - puts;
    good = waits == 0 || (waits == puts && outstanding(record, list) == 0);
    for (int i = 0; i < puts; i++)
        good = good && list[i].event->kind == SYMM_RECORD_PUT_SIGNAL &&
               list[i].event->site_id >= 0;
    for (int i = 0; i < count; i++) {
        struct merge_event *event = list[i].event;

        if (event->kind == SYMM_RECORD_PUT_SIGNAL && event->site_id >= 0 && !good)
            merge->sites[event->site_id].kept = false;
        if (i >= puts)
            event->site_id = good ? list[i - puts].event->site_id : -1;
    }
}

static symm_status match_waits(struct merge *merge, struct merge_record *record)
{
    struct counted *list =
        symm__pool_alloc(&merge->pool, (size_t)record->body.count + 1, sizeof(*list));
    int count = 0, next;

    if (!list)
        return symm__merge_nomem();
    for (int i = 0; i < record->body.count; i++) {
        struct merge_event *event = &record->body.list[i];

        if (counts(event))
            list[count++] = (struct counted){.team = event->team,
                                             .signal = event->signal,
                                             .shift = symm__merge_shift(record, event),
                                             .order = i,
                                             .waits = event->kind == SYMM_RECORD_WAIT,
                                             .event = event};
    }
    qsort(list, (size_t)count, sizeof(*list), compare_counted);
    for (int i = 0; i < count; i = next) {
        for (next = i; next < count && list[next].team == list[i].team &&
                       list[next].signal == list[i].signal &&
                       list[next].shift == list[i].shift;)
            next++;
        pair_waits(merge, record, &list[i], next - i);
    }
    return SYMM_OK;
}

/* ---- Buffers that are alone -------------------------------------------------------- */

static bool set_alone(struct merge *merge, const struct merge_event *event)
{
    int list[MERGE_BUFFERS];
    const int count = symm__merge_buffers(event, event->in, list);
    bool changed = false;

    for (int i = 0; i < count; i++) {
        changed = changed || !merge->alone[list[i]];
        merge->alone[list[i]] = true;
    }
    return changed;
}

static void mark_events(struct merge *merge)
{
    for (int r = 0; r < merge->world; r++) {
        struct merge_record *record = &merge->records[r];

        for (int i = 0; i < record->body.count; i++) {
            struct merge_event *event = &record->body.list[i];
            const int b = event->in >= 0 ? event->in : event->out;

            if (event->kind == SYMM_RECORD_DEPEND)
                event->kept = true;
            else if (symm__merge_is_local(event))
                event->kept = !merge->alone[b];
            else
                event->kept = event->site_id >= 0 &&
                              merge->sites[event->site_id].kept &&
                              (is_call(event) || event->kind == SYMM_RECORD_WAIT);
        }
    }
}

/* Calls that stay outside make their buffers alone; calls on those need one stream. */
static bool spread(struct merge *merge, int *stream_of)
{
    const int buffers = merge->records[0].buffer_count;
    int list[MERGE_BUFFERS], count;
    bool changed = false;

    mark_events(merge);
    for (int b = 0; b < buffers; b++)
        stream_of[b] = -1;
    for (int r = 0; r < merge->world; r++)
        for (int i = 0; i < merge->records[r].body.count; i++) {
            const struct merge_event *event = &merge->records[r].body.list[i];
            struct merge_site *site =
                event->site_id >= 0 ? &merge->sites[event->site_id] : NULL;

            if (symm__merge_is_local(event) || event->kind == SYMM_RECORD_DEPEND)
                continue;
            if (!event->kept) {
                changed = set_alone(merge, event) || changed;
                if (!is_call(event) || !event->site)
                    note(merge, event, "it has no site, or no form in a program");
                continue;
            }
            count = is_call(event) ? symm__merge_buffers(event, event->in, list) : 0;
            for (int k = 0; k < count; k++) {
                const int b = list[k];

                if (!merge->alone[b] || !site->kept)
                    continue;
                if (event->kind == SYMM_RECORD_PUT_SIGNAL ||
                    (stream_of[b] >= 0 && stream_of[b] != event->stream)) {
                    note(merge, event,
                         "its buffer is not described, and more than "
                         "its own stream would have to order it");
                    site->kept = false;
                    changed = true;
                }
                stream_of[b] = event->stream;
            }
        }
    return changed;
}

symm_status symm__merge_keep(struct merge *merge)
{
    const struct merge_record *first = &merge->records[0];
    int *stream_of = symm__pool_alloc(&merge->pool, (size_t)first->buffer_count + 1,
                                      sizeof(*stream_of));
    symm_status status = stream_of ? make_sites(merge) : symm__merge_nomem();

    if (status == SYMM_OK)
        status = judge_sites(merge);
    for (int r = 0; r < merge->world && status == SYMM_OK; r++)
        status = match_waits(merge, &merge->records[r]);
    if (status != SYMM_OK)
        return status;
    for (int b = 0; b < first->buffer_count; b++)
        if (!first->buffers[b].described || first->buffers[b].varies ||
            first->buffers[b].reached)
            merge->alone[b] = true;
    while (spread(merge, stream_of))
        continue;
    mark_events(merge);
    return SYMM_OK;
}
