// SPDX-License-Identifier: MIT
// allocator.cpp - tells libsymm which memory torch's caching allocator gives back to the driver.
//
// A library of its own (symm/torch/_allocator.py), with a C interface: the plug-ins for inference
// engines need it without the rest. SYMM_HAS_CUDA=0: for a torch without CUDA, or without CUDA's
// headers, where it says so.
//
// The allocator calls the hook with the lock of a device's allocator held, perhaps by a thread that
// holds the GIL: no call of torch or Python here. symm_capture_release waits for no peer and no
// kernel (symm.h), and libsymm never calls torch's allocator.

#if SYMM_HAS_CUDA
#include <string>

#include <c10/cuda/CUDACachingAllocator.h>

#include "symm/symm.h"
#endif

namespace {

#if SYMM_HAS_CUDA
using c10::cuda::CUDACachingAllocator::TraceEntry;

void on_event(const TraceEntry &event)
{
    // FREE comes before cudaFree; UNMAP, of expandable segments, after cuMemUnmap: libsymm holds
    // such memory itself.
    if (event.action_ != TraceEntry::SEGMENT_FREE && event.action_ != TraceEntry::SEGMENT_UNMAP)
        return;
    // An error is the team's, whose next call raises it.
    (void)!symm_capture_release(reinterpret_cast<const void *>(event.addr_), event.size_);
}
#endif

} // namespace

// Once in a process, after torch's CUDA part has started: there is no way to detach. NULL, or why
// it was not possible; the text stays until the next call.
extern "C" __attribute__((visibility("default"))) const char *symm_torch_attach()
{
#if SYMM_HAS_CUDA
    static std::string error;

    try {
        c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker(&on_event);
        return nullptr;
    } catch (const c10::Error &e) { // cudaMallocAsync and pluggable allocators have no hook
        error = e.what_without_backtrace();
    } catch (const std::exception &e) {
        error = e.what();
    }
    return error.c_str();
#else
    return "it was compiled without CUDA's headers: install the package nvidia-cuda-runtime of "
           "this torch's CUDA, or set CUDA_HOME";
#endif
}
