/* SPDX-License-Identifier: MIT */
/*
 * gpu_fence.cu - measures which instructions order stores before a word at a peer: the basis
 * of the kernels' protocols (docs/memory-model.md).
 *
 * GPU 0 writes cache lines, then a word at GPU 1; GPU 1 polls the word with acquire and, one
 * kernel later, checks the lines. Before each try all links but the word's sleep: no other
 * line has crossed them for longer than links stay awake (50 ms). A store that must wake its
 * link arrives 50 to 200 us late, so that a missing order shows at once.
 *
 * An order that libsymm's kernels rely on must hold in every try, else the exit status is 1;
 * for the others the result is printed. 77: fewer than two GPUs that reach each other, or
 * links that do not sleep, so that nothing can be measured.
 *
 *   --tries N  of each order (30)
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

#include <cuda_runtime.h>

#define LINES  512 /* of 16 bytes: over all links of a GPU */
#define BLOCKS 4
#define AWAKE  60000000u /* ns for which only the word's link is used */

#define CUDA(call)                                                                     \
    do {                                                                               \
        cudaError_t cuda_error = (call);                                               \
        if (cuda_error != cudaSuccess) {                                               \
            fprintf(stderr, "gpu_fence: %s: %s\n", #call,                              \
                    cudaGetErrorString(cuda_error));                                   \
            exit(2);                                                                   \
        }                                                                              \
    } while (0)

enum where { AT_PEER, AT_HOME };
enum by { BY_KERNEL, BY_ENGINE };
enum behind { NOTHING, FENCE, RELEASE, BOTH_IN_ONE };

struct way {
    const char *name;
    enum where where; /* the lines */
    enum by by;
    enum behind behind; /* the stores: a fence; the word is a release */
    bool graph, dependent;
    bool relied_on;
};

static const struct way ways[] = {
    {"one kernel: release", AT_PEER, BY_KERNEL, BOTH_IN_ONE, false, false, true},
    {"graph: stores, fence | word", AT_PEER, BY_KERNEL, FENCE, true, false, true},
    {"graph: stores, fence | dependent, word", AT_PEER, BY_KERNEL, FENCE, true, true,
     true},
    {"graph: stores | release", AT_PEER, BY_KERNEL, RELEASE, true, true, true},
    {"graph: own memory | dependent, word", AT_HOME, BY_KERNEL, NOTHING, true, true,
     true},
    {"graph: copy engine | word", AT_PEER, BY_ENGINE, NOTHING, true, false, true},
    {"stream: own memory | dependent, word", AT_HOME, BY_KERNEL, NOTHING, false, true,
     true},
    {"stream: copy engine | word", AT_PEER, BY_ENGINE, NOTHING, false, false, true},
    {"stream: stores | word", AT_PEER, BY_KERNEL, NOTHING, false, false, false},
    {"stream: stores | dependent, word", AT_PEER, BY_KERNEL, NOTHING, false, true,
     false},
    {"graph: stores | word", AT_PEER, BY_KERNEL, NOTHING, true, false, false},
    {"graph: stores | dependent, word", AT_PEER, BY_KERNEL, NOTHING, true, true, false},
};

struct seen {                                /* by GPU 1 */
    unsigned long long wrong, lines, latest; /* tries; lines; ns */
    unsigned long long unmet;                /* words that did not come in 2 s */
};

/* ---- On the devices -------------------------------------------------------------- */

__device__ uint64_t now(void)
{
    uint64_t t;

    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}

__device__ uint4 line_of(unsigned t, unsigned i)
{
    return make_uint4(t * 2654435761u + i, t ^ i * 40503u, t, i);
}

__device__ bool same(const uint4 &a, const uint4 &b)
{
    return a.x == b.x && a.y == b.y && a.z == b.z && a.w == b.w;
}

__device__ void store_word(unsigned *word, unsigned value, bool release)
{
    if (release)
        asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
    else
        asm volatile("st.relaxed.sys.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

__device__ unsigned load_word(const unsigned *word)
{
    unsigned value;

    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

/* Keeps the word's link awake while all others fall asleep. */
__global__ void keep_awake(unsigned *word)
{
    for (uint64_t begin = now(); now() - begin < AWAKE;) {
        store_word(word + 31, 1, false);
        for (uint64_t t = now(); now() - t < 5000;)
            ;
    }
}

__global__ void next_try(unsigned *number)
{
    ++*number;
}

/* Block b's word is word[b]. */
__global__ void write_lines(uint4 *to, unsigned *word, const unsigned *number,
                            enum behind behind)
{
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < LINES;
         i += gridDim.x * blockDim.x)
        to[i] = line_of(*number, i);
    if (behind == FENCE)
        __threadfence_system();
    if (behind != BOTH_IN_ONE)
        return;
    __syncthreads();
    if (threadIdx.x == 0)
        store_word(word + blockIdx.x, *number, true);
}

__global__ void write_words(unsigned *word, const unsigned *number, bool release,
                            bool dependent)
{
    if (dependent) {
        asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
        asm volatile("griddepcontrol.wait;" ::: "memory");
    }
    if (threadIdx.x < BLOCKS)
        store_word(word + threadIdx.x, *number, release);
}

__global__ void await_words(const unsigned *word, const unsigned *number, seen *s)
{
    uint64_t begin = now();

    if (threadIdx.x >= BLOCKS)
        return;
    while (load_word(word + threadIdx.x) != *number)
        if (now() - begin > 2000000000ull) {
            atomicAdd(&s->unmet, 1ull);
            return;
        }
}

__global__ void check_lines(const uint4 *at, const unsigned *number, seen *s)
{
    __shared__ unsigned wrong;

    if (threadIdx.x == 0)
        wrong = 0;
    __syncthreads();
    for (unsigned i = threadIdx.x; i < LINES; i += blockDim.x) {
        const uint4 want = line_of(*number, i);
        uint4 found = at[i];
        uint64_t begin = now();

        if (same(found, want))
            continue;
        while (!same(found, want) && now() - begin < 10000000)
            asm volatile("ld.relaxed.sys.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(found.x), "=r"(found.y), "=r"(found.z), "=r"(found.w)
                         : "l"(at + i)
                         : "memory");
        atomicAdd(&s->lines, 1ull);
        atomicMax(&s->latest, (unsigned long long)(now() - begin));
        atomicAdd(&wrong, 1u);
    }
    __syncthreads();
    if (threadIdx.x == 0 && wrong != 0)
        s->wrong++;
}

/* ---- On the host ----------------------------------------------------------------- */

struct device {
    cudaStream_t stream;
    unsigned *number; /* of the try; each GPU counts by itself */
    uint4 *lines; /* own memory, of this try's pattern if the copy engine takes it */
};

struct machine {
    struct device gpu[2];
    unsigned *word; /* at GPU 1 */
    seen *result;   /* at GPU 1 */
};

template <class KERNEL, class... ARGS>
static void launch(cudaStream_t stream, bool dependent, KERNEL kernel, int blocks,
                   int threads, ARGS... args)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute = {};

    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3((unsigned)threads);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = dependent;
    CUDA(cudaLaunchKernelEx(&config, kernel, args...));
}

static void send(const machine &m, const way &w)
{
    const struct device &own = m.gpu[0];
    uint4 *to = w.where == AT_PEER && w.by == BY_KERNEL ? m.gpu[1].lines : own.lines;

    launch(own.stream, false, next_try, 1, 1, own.number);
    launch(own.stream, false, write_lines, BLOCKS, 128, to, m.word,
           (const unsigned *)own.number, w.behind);
    if (w.by == BY_ENGINE)
        CUDA(cudaMemcpyAsync(m.gpu[1].lines, own.lines, LINES * sizeof(uint4),
                             cudaMemcpyDeviceToDevice, own.stream));
    if (w.behind != BOTH_IN_ONE)
        launch(own.stream, w.dependent, write_words, 1, 32, m.word,
               (const unsigned *)own.number, w.behind == RELEASE, w.dependent);
}

static void receive(const machine &m, const way &w)
{
    const struct device &own = m.gpu[1];

    launch(own.stream, false, next_try, 1, 1, own.number);
    launch(own.stream, false, await_words, 1, 32, (const unsigned *)m.word,
           (const unsigned *)own.number, m.result);
    launch(own.stream, false, check_lines, 1, 512,
           (const uint4 *)m.gpu[w.where == AT_PEER].lines, (const unsigned *)own.number,
           m.result);
}

template <class BODY>
static cudaGraphExec_t captured(int gpu, cudaStream_t stream, const BODY &body)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;

    CUDA(cudaSetDevice(gpu));
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    body();
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    return exec;
}

static void one_try(const machine &m, const way &w, const cudaGraphExec_t (&graph)[2])
{
    CUDA(cudaSetDevice(0));
    launch(m.gpu[0].stream, false, keep_awake, 1, 1, m.word);
    usleep(AWAKE / 1000 - 2000);
    for (int g = 1; g >= 0; g--) {
        CUDA(cudaSetDevice(g));
        if (w.graph)
            CUDA(cudaGraphLaunch(graph[g], m.gpu[g].stream));
        else if (g == 1)
            receive(m, w);
        else
            send(m, w);
    }
    for (int g = 0; g < 2; g++) {
        CUDA(cudaSetDevice(g));
        CUDA(cudaStreamSynchronize(m.gpu[g].stream));
    }
}

/* The number of tries that were wrong. */
static int run(const machine &m, const way &w, int tries)
{
    cudaGraphExec_t graph[2] = {};
    seen s = {};

    CUDA(cudaMemcpy(m.result, &s, sizeof(s), cudaMemcpyHostToDevice));
    if (w.graph) {
        graph[0] = captured(0, m.gpu[0].stream, [&]() { send(m, w); });
        graph[1] = captured(1, m.gpu[1].stream, [&]() { receive(m, w); });
    }
    for (int i = 0; i < tries; i++)
        one_try(m, w, graph);
    for (int g = 0; g < 2 && w.graph; g++)
        CUDA(cudaGraphExecDestroy(graph[g]));
    CUDA(cudaMemcpy(&s, m.result, sizeof(s), cudaMemcpyDeviceToHost));
    printf("%-40s %s: %3llu of %d tries wrong, %6llu lines, by up to %5.1f us\n",
           w.name, w.relied_on ? "relied on" : "not      ", s.wrong, tries, s.lines,
           (double)s.latest / 1e3);
    if (s.unmet) {
        printf("%llu words did not come within 2 s: nothing can be said\n", s.unmet);
        exit(1);
    }
    fflush(stdout);
    return (int)s.wrong;
}

static void open_machine(machine *m)
{
    for (int g = 0; g < 2; g++) {
        CUDA(cudaSetDevice(g));
        CUDA(cudaDeviceEnablePeerAccess(1 - g, 0));
        CUDA(cudaStreamCreateWithFlags(&m->gpu[g].stream, cudaStreamNonBlocking));
        CUDA(cudaMalloc(&m->gpu[g].number, sizeof(unsigned)));
        CUDA(cudaMemset(m->gpu[g].number, 0, sizeof(unsigned)));
        CUDA(cudaMalloc(&m->gpu[g].lines, LINES * sizeof(uint4)));
        CUDA(cudaMemset(m->gpu[g].lines, 0, LINES * sizeof(uint4)));
    }
    CUDA(cudaMalloc(&m->word, 4096));
    CUDA(cudaMemset(m->word, 0, 4096));
    CUDA(cudaMalloc(&m->result, sizeof(seen)));
    for (int g = 0; g < 2; g++) {
        CUDA(cudaSetDevice(g));
        CUDA(cudaDeviceSynchronize());
    }
}

int main(int argc, char **argv)
{
    int tries = 30, gpus = 0, reach = 0, wrong = 0, seen = 0;
    machine m = {};

    if (argc == 3 && strcmp(argv[1], "--tries") == 0 && atoi(argv[2]) > 0) {
        tries = atoi(argv[2]);
    } else if (argc != 1) {
        fprintf(stderr, "usage: gpu_fence [--tries N]\n");
        return 2;
    }
    CUDA(cudaGetDeviceCount(&gpus));
    if (gpus > 1)
        CUDA(cudaDeviceCanAccessPeer(&reach, 0, 1));
    if (!reach) {
        printf("needs two GPUs that reach each other's memory\n");
        return 77;
    }
    open_machine(&m);
    for (const way &w : ways)
        (w.relied_on ? wrong : seen) += run(m, w, tries);
    if (seen == 0)
        printf("no order is missing anywhere: do links sleep here?\n");
    return wrong ? 1 : seen ? 0 : 77;
}
