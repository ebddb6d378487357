// SPDX-License-Identifier: MIT
// backend.hpp - the c10d backend "symm": process groups over libsymm, for CPU and CUDA tensors.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "job.hpp"
#include "lane.hpp"
#include "messages.hpp"
#include "work.hpp"

namespace symm_torch {

class Backend : public c10d::Backend {
  public:
    Backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, Milliseconds timeout);
    ~Backend() override;

    const std::string getBackendName() const override { return "symm"; }
    c10::intrusive_ptr<Options> getBackendOptions() override;
    void setTimeout(Milliseconds timeout) override { timeout_ = timeout; }
    bool supportsCoalescing() const override { return true; }
    void startCoalescing() override;
    c10::intrusive_ptr<c10d::Work> endCoalescing() override;
    void setSequenceNumberForGroup() override {}
    uint64_t getSequenceNumberForGroup() override { return sequence_; }
    void shutdown() override;
    // Ends all waits of this group, here and on its other ranks.
    void abort() override;
    // Runs what is queued and ends this backend's threads. Collectives and sends may follow.
    void end_threads();
    // The context for CUDA or CPU tensors; the first call for CUDA is collective.
    std::shared_ptr<Job> job(c10::Device device);

    using WorkPtr = c10::intrusive_ptr<c10d::Work>;
    using Tensors = std::vector<at::Tensor>;
    using TensorLists = std::vector<std::vector<at::Tensor>>;

    WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) override;
    WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) override;
    WorkPtr allreduce_coalesced(Tensors &tensors,
                                const c10d::AllreduceCoalescedOptions &opts) override;
    WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &opts) override;
    WorkPtr allgather(TensorLists &outputs, Tensors &inputs,
                      const c10d::AllgatherOptions &opts) override;
    WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input,
                            const c10d::AllgatherOptions &opts) override;
    WorkPtr allgather_coalesced(TensorLists &outputs, Tensors &inputs,
                                const c10d::AllgatherOptions &opts) override;
    WorkPtr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::AllgatherOptions &opts) override;
    WorkPtr gather(TensorLists &outputs, Tensors &inputs,
                   const c10d::GatherOptions &opts) override;
    WorkPtr scatter(Tensors &outputs, TensorLists &inputs,
                    const c10d::ScatterOptions &opts) override;
    WorkPtr reduce_scatter(Tensors &outputs, TensorLists &inputs,
                           const c10d::ReduceScatterOptions &opts) override;
    WorkPtr _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                 const c10d::ReduceScatterOptions &opts) override;
    WorkPtr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::ReduceScatterOptions &opts) override;
    WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input,
                          std::vector<int64_t> &output_splits,
                          std::vector<int64_t> &input_splits,
                          const c10d::AllToAllOptions &opts) override;
    WorkPtr alltoall(Tensors &outputs, Tensors &inputs,
                     const c10d::AllToAllOptions &opts) override;
    WorkPtr barrier(const c10d::BarrierOptions &opts) override;
    WorkPtr send(Tensors &tensors, int peer, int tag) override;
    WorkPtr recv(Tensors &tensors, int peer, int tag) override;
    WorkPtr recvAnysource(Tensors &tensors, int tag) override;
    void monitoredBarrier(const c10d::BarrierOptions &opts, bool wait_all) override;

  private:
    // One call of a collective: where it runs, and what all its steps take.
    struct Place {
        symm_team *team;
        symm_call call;
        bool on_host;
        c10::Device device;
    };

    void end();
    WorkPtr point_to_point(symm_p2p_kind kind, Tensors &tensors, int peer, int tag);
    WorkPtr stream_point_to_point(const symm_p2p_op &op, const at::Tensor &tensor);
    WorkPtr run_batch();
    std::shared_ptr<Job> &job_at(c10::Device device); // with jobs_mutex_
    Job &job_of(const at::Tensor &tensor);
    Place place_of(const at::Tensor &tensor, Milliseconds timeout);
    // Runs body(place) in the group's order and makes its work.
    template <class Body>
    WorkPtr submit(c10d::OpType type, const char *title, const at::Tensor &first,
                   std::vector<at::Tensor> outputs, Milliseconds timeout, bool async, Body body);

    c10::intrusive_ptr<c10d::Store> store_;
    Milliseconds timeout_;
    std::mutex jobs_mutex_;
    // host_: made with the group, since two ranks alone may send; cuda_: at the first call with
    // such tensors.
    std::shared_ptr<Job> host_, cuda_;
    std::shared_ptr<Lane> lane_;
    std::shared_ptr<Messages> messages_;
    std::mutex end_mutex_; // one end_threads at a time
    uint64_t sequence_ = 0;
    bool coalescing_ = false;
    std::vector<WorkPtr> coalesced_;
    std::vector<symm_p2p_op> batch_; // sends and receives on a stream, coalesced
    std::vector<at::Tensor> batch_tensors_;
};

// Ends the threads of all backends: before the interpreter ends.
void end_backends();

} // namespace symm_torch
