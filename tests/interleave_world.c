/* SPDX-License-Identifier: MIT */
/*
 * interleave_world.c - see interleave_world.h.
 */
#include "interleave_world.h"

#include <stdlib.h>
#include <string.h>

const int *world_list_of(const struct world *w, const symm_program_op *op, int rank,
                         int *place)
{
    const symm_program_partition *partition = &w->program->partitions[op->partition];
    int k = 0;

    while (partition->ranks[k] != rank)
        k++;
    *place = k % partition->length;
    return partition->ranks + (k - *place);
}

unsigned world_owners_of(const struct world *w, const symm_program_op *op,
                         enum touchers who, int rank)
{
    const int length = w->program->partitions[op->partition].length;
    int place;
    const int *list = world_list_of(w, op, rank, &place);
    unsigned all = 0;

    for (int k = 0; k < length; k++)
        all |= 1U << list[k];
    switch (who) {
    case OWN:
        return 1U << rank;
    case ROOTS:
        return place == op->root ? 1U << rank : 0;
    case FROM_ROOT:
        return 1U << list[op->root];
    case BY_ROOT:
        return place == op->root ? all : 0;
    case TO_NEXT:
        return 1U << list[(place + op->shift) % length];
    default:
        return all;
    }
}

int world_piece_at(const struct world *w, size_t offset)
{
    int k = 0;

    while (k < w->pieces && w->cuts[k] < offset)
        k++;
    return k;
}

static bool add_touch(struct world *w, struct action *a, int buffer, size_t bytes,
                      bool write, enum touchers who)
{
    const size_t offset = w->plan->buffers[buffer].offset;
    struct touch *t = &a->touches[a->touch_count];

    if (a->touch_count == MAX_TOUCHES)
        return false;
    a->touch_count++;
    t->buffer = buffer;
    t->first = world_piece_at(w, offset);
    t->last = world_piece_at(w, offset + bytes);
    t->write = write;
    for (int r = 0; r < w->ranks; r++)
        t->owners[r] = world_owners_of(w, a->op, who, r);
    return true;
}

static bool add_sum(struct world *w, struct action *a)
{
    const symm_program_op *op = a->op;
    const symm_program_kind kind = op->kind;
    const bool broadcast = kind == SYMM_PROGRAM_BROADCAST;
    const unsigned all = (1U << w->program->partitions[op->partition].length) - 1;
    enum touchers in = OWN, out = OWN;

    a->in_place = true;
    switch (a->planned->algorithm) {
    case SYMM_ALGORITHM_ONE_SHOT_PULL:
    case SYMM_ALGORITHM_MULTIMEM_ONE_SHOT:
        in = ALL;
        a->in_place = false;
        break;
    case SYMM_ALGORITHM_TWO_SHOT_PULL:
        in = ALL;
        a->inside = true;
        break;
    case SYMM_ALGORITHM_TWO_SHOT_INPLACE:
    case SYMM_ALGORITHM_MULTIMEM_TWO_SHOT:
        in = out = ALL;
        a->in_place = broadcast || kind == SYMM_PROGRAM_ALL_REDUCE ||
                      kind == SYMM_PROGRAM_ALL_REDUCE_NORM;
        break;
    case SYMM_ALGORITHM_COPY_ENGINE:
        out = broadcast ? BY_ROOT : ALL;
        a->in_place = broadcast;
        break;
    default: /* through scratch, or by an engine */
        a->pushers = broadcast ? 1U << op->root : all;
        break;
    }
    if (broadcast)
        in = in == ALL ? FROM_ROOT : ROOTS;
    return add_touch(w, a, op->in, op->count * symm_dtype_size(op->dtype), false, in) &&
           (op->out < 0 || add_touch(w, a, op->out, op->result, true, out));
}

static bool add_own(struct world *w, struct action *a, symm_program_array array,
                    size_t bytes, bool write)
{
    if (!array.given || array.buffer < 0)
        return true;
    if (!add_touch(w, a, array.buffer, bytes, write, OWN))
        return false;
    a->touches[a->touch_count - 1].span = write ? IN_REST : THROUGHOUT;
    return true;
}

static size_t scale_bytes(const symm_program_norm *n, size_t rows)
{
    const size_t groups = (n->hidden + SYMM_NORM_GROUP - 1) / SYMM_NORM_GROUP;

    return sizeof(float) * (n->quant == SYMM_NORM_QUANT_TENSOR ? 1
                            : n->quant == SYMM_NORM_QUANT_ROW  ? rows
                                                               : rows * groups);
}

static bool add_norm(struct world *w, struct action *a)
{
    const symm_program_op *op = a->op;
    const symm_program_norm *n = &w->program->norms[op->norm];
    const size_t row = n->hidden * symm_dtype_size(op->dtype);
    const size_t scale = scale_bytes(n, op->count / n->hidden);

    if (!add_sum(w, a) || !add_touch(w, a, op->in, op->result, false, OWN))
        return false;
    a->touches[a->touch_count - 1].span = AMONG_ITSELF;
    return add_own(w, a, n->bias, row, false) &&
           add_own(w, a, n->residual_in, op->result, false) &&
           add_own(w, a, n->weight, row, false) &&
           add_own(w, a, n->sum_out, op->result, true) &&
           add_own(w, a, n->residual_out, op->result, true) &&
           add_own(w, a, n->norm_out, op->result, true) &&
           add_own(w, a, n->quant_out, op->count, true) &&
           add_own(w, a, n->scale, scale, n->quant != SYMM_NORM_QUANT_TENSOR);
}

static bool add_action(struct world *w, struct action *a)
{
    const symm_program_op *op = a->op;
    bool fits = true;

    if (op->kind == SYMM_PROGRAM_PUT)
        return add_touch(w, a, op->in, op->count, false, OWN) &&
               add_touch(w, a, op->out, op->result, true, TO_NEXT);
    if (op->kind == SYMM_PROGRAM_ALL_REDUCE_NORM)
        return add_norm(w, a);
    if (a->planned)
        return add_sum(w, a);
    for (int k = 0; fits && k < op->buffer_count; k++)
        fits =
            add_touch(w, a, op->buffers[k], w->program->buffers[op->buffers[k]].bytes,
                      op->kind == SYMM_PROGRAM_WRITE, OWN);
    return fits;
}

static bool add_cut(struct world *w, size_t offset)
{
    const int k = world_piece_at(w, offset);

    if (k < w->pieces && w->cuts[k] == offset)
        return true;
    if (w->pieces > MAX_PIECES)
        return false;
    memmove(&w->cuts[k + 1], &w->cuts[k], (size_t)(w->pieces - k) * sizeof(*w->cuts));
    w->cuts[k] = offset;
    w->pieces++;
    return true;
}

/* At the end of each array of an all_reduce_norm. */
static bool cut_norm(struct world *w, const symm_program_op *op)
{
    const symm_program_norm *n = &w->program->norms[op->norm];
    const size_t row = n->hidden * symm_dtype_size(op->dtype);
    const struct {
        symm_program_array array;
        size_t bytes;
    } ends[] = {{n->bias, row},
                {n->weight, row},
                {n->residual_in, op->result},
                {n->sum_out, op->result},
                {n->residual_out, op->result},
                {n->norm_out, op->result},
                {n->quant_out, op->count},
                {n->scale, scale_bytes(n, op->count / n->hidden)}};
    bool fits = true;

    for (size_t i = 0; fits && i < sizeof(ends) / sizeof(*ends); i++)
        if (ends[i].array.given && ends[i].array.buffer >= 0)
            fits = add_cut(w, w->plan->buffers[ends[i].array.buffer].offset +
                                  ends[i].bytes);
    return fits;
}

/* Wherever some access begins or ends; pieces lie between neighbours. */
static bool cut_arena(struct world *w)
{
    bool fits = true;

    for (int i = 0; fits && i < w->program->buffer_count; i++)
        fits = add_cut(w, w->plan->buffers[i].offset) &&
               add_cut(w, w->plan->buffers[i].offset + w->program->buffers[i].bytes);
    for (int i = 0; fits && i < w->program->op_count; i++) {
        const symm_program_op *op = &w->program->ops[i];
        if (op->in >= 0)
            fits = add_cut(w, w->plan->buffers[op->in].offset +
                                  op->count * (op->kind == SYMM_PROGRAM_PUT
                                                   ? 1
                                                   : symm_dtype_size(op->dtype)));
        if (fits && op->out >= 0)
            fits = add_cut(w, w->plan->buffers[op->out].offset + op->result);
        if (fits && op->kind == SYMM_PROGRAM_ALL_REDUCE_NORM)
            fits = cut_norm(w, op);
    }
    return fits;
}

static bool add_actions(struct world *w)
{
    int planned = 0;

    w->actions = calloc((size_t)w->program->op_count + 1, sizeof(*w->actions));
    if (!w->actions)
        abort();
    for (int i = 0; i < w->program->op_count; i++) {
        struct action *a = &w->actions[i];
        a->op = &w->program->ops[i];
        if (a->op->site && a->op->kind != SYMM_PROGRAM_WAIT)
            a->planned = &w->plan->ops[planned++];
        if (!add_action(w, a))
            return false;
    }
    return true;
}

/* How many items of each stream every item must find done, because of depends. What a
 * depend waits for it passes on to depends after it on its own stream. */
void world_add_needs(struct world *w, int periods)
{
    int needs[INTERLEAVE_MAX_STREAMS][INTERLEAVE_MAX_STREAMS] = {{0}};
    int seen[INTERLEAVE_MAX_STREAMS] = {0};
    const int n = w->program->op_count;

    for (int i = 0; i < periods * n; i++) {
        const symm_program_op *op = &w->program->ops[i % n];
        int *mine = needs[op->stream];
        if (op->kind != SYMM_PROGRAM_DEPEND) {
            memcpy(w->list[i].needs, mine, sizeof(w->list[i].needs));
            w->list[i].action = i % n;
            w->list[i].period = i / n;
            w->list[i].place = seen[op->stream];
            w->of_stream[op->stream][seen[op->stream]++] = i;
            continue;
        }
        for (int s = 0; s < w->streams; s++)
            if (needs[op->on][s] > mine[s])
                mine[s] = needs[op->on][s];
        if (seen[op->on] > mine[op->on])
            mine[op->on] = seen[op->on];
    }
    memcpy(w->stream_items, seen, sizeof(seen));
    w->items = periods * n;
}

bool world_make(struct world *w)
{
    return cut_arena(w) && add_actions(w);
}
