/* SPDX-License-Identifier: MIT */
/*
 * members.cuh - sets of a team's members, a bit for each, and which member a thread has.
 *
 * For few ranks a set is a number, these functions are its operations, and each member has a
 * thread. With SYMM_WIDE a set has SYMM_MEMBER_WORDS words, and a thread may have several members.
 */
#ifndef SYMM_KERNELS_CUDA_MEMBERS_CUH
#define SYMM_KERNELS_CUDA_MEMBERS_CUH

#include "kernels/cuda/port.cuh"

#if defined(SYMM_WIDE)

struct symm_members {
    uint32_t word[SYMM_MEMBER_WORDS];
};
#define SYMM_RANKS SYMM_DEVICE_RANKS /* of this file's kernels, at most */

SYMM_DEVICE struct symm_members symm_members_of(uint32_t word)
{
    return {{word, word, word}};
}

SYMM_DEVICE uint32_t symm_members_word(const struct symm_members &set, uint32_t w)
{
    return set.word[w];
}

SYMM_DEVICE bool symm_members_any(const struct symm_members &set)
{
    return (set.word[0] | set.word[1] | set.word[2]) != 0;
}

SYMM_DEVICE bool symm_members_same(const struct symm_members &a,
                                   const struct symm_members &b)
{
    return a.word[0] == b.word[0] && a.word[1] == b.word[1] && a.word[2] == b.word[2];
}

SYMM_DEVICE bool symm_members_has(const struct symm_members &set, uint32_t m)
{
    return set.word[m / 32] >> m % 32 & 1;
}

SYMM_DEVICE void symm_members_add(struct symm_members *set, uint32_t m)
{
    set->word[m / 32] |= 1u << m % 32;
}

SYMM_DEVICE struct symm_members symm_members_but(uint32_t m)
{
    struct symm_members set = symm_members_of(~0u);

    set.word[m / 32] &= ~(1u << m % 32);
    return set;
}

#else

typedef uint32_t symm_members;
#define SYMM_RANKS SYMM_FEW_RANKS

SYMM_DEVICE symm_members symm_members_of(uint32_t word)
{
    return word;
}

SYMM_DEVICE uint32_t symm_members_word(symm_members set, uint32_t)
{
    return set;
}

SYMM_DEVICE bool symm_members_any(symm_members set)
{
    return set != 0;
}

SYMM_DEVICE bool symm_members_same(symm_members a, symm_members b)
{
    return a == b;
}

SYMM_DEVICE bool symm_members_has(symm_members set, uint32_t m)
{
    return set >> m & 1;
}

SYMM_DEVICE void symm_members_add(symm_members *set, uint32_t m)
{
    *set |= 1u << m;
}

SYMM_DEVICE symm_members symm_members_but(uint32_t m)
{
    return ~(1u << m);
}

#endif

#define SYMM_ALL_MEMBERS symm_members_of(~0u)
#define SYMM_NO_MEMBERS  symm_members_of(0)
/* Words that a set has here; those of a record beyond them stay 0. */
#define SYMM_WORDS_OF_SET   ((SYMM_RANKS + 31) / 32)
#define SYMM_WARPS_OF_RANKS SYMM_WORDS_OF_SET

SYMM_DEVICE symm_members symm_member(uint32_t m)
{
    symm_members set = SYMM_NO_MEMBERS;

    symm_members_add(&set, m);
    return set;
}

/* The members of one of a block's threads, which are numbered from `thread` 0 on: for few ranks
 * the member of its number. */
template <class ACT>
SYMM_DEVICE void symm_each_member(const struct symm_cuda_args &args, uint32_t thread,
                                  const ACT &act)
{
#if defined(SYMM_WIDE)
    SYMM_NO_UNROLL
    for (uint32_t m = thread; m < (uint32_t)args.team.size; m += blockDim.x)
        act(m);
#else
    if (thread < (uint32_t)args.team.size)
        act(thread);
#endif
}

#endif
