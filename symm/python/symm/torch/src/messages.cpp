// SPDX-License-Identifier: MIT
// messages.cpp - see messages.hpp.
#include "messages.hpp"

#include <algorithm>

#include <ATen/core/LegacyTypeDispatch.h>

#include "calls.hpp"

namespace symm_torch {

namespace {

constexpr Milliseconds kGrace(1000);

symm_call call_for(Milliseconds timeout, const char *site)
{
    symm_call call = {};

    call.size = sizeof(call);
    call.timeout = seconds(timeout);
    call.site = site;
    return call;
}

} // namespace

Messages::Messages(symm_team *team) : team_(team)
{
    for (int i = 0; i < symm_team_size(team); i++)
        lanes_.push_back(std::make_unique<Lane>());
}

// ---- Sends ------------------------------------------------------------------------------

void Messages::send(const at::Tensor &dense, int peer, int tag, Milliseconds timeout,
                    c10::intrusive_ptr<Work> work)
{
    {
        const std::lock_guard<std::mutex> lock(mutex_);

        sends_++;
    }
    lanes_[static_cast<size_t>(peer)]->push([this, dense, peer, tag, timeout,
                                             work = std::move(work)]() {
        Header header = {dense.nbytes(), tag};
        symm_p2p_op ops[2] = {};
        const symm_call call = call_for(timeout, "symm:send");
        std::exception_ptr exception;

        ops[0] = {sizeof(ops[0]), SYMM_P2P_SEND, &header, sizeof(header), SYMM_UINT8, peer,
                  nullptr};
        ops[1] = {sizeof(ops[1]), SYMM_P2P_SEND, dense.data_ptr(), dense.nbytes(), SYMM_UINT8,
                  peer, nullptr};
        try {
            check(symm_p2p_batch(team_, ops, header.bytes > 0 ? 2 : 1, &call, nullptr));
            count(COUNT_SEND, header.bytes);
        } catch (...) {
            exception = std::current_exception();
        }
        work->end(exception);
        const std::lock_guard<std::mutex> lock(mutex_);
        sends_--;
        quiet_.notify_all();
    });
}

// ---- Receives ---------------------------------------------------------------------------

void Messages::recv(const at::Tensor &output, int peer, int tag, Milliseconds timeout,
                    c10::intrusive_ptr<Work> work)
{
    Posted posted{output, peer, tag, Clock::now() + timeout, std::move(work)};
    std::unique_lock<std::mutex> lock(mutex_);
    const auto kept = std::find_if(kept_.begin(), kept_.end(), [&](const Kept &message) {
        return fits(posted, message.peer, message.tag);
    });

    if (kept == kept_.end()) {
        TORCH_CHECK(!stopping_, "symm: recv: the process group has been shut down");
        posted_.push_back(std::move(posted));
        if (!thread_.joinable())
            thread_ = std::thread([this] { run(); });
        wake_.notify_one();
        return;
    }
    const Kept message = std::move(*kept);
    kept_.erase(kept);
    lock.unlock();
    complete(posted, message.peer, message.bytes);
}

void Messages::complete(const Posted &posted, int peer, const at::Tensor &bytes)
{
    const at::Tensor &output = posted.output;

    posted.work->set_source(peer);
    if (bytes.nbytes() != output.nbytes()) { // the receive fails, not the group
        posted.work->end(std::make_exception_ptr(c10::Error(
            "symm: recv: rank " + std::to_string(peer) + " sent " +
                std::to_string(bytes.nbytes()) + " bytes with tag " +
                std::to_string(posted.tag) + ", and the tensor has " +
                std::to_string(output.nbytes()))));
        return;
    }
    count(COUNT_RECV, bytes.nbytes());
    std::exception_ptr exception;
    if (!bytes.is_same(output)) {
        const at::AutoDispatchBelowADInplaceOrView plain; // as in Backend::submit

        try {
            output.copy_(bytes.view(output.scalar_type()).view(output.sizes()));
        } catch (...) { // memory that overlaps itself
            exception = std::current_exception();
        }
    }
    posted.work->end(exception);
}

void Messages::fail(const std::list<Posted> &posted, const std::string &why)
{
    for (const Posted &p : posted) {
        const std::string from =
            p.peer == SYMM_ANY_PEER ? "any rank" : "rank " + std::to_string(p.peer);

        p.work->end(std::make_exception_ptr(
            c10::DistBackendError("symm: recv from " + from + " with tag " +
                                      std::to_string(p.tag) + ": " + why)));
    }
}

std::list<Messages::Posted> Messages::claim(int peer, int tag)
{
    std::list<Posted> claimed;
    const auto first = std::find_if(posted_.begin(), posted_.end(), [&](const Posted &posted) {
        return fits(posted, peer, tag);
    });

    if (first != posted_.end())
        claimed.splice(claimed.begin(), posted_, first);
    return claimed;
}

void Messages::take_bytes(const at::Tensor &bytes, int peer, Milliseconds timeout)
{
    const symm_call call = call_for(timeout, "symm:recv");

    if (bytes.nbytes() > 0)
        check(symm_recv(team_, bytes.data_ptr(), bytes.nbytes(), SYMM_UINT8, peer, &call,
                        nullptr));
}

void Messages::take_message(Milliseconds timeout)
{
    const symm_call call = call_for(timeout, "symm:recv");
    Header header = {};
    int peer = SYMM_ANY_PEER;
    const symm_p2p_op op = {sizeof(op), SYMM_P2P_RECV, &header,      sizeof(header),
                            SYMM_UINT8, SYMM_ANY_PEER, &peer};

    check(symm_p2p_batch(team_, &op, 1, &call, nullptr));
    const int tag = static_cast<int>(header.tag);
    std::unique_lock<std::mutex> lock(mutex_);
    std::list<Posted> claimed = claim(peer, tag);
    lock.unlock();
    const bool direct = !claimed.empty() && claimed.front().output.nbytes() == header.bytes &&
                        claimed.front().output.is_contiguous();
    at::Tensor bytes;

    try {
        bytes = direct ? claimed.front().output
                       : at::empty({static_cast<int64_t>(header.bytes)},
                                   at::TensorOptions(at::kByte));
        take_bytes(bytes, peer, timeout);
    } catch (const c10::Error &error) {
        fail(claimed, error.what_without_backtrace());
        throw;
    }
    lock.lock();
    if (claimed.empty())
        claimed = claim(peer, tag); // posted meanwhile
    if (claimed.empty()) {
        kept_.push_back({bytes, peer, tag});
        return;
    }
    lock.unlock();
    complete(claimed.front(), peer, bytes);
}

Milliseconds Messages::time_left()
{
    const auto first = std::min_element(
        posted_.begin(), posted_.end(),
        [](const Posted &a, const Posted &b) { return a.until < b.until; });
    const auto left = std::chrono::duration_cast<Milliseconds>(first->until - Clock::now());

    if (left.count() < 0) // messages for other receives kept coming
        (void)symm_team_abort(team_, "a receive was late");
    return std::max(left, Milliseconds(1));
}

void Messages::run()
{
    std::unique_lock<std::mutex> lock(mutex_);

    for (;;) {
        wake_.wait(lock, [this] { return !posted_.empty() || stopping_; });
        if (posted_.empty())
            return;
        const Milliseconds left = time_left();
        lock.unlock();
        std::list<Posted> failed;
        try {
            take_message(left);
            lock.lock();
        } catch (const c10::Error &error) {
            lock.lock();
            failed.swap(posted_);
            lock.unlock();
            fail(failed, error.what_without_backtrace());
            lock.lock();
        }
        if (posted_.empty())
            quiet_.notify_all();
    }
}

void Messages::stop()
{
    std::unique_lock<std::mutex> lock(mutex_);

    if (stopping_)
        return;
    if (!quiet_.wait_for(lock, kGrace, [this] { return posted_.empty() && sends_ == 0; }))
        (void)symm_team_abort(team_, "its process group was shut down while sends or receives "
                                     "were under way");
    stopping_ = true;
    lock.unlock();
    wake_.notify_one();
    for (const auto &lane : lanes_)
        lane->stop();
    if (thread_.joinable())
        thread_.join();
}

} // namespace symm_torch
