/* SPDX-License-Identifier: MIT */
/*
 * peer.cu - see peer.h. Built by bench/setup_flashinfer.sh against the headers of FlashInfer's
 * wheel; nothing of them lies in this tree. FlashInfer's own entry point compiles every pattern
 * for every type: this one takes what is compared.
 */
#include <array>
#include <cstdio>
#include <exception>
#include <string>

#include <flashinfer/comm/trtllm_allreduce_fusion.cuh>

#include "norm/peer.h"

namespace fused = flashinfer::trtllm_allreduce_fusion;

typedef fused::AllReduceFusionPattern pattern;
typedef __nv_bfloat16 element;

static fused::AllReduceFusionParams<element> params_of(const norm_peer_call &call)
{
    fused::AllReduceFusionParams<element> p = {};

    p.nranks = call.ranks;
    p.rank = call.rank;
    p.size = call.rows * call.hidden;
    p.hidden_dim = call.hidden;
    p.workspace = call.workspace;
    p.allreduce_in = const_cast<void *>(call.in);
    p.residual_in = call.residual;
    p.residual_out = call.residual;
    p.norm_out = call.norm;
    p.quant_out = call.quant;
    p.rms_gamma = const_cast<void *>(call.weight);
    p.rms_eps = call.eps;
    p.scale_factor = call.scale;
    p.use_oneshot = !call.kind.two_shot;
    p.stream = (cudaStream_t)call.stream;
    p.pattern = call.quant ? pattern::kARResidualRMSNormFP8Quant
                           : pattern::kARResidualRMSNorm;
    p.trigger_completion_at_end = !call.kind.early;
    return p;
}

template <pattern P, int N> static cudaError_t launch(const norm_peer_call &call)
{
    const bool dependent = call.kind.dependent != 0;

    if (call.kind.fp32)
        return fused::allreduce_fusion_kernel_launcher<P, element, N, true>(
            params_of(call), dependent);
    return fused::allreduce_fusion_kernel_launcher<P, element, N, false>(
        params_of(call), dependent);
}

template <int N> static cudaError_t launch_for(const norm_peer_call &call)
{
    return call.quant ? launch<pattern::kARResidualRMSNormFP8Quant, N>(call)
                      : launch<pattern::kARResidualRMSNorm, N>(call);
}

extern "C" int norm_peer_launch(const norm_peer_call *call, char *error,
                                size_t error_bytes)
{
    cudaError_t result = cudaErrorInvalidValue;

    try {
        if (call->ranks == 2)
            result = launch_for<2>(*call);
        else if (call->ranks == 4)
            result = launch_for<4>(*call);
        else if (call->ranks == 8)
            result = launch_for<8>(*call);
    } catch (const std::exception &thrown) {
        snprintf(error, error_bytes, "%s", thrown.what());
        return 1;
    }
    if (result != cudaSuccess)
        snprintf(error, error_bytes, "a launch failed with %s",
                 cudaGetErrorString(result));
    return result != cudaSuccess;
}
