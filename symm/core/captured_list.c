/* SPDX-License-Identifier: MIT */
/* captured_list.c - see captured_list.h. */
#include "core/captured_list.h"

#include <stdlib.h>

void symm__captured_place_end(struct symm_captured_place *place)
{
    if (place->run)
        place->run->users--;
    place->run = NULL;
}

void symm__captured_runs_sweep(symm_team *team)
{
    struct symm_capture *capture = team->capture;

    for (struct symm_captured_run **at = &capture->runs, *run; (run = *at) != NULL;) {
        if (run->users > 0 || capture->ending) {
            at = &run->next;
            continue;
        }
        *at = run->next;
        symm__run_give(team->ctx, &run->own, run->mem);
        free(run);
    }
}
