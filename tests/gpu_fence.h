/* SPDX-License-Identifier: MIT */
/*
 * gpu_fence.h - what the litmus tests of two GPUs share (gpu_fence.cu says what they are).
 *
 * A litmus test is a way: what GPU 0 queues on its stream, and what GPU 1 does, in one try. One
 * of the two judges what it has seen. Before each try both fill their lines (enum filling), and
 * each counts the try by its own number, which its first kernel advances. Kernels use
 * the memory operations of port.cuh, so what is tested is what the library's kernels execute.
 * All waits of kernels are bounded.
 */
#ifndef GPU_FENCE_H
#define GPU_FENCE_H

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include <cuda_runtime.h>

#include "kernels/cuda/port.cuh"

#define LINES  512u /* of 16 bytes: over all links of a GPU */
#define BLOCKS 4u   /* that write or load the lines, of LINES / BLOCKS threads */
#define ROUNDS 1000u
#define LIMIT  2000000000u /* ns for which a kernel waits */

#define CUDA(call)                                                                     \
    do {                                                                               \
        cudaError_t cuda_error = (call);                                               \
        if (cuda_error != cudaSuccess) {                                               \
            fprintf(stderr, "gpu_fence: %s: %s\n", #call,                              \
                    cudaGetErrorString(cuda_error));                                   \
            exit(2);                                                                   \
        }                                                                              \
    } while (0)

/* Words of a GPU: those of the line that is kept awake at GPU 1, the last one for this purpose;
 * a second line; and one for each line. */
#define AWAKE_WORD 31
#define FAR_WORD   32
#define REPLIES    64
#define WORDS      (REPLIES + LINES)

struct seen {                                /* by one GPU, over all tries of a way */
    unsigned long long wrong, lines, latest; /* tries; lines; ns */
    unsigned long long looks, unmet;         /* lines judged; waits that failed */
    unsigned long long last;                 /* number of the last try that was wrong */
};

/* What lines hold before a try whose number will be n. */
enum filling {
    FILL_LINES,    /* line_of(n - 1, i) */
    FILL_ZEROS,    /* zeros */
    FILL_PACKETS,  /* the last packet of try n - 1 */
    FILL_SENTINELS /* Lamport packets that have not come */
};

struct device {
    cudaStream_t stream;
    unsigned *number;
    symm_packet *lines;
    unsigned *words;
    seen *result;
    bool flush; /* its stream's waits take CU_STREAM_WAIT_VALUE_FLUSH */
};

struct machine {
    struct device gpu[2];
    unsigned *token; /* in memory of the host; 1: a stream's wait for it ends */
};

enum role {
    RELIED_ON,
    WEAKENED,
    WEAKENED_UNSEEN /* no hardware is known to show it */
};
enum links { ASLEEP, AWAKE };
enum queue { STREAM, GRAPH };

struct way {
    const char *name;
    enum role role;
    enum links links;
    enum queue queue;
    bool dependent; /* needs programmatic dependent launch */
    enum filling filling;
    std::function<void(const machine &)> send, receive;
};

struct ordering {
    const char *name;
    std::vector<way> ways;
};

typedef std::vector<ordering> orderings;

orderings orderings_of_stores(void);
orderings orderings_of_loads(void);
orderings orderings_of_words(void);
orderings orderings_of_streams(void);

/* Set by a way whose operations the driver does not take, in a stream or in a capture. */
inline bool refused;

/* ---- On the devices -------------------------------------------------------------- */

static __device__ inline symm_packet line_of(unsigned t, unsigned i)
{
    return {{t * 2654435761u + i, t ^ i * 40503u, t, i}};
}

static __device__ inline bool same(const symm_packet &a, const symm_packet &b)
{
    return a.word[0] == b.word[0] && a.word[1] == b.word[1] && a.word[2] == b.word[2] &&
           a.word[3] == b.word[3];
}

/* A packet that data and flags alone tell from a torn one: LL, and without flags Lamport. */
static __device__ inline unsigned payload(unsigned flag, unsigned k)
{
    return (flag * 2654435761u ^ k * 40503u) & 0x7fffffffu;
}

static __device__ inline symm_packet ll_of(unsigned flag, unsigned i)
{
    return {{payload(flag, 2 * i), flag, payload(flag, 2 * i + 1), flag}};
}

static __device__ inline void store_word(unsigned *word, unsigned value, bool release)
{
    if (release)
        symm_port_store32_release(word, value);
    else
        symm_port_store32_relaxed(word, value);
}

static __device__ inline unsigned load_word(const unsigned *word, bool acquire)
{
    return acquire ? symm_port_load32_acquire(word) : symm_port_load32_relaxed(word);
}

static __device__ inline void spin(unsigned ns)
{
    for (uint64_t begin = symm_port_now(); symm_port_now() - begin < ns;)
        ;
}

/* False: the word has not come within `limit` ns. */
static __device__ inline bool await(const unsigned *word, unsigned value, bool acquire,
                                    unsigned limit = LIMIT)
{
    const uint64_t begin = symm_port_now();

    while (load_word(word, acquire) != value)
        if (symm_port_now() - begin > limit)
            return false;
    return true;
}

/* What one thread has judged in a try. */
struct tally {
    unsigned looks = 0, wrong = 0, latest = 0; /* ns */

    __device__ void look(bool bad)
    {
        looks++;
        wrong += bad;
    }

    /* A line in memory that should be `want` now; measures by how much it is late. */
    __device__ void line(const symm_packet *at, const symm_packet &want)
    {
        const symm_packet found = *at;
        const uint64_t begin = symm_port_now();

        look(!same(found, want));
        if (same(found, want))
            return;
        while (!same(symm_port_load_packet(at), want) &&
               symm_port_now() - begin < 10000000)
            ;
        latest = (unsigned)(symm_port_now() - begin);
    }

    __device__ void give(seen *s, unsigned number) const
    {
        atomicAdd(&s->looks, (unsigned long long)looks);
        if (wrong == 0)
            return;
        atomicAdd(&s->lines, (unsigned long long)wrong);
        atomicMax(&s->latest, (unsigned long long)latest);
        if (atomicExch(&s->last, (unsigned long long)number) != number)
            atomicAdd(&s->wrong, 1ull);
    }
};

/* The first kernel of a try. */
static __global__ void next_try(unsigned *number)
{
    ++*number;
}

/* words[0 .. count - 1] have this try's number; one block of 32 threads. */
static __global__ void await_words(const unsigned *words, unsigned count,
                                   const unsigned *number, seen *s)
{
    if (threadIdx.x < count && !await(words + threadIdx.x, *number, true))
        atomicAdd(&s->unmet, 1ull);
}

/* One block of LINES threads. later: ns before the look; then a wrong line is not awaited. */
static __global__ void check_lines(const symm_packet *at, const unsigned *number,
                                   unsigned later, seen *s)
{
    const unsigned n = *number, i = threadIdx.x;
    tally t;

    if (later) {
        spin(later);
        t.look(!same(symm_port_load_packet(at + i), line_of(n, i)));
    } else {
        t.line(at + i, line_of(n, i));
    }
    t.give(s, n);
}

/* How a kernel begins that is launched when the one before has triggered it. */
enum start {
    PLAIN,  /* an ordinary launch */
    WAITS,  /* waits until the kernel before has ended */
    HASTENS /* does not wait */
};

/* words[0 .. count - 1]; one block of 32 threads. */
static __global__ void write_words(unsigned *words, unsigned count,
                                   const unsigned *number, bool release,
                                   enum start start)
{
    if (start == WAITS) {
        symm_port_dependent_launch();
        symm_port_dependent_wait();
    }
    if (threadIdx.x < count)
        store_word(words + threadIdx.x, *number, release);
}

/* ---- On the host ----------------------------------------------------------------- */

template <class KERNEL, class... ARGS>
static inline void launch(cudaStream_t stream, bool dependent, KERNEL kernel,
                          unsigned blocks, unsigned threads, ARGS... args)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute = {};

    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = dependent;
    CUDA(cudaLaunchKernelEx(&config, kernel, args...));
}

static inline void begin_try(const struct device &own)
{
    launch(own.stream, false, next_try, 1, 1, own.number);
}

/* GPU 0's words in the line that is awake. */
static inline void send_words(const machine &m, unsigned count, bool release,
                              enum start start)
{
    launch(m.gpu[0].stream, start != PLAIN, write_words, 1, 32, m.gpu[1].words, count,
           (const unsigned *)m.gpu[0].number, release, start);
}

#endif
