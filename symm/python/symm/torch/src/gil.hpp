// SPDX-License-Identifier: MIT
// gil.hpp - waits without Python's lock.
#pragma once

#include <optional>

#include <torch/csrc/utils/pybind.h>

namespace symm_torch {

// Gives the GIL up where this thread has it: torch calls some functions that wait with it.
class GilReleased {
  public:
    GilReleased()
    {
        if (Py_IsInitialized() && PyGILState_Check())
            released_.emplace();
    }

  private:
    std::optional<pybind11::gil_scoped_release> released_;
};

} // namespace symm_torch
