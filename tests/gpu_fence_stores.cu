/* SPDX-License-Identifier: MIT */
/*
 * gpu_fence_stores.cu - litmus tests: stores, then a word, in one kernel and over a kernel's end;
 * chains of three; stores of several kernels to one address. gpu_fence.h says what a way is.
 */
#include "gpu_fence.h"

enum where { AT_PEER, AT_HOME };
enum by { BY_KERNEL, BY_ENGINE };
/* The stores. FENCE_OF_ONE: of one thread of each block, behind its barrier. RELEASE: the next
 * kernel's words; _WITHIN: the words of the same kernel. */
enum behind { NOTHING, FENCE, FENCE_OF_ONE, RELEASE, RELEASE_WITHIN, WORD_WITHIN };

/* ---- On the devices -------------------------------------------------------------- */

/* Block b's word is words[b]. */
static __global__ void write_lines(symm_packet *to, unsigned *words,
                                   const unsigned *number, enum behind behind)
{
    const unsigned n = *number, i = blockIdx.x * blockDim.x + threadIdx.x;

    to[i] = line_of(n, i);
    if (behind == FENCE)
        symm_port_fence();
    if (behind == NOTHING || behind == FENCE || behind == RELEASE)
        return;
    __syncthreads();
    if (threadIdx.x == 0 && behind == FENCE_OF_ONE)
        symm_port_fence();
    else if (threadIdx.x == 0)
        store_word(words + blockIdx.x, n, behind == RELEASE_WITHIN);
}

/* The same lines by other blocks, with what a later kernel overwrites. */
static __global__ void write_before(symm_packet *to, const unsigned *number)
{
    const unsigned i = LINES - 1 - blockIdx.x * blockDim.x - threadIdx.x;

    to[i] = line_of(~*number, i);
}

/* As await, by the operation with which blocks of a put count. */
static __device__ bool await_count(unsigned *count, unsigned value)
{
    const uint64_t begin = symm_port_now();

    while (symm_port_add32(count, 0) != value)
        if (symm_port_now() - begin > LIMIT)
            return false;
    return true;
}

/* As a put of several blocks: block 0 stores and counts, block 1, which has not stored, sees the
 * count and raises the signal. */
static __global__ void write_by_two(symm_packet *to, unsigned *count, unsigned *word,
                                    const unsigned *number, bool release, seen *s)
{
    const unsigned n = *number;

    if (blockIdx.x == 0) {
        to[threadIdx.x] = line_of(n, threadIdx.x);
        __syncthreads();
        if (threadIdx.x != 0)
            return;
        if (release)
            symm_port_add32(count, n - *count);
        else
            store_word(count, n, false);
    } else if (threadIdx.x == 0) {
        if (!(release ? await_count(count, n) : await(count, n, true)))
            atomicAdd(&s->unmet, 1ull);
        store_word(word, n, true);
    }
}

/* Block 0 passes on what the words at GPU 0 say; block 1 hears of it and looks. Blocks of LINES
 * threads. */
static __global__ void hear_by_two(const unsigned *words, unsigned *passed,
                                   const symm_packet *at, const unsigned *number,
                                   seen *s)
{
    const unsigned n = *number;
    bool failed = false;
    tally t;

    if (blockIdx.x == 0) {
        if (threadIdx.x < BLOCKS)
            failed = !await(words + threadIdx.x, n, true);
        failed = symm_port_sync_any(failed);
        if (threadIdx.x == 0 && !failed)
            store_word(passed, n, true);
    } else {
        if (threadIdx.x == 0)
            failed = !await(passed, n, true);
        failed = symm_port_sync_any(failed);
        if (!failed)
            t.line(at + threadIdx.x, line_of(n, threadIdx.x));
        t.give(s, n);
    }
    if (failed && threadIdx.x == 0)
        atomicAdd(&s->unmet, 1ull);
}

/* ---- Ways ------------------------------------------------------------------------ */

/* Lines of GPU 0, or at GPU 1, by a kernel or behind it by a copy engine; then words. */
static way stores(const char *name, enum role role, enum queue queue, enum where where,
                  enum by by, enum behind behind, enum start start)
{
    auto send = [=](const machine &m) {
        const struct device &own = m.gpu[0];

        begin_try(own);
        launch(own.stream, false, write_lines, BLOCKS, LINES / BLOCKS,
               m.gpu[where == AT_PEER && by == BY_KERNEL].lines, m.gpu[1].words,
               (const unsigned *)own.number, behind);
        if (by == BY_ENGINE)
            CUDA(cudaMemcpyAsync(m.gpu[1].lines, own.lines, LINES * sizeof(symm_packet),
                                 cudaMemcpyDeviceToDevice, own.stream));
        if (behind != RELEASE_WITHIN && behind != WORD_WITHIN)
            send_words(m, BLOCKS, behind == RELEASE, start);
    };
    auto receive = [=](const machine &m) {
        const struct device &own = m.gpu[1];

        begin_try(own);
        launch(own.stream, false, await_words, 1, 32, (const unsigned *)own.words,
               BLOCKS, (const unsigned *)own.number, own.result);
        launch(own.stream, false, check_lines, 1, LINES,
               (const symm_packet *)m.gpu[where == AT_PEER].lines,
               (const unsigned *)own.number, 0u, own.result);
    };

    return {name, role, ASLEEP, queue, start != PLAIN, FILL_LINES, send, receive};
}

static way two_senders(const char *name, enum role role, bool release)
{
    auto send = [=](const machine &m) {
        const struct device &own = m.gpu[0];

        begin_try(own);
        launch(own.stream, false, write_by_two, 2, LINES, m.gpu[1].lines,
               own.words + FAR_WORD, m.gpu[1].words, (const unsigned *)own.number,
               release, own.result);
    };
    auto receive = [=](const machine &m) {
        const struct device &own = m.gpu[1];

        begin_try(own);
        launch(own.stream, false, await_words, 1, 32, (const unsigned *)own.words, 1u,
               (const unsigned *)own.number, own.result);
        launch(own.stream, false, check_lines, 1, LINES, (const symm_packet *)own.lines,
               (const unsigned *)own.number, 0u, own.result);
    };

    return {name, role, ASLEEP, GRAPH, false, FILL_LINES, send, receive};
}

/* The words lie at GPU 0: what wakes links towards it are the polls, long before. */
static way two_receivers(const char *name, enum role role, enum behind behind)
{
    auto send = [=](const machine &m) {
        const struct device &own = m.gpu[0];

        begin_try(own);
        launch(own.stream, false, write_lines, BLOCKS, LINES / BLOCKS, m.gpu[1].lines,
               own.words, (const unsigned *)own.number, behind);
    };
    auto receive = [=](const machine &m) {
        const struct device &own = m.gpu[1];

        begin_try(own);
        launch(own.stream, false, hear_by_two, 2, LINES,
               (const unsigned *)m.gpu[0].words, own.words + FAR_WORD,
               (const symm_packet *)own.lines, (const unsigned *)own.number,
               own.result);
    };

    return {name, role, ASLEEP, GRAPH, false, FILL_LINES, send, receive};
}

/* Two kernels store at the same addresses; what the second one stored stays. */
static way overwritten(const char *name, enum role role)
{
    auto send = [=](const machine &m) {
        const struct device &own = m.gpu[0];

        begin_try(own);
        launch(own.stream, false, write_before, BLOCKS, LINES / BLOCKS, m.gpu[1].lines,
               (const unsigned *)own.number);
        launch(own.stream, false, write_lines, BLOCKS, LINES / BLOCKS, m.gpu[1].lines,
               m.gpu[1].words, (const unsigned *)own.number, RELEASE_WITHIN);
    };
    auto receive = [=](const machine &m) {
        const struct device &own = m.gpu[1];

        begin_try(own);
        launch(own.stream, false, await_words, 1, 32, (const unsigned *)own.words,
               BLOCKS, (const unsigned *)own.number, own.result);
        launch(own.stream, false, check_lines, 1, LINES, (const symm_packet *)own.lines,
               (const unsigned *)own.number, 400000u, own.result);
    };

    return {name, role, ASLEEP, GRAPH, false, FILL_LINES, send, receive};
}

orderings orderings_of_stores(void)
{
    return {
        {"stores before a release",
         {
             stores("one kernel: stores, release", RELIED_ON, STREAM, AT_PEER,
                    BY_KERNEL, RELEASE_WITHIN, PLAIN),
             stores("one kernel: stores, word", WEAKENED, STREAM, AT_PEER, BY_KERNEL,
                    WORD_WITHIN, PLAIN),
         }},
        {"stores before a release, over a kernel's end",
         {
             stores("graph: stores, fence | word", RELIED_ON, GRAPH, AT_PEER, BY_KERNEL,
                    FENCE, PLAIN),
             stores("graph: stores, fence | dependent, word", RELIED_ON, GRAPH, AT_PEER,
                    BY_KERNEL, FENCE, WAITS),
             stores("graph: stores, fence of one | word", RELIED_ON, GRAPH, AT_PEER,
                    BY_KERNEL, FENCE_OF_ONE, PLAIN),
             stores("graph: stores, fence of one | dependent, word", RELIED_ON, GRAPH,
                    AT_PEER, BY_KERNEL, FENCE_OF_ONE, WAITS),
             stores("graph: stores | release", RELIED_ON, GRAPH, AT_PEER, BY_KERNEL,
                    RELEASE, WAITS),
             stores("graph: stores | word", WEAKENED, GRAPH, AT_PEER, BY_KERNEL,
                    NOTHING, PLAIN),
             stores("graph: stores | dependent, word", WEAKENED, GRAPH, AT_PEER,
                    BY_KERNEL, NOTHING, WAITS),
             stores("stream: stores | word", WEAKENED_UNSEEN, STREAM, AT_PEER,
                    BY_KERNEL, NOTHING, PLAIN),
             stores("stream: stores | dependent, word", WEAKENED_UNSEEN, STREAM,
                    AT_PEER, BY_KERNEL, NOTHING, WAITS),
         }},
        {"a kernel's end: stores in own memory",
         {
             stores("graph: own memory | dependent, word", RELIED_ON, GRAPH, AT_HOME,
                    BY_KERNEL, NOTHING, WAITS),
             stores("stream: own memory | dependent, word", RELIED_ON, STREAM, AT_HOME,
                    BY_KERNEL, NOTHING, WAITS),
         }},
        {"a copy engine's end",
         {
             stores("graph: copy engine | word", RELIED_ON, GRAPH, AT_PEER, BY_ENGINE,
                    NOTHING, PLAIN),
             stores("stream: copy engine | word", RELIED_ON, STREAM, AT_PEER, BY_ENGINE,
                    NOTHING, PLAIN),
         }},
        {"chains of release and acquire",
         {
             two_senders("stores, release > acquire, release", RELIED_ON, true),
             two_senders("stores, word > acquire, release", WEAKENED, false),
             two_receivers("stores, release > pass on > look", RELIED_ON,
                           RELEASE_WITHIN),
             two_receivers("stores, word > pass on > look", WEAKENED, WORD_WITHIN),
         }},
        {"two kernels' stores to one address",
         {
             overwritten("graph: stores | stores over them", RELIED_ON),
         }},
    };
}
