/* SPDX-License-Identifier: MIT */
/* error_members.h - sets of a team's members on this host, as kernels record them. */
#ifndef SYMM_CUDA_ERROR_MEMBERS_H
#define SYMM_CUDA_ERROR_MEMBERS_H

#include "cuda/launcher.h"

/* Members by bits, as in the record. */
struct symm_cuda_members {
    uint32_t word[SYMM_MEMBER_WORDS];
};

static inline bool symm__members_has(const struct symm_cuda_members *set, int member)
{
    return set->word[member / 32] >> member % 32 & 1;
}

/* The first member of the set; -1: it is empty. */
static inline int symm__members_first(const struct symm_cuda_members *set)
{
    for (int w = 0; w < SYMM_MEMBER_WORDS; w++)
        if (set->word[w] != 0)
            return 32 * w + __builtin_ctz(set->word[w]);
    return -1;
}

static inline bool symm__members_none(const struct symm_cuda_members *set)
{
    return symm__members_first(set) < 0;
}

struct symm_cuda_members symm__members_less(const struct symm_cuda_members *set,
                                            const struct symm_cuda_members *other);
/* "rank 2, rank 5": the members except this rank, of many only the first. Returns their
 * number. */
int symm__members_text(const symm_team *team, const struct symm_cuda_members *set,
                       char *text, size_t bytes);

#endif
