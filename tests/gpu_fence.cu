/* SPDX-License-Identifier: MIT */
/*
 * gpu_fence.cu - litmus tests of two GPUs: each order that the kernels' protocols rely on
 * (docs/memory-model.md) as a program of a few lines, and the same with the order weakened.
 *
 * The orders:
 *   gpu_fence_stores.cu   stores at a peer and what follows them; chains; one address
 *   gpu_fence_loads.cu    loads before a word; acquire
 *   gpu_fence_words.cu    packets; stores of one thread to one address; sentinels
 *   gpu_fence_streams.cu  words that streams write and await
 *
 * In most of them GPU 0 accesses lines at GPU 1, then writes a word there; GPU 1 polls the word
 * and looks at the lines, or overwrites them. Before each try all links but the word's sleep: no
 * other line has crossed them for longer than links stay awake (50 ms). An access that must wake
 * its link arrives 50 to 200 us late, so that a missing order shows at once. The others make many
 * rounds with links awake.
 *
 * An order that libsymm's kernels rely on must hold in every try, else, or if a way has no result,
 * the exit status is 1. A weakened one may be seen to fail: then the method can see what the order
 * prevents. 77: fewer than two GPUs that reach each other, or no weakened order was seen to fail
 * where links should sleep, so that little was measured. 2: an error of CUDA; 3: the time limit.
 *
 *   --tries N    of each way (15)
 *   --only TEXT  only orders or ways whose name holds TEXT
 */
#include <csignal>
#include <cstring>
#include <sched.h>
#include <unistd.h>

#include "gpu_fence.h"

#define AWAKE_TIME 60000000u /* ns for which only the word's link is used */

/* Keeps the link of the word's line awake while all others fall asleep. */
static __global__ void keep_awake(unsigned *words)
{
    for (uint64_t begin = symm_port_now(); symm_port_now() - begin < AWAKE_TIME;) {
        store_word(words + AWAKE_WORD, 1, false);
        spin(5000);
    }
}

static __global__ void fill(symm_packet *lines, const unsigned *number,
                            enum filling filling)
{
    const unsigned n = *number, i = threadIdx.x;

    switch (filling) {
    case FILL_LINES:
        lines[i] = line_of(n, i);
        break;
    case FILL_ZEROS:
        lines[i] = {};
        break;
    case FILL_PACKETS:
        lines[i] = ll_of(n * ROUNDS + ROUNDS, i);
        break;
    case FILL_SENTINELS:
        lines[i] = {{0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}};
        break;
    }
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Waits for both GPUs. False: a stream's wait for its token had to be ended. */
static bool finish(const machine &m)
{
    const double begin = seconds();
    bool late = false;

    for (int g = 0; g < 2;) {
        cudaError_t error = cudaStreamQuery(m.gpu[g].stream);

        if (error == cudaSuccess) {
            g++;
            continue;
        }
        if (error != cudaErrorNotReady)
            CUDA(error);
        late = seconds() - begin > 5;
        if (late || refused)
            *(volatile unsigned *)m.token = 1;
        if (seconds() - begin > 10) {
            fprintf(stderr, "gpu_fence: GPU %d does not end\n", g);
            _exit(3);
        }
        sched_yield();
    }
    return !late;
}

static void queue_try(const machine &m, const way &w, int g)
{
    CUDA(cudaSetDevice(g));
    (g == 0 ? w.send : w.receive)(m);
}

static cudaGraphExec_t captured(const machine &m, const way &w, int g)
{
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;

    CUDA(cudaSetDevice(g));
    CUDA(cudaStreamBeginCapture(m.gpu[g].stream, cudaStreamCaptureModeThreadLocal));
    queue_try(m, w, g);
    if (refused) { /* the capture may be invalid */
        cudaStreamEndCapture(m.gpu[g].stream, &graph);
        cudaGetLastError();
    } else {
        CUDA(cudaStreamEndCapture(m.gpu[g].stream, &graph));
        CUDA(cudaGraphInstantiate(&exec, graph, 0));
    }
    if (graph)
        CUDA(cudaGraphDestroy(graph));
    return exec;
}

static bool one_try(const machine &m, const way &w, const cudaGraphExec_t (&graph)[2])
{
    usleep(1000); /* what the try before has stored is there */
    *(volatile unsigned *)m.token = 0;
    for (int g = 0; g < 2; g++) {
        CUDA(cudaSetDevice(g));
        launch(m.gpu[g].stream, false, fill, 1, LINES, m.gpu[g].lines,
               (const unsigned *)m.gpu[g].number, w.filling);
    }
    finish(m);
    if (w.links == ASLEEP) {
        CUDA(cudaSetDevice(0));
        launch(m.gpu[0].stream, false, keep_awake, 1, 1, m.gpu[1].words);
        usleep(AWAKE_TIME / 1000 - 2000);
    }
    for (int g = 1; g >= 0; g--) {
        CUDA(cudaSetDevice(g));
        if (w.queue == GRAPH)
            CUDA(cudaGraphLaunch(graph[g], m.gpu[g].stream));
        else
            queue_try(m, w, g);
    }
    return finish(m);
}

/* What both GPUs have seen in all tries. */
static seen run(const machine &m, const way &w, int tries)
{
    cudaGraphExec_t graph[2] = {};
    seen sum = {};

    refused = false;
    for (int g = 0; g < 2; g++) {
        CUDA(cudaMemcpy(m.gpu[g].result, &sum, sizeof(sum), cudaMemcpyHostToDevice));
        if (w.queue == GRAPH)
            graph[g] = captured(m, w, g);
    }
    for (int i = 0; i < tries && !refused && !sum.unmet; i++)
        sum.unmet += !one_try(m, w, graph);
    for (int g = 0; g < 2; g++) {
        seen s = {};

        if (graph[g])
            CUDA(cudaGraphExecDestroy(graph[g]));
        CUDA(cudaMemcpy(&s, m.gpu[g].result, sizeof(s), cudaMemcpyDeviceToHost));
        sum.wrong += s.wrong;
        sum.lines += s.lines;
        sum.looks += s.looks;
        sum.unmet += s.unmet;
        sum.latest = sum.latest > s.latest ? sum.latest : s.latest;
    }
    return sum;
}

struct total {
    int wrong, unmet; /* of relied-on ways: tries; ways without a result */
    int seen;         /* tries of weakened ways that were wrong because links slept */
};

/* All ways of an order; the last line says what they mean. */
static void judge(const machine &m, const ordering &o, const char *only, int tries,
                  bool dependent, total *all)
{
    static const char *const roles[] = {"relied on", "weakened", "weakened*"};
    unsigned long long wrong = 0, weak = 0, asleep = 0;
    int relied = 0, weakened = 0, unmet = 0;

    for (const way &w : o.ways) {
        seen s;

        if (!strstr(o.name, only) && !strstr(w.name, only))
            continue;
        if (w.dependent && !dependent) {
            printf("  %-44s %-9s needs dependent launch\n", w.name, roles[w.role]);
            continue;
        }
        s = run(m, w, tries);
        if (refused) {
            printf("  %-44s %-9s not taken by the driver\n", w.name, roles[w.role]);
            unmet += w.role == RELIED_ON;
            continue;
        }
        printf("  %-44s %-9s %3llu of %d tries wrong, %7llu of %llu looks", w.name,
               roles[w.role], s.wrong, tries, s.lines, s.looks);
        if (s.latest)
            printf(", by up to %.1f us", (double)s.latest / 1e3);
        printf("\n");
        if (s.unmet || s.looks == 0) {
            printf("  %llu waits failed: nothing can be said\n", s.unmet);
            unmet += w.role == RELIED_ON;
        }
        fflush(stdout);
        (w.role == RELIED_ON ? wrong : weak) += s.wrong;
        (w.role == RELIED_ON ? relied : weakened) += tries;
        if (w.role != RELIED_ON && w.links == ASLEEP)
            asleep += s.wrong;
    }
    if (relied + weakened + unmet == 0)
        return;
    printf("%s: %s in %d tries", o.name,
           wrong         ? "WRONG"
           : unmet       ? "UNKNOWN"
           : relied == 0 ? "not tried"
                         : "holds",
           relied);
    if (weakened)
        printf("; weakened: %sseen to fail in %d", weak ? "" : "not ", weakened);
    printf("\n");
    fflush(stdout);
    all->wrong += (int)wrong;
    all->seen += (int)asleep;
    all->unmet += unmet;
}

static void open_machine(machine *m)
{
    for (int g = 0; g < 2; g++) {
        struct device *own = &m->gpu[g];
        int flush = 0;

        CUDA(cudaSetDevice(g));
        CUDA(cudaDeviceEnablePeerAccess(1 - g, 0));
        CUDA(cudaStreamCreateWithFlags(&own->stream, cudaStreamNonBlocking));
        CUDA(cudaMalloc(&own->number, sizeof(unsigned)));
        CUDA(cudaMemset(own->number, 0, sizeof(unsigned)));
        CUDA(cudaMalloc(&own->lines, LINES * sizeof(symm_packet)));
        CUDA(cudaMalloc(&own->words, WORDS * sizeof(unsigned)));
        CUDA(cudaMemset(own->words, 0, WORDS * sizeof(unsigned)));
        CUDA(cudaMalloc(&own->result, sizeof(seen)));
        CUDA(cudaDeviceGetAttribute(&flush, cudaDevAttrCanFlushRemoteWrites, g));
        own->flush = flush != 0;
    }
    CUDA(cudaHostAlloc(&m->token, sizeof(unsigned),
                       cudaHostAllocPortable | cudaHostAllocMapped));
    for (int g = 0; g < 2; g++) {
        CUDA(cudaSetDevice(g));
        CUDA(cudaDeviceSynchronize());
    }
}

static void too_late(int)
{
    static const char text[] = "gpu_fence: time limit\n";

    (void)!write(2, text, sizeof(text) - 1);
    _exit(3);
}

static int usage(void)
{
    fprintf(stderr, "usage: gpu_fence [--tries N] [--only TEXT]\n");
    return 2;
}

int main(int argc, char **argv)
{
    int tries = 15, gpus = 0, reach = 0, back = 0, major = 0;
    const char *only = "";
    total all = {};
    machine m = {};

    for (int i = 1; i < argc; i += 2) {
        if (i + 1 < argc && strcmp(argv[i], "--tries") == 0)
            tries = atoi(argv[i + 1]);
        else if (i + 1 < argc && strcmp(argv[i], "--only") == 0)
            only = argv[i + 1];
        else
            return usage();
    }
    if (tries < 1)
        return usage();
    setenv("CUDA_MODULE_LOADING", "EAGER", 0); /* no try waits for a kernel's text */
    signal(SIGALRM, too_late);
    alarm(60u * ((unsigned)tries + 14) / 15);
    CUDA(cudaGetDeviceCount(&gpus));
    if (gpus > 1) {
        CUDA(cudaDeviceCanAccessPeer(&reach, 0, 1));
        CUDA(cudaDeviceCanAccessPeer(&back, 1, 0));
        CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    }
    if (!reach || !back) {
        printf("needs two GPUs that reach each other's memory\n");
        return 77;
    }
    open_machine(&m);
    for (const auto &list : {orderings_of_stores(), orderings_of_loads(),
                             orderings_of_words(), orderings_of_streams()})
        for (const ordering &o : list)
            judge(m, o, only, tries, major >= 9, &all);
    if (all.seen == 0)
        printf("no access was late: do links sleep here?\n");
    printf("%d wrong tries of orders that are relied on, %d ways without a result\n",
           all.wrong, all.unmet);
    return all.wrong || all.unmet ? 1 : all.seen ? 0 : 77;
}
