/* SPDX-License-Identifier: MIT */
/* user_kernels.c - see user_kernels.h. */
#if SYMM_HAVE_CUDA
#include "user_kernels.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "harness.h"
#include "kernels/cuda_launch.h"

/* The kernels' argument is that of the library's: only its size and offsets matter here. */
#define PARAMETER ".param .align 8 .b8 args[%zu]"

static const char text[] = ".version 7.0\n"
                           ".target sm_80\n"
                           ".address_size 64\n"
                           ".visible .entry simt_user_last(" PARAMETER ")\n"
                           "{\n"
                           ".reg .u64 %%t<3>;\n"
                           ".reg .pred %%p;\n"
                           "ld.param.u64 %%t0, [args+%zu];\n" /* count */
                           "mov.u64 %%t1, %%globaltimer;\n"
                           "add.u64 %%t0, %%t0, %%t1;\n"
                           "again:\n"
                           "mov.u64 %%t2, %%globaltimer;\n"
                           "setp.lt.u64 %%p, %%t2, %%t0;\n"
                           "@%%p bra again;\n"
                           "ret;\n"
                           "}\n"
                           ".visible .entry simt_user_meet(" PARAMETER ")\n"
                           "{\n"
                           ".reg .u64 %%t<3>, %%a<4>;\n"
                           ".reg .u32 %%w<3>;\n"
                           ".reg .pred %%p;\n"
                           "mov.u32 %%w0, %%tid.x;\n"
                           "setp.ne.u32 %%p, %%w0, 0;\n"
                           "@%%p ret;\n"
                           "ld.param.u64 %%t0, [args+%zu];\n" /* count */
                           "ld.param.u64 %%a0, [args+%zu];\n" /* in */
                           "ld.param.u64 %%a1, [args+%zu];\n" /* out */
                           "ld.param.u64 %%a2, [args+%zu];\n" /* result */
                           "ld.param.u32 %%w1, [args+%zu];\n" /* tag */
                           "mov.u32 %%w0, %%ctaid.x;\n"
                           "mul.wide.u32 %%a3, %%w0, 4;\n"
                           "add.u64 %%a0, %%a0, %%a3;\n"
                           "add.u64 %%a1, %%a1, %%a3;\n"
                           "mov.u64 %%t1, %%globaltimer;\n"
                           "add.u64 %%t0, %%t0, %%t1;\n"
                           "st.release.sys.u32 [%%a1], %%w1;\n"
                           "again:\n"
                           "ld.acquire.sys.u32 %%w2, [%%a0];\n"
                           "setp.ge.u32 %%p, %%w2, %%w1;\n"
                           "@%%p ret;\n"
                           "mov.u64 %%t2, %%globaltimer;\n"
                           "setp.lt.u64 %%p, %%t2, %%t0;\n"
                           "@%%p bra again;\n"
                           "mov.u32 %%w2, 1;\n"
                           "st.release.sys.u32 [%%a2], %%w2;\n"
                           "ret;\n"
                           "}\n";

int user_kernels_open(struct user_kernels *kernels)
{
    const size_t bytes = sizeof(struct symm_cuda_args);
    char ptx[4096];
    int length;

    memset(kernels, 0, sizeof(*kernels));
    length = snprintf(
        ptx, sizeof(ptx), text, bytes, offsetof(struct symm_cuda_args, count), bytes,
        offsetof(struct symm_cuda_args, count), offsetof(struct symm_cuda_args, in),
        offsetof(struct symm_cuda_args, out), offsetof(struct symm_cuda_args, result),
        offsetof(struct symm_cuda_args, tag));
    CHECK(length > 0 && (size_t)length < sizeof(ptx));
    CHECK_OK(symm__cuda_driver(&kernels->cu));
    CHECK(kernels->cu->cuModuleLoadData(&kernels->module, ptx) == CUDA_SUCCESS);
    CHECK(kernels->cu->cuModuleGetFunction(&kernels->last, kernels->module,
                                           "simt_user_last") == CUDA_SUCCESS);
    CHECK(kernels->cu->cuModuleGetFunction(&kernels->meet, kernels->module,
                                           "simt_user_meet") == CUDA_SUCCESS);
    return 0;
}

void user_kernels_close(struct user_kernels *kernels)
{
    if (kernels->module)
        kernels->cu->cuModuleUnload(kernels->module);
    kernels->module = NULL;
}

static int launch(const struct user_kernels *kernels, CUfunction function, void *stream,
                  unsigned blocks, unsigned threads, struct symm_cuda_args *args)
{
    CUlaunchConfig config = {.gridDimX = blocks,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = threads,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = (CUstream)stream};
    void *params[] = {args};
    CUresult result = kernels->cu->cuLaunchKernelEx(&config, function, params, NULL);

    CHECK_MESSAGE(result == CUDA_SUCCESS, "a kernel of the user's: %d", (int)result);
    return 0;
}

int user_kernels_last(const struct user_kernels *kernels, void *stream, unsigned blocks,
                      unsigned threads, double seconds)
{
    struct symm_cuda_args args = {.count = (uint64_t)(seconds * 1e9)};

    return launch(kernels, kernels->last, stream, blocks, threads, &args);
}

int user_kernels_meet(const struct user_kernels *kernels, void *stream, unsigned blocks,
                      unsigned threads, const uint32_t *own, uint32_t *peer,
                      uint32_t tag, uint32_t *failed, double seconds)
{
    struct symm_cuda_args args = {.in = own,
                                  .out = peer,
                                  .result = failed,
                                  .tag = tag,
                                  .count = (uint64_t)(seconds * 1e9)};

    return launch(kernels, kernels->meet, stream, blocks, threads, &args);
}
#else
typedef int user_kernels_none; /* a file may not be empty */
#endif
