// SPDX-License-Identifier: MIT
// capture.cpp - see capture.hpp.
#include "capture.hpp"

#include "memory.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace symm_torch {

std::vector<Bracket> brackets(c10d::Backend *backend, const std::string &name)
{
    std::vector<Bracket> result;

    if (auto *ours = dynamic_cast<Backend *>(backend)) {
        const c10::Device device =
            has_cuda() ? c10::impl::VirtualGuardImpl(c10::kCUDA).getDevice()
                       : c10::Device(c10::kCUDA, 0);
        std::shared_ptr<Job> job = ours->job(device);
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
