/* SPDX-License-Identifier: MIT */
/*
 * place_exact.c - many exact searches side by side.
 *
 * How long one order of the items takes is heavy-tailed: milliseconds or hours. So
 * several searches that differ in the order only take turns, each going on where it
 * stopped. A search with another order joins whenever there were half as many turns
 * again. Turns are counted in work, not in time: the result does not depend on the
 * machine.
 */
#include "place_exact.h"

#include <string.h>
#include <time.h>

#include <stdlib.h>

#include "place_order.h"
#include "place_search.h"
#include "status.h"

#define TURN           UINT64_C(100000)
#define DIVE           130
#define SMALL_BUDGET   (20 * TURN) /* less goes to one search alone */
#define FIRST_SEARCHES 4
#define FIRST_JOIN     UINT64_C(200) /* rounds; then 1.5 times as many, and so on */
#define MAX_SEARCHES   40
#define MAX_ENTRIES    (UINT64_C(1) << 26) /* of the net's lists */

static const char *const keys[] = {"TWA", "TSA", "AW", "TZW", "WAT", "TAW", "SZ", "ZW"};

struct team {
    struct place_state *state;
    const struct place_net *net;
    int64_t capacity;
    int *order, *rank;
    struct place_search *searches[MAX_SEARCHES];
    int count;
    uint64_t turn; /* work of one turn */
};

double symm__place_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

bool symm__place_exact_possible(const struct place_model *m)
{
    return m->members <= MAX_ENTRIES && m->pairs <= MAX_ENTRIES;
}

/* Tells the caller about once a second, and looks at the clock. */
static bool go_on(struct place_state *state)
{
    const struct symm_place_options *options = state->options;
    int64_t unit = state->model->unit;
    double now;

    if (state->stopped || (options->time_limit <= 0 && !options->progress))
        return !state->stopped;
    now = symm__place_now();
    if (options->progress && now - state->told >= 1) {
        state->told = now;
        state->stopped =
            !options->progress(options->arg, now - state->start, state->peak * unit,
                               state->lower_bound * unit, state->nodes);
    }
    if (options->time_limit > 0 && now - state->start >= options->time_limit)
        state->stopped = true;
    return !state->stopped;
}

static symm_status add_search(struct team *team)
{
    const struct place_model *m = team->state->model;
    size_t fixed = sizeof keys / sizeof keys[0], index = (size_t)team->count;
    symm_status status;

    if (index < fixed)
        status = symm__place_order(m, keys[index], 0, 0, team->order);
    else
        status = symm__place_order(m,
                                   index % 3 == 0   ? "A"
                                   : index % 3 == 1 ? "TW"
                                                    : "TA",
                                   1, index, team->order);
    if (status != SYMM_OK)
        return status;
    for (int k = 0; k < m->count; k++)
        team->rank[team->order[k]] = k;
    team->searches[index] =
        symm__place_search_open(m, team->net, team->rank, team->capacity);
    if (!team->searches[index])
        return symm__fail(SYMM_ERR_NOMEM, "placement: no memory for a search");
    team->count++;
    return SYMM_OK;
}

/* One turn of one search. */
static symm_status take_turn(struct team *team, int index, bool *done)
{
    struct place_state *state = team->state;
    struct place_search *search = team->searches[index];
    uint64_t nodes = symm__place_search_nodes(search);
    uint64_t work = symm__place_search_work(search);
    enum place_outcome outcome = symm__place_search_step(search, team->turn);
    const int64_t *offsets = symm__place_search_offsets(search);

    state->nodes += symm__place_search_nodes(search) - nodes;
    state->work += symm__place_search_work(search) - work;
    *done = outcome != PLACE_MORE;
    if (outcome == PLACE_NO_MEMORY)
        return symm__fail(SYMM_ERR_NOMEM, "placement: no memory for a search");
    if (outcome == PLACE_EXHAUSTED)
        state->lower_bound = team->capacity + 1;
    if (outcome != PLACE_FOUND)
        return SYMM_OK;
    memcpy(state->offsets, offsets, (size_t)state->model->count * sizeof *offsets);
    state->peak = 0;
    for (int i = 0; i < state->model->count; i++)
        if (offsets[i] + state->model->size[i] > state->peak)
            state->peak = offsets[i] + state->model->size[i];
    return SYMM_OK;
}

static symm_status take_turns(struct team *team, uint64_t budget)
{
    uint64_t start = team->state->work, next = FIRST_JOIN;
    int wanted = FIRST_SEARCHES;
    symm_status status = SYMM_OK;
    bool done = false;

    for (uint64_t round = 0; !done && team->state->work - start < budget; round++) {
        if (round >= next && wanted < MAX_SEARCHES) {
            next += next / 2;
            wanted++;
        }
        for (int k = 0; k < wanted && !done && team->state->work - start < budget;
             k++) {
            if (!go_on(team->state))
                return SYMM_OK;
            if (k >= team->count)
                status = add_search(team);
            if (status == SYMM_OK)
                status = take_turn(team, k, &done);
            if (status != SYMM_OK)
                return status;
        }
    }
    return status;
}

symm_status symm__place_exact_fit(struct place_state *state,
                                  const struct place_net *net, int64_t capacity,
                                  uint64_t budget)
{
    size_t n = (size_t)state->model->count + 1;
    struct team team = {.state = state,
                        .net = net,
                        .capacity = capacity,
                        .turn = budget < SMALL_BUDGET ? budget : TURN};
    symm_status status;

    team.order = calloc(n, sizeof *team.order);
    team.rank = calloc(n, sizeof *team.rank);
    if (!team.order || !team.rank)
        status = symm__fail(SYMM_ERR_NOMEM, "placement: no memory for a search");
    else
        status = take_turns(&team, budget);
    for (int k = 0; k < team.count; k++)
        symm__place_search_close(team.searches[k]);
    free(team.order);
    free(team.rank);
    return status;
}

/* Halves the gap between what failed within the budget and the peak. */
static symm_status lower_once(struct place_state *state, const struct place_net *net,
                              uint64_t budget, uint64_t end)
{
    int64_t failed = state->lower_bound - 1;
    int64_t capacity = failed + (state->peak - failed + 2) / 3;
    symm_status status = SYMM_OK;

    while (status == SYMM_OK && !state->stopped && failed + 1 < state->peak &&
           state->work < end) {
        int64_t peak = state->peak;
        uint64_t left = end - state->work;
        status =
            symm__place_exact_fit(state, net, capacity, budget < left ? budget : left);
        if (state->peak == peak)
            failed = capacity;
        if (failed < state->lower_bound - 1)
            failed = state->lower_bound - 1;
        capacity = failed + (state->peak - failed) / 2;
    }
    return status;
}

symm_status symm__place_exact_lower(struct place_state *state,
                                    const struct place_net *net, uint64_t budget)
{
    uint64_t dive =
        DIVE * state->model->members; /* placing everything once, and some */
    uint64_t share = budget >= SMALL_BUDGET ? 10 * TURN : dive < budget ? dive : budget;
    uint64_t end = state->work + budget < budget ? UINT64_MAX : state->work + budget;
    symm_status status = SYMM_OK;

    while (status == SYMM_OK && !state->stopped && state->lower_bound < state->peak &&
           state->work < end) {
        status = lower_once(state, net, share, end);
        share *= 2;
    }
    return status;
}
