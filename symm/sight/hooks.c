/* SPDX-License-Identifier: MIT */
/* hooks.c - what is done beside each call of a rank: its trace, its NVTX range. See sight.h. */
#include "sight/nvtx.h"
#include "sight/sight.h"
#include "sight/trace.h"

static void push(struct symm_sight *sight, uint64_t number, uint32_t id)
{
    const struct symm_sight_site *site = &sight->page->site[id % SYMM_SIGHT_SITES];

    if (symm__nvtx_push(sight->nvtx, number, id))
        return;
    /* so that no other site takes its place meanwhile */
    pthread_mutex_lock(&sight->lock);
    if (site->id == id)
        symm__nvtx_site(sight->nvtx, site);
    pthread_mutex_unlock(&sight->lock);
    (void)symm__nvtx_push(sight->nvtx, number, id);
}

void symm__sight_hooks_open(struct symm_sight *sight)
{
    sight->nvtx = symm__nvtx_open();
    sight->hooks = sight->trace || sight->nvtx;
}

void symm__sight_hooks_close(struct symm_sight *sight)
{
    symm__nvtx_close(sight->nvtx);
    sight->nvtx = NULL;
}

void symm__sight_hook_begin(struct symm_sight *sight, uint64_t number, uint32_t site,
                            uint32_t epoch, enum symm_sight_state state, uint64_t begin)
{
    /* Exchanges are no calls of the program: they have neither begin nor end here. */
    if (sight->page->site[site % SYMM_SIGHT_SITES].channel == SYMM_SIGHT_CONTROL)
        return;
    if (sight->trace)
        symm__trace_begin(sight->trace, number, site, epoch, state, begin);
    if (sight->nvtx && state == SYMM_SIGHT_QUEUED)
        symm__nvtx_queued(sight->nvtx, number, site);
    else if (sight->nvtx)
        push(sight, number, site);
}

void symm__sight_hook_run(struct symm_sight *sight, uint64_t number, uint32_t epoch)
{
    if (sight->trace)
        symm__trace_run(sight->trace, number, epoch, symm__ticks_ns());
    if (sight->nvtx)
        push(sight, number, symm__nvtx_queued_site(sight->nvtx, number));
}

void symm__sight_hook_end(struct symm_sight *sight, uint64_t number,
                          enum symm_sight_state state)
{
    if (sight->nvtx)
        symm__nvtx_pop(sight->nvtx, number);
    if (sight->trace)
        symm__trace_end(sight->trace, number, state, symm__ticks_ns());
}
