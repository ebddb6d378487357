/* SPDX-License-Identifier: MIT */
/*
 * state.c - the best placement so far, and the clock.
 */
#include "pack/state.h"

#include <string.h>

#include "util/clock.h"

bool symm__pack_go_on(struct place_state *state)
{
    const symm_pack_options *options = state->options;
    int64_t unit = state->model->unit;
    double now;

    if (state->stopped || (options->time_limit <= 0 && !options->progress))
        return !state->stopped;
    now = symm__now();
    if (options->progress && state->peak < INT64_MAX && now - state->told >= 1) {
        state->told = now;
        state->stopped =
            !options->progress(options->arg, now - state->start, state->peak * unit,
                               state->lower_bound * unit, state->nodes);
    }
    if (options->time_limit > 0 && now - state->start >= options->time_limit)
        state->stopped = true;
    return !state->stopped;
}

bool symm__pack_wanted(struct place_state *state)
{
    return !symm__pack_reached(state) && symm__pack_go_on(state);
}

void symm__pack_keep(struct place_state *state, const int64_t *offsets)
{
    const struct place_model *m = state->model;
    int64_t peak = 0;

    for (int i = 0; i < m->count; i++)
        if (offsets[i] + m->size[i] > peak)
            peak = offsets[i] + m->size[i];
    if (peak >= state->peak)
        return;
    state->peak = peak;
    memcpy(state->offsets, offsets, (size_t)m->count * sizeof *offsets);
}
