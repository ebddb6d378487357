// SPDX-License-Identifier: MIT
// group.cpp - the life of a process group: its jobs, coalescing, barriers.
#include "gil.hpp"
#include "submit.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include <unistd.h>

namespace symm_torch {

namespace {

const pid_t loaded_by = getpid();
// The backends that live, for end_backends.
std::mutex living_mutex;
std::set<Backend *> &living()
{
    static auto *set = new std::set<Backend *>; // outlives every backend

    return *set;
}

} // namespace

// A thread of a backend drops a call's tensors after the call's wait() has returned, and takes the
// GIL for it. An interpreter that is ending then ends the thread, through destructors that
// must not throw: std::terminate. So all threads end before the interpreter does.
void end_backends()
{
    if (getpid() != loaded_by) // a forked child has none of them
        return;
    const std::lock_guard<std::mutex> lock(living_mutex);

    for (Backend *backend : living())
        backend->end_threads();
}

Backend::Backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, Milliseconds timeout)
    : c10d::Backend(rank, size), store_(std::move(store)), timeout_(timeout),
      host_(std::make_shared<Job>(at::kCPU, store_, rank, size, timeout)),
      lane_(std::make_shared<Lane>()), messages_(std::make_shared<Messages>(host_->team()))
{
    init();
    const std::lock_guard<std::mutex> lock(living_mutex);
    living().insert(this);
}

Backend::~Backend()
{
    // The threads that shutdown() waits for may need the GIL to drop a tensor.
    const GilReleased released;

    end();
}

void Backend::end()
{
    {
        const std::lock_guard<std::mutex> lock(living_mutex);

        living().erase(this);
    }
    shutdown();
}

c10::intrusive_ptr<Backend::Options> Backend::getBackendOptions()
{
    return c10::make_intrusive<Options>("symm", timeout_);
}

void Backend::shutdown()
{
    end_threads();
    const std::lock_guard<std::mutex> lock(jobs_mutex_);
    messages_.reset();
    lane_.reset();
    host_.reset();
    cuda_.reset();
}

// Without jobs_mutex_ while it waits: a callback of a future makes calls on the lane's thread, and
// abort() may have to end what is waited for.
void Backend::end_threads()
{
    const std::lock_guard<std::mutex> ending(end_mutex_);
    std::shared_ptr<Messages> messages;
    std::shared_ptr<Lane> lane;

    {
        const std::lock_guard<std::mutex> lock(jobs_mutex_);

        messages = messages_;
        lane = lane_;
    }
    if (messages)
        messages->stop();
    if (lane)
        lane->stop();
}

void Backend::abort()
{
    const std::lock_guard<std::mutex> lock(jobs_mutex_);

    for (const auto *job : {&host_, &cuda_})
        if (*job)
            (void)symm_team_abort((*job)->team(), "its process group was aborted");
}

std::shared_ptr<Job> &Backend::job_at(c10::Device device)
{
    std::shared_ptr<Job> &job = device.is_cuda() ? cuda_ : host_;

    TORCH_CHECK(lane_, "symm: the process group has been shut down");
    if (!job)
        job = std::make_shared<Job>(device, store_, getRank(), getSize(), timeout_);
    return job;
}

std::shared_ptr<Job> Backend::job(c10::Device device)
{
    const std::lock_guard<std::mutex> lock(jobs_mutex_);

    return job_at(device);
}

Job &Backend::job_of(const at::Tensor &tensor)
{
    const std::lock_guard<std::mutex> lock(jobs_mutex_);

    TORCH_CHECK(tensor.is_cuda() || tensor.is_cpu(), "symm: tensors on ", tensor.device(),
                " are not supported");
    return *job_at(tensor.device());
}

Backend::Place Backend::place_of(const at::Tensor &tensor, Milliseconds timeout)
{
    Job &job = job_of(tensor);
    Place place{job.team(), {}, !tensor.is_cuda(), tensor.device()};

    place.call.size = sizeof(place.call);
    place.call.timeout = seconds(timeout == c10d::kUnsetTimeout ? timeout_ : timeout);
    if (!place.on_host)
        place.call.stream = c10::impl::VirtualGuardImpl(place.device.type())
                                .getStream(place.device)
                                .native_handle();
    return place;
}

// ---- Coalescing -------------------------------------------------------------------------

namespace {

// The works between startCoalescing and endCoalescing.
class GroupWork : public c10d::Work {
  public:
    GroupWork(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> works)
        : c10d::Work(rank, c10d::OpType::COALESCED), works_(std::move(works))
    {
    }

    bool isCompleted() override
    {
        return std::all_of(works_.begin(), works_.end(),
                           [](const auto &work) { return work->isCompleted(); });
    }

    bool isSuccess() const override
    {
        return std::all_of(works_.begin(), works_.end(),
                           [](const auto &work) { return work->isSuccess(); });
    }

    bool wait(Milliseconds timeout) override
    {
        for (const auto &work : works_)
            work->wait(timeout);
        return true;
    }

    void synchronize() override
    {
        for (const auto &work : works_)
            work->synchronize();
    }

    std::vector<at::Tensor> result() override
    {
        std::vector<at::Tensor> all;

        for (const auto &work : works_) {
            const std::vector<at::Tensor> some = work->result();

            all.insert(all.end(), some.begin(), some.end());
        }
        return all;
    }

    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override
    {
        TORCH_CHECK(!works_.empty(), "symm: no call was coalesced");
        return works_.back()->getFuture(); // they run in order
    }

  private:
    std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

} // namespace

void Backend::startCoalescing()
{
    TORCH_CHECK(!coalescing_, "symm: coalescing has begun already");
    coalescing_ = true;
}

c10::intrusive_ptr<c10d::Work> Backend::endCoalescing()
{
    TORCH_CHECK(coalescing_, "symm: coalescing has not begun");
    coalescing_ = false;
    if (!batch_.empty())
        coalesced_.push_back(run_batch());
    return c10::make_intrusive<GroupWork>(getRank(), std::exchange(coalesced_, {}));
}

// ---- Sends and receives -----------------------------------------------------------------

// On the host by Messages, with tags. On a device by libsymm's engine (NCCL), in the order of
// the calls, whatever their tags.
Backend::WorkPtr Backend::point_to_point(symm_p2p_kind kind, Tensors &tensors, int peer, int tag)
{
    const bool sends = kind == SYMM_P2P_SEND;
    const char *what = sends ? "send" : "recv";
    const at::Tensor tensor = only(what, tensors);
    const Place place = place_of(tensor, c10d::kUnsetTimeout);

    TORCH_CHECK((peer >= 0 && peer < getSize()) || (peer == SYMM_ANY_PEER && !sends),
                "symm: ", what, ": rank ", peer, " of ", getSize(), " ranks");
    sequence_++;
    if (!place.on_host) {
        TORCH_CHECK(tensor.is_contiguous() && peer != SYMM_ANY_PEER, "symm: ", what,
                    " of CUDA tensors: they must be contiguous, and the rank be named");
        return stream_point_to_point({sizeof(symm_p2p_op), kind, tensor.data_ptr(),
                                      tensor.nbytes(), SYMM_UINT8, peer, nullptr},
                                     tensor);
    }
    auto work = c10::make_intrusive<Work>(
        getRank(), sends ? c10d::OpType::SEND : c10d::OpType::RECV,
        sends ? "symm:send" : "symm:recv", sends ? Tensors{} : tensors);
    if (sends) {
        messages_->send(dense(tensor), peer, tag, timeout_, work);
    } else {
        check_strided(tensor);
        messages_->recv(tensor, peer, tag, timeout_, work);
    }
    if (coalescing_)
        coalesced_.push_back(work);
    return work;
}

Backend::WorkPtr Backend::stream_point_to_point(const symm_p2p_op &op, const at::Tensor &tensor)
{
    batch_.push_back(op);
    batch_tensors_.push_back(tensor);
    return coalescing_ ? nullptr : run_batch();
}

Backend::WorkPtr Backend::run_batch()
{
    const std::vector<symm_p2p_op> batch = std::exchange(batch_, {});
    const Tensors tensors = std::exchange(batch_tensors_, {});
    const Place place = place_of(tensors[0], c10d::kUnsetTimeout);

    check(symm_p2p_batch(place.team, batch.data(), static_cast<int>(batch.size()), &place.call,
                         nullptr));
    for (const symm_p2p_op &op : batch)
        count(op.kind == SYMM_P2P_SEND ? COUNT_SEND : COUNT_RECV, op.count);
    return c10::make_intrusive<StreamWork>(getRank(), c10d::OpType::COALESCED, "symm:p2p", tensors,
                                           place.device);
}

Backend::WorkPtr Backend::send(Tensors &tensors, int peer, int tag)
{
    return point_to_point(SYMM_P2P_SEND, tensors, peer, tag);
}

Backend::WorkPtr Backend::recv(Tensors &tensors, int peer, int tag)
{
    return point_to_point(SYMM_P2P_RECV, tensors, peer, tag);
}

Backend::WorkPtr Backend::recvAnysource(Tensors &tensors, int tag)
{
    return point_to_point(SYMM_P2P_RECV, tensors, SYMM_ANY_PEER, tag);
}

// ---- Barriers ---------------------------------------------------------------------------

Backend::WorkPtr Backend::barrier(const c10d::BarrierOptions &opts)
{
    const at::Device device =
        opts.device ? *opts.device
        : opts.device_ids.empty()
            ? at::Device(at::kCPU)
            : at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(opts.device_ids[0]));
    const at::Tensor none = at::empty({0}, at::TensorOptions().device(device));

    return submit(c10d::OpType::BARRIER, "symm:barrier", none, {}, opts.timeout, opts.asyncOp,
                  [](const Caller &c) {
                      check(symm_barrier(c.team, c.call, nullptr));
                      count(COUNT_BARRIER, 0);
                  });
}

void Backend::monitoredBarrier(const c10d::BarrierOptions &opts, bool /* wait_all */)
{
    c10d::BarrierOptions host = opts;

    host.device = at::Device(at::kCPU);
    host.asyncOp = false;
    try {
        barrier(host)->wait();
    } catch (const c10::DistBackendError &error) {
        const std::string why = error.what_without_backtrace(); // "symm: rank 1 did not arrive"
        const size_t missing = why.find("ank"), end = why.find(" did not arrive");

        C10_THROW_ERROR(DistBackendError,
                        "Rank " + std::to_string(getRank()) + " timed out in monitoredBarrier: " +
                            (end != std::string::npos && missing < end
                                 ? "R" + why.substr(missing, end - missing) +
                                       " failed to pass monitoredBarrier: "
                                 : "") +
                            why);
    }
}

} // namespace symm_torch
