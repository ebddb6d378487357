// SPDX-License-Identifier: MIT
// messages.hpp - c10d's send and recv on the host, with tags.
//
// A message is a header (tag, bytes) and its bytes through symm_send's rings. Each destination
// has a thread that sends in order. One thread receives, and only while a receive is posted:
// it takes the next message of any rank, gives it to the first receive posted that fits, and
// keeps it for a later one if none does. A long message to a rank that receives nothing waits.
#pragma once

#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lane.hpp"
#include "work.hpp"

namespace symm_torch {

class Messages {
  public:
    explicit Messages(symm_team *team);
    ~Messages() { stop(); }
    Messages(const Messages &) = delete;
    Messages &operator=(const Messages &) = delete;

    // Queues a send of a dense tensor's bytes.
    void send(const at::Tensor &dense, int peer, int tag, Milliseconds timeout,
              c10::intrusive_ptr<Work> work);
    // Posts a receive into a tensor. peer: a rank, or SYMM_ANY_PEER.
    void recv(const at::Tensor &output, int peer, int tag, Milliseconds timeout,
              c10::intrusive_ptr<Work> work);
    // Lets what is queued end for a second, then fails the team if it has not. No receive may
    // follow.
    void stop();

  private:
    using Clock = std::chrono::steady_clock;

    struct Header {
        uint64_t bytes;
        int64_t tag;
    };

    // A receive that has no message yet.
    struct Posted {
        at::Tensor output;
        int peer, tag;
        Clock::time_point until;
        c10::intrusive_ptr<Work> work;
    };

    // A message that no receive was posted for.
    struct Kept {
        at::Tensor bytes;
        int peer, tag;
    };

    static bool fits(const Posted &posted, int peer, int tag)
    {
        return posted.tag == tag && (posted.peer == peer || posted.peer == SYMM_ANY_PEER);
    }

    void run();
    // Until the first receive posted is late; fails the team if one is already. Locked.
    Milliseconds time_left();
    // Takes the next message of any rank, and completes the receive that it fits.
    void take_message(Milliseconds timeout);
    // Takes the first receive that this message fits out of the list. Locked.
    std::list<Posted> claim(int peer, int tag);
    void take_bytes(const at::Tensor &bytes, int peer, Milliseconds timeout);
    // Ends a receive with its message; bytes may be its own tensor.
    static void complete(const Posted &posted, int peer, const at::Tensor &bytes);
    static void fail(const std::list<Posted> &posted, const std::string &why);

    symm_team *team_;
    std::vector<std::unique_ptr<Lane>> lanes_; // by destination
    std::mutex mutex_;                         // all below
    std::condition_variable wake_, quiet_;
    std::list<Posted> posted_;
    std::list<Kept> kept_;
    std::thread thread_; // made by the first receive
    int sends_ = 0;      // that have not ended
    bool stopping_ = false;
};

} // namespace symm_torch
