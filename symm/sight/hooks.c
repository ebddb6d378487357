/* SPDX-License-Identifier: MIT */
/* hooks.c - what follows each call of a rank: its trace. See sight.h. */
#include "sight/sight.h"
#include "sight/trace.h"

void symm__sight_hook_begin(const struct symm_sight *sight, uint64_t number,
                            const struct symm_sight_call *call,
                            enum symm_sight_state state)
{
    if (sight->trace)
        symm__trace_begin(sight->trace, number, call->site, call->epoch, state,
                          call->begin);
}

void symm__sight_hook_run(const struct symm_sight *sight, uint64_t number)
{
    if (sight->trace)
        symm__trace_run(sight->trace, number, symm__ticks_ns());
}

void symm__sight_hook_end(const struct symm_sight *sight, uint64_t number,
                          enum symm_sight_state state)
{
    if (sight->trace)
        symm__trace_end(sight->trace, number, state, symm__ticks_ns());
}
