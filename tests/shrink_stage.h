/* SPDX-License-Identifier: MIT */
/* shrink_stage.h - for suites of symm_team_shrink: who is in a team, and calls until it fails. */
#ifndef SYMM_TESTS_SHRINK_STAGE_H
#define SYMM_TESTS_SHRINK_STAGE_H

#include "symm/symm.h"

/* Bits of the members' world ranks, which are below 64. */
static inline uint64_t shrink_members_of(symm_team *team)
{
    uint64_t members = 0;

    for (int m = 0; m < symm_team_size(team); m++)
        members |= UINT64_C(1) << symm_team_world_rank(team, m);
    return members;
}

static inline symm_status shrink_until_failed(symm_team *team)
{
    symm_status status = SYMM_OK;
    float data[64] = {1};

    while (status == SYMM_OK)
        status =
            symm_all_reduce(team, data, data, 64, SYMM_FLOAT32, SYMM_MAX, NULL, NULL);
    return status;
}

#endif
