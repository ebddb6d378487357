/* SPDX-License-Identifier: MIT */
/*
 * place_exact.h - many exact searches side by side.
 */
#ifndef SYMM_PLANNER_PLACE_EXACT_H
#define SYMM_PLANNER_PLACE_EXACT_H

#include "place_model.h"

/* What is known, and who is told. Offsets and peaks are in units of the model. */
struct place_state {
    const struct place_model *model;
    const struct symm_place_options *options;
    int64_t *offsets; /* [count] the best placement so far */
    int64_t peak;
    int64_t lower_bound;  /* of any placement's peak: raised by searches that end */
    double start, told;   /* seconds: of the call, of the last progress */
    uint64_t nodes, work; /* of all searches */
    bool stopped;         /* by the time limit or the caller */
};

double symm__place_now(void);

/* Whether the searches can work on a model of this size at all. */
bool symm__place_exact_possible(const struct place_model *model);

/*
 * Looks for a placement within `capacity` (< peak) until one is found, none exists, the
 * state is stopped, or `budget` list entries were looked at. Updates the state.
 */
symm_status symm__place_exact_fit(struct place_state *state,
                                  const struct place_net *net, int64_t capacity,
                                  uint64_t budget) SYMM_MUST_CHECK;

/*
 * Lowers the peak: tries capacities between the bound and the peak, each with a part of
 * the budget; with larger and larger budgets up to `budget` (UINT64_MAX: until it is
 * proved that no lower peak exists).
 */
symm_status symm__place_exact_lower(struct place_state *state,
                                    const struct place_net *net,
                                    uint64_t budget) SYMM_MUST_CHECK;

#endif
