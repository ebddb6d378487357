// SPDX-License-Identifier: MIT
// work.cpp - see work.hpp.
#include "work.hpp"

namespace symm_torch {

c10::intrusive_ptr<c10::ivalue::Future> Work::make_future()
{
    std::vector<c10::Device> devices;

    for (const at::Tensor &tensor : outputs_)
        if (tensor.is_cuda() && devices.empty())
            devices.push_back(tensor.device());
    return c10::make_intrusive<c10::ivalue::Future>(
        c10::ListType::create(c10::TensorType::get()), devices);
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture()
{
    const std::lock_guard<std::mutex> lock(future_mutex_);

    if (!future_) {
        future_ = make_future();
        if (ended_) {
            if (exception_)
                future_->setError(exception_);
            else
                future_->markCompleted(at::IValue(outputs_));
        }
    }
    return future_;
}

void Work::end(std::exception_ptr exception)
{
    c10::intrusive_ptr<c10::ivalue::Future> future;

    finish(exception);
    {
        const std::lock_guard<std::mutex> lock(future_mutex_);

        ended_ = true;
        future = future_;
    }
    if (!future)
        return;
    if (exception)
        future->setError(exception);
    else
        future->markCompleted(at::IValue(outputs_));
}

StreamWork::StreamWork(int rank, c10d::OpType type, const char *title,
                       std::vector<at::Tensor> outputs, c10::Device device)
    : Work(rank, type, title, std::move(outputs)), device_(device),
      stream_(c10::impl::VirtualGuardImpl(device.type()).getStream(device)),
      event_(device.type())
{
    event_.record(stream_);
    end(nullptr); // its future is ordered by the stream: made complete on that stream
}

bool StreamWork::isCompleted()
{
    return event_.query();
}

void StreamWork::synchronize()
{
    const c10::Stream current =
        c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);

    if (current != stream_)
        event_.block(current);
}

bool StreamWork::wait(Milliseconds timeout)
{
    synchronize();
    if (timeout != kNoTimeout)
        event_.synchronize();
    return true;
}

} // namespace symm_torch
