/* SPDX-License-Identifier: MIT */
/*
 * pad_layout.h - the layout of a team's signal pad, and of what device code has of a team:
 * constants, structs and assertions, for C, C++, nvcc and clang for NVPTX. symm/device.h has
 * the functions on it.
 *
 * A pad lies at the same offset of every rank's heap. Each word in it has one writer: slots
 * belong to the pad's owner and are read by all; signals[s] belongs to sender s. A word is
 * epoch in the low half and the call-site tag in the high half, written by one 8-byte store.
 * Members and senders are counted among the team's members on this host: of a team within one
 * host they are its ranks.
 */
#ifndef SYMM_PAD_LAYOUT_H
#define SYMM_PAD_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SYMM_DEVICE_LAYOUT   9u      /* of everything below; changes with any of it */
#define SYMM_MAX_LOCAL_RANKS 64      /* ranks of a team on one host */
#define SYMM_DEVICE_RANKS    72      /* of a team on GPUs */
#define SYMM_FEW_RANKS       8       /* of one whose kernels are those of few ranks */
#define SYMM_MEMBER_WORDS    3       /* of 32 bits that a set of members takes */
#define SYMM_DEVICE_BLOCKS   160     /* of a kernel at most */
#define SYMM_CHANNELS        32      /* streams of a team on GPUs in use at once */
#define SYMM_HOST_CHANNELS   8       /* the same on the host, or over several hosts */
#define SYMM_SIGNALS         256     /* one-sided signals for each sender */
#define SYMM_SITE_NAME_BYTES 96      /* of a call site's name in a pad, with its NUL */
#define SYMM_INLINE_BYTES    56      /* payload in the word's own cache line */
#define SYMM_SLOT_BYTES      118784  /* 29 pages of 4 KiB */
#define SYMM_SLOT_DATA_BYTES 118528  /* staged payload of one round */
#define SYMM_RINGS_BYTES     64832   /* of all rings of a pad */
#define SYMM_PAD_BYTES       2097152 /* a whole pad: one segment */

/* What a rank is doing in a round; read by peers only to explain a mismatch. */
struct symm_site {
    uint32_t tag;                   /* the word's high half */
    uint32_t count_high, count_low; /* elements */
    uint8_t kind, op, dtype, algorithm;
    int32_t root;
    uint32_t in_high, in_low; /* offsets in the heap, ~0: not symmetric */
    uint32_t out_high, out_low;
    char name[SYMM_SITE_NAME_BYTES];
    /* all_reduce_norm, where `root` is the columns of a row. options: symm_norm_quant, flags << 8,
     * and << 16 the set of arrays that are given (symm_record_array); the others as bits. */
    uint32_t options, eps, weight_offset;
    uint32_t reserved[12];
};

/* ---- Pads ------------------------------------------------------------------------ */

struct symm_slot {
    uint64_t word;
    unsigned char payload[SYMM_INLINE_BYTES];
    struct symm_site site;
    unsigned char data[SYMM_SLOT_DATA_BYTES];
};

/* Host backend: a rank writes its own slots, peers read them. */
struct symm_channel {
    struct symm_slot slot[2];
};

/*
 * CUDA backend: peers write into a rank's pad, the rank polls its own memory. [m] is the
 * word of team member m, its one writer.
 *  call[c & 1][m]      member m has begun call c of the channel: symm_device_word(tag, c)
 *  round[b][r & 1][m]  block b of member m has arrived at round r: symm_device_word(tag, r)
 * A team of up to SYMM_FEW_RANKS has a struct symm_device_pads in its pad: a round's words are one
 * line of memory. A larger team has a struct symm_device_wide_pads after its pad, and does not use
 * the other one.
 */
struct symm_device_channel {
    uint64_t call[2][SYMM_FEW_RANKS];
    uint64_t round[SYMM_DEVICE_BLOCKS][2][SYMM_FEW_RANKS];
};

struct symm_device_pads {
    struct symm_device_channel channel[SYMM_CHANNELS];
};

struct symm_device_wide_channel {
    uint64_t call[2][SYMM_DEVICE_RANKS];
    uint64_t round[SYMM_DEVICE_BLOCKS][2][SYMM_DEVICE_RANKS];
};

struct symm_device_wide_pads {
    struct symm_device_wide_channel channel[SYMM_CHANNELS];
};

/*
 * Host backend, two-sided messages: what one member sends to the pad's owner. Members share a
 * pad's rings equally, each a multiple of 64 bytes; the data follow this struct. Both fields
 * count bytes since the ring's beginning, in multiples of 16.
 */
struct symm_ring {
    uint64_t filled; /* by the sender */
    uint64_t reserved[7];
    uint64_t emptied; /* by the pad's owner */
    uint64_t reserved_too[7];
};

struct symm_host_words {
    uint64_t signals[SYMM_MAX_LOCAL_RANKS][SYMM_SIGNALS];
    unsigned char rings[SYMM_RINGS_BYTES]; /* [sender] struct symm_ring */
};

/* Sleepers on words of this pad; a hint, written by any rank. */
struct symm_wake {
    uint32_t sleepers;
    uint32_t reserved[15];
};

struct symm_pad {
    union {
        struct symm_channel channel[SYMM_HOST_CHANNELS]; /* host backend */
        struct symm_device_pads device;                  /* CUDA backend */
    };
    /* The host backend alone has rings, and a team of it at most SYMM_MAX_LOCAL_RANKS senders. */
    union {
        uint64_t signals[SYMM_DEVICE_RANKS][SYMM_SIGNALS]; /* [sender]: tag, count */
        struct symm_host_words host;
    };
    /* The last two: for signals, and for the owner's wait for its own and peers' rings. */
    struct symm_wake wake[SYMM_HOST_CHANNELS + 2];
    uint64_t rung; /* counts wakes of that wait; written by any rank */
    uint64_t reserved[7];
};

/* ---- A team as kernels see it ---------------------------------------------------- */

/* Rounds and calls are counted in device memory by the kernels themselves, so that a
 * replayed graph is right. Rounds run from 0 to SYMM_ROUND_LIMIT - 1 and begin again: the
 * limit is divisible by 2 and 3, the numbers of slots that protocols rotate through. */
#define SYMM_ROUND_LIMIT 3221225472u /* 3 x 2^30 */

struct symm_device_block {
    uint32_t round; /* the last round that this block has begun */
    uint32_t call;  /* of the last call */
};

/* Local memory of one rank: never read by peers. */
struct symm_device_state {
    /* [16 * channel]: not 0: the channel has failed: its kernels that wait stop, and so do other
     * teams' calls after one of its calls on a stream. The last one is for one-sided calls that a
     * graph holds, or on streams that have no channel; a failure of any channel sets it. */
    uint32_t failed[(SYMM_CHANNELS + 1) * 16];
    struct symm_device_block block[SYMM_CHANNELS][SYMM_DEVICE_BLOCKS];
    uint32_t sent[SYMM_DEVICE_RANKS][SYMM_SIGNALS];    /* signals, by receiver */
    uint32_t awaited[SYMM_DEVICE_RANKS][SYMM_SIGNALS]; /* by sender */
    uint32_t done[SYMM_DEVICE_RANKS][SYMM_SIGNALS];    /* blocks of a put under way */
    /* A copy of record->abort. A stream makes it after each of its waits, the watchdog when it
     * sets abort. */
    uint32_t reported;
    /* Set with any of `failed`. If this or `reported` is not 0, kernels of all channels do nothing:
     * they load the two at once when they begin. */
    uint32_t stopped;
    uint32_t reserved[14];
};

/* The first failure of a team's kernels, in memory of the host; state is written last. */
struct symm_device_record {
    uint32_t state;   /* 0: none; else minus the symm_status */
    uint32_t claimed; /* the thread that sets it from 0 to 1 writes the record */
    uint32_t abort;   /* set by the host: minus the status with which waits shall end */
    uint32_t channel; /* SYMM_CHANNELS: a one-sided signal, or an exchange */
    uint32_t tag;     /* of the call that failed */
    uint32_t counter; /* its call number, or the signal's count */
    uint32_t signal;  /* SYMM_SIGNALS: an exchange (symm/device_exchange.h) */
    uint32_t missing[SYMM_MEMBER_WORDS]; /* bit m % 32 of [m / 32]: m had not arrived */
    uint64_t
        workspace; /* an exchange: the workspace's offset in the heap; 0: not known */
    uint32_t reserved[4];
    uint64_t seen[SYMM_DEVICE_RANKS]; /* last words read, by member */
    uint64_t peeked; /* a word of the device that the host has asked for */
    uint64_t reserved_too[7];
};

/* All that device code needs of a team. symm_team_device gives a copy in device memory. The bases
 * are last: kernels for few ranks get the beginning alone (kernels/cuda/port.cuh). */
struct symm_device_team {
    uint32_t layout; /* SYMM_DEVICE_LAYOUT */
    int32_t rank, size;
    uint32_t reserved;
    uint64_t timeout; /* nanoseconds that a wait may last */
    uint64_t pad;     /* offset of the pad in every heap */
    struct symm_device_state *state;
    struct symm_device_record *record;
    char *base[SYMM_DEVICE_RANKS]; /* heap of each member, as mapped here */
};

#if defined(__cplusplus)
#define SYMM_LAYOUT_ASSERT(condition) static_assert(condition, "layout")
#else
#define SYMM_LAYOUT_ASSERT(condition) _Static_assert(condition, "layout")
#endif
SYMM_LAYOUT_ASSERT(offsetof(struct symm_device_state, reported) % 8 == 0);
SYMM_LAYOUT_ASSERT(sizeof(struct symm_site) == 192);
SYMM_LAYOUT_ASSERT(sizeof(struct symm_slot) == SYMM_SLOT_BYTES);
SYMM_LAYOUT_ASSERT(sizeof(struct symm_device_pads) <=
                   SYMM_HOST_CHANNELS * sizeof(struct symm_channel));
SYMM_LAYOUT_ASSERT(sizeof(struct symm_pad) <= SYMM_PAD_BYTES);
SYMM_LAYOUT_ASSERT(SYMM_MEMBER_WORDS * 32 >= SYMM_DEVICE_RANKS);
SYMM_LAYOUT_ASSERT((SYMM_DEVICE_RANKS - SYMM_MAX_LOCAL_RANKS) * SYMM_SIGNALS * 8 <=
                   SYMM_RINGS_BYTES);
SYMM_LAYOUT_ASSERT(sizeof(struct symm_device_wide_pads) % 4096 == 0);
SYMM_LAYOUT_ASSERT(sizeof(struct symm_device_record) % 64 == 0);

#ifdef __cplusplus
}
#endif
#endif
