/* SPDX-License-Identifier: MIT */
/*
 * device.h - the layout of a team's signal pad and the primitives on it, for kernels and code
 * generators. One text for host C and C++ (gcc, clang), for nvcc, and for clang that makes
 * code for NVPTX; the team is an argument, there is nothing to initialise. The functions are
 * also in libsymm_device.bc (kernels/cuda/device_bc.c) for generators that link LLVM bitcode.
 *
 * A pad lies at the same offset of every rank's heap. Each word in it has one writer: slots
 * belong to the pad's owner and are read by all; signals[s] belongs to sender s. A word is
 * epoch in the low half and the call-site tag in the high half, written by one 8-byte store.
 *
 * Round e of a channel: write what slot[e & 1] carries, then symm_device_word_store its word with
 * epoch e (release); wait until every member's slot[e & 1] holds exactly that word (acquire).
 * Two slots suffice: a rank writes round e only after it has seen every peer's e - 1, and a
 * peer stores e - 1 after it has finished reading round e - 2. The full argument, also for
 * weakly ordered processors, is in docs/memory-model.md.
 */
#ifndef SYMM_DEVICE_H
#define SYMM_DEVICE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Functions of this header: for host C and C++, nvcc, and clang for NVPTX. */
#if defined(__CUDACC__)
#define SYMM_DEVICE_FN static __host__ __device__ __forceinline__
#else
#define SYMM_DEVICE_FN static inline
#endif
#if defined(__CUDA_ARCH__) || defined(__NVPTX__)
#define SYMM_DEVICE_PTX 1 /* this pass makes code for a GPU */
#else
#define SYMM_DEVICE_PTX 0
#endif

#define SYMM_DEVICE_LAYOUT   5u      /* of everything below; changes with any of it */
#define SYMM_MAX_LOCAL_RANKS 64      /* ranks of a team on one host */
#define SYMM_DEVICE_RANKS    8       /* of a team on GPUs */
#define SYMM_DEVICE_BLOCKS   160     /* of a kernel at most */
#define SYMM_CHANNELS        32      /* streams of a team on GPUs in use at once */
#define SYMM_HOST_CHANNELS   8       /* the same on the host, or over several hosts */
#define SYMM_SIGNALS         256     /* one-sided signals for each sender */
#define SYMM_SITE_NAME_BYTES 96      /* of a call site's name in a pad, with its NUL */
#define SYMM_INLINE_BYTES    56      /* payload in the word's own cache line */
#define SYMM_SLOT_BYTES      118784  /* 29 pages of 4 KiB */
#define SYMM_SLOT_DATA_BYTES 118528  /* staged payload of one round */
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
    uint32_t reserved[15];
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
 */
struct symm_device_channel {
    uint64_t call[2][SYMM_DEVICE_RANKS];
    uint64_t round[SYMM_DEVICE_BLOCKS][2][SYMM_DEVICE_RANKS];
};

struct symm_device_pads {
    struct symm_device_channel channel[SYMM_CHANNELS];
};

/* Sleepers on words of this pad; a hint, written by anybody. */
struct symm_wake {
    uint32_t sleepers;
    uint32_t reserved[15];
};

struct symm_pad {
    union {
        struct symm_channel channel[SYMM_HOST_CHANNELS]; /* host backend */
        struct symm_device_pads device;                  /* CUDA backend */
    };
    uint64_t signals[SYMM_MAX_LOCAL_RANKS][SYMM_SIGNALS]; /* [sender]: tag, count */
    struct symm_wake wake[SYMM_HOST_CHANNELS + 1];        /* the last one for signals */
};

/* ---- A team as kernels see it ---------------------------------------------------- */

/* Rounds and calls are counted in device memory by the kernels themselves, so that a
 * replayed graph is right. Rounds run from 0 to SYMM_ROUND_LIMIT - 1 and begin again: the
 * limit is divisible by 2 and 3, the numbers of slots that protocols rotate through. */
#define SYMM_ROUND_LIMIT 3221225472u /* 3 x 2^30 */

struct symm_device_block {
    uint32_t round; /* of the last round in which this block has begun */
    uint32_t call;  /* of the last call */
};

/* Local memory of one rank: never read by peers. */
struct symm_device_state {
    /* [16 * channel]: not 0: kernels do nothing. The last one is for one-sided calls on
     * streams that have no channel. */
    uint32_t failed[(SYMM_CHANNELS + 1) * 16];
    struct symm_device_block block[SYMM_CHANNELS][SYMM_DEVICE_BLOCKS];
    uint32_t sent[SYMM_DEVICE_RANKS][SYMM_SIGNALS];    /* signals, by receiver */
    uint32_t awaited[SYMM_DEVICE_RANKS][SYMM_SIGNALS]; /* by sender */
    uint32_t done[SYMM_DEVICE_RANKS][SYMM_SIGNALS];    /* blocks of a put under way */
    /* Copies of record->abort, which streams make behind each wait of theirs and the
     * watcher when it sets that: not 0: kernels of all channels do nothing. */
    uint32_t told;
    uint32_t reserved[15];
};

/* The first failure of a team's kernels, in memory of the host; state is written last. */
struct symm_device_record {
    uint32_t state;   /* 0: none; else minus the symm_status */
    uint32_t claimed; /* who sets it from 0 to 1 writes the record */
    uint32_t abort;   /* set by the host: minus the status with which waits shall end */
    uint32_t channel; /* SYMM_CHANNELS: a one-sided signal */
    uint32_t tag;     /* of the call that failed */
    uint32_t counter; /* its call number, or the signal's count */
    uint32_t missing; /* bit m: member m had not arrived */
    uint32_t signal;
    uint64_t seen[SYMM_DEVICE_RANKS]; /* last words read, by member */
    uint64_t peeked; /* a word of the device that the host has asked for */
    uint32_t reserved[6];
};

/* All that device code needs of a team. symm_team_device gives a copy in device memory. */
struct symm_device_team {
    uint32_t layout; /* SYMM_DEVICE_LAYOUT */
    int32_t rank, size;
    uint32_t reserved;
    uint64_t timeout;              /* nanoseconds that a wait may last */
    uint64_t pad;                  /* offset of the pad in every heap */
    char *base[SYMM_DEVICE_RANKS]; /* heap of each member, as mapped here */
    struct symm_device_state *state;
    struct symm_device_record *record;
};

#if defined(__cplusplus)
#define SYMM_LAYOUT_ASSERT(condition) static_assert(condition, "layout")
#else
#define SYMM_LAYOUT_ASSERT(condition) _Static_assert(condition, "layout")
#endif
SYMM_LAYOUT_ASSERT(sizeof(struct symm_site) == 192);
SYMM_LAYOUT_ASSERT(sizeof(struct symm_slot) == SYMM_SLOT_BYTES);
SYMM_LAYOUT_ASSERT(sizeof(struct symm_device_pads) <=
                   SYMM_HOST_CHANNELS * sizeof(struct symm_channel));
SYMM_LAYOUT_ASSERT(sizeof(struct symm_pad) <= SYMM_PAD_BYTES);
SYMM_LAYOUT_ASSERT(sizeof(struct symm_device_record) == 128);

SYMM_DEVICE_FN uint64_t symm_device_word(uint32_t tag, uint32_t epoch)
{
    return (uint64_t)tag << 32 | epoch;
}

/* Release: everything this thread did before is visible to who acquires the word. */
SYMM_DEVICE_FN void symm_device_word_store(uint64_t *word, uint64_t value)
{
#if SYMM_DEVICE_PTX
    __asm__ __volatile__("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value)
                         : "memory");
#else
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
#endif
}

/* Acquire: pairs with symm_device_word_store of the word's one writer. */
SYMM_DEVICE_FN uint64_t symm_device_word_load(const uint64_t *word)
{
#if SYMM_DEVICE_PTX
    uint64_t value;

    __asm__ __volatile__("ld.acquire.sys.global.u64 %0, [%1];"
                         : "=l"(value)
                         : "l"(word)
                         : "memory");
    return value;
#else
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
#endif
}

/* Has `epoch` reached `wanted`? Epochs wrap: valid while they are less than 2^31 apart. */
SYMM_DEVICE_FN int symm_device_epoch_reached(uint32_t epoch, uint32_t wanted)
{
    return (int32_t)(epoch - wanted) >= 0;
}

/* The same address in a peer's heap: ranks are the world's, stride is symm_info.heap_bytes. */
SYMM_DEVICE_FN void *symm_device_peer_address(const void *local, int rank, int peer,
                                              uint64_t stride)
{
    return (void *)((uintptr_t)local +
                    (uintptr_t)((int64_t)(peer - rank) * (int64_t)stride));
}

/* Asks for a line that will be written: a hint, so that the store finds it exclusive. */
SYMM_DEVICE_FN void symm_device_prefetch_write(const void *line)
{
#if SYMM_DEVICE_PTX
    __asm__ __volatile__("prefetch.global.L2 [%0];" ::"l"(line));
#elif defined(__x86_64__)
    __asm__ __volatile__("prefetchw %0" ::"m"(*(const char *)line));
#else
    __builtin_prefetch(line, 1, 3);
#endif
}

/* Tells the processor that this is a polling loop; an emulator of kernels may want to know. */
SYMM_DEVICE_FN void symm_device_pause(void)
{
#if defined(SYMM_DEVICE_PAUSE)
    SYMM_DEVICE_PAUSE();
#elif SYMM_DEVICE_PTX
    /* the scheduler runs other warps meanwhile */
#elif defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield" ::: "memory");
#endif
}

/* ---- For kernels and code generators --------------------------------------------- */

/*
 * What a kernel that is not the library's own may do with a team on GPUs. `team` is what
 * symm_team_device gave; `peer` is a rank of the team, 0 <= peer < size, `signal` is less
 * than SYMM_SIGNALS, `channel` than SYMM_CHANNELS: that is not checked here. Functions that
 * return int: 0, or minus a symm_status; then the team's record says what happened, and the
 * kernel should write no more and end. They are for one calling thread:
 *  - before it, the block's other threads reach a barrier of the block (their stores are
 *    then covered by this thread's release); after it another one, before they use what
 *    arrived. Every thread of the block must take the same way after an error.
 *  - a channel belongs to one stream; kernels of different streams never share one.
 */
#define SYMM_DEVICE_TIMEOUT  7u    /* minus SYMM_ERR_TIMEOUT */
#define SYMM_DEVICE_MISMATCH 9u    /* minus SYMM_ERR_MISMATCH */
#define SYMM_DEVICE_ABORTED  11u   /* minus SYMM_ERR_ABORTED */
#define SYMM_DEVICE_POLLS    2048u /* of a wait, between two looks at the time */

/* Whether this code was made for the layout that the team has; ask once before all else. */
SYMM_DEVICE_FN int symm_device_layout_ok(const struct symm_device_team *team)
{
    return team->layout == SYMM_DEVICE_LAYOUT && team->rank >= 0 &&
           team->rank < team->size && team->size <= SYMM_DEVICE_RANKS;
}

/* Where an address of this rank's heap lies in the peer's. Loads and stores of any kind
 * work there; a put is: store there, then symm_device_signal. */
SYMM_DEVICE_FN void *symm_device_peer(const struct symm_device_team *team,
                                      const void *ptr, int peer)
{
    return team->base[peer] + ((const char *)ptr - team->base[team->rank]);
}

SYMM_DEVICE_FN struct symm_pad *symm_device_pad(const struct symm_device_team *team,
                                                int member)
{
    return (struct symm_pad *)(void *)(team->base[member] + team->pad);
}

#if !SYMM_DEVICE_PTX
/* clock_gettime under a name of its own: this header includes no other. */
extern int symm__device_clock(int clock, long *now) __asm__("clock_gettime");
#endif

/* Nanoseconds of a clock that never goes back. */
SYMM_DEVICE_FN uint64_t symm__device_time(void)
{
#if SYMM_DEVICE_PTX
    uint64_t now;

    __asm__ __volatile__("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    return now;
#else
    long now[2] = {0, 0};

    symm__device_clock(1, now); /* CLOCK_MONOTONIC */
    return (uint64_t)now[0] * 1000000000u + (uint64_t)now[1];
#endif
}

SYMM_DEVICE_FN uint32_t symm__device_load(const uint32_t *word)
{
#if SYMM_DEVICE_PTX
    uint32_t value;

    __asm__ __volatile__("ld.relaxed.sys.global.u32 %0, [%1];"
                         : "=r"(value)
                         : "l"(word)
                         : "memory");
    return value;
#else
    return __atomic_load_n(word, __ATOMIC_RELAXED);
#endif
}

SYMM_DEVICE_FN void symm__device_store(uint32_t *word, uint32_t value)
{
#if SYMM_DEVICE_PTX
    __asm__ __volatile__("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value)
                         : "memory");
#else
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
#endif
}

SYMM_DEVICE_FN void symm__device_store_relaxed(uint32_t *word, uint32_t value)
{
#if SYMM_DEVICE_PTX
    __asm__ __volatile__("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value)
                         : "memory");
#else
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
#endif
}

SYMM_DEVICE_FN uint32_t symm__device_swap(uint32_t *word, uint32_t value)
{
#if SYMM_DEVICE_PTX
    uint32_t old;

    __asm__ __volatile__("atom.relaxed.sys.global.exch.b32 %0, [%1], %2;"
                         : "=r"(old)
                         : "l"(word), "r"(value)
                         : "memory");
    return old;
#else
    return __atomic_exchange_n(word, value, __ATOMIC_RELAXED);
#endif
}

/* Why a wait that began at *begin (0: not yet known) must end; 0: it may go on. */
SYMM_DEVICE_FN uint32_t symm__device_look(const struct symm_device_team *team,
                                          uint64_t *begin)
{
    uint32_t why = symm__device_load(&team->record->abort);
    uint64_t now = symm__device_time();

    if (why != 0)
        return why;
    if (*begin == 0)
        *begin = now;
    return now - *begin >= team->timeout ? SYMM_DEVICE_TIMEOUT : 0;
}

/* Raises `signal` for the count-th time; the caller keeps the count: before, or behind if
 * nothing but a kernel's end comes between (the release would wait for the store). */
SYMM_DEVICE_FN void symm__device_raise(const struct symm_device_team *team, int peer,
                                       int signal, uint32_t tag, uint32_t count)
{
    symm_device_word_store(&symm_device_pad(team, peer)->signals[team->rank][signal],
                           symm_device_word(tag, count));
}

/*
 * Raises `signal` at the peer: all that this thread has done, and what the block's other
 * threads did before the barrier ahead of this call, is visible to who waits for it. The
 * tag names the call site; 0: not compared. One thread at a time for each (peer, signal).
 */
SYMM_DEVICE_FN void symm_device_signal(const struct symm_device_team *team, int peer,
                                       int signal, uint32_t tag)
{
    uint32_t count = team->state->sent[peer][signal] + 1;

    team->state->sent[peer][signal] = count;
    symm__device_raise(team, peer, signal, tag, count);
}

/* Which status must every call of this channel end with; 0: none. A load of both words. */
SYMM_DEVICE_FN uint32_t symm__device_failed(const struct symm_device_team *team,
                                            uint32_t channel)
{
    uint32_t failed = symm__device_load(&team->state->failed[16 * channel]);
    uint32_t told = symm__device_load(&team->state->told);

    return failed != 0 ? failed : told;
}

/* Marks all channels that have not failed yet: kernels behind do nothing. */
SYMM_DEVICE_FN void symm__device_halt(const struct symm_device_team *team, uint32_t why)
{
#if SYMM_DEVICE_PTX
#pragma unroll 1
#endif
    for (int c = 0; c <= SYMM_CHANNELS; c++) {
        uint32_t *failed = &team->state->failed[16 * c];

        if (symm__device_load(failed) == 0)
            symm__device_store_relaxed(failed, why);
    }
}

/* A wait that has ended without its signal: all channels' marks, then the record. */
SYMM_DEVICE_FN void symm__device_unmet(const struct symm_device_team *team, int peer,
                                       int signal, uint32_t tag, uint32_t count,
                                       uint64_t seen, uint32_t why)
{
    struct symm_device_record *record = team->record;

    symm__device_halt(team, SYMM_DEVICE_ABORTED); /* the record says what happened */
    if (symm__device_swap(&record->claimed, 1) != 0)
        return;
    record->channel = SYMM_CHANNELS;
    record->tag = tag;
    record->counter = count;
    record->missing = 1u << peer;
    record->signal = (uint32_t)signal;
    record->seen[peer] = seen;
    symm__device_store(&record->state, why);
}

/* Where the peer's raisings of `signal` are counted. */
SYMM_DEVICE_FN const uint64_t *symm__device_word(const struct symm_device_team *team,
                                                 int peer, int signal)
{
    return &symm_device_pad(team, team->rank)->signals[peer][signal];
}

/* Waits for the count-th raising of `signal`; the caller has kept the count, and has just
 * loaded the word: `seen`. */
SYMM_DEVICE_FN int symm__device_await(const struct symm_device_team *team, int peer,
                                      int signal, uint32_t tag, uint32_t count,
                                      uint64_t seen)
{
    uint32_t polls = 0, why = 0, theirs;
    uint64_t begin = 0;

    while (!symm_device_epoch_reached((uint32_t)seen, count) && why == 0) {
        symm_device_pause();
        if (++polls % SYMM_DEVICE_POLLS == 0)
            why = symm__device_look(team, &begin);
        seen = symm_device_word_load(symm__device_word(team, peer, signal));
    }
    if (symm_device_epoch_reached((uint32_t)seen,
                                  count)) /* it may have come after the look */
        why = 0;
    theirs = (uint32_t)(seen >> 32);
    /* a later signal has overwritten the awaited one's tag: then there is none to compare */
    if (why == 0 && (uint32_t)seen == count && tag != 0 && theirs != 0 && theirs != tag)
        why = SYMM_DEVICE_MISMATCH;
    if (why == 0)
        team->state->awaited[peer][signal] = count;
    else
        symm__device_unmet(team, peer, signal, tag, count, seen, why);
    return (int)why;
}

/*
 * Waits for the peer's next raising of `signal`: the k-th wait for the k-th signal. Bounded
 * by the team's timeout. SYMM_DEVICE_MISMATCH: it was raised with another tag.
 */
SYMM_DEVICE_FN int symm_device_signal_wait(const struct symm_device_team *team,
                                           int peer, int signal, uint32_t tag)
{
    return symm__device_await(
        team, peer, signal, tag, team->state->awaited[peer][signal] + 1,
        symm_device_word_load(symm__device_word(team, peer, signal)));
}

/* One poll over all members: which have not arrived at `word`; *why: 0, or what is wrong. */
SYMM_DEVICE_FN uint32_t symm__device_missing(const struct symm_device_team *team,
                                             const uint64_t *words, uint64_t word,
                                             uint32_t *why)
{
    uint32_t missing = 0;

    for (int m = 0; m < team->size; m++) {
        uint64_t seen =
            symm_device_word_load(&words[m]); /* pairs with the member's store */

        if (seen == word)
            continue;
        missing |= 1u << m;
        if ((uint32_t)seen == (uint32_t)word && seen != 0)
            *why = seen >> 32 == 0 ? SYMM_DEVICE_ABORTED : SYMM_DEVICE_MISMATCH;
    }
    return missing;
}

/*
 * A barrier of block `block` of `blocks` with the same block of every member: one round of
 * the channel. All blocks of the kernel call it equally often, on all ranks with the same
 * `blocks` (1 .. SYMM_DEVICE_BLOCKS) and tag (not 0). What a member stored before it is
 * visible to all after it. Bounded by the team's timeout.
 */
SYMM_DEVICE_FN int symm_device_barrier(const struct symm_device_team *team,
                                       uint32_t channel, uint32_t block,
                                       uint32_t blocks, uint32_t tag)
{
    struct symm_device_block *state = team->state->block[channel];
    struct symm_device_record *record = team->record;
    uint32_t *failed = &team->state->failed[16 * channel];
    uint32_t round = state[block].round + 1, polls = 0, missing, why;
    uint64_t *words, word, begin = 0;

    why = symm__device_failed(team, channel);
    if (why != 0)
        return (int)why;
    round = round == SYMM_ROUND_LIMIT ? 0 : round;
    word = symm_device_word(tag, round);
    for (int m = 0; m < team->size; m++) /* release: pairs with symm__device_missing */
        symm_device_word_store(
            &symm_device_pad(team, m)->device.channel[channel].round[block][round & 1]
                                                                    [team->rank],
            word);
    words = symm_device_pad(team, team->rank)
                ->device.channel[channel]
                .round[block][round & 1];
    while ((missing = symm__device_missing(team, words, word, &why)) != 0 && why == 0) {
        symm_device_pause();
        if (++polls % SYMM_DEVICE_POLLS == 0 &&
            (why = symm__device_failed(team, channel)) == 0)
            why = symm__device_look(team, &begin);
    }
    if (missing == 0) {
        state[block].round = round;
        for (uint32_t b = blocks; block == 0 && b < SYMM_DEVICE_BLOCKS; b++)
            state[b].round = round;
        return 0;
    }
    /* The arrival is taken back; after a mismatch peers shall see it for themselves. */
    for (int m = 0; m < team->size && why != SYMM_DEVICE_MISMATCH; m++)
        symm_device_word_store(
            &symm_device_pad(team, m)->device.channel[channel].round[block][round & 1]
                                                                    [team->rank],
            symm_device_word(0, round));
    if (symm__device_swap(&record->claimed, 1) == 0) {
        record->channel = channel;
        record->tag = tag;
        record->counter = round;
        record->missing = missing;
        for (int m = 0; m < team->size; m++)
            record->seen[m] = symm_device_word_load(&words[m]);
        symm__device_store(&record->state, why);
    }
    symm__device_store(failed, why);
    return (int)why;
}

#ifdef __cplusplus
}
#endif
#endif
