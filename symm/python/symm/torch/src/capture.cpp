// SPDX-License-Identifier: MIT
// capture.cpp - see capture.hpp.
#include "capture.hpp"

#include "memory.hpp"

namespace symm_torch {

std::vector<Bracket> brackets(c10d::Backend *backend, const std::string &name)
{
    std::vector<Bracket> result;

    if (auto *ours = dynamic_cast<Backend *>(backend)) {
        std::shared_ptr<Job> job = ours->job(true);
        symm_team *team = job->team();

        result.emplace_back(std::move(job), team);
    }
    if (MemoryGroupPtr group = find_memory_group(name, c10::kCUDA)) {
        symm_team *team = group->team();

        result.emplace_back(std::make_shared<MemoryGroupPtr>(std::move(group)), team);
    }
    return result;
}

} // namespace symm_torch
