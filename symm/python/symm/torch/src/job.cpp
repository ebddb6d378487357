// SPDX-License-Identifier: MIT
// job.cpp - see job.hpp.
#include "job.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

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

namespace {

// symm_init's exchange by the store, one turn after the other.
struct Exchange {
    c10::intrusive_ptr<c10d::Store> store;
    std::string prefix;
    int rank, size;
    std::chrono::steady_clock::time_point until;
    int turn = 0;
    std::string error;
};

// Rank r's block of this turn. Sets x->error on failure.
bool get_block(Exchange *x, const std::string &prefix, int r, std::vector<uint8_t> *block)
{
    const std::string key = prefix + std::to_string(r);
    const auto left = std::chrono::duration_cast<Milliseconds>(
        x->until - std::chrono::steady_clock::now());

    try {
        x->store->wait({key}, std::max(left, Milliseconds(1)));
    } catch (const std::exception &) {
        x->error = "rank " + std::to_string(r) +
                   " has not made a call of this process group before the timeout";
        return false;
    }
    *block = x->store->get(key);
    return true;
}

int allgather(void *arg, const void *in, size_t bytes, void *out)
{
    auto *x = static_cast<Exchange *>(arg);
    const std::string prefix = x->prefix + std::to_string(x->turn++) + "/";
    const auto *mine = static_cast<const uint8_t *>(in);

    try {
        x->store->set(prefix + std::to_string(x->rank),
                      std::vector<uint8_t>(mine, mine + bytes));
        for (int r = 0; r < x->size; r++) {
            std::vector<uint8_t> block;

            if (!get_block(x, prefix, r, &block))
                return 1;
            if (block.size() != bytes) {
                x->error = "rank " + std::to_string(r) + " put " +
                           std::to_string(block.size()) + " bytes into the store, not " +
                           std::to_string(bytes);
                return 1;
            }
            std::memcpy(static_cast<char *>(out) + static_cast<size_t>(r) * bytes, block.data(),
                        bytes);
        }
    } catch (const std::exception &e) {
        x->error = e.what();
        return 1;
    }
    return 0;
}

} // namespace

Job::Job(const char *backend, const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
         Milliseconds timeout)
{
    Exchange exchange{store, std::string("symm/") + backend + "/", rank, size,
                      std::chrono::steady_clock::now() + timeout};
    symm_bootstrap bootstrap = {sizeof(bootstrap), allgather, &exchange};
    symm_config config = {};
    symm_status status;

    config.size = sizeof(config);
    config.backend = backend;
    config.world_size = size;
    config.rank = rank;
    config.bootstrap = &bootstrap;
    config.timeout = config.init_timeout = seconds(timeout);
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
