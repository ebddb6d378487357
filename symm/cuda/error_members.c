/* SPDX-License-Identifier: MIT */
/* error_members.c - see error_members.h. */
#include "cuda/error_members.h"

#include <stdio.h>

#define MEMBER_BYTES                                                                   \
    30 /* of a list of ranks: one more of them, and how many are left */

struct symm_cuda_members symm__members_less(const struct symm_cuda_members *set,
                                            const struct symm_cuda_members *other)
{
    struct symm_cuda_members less = *set;

    for (int w = 0; w < SYMM_MEMBER_WORDS; w++)
        less.word[w] &= ~other->word[w];
    return less;
}

int symm__members_text(const symm_team *team, const struct symm_cuda_members *set,
                       char *text, size_t bytes)
{
    size_t used = 0;
    int listed = 0, more = 0;

    text[0] = '\0';
    for (int m = 0; m < team->local_size; m++) {
        if (!symm__members_has(set, m) || m == team->local_rank)
            continue;
        if (used + MEMBER_BYTES > bytes)
            more++;
        else
            used += (size_t)snprintf(text + used, bytes - used, "%srank %d",
                                     listed++ ? ", " : "", symm__team_rank_at(team, m));
    }
    if (more > 0)
        snprintf(text + used, bytes - used, " and %d more", more);
    return listed + more;
}
