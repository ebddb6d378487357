// SPDX-License-Identifier: MIT
// job.hpp - contexts of libsymm for the ranks of a torch process group, and its errors as
// exceptions.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "symm/symm.h"

namespace symm_torch {

using Milliseconds = std::chrono::milliseconds;

// The exception for a status that is not SYMM_OK, with libsymm's sentence. An argument at
// fault is a RuntimeError, as gloo's and NCCL's backends raise it; all else a DistBackendError.
[[noreturn]] void raise(symm_status status);

inline void check(symm_status status)
{
    if (C10_UNLIKELY(status != SYMM_OK))
        raise(status);
}

// Seconds as libsymm takes them: at most a week.
double seconds(Milliseconds timeout);

// Has torch CUDA devices? Without any, contexts on CUDA are over a fake driver (tests).
bool has_cuda();

// One context of libsymm with the ranks of a process group.
class Job {
  public:
    // Collective. device: of this rank's tensors, a CPU or a CUDA one. The store gets keys
    // "symm/BACKEND/...".
    Job(c10::Device device, const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
        Milliseconds timeout);
    ~Job();
    Job(const Job &) = delete;
    Job &operator=(const Job &) = delete;

    symm_ctx *context() const { return context_; }
    symm_team *team() const { return team_; }

  private:
    symm_ctx *context_ = nullptr;
    symm_team *team_ = nullptr;
};

// What libsymm has moved for torch, by operation. Tests read it to see that no call took
// another path.
struct Counter {
    const char *name;
    std::atomic<uint64_t> calls{0}, bytes{0};
};

enum Count {
    COUNT_ALL_REDUCE,
    COUNT_ALL_REDUCE_NORM,
    COUNT_REDUCE_SCATTER,
    COUNT_ALL_GATHER,
    COUNT_BROADCAST,
    COUNT_ALL_TO_ALL,
    COUNT_BARRIER,
    COUNT_SEND,
    COUNT_RECV,
    COUNT_COPIES, // of tensors that are not contiguous, and of lists of tensors
    COUNTS
};

extern Counter counters[COUNTS];

inline void count(Count which, uint64_t bytes)
{
    counters[which].calls.fetch_add(1, std::memory_order_relaxed);
    counters[which].bytes.fetch_add(bytes, std::memory_order_relaxed);
}

} // namespace symm_torch
