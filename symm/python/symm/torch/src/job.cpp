// SPDX-License-Identifier: MIT
// job.cpp - see job.hpp.
#include "job.hpp"

#include <algorithm>
#include <cstring>

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/utils/pybind.h>

namespace symm_torch {

Counter counters[COUNTS] = {
    {"all_reduce"}, {"all_reduce_norm"}, {"reduce_scatter"}, {"all_gather"}, {"broadcast"},
    {"all_to_all"}, {"barrier"},         {"send"},           {"recv"},       {"copies"},
};

void raise(symm_status status)
{
    const std::string text = std::string("symm: ") + symm_last_error();

    TORCH_CHECK(status != SYMM_ERR_INVALID && status != SYMM_ERR_UNSUPPORTED, text);
    C10_THROW_ERROR(DistBackendError, text);
}

double seconds(Milliseconds timeout)
{
    return std::min(std::max(1e-3 * static_cast<double>(timeout.count()), 1e-3), 604800.0);
}

bool has_cuda()
{
    return c10::impl::hasDeviceGuardImpl(c10::kCUDA) &&
           c10::impl::VirtualGuardImpl(c10::kCUDA).deviceCount() > 0;
}

namespace {

// symm_init's exchange by the group's store: symm._torchrun.gather.
struct Exchange {
    c10::intrusive_ptr<c10d::Store> store;
    std::string prefix;
    int rank, size;
    Milliseconds timeout;
    std::string error;
};

int allgather(void *arg, const void *in, size_t bytes, void *out)
{
    auto *x = static_cast<Exchange *>(arg);
    const pybind11::gil_scoped_acquire gil;

    try {
        const std::string all =
            pybind11::module_::import("symm._torchrun")
                .attr("gather")(x->store, x->prefix, x->rank, x->size, 1e-3 * x->timeout.count(),
                                pybind11::bytes(static_cast<const char *>(in), bytes))
                .cast<std::string>();

        std::memcpy(out, all.data(), all.size()); // size times `bytes`: gather
    } catch (pybind11::error_already_set &e) {
        x->error = pybind11::str(e.value()).cast<std::string>();
    } catch (const std::exception &e) {
        x->error = e.what();
    }
    return !x->error.empty();
}

} // namespace

Job::Job(c10::Device device, const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
         Milliseconds timeout)
{
    const bool is_cuda = device.is_cuda();
    const char *const backend = is_cuda ? "cuda" : "host";
    const bool guarded = is_cuda && has_cuda();
    const c10::OptionalDeviceGuard guard(guarded ? std::make_optional(device) : std::nullopt);
    Exchange exchange = {store, std::string("symm/") + backend, rank, size, timeout, ""};
    symm_bootstrap bootstrap = {sizeof(bootstrap), allgather, &exchange};
    symm_config config = {};
    symm_status status;

    config.size = sizeof(config);
    config.backend = backend;
    config.world_size = size;
    config.rank = rank;
    config.bootstrap = &bootstrap;
    config.timeout = config.init_timeout = seconds(timeout);
    if (guarded) { // symm_init takes the device of the current context: a query makes it current
        const c10::impl::VirtualGuardImpl cuda(device.type());

        (void)cuda.queryStream(cuda.getStream(device));
    }
    status = symm_init(&config, &context_);
    if (status != SYMM_OK && !exchange.error.empty())
        C10_THROW_ERROR(DistBackendError,
                        std::string("symm: ") + symm_last_error() + ": " + exchange.error);
    check(status);
    team_ = symm_team_world(context_);
}

Job::~Job()
{
    symm_finalize(context_);
}

} // namespace symm_torch
