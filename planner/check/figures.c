/* SPDX-License-Identifier: MIT */
/*
 * figures.c - computes a plan's figures anew: its arena, the bytes of one allocation for each
 * buffer, and the lower bound. The bound is the sum of the antichain, a set of buffers that
 * pairwise conflict.
 */
#include "check/check.h"

static bool add_rounded(size_t *sum, size_t bytes)
{
    const size_t unit = SYMM_PLAN_ALIGNMENT;

    return !__builtin_add_overflow(bytes, unit - 1, &bytes) &&
           !__builtin_add_overflow(*sum, bytes / unit * unit, sum);
}

static bool check_figure(struct check *c, const char *name, size_t found, size_t right)
{
    return found == right ||
           symm__check_refuse(c, "%s is %zu in the plan, allowed: %zu", name, found,
                              right);
}

static bool check_arena(struct check *c)
{
    const symm_plan *plan = c->plan;
    size_t peak = 0, arena = 0, dedicated = 0;

    for (int b = 0; b < plan->buffer_count; b++) {
        const size_t end = plan->buffers[b].offset + plan->buffers[b].bytes;
        if (plan->buffers[b].bytes > 0 && end > peak)
            peak = end;
        if (!add_rounded(&dedicated, plan->buffers[b].bytes))
            return symm__check_refuse(c,
                                      "the sizes of all buffers are too large to add");
    }
    return add_rounded(&arena, peak) &&
           check_figure(c, "arena_bytes", plan->arena_bytes, arena) &&
           check_figure(c, "dedicated_bytes", plan->dedicated_bytes, dedicated);
}

/* Whether the two cannot share bytes, in either order. */
static bool conflicts(const struct check *c, int a, int b)
{
    const struct check_life *lives = c->lives;
    const int loop = c->program->loop;

    for (int turned = 0; turned < 2; turned++) {
        const int x = turned ? b : a, y = turned ? a : b;
        const struct check_access *begin = lives[y].begin;
        if (!symm__check_before(c, x, y, 0) ||
            (loop && !symm__check_before(c, y, x, 1)))
            continue;
        /* The op that begins y may not read x; nor that of x, a period later, y. */
        if (begin && c->ops[begin->op].planned && c->ops[begin->op].op->in == x)
            continue;
        begin = lives[x].begin;
        if (loop && begin && c->ops[begin->op].planned && c->ops[begin->op].op->in == y)
            continue;
        return false;
    }
    return true;
}

static bool check_bound(struct check *c)
{
    const symm_plan *plan = c->plan;
    size_t sum = 0;

    for (int i = 0; i < plan->antichain_count; i++) {
        const int b = plan->antichain[i];
        if (b < 0 || b >= plan->buffer_count || (i > 0 && b <= plan->antichain[i - 1]))
            return symm__check_refuse(
                c, "antichain[%d] is %d, allowed: indices of buffers that ascend", i,
                b);
        if (!add_rounded(&sum, plan->buffers[b].bytes))
            return symm__check_refuse(c,
                                      "the sizes of all buffers are too large to add");
        for (int k = 0; k < i && !c->lives[b].always; k++)
            if (!conflicts(c, plan->antichain[k], b))
                return symm__check_refuse(
                    c, "antichain lists %s and %s, which could share bytes",
                    c->program->buffers[plan->antichain[k]].name,
                    c->program->buffers[b].name);
    }
    if (!check_figure(c, "lower_bound_bytes", plan->lower_bound_bytes, sum))
        return false;
    return plan->lower_bound_proved == (sum == plan->arena_bytes) ||
           symm__check_refuse(c,
                              "lower_bound_proved is %s, and the bound %s arena_bytes",
                              plan->lower_bound_proved ? "true" : "false",
                              sum == plan->arena_bytes ? "equals" : "does not equal");
}

bool symm__check_figures(struct check *c)
{
    return check_arena(c) && check_bound(c);
}
