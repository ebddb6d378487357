/* SPDX-License-Identifier: MIT */
/*
 * gpu_fence_loads.cu - litmus tests: loads of a peer's memory, then a word by which the peer may
 * overwrite it; an acquire, then loads of lines that are in L1. gpu_fence.h says what a way is.
 */
#include "gpu_fence.h"

/* The words behind the loads. COMPARED: relaxed, and the loads have been compared. */
enum word { NEXT_KERNEL, RELEASE, RELAXED, COMPARED };

#define REREADS 50u /* rounds of a try */

/* ---- On the devices -------------------------------------------------------------- */

/* Each of BLOCKS x LINES / BLOCKS threads loads a line; the lines are those of the try before
 * until GPU 1 has seen all words. trigger: the next kernel begins meanwhile. A kernel for each
 * WORD, and a comparison that needs a later load: else ptxas may wait for the loads too early. */
template <enum word WORD>
static __global__ void load_lines(const symm_packet *from, unsigned *words,
                                  const unsigned *number, bool trigger, seen *s)
{
    const unsigned n = *number, i = blockIdx.x * blockDim.x + threadIdx.x;
    symm_packet found;
    tally t;

    if (trigger)
        symm_port_dependent_launch();
    found = symm_port_load_data(from + i);
    if (WORD == COMPARED)
        symm_port_sync_any(!same(found, line_of(n - 1, i)));
    else if (WORD != NEXT_KERNEL)
        __syncthreads();
    if (WORD != NEXT_KERNEL && threadIdx.x == 0)
        store_word(words + blockIdx.x, n, WORD == RELEASE);
    t.look(!same(found, line_of(load_word(number, false) - 1, i)));
    t.give(s, n);
}

/* One block of LINES threads. */
static __global__ void overwrite_lines(symm_packet *lines, const unsigned *words,
                                       const unsigned *number, seen *s)
{
    const unsigned n = *number;
    bool failed = false;

    if (threadIdx.x < BLOCKS)
        failed = !await(words + threadIdx.x, n, true);
    if (symm_port_sync_any(failed)) {
        if (threadIdx.x == 0)
            atomicAdd(&s->unmet, 1ull);
        return;
    }
    lines[threadIdx.x] = line_of(n, threadIdx.x);
}

/* A weak load, which L1 may answer. */
static __device__ symm_packet load_weak(const symm_packet *from)
{
    symm_packet p;

    asm volatile("ld.weak.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(p.word[0]), "=r"(p.word[1]), "=r"(p.word[2]), "=r"(p.word[3])
                 : "l"(from)
                 : "memory");
    return p;
}

/* One block of LINES threads, as the next kernel: writes the lines when the reader is ready. */
static __global__ void write_again(symm_packet *to, unsigned *word,
                                   const unsigned *ready, const unsigned *number,
                                   seen *s)
{
    const unsigned first = *number * ROUNDS;

    for (unsigned r = 1; r <= REREADS; r++) {
        bool failed = threadIdx.x == 0 && !await(ready, first + r, true);

        if (symm_port_sync_any(failed)) {
            if (threadIdx.x == 0)
                atomicAdd(&s->unmet, 1ull);
            return;
        }
        to[threadIdx.x] = line_of(first + r, threadIdx.x);
        __syncthreads();
        if (threadIdx.x == 0)
            store_word(word, first + r, true);
    }
}

/* Loads lines, so that L1 holds them, awaits the word that says they are new, loads them again. A
 * kernel for each ACQUIRE: ptxas may make one invalidation of L1 for both. */
template <bool ACQUIRE>
static __global__ void read_again(const symm_packet *at, const unsigned *word,
                                  unsigned *ready, const unsigned *number, seen *s)
{
    const unsigned first = *number * ROUNDS, i = threadIdx.x;
    tally t;

    for (unsigned r = 1; r <= REREADS; r++) {
        const symm_packet old = load_weak(at + i);
        bool failed = false;

        /* a round's word, which no line holds: the loads have returned */
        symm_port_sync_any(same(old, line_of(first + r, i)));
        if (threadIdx.x == 0) {
            store_word(ready, first + r, false);
            failed = !await(word, first + r, ACQUIRE);
        }
        if (symm_port_sync_any(failed)) {
            if (threadIdx.x == 0)
                atomicAdd(&s->unmet, 1ull);
            break;
        }
        t.look(!same(load_weak(at + i), line_of(first + r, i)));
        symm_port_fence(); /* L1 holds none of them now */
    }
    t.give(s, *number);
}

/* ---- Ways ------------------------------------------------------------------------ */

template <enum word WORD>
static way loads(const char *name, enum role role, enum queue queue, enum start start)
{
    auto send = [=](const machine &m) {
        const struct device &own = m.gpu[0];

        begin_try(own);
        launch(own.stream, false, load_lines<WORD>, BLOCKS, LINES / BLOCKS,
               (const symm_packet *)m.gpu[1].lines, m.gpu[1].words,
               (const unsigned *)own.number, start == HASTENS, own.result);
        if (WORD == NEXT_KERNEL)
            send_words(m, BLOCKS, false, start);
    };
    auto receive = [=](const machine &m) {
        const struct device &own = m.gpu[1];

        begin_try(own);
        launch(own.stream, false, overwrite_lines, 1, LINES, own.lines,
               (const unsigned *)own.words, (const unsigned *)own.number, own.result);
    };

    return {name, role, ASLEEP, queue, start != PLAIN, FILL_LINES, send, receive};
}

template <bool ACQUIRE> static way again(const char *name, enum role role)
{
    auto send = [=](const machine &m) {
        const struct device &own = m.gpu[0];

        begin_try(own);
        launch(own.stream, false, write_again, 1, LINES, m.gpu[1].lines,
               m.gpu[1].words + FAR_WORD, (const unsigned *)own.words + FAR_WORD,
               (const unsigned *)own.number, own.result);
    };
    auto receive = [=](const machine &m) {
        const struct device &own = m.gpu[1];

        begin_try(own);
        launch(own.stream, false, read_again<ACQUIRE>, 1, LINES,
               (const symm_packet *)own.lines, (const unsigned *)own.words + FAR_WORD,
               m.gpu[0].words + FAR_WORD, (const unsigned *)own.number, own.result);
    };

    return {name, role, AWAKE, STREAM, false, FILL_LINES, send, receive};
}

orderings orderings_of_loads(void)
{
    return {
        {"loads before a release",
         {
             loads<RELEASE>("one kernel: loads, release", RELIED_ON, STREAM, PLAIN),
             loads<COMPARED>("one kernel: loads, compared, word", RELIED_ON, STREAM,
                             PLAIN),
             loads<RELAXED>("one kernel: loads, word", WEAKENED, STREAM, PLAIN),
         }},
        {"a kernel's end: loads at peers",
         {
             loads<NEXT_KERNEL>("graph: loads | word", RELIED_ON, GRAPH, PLAIN),
             loads<NEXT_KERNEL>("graph: loads | dependent, word", RELIED_ON, GRAPH,
                                WAITS),
             loads<NEXT_KERNEL>("stream: loads | word", RELIED_ON, STREAM, PLAIN),
             loads<NEXT_KERNEL>("graph: loads | word without wait", WEAKENED, GRAPH,
                                HASTENS),
             loads<NEXT_KERNEL>("stream: loads | word without wait", WEAKENED, STREAM,
                                HASTENS),
         }},
        {"acquire before loads",
         {
             again<true>("lines in L1, acquire, loads", RELIED_ON),
             again<false>("lines in L1, relaxed polls, loads", WEAKENED),
         }},
    };
}
