// SPDX-License-Identifier: MIT
// submit.hpp - Backend::submit, for the files that make collectives.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>

#include "backend.hpp"
#include "calls.hpp"

namespace symm_torch {

template <class Body>
Backend::WorkPtr Backend::submit(c10d::OpType type, const char *title, const at::Tensor &first,
                                 std::vector<at::Tensor> outputs, Milliseconds timeout,
                                 bool async, Body body)
{
    const Place place = place_of(first, timeout);
    // Tensors of autograd and of inference mode are memory here, on every thread.
    auto call = [place, body = std::move(body)]() mutable {
        const at::AutoDispatchBelowADInplaceOrView plain;

        body(Caller{place.team, &place.call});
    };
    WorkPtr result;

    sequence_++;
    if (!place.on_host) {
        call();
        result = c10::make_intrusive<StreamWork>(getRank(), type, title, std::move(outputs),
                                                 place.device);
    } else {
        auto work = c10::make_intrusive<Work>(getRank(), type, title, std::move(outputs));
        auto run = [work, call = std::move(call)]() mutable {
            std::exception_ptr exception;

            try {
                call();
            } catch (...) {
                exception = std::current_exception();
            }
            work->end(exception);
        };

        if (!async && lane_->enter()) {
            run();
            lane_->leave();
        } else {
            lane_->push(std::move(run));
        }
        result = work;
    }
    if (coalescing_)
        coalesced_.push_back(result);
    return result;
}

} // namespace symm_torch
