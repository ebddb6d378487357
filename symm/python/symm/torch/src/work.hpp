// SPDX-License-Identifier: MIT
// work.hpp - c10d works of libsymm's calls: of the host (complete when the call has returned),
// and of a CUDA stream (complete when the stream has passed an event).
#pragma once

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "job.hpp"

namespace symm_torch {

class Work : public c10d::Work {
  public:
    Work(int rank, c10d::OpType type, const char *title, std::vector<at::Tensor> outputs)
        : c10d::Work(rank, type, title), outputs_(std::move(outputs))
    {
    }

    std::vector<at::Tensor> result() override { return outputs_; }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    int sourceRank() const override { return source_; }
    void set_source(int rank) { source_ = rank; }

    // Of a host call: it has ended, with the exception if there is one.
    void end(std::exception_ptr exception);

  protected:
    std::vector<at::Tensor> outputs_;

  private:
    c10::intrusive_ptr<c10::ivalue::Future> make_future();

    std::mutex future_mutex_; // future_, and end before or after it was made
    c10::intrusive_ptr<c10::ivalue::Future> future_;
    bool ended_ = false;
    int source_ = -1;
};

// A call that was queued on the current stream of `device`.
class StreamWork : public Work {
  public:
    StreamWork(int rank, c10d::OpType type, const char *title, std::vector<at::Tensor> outputs,
               c10::Device device);

    bool isCompleted() override;
    bool isSuccess() const override { return true; }
    // Orders the current stream after the call; the host goes on.
    bool wait(Milliseconds timeout) override;
    void synchronize() override;

  private:
    c10::Device device_;
    c10::Stream stream_; // that the call was queued on
    c10::Event event_;
};

} // namespace symm_torch
