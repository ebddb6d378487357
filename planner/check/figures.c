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

/* latest[chain]: the last moment that is over where a buffer of the antichain begins. */
static void find_latest(const struct check *c, uint32_t *latest)
{
    const size_t chains = (size_t)c->chain_count;

    for (int i = 0; i < c->plan->antichain_count; i++) {
        const uint32_t *known = c->begins + (size_t)c->plan->antichain[i] * 2 * chains;
        for (size_t k = 0; k < chains; k++)
            latest[k] = known[k] > latest[k] ? known[k] : latest[k];
    }
}

/* Whether it may be over before some buffer of the antichain: else it conflicts with all. */
static bool may_precede(const struct check *c, int buffer, const uint32_t *latest)
{
    const struct check_life *life = &c->lives[buffer];

    for (int i = 0; i < life->last_count; i++)
        if (latest[life->last[i].chain] < life->last[i].at)
            return false;
    return !life->always;
}

/* Two that could share bytes: one of them is over before the other, so that one is looked for. */
static bool check_antichain(struct check *c)
{
    const symm_plan *plan = c->plan;
    uint32_t *latest =
        symm__pool_alloc(&c->pool, (size_t)c->chain_count + 1, sizeof(*latest));

    if (!latest)
        return symm__check_nomem(c);
    find_latest(c, latest);
    for (int i = 0; i < plan->antichain_count; i++) {
        const int a = plan->antichain[i];
        if (!may_precede(c, a, latest))
            continue;
        for (int k = 0; k < plan->antichain_count; k++) {
            const int b = plan->antichain[k];
            if (k != i && !conflicts(c, a, b))
                return symm__check_refuse(
                    c, "antichain lists %s and %s, which could share bytes",
                    c->program->buffers[a < b ? a : b].name,
                    c->program->buffers[a < b ? b : a].name);
        }
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
    }
    if (!check_antichain(c))
        return false;
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
