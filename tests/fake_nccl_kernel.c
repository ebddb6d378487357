/* SPDX-License-Identifier: MIT */
/*
 * fake_nccl_kernel.c - an operation of the fake NCCL as a kernel, for the fake driver's model of a
 * device (FAKE_NCCL_KERNEL): it has as many blocks as its communicator may have. Its data move
 * once all blocks are resident, since each block of NCCL's talks with its peer's. So the kernel
 * waits for its peers, and has its multiprocessors meanwhile.
 */
#include "fake_nccl.h"

#include <cuda.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda_launch.h"
#include "util/clock.h"

#define BLOCKS_MOST 256
#define THREADS                                                                        \
    288 /* of NCCL's 640: with 128 registers each it fills a multiprocessor, too */
#define EARLY_MOST  30.0 /* seconds for an early kernel to be resident */
#define NANOSECONDS UINT64_C(120000000000)

struct launched {
    atomic_int
        references; /* its thread, the caller that waits, the end on the stream */
    struct fake_work *work;
    struct fake_comm *comm;
    uint32_t blocks, late;
    uint32_t here[BLOCKS_MOST]; /* set by a block that is resident, which then awaits */
    uint32_t gate[BLOCKS_MOST];
};

static bool is_resident(const struct launched *l)
{
    for (uint32_t b = 0; b < l->blocks; b++)
        if (__atomic_load_n(&l->here[b], __ATOMIC_ACQUIRE) == 0)
            return false;
    return true;
}

static void CUDA_CB drop(void *arg)
{
    struct launched *l = arg;

    if (atomic_fetch_sub(&l->references, 1) == 1)
        free(l);
}

static void *run(void *arg)
{
    struct launched *l = arg;

    while (!is_resident(l) && !atomic_load(&l->comm->abort))
        symm__sleep(FAKE_NCCL_PAUSE);
    fake_work_run(l->work);
    for (uint32_t b = 0; b < l->blocks; b++)
        __atomic_store_n(&l->gate[b], 1, __ATOMIC_RELEASE);
    drop(l);
    return NULL;
}

static void CUDA_CB come_late(void *seconds)
{
    symm__sleep(strtod(seconds, NULL));
}

static CUfunction kernel_of(struct fake_comm *comm)
{
    static const uint32_t image[4] = {0xba55ed50u};
    CUresult (*load)(CUmodule *, const void *) =
        (CUresult(*)(CUmodule *, const void *))fake_nccl_driver("cuModuleLoadData");
    CUresult (*find)(CUfunction *, CUmodule, const char *) = (CUresult(*)(
        CUfunction *, CUmodule, const char *))fake_nccl_driver("cuModuleGetFunction");
    CUmodule module;
    CUfunction found;

    if (!comm->kernel) {
        if (load(&module, image) != 0 || find(&found, module, "simt_user_meet") != 0)
            fake_nccl_die("no kernel");
        comm->kernel = found;
    }
    return comm->kernel;
}

void fake_nccl_launch_kernel(void *stream, struct fake_work *work, const char *when)
{
    CUresult (*launch)(const CUlaunchConfig *, CUfunction, void **, void **) =
        (CUresult(*)(const CUlaunchConfig *, CUfunction, void **,
                     void **))fake_nccl_driver("cuLaunchKernelEx");
    CUresult (*queue)(CUstream, CUhostFn, void *) =
        (CUresult(*)(CUstream, CUhostFn, void *))fake_nccl_driver("cuLaunchHostFunc");
    const bool first = work->ticket == 0;
    const char *ctas = getenv("NCCL_MAX_CTAS"); /* overrules, as it does NCCL's */
    CUfunction kernel = kernel_of(work->comm);  /* to load it waits for what runs */
    struct launched *l = calloc(1, sizeof(*l));
    CUlaunchConfig config = {.gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = THREADS,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = stream};
    struct symm_cuda_args args;
    void *params[] = {&args};
    pthread_t thread;

    if (!l)
        fake_nccl_die("no memory");
    l->references = 3;
    l->work = work;
    l->comm = work->comm;
    l->blocks = ctas ? (uint32_t)atoi(ctas) : (uint32_t)work->comm->max_ctas;
    if (l->blocks < 1 || l->blocks > BLOCKS_MOST)
        fake_nccl_die("a kernel of %u blocks", l->blocks);
    args = (struct symm_cuda_args){.in = (void *)l->gate,
                                   .out = (void *)l->here,
                                   .result = &l->late,
                                   .tag = 1,
                                   .count = NANOSECONDS};
    config.gridDimX = l->blocks;
    if (first && strncmp(when, "late ", 5) == 0 &&
        queue(stream, come_late, (void *)(uintptr_t)(when + 5)) != 0)
        fake_nccl_die("the stream takes no operation");
    if (launch(&config, kernel, params, NULL) != 0 || queue(stream, drop, l) != 0 ||
        pthread_create(&thread, NULL, run, l) != 0)
        fake_nccl_die("no kernel runs");
    pthread_detach(thread);
    if (first && strcmp(when, "early") == 0) {
        const double until = symm__now() + EARLY_MOST;

        while (!atomic_load(&l->comm->abort) && symm__now() < until && !is_resident(l))
            symm__sleep(FAKE_NCCL_PAUSE);
    }
    drop(l);
}
