/* SPDX-License-Identifier: MIT */
/*
 * order.c - compares the order of the ranks' calls on each stream, and the accesses between
 * two calls.
 *
 * A depend waits for all events before it on another stream, so ranks must agree on their
 * number. Refuses ranks that do not, and ranks whose calls differ in their order. Accesses
 * may differ (a root alone fills what it broadcasts): such gaps are marked, and build.c gives
 * them the accesses of all ranks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "merge/merge.h"
#include "util/status.h"

/* A kept event that is no local access. */
struct step {
    const struct merge_event *event;
    int stream, number;      /* its place on the stream */
    int on_steps, on_locals; /* depend: events before it on that stream, in the last gap */
};

struct steps {
    struct step *list; /* sorted by stream, then number */
    int count;
};

static int compare_steps(const void *left, const void *right)
{
    const struct step *a = left, *b = right;

    return a->stream != b->stream ? a->stream - b->stream : a->number - b->number;
}

static symm_status list_steps(struct pool *pool, const struct merge_record *record,
                              struct steps *steps)
{
    int done[SYMM_PROGRAM_MAX_STREAMS] = {0}, locals[SYMM_PROGRAM_MAX_STREAMS] = {0};

    steps->list =
        symm__pool_alloc(pool, (size_t)record->body.count + 1, sizeof(*steps->list));
    steps->count = 0;
    if (!steps->list)
        return symm__merge_nomem();
    for (int i = 0; i < record->body.count; i++) {
        const struct merge_event *event = &record->body.list[i];
        struct step step = {.event = event, .stream = event->stream};

        if (!event->kept)
            continue;
        if (symm__merge_is_local(event)) {
            locals[event->stream]++;
            continue;
        }
        if (event->kind == SYMM_RECORD_DEPEND) {
            step.on_steps = done[event->on];
            step.on_locals = locals[event->on];
        }
        step.number = done[event->stream]++;
        locals[event->stream] = 0;
        steps->list[steps->count++] = step;
    }
    qsort(steps->list, (size_t)steps->count, sizeof(*steps->list), compare_steps);
    return SYMM_OK;
}

/* ---- The same order ---------------------------------------------------------------- */

static void step_text(const struct merge *merge, const struct step *step, int stream,
                      char *text, size_t bytes)
{
    const struct merge_event *event =
        step && step->stream == stream ? step->event : NULL;

    if (!event)
        snprintf(text, bytes, "nothing");
    else if (event->kind == SYMM_RECORD_DEPEND)
        snprintf(text, bytes, "a depend on stream %d after %d of its calls", event->on,
                 step->on_steps);
    else
        snprintf(text, bytes, "%s at '%.80s'", symm_record_kind_name(event->kind),
                 merge->sites[event->site_id].name);
}

static bool steps_equal(const struct step *a, const struct step *b)
{
    if (a->stream != b->stream || a->event->kind != b->event->kind)
        return false;
    if (a->event->kind == SYMM_RECORD_DEPEND)
        return a->event->on == b->event->on && a->on_steps == b->on_steps;
    return a->event->site_id == b->event->site_id;
}

static symm_status compare_orders(const struct merge *merge, const struct steps *a,
                                  const struct steps *b, int rank)
{
    const int most = a->count > b->count ? a->count : b->count;
    char first[160], other[160];

    for (int i = 0; i < most; i++) {
        const struct step *x = i < a->count ? &a->list[i] : NULL;
        const struct step *y = i < b->count ? &b->list[i] : NULL;
        int stream;

        if (x && y && steps_equal(x, y))
            continue;
        stream = !y || (x && x->stream < y->stream) ? x->stream : y->stream;
        step_text(merge, x, stream, first, sizeof(first));
        step_text(merge, y, stream, other, sizeof(other));
        return symm__fail(SYMM_ERR_INVALID,
                          "the ranks contradict each other on stream %d: rank 0 has %s "
                          "next where rank %d has %s; make the calls of each stream in "
                          "one order on all ranks",
                          stream, first, rank, other);
    }
    return SYMM_OK;
}

/* ---- Gaps -------------------------------------------------------------------------- */

static symm_status make_gaps(struct merge *merge, int rank)
{
    const struct merge_record *record = &merge->records[rank];
    struct merge_gaps *gaps = &merge->gaps[rank];
    const size_t count = (size_t)merge->base[SYMM_PROGRAM_MAX_STREAMS];
    int at[SYMM_PROGRAM_MAX_STREAMS];
    int *next;

    gaps->first = symm__pool_alloc(&merge->pool, count + 2, sizeof(*gaps->first));
    gaps->locals = symm__pool_alloc(&merge->pool, (size_t)record->body.count + 1,
                                    sizeof(*gaps->locals));
    next = symm__pool_alloc(&merge->pool, count + 2, sizeof(*next));
    if (merge->pool.failed)
        return symm__merge_nomem();
    for (int pass = 0; pass < 2; pass++) { /* counts, then fills */
        memcpy(at, merge->base, sizeof(at));
        for (int i = 0; i < record->body.count; i++) {
            const struct merge_event *event = &record->body.list[i];

            if (!event->kept)
                continue;
            if (!symm__merge_is_local(event))
                at[event->stream]++;
            else if (pass == 0)
                gaps->first[at[event->stream] + 1]++;
            else
                gaps->locals[next[at[event->stream]]++] = i;
        }
        for (size_t g = 0; pass == 0 && g <= count; g++)
            gaps->first[g + 1] += gaps->first[g];
        memcpy(next, gaps->first, (count + 2) * sizeof(*next));
    }
    return SYMM_OK;
}

static bool same_access(const struct merge_event *a, const struct merge_event *b)
{
    return a->kind == b->kind && a->in == b->in && a->out == b->out &&
           a->in_at == b->in_at && a->out_at == b->out_at && a->count == b->count;
}

static bool same_gap(const struct merge *merge, int rank, int gap)
{
    const struct merge_gaps *a = &merge->gaps[0], *b = &merge->gaps[rank];
    const int count = a->first[gap + 1] - a->first[gap];

    if (b->first[gap + 1] - b->first[gap] != count)
        return false;
    for (int i = 0; i < count; i++)
        if (!same_access(&merge->records[0].body.list[a->locals[a->first[gap] + i]],
                         &merge->records[rank].body.list[b->locals[b->first[gap] + i]]))
            return false;
    return true;
}

/* In a gap with equal accesses on all ranks, as many must precede a depend on each rank. */
static symm_status compare_depends(const struct merge *merge, const struct steps *a,
                                   const struct steps *b, int rank)
{
    for (int i = 0; i < a->count; i++) {
        const struct step *x = &a->list[i], *y = &b->list[i];

        if (x->event->kind != SYMM_RECORD_DEPEND || x->on_locals == y->on_locals ||
            !merge->uniform[merge->base[x->event->on] + x->on_steps])
            continue;
        return symm__fail(SYMM_ERR_INVALID,
                          "the ranks contradict each other: a depend of stream %d on "
                          "stream %d has %d accesses to buffers in front of it on rank "
                          "0 and %d on rank %d",
                          x->stream, x->event->on, x->on_locals, y->on_locals, rank);
    }
    return SYMM_OK;
}

static symm_status find_gaps(struct merge *merge, const struct steps *first)
{
    symm_status status = SYMM_OK;
    int count, at = 0;

    for (int s = 0; s < SYMM_PROGRAM_MAX_STREAMS; s++) {
        int steps = 0;

        while (at + steps < first->count && first->list[at + steps].stream == s)
            steps++;
        at += steps;
        merge->base[s + 1] = merge->base[s] + steps + 1;
    }
    count = merge->base[SYMM_PROGRAM_MAX_STREAMS];
    merge->gaps =
        symm__pool_alloc(&merge->pool, (size_t)merge->world, sizeof(*merge->gaps));
    merge->uniform =
        symm__pool_alloc(&merge->pool, (size_t)count + 1, sizeof(*merge->uniform));
    if (!merge->gaps || !merge->uniform)
        return symm__merge_nomem();
    for (int r = 0; r < merge->world && status == SYMM_OK; r++)
        status = make_gaps(merge, r);
    for (int g = 0; g < count && status == SYMM_OK; g++) {
        merge->uniform[g] = true;
        for (int r = 1; r < merge->world; r++)
            merge->uniform[g] = merge->uniform[g] && same_gap(merge, r, g);
    }
    return status;
}

symm_status symm__merge_order(struct merge *merge)
{
    struct steps *steps =
        symm__pool_alloc(&merge->pool, (size_t)merge->world, sizeof(*steps));
    symm_status status = steps ? SYMM_OK : symm__merge_nomem();

    for (int r = 0; r < merge->world && status == SYMM_OK; r++) {
        status = list_steps(&merge->pool, &merge->records[r], &steps[r]);
        if (status == SYMM_OK && r > 0)
            status = compare_orders(merge, &steps[0], &steps[r], r);
    }
    if (status == SYMM_OK)
        status = find_gaps(merge, &steps[0]);
    for (int r = 1; r < merge->world && status == SYMM_OK; r++)
        status = compare_depends(merge, &steps[0], &steps[r], r);
    return status;
}
