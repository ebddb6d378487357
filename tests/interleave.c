/* SPDX-License-Identifier: MIT */
/*
 * interleave.c - explicit-state search through all interleavings of a program under a plan.
 *
 * A state holds, for each stream of each rank, the number of ops done and the phases of the
 * next two (two, because of early_start), and for each piece of each rank's arena its last
 * write. All states are in one array, which is also the queue of a breadth-first search. No
 * step disables another, so a step that touches no memory may be taken at once (a persistent
 * set of one) without losing a verdict. When a put is done on a rank, or a collective and
 * all earlier ops of its stream, the buffers that the plan frees there are filled with a
 * value that no op writes.
 */
#include "interleave_world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Layout of a state: [rank][stream]{done, phase, phase}, [rank][piece]{item + 1, parts}. */
static unsigned char *lane_of(const struct world *w, unsigned char *state, int rank,
                              int stream)
{
    return state + 3 * (rank * w->streams + stream);
}

static unsigned char *piece_of(const struct world *w, unsigned char *state, int rank,
                               int piece)
{
    return state + 3 * w->ranks * w->streams + 2 * (rank * w->pieces + piece);
}

static enum phase phase_of(const struct world *w, unsigned char *state, int rank,
                           int item)
{
    const struct item *it = &w->list[item];
    const unsigned char *lane =
        lane_of(w, state, rank, w->actions[it->action].op->stream);
    const int ahead = it->place - lane[0];

    return ahead < 0 ? DONE : ahead > 1 ? IDLE : (enum phase)lane[1 + ahead];
}

__attribute__((format(printf, 2, 3))) static enum interleave_verdict
unsafe(const struct world *w, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(w->search->why, sizeof(w->search->why), format, args);
    va_end(args);
    return INTERLEAVE_UNSAFE;
}

/* ---- Groups ---------------------------------------------------------------------- */

/* Whether all members (of the places in `places`) are at the phase or beyond. */
static bool all_at(const struct world *w, unsigned char *state, int item, int rank,
                   unsigned places, enum phase phase)
{
    const symm_program_op *op = w->actions[w->list[item].action].op;
    int place;
    const int *list = world_list_of(w, op, rank, &place);

    for (int k = 0; k < w->program->partitions[op->partition].length; k++)
        if (places >> k & 1 && phase_of(w, state, list[k], item) < phase)
            return false;
    return true;
}

/* ---- Items ----------------------------------------------------------------------- */

/* What each read should find: the last write before it through the same buffer, as if
 * buffers lay apart and the ops ran one by one in the order of issue. */
static enum interleave_verdict expect(struct world *w)
{
    const int n = w->program->op_count;
    const size_t row = (size_t)w->pieces;
    unsigned char *last = calloc((size_t)w->program->buffer_count * row + 1, 1);
    int input[MAX_PIECES + 1];
    enum interleave_verdict verdict = INTERLEAVE_SAFE;

    if (!last)
        abort();
    memset(input, -1, sizeof(input));
    for (int i = 0; i < w->items; i++) {
        const int index = i - i % n + w->program->order[i % n];
        struct item *it = &w->list[index];
        const struct action *a = &w->actions[w->program->order[i % n]];
        it->expected = calloc(MAX_TOUCHES * row + 1, 1);
        if (!it->expected)
            abort();
        for (int pass = 0; pass < 2; pass++) /* reads first */
            for (int k = 0; k < a->touch_count; k++) {
                const struct touch *t = &a->touches[k];
                unsigned char *held = last + (size_t)t->buffer * row;
                for (int p = t->first; t->write == (pass == 1) && p < t->last; p++) {
                    if (t->write) {
                        held[p] = (unsigned char)(index + 1);
                        continue;
                    }
                    it->expected[(size_t)k * row + (size_t)p] = held[p];
                    if (held[p] == 0 && input[p] >= 0 && input[p] != t->buffer)
                        verdict = unsafe(w, "two buffers with input share bytes");
                    if (held[p] == 0)
                        input[p] = t->buffer;
                }
            }
    }
    free(last);
    return verdict;
}

/* ---- Memory ---------------------------------------------------------------------- */

/* The phase in which a touch begins. Of an op with a barrier inside, reads come before it and
 * writes after it. */
static enum phase begin_of(const struct action *a, const struct touch *t)
{
    if (t->span == IN_REST)
        return RESTING;
    return a->inside && t->write ? SECOND_HALF : BODY;
}

static bool in_flight(const struct action *a, const struct touch *t, enum phase phase)
{
    if (t->span == THROUGHOUT || t->span == AMONG_ITSELF)
        return phase >= BODY && phase < DONE;
    return phase == begin_of(a, t);
}

static bool clash(const struct action *a, const struct touch *t, int rank,
                  const struct touch *u, int other, bool same_item)
{
    if (!same_item && (t->span == AMONG_ITSELF || u->span == AMONG_ITSELF))
        return false;
    if (!(t->write || u->write) || !(t->owners[rank] & u->owners[other]) ||
        t->first >= u->last || u->first >= t->last)
        return false;
    if (!same_item)
        return true;
    if (t->buffer != u->buffer)
        return true;
    return rank != other && t != u &&
           (!a->in_place || t->span == IN_REST || u->span == IN_REST);
}

static enum interleave_verdict check_flights(const struct world *w,
                                             unsigned char *state, int rank, int item,
                                             enum phase phase)
{
    const struct action *a = &w->actions[w->list[item].action];

    for (int r = 0; r < w->ranks; r++)
        for (int s = 0; s < w->streams; s++)
            for (int slot = 0; slot < 2; slot++) {
                const unsigned char *lane = lane_of(w, state, r, s);
                if (lane[0] + slot >= w->stream_items[s])
                    continue;
                const int other = w->of_stream[s][lane[0] + slot];
                const struct action *b = &w->actions[w->list[other].action];
                for (int k = 0; k < a->touch_count; k++)
                    for (int m = 0; m < b->touch_count; m++)
                        if (begin_of(a, &a->touches[k]) == phase &&
                            ((r == rank && other == item && m != k) ||
                             in_flight(b, &b->touches[m], lane[1 + slot])) &&
                            clash(a, &a->touches[k], rank, &b->touches[m], r,
                                  other == item))
                            return unsafe(w, "op %d on rank %d meets op %d on rank %d",
                                          w->list[item].action, rank,
                                          w->list[other].action, r);
            }
    return INTERLEAVE_SAFE;
}

/* All ranks that write a part of what the item leaves in the piece of the owner. */
static unsigned parts_of(const struct world *w, int item, int owner, int piece)
{
    const struct action *a = &w->actions[w->list[item].action];
    unsigned parts = 0;

    for (int k = 0; k < a->touch_count; k++)
        for (int r = 0; r < w->ranks; r++)
            if (a->touches[k].write && a->touches[k].owners[r] >> owner & 1 &&
                a->touches[k].first <= piece && piece < a->touches[k].last)
                parts |= 1U << r;
    return parts;
}

static bool finds(const struct world *w, unsigned char *state, int item, int touch,
                  int owner, int piece)
{
    const struct action *a = &w->actions[w->list[item].action];
    const unsigned char *held = piece_of(w, state, owner, piece);
    const unsigned wanted =
        w->list[item].expected[(size_t)touch * (size_t)w->pieces + (size_t)piece];

    if (a->in_place && held[0] == item + 1) /* a peer was quicker, with its own part */
        return true;
    return held[0] == wanted &&
           (wanted == 0 || held[1] == parts_of(w, (int)wanted - 1, owner, piece));
}

/* The accesses that begin in this phase. */
static enum interleave_verdict begin_body(const struct world *w, unsigned char *state,
                                          int rank, int item, enum phase phase)
{
    const struct action *a = &w->actions[w->list[item].action];
    enum interleave_verdict verdict = check_flights(w, state, rank, item, phase);

    for (int pass = 0; verdict == INTERLEAVE_SAFE && pass < 2; pass++)
        for (int k = 0; k < a->touch_count; k++) {
            const struct touch *t = &a->touches[k];
            for (int o = 0; o < w->ranks && begin_of(a, t) == phase; o++)
                for (int p = t->first; t->owners[rank] >> o & 1 && p < t->last; p++) {
                    unsigned char *held = piece_of(w, state, o, p);
                    if (!t->write && pass == 0 && !finds(w, state, item, k, o, p))
                        return unsafe(
                            w, "op %d on rank %d reads from rank %d what %s %d wrote",
                            w->list[item].action, rank, o,
                            held[0] == FILLED ? "the free of piece" : "op",
                            held[0] == FILLED ? p
                            : held[0]         ? w->list[held[0] - 1].action
                                              : -1);
                    if (!t->write || pass == 0)
                        continue;
                    if (held[0] != item + 1)
                        held[1] = 0;
                    held[0] = (unsigned char)(item + 1);
                    held[1] |= (unsigned char)(1U << rank);
                }
        }
    return verdict;
}

/* Whether an op in flight on some rank touches this piece of the owner. */
static bool is_touched(const struct world *w, unsigned char *state, int owner,
                       int piece)
{
    for (int r = 0; r < w->ranks; r++)
        for (int s = 0; s < w->streams; s++)
            for (int slot = 0; slot < 2; slot++) {
                const unsigned char *lane = lane_of(w, state, r, s);
                if (lane[0] + slot >= w->stream_items[s])
                    continue;
                const int item = w->of_stream[s][lane[0] + slot];
                const struct action *a = &w->actions[w->list[item].action];
                for (int k = 0; k < a->touch_count; k++)
                    if (in_flight(a, &a->touches[k], lane[1 + slot]) &&
                        a->touches[k].span != AMONG_ITSELF &&
                        a->touches[k].owners[r] >> owner & 1 &&
                        a->touches[k].first <= piece && piece < a->touches[k].last)
                        return true;
            }
    return false;
}

static bool frees(const struct world *w, int item)
{
    const struct action *a = &w->actions[w->list[item].action];

    return a->planned && a->planned->free_count > 0;
}

/* The item is done on the rank, and all before it on its stream unless it is a put. */
static enum interleave_verdict fill_freed(const struct world *w, unsigned char *state,
                                          int rank, int item)
{
    const symm_plan_op *op = w->actions[w->list[item].action].planned;

    for (int k = 0; frees(w, item) && k < op->free_count; k++) {
        const symm_plan_buffer *buffer = &w->plan->buffers[op->frees[k]];
        const int last = world_piece_at(w, buffer->offset + buffer->bytes);

        for (int p = world_piece_at(w, buffer->offset); p < last; p++) {
            unsigned char *held = piece_of(w, state, rank, p);
            if (is_touched(w, state, rank, p))
                return unsafe(w, "op %d frees %s on rank %d while it is touched",
                              w->list[item].action, buffer->name, rank);
            held[0] = FILLED;
            held[1] = 0;
        }
    }
    return INTERLEAVE_SAFE;
}

/* ---- Steps ----------------------------------------------------------------------- */

static bool may_start(const struct world *w, unsigned char *state, int rank, int item,
                      int slot)
{
    const struct item *it = &w->list[item];

    if (slot == 1 && !w->actions[it->action].op->early_start)
        return false;
    for (int s = 0; s < w->streams; s++)
        if (lane_of(w, state, rank, s)[0] < it->needs[s])
            return false;
    return true;
}

static bool signalled(const struct world *w, unsigned char *state, int rank, int item)
{
    const int put = w->actions[w->list[item].action].op->put, n = w->program->op_count;
    int signals = 0;

    for (int sender = 0; sender < w->ranks; sender++) {
        if (!(world_owners_of(w, &w->program->ops[put], TO_NEXT, sender) >> rank & 1))
            continue;
        for (int i = put; i < w->items; i += n)
            signals += phase_of(w, state, sender, i) == DONE;
    }
    return signals > w->list[item].period;
}

/* The phase that follows, or -1 if the op cannot go on now; *touches: it begins or ends
 * to touch memory by that. */
static int next_phase(const struct world *w, unsigned char *state, int rank, int item,
                      int slot, enum phase phase, bool *touches)
{
    const struct action *a = &w->actions[w->list[item].action];
    const int last = a->op->kind == SYMM_PROGRAM_ALL_REDUCE_NORM ? RESTING : DONE;
    const int after =
        a->planned && a->planned->exit_barrier && a->op->kind != SYMM_PROGRAM_PUT
            ? LEAVING
            : last;

    *touches = phase == BODY || phase == INSIDE || phase == SECOND_HALF ||
               phase == RESTING || (phase == LEAVING && last == RESTING);
    switch (phase) {
    case IDLE:
        if (!may_start(w, state, rank, item, slot))
            return -1;
        if (a->op->kind == SYMM_PROGRAM_WAIT)
            return signalled(w, state, rank, item) ? DONE : -1;
        *touches = !a->planned;
        return a->planned ? ARRIVED : BODY;
    case ARRIVED:
        *touches = true;
        return a->planned->entry_barrier && !all_at(w, state, item, rank, ~0U, ARRIVED)
                   ? -1
                   : BODY;
    case BODY:
        if (a->inside)
            return INSIDE;
        return all_at(w, state, item, rank, a->pushers, ARRIVED) ? after : -1;
    case INSIDE:
        return all_at(w, state, item, rank, ~0U, INSIDE) ? SECOND_HALF : -1;
    case SECOND_HALF:
        return after;
    case RESTING:
        return DONE;
    default:
        return all_at(w, state, item, rank, ~0U, LEAVING) ? last : -1;
    }
}

static uint64_t hash_state(const unsigned char *state, size_t bytes)
{
    uint64_t hash = 14695981039346656037ULL;

    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ state[i]) * 1099511628211ULL;
    return hash ^ hash >> 29;
}

static void grow_table(struct world *w)
{
    free(w->table);
    w->table_size = w->table_size ? 4 * w->table_size : 1024;
    w->table = calloc(w->table_size, sizeof(*w->table));
    if (!w->table)
        abort();
    for (uint64_t i = 0; i < w->count; i++) {
        uint64_t k = hash_state(w->states + i * w->state_bytes, w->state_bytes);
        while (w->table[k % w->table_size])
            k++;
        w->table[k % w->table_size] = (uint32_t)(i + 1);
    }
}

/* The state at the end of the queue joins it, unless it is known. */
static void keep_state(struct world *w)
{
    const unsigned char *state = w->states + w->count * w->state_bytes;

    if (2 * w->count >= w->table_size)
        grow_table(w);
    for (uint64_t k = hash_state(state, w->state_bytes);; k++) {
        uint32_t *slot = &w->table[k % w->table_size];
        if (*slot && memcmp(w->states + (*slot - 1) * w->state_bytes, state,
                            w->state_bytes) != 0)
            continue;
        if (!*slot)
            *slot = (uint32_t)++w->count;
        return;
    }
}

/* A copy of state `index` at the end of the queue, not yet in it. */
static unsigned char *copy_state(struct world *w, uint64_t index)
{
    unsigned char *copy;

    if (w->count == w->room) {
        w->room = w->room ? 2 * w->room : 256;
        w->states = realloc(w->states, (w->room + 1) * w->state_bytes);
        if (!w->states)
            abort();
    }
    copy = w->states + w->count * w->state_bytes;
    memcpy(copy, w->states + index * w->state_bytes, w->state_bytes);
    return copy;
}

static bool is_put(const struct world *w, int item)
{
    return w->actions[w->list[item].action].op->kind == SYMM_PROGRAM_PUT;
}

/* Whether buffers are freed when the op in this slot is done, and any done after it. */
static bool will_fill(const struct world *w, unsigned char *state, int rank, int stream,
                      int slot)
{
    const unsigned char *lane = lane_of(w, state, rank, stream);
    const int *items = &w->of_stream[stream][lane[0]];

    if (slot == 1)
        return is_put(w, items[1]) && frees(w, items[1]);
    return frees(w, items[0]) || (lane[2] == DONE && frees(w, items[1]));
}

/* Takes the step of one op; returns false if there is none of the wanted kind. */
static bool take_step(struct world *w, uint64_t index, int rank, int stream, int slot,
                      bool quiet, enum interleave_verdict *verdict)
{
    unsigned char *state = w->states + index * w->state_bytes;
    unsigned char *lane = lane_of(w, state, rank, stream);
    bool touches;

    if (lane[0] + slot >= w->stream_items[stream] || lane[1 + slot] == DONE)
        return false;
    const int item = w->of_stream[stream][lane[0] + slot];
    const int phase =
        next_phase(w, state, rank, item, slot, (enum phase)lane[1 + slot], &touches);
    touches = touches || (phase == DONE && will_fill(w, state, rank, stream, slot));
    if (phase < 0 || (quiet && touches))
        return false;
    state = copy_state(w, index);
    lane = lane_of(w, state, rank, stream);
    if (phase == BODY || phase == SECOND_HALF || phase == RESTING)
        *verdict = begin_body(w, state, rank, item, (enum phase)phase);
    lane[1 + slot] = (unsigned char)phase;
    if (phase == DONE && is_put(w, item))
        *verdict = fill_freed(w, state, rank, item);
    while (lane[1] == DONE) {
        const int first = w->of_stream[stream][lane[0]];
        if (*verdict == INTERLEAVE_SAFE && !is_put(w, first))
            *verdict = fill_freed(w, state, rank, first);
        lane[0]++;
        lane[1] = lane[2];
        lane[2] = IDLE;
    }
    if (*verdict == INTERLEAVE_SAFE)
        keep_state(w);
    return true;
}

static enum interleave_verdict expand(struct world *w, uint64_t index)
{
    enum interleave_verdict verdict = INTERLEAVE_SAFE;
    bool moved = false, done = true;

    for (int quiet = !w->search->plain; quiet >= 0; quiet--)
        for (int r = 0; r < w->ranks; r++)
            for (int s = 0; s < w->streams; s++)
                for (int slot = 0; slot < 2; slot++) {
                    if (!take_step(w, index, r, s, slot, quiet, &verdict))
                        continue;
                    if (verdict != INTERLEAVE_SAFE || quiet)
                        return verdict;
                    moved = true;
                }
    for (int r = 0; r < w->ranks; r++)
        for (int s = 0; s < w->streams; s++)
            done = done && lane_of(w, w->states + index * w->state_bytes, r, s)[0] ==
                               w->stream_items[s];
    return moved || done ? INTERLEAVE_SAFE : unsafe(w, "stuck");
}

enum interleave_verdict interleave_search(const symm_program *program,
                                          const symm_plan *plan,
                                          struct interleave *search)
{
    struct world w = {.program = program,
                      .plan = plan,
                      .search = search,
                      .ranks = program->world,
                      .streams = program->stream_count};
    const int periods = program->loop ? search->periods : 1;
    enum interleave_verdict verdict = INTERLEAVE_TOO_LARGE;

    search->states = 0;
    search->why[0] = '\0';
    if (w.ranks > INTERLEAVE_MAX_RANKS || w.streams > INTERLEAVE_MAX_STREAMS ||
        periods * program->op_count > MAX_ITEMS || !world_make(&w))
        goto done;
    world_add_needs(&w, periods);
    w.state_bytes = (size_t)(w.ranks * (3 * w.streams + 2 * w.pieces));
    verdict = expect(&w);
    w.room = 256;
    w.states = calloc(w.room + 1, w.state_bytes + 1);
    if (!w.states)
        abort();
    keep_state(&w);
    for (uint64_t i = 0; verdict == INTERLEAVE_SAFE && i < w.count; i++)
        verdict = w.count > search->max_states ? INTERLEAVE_TOO_LARGE : expand(&w, i);
    search->states = w.count;
done:
    for (int i = 0; i < w.items; i++)
        free(w.list[i].expected);
    free(w.states);
    free(w.table);
    free(w.actions);
    return verdict;
}
