// SPDX-License-Identifier: MIT
// memory.hpp - torch's symmetric memory over libsymm: the allocator "SYMM".
//
// alloc() takes memory of symm_mem_alloc, which knows no group yet; rendezvous() registers it with
// the team of a group. So one piece of memory may be shared with several groups, ranks may free in
// any order, and a tensor of a memory pool may lie anywhere in its block.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/symm_mem/SymmetricMemory.hpp>

#include "job.hpp"

namespace symm_torch {

// A process group's ranks with memory of one kind of device: a context of libsymm.
class MemoryGroup : public c10::intrusive_ptr_target {
  public:
    // Collective.
    MemoryGroup(const std::string &name, c10::Device device);

    symm_team *team() const { return job_->team(); }
    int rank() const { return rank_; }
    int size() const { return size_; }
    double timeout() const { return timeout_; }
    // Is it of the group that has the name now?
    bool is_current(const c10::intrusive_ptr<c10d::ProcessGroup> &group) const;
    // Host: calls of all threads, one after the other.
    std::mutex &mutex() { return mutex_; }
    // Counts rendezvous, alike on all ranks.
    int next_index() { return index_++; }

  private:
    std::unique_ptr<Job> job_;
    c10::weak_intrusive_ptr<c10d::ProcessGroup> group_;
    int rank_ = 0, size_ = 1, index_ = 0;
    double timeout_ = 0;
    std::mutex mutex_;
};

using MemoryGroupPtr = c10::intrusive_ptr<MemoryGroup>;

// The group of that name for a device; collective where it is new.
MemoryGroupPtr memory_group(const std::string &name, c10::Device device);

// The group if there is one of that name for the kind of device; else NULL.
MemoryGroupPtr find_memory_group(const std::string &name, c10::DeviceType type);

// A call of libsymm for the group: the current stream of the device, and a timeout in
// milliseconds (0: the group's).
symm_call memory_call(const MemoryGroup &group, c10::Device device, size_t timeout_ms);

// One block of memory as the ranks of a group have mapped it.
struct Mapping : public c10::intrusive_ptr_target {
    MemoryGroupPtr group;
    symm_buffer *buffer = nullptr;
    c10::Device device{c10::kCPU};
    size_t bytes = 0; // without the signal pad
    int index = 0;
    std::vector<void *> buffers, pads; // by rank
    at::Tensor table;                  // the same, in the device's memory
    ~Mapping() override;
};

// Our allocator's block that `ptr` lies in: its mapping with the group, which makes it if need be
// (collective then), and the offset in it. Raises for other memory.
c10::intrusive_ptr<Mapping> memory_mapping(void *ptr, const std::optional<std::string> &group,
                                           size_t *offset);
// Is that memory of our allocator?
bool is_ours(const void *ptr);

// Makes the allocator known to torch: of CPU tensors at once, of CUDA tensors as "SYMM" for
// set_backend. Idempotent.
void register_memory();
// The operators torch.ops.symm_mem for tensors of our allocator. Idempotent.
void register_memory_ops();
// The operators torch.ops.symm.all_reduce_norm (norm_ops.cpp). Idempotent.
void register_norm_ops();

} // namespace symm_torch
