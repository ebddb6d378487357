/* SPDX-License-Identifier: MIT */
/*
 * gpu_fence_words.cu - litmus tests: halves of a packet are whole; stores of one thread to one
 * address arrive in order; a sentinel does not overwrite the packet that follows it.
 * gpu_fence.h says what a way is.
 */
#include "gpu_fence.h"

#define COUNTERS 24u  /* threads that count: words of the line that is kept awake */
#define SPREAD   84u  /* words from one counter to the next among the lines */
#define COUNTS   100u /* of a counter in a try */
#define TURNS    200u /* of a packet and its reply in a try */

static_assert(COUNTERS <= AWAKE_WORD && (COUNTERS - 1) * SPREAD < LINES * 4 &&
                  2 * COUNTS < ROUNDS && TURNS < ROUNDS,
              "places and values of a try");

enum store { WHOLE, IN_WORDS }; /* how a packet is stored */
enum piece { HALVES, PACKETS }; /* what is judged */

/* ---- On the devices -------------------------------------------------------------- */

static __global__ void send_packets(symm_packet *to, const unsigned *number,
                                    enum store store)
{
    const unsigned last = *number * ROUNDS + ROUNDS,
                   i = blockIdx.x * blockDim.x + threadIdx.x;

    for (unsigned flag = last - ROUNDS + 1; flag <= last; flag++) {
        const symm_packet p = ll_of(flag, i);

        if (store == WHOLE) {
            symm_port_store_packet(to + i, p);
            continue;
        }
        for (int k = 0; k < 4; k++) {
            store_word(&to[i].word[k], p.word[k], false);
            if (k % 2 == 0)
                spin(300);
        }
    }
}

static __global__ void watch_packets(const symm_packet *at, const unsigned *number,
                                     enum piece piece, seen *s)
{
    const unsigned last = *number * ROUNDS + ROUNDS,
                   i = blockIdx.x * blockDim.x + threadIdx.x;
    const uint64_t begin = symm_port_now();
    symm_packet p;
    tally t;

    do {
        p = symm_port_load_packet(at + i);
        if (piece == PACKETS) {
            t.look(p.word[1] != p.word[3]);
        } else {
            t.look(p.word[0] != payload(p.word[1], 2 * i));
            t.look(p.word[2] != payload(p.word[3], 2 * i + 1));
        }
        if (symm_port_now() - begin > LIMIT) {
            atomicAdd(&s->unmet, 1ull);
            break;
        }
    } while (p.word[1] != last || p.word[3] != last);
    t.give(s, *number);
}

/* A thread counts to two words in turn, which may be one: odd numbers go to the first one. */
static __global__ void count_up(unsigned *one, unsigned *two, unsigned spread,
                                const unsigned *number)
{
    const unsigned begin = *number * ROUNDS;

    one += threadIdx.x * SPREAD;
    two += threadIdx.x * spread;
    SYMM_NO_UNROLL
    for (unsigned k = 1; k < 2 * COUNTS; k += 2) {
        store_word(one, begin + k, false);
        store_word(two, begin + k + 1, false);
    }
}

/* The first word is never behind the second, which is loaded before it; and stays at its end. */
static __global__ void watch_counts(const unsigned *one, const unsigned *two,
                                    unsigned spread, const unsigned *number, seen *s)
{
    const unsigned begin = *number * ROUNDS, end = begin + 2 * COUNTS;
    const uint64_t time = symm_port_now();
    const unsigned behind = one == two ? 0 : 1;
    unsigned first, second;
    tally t;

    one += threadIdx.x * SPREAD;
    two += threadIdx.x * spread;
    do {
        second = load_word(two, true);
        first = load_word(one, false);
        if (second - begin - 1 < 2 * COUNTS) /* of this try */
            t.look(first - begin + behind < second - begin ||
                   first - begin > 2 * COUNTS);
        if (symm_port_now() - time > LIMIT) {
            atomicAdd(&s->unmet, 1ull);
            break;
        }
    } while (second != end);
    spin(400000);
    t.look(load_word(one, false) + behind != end || load_word(two, false) != end);
    t.give(s, *number);
}

static __device__ symm_packet lamport_of(unsigned turn, unsigned i)
{
    return {{payload(turn, 4 * i), payload(turn, 4 * i + 1), payload(turn, 4 * i + 2),
             payload(turn, 4 * i + 3)}};
}

/* A thread's packet goes to the place of the one before, when that has been replied to. The reader
 * reports what fails. fences: as kernels of several rounds have them (packet.cuh). */
static __global__ void send_in_turns(symm_packet *to, const unsigned *replies,
                                     const unsigned *number, bool fences)
{
    const unsigned begin = *number * ROUNDS, i = blockIdx.x * blockDim.x + threadIdx.x;

    for (unsigned r = 1; r <= TURNS; r++) {
        if (r > 1 && !await(replies + i, begin + r - 1, false, LIMIT / 10))
            return;
        if (fences)
            symm_port_fence();
        symm_port_store_packet(to + i, lamport_of(begin + r, i));
    }
}

/* Consumes each packet as symm_lamport does. A packet that the sentinel has overwritten is
 * awaited in vain. */
static __global__ void take_in_turns(symm_packet *at, unsigned *replies,
                                     const unsigned *number, bool fences, seen *s)
{
    const unsigned begin = *number * ROUNDS, i = blockIdx.x * blockDim.x + threadIdx.x;
    const symm_packet sentinel = {{~0u, ~0u, ~0u, ~0u}};
    tally t;

    for (unsigned r = 1; r <= TURNS; r++) {
        const uint64_t time = symm_port_now();
        symm_packet p;
        bool here;

        do {
            p = symm_port_load_packet(at + i);
            here = p.word[0] != ~0u && p.word[1] != ~0u && p.word[2] != ~0u &&
                   p.word[3] != ~0u;
        } while (!here && symm_port_now() - time < (r == 1 ? LIMIT : LIMIT / 40));
        if (!here && r == 1) {
            atomicAdd(&s->unmet, 1ull);
            break;
        }
        t.look(!here || !same(p, lamport_of(begin + r, i)));
        if (!here)
            break;
        symm_port_store_packet(at + i, sentinel);
        if (fences)
            symm_port_fence();
        store_word(replies + i, begin + r, false);
    }
    t.give(s, *number);
}

/* ---- Ways ------------------------------------------------------------------------ */

static way packets(const char *name, enum role role, enum store store, enum piece piece)
{
    auto send = [=](const machine &m) {
        begin_try(m.gpu[0]);
        launch(m.gpu[0].stream, false, send_packets, BLOCKS, LINES / BLOCKS,
               m.gpu[1].lines, (const unsigned *)m.gpu[0].number, store);
    };
    auto receive = [=](const machine &m) {
        const struct device &own = m.gpu[1];

        begin_try(own);
        launch(own.stream, false, watch_packets, BLOCKS, LINES / BLOCKS,
               (const symm_packet *)own.lines, (const unsigned *)own.number, piece,
               own.result);
    };

    return {name, role, AWAKE, STREAM, false, FILL_PACKETS, send, receive};
}

/* The first word is among the lines; the second one is the same, or in the line that is awake. */
static way counts(const char *name, enum role role, bool same_word)
{
    const unsigned spread = same_word ? SPREAD : 1;
    auto second = [=](const machine &m) {
        return same_word ? (unsigned *)m.gpu[1].lines : m.gpu[1].words;
    };
    auto send = [=](const machine &m) {
        begin_try(m.gpu[0]);
        launch(m.gpu[0].stream, false, count_up, 1, COUNTERS,
               (unsigned *)m.gpu[1].lines, second(m), spread,
               (const unsigned *)m.gpu[0].number);
    };
    auto receive = [=](const machine &m) {
        const struct device &own = m.gpu[1];

        begin_try(own);
        launch(own.stream, false, watch_counts, 1, COUNTERS,
               (const unsigned *)own.lines, (const unsigned *)second(m), spread,
               (const unsigned *)own.number, own.result);
    };

    return {name, role, ASLEEP, STREAM, false, FILL_ZEROS, send, receive};
}

static way turns(const char *name, enum role role, bool fences)
{
    auto send = [=](const machine &m) {
        const struct device &own = m.gpu[0];

        begin_try(own);
        launch(own.stream, false, send_in_turns, BLOCKS, LINES / BLOCKS, m.gpu[1].lines,
               (const unsigned *)own.words + REPLIES, (const unsigned *)own.number,
               fences);
    };
    auto receive = [=](const machine &m) {
        const struct device &own = m.gpu[1];

        begin_try(own);
        launch(own.stream, false, take_in_turns, BLOCKS, LINES / BLOCKS, own.lines,
               m.gpu[0].words + REPLIES, (const unsigned *)own.number, fences,
               own.result);
    };

    return {name, role, AWAKE, STREAM, false, FILL_SENTINELS, send, receive};
}

orderings orderings_of_words(void)
{
    return {
        {"halves of a packet are whole",
         {
             packets("halves of a packet", RELIED_ON, WHOLE, HALVES),
             packets("halves, each word by its own store", WEAKENED, IN_WORDS, HALVES),
             packets("packets of two halves", WEAKENED_UNSEEN, WHOLE, PACKETS),
         }},
        {"one thread's stores to one address",
         {
             counts("one address", RELIED_ON, true),
             counts("two addresses", WEAKENED, false),
         }},
        {"a sentinel before the next packet",
         {
             turns("sentinel, fence, word > fence, packet", RELIED_ON, true),
             turns("sentinel, word > packet", WEAKENED_UNSEEN, false),
         }},
    };
}
