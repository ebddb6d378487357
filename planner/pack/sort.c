/* SPDX-License-Identifier: MIT */
/*
 * sort.c - Shell's sort for few blocks, by radix for many.
 */
#include "pack/sort.h"

#include <stddef.h>
#include <string.h>

#define RADIX_BITS 11
#define DIGITS     (1 << RADIX_BITS)

/* With the gaps of Ciura. */
static void sort_few(struct place_block *blocks, int count)
{
    static const int gaps[] = {132, 57, 23, 10, 4, 1};

    for (size_t g = count < 12 ? 5 : 0; g < sizeof gaps / sizeof gaps[0]; g++) {
        int gap = gaps[g];
        for (int k = gap; k < count; k++) {
            struct place_block block = blocks[k];
            int j = k;
            for (;
                 j >= gap && (uint64_t)blocks[j - gap].offset > (uint64_t)block.offset;
                 j -= gap)
                blocks[j] = blocks[j - gap];
            blocks[j] = block;
        }
    }
}

static uint64_t digit_of(const struct place_block *block, int shift)
{
    return ((uint64_t)block->offset >> shift) & (DIGITS - 1);
}

static void sort_digit(const struct place_block *from, struct place_block *to,
                       int count, int shift)
{
    int start[DIGITS] = {0}, sum = 0;

    for (int k = 0; k < count; k++)
        start[digit_of(&from[k], shift)]++;
    for (int d = 0; d < DIGITS; d++) {
        int here = start[d];
        start[d] = sum;
        sum += here;
    }
    for (int k = 0; k < count; k++)
        to[start[digit_of(&from[k], shift)]++] = from[k];
}

void symm__pack_sort_stable(struct place_block *blocks, struct place_block *spare,
                            int count)
{
    struct place_block *from = blocks, *to = spare, *swap;
    uint64_t differ = 0;

    for (int k = 1; k < count; k++)
        differ |= (uint64_t)blocks[k].offset ^ (uint64_t)blocks[0].offset;
    for (int shift = 0; shift < 64; shift += RADIX_BITS) {
        if (((differ >> shift) & (DIGITS - 1)) == 0)
            continue;
        sort_digit(from, to, count, shift);
        swap = from;
        from = to;
        to = swap;
    }
    if (from != blocks)
        memcpy(blocks, from, (size_t)count * sizeof *blocks);
}

void symm__pack_sort(struct place_block *blocks, struct place_block *spare, int count)
{
    if (count < SYMM_PACKER_STABLE)
        sort_few(blocks, count);
    else
        symm__pack_sort_stable(blocks, spare, count);
}
