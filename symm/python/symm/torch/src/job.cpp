// SPDX-License-Identifier: MIT
// job.cpp - see job.hpp.
#include "job.hpp"

#include <algorithm>
#include <cstring>
#include <random>
#include <stdexcept>
#include <thread>
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

constexpr size_t TOKEN = 16; // random bytes
constexpr Milliseconds LEAST{20}, MOST{1000}; // of a wait, which doubles
constexpr Milliseconds STALE{100}; // between looks at what an earlier try has left
constexpr Milliseconds LINGER{2000}; // for what rank 0 says at the deadline to reach the others

using Bytes = std::vector<uint8_t>;

Bytes random_token()
{
    std::random_device device;
    Bytes token(TOKEN);

    for (uint8_t &byte : token)
        byte = static_cast<uint8_t>(device());
    return token;
}

Bytes text_bytes(const std::string &text) { return Bytes(text.begin(), text.end()); }

std::string late(int r)
{
    return "rank " + std::to_string(r) +
           " has not made a call of this process group before the timeout";
}

// symm_init's exchange by the store, in which restarts of torchrun and earlier process groups of
// the name may have left something. The keys and what they mean are those of symm/_torchrun.py:
// nothing counts that does not carry a random token of this try.
class Exchange {
  public:
    Exchange(const c10::intrusive_ptr<c10d::Store> &store, std::string prefix, int rank, int size,
             Milliseconds timeout)
        : store_(store), prefix_(std::move(prefix)), rank_(rank), size_(size),
          until_(std::chrono::steady_clock::now() + timeout)
    {
    }

    // Throws a sentence.
    Bytes run(const uint8_t *block, size_t bytes)
    {
        Bytes mine = random_token();

        mine.insert(mine.end(), block, block + bytes);
        return rank_ == 0 ? lead(mine) : follow(mine);
    }

    std::string error;

  private:
    std::string key(const std::string &name) const { return prefix_ + name; }

    std::string rank_key(int r) const { return key("rank " + std::to_string(r)); }

    std::string has_key(const std::string &version, int r) const
    {
        return key(version + "/has " + std::to_string(r));
    }

    // The next wait, doubled each time; false: the deadline has passed.
    bool next_wait(Milliseconds *wait, Milliseconds more) const
    {
        const auto left = std::chrono::duration_cast<Milliseconds>(
                              until_ - std::chrono::steady_clock::now()) +
                          more;

        *wait = std::max(std::min({2 * *wait, MOST, left}), LEAST);
        return left.count() > 0;
    }

    bool are_there(const std::vector<std::string> &keys, Milliseconds wait)
    {
        try {
            store_->wait(keys, wait);
        } catch (const std::exception &) { // late, or the store has gone: then this throws, too
            (void)store_->check({keys[0]});
            return false;
        }
        return true;
    }

    std::string publish(char mark, const std::vector<Bytes> &parts, const std::string &sentence)
    {
        std::string version;
        Bytes all{static_cast<uint8_t>(mark)};
        const char *digits = "0123456789abcdef";

        for (uint8_t byte : random_token()) {
            version += digits[byte / 16];
            version += digits[byte % 16];
        }
        for (const Bytes &part : parts)
            all.insert(all.end(), part.begin(), part.end());
        all.insert(all.end(), sentence.begin(), sentence.end());
        store_->set(key(version + "/all"), all);
        store_->set(key("now"), text_bytes(version));
        return version;
    }

    // The ranks' blocks without their tokens.
    Bytes strip(const std::vector<Bytes> &parts) const
    {
        Bytes blocks;

        for (const Bytes &part : parts)
            blocks.insert(blocks.end(), part.begin() + TOKEN, part.end());
        return blocks;
    }

    [[noreturn]] void fail(const std::vector<std::string> &wanted, bool of_version)
    {
        std::vector<Bytes> tokens(static_cast<size_t>(size_), Bytes(TOKEN));
        std::string sentence = "the ranks put parts of different sizes into the store";

        for (int r = size_; r-- > 0;)
            if (store_->check({rank_key(r)})) {
                tokens[static_cast<size_t>(r)] = store_->get(rank_key(r));
                tokens[static_cast<size_t>(r)].resize(TOKEN);
            }
        for (size_t i = wanted.size(); i-- > 0;)
            if (!store_->check({wanted[i]}))
                sentence = late(static_cast<int>(i) + of_version);
        publish('-', tokens, sentence);
        throw std::runtime_error(sentence);
    }

    Bytes lead(const Bytes &mine)
    {
        std::vector<std::string> ranks, wanted;
        std::vector<Bytes> parts;
        std::string version;
        Milliseconds wait = LEAST / 2;

        for (int r = 0; r < size_; r++)
            ranks.push_back(rank_key(r));
        wanted = ranks;
        store_->set(ranks[0], mine);
        while (next_wait(&wait, Milliseconds(0))) {
            if (!are_there(wanted, wait) && version.empty())
                continue;
            std::vector<Bytes> found = store_->multiGet(ranks);

            if (!std::all_of(found.begin(), found.end(), [&mine](const Bytes &part) {
                    return part.size() == mine.size();
                })) {
                std::this_thread::sleep_for(std::min(wait, STALE)); // of an earlier try?
            } else if (found != parts) {
                parts = std::move(found);
                version = publish('+', parts, "");
                wanted.clear();
                for (int r = 1; r < size_; r++)
                    wanted.push_back(has_key(version, r));
            } else if (store_->check(wanted)) {
                store_->set(key(version + "/go"), text_bytes("+"));
                return strip(parts);
            }
        }
        fail(wanted, !version.empty());
    }

    // The parts of all ranks; none: they are of an earlier try.
    std::vector<Bytes> judge(const Bytes &all, const Bytes &mine) const
    {
        const bool failed = !all.empty() && all[0] == '-';
        const size_t length = failed ? TOKEN : mine.size();
        const size_t whole = 1 + static_cast<size_t>(size_) * length;
        const auto token_end = mine.begin() + TOKEN;
        std::vector<Bytes> parts;

        if (failed ? all.size() < whole : all.size() != whole) {
            if (std::search(all.begin(), all.end(), mine.begin(), token_end) != all.end())
                throw std::runtime_error("the ranks put " + std::to_string(all.size()) +
                                         " bytes into the store, not " + std::to_string(whole));
            return parts;
        }
        for (size_t r = 0; r < static_cast<size_t>(size_); r++)
            parts.emplace_back(all.begin() + 1 + r * length, all.begin() + 1 + (r + 1) * length);
        if (!std::equal(mine.begin(), token_end, parts[static_cast<size_t>(rank_)].begin()))
            parts.clear();
        else if (failed)
            throw std::runtime_error(std::string(all.begin() + whole, all.end()));
        return parts;
    }

    Bytes follow(const Bytes &mine)
    {
        std::vector<Bytes> parts;
        std::string seen;
        Milliseconds wait = LEAST / 2;

        store_->set(rank_key(rank_), mine);
        while (next_wait(&wait, LINGER)) {
            const bool come = are_there({key(parts.empty() ? "now" : seen + "/go")}, wait);

            if (come && !parts.empty())
                return strip(parts);
            if (!come && seen.empty())
                continue;
            const Bytes now = store_->get(key("now"));
            const std::string version(now.begin(), now.end());

            if (version != seen) {
                parts = judge(store_->get(key(version + "/all")), mine);
                seen = version;
                if (!parts.empty())
                    store_->set(has_key(version, rank_), text_bytes("+"));
            } else if (parts.empty()) {
                std::this_thread::sleep_for(std::min(wait, STALE));
            }
        }
        throw std::runtime_error(late(0));
    }

    c10::intrusive_ptr<c10d::Store> store_;
    std::string prefix_;
    int rank_, size_;
    std::chrono::steady_clock::time_point until_;
};

int allgather(void *arg, const void *in, size_t bytes, void *out)
{
    auto *exchange = static_cast<Exchange *>(arg);

    try {
        const Bytes all = exchange->run(static_cast<const uint8_t *>(in), bytes);

        std::memcpy(out, all.data(), all.size()); // size times `bytes`: judge
    } catch (const std::exception &e) {
        exchange->error = e.what();
        return 1;
    }
    return 0;
}

} // namespace

Job::Job(const char *backend, const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
         Milliseconds timeout)
{
    Exchange exchange(store, std::string("symm/") + backend + "/", rank, size, timeout);
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
