/* SPDX-License-Identifier: MIT */
/*
 * exact.c - many exact searches side by side.
 *
 * The time of a search with one order of the items is heavy-tailed: milliseconds or hours.
 * So several searches that differ only in the order take turns, each resumed where it
 * stopped. A search with another order joins each time the number of rounds has grown by
 * half. Turns are counted in work, not in time: the result does not depend on the machine.
 */
#include "pack/exact.h"

#include <stdlib.h>

#include "pack/item_order.h"
#include "pack/search.h"

#define TURN           UINT64_C(100000)
#define DIVE           130
#define SMALL_BUDGET   (20 * TURN) /* less goes to one search alone */
#define FIRST_SEARCHES 4
#define FIRST_JOIN     UINT64_C(200) /* rounds; then 1.5 times as many, and so on */
#define MAX_SEARCHES   40
#define MAX_ENTRIES    (UINT64_C(1) << 22) /* of the net's lists */

static const char *const keys[] = {"TWA", "TSA", "AW", "TZW", "WAT", "TAW", "SZ", "ZW"};

struct place_team {
    struct pool pool; /* of the searches */
    struct place_state *state;
    const struct place_net *net;
    int64_t capacity;
    int *order, *rank;
    struct place_search *searches[MAX_SEARCHES];
    int count, wanted;
    uint64_t turn;        /* work of one turn */
    uint64_t round, next; /* rounds of turns; when another search joins */
    int at;               /* whose turn it is in the round */
    bool ended;
};

bool symm__pack_exact_possible(const struct place_model *m)
{
    return m->members <= MAX_ENTRIES && m->pairs <= MAX_ENTRIES;
}

static symm_status add_search(struct place_team *team)
{
    const struct place_model *m = team->state->model;
    size_t fixed = sizeof keys / sizeof keys[0], index = (size_t)team->count;
    symm_status status;

    if (index < fixed)
        status = symm__pack_order(m, keys[index], 0, 0, team->order);
    else
        status = symm__pack_order(m,
                                  index % 3 == 0   ? "A"
                                  : index % 3 == 1 ? "TW"
                                                   : "TA",
                                  1, index, team->order);
    if (status != SYMM_OK)
        return status;
    for (int k = 0; k < m->count; k++)
        team->rank[team->order[k]] = k;
    team->searches[index] =
        symm__pack_search_open(&team->pool, m, team->net, team->rank, team->capacity);
    if (!team->searches[index])
        return symm__pack_nomem(m->count);
    team->count++;
    return SYMM_OK;
}

/* One turn of one search. */
static symm_status take_turn(struct place_team *team, int index, bool *done)
{
    struct place_state *state = team->state;
    enum place_outcome outcome =
        symm__pack_search_step(team->searches[index], state, team->turn);

    *done = outcome != PLACE_MORE;
    if (outcome == PLACE_NO_MEMORY)
        return symm__pack_nomem(state->model->count);
    if (outcome == PLACE_EXHAUSTED)
        state->lower_bound = team->capacity + 1;
    return SYMM_OK;
}

symm_status symm__pack_team_run(struct place_team *team, uint64_t budget)
{
    struct place_state *state = team->state;
    uint64_t end = state->work + budget;
    symm_status status = SYMM_OK;

    while (status == SYMM_OK && !team->ended && state->work < end &&
           state->peak > team->capacity && symm__pack_go_on(state)) {
        if (team->at == team->wanted) {
            team->at = 0;
            team->round++;
        }
        if (team->round >= team->next && team->wanted < MAX_SEARCHES) {
            team->next += team->next / 2;
            team->wanted++;
        }
        if (team->at >= team->count)
            status = add_search(team);
        if (status == SYMM_OK)
            status = take_turn(team, team->at++, &team->ended);
    }
    return status;
}

symm_status symm__pack_team_open(struct place_state *state, const struct place_net *net,
                                 int64_t capacity, uint64_t budget,
                                 struct place_team **team)
{
    size_t n = (size_t)state->model->count + 1;
    struct place_team *t = calloc(1, sizeof *t);

    if (!t)
        return symm__pack_nomem(state->model->count);
    t->state = state;
    t->net = net;
    t->capacity = capacity;
    t->wanted = FIRST_SEARCHES;
    t->next = FIRST_JOIN;
    t->turn = budget < SMALL_BUDGET ? budget : TURN;
    t->order = symm__pool_alloc(&t->pool, n, sizeof *t->order);
    t->rank = symm__pool_alloc(&t->pool, n, sizeof *t->rank);
    if (t->pool.failed) {
        symm__pack_team_close(t);
        return symm__pack_nomem(state->model->count);
    }
    *team = t;
    return SYMM_OK;
}

void symm__pack_team_close(struct place_team *team)
{
    if (team)
        symm__pool_free(&team->pool);
    free(team);
}

static symm_status fit_once(struct place_state *state, const struct place_net *net,
                            int64_t capacity, uint64_t budget)
{
    struct place_team *team = NULL;
    symm_status status = symm__pack_team_open(state, net, capacity, budget, &team);

    if (status != SYMM_OK)
        return status;
    status = symm__pack_team_run(team, budget);
    symm__pack_team_close(team);
    return status;
}

/* Halves the gap between the bound and the peak, each step with `budget`. */
static symm_status halve(struct place_state *state, const struct place_net *net,
                         uint64_t budget, uint64_t end)
{
    int64_t failed = state->lower_bound - 1;
    int64_t capacity = failed + (state->peak - failed + 2) / 3;
    symm_status status = SYMM_OK;

    while (status == SYMM_OK && !state->stopped && failed + 1 < state->peak &&
           state->work < end) {
        int64_t peak = state->peak;
        uint64_t left = end - state->work;
        status = fit_once(state, net, capacity, budget < left ? budget : left);
        if (state->peak == peak)
            failed = capacity;
        if (failed < state->lower_bound - 1)
            failed = state->lower_bound - 1;
        capacity = failed + (state->peak - failed) / 2;
    }
    return status;
}

symm_status symm__pack_exact_lower(struct place_state *state,
                                   const struct place_net *net, uint64_t budget)
{
    /* placing everything once, and some */
    uint64_t dive = DIVE * state->model->members;
    uint64_t share = budget >= SMALL_BUDGET ? 10 * TURN : dive < budget ? dive : budget;
    uint64_t end = state->work + budget < budget ? UINT64_MAX : state->work + budget;
    symm_status status = SYMM_OK;

    while (status == SYMM_OK && !state->stopped && state->lower_bound < state->peak &&
           state->work < end) {
        status = halve(state, net, share, end);
        share *= 2;
    }
    return status;
}
