/* SPDX-License-Identifier: MIT */
/*
 * frees.c - proves that an op which frees buffers may overwrite their bytes on each rank
 * when it ends there: a put before it raises its signal, a collective after all earlier ops
 * of its stream.
 *
 * A buffer is freed by one op. In one of the two periods that are played, that op ends
 * after the life that begins in the first period, and before the first writes of all
 * neighbours that follow that life in some byte. Refuses buffers without a life that ends:
 * those that are live always, and those that hold a value before the program runs.
 */
#include "check/check.h"

bool symm__check_frees_listed(struct check *c)
{
    for (int i = 0; i < c->op_count; i++) {
        struct check_op *op = &c->ops[i];
        const int count = op->planned ? op->planned->free_count : 0;

        for (int k = 0; k < count; k++) {
            const int b = op->planned->frees[k];
            const bool there = b >= 0 && b < c->plan->buffer_count;

            if (!there || (k > 0 && b <= op->planned->frees[k - 1]))
                return symm__check_refuse_op(
                    c, op, ": frees[%d] is %d, allowed: indices of buffers that ascend",
                    k, b);
            if (!c->lives[b].begin)
                return symm__check_refuse_op(
                    c, op, " frees buffer %s, whose value is needed all the time",
                    c->program->buffers[b].name);
            if (c->lives[b].freed_by)
                return symm__check_refuse_op(
                    c, op, " frees buffer %s, and so does op %d",
                    c->program->buffers[b].name, c->lives[b].freed_by->listed);
            c->lives[b].freed_by = op;
        }
    }
    return true;
}

/* Whether by the owner's clock the life that begins in period 0 is over there. */
static bool is_over(const struct check *c, const struct check_life *life, int owner,
                    const uint32_t *clock)
{
    for (int i = 0; i < life->last_count; i++) {
        const struct check_chain *chain = &c->chains[life->last[i].chain];
        const struct check_ranks from = symm__check_related(
            c, chain->who, chain->partition, chain->parameter, owner);

        for (int k = 0; k < from.count; k++)
            if (clock[from.ranks[k] * c->lanes + chain->lane] < life->last[i].at)
                return false;
    }
    return true;
}

void symm__check_frees_ended(struct check *c, int position, int period,
                             const uint32_t *clocks)
{
    const struct check_op *op = &c->ops[position];
    const size_t row = (size_t)c->program->world * (size_t)c->lanes;
    const int count = op->planned ? op->planned->free_count : 0;

    for (int k = 0; k < count; k++) {
        struct check_life *life = &c->lives[op->planned->frees[k]];
        bool over = true;

        for (int owner = 0; over && owner < c->program->world; owner++)
            over = is_over(c, life, owner, clocks + (size_t)owner * row);
        life->freed[period] = over;
    }
}

void symm__check_frees_before(struct check *c, int before, int after, bool next)
{
    struct check_life *life = &c->lives[before];
    const uint32_t *known =
        c->begins + ((size_t)after * 2 + (size_t)next) * (size_t)c->chain_count;

    for (int period = 0; period < 2 && life->freed_by; period++) {
        const int position = (int)(life->freed_by - c->ops);
        if (known[life->freed_by->own[period]] <
            symm__check_moment(c, position, period, CHECK_END))
            life->freed[period] = false;
    }
}

bool symm__check_frees(struct check *c)
{
    for (int b = 0; b < c->plan->buffer_count; b++) {
        const struct check_life *life = &c->lives[b];

        if (life->freed_by && !life->freed[0] && !life->freed[1])
            return symm__check_refuse_op(
                c, life->freed_by,
                " frees buffer %s, but on some rank it may end before the last access "
                "to that buffer, or after the next write to its bytes",
                c->program->buffers[b].name);
    }
    return true;
}
