/* SPDX-License-Identifier: MIT */
/* scratch.c - how the scratch of a team's channels is divided, in tiers. Pure. */
#include "kernels/cuda_launch.h"

#define KIBI ((uint64_t)1024)
#define LINE 16u
#define WARP 32u
#define PAGE ((uint64_t)4096)

/* Between the pad and the scratch of the first channel. Where its packets lie decides how far they
 * are from the multiprocessors that poll them. Of 13 places tried on H200, 16 B took 1.61 to
 * 1.69 us and 1 KiB 1.72 to 1.80; without a gap it was 1.69 and 1.77, with this one 1.63 and
 * 1.74. */
#define SCRATCH_GAP ((uint64_t)2 << 20)

/* Channels up to `end`, which does not belong to it, and the scratch of each. */
struct tier {
    int end;
    uint64_t ll_bytes, lamport_bytes, stage_bytes;
};

static const struct tier tiers[SYMM_CUDA_TIERS] = {
    {SYMM_LARGE_CHANNELS, 4096 * KIBI, 24576 * KIBI, 13824 * KIBI},
    {SYMM_LARGE_CHANNELS + SYMM_MIDDLE_CHANNELS, 768 * KIBI, 1536 * KIBI, 512 * KIBI},
    {SYMM_CHANNELS, 96 * KIBI, 192 * KIBI, 64 * KIBI},
};

int symm__cuda_tier_end(int tier)
{
    return tiers[tier].end;
}

int symm__cuda_tier_of(int channel)
{
    int tier = 0;

    while (channel >= tiers[tier].end)
        tier++;
    return tier;
}

/* Whether a phase of a slot takes a warp's packets of each sender, by either protocol, where blocks
 * have but one warp. */
static bool has_column(const struct tier *tier, unsigned size)
{
    return size <= SYMM_FEW_RANKS || (tier->lamport_bytes / LINE / 3 / 2 / size >= WARP &&
                                      tier->ll_bytes / LINE / 2 / 2 / size >= WARP);
}

int symm__cuda_tier_for(uint64_t bytes, int size)
{
    int tier = SYMM_CUDA_TIERS - 1;

    /* The call by packets with 8 bytes of each sender, in one round of the two slots, by whole
     * warps. No other protocol needs more, for calls of this size. */
    while (tier > 0 && (bytes > tiers[tier].ll_bytes / LINE / 2 / (unsigned)size /
                                    WARP * WARP * 8 ||
                        !has_column(&tiers[tier], (unsigned)size)))
        tier--;
    return tier;
}

uint64_t symm__cuda_scratch_layout(uint64_t pad_end, int size,
                                   struct symm_cuda_scratch scratch[SYMM_CHANNELS])
{
    const uint64_t begin =
        pad_end + (size > SYMM_FEW_RANKS ? sizeof(struct symm_device_wide_pads) : 0);
    uint64_t end = (begin + PAGE - 1) / PAGE * PAGE + SCRATCH_GAP;

    for (int c = 0; c < SYMM_CHANNELS; c++) {
        const struct tier *tier = &tiers[symm__cuda_tier_of(c)];
        struct symm_cuda_scratch *regions = &scratch[c];

        regions->ll = end;
        regions->ll_bytes = tier->ll_bytes;
        regions->lamport = regions->ll + regions->ll_bytes;
        regions->lamport_bytes = tier->lamport_bytes;
        regions->stage = regions->lamport + regions->lamport_bytes;
        regions->stage_bytes = tier->stage_bytes;
        end = regions->stage + regions->stage_bytes;
    }
    return end;
}
