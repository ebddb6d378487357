// SPDX-License-Identifier: MIT
// capture.hpp - brackets around captures of CUDA graphs, for the contexts of a process group.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend.hpp"

namespace symm_torch {

// The bracket of one team, which it keeps. All ranks begin and end theirs in the same order.
class Bracket {
  public:
    Bracket(std::shared_ptr<void> owner, symm_team *team) : owner_(std::move(owner)), team_(team) {}

    void begin() { check(symm_team_capture_begin(team_)); }
    void end() { check(symm_team_capture_end(team_)); }
    void abandon(const std::string &why) { check(symm_team_capture_abandon(team_, why.c_str())); }

  private:
    std::shared_ptr<void> owner_;
    symm_team *team_;
};

// Of the backend, if it is "symm" (its job is made if there is none: collective), and of the
// context that symmetric memory and operators of the group of that name use, if there is one.
std::vector<Bracket> brackets(c10d::Backend *backend, const std::string &name);

} // namespace symm_torch
