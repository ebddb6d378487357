/* SPDX-License-Identifier: MIT */
/*
 * device.h - the primitives on a team's signal pad (symm/pad_layout.h), for kernels and code
 * generators. One text for host C and C++ (gcc, clang), for nvcc, and for clang that makes
 * code for NVPTX; the team is an argument, there is nothing to initialise. The functions are
 * also in libsymm_device.bc (symm/device_bitcode.h) for generators that link LLVM bitcode.
 *
 * Round e of a channel: write what slot[e & 1] carries, then symm_device_word_store its word
 * with epoch e (release); wait until every member's slot[e & 1] holds exactly that word
 * (acquire). Two slots suffice: a rank writes round e only after it has seen every peer's e -
 * 1, and a peer stores e - 1 after it has finished reading round e - 2. The full argument,
 * also for weakly ordered processors, is in docs/memory-model.md.
 */
#ifndef SYMM_DEVICE_H
#define SYMM_DEVICE_H

#include <stdint.h>

#include "symm/pad_layout.h"

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

SYMM_DEVICE_FN uint64_t symm_device_word(uint32_t tag, uint32_t epoch)
{
    return (uint64_t)tag << 32 | epoch;
}

/* Release: everything this thread did before is visible to the thread that acquires the word. */
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

/* The same address in a peer's heap. `rank` and `peer` are both on this host; they count the
 * world's ranks of this host in the order of world ranks (in a job of one host: world ranks).
 * stride is symm_info.heap_bytes. */
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

/* Tells the processor that this is a polling loop; an emulator of kernels (SYMM_DEVICE_PAUSE) may
 * run another thread. */
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
 *    arrived. After an error every thread of the block must take the same branch.
 *  - a channel belongs to one stream; kernels of different streams never share one.
 */
#define SYMM_DEVICE_TIMEOUT  7u  /* minus SYMM_ERR_TIMEOUT */
#define SYMM_DEVICE_MISMATCH 9u  /* minus SYMM_ERR_MISMATCH */
#define SYMM_DEVICE_ABORTED  11u /* minus SYMM_ERR_ABORTED */
#if !defined(SYMM_DEVICE_POLLS)
#define SYMM_DEVICE_POLLS 2048u /* of a wait, between two readings of the clock */
#endif

/* Whether this code was compiled for the team's layout; call it once, before all else. */
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

/* The arrival words of a block's round in a member's pad: one for each member. */
SYMM_DEVICE_FN uint64_t *symm__device_round_words(const struct symm_device_team *team,
                                                  int member, uint32_t channel,
                                                  uint32_t block, uint32_t round)
{
    struct symm_pad *pad = symm_device_pad(team, member);

    if (team->size > SYMM_FEW_RANKS)
        return ((struct symm_device_wide_pads *)(void *)((char *)pad + SYMM_PAD_BYTES))
            ->channel[channel]
            .round[block][round & 1];
    return pad->device.channel[channel].round[block][round & 1];
}

/* The words of a call in a member's pad: one for each member. */
SYMM_DEVICE_FN uint64_t *symm__device_call_words(const struct symm_device_team *team,
                                                 int member, uint32_t channel,
                                                 uint32_t call)
{
    struct symm_pad *pad = symm_device_pad(team, member);

    if (team->size > SYMM_FEW_RANKS)
        return ((struct symm_device_wide_pads *)(void *)((char *)pad + SYMM_PAD_BYTES))
            ->channel[channel]
            .call[call & 1];
    return pad->device.channel[channel].call[call & 1];
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
SYMM_DEVICE_FN uint32_t symm__device_poll(const struct symm_device_team *team,
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

/* Raises `signal` for the count-th time. The caller stores the count itself: before this call, or
 * after it if only the kernel's end follows (the release would wait for an earlier store). */
SYMM_DEVICE_FN void symm__device_raise(const struct symm_device_team *team, int peer,
                                       int signal, uint32_t tag, uint32_t count)
{
    symm_device_word_store(&symm_device_pad(team, peer)->signals[team->rank][signal],
                           symm_device_word(tag, count));
}

/*
 * Raises `signal` at the peer: all that this thread has done, and what the block's other
 * threads did before the barrier ahead of this call, is visible to the rank that waits for it. The
 * tag names the call site; 0: not compared. One thread at a time for each (peer, signal).
 */
SYMM_DEVICE_FN void symm_device_signal(const struct symm_device_team *team, int peer,
                                       int signal, uint32_t tag)
{
    uint32_t count = team->state->sent[peer][signal] + 1;

    team->state->sent[peer][signal] = count;
    symm__device_raise(team, peer, signal, tag, count);
}

/* The status with which every call of this channel must end; 0: none. Loads both words. */
SYMM_DEVICE_FN uint32_t symm__device_failed(const struct symm_device_team *team,
                                            uint32_t channel)
{
    uint32_t failed = symm__device_load(&team->state->failed[16 * channel]);
    uint32_t reported = symm__device_load(&team->state->reported);

    return failed != 0 ? failed : reported;
}

/* Marks all channels that have not failed yet: later kernels do nothing. */
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
    symm__device_store_relaxed(&team->state->stopped, why);
}

/* Fails a wait that ended without its signal: marks all channels, then writes the record. */
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
    record->missing[peer / 32] = 1u << peer % 32;
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

/* Waits for the count-th raising of `signal`. The caller has stored the count; `seen` is the
 * word, which it has just loaded. */
SYMM_DEVICE_FN int symm__device_await(const struct symm_device_team *team, int peer,
                                      int signal, uint32_t tag, uint32_t count,
                                      uint64_t seen)
{
    uint32_t polls = 0, why = 0, theirs;
    uint64_t begin = 0;

    while (!symm_device_epoch_reached((uint32_t)seen, count) && why == 0) {
        symm_device_pause();
        if (++polls % SYMM_DEVICE_POLLS == 0)
            why = symm__device_poll(team, &begin);
        seen = symm_device_word_load(symm__device_word(team, peer, signal));
    }
    if (symm_device_epoch_reached((uint32_t)seen,
                                  count)) /* it may have come after the last poll */
        why = 0;
    theirs = (uint32_t)(seen >> 32);
    /* after a later signal the word no longer has the awaited signal's tag: nothing to compare */
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

/* One poll over all members: whether some have not arrived at `word`, and which, by bits; *why: 0,
 * or what is wrong. */
SYMM_DEVICE_FN int symm__device_missing(const struct symm_device_team *team,
                                        const uint64_t *words, uint64_t word,
                                        uint32_t missing[SYMM_MEMBER_WORDS],
                                        uint32_t *why)
{
    int count = 0;

    for (int w = 0; w < SYMM_MEMBER_WORDS; w++)
        missing[w] = 0;

    for (int m = 0; m < team->size; m++) {
        uint64_t seen =
            symm_device_word_load(&words[m]); /* pairs with the member's store */

        if (seen == word)
            continue;
        count++;
        missing[m / 32] |= 1u << m % 32;
        if ((uint32_t)seen == (uint32_t)word && seen != 0)
            *why = seen >> 32 == 0 ? SYMM_DEVICE_ABORTED : SYMM_DEVICE_MISMATCH;
    }
    return count;
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
    uint32_t round = state[block].round + 1, polls = 0, why;
    uint32_t missing[SYMM_MEMBER_WORDS];
    int count;
    uint64_t *words, word, begin = 0;

    why = symm__device_failed(team, channel);
    if (why != 0)
        return (int)why;
    round = round == SYMM_ROUND_LIMIT ? 0 : round;
    word = symm_device_word(tag, round);
    for (int m = 0; m < team->size; m++) /* release: pairs with symm__device_missing */
        symm_device_word_store(
            &symm__device_round_words(team, m, channel, block, round)[team->rank],
            word);
    words = symm__device_round_words(team, team->rank, channel, block, round);
    while ((count = symm__device_missing(team, words, word, missing, &why)) != 0 &&
           why == 0) {
        symm_device_pause();
        if (++polls % SYMM_DEVICE_POLLS == 0 &&
            (why = symm__device_failed(team, channel)) == 0)
            why = symm__device_poll(team, &begin);
    }
    if (count == 0) {
        state[block].round = round;
        for (uint32_t b = blocks; block == 0 && b < SYMM_DEVICE_BLOCKS; b++)
            state[b].round = round;
        return 0;
    }
    /* Cancels the arrival; after a mismatch it stays, so that peers find the mismatch too. */
    for (int m = 0; m < team->size && why != SYMM_DEVICE_MISMATCH; m++)
        symm_device_word_store(
            &symm__device_round_words(team, m, channel, block, round)[team->rank],
            symm_device_word(0, round));
    if (symm__device_swap(&record->claimed, 1) == 0) {
        record->channel = channel;
        record->tag = tag;
        record->counter = round;
        for (int w = 0; w < SYMM_MEMBER_WORDS; w++)
            record->missing[w] = missing[w];
        for (int m = 0; m < team->size; m++)
            record->seen[m] = symm_device_word_load(&words[m]);
        symm__device_store(&record->state, why);
    }
    symm__device_store(failed, why);
    /* for other teams' calls behind one-sided calls without a channel */
    symm__device_store_relaxed(&team->state->failed[16 * SYMM_CHANNELS],
                               SYMM_DEVICE_ABORTED);
    symm__device_store_relaxed(&team->state->stopped, why);
    return (int)why;
}

#ifdef __cplusplus
}
#endif
#endif
