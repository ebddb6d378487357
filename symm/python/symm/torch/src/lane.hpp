// SPDX-License-Identifier: MIT
// lane.hpp - the order of a process group's calls on the host. Ranks pair calls by their order,
// whether each was made with async_op or not, so all of them use libsymm's default stream, one
// after the other: a synchronous call runs on the caller's thread when nothing is ahead of it,
// every other one on a thread of the lane.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace symm_torch {

class Lane {
  public:
    using Task = std::function<void()>;

    ~Lane() { stop(); }

    // Takes the lane for a call on this thread; false: something is ahead. leave() ends it.
    bool enter()
    {
        const std::lock_guard<std::mutex> lock(mutex_);

        if (busy_ || !tasks_.empty())
            return false;
        busy_ = true;
        return true;
    }

    void leave()
    {
        {
            const std::lock_guard<std::mutex> lock(mutex_);

            busy_ = false;
        }
        wake_.notify_all();
    }

    // Queues a task, which must not throw. It runs on the lane's thread; after stop(), on this one.
    // Where a callback of a task makes the call, which may wait for it there, it has run on return.
    void push(Task task)
    {
        {
            std::unique_lock<std::mutex> lock(mutex_);

            if (stopping_)
                return run_here(task, lock);
            if (std::this_thread::get_id() == worker_) {
                tasks_.push_back(std::move(task));
                return run_queued(lock);
            }
            if (!thread_.joinable())
                thread_ = std::thread([this] { run(); });
            worker_ = thread_.get_id();
            tasks_.push_back(std::move(task));
        }
        wake_.notify_all();
    }

    // Runs what is queued, then ends the thread.
    void stop()
    {
        {
            const std::lock_guard<std::mutex> lock(mutex_);

            stopping_ = true;
        }
        wake_.notify_all();
        if (thread_.joinable())
            thread_.join();
    }

  private:
    // After what is queued; at once in a callback of a task.
    void run_here(const Task &task, std::unique_lock<std::mutex> &lock)
    {
        const bool nested = std::this_thread::get_id() == worker_;

        if (!nested)
            wake_.wait(lock, [this] { return !busy_ && tasks_.empty(); });
        busy_ = true;
        lock.unlock();
        task();
        lock.lock();
        busy_ = nested;
        wake_.notify_all();
    }

    void run_queued(std::unique_lock<std::mutex> &lock)
    {
        while (!tasks_.empty()) {
            const Task task = std::move(tasks_.front());

            tasks_.pop_front();
            lock.unlock();
            task();
            lock.lock();
        }
    }

    void run()
    {
        std::unique_lock<std::mutex> lock(mutex_);

        for (;;) {
            wake_.wait(lock, [this] { return (!tasks_.empty() && !busy_) || stopping_; });
            if (tasks_.empty())
                return;
            if (busy_) { // stopping, and a call of another thread is at work
                wake_.wait(lock, [this] { return !busy_; });
                continue;
            }
            Task task = std::move(tasks_.front());
            tasks_.pop_front();
            busy_ = true;
            lock.unlock();
            task();
            task = nullptr; // its tensors go before the next task begins
            lock.lock();
            busy_ = false;
            wake_.notify_all();
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<Task> tasks_;
    std::thread thread_;
    std::thread::id worker_; // thread_'s, also when it has ended
    bool busy_ = false; // a task or a call of another thread runs
    bool stopping_ = false;
};

} // namespace symm_torch
