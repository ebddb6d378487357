// SPDX-License-Identifier: MIT
// memory.cpp - see memory.hpp.
#include "gil.hpp"
#include "memory.hpp"

#include <shared_mutex>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace symm_torch {

namespace sm = c10d::symmetric_memory;

namespace {

constexpr int PAD_ALIGN = 256;
constexpr int SIGNALS = 256; // of a team and a sender
// A mapping's channel c is its team's signal (SIGNAL_STEP x index + c) % SIGNALS.
constexpr int SIGNAL_STEP = 16;

struct Block {
    char *ptr;
    size_t bytes, pad; // asked for; where the signal pad begins
    size_t whole;
    c10::Device device;
    std::optional<std::string> group;
    std::map<std::string, c10::intrusive_ptr<Mapping>> mappings;
};

// State of the process. Never destroyed: tensors and groups may live until its very end.
struct State {
    std::shared_mutex blocks_mutex;
    std::map<const char *, std::shared_ptr<Block>> blocks;
    std::mutex groups_mutex; // held while a group is made: ranks make them in one order
    std::map<std::pair<std::string, c10::DeviceType>, MemoryGroupPtr> groups;
};

State &state()
{
    static auto *made = new State;

    return *made;
}

std::shared_ptr<Block> find_block(const void *ptr)
{
    const auto *at = static_cast<const char *>(ptr);
    State &s = state();
    const std::shared_lock<std::shared_mutex> lock(s.blocks_mutex);
    auto found = s.blocks.upper_bound(at);

    if (found == s.blocks.begin())
        return nullptr;
    --found;
    return at < found->first + found->second->whole ? found->second : nullptr;
}

} // namespace

// ---- Groups -----------------------------------------------------------------------------

MemoryGroup::MemoryGroup(const std::string &name, c10::Device device)
    : group_(c10::intrusive_ptr<c10d::ProcessGroup>())
{
    const auto group = c10d::resolve_process_group(name);
    const auto store =
        c10::make_intrusive<c10d::PrefixStore>("symm_mem/" + name, group->getStore());
    const Milliseconds timeout = std::chrono::minutes(5);

    group_ = c10::weak_intrusive_ptr<c10d::ProcessGroup>(group);
    rank_ = group->getRank();
    size_ = group->getSize();
    timeout_ = seconds(timeout);
    job_ = std::make_unique<Job>(device, store, rank_, size_, timeout);
}

bool MemoryGroup::is_current(const c10::intrusive_ptr<c10d::ProcessGroup> &group) const
{
    return group_.lock() == group;
}

MemoryGroupPtr memory_group(const std::string &name, c10::Device device)
{
    State &s = state();
    const std::lock_guard<std::mutex> lock(s.groups_mutex);
    MemoryGroupPtr &group = s.groups[{name, device.type()}];

    if (!group || !group->is_current(c10d::resolve_process_group(name))) {
        group.reset();
        group = c10::make_intrusive<MemoryGroup>(name, device);
    }
    return group;
}

MemoryGroupPtr find_memory_group(const std::string &name, c10::DeviceType type)
{
    State &s = state();
    const std::lock_guard<std::mutex> lock(s.groups_mutex);
    const auto found = s.groups.find({name, type});

    return found != s.groups.end() && found->second &&
                   found->second->is_current(c10d::resolve_process_group(name))
               ? found->second
               : MemoryGroupPtr();
}

symm_call memory_call(const MemoryGroup &group, c10::Device device, size_t timeout_ms)
{
    symm_call call = {};

    call.size = sizeof(call);
    call.timeout = timeout_ms ? seconds(Milliseconds(timeout_ms)) : group.timeout();
    if (device.is_cuda())
        call.stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
    return call;
}

// ---- Mappings ---------------------------------------------------------------------------

Mapping::~Mapping()
{
    symm_buffer_release(buffer);
}

namespace {

// Collective.
c10::intrusive_ptr<Mapping> make_mapping(const Block &block, const std::string &name)
{
    auto mapping = c10::make_intrusive<Mapping>();
    std::vector<int64_t> table;

    mapping->group = memory_group(name, block.device);
    const MemoryGroup &group = *mapping->group;
    const std::lock_guard<std::mutex> lock(mapping->group->mutex());

    mapping->device = block.device;
    mapping->bytes = block.bytes;
    check(symm_buffer_register(group.team(), block.ptr, block.whole, &mapping->buffer));
    check(symm_rendezvous(group.team()));
    mapping->index = mapping->group->next_index();
    for (int r = 0; r < group.size(); r++) {
        auto *at = static_cast<char *>(symm_buffer_peer_ptr(mapping->buffer, r));

        TORCH_CHECK(at, "symm: the memory of rank ", r, " cannot be mapped (another host)");
        mapping->buffers.push_back(at);
        mapping->pads.push_back(at + block.pad);
    }
    for (const auto *pointers : {&mapping->buffers, &mapping->pads})
        for (void *pointer : *pointers)
            table.push_back(static_cast<int64_t>(reinterpret_cast<intptr_t>(pointer)));
    mapping->table = at::tensor(table, at::TensorOptions().dtype(at::kLong)).to(block.device);
    return mapping;
}

} // namespace

c10::intrusive_ptr<Mapping> memory_mapping(void *ptr, const std::optional<std::string> &group,
                                           size_t *offset)
{
    const auto block = find_block(ptr);

    TORCH_CHECK(block, "symm: a rendezvous needs a tensor of symm_mem.empty() with the backend "
                       "SYMM; this memory is not from there");
    const auto &name = group ? group : block->group;

    TORCH_CHECK(name, "symm: neither the rendezvous nor the allocation names a process group");
    *offset = static_cast<size_t>(static_cast<char *>(ptr) - block->ptr);
    {
        const std::shared_lock<std::shared_mutex> lock(state().blocks_mutex);
        const auto found = block->mappings.find(*name);

        if (found != block->mappings.end() &&
            found->second->group->is_current(c10d::resolve_process_group(*name)))
            return found->second;
    }
    const GilReleased released;
    auto mapping = make_mapping(*block, *name);
    const std::unique_lock<std::shared_mutex> lock(state().blocks_mutex);

    block->mappings[*name] = mapping;
    return mapping;
}

bool is_ours(const void *ptr)
{
    return find_block(ptr) != nullptr;
}

// ---- torch's classes --------------------------------------------------------------------

namespace {

class Memory : public sm::SymmetricMemory {
  public:
    Memory(c10::intrusive_ptr<Mapping> mapping, size_t offset)
        : mapping_(std::move(mapping)), offset_(offset)
    {
    }

    std::vector<void *> get_buffer_ptrs() override { return mapping_->buffers; }
    std::vector<void *> get_signal_pad_ptrs() override { return mapping_->pads; }
    void **get_buffer_ptrs_dev() override
    {
        return static_cast<void **>(mapping_->table.data_ptr());
    }
    void **get_signal_pad_ptrs_dev() override
    {
        return get_buffer_ptrs_dev() + mapping_->buffers.size();
    }
    size_t get_buffer_size() override { return mapping_->bytes; }
    size_t get_offset() override { return offset_; }
    bool has_multicast_support() override { return false; }
    void *get_multicast_ptr() override { return nullptr; }
    int get_rank() override { return mapping_->group->rank(); }
    int get_world_size() override { return mapping_->group->size(); }
    c10::Device get_device() override { return mapping_->device; }
    bool world_within_direct_access() override { return true; }

    void barrier(int channel, size_t timeout_ms) override
    {
        TORCH_CHECK(channel >= 0, "symm: barrier: channel ", channel, " is negative");
        call(timeout_ms, [](symm_team *team, const symm_call *call) {
            check(symm_barrier(team, call, nullptr));
            count(COUNT_BARRIER, 0);
        });
    }

    void put_signal(int dst_rank, int channel, size_t timeout_ms) override
    {
        const int signal = signal_of("put_signal", channel);

        check_rank("put_signal", dst_rank);
        call(timeout_ms, [&](symm_team *team, const symm_call *call) {
            check(symm_signal(team, dst_rank, signal, call, nullptr));
        });
    }

    void wait_signal(int src_rank, int channel, size_t timeout_ms) override
    {
        const int signal = signal_of("wait_signal", channel);

        check_rank("wait_signal", src_rank);
        call(timeout_ms, [&](symm_team *team, const symm_call *call) {
            check(symm_signal_wait(team, src_rank, signal, call, nullptr));
        });
    }

  private:
    template <class Body> void call(size_t timeout_ms, Body body)
    {
        MemoryGroup &group = *mapping_->group;
        const symm_call made = memory_call(group, mapping_->device, timeout_ms);
        const GilReleased released;
        const std::unique_lock<std::mutex> lock(group.mutex());

        body(group.team(), &made);
    }

    int signal_of(const char *what, int channel) const
    {
        TORCH_CHECK(channel >= 0 && channel < SIGNALS, "symm: ", what, ": channel ", channel,
                    "; there are 0 to ", SIGNALS - 1);
        return (SIGNAL_STEP * mapping_->index + channel) % SIGNALS;
    }

    void check_rank(const char *what, int rank) const
    {
        TORCH_CHECK(rank >= 0 && rank < mapping_->group->size(), "symm: ", what, ": rank ", rank,
                    " of ", mapping_->group->size(), " ranks");
    }

    c10::intrusive_ptr<Mapping> mapping_;
    size_t offset_;
};

class Allocator : public sm::SymmetricMemoryAllocator {
  public:
    explicit Allocator(c10::DeviceType type) : type_(type) {}

    void *alloc(size_t size, int device, const std::optional<std::string> &group) override
    {
        const size_t pad = (size + PAD_ALIGN - 1) / PAD_ALIGN * PAD_ALIGN;
        const size_t whole = pad + sm::get_signal_pad_size();
        const bool is_cuda = type_ == c10::kCUDA;
        const auto index = static_cast<c10::DeviceIndex>(is_cuda ? device : -1);
        const c10::Device at =
            is_cuda && device < 0
                ? c10::impl::VirtualGuardImpl(type_).getDevice()
                : c10::Device(type_, index);
        void *ptr = nullptr;

        register_memory_ops();
        check(symm_mem_alloc(is_cuda ? "cuda" : "host", at.index(), whole, &ptr));
        const std::unique_lock<std::shared_mutex> lock(state().blocks_mutex);

        state().blocks[static_cast<char *>(ptr)] = std::make_shared<Block>(
            Block{static_cast<char *>(ptr), size, pad, whole, at, group, {}});
        return ptr;
    }

    void free(void *ptr) override
    {
        std::shared_ptr<Block> block;
        {
            const std::unique_lock<std::shared_mutex> lock(state().blocks_mutex);
            const auto found = state().blocks.find(static_cast<char *>(ptr));

            if (found == state().blocks.end() || sm::is_finalizing())
                return;
            block = found->second;
            state().blocks.erase(found);
        }
        block->mappings.clear();
        // Captured calls would keep it, and their replays go on.
        if (type_ == c10::kCUDA)
            (void)!symm_capture_release(ptr, block->whole);
        (void)symm_mem_free(ptr); // peers' mappings, and handles that are held, keep the memory
    }

    size_t get_alloc_size(void *ptr) override
    {
        const auto block = find_block(ptr);

        TORCH_CHECK(block, "symm: get_alloc_size: the memory is not from the backend SYMM");
        return block->bytes;
    }

    c10::intrusive_ptr<sm::SymmetricMemory>
    rendezvous(void *ptr, const std::optional<std::string> &group) override
    {
        size_t offset = 0;

        if (!is_ours(ptr)) // torch's operators ask so, and take a workspace then
            return nullptr;
        auto mapping = memory_mapping(ptr, group, &offset);

        return c10::make_intrusive<Memory>(std::move(mapping), offset);
    }

    // Of torch 2.12 and later.
    virtual bool has_allocation(void *ptr) { return is_ours(ptr); }
    bool has_multicast_support(int /* device */) override { return false; }
    c10::DeviceType supported_device_type() override { return type_; }
    std::string name() override { return "SYMM"; }

  private:
    c10::DeviceType type_;
};

} // namespace

void register_memory()
{
    static std::once_flag once;

    std::call_once(once, [] {
        if (!sm::has_allocator(c10::kCPU))
            sm::register_allocator(c10::kCPU, c10::make_intrusive<Allocator>(c10::kCPU));
        sm::register_availability("SYMM", c10::make_intrusive<Allocator>(c10::kCUDA));
    });
}

} // namespace symm_torch
