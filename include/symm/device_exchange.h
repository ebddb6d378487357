/* SPDX-License-Identifier: MIT */
/*
 * device_exchange.h - a one-shot exchange between the kernels of all ranks, for kernels
 * that fuse their own tail to it: a rank pushes its units of 8 bytes to all ranks, waits for
 * theirs, and goes on with all ranks' values in registers. One hop; no value passes through the
 * library's scratch. As symm/device.h: one text for host C and C++, nvcc and clang for NVPTX. The
 * team is one on GPUs.
 *
 * The workspace is one symmetric buffer of symm_device_exchange_bytes(size, units)
 * bytes (symm_buffer_alloc, then symm_rendezvous). Set it to zero on all ranks, then
 * call symm_barrier, before the first exchange. It begins with this rank's counters of
 * rounds, so a replayed graph counts by itself. It serves one stream at a time, and
 * kernels of one rank in stream order.
 *
 * An exchange is one round, of every block with the same block of all ranks:
 *     struct symm_device_exchange x = {memory, room, units, block, blocks, tag, 0};
 *     symm_device_exchange_begin(team, &x);               each thread: which round it is
 *     symm_device_exchange_tell(team, &x, peer);          one thread for each rank
 *     symm_device_exchange_push(team, &x, peer, unit, value);         any thread
 *     symm_device_exchange_wait(team, &x, peer, unit, &value);        any thread
 *     symm_device_exchange_meet(team, &x, peer);          one thread for each rank
 *     ... a barrier of the block ...
 *     symm_device_exchange_end(team, &x);                 one thread of the block
 * All but push and tell return 0 or minus a symm_status; after a failure the thread
 * pushes and waits no more, and goes to the barrier. C++ for GPUs has all of it as one
 * function, symm_device_exchange_rows. A whole program: bench/fused_gelu.cu.
 *
 * Rules. All ranks make the same exchanges on a workspace: blocks, units and tag. What
 * is pushed is waited for. Several exchanges in one kernel: each unit is taken by the
 * same block in all of them, and a barrier of the block lies between an end and the
 * next begin. Under dependent launch: griddepcontrol.wait comes before begin, since the
 * kernel before may be an exchange too; griddepcontrol.launch_dependents may come at
 * any time, but the next kernel then holds its room on the device while this one waits.
 * An exchange orders nothing but its units: other stores need symm_device_signal or
 * symm_device_barrier. A block waits for the same block of its peers: start no more
 * blocks than the device runs at a time.
 *
 * Failure. A wait lasts for team->timeout at most. It also ends when the team's record
 * says so, when a peer has given up, and when the peer's announcement (tell) has
 * another tag, another number of blocks or of units: SYMM_DEVICE_MISMATCH. meet makes
 * this comparison in every exchange, so ranks that differ never all succeed. The first
 * failure goes to the team's record: the next call of the library on the team returns
 * it as a sentence.
 *
 * Why it is right. A packet is 16 bytes, {d0, f, d1, f}: 8 bytes of payload of any
 * bits; f = round + 1, never 0. It is stored and loaded as two relaxed halves of 8
 * bytes, each atomic and judged by its own f: nothing else is ordered by it, and
 * nothing else needs to be. A slot holds a packet of each (sender, unit); two slots, by
 * round & 1. Each packet has one writer, the sender's thread, and is read by the owner
 * of the memory. A's block b writes unit i of round e + 2 over A's unit i of round e at
 * P. Has P read that one?
 *  (1) A's rounds e + 1 and e + 2 are in one kernel. Then A's block b has met P's block
 *      b in e + 1. P's block b announced e + 1 after a barrier of the block that
 *      followed its waits of round e; if P's round e was in the same kernel, block b
 *      read unit i in it, else that kernel was over.
 *  (2) A's round e + 1 was in an earlier kernel. That kernel is over, so each block of it has met
 *      the same block of P in e + 1, and each of those had read round e, or the kernel of round e
 *      was over.
 * Announcements are packets by the same rule. A load that has returned its value is not
 * made again, and no processor stores before the loads that the store depends on: so no
 * fence is needed. docs/memory-model.md has the argument. A flag would be mistaken only
 * for that of exactly 3 x 2^30 rounds ago, if the packet was not written in between.
 */
#ifndef SYMM_DEVICE_EXCHANGE_H
#define SYMM_DEVICE_EXCHANGE_H

#include "symm/device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SYMM_DEVICE_UNITS   16777215u /* of an exchange at most: 2^24 - 1 */
#define SYMM_DEVICE_INVALID 1u        /* minus SYMM_ERR_INVALID */

/* Rarely called: not inlined. */
#if defined(__CUDACC__)
#define SYMM_DEVICE_COLD static __host__ __device__ __noinline__
#else
#define SYMM_DEVICE_COLD static __attribute__((noinline, unused))
#endif

/* The beginning of a workspace. Lines of 32 packets follow: [unit / 32][round &
 * 1][sender], so that a warp's packets for a peer are 512 bytes in a row, whatever the
 * size of the buffer. */
struct symm_device_workspace {
    /* of each block, the last one that has ended; own */
    uint32_t round[SYMM_DEVICE_BLOCKS];
    uint64_t told[SYMM_DEVICE_BLOCKS][2][SYMM_DEVICE_RANKS][2]; /* packets, by sender */
};
SYMM_LAYOUT_ASSERT(sizeof(struct symm_device_workspace) % 128 == 0);

/* One block's part of an exchange, as a thread has it. */
struct symm_device_exchange {
    void *memory;           /* this rank's copy of the workspace */
    uint32_t room;          /* units that the workspace has room for */
    uint32_t units;         /* of this exchange: numbers 0 .. units - 1 */
    uint32_t block, blocks; /* 1 .. SYMM_DEVICE_BLOCKS */
    uint32_t tag;           /* of the call site, not 0 */
    uint32_t round;         /* set by symm_device_exchange_begin */
};

/* Of a workspace for `size` ranks that exchange up to `units` units of 8 bytes each. */
SYMM_DEVICE_FN uint64_t symm_device_exchange_bytes(int size, uint64_t units)
{
    return sizeof(struct symm_device_workspace) +
           (units + 31) / 32 * 2 * (uint64_t)size * 32 * 16;
}

/* ---- Packets --------------------------------------------------------------------- */

SYMM_DEVICE_FN void symm__device_packet_store(uint64_t *packet, uint64_t value,
                                              uint32_t round)
{
    const uint64_t flag = (uint64_t)(round + 1) << 32;
    const uint64_t low = flag | (uint32_t)value, high = flag | value >> 32;

#if SYMM_DEVICE_PTX
    __asm__ __volatile__("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(packet),
                         "l"(low), "l"(high)
                         : "memory");
#else
    __atomic_store_n(&packet[0], low, __ATOMIC_RELAXED);
    __atomic_store_n(&packet[1], high, __ATOMIC_RELAXED);
#endif
}

/* Whether the packet of the round is here; *value then. */
SYMM_DEVICE_FN int symm__device_packet_load(const uint64_t *packet, uint32_t round,
                                            uint64_t *value)
{
    uint64_t low, high;

#if SYMM_DEVICE_PTX
    __asm__ __volatile__("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                         : "=l"(low), "=l"(high)
                         : "l"(packet)
                         : "memory");
#else
    low = __atomic_load_n(&packet[0], __ATOMIC_RELAXED);
    high = __atomic_load_n(&packet[1], __ATOMIC_RELAXED);
#endif
    *value = (uint32_t)low | high << 32;
    return (uint32_t)(low >> 32) == round + 1 && (uint32_t)(high >> 32) == round + 1;
}

/* Where a sender's unit of a round lies in a workspace, in bytes. */
SYMM_DEVICE_FN uint64_t symm__device_unit_offset(int size, uint32_t round, int sender,
                                                 uint32_t unit)
{
#if defined(SYMM_PLANT_EXCHANGE_SLOT) /* for tests: a slot too few */
    const uint64_t slot = round & 0;
#else
    const uint64_t slot = round & 1;
#endif
    const uint64_t line =
        ((uint64_t)(unit >> 5) * 2 + slot) * (uint64_t)size + (uint64_t)sender;

    return sizeof(struct symm_device_workspace) + 16 * (32 * line + (unit & 31));
}

SYMM_DEVICE_FN uint64_t *symm__device_unit_at(void *memory, int size, uint32_t round,
                                              int sender, uint32_t unit)
{
    return (uint64_t *)(void *)((char *)memory +
                                symm__device_unit_offset(size, round, sender, unit));
}

SYMM_DEVICE_FN uint64_t *symm__device_told_at(void *memory, uint32_t block,
                                              uint32_t round, int sender)
{
    return ((struct symm_device_workspace *)memory)->told[block][round & 1][sender];
}

/* What a rank announces; 0: it has given up. */
SYMM_DEVICE_FN uint64_t symm__device_told(const struct symm_device_exchange *x)
{
    return (uint64_t)x->tag << 32 | (uint64_t)x->blocks << 24 | x->units;
}

/* ---- Failure --------------------------------------------------------------------- */

/* Replaces the announcement at all ranks; 0: it is taken back, so that peers do not
 * wait for their timeout. */
SYMM_DEVICE_FN void symm__device_exchange_retell(const struct symm_device_team *team,
                                                 const struct symm_device_exchange *x,
                                                 uint64_t told)
{
    for (int m = 0; m < team->size; m++)
        symm__device_packet_store(
            symm__device_told_at(symm_device_peer(team, x->memory, m), x->block,
                                 x->round, team->rank),
            told, x->round);
}

/* Fails a wait that ended without its packet. After a mismatch it announces this exchange at all
 * ranks, so that they find the mismatch too: the threads that were to announce it may have
 * stopped before. */
SYMM_DEVICE_FN int symm__device_exchange_fail(const struct symm_device_team *team,
                                              const struct symm_device_exchange *x,
                                              int peer, uint64_t mine, uint64_t theirs,
                                              uint32_t why)
{
    struct symm_device_record *record = team->record;

    symm__device_exchange_retell(team, x, why == SYMM_DEVICE_MISMATCH ? mine : 0);
    symm__device_halt(team, SYMM_DEVICE_ABORTED); /* the record says what happened */
    if (symm__device_swap(&record->claimed, 1) != 0)
        return (int)why;
    record->channel = SYMM_CHANNELS;
    record->signal = SYMM_SIGNALS; /* none: an exchange */
    record->tag = (uint32_t)(mine >> 32);
    record->counter = x->round;
    record->workspace = (uint64_t)((const char *)x->memory - team->base[team->rank]);
    record->missing[peer / 32] = 1u << peer % 32;
    record->seen[team->rank] = mine;
    record->seen[peer] = theirs;
    symm__device_store(&record->state, why);
    return (int)why;
}

/* A wait ends because of another failure of this rank, which has been recorded. */
SYMM_DEVICE_FN int symm__device_exchange_stop(const struct symm_device_team *team,
                                              const struct symm_device_exchange *x,
                                              uint32_t failed)
{
    const uint32_t state = symm__device_load(&team->record->state);

    if (state != 0 && state != SYMM_DEVICE_MISMATCH)
        symm__device_exchange_retell(team, x, 0);
    return (int)failed;
}

/* Whether the peer has given up, in this round or in the one before. */
SYMM_DEVICE_FN int symm__device_gave_up(const struct symm_device_exchange *x, int peer)
{
    const uint32_t before = (x->round == 0 ? SYMM_ROUND_LIMIT : x->round) - 1;
    uint64_t value;

    return (symm__device_packet_load(
                symm__device_told_at(x->memory, x->block, x->round, peer), x->round,
                &value) &&
            value == 0) ||
           (symm__device_packet_load(
                symm__device_told_at(x->memory, x->block, before, peer), before,
                &value) &&
            value == 0);
}

/* Polled during a wait for the peer. 0: the wait may go on; else the status with which it ends.
 * *since is 0 before a wait's first call. */
SYMM_DEVICE_COLD int symm__device_exchange_look(const struct symm_device_team *team,
                                                const struct symm_device_exchange *x,
                                                int peer, uint64_t *since)
{
    uint32_t why = symm__device_failed(team, SYMM_CHANNELS);
    uint64_t mine = 0, theirs = 0;
    /* from memory: not every caller has set units, blocks and tag */
    const int told =
        symm__device_packet_load(
            symm__device_told_at(x->memory, x->block, x->round, team->rank), x->round,
            &mine) &
        symm__device_packet_load(
            symm__device_told_at(x->memory, x->block, x->round, peer), x->round,
            &theirs);

    if (why != 0)
        return symm__device_exchange_stop(team, x, why);
    if (symm__device_gave_up(x, peer))
        why = SYMM_DEVICE_ABORTED;
    else if (told && mine != theirs && mine != 0)
        why = SYMM_DEVICE_MISMATCH;
    else
        why = symm__device_poll(team, since);
    if (why == 0)
        return 0;
    return symm__device_exchange_fail(team, x, peer, mine, told ? theirs : 0, why);
}

/* ---- The exchange ---------------------------------------------------------------- */

/*
 * Sets x->round. Each thread of the block; nothing is pushed after an error, since a
 * peer may still read what a failed exchange has pushed. SYMM_DEVICE_INVALID, which is
 * not recorded: x has values that are not allowed, or this code was made for another
 * layout than the team has.
 */
SYMM_DEVICE_FN int symm_device_exchange_begin(const struct symm_device_team *team,
                                              struct symm_device_exchange *x)
{
    const struct symm_device_workspace *own =
        (const struct symm_device_workspace *)x->memory;
    uint32_t before;

    if (!symm_device_layout_ok(team) || x->units > x->room ||
        x->units > SYMM_DEVICE_UNITS || x->blocks > SYMM_DEVICE_BLOCKS ||
        x->block >= x->blocks || x->tag == 0)
        return (int)SYMM_DEVICE_INVALID;
    before = symm__device_load(&own->round[x->block]);
    x->round = before + 1 == SYMM_ROUND_LIMIT ? 0 : before + 1;
    return (int)symm__device_failed(team, SYMM_CHANNELS);
}

/* Announces the exchange to a rank: one thread for each, this rank too. */
SYMM_DEVICE_FN void symm_device_exchange_tell(const struct symm_device_team *team,
                                              const struct symm_device_exchange *x,
                                              int peer)
{
    symm__device_packet_store(
        symm__device_told_at(symm_device_peer(team, x->memory, peer), x->block,
                             x->round, team->rank),
        symm__device_told(x), x->round);
}

/* Sends a unit to a rank; to this rank too if it is to wait for its own. */
SYMM_DEVICE_FN void symm_device_exchange_push(const struct symm_device_team *team,
                                              const struct symm_device_exchange *x,
                                              int peer, uint32_t unit, uint64_t value)
{
    symm__device_packet_store(
        symm__device_unit_at(symm_device_peer(team, x->memory, peer), team->size,
                             x->round, team->rank, unit),
        value, x->round);
}

/* Waits for a unit of a rank. */
SYMM_DEVICE_FN int symm_device_exchange_wait(const struct symm_device_team *team,
                                             const struct symm_device_exchange *x,
                                             int peer, uint32_t unit, uint64_t *value)
{
    const uint64_t *packet =
        symm__device_unit_at(x->memory, team->size, x->round, peer, unit);
    uint64_t since = 0;
    uint32_t polls = 0;
    int why;

    while (!symm__device_packet_load(packet, x->round, value)) {
        symm_device_pause();
        if (++polls % SYMM_DEVICE_POLLS == 0 &&
            (why = symm__device_exchange_look(team, x, peer, &since)) != 0)
            return why;
    }
    return 0;
}

/* Waits for the announcement of a rank and compares it with this rank's: one thread for each
 * rank, before end. */
SYMM_DEVICE_FN int symm_device_exchange_meet(const struct symm_device_team *team,
                                             const struct symm_device_exchange *x,
                                             int peer)
{
    const uint64_t *packet = symm__device_told_at(x->memory, x->block, x->round, peer);
    uint64_t since = 0, theirs;
    uint32_t polls = 0;
    int why;

    while (!symm__device_packet_load(packet, x->round, &theirs)) {
        symm_device_pause();
        if (++polls % SYMM_DEVICE_POLLS == 0 &&
            (why = symm__device_exchange_look(team, x, peer, &since)) != 0)
            return why;
    }
    if (theirs == symm__device_told(x))
        return 0;
    return symm__device_exchange_fail(team, x, peer, symm__device_told(x), theirs,
                                      theirs == 0 ? SYMM_DEVICE_ABORTED
                                                  : SYMM_DEVICE_MISMATCH);
}

/* Counts the round, also for the blocks that this kernel does not have; `step` threads share
 * them. */
SYMM_DEVICE_FN void symm__device_exchange_count(const struct symm_device_exchange *x,
                                                uint32_t thread, uint32_t step)
{
    uint32_t *round = ((struct symm_device_workspace *)x->memory)->round;

    if (thread == 0)
        symm__device_store_relaxed(&round[x->block], x->round);
    for (uint32_t b = x->blocks + thread; x->block == 0 && b < SYMM_DEVICE_BLOCKS;
         b += step)
        symm__device_store_relaxed(&round[b], x->round);
}

/* Ends the round of the block: one thread, after a barrier of the block that all waits
 * precede. The round is not counted after a failure: then SYMM_DEVICE_ABORTED, or what
 * failed before. */
SYMM_DEVICE_FN int symm_device_exchange_end(const struct symm_device_team *team,
                                            const struct symm_device_exchange *x)
{
    const uint32_t failed = symm__device_failed(team, SYMM_CHANNELS);

    if (failed == 0)
        symm__device_exchange_count(x, 0, 1);
    return (int)failed;
}

#ifdef __cplusplus
}
#endif

/* ---- For kernels in C++ ---------------------------------------------------------- */

/* SYMM_DEVICE_EMULATED: this compiler is not nvcc, but has threadIdx and its like. */
#if defined(__cplusplus) && (defined(__CUDACC__) || defined(SYMM_DEVICE_EMULATED))
#if defined(__CUDACC__)
#define SYMM_DEVICE_UNROLL _Pragma("unroll")
#else
#define SYMM_DEVICE_UNROLL
#endif

/* Waits for one unit of all ranks but this one, all at once; value[rank] is left alone. */
template <int SIZE, int MOST>
static __device__ __forceinline__ int
symm__device_exchange_gather(const symm_device_team *team,
                             const symm_device_exchange &x, int size, int rank,
                             uint32_t unit, uint64_t (&value)[MOST])
{
    const uint64_t *from = symm__device_unit_at(x.memory, size, x.round, 0, unit);
    constexpr int WORDS = (MOST + 31) / 32;
    uint64_t since = 0, got;
    uint32_t polls = 0, missing[WORDS], some;
    int why;

    for (;;) {
        SYMM_DEVICE_UNROLL
        for (int w = 0; w < WORDS; w++)
            missing[w] = 0;
        SYMM_DEVICE_UNROLL
        for (int r = 0; r < MOST; r++)
            if (r != rank && (SIZE || r < size)) {
                if (symm__device_packet_load(from + 64 * r, x.round, &got))
                    value[r] = got;
                else
                    missing[r / 32] |= 1u << r % 32;
            }
        some = 0;
        SYMM_DEVICE_UNROLL
        for (int w = 0; w < WORDS; w++)
            some |= missing[w];
        if (some == 0)
            return 0;
        symm_device_pause();
        if (++polls % SYMM_DEVICE_POLLS != 0)
            continue;
        for (int r = 0; r < size; r++)
            if ((missing[WORDS == 1 ? 0 : r / 32] >> r % 32 & 1) &&
                (why = symm__device_exchange_look(team, &x, r, &since)) != 0)
                return why;
    }
}

/*
 * A whole exchange of `rows` rows of `width` units, by all threads of the grid (one
 * dimension; the same grid on all ranks). x has memory, room and tag. uint64_t
 * load(row, column) gives this rank's unit; it is called twice for each, before its
 * push and before its tail, and must give the same. tail(row, column, value) gets the
 * unit of all ranks in rank order, value[0 .. size - 1], on the thread that loaded it;
 * it may store where that unit was loaded from. SIZE: the team's size, for code without
 * branches; 0: any up to SYMM_FEW_RANKS. Returns 0 in all threads of the block or in none;
 * else minus a symm_status, SYMM_DEVICE_ABORTED where another thread has the reason. It begins and
 * ends without a barrier of the grid.
 */
template <int SIZE, class LOAD, class TAIL>
static __device__ __forceinline__ int
symm_device_exchange_rows(const symm_device_team *team, symm_device_exchange x,
                          uint32_t rows, uint32_t width, LOAD load, TAIL tail)
{
    constexpr int MOST = SIZE ? SIZE : SYMM_FEW_RANKS;
    const int rank = team->rank, size = SIZE ? SIZE : team->size;
    const uint64_t units = (uint64_t)rows * width;
    const uint32_t first = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t step = gridDim.x * blockDim.x;
    /* [k]: the workspace of the rank k after this one; [0] is not set */
    char *at[MOST];
    uint64_t value[MOST];
    int status = (int)SYMM_DEVICE_INVALID;

    SYMM_DEVICE_UNROLL
    for (int k = 1; k < MOST;
         k++) /* the addresses' loads all at once, before any store */
        if (SIZE || k < size)
            at[k] = (char *)symm_device_peer(
                team, x.memory, rank + k < size ? rank + k : rank + k - size);

    x.units = units <= SYMM_DEVICE_UNITS ? (uint32_t)units : SYMM_DEVICE_UNITS + 1;
    x.block = blockIdx.x;
    x.blocks = gridDim.x;
    if (team->size == size && size <= MOST)
        status = symm_device_exchange_begin(team, &x);
    if (status == 0) {
        for (uint32_t p = threadIdx.x; p < (uint32_t)size; p += blockDim.x)
            symm_device_exchange_tell(team, &x, (int)p);
        for (uint32_t i = first; i < x.units; i += step) {
            const uint64_t mine = load(i / width, i % width);
            const uint64_t place = symm__device_unit_offset(size, x.round, rank, i);

            SYMM_DEVICE_UNROLL
            for (int k = 1; k < MOST; k++) /* ranks begin at different peers */
                if (SIZE || k < size)
                    symm__device_packet_store((uint64_t *)(void *)(at[k] + place), mine,
                                              x.round);
        }
    }
    for (uint32_t p = threadIdx.x; p < (uint32_t)size && status == 0; p += blockDim.x)
        status = symm_device_exchange_meet(team, &x, (int)p);
    for (uint32_t i = first; status == 0 && i < x.units; i += step) {
        const uint64_t mine = load(i / width, i % width);

        /* not value[rank] = mine: that index would put the array in memory */
        SYMM_DEVICE_UNROLL
        for (int r = 0; r < MOST; r++)
            value[r] = mine;
        status =
            symm__device_exchange_gather<SIZE, MOST>(team, x, size, rank, i, value);
        if (status == 0)
            tail(i / width, i % width, value);
    }
    if (__syncthreads_or(status != 0) != 0)
        return status != 0 ? status : (int)SYMM_DEVICE_ABORTED;
    symm__device_exchange_count(&x, threadIdx.x, blockDim.x);
    __syncthreads(); /* the counter is written before this block begins another exchange */
    return 0;
}
#endif
#endif
