// SPDX-License-Identifier: MIT
// module.cpp - the Python module: makes backends and brackets, registers the allocator, reads the
// counters.
#include <torch/csrc/utils/pybind.h>

#include "backend.hpp"
#include "capture.hpp"
#include "memory.hpp"

namespace symm_torch {

namespace {

c10::intrusive_ptr<c10d::Backend> make_backend(const c10::intrusive_ptr<c10d::Store> &store,
                                               int rank, int size, double timeout)
{
    return c10::make_intrusive<Backend>(store, rank, size,
                                        Milliseconds(static_cast<int64_t>(1e3 * timeout)));
}

// {name: (calls, bytes)}
std::map<std::string, std::pair<uint64_t, uint64_t>> read_counters()
{
    std::map<std::string, std::pair<uint64_t, uint64_t>> result;

    for (const Counter &counter : counters)
        result[counter.name] = {counter.calls.load(), counter.bytes.load()};
    return result;
}

} // namespace

} // namespace symm_torch

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)
{
    const pybind11::call_guard<pybind11::gil_scoped_release> released;

    // Backend's class must be known to pybind11.
    pybind11::module_::import("torch._C._distributed_c10d");
    m.def("make_backend", &symm_torch::make_backend, pybind11::arg("store"),
          pybind11::arg("rank"), pybind11::arg("size"), pybind11::arg("timeout"), released);
    pybind11::module_::import("atexit").attr("register")(
        pybind11::cpp_function(&symm_torch::end_backends, released));
    m.def("counters", &symm_torch::read_counters);
    // Collective: a context of libsymm with the ranks of a group, unless there is one.
    m.def(
        "join",
        [](const std::string &group, const std::string &device) {
            symm_torch::memory_group(group, c10::Device(device));
        },
        released);
    pybind11::class_<symm_torch::Bracket>(m, "Bracket")
        .def("begin", &symm_torch::Bracket::begin, released)
        .def("end", &symm_torch::Bracket::end, released)
        .def("abandon", &symm_torch::Bracket::abandon, pybind11::arg("why"), released);
    m.def("brackets", &symm_torch::brackets, pybind11::arg("backend"), pybind11::arg("name"),
          released);
    symm_torch::register_memory();
    symm_torch::register_norm_ops();
}
