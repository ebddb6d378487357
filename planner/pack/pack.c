/* SPDX-License-Identifier: MIT */
/*
 * pack.c - symm_pack: checks, the quick placement, then the exact search.
 *
 * Deterministic: work is counted in list entries, so the answer depends on the items and
 * the options only, unless time_limit or progress ends the search.
 */
#include <inttypes.h>
#include <math.h>

#include "pack/eject.h"
#include "pack/exact.h"
#include "pack/greedy.h"
#include "pack/tile.h"
#include "util/abi.h"
#include "util/clock.h"
#include "util/status.h"

/*
 * The quick placement of up to FAST_ITEMS is some greedy ones and short searches, of
 * milliseconds each; of more items, greedy ones for seconds at most.
 */
#define FAST_ITEMS  2000
#define FAST_PAIRS  UINT64_C(30000)
#define FAST_WORK   UINT64_C(800000)
#define FAST_EJECT  UINT64_C(1000000)
#define FAST_TILE   UINT64_C(1000000)
#define LARGE_PAIRS UINT64_C(30000000)

/* The searches of the other modes take turns; each turn is twice as long. */
#define FIRST_TURN UINT64_C(10000000)
/* Ends the search where neither an exact search nor a time limit does. */
#define LAST_WORK UINT64_C(30000000000)

static symm_status check(const symm_pack_item *items, int count,
                         const symm_pack_options *options, const int64_t *offsets,
                         const symm_pack_result *result)
{
    if (count < 0 || count > SYMM_PACK_MAX || (count > 0 && (!items || !offsets)) ||
        !result)
        return symm__fail(
            SYMM_ERR_INVALID,
            "symm_pack: %d items; allowed are 0 to %d, with lists of them "
            "and of offsets, and a result",
            count, SYMM_PACK_MAX);
    if (options->capacity < 0 || !(options->time_limit >= 0))
        return symm__fail(SYMM_ERR_INVALID,
                          "symm_pack_options: capacity %lld and time_limit %g; both "
                          "are 0 or more",
                          (long long)options->capacity, options->time_limit);
    return symm__struct_check("symm_pack_result", result->size, sizeof(*result));
}

/* Whether any placement within the capacity is wanted, found by all searches. */
static bool must_fit(const symm_pack_options *options)
{
    return !options->greedy && options->capacity > 0;
}

struct searches {
    struct place_state *state;
    struct place_eject *eject;
    struct place_tile *tile; /* NULL: not for this model */
    struct place_net net;
    bool exact;              /* net is made, and exact searches are possible */
    struct place_team *team; /* for `capacity` */
    int64_t capacity;
};

/* Resumes the exact search for a placement within `capacity`. */
static symm_status run_team(struct searches *s, int64_t capacity, uint64_t budget)
{
    symm_status status = SYMM_OK;

    if (capacity >= s->state->peak)
        return SYMM_OK;
    if (s->team && s->capacity != capacity) {
        symm__pack_team_close(s->team);
        s->team = NULL;
    }
    s->capacity = capacity;
    if (!s->team)
        status =
            symm__pack_team_open(s->state, &s->net, capacity, UINT64_MAX, &s->team);
    return status == SYMM_OK ? symm__pack_team_run(s->team, budget) : status;
}

/* Resumes the search for a placement without a gap. */
static symm_status run_tile(struct searches *s, uint64_t budget)
{
    return s->tile ? symm__pack_tile_run(s->tile, s->state, budget) : SYMM_OK;
}

/*
 * The searches take turns until a placement fits into the capacity, or without one until the
 * peak is the lowest. For a capacity there is no search between bound and peak.
 */
static symm_status take_turns(struct searches *s)
{
    struct place_state *state = s->state;
    const bool limited = state->options->time_limit > 0, fit = must_fit(state->options);
    symm_status status = SYMM_OK;

    for (uint64_t turn = FIRST_TURN;
         status == SYMM_OK && (!fit || state->lower_bound <= state->goal) &&
         symm__pack_wanted(state);
         turn += turn / 2) {
        status = run_tile(s, turn);
        if (status == SYMM_OK && s->exact && symm__pack_wanted(state))
            status = run_team(s, fit ? state->goal : state->lower_bound, turn);
        if (symm__pack_wanted(state))
            symm__pack_eject_lower(s->eject, state,
                                   fit ? state->goal : state->lower_bound,
                                   fit ? turn / 4 : turn);
        if (!fit && status == SYMM_OK && s->exact && symm__pack_wanted(state))
            status = symm__pack_exact_lower(state, &s->net, turn / 4);
        if (!s->exact && !limited && state->work > LAST_WORK)
            break;
    }
    return status;
}

static symm_status search(struct place_state *state)
{
    const struct place_model *m = state->model;
    const symm_pack_options *options = state->options;
    struct searches s = {.state = state, .exact = symm__pack_exact_possible(m)};
    symm_status status = SYMM_OK;

    if (!symm__pack_wanted(state) || (options->greedy && m->count > FAST_ITEMS))
        return SYMM_OK;
    if (s.exact) {
        status = symm__pack_net_make(state->pool, m, &s.net);
        if (status != SYMM_OK)
            return status;
    }
    status = symm__pack_eject_open(state, &s.eject);
    if (status == SYMM_OK && symm__pack_tile_possible(m))
        status = symm__pack_tile_open(state, &s.tile);
    if (status == SYMM_OK)
        status = run_tile(&s, FAST_TILE);
    /* Also for a capacity: the result shows how close a failed search came. */
    if (status == SYMM_OK && s.exact && symm__pack_wanted(state))
        status = symm__pack_exact_lower(state, &s.net, FAST_WORK);
    if (status == SYMM_OK && m->count <= FAST_ITEMS && symm__pack_wanted(state))
        symm__pack_eject_lower(s.eject, state, state->lower_bound, FAST_EJECT);
    if (status == SYMM_OK && !options->greedy)
        status = take_turns(&s);
    symm__pack_team_close(s.team);
    return status;
}

static symm_status hand_over(const struct place_state *state, int count,
                             int64_t *offsets, symm_pack_result *result)
{
    const struct place_model *m = state->model;
    const symm_pack_options *options = state->options;
    symm_pack_result r = {.lower_bound = m->max_load * m->unit,
                          .proved = state->peak <= state->lower_bound,
                          .nodes = state->nodes};

    if (__builtin_mul_overflow(state->peak, m->unit, &r.peak))
        return symm__fail(SYMM_ERR_OVERFLOW,
                          "placement: the peak is %" PRId64 " times %" PRId64
                          " bytes, beyond 2^63",
                          state->peak, m->unit);
    for (int i = 0; i < count; i++)
        offsets[i] = 0;
    for (int i = 0; i < m->count; i++)
        offsets[m->source[i]] = state->offsets[i] * m->unit;
    r.fits = options->capacity == 0 || r.peak <= options->capacity;
    if (must_fit(options))
        r.proved = r.fits || state->lower_bound > options->capacity / m->unit;
    r.seconds = symm__now() - state->start;
    symm__struct_give(result, &r, sizeof(r));
    return SYMM_OK;
}

/* For the searches 0 is no limit. */
static double limit_of(double time_limit)
{
    if (time_limit == 0)
        return SYMM_PLAN_TIME_LIMIT;
    return isinf(time_limit) ? 0 : time_limit;
}

symm_status symm_pack(const symm_pack_item *items, int count,
                      const symm_pack_options *options, int64_t *offsets,
                      symm_pack_result *result)
{
    double start = symm__now();
    symm_pack_options o = {0};
    struct place_model model;
    struct pool pool = {0};
    struct place_state state = {
        .model = &model, .options = &o, .pool = &pool, .start = start, .told = start};
    symm_status status = SYMM_OK;

    if (options)
        status = symm__struct_take("symm_pack_options", options, &o, sizeof(o));
    if (status == SYMM_OK)
        status = check(items, count, &o, offsets, result);
    o.time_limit = limit_of(o.time_limit);
    if (status == SYMM_OK)
        status = symm__pack_model_make(&pool, items, count, &model);
    if (status == SYMM_OK) {
        state.lower_bound = model.max_load;
        state.peak = model.count == 0 ? 0 : INT64_MAX;
        state.goal = must_fit(&o) ? o.capacity / model.unit : model.max_load;
        state.offsets =
            symm__pool_alloc(&pool, (size_t)model.count + 1, sizeof *state.offsets);
        status = state.offsets ? SYMM_OK : symm__pack_nomem(count);
    }
    if (status == SYMM_OK && model.count > 0)
        status = symm__pack_greedy(&state, model.count <= FAST_ITEMS ? FAST_PAIRS
                                                                     : LARGE_PAIRS);
    if (status == SYMM_OK)
        status = search(&state);
    if (status == SYMM_OK)
        status = hand_over(&state, count, offsets, result);
    symm__pool_free(&pool);
    return status;
}
