/* SPDX-License-Identifier: MIT */
/*
 * control_page.h - the page that each rank shows to its peers: whether it is alive, where it
 * waits, whether it has failed, at which call sites it has been.
 *
 * A rank writes its own page; peers write the words of agreements in it (16 KiB), on CUDA
 * also the tables of channels and the budget of blocks (352 KiB), and read the rest. Nothing
 * read from a peer's page is trusted: a value is copied once, then checked; none is an index, a
 * length or a pointer. A page that others have overwritten can therefore cause an error, never a
 * crash or a hang. Ranks that are processes map the rest of peers' pages read-only.
 */
#ifndef SYMM_OOB_CONTROL_PAGE_H
#define SYMM_OOB_CONTROL_PAGE_H

#include <stddef.h>

#include "symm/device.h"
#include "symm/symm.h"

#define SYMM_CONTROL_MAGIC 0x73796d6d63746c33u /* "symmctl3" */
#define SYMM_MAX_TEAMS     256                 /* of one context at a time */
#define SYMM_SLOT_WORDS    (SYMM_MAX_TEAMS / 64)
/* The longest sentence fits: with the longest names, a list of ranks, and all that may follow. */
#define SYMM_RECORD_BYTES  1280
#define SYMM_EARLIER_BYTES 304  /* of a sentence that others quote */
#define SYMM_CONTROL_SITES 1024 /* a power of two */

/* live: the liveness thread's id while it lives; the kernel sets bit 30 when it dies. */
#define SYMM_LIVE_DIED     0x40000000u
#define SYMM_LIVE_WAITERS  0x80000000u
#define SYMM_LIVE_FINISHED 0x3fffffffu /* the rank has finalized its context */

/* A set of slots of teams: slot s is bit s % 64 of word s / 64 (core/slots.h). */
struct symm_slots {
    uint64_t word[SYMM_SLOT_WORDS];
};

/* A failure of one team: state is stored last (release), the text is any bytes. */
struct symm_record {
    uint32_t team_uid;
    int32_t state; /* symm_status; 0 = none */
    char text[SYMM_RECORD_BYTES - 8];
};

/*
 * The agreement on a team's survivors (team_shrink.c): one word in the page of the team's
 * first member, `consensus_word[n]`, where n is agreed when the team starts. Peers write
 * it by compare-and-swap: uid of the team, attempt, the proposing rank, the phases of this
 * attempt and the last three. struct symm_consensus has what the owner alone writes, for each
 * team.
 */
#define SYMM_CONSENSUS_WORDS 2048

/*
 * CUDA: which sequence of calls has which channel of a team (cuda/channel.c), in the page of
 * the team's first member, by its slot. All members write it, under its lock.
 */
#define SYMM_CHANNEL_LINES 16

struct symm_channel_table {
    uint32_t lock;   /* 0: free; else the holder's rank + 1 */
    uint32_t engine; /* 1 + the channel whose calls may go to the engine; 0: none yet */
    uint64_t key[SYMM_CHANNELS];   /* 0: the channel is free */
    uint32_t stays[SYMM_CHANNELS]; /* its stream keeps the channel up to this launch */
    uint32_t asked[SYMM_CHANNELS]; /* by name: the last try that got no channel */
    /* By the line of the key (cuda/channel_table.h): the last try that got no channel, and, in each
     * member's own page, the sum of the keys with which the member got none. */
    uint32_t refused[SYMM_CHANNEL_LINES];
    uint64_t refusals[SYMM_CHANNEL_LINES];
    uint8_t reserved[760 - 16 * SYMM_CHANNELS - 12 * SYMM_CHANNEL_LINES];
};

/*
 * CUDA: how many blocks the calls of a channel may have (budget.h), by the team's slot.
 * `word` and `boundary` are in the page of the team's first member; claims in the page of
 * each member, for its device, under the lock of the host's first rank; `asked` and `slots`
 * are the owner's own. All members write it.
 */
struct symm_budget {
    uint32_t lock; /* 0: free; else the holder's rank + 1 */
    uint32_t reserved0;
    struct symm_slots slots;      /* in which the owner has a team open */
    uint32_t uid[SYMM_MAX_TEAMS]; /* of the team in each slot */
    uint64_t word[SYMM_MAX_TEAMS][SYMM_CHANNELS];
    /* The first launch with the last grant. */
    uint32_t boundary[SYMM_MAX_TEAMS][SYMM_CHANNELS];
    uint32_t asked[SYMM_MAX_TEAMS][SYMM_CHANNELS]; /* grants that the owner has read */
    uint16_t claim[SYMM_MAX_TEAMS][SYMM_CHANNELS]; /* blocks, and a flag */
};
#define SYMM_BUDGET_BYTES 163840 /* of it and what fills its pages */

struct symm_consensus {
    uint64_t joined, opened; /* uid << 32 | attempt */
    struct symm_slots taken; /* of teams of the owner */
    uint64_t set[2];         /* what it proposes in attempts of even and odd number: */
    uint32_t slot[2];        /* survivors (bits of team ranks), and the new slot */
    uint64_t reserved;
};

/*
 * A call of symm_team_create (setup/team_create.c) that waits for the other ranks of its list, or
 * the sentence with which it failed. Peers only read it. What a peer has read belongs together if
 * `word` was the same before and after.
 */
#define SYMM_CREATIONS 8 /* such calls of a rank at a time */

struct symm_creation {
    uint64_t word;    /* how far the call is; 0: no call */
    uint64_t series;  /* stands for parent and key */
    uint64_t list;    /* stands for parent, key and list */
    uint64_t members; /* the list's ranks, by bits of their places on the host */
    struct symm_slots taken; /* of teams of this rank, while its context is locked */
    uint64_t text[144];      /* the list, or the sentence */
    /* Of a failed call, by place on the host: which call of that rank fails with it; 0: none. */
    uint32_t fails[SYMM_MAX_LOCAL_RANKS];
};

struct symm_control {
    uint64_t magic;
    uint32_t layout; /* SYMM_DEVICE_LAYOUT */
    int32_t rank;
    uint32_t reserved0[12];
    uint32_t live;
    uint32_t left; /* finalized, and its teams have reported it to peers' kernels (cuda/team.c) */
    uint32_t reserved1[14];
    /* A wait on the default stream that has lasted some time: team uid << 32 | epoch; 0 =
     * none. */
    uint64_t waiting;
    uint32_t reserved2[14];
    struct symm_record record[SYMM_MAX_TEAMS];
    struct symm_consensus agreement[SYMM_MAX_TEAMS];
    struct symm_creation creation[SYMM_CREATIONS];
    char earlier
        [SYMM_EARLIER_BYTES]; /* what it failed with before it finalized; "": nothing */
    uint8_t reserved3[12096 - SYMM_EARLIER_BYTES -
                      SYMM_CREATIONS * sizeof(struct symm_creation)];
    /* Peers map what lies from here to `site` for writing, the rest for reading. */
    uint64_t consensus_word[SYMM_CONSENSUS_WORDS];
    /* From here on there is a page on CUDA only. */
    struct symm_channel_table channel_table[SYMM_MAX_TEAMS];
    struct symm_budget budget;
    uint8_t reserved4[SYMM_BUDGET_BYTES - sizeof(struct symm_budget)];
    /* The call sites that words of this rank name by their tag (site_table.c). Each is written
     * before the first launch with its tag: the tag is stored last (release). */
    struct symm_site site[SYMM_CONTROL_SITES];
    /* What this rank has queued on each channel (cuda/channel.c). */
    uint64_t progress[SYMM_MAX_TEAMS][SYMM_CHANNELS];
    uint32_t first[SYMM_MAX_TEAMS]
                  [SYMM_CHANNELS]; /* tag of its stream's first call there */
};

/* What is mapped: whole pages for any page size. */
#define SYMM_CONTROL_BYTES      1032192
#define SYMM_CONTROL_HOST_BYTES 376832 /* on the host backend */
_Static_assert(sizeof(struct symm_record) == SYMM_RECORD_BYTES, "layout");
_Static_assert(sizeof(struct symm_channel_table) == 768, "layout");
_Static_assert(offsetof(struct symm_control, consensus_word) % 16384 == 0 &&
                   sizeof(struct symm_control) == SYMM_CONTROL_BYTES &&
                   offsetof(struct symm_control, channel_table) ==
                       SYMM_CONTROL_HOST_BYTES &&
                   offsetof(struct symm_control, site) % 16384 == 0,
               "what peers write shares no page of up to 16 KiB with the rest");

#endif
