// SPDX-License-Identifier: MIT
// memory_ops.cpp - torch.ops.symm_mem on libsymm's collectives, for tensors of our allocator.
// Tensors of another allocator go to the kernel that torch had before.
#include "memory.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include "calls.hpp"

namespace symm_torch {

namespace {

// ---- Calls ------------------------------------------------------------------------------

c10d::ReduceOp op_of(const std::string &name)
{
    static const std::map<std::string, c10d::ReduceOp::RedOpType> known = {
        {"sum", c10d::ReduceOp::SUM},     {"avg", c10d::ReduceOp::AVG},
        {"prod", c10d::ReduceOp::PRODUCT}, {"product", c10d::ReduceOp::PRODUCT},
        {"min", c10d::ReduceOp::MIN},     {"max", c10d::ReduceOp::MAX},
        {"band", c10d::ReduceOp::BAND},   {"bor", c10d::ReduceOp::BOR},
        {"bxor", c10d::ReduceOp::BXOR},
    };
    const auto found = known.find(name);

    TORCH_CHECK(found != known.end(), "symm: the reduction '", name,
                "' is unknown; there are sum, avg, prod, min, max, band, bor, bxor");
    return found->second;
}

template <class Body>
void run(const std::string &name, const at::Tensor &tensor, Body body)
{
    const MemoryGroupPtr group = memory_group(name, tensor.device());
    const symm_call call = memory_call(*group, tensor.device(), 0);
    const std::lock_guard<std::mutex> lock(group->mutex());

    body(Caller{group->team(), &call}, group->size());
}

void all_reduce(const at::Tensor &input, const at::Tensor &output, const std::string &op,
                const std::string &group)
{
    const c10d::ReduceOp reduce = op_of(op);

    check_same("all_reduce", input, output);
    TORCH_CHECK(input.numel() == output.numel(), "symm: all_reduce: an input of ", input.numel(),
                " elements and an output of ", output.numel());
    const at::Tensor in = dense(input), out = dense_like(output);

    run(group, in, [&](const Caller &c, int) {
        c.all_reduce(in, out, reduction_of(in.scalar_type(), reduce));
    });
    copy_back(output, out);
}

at::Tensor contiguous_like(const at::Tensor &tensor)
{
    return at::empty(tensor.sizes(), tensor.options());
}

// ---- Operators --------------------------------------------------------------------------

at::Tensor all_reduce_out(const at::Tensor &input, const std::string &op,
                          const std::string &group, const at::Tensor &out)
{
    all_reduce(input, out, op, group);
    return out;
}

at::Tensor all_reduce_(const at::Tensor &input, const std::string &op, const std::string &group)
{
    return all_reduce_out(input, op, group, input);
}

at::Tensor one_shot_all_reduce(const at::Tensor &input, const std::string &op,
                               const std::string &group)
{
    return all_reduce_out(input, op, group, contiguous_like(input));
}

// The input may be any memory: libsymm brings it to the peers, not the symmetric buffer.
at::Tensor one_shot_all_reduce_copy_out(const at::Tensor &buffer, const at::Tensor &input,
                                        const std::string &op, const std::string &group,
                                        const at::Tensor &out)
{
    TORCH_CHECK(input.nbytes() <= buffer.nbytes(), "symm: one_shot_all_reduce_copy: an input of ",
                input.nbytes(), " bytes and a symmetric buffer of ", buffer.nbytes());
    return all_reduce_out(input, op, group, out);
}

at::Tensor one_shot_all_reduce_copy(const at::Tensor &buffer, const at::Tensor &input,
                                    const std::string &op, const std::string &group)
{
    return one_shot_all_reduce_copy_out(buffer, input, op, group, contiguous_like(input));
}

at::Tensor multimem_all_gather_out(const at::Tensor &input, const std::string &group,
                                   const at::Tensor &out)
{
    check_same("multimem_all_gather_out", input, out);
    const at::Tensor in = dense(input), whole = dense_like(out);

    run(group, in, [&](const Caller &c, int size) {
        TORCH_CHECK(whole.numel() == size * in.numel(),
                    "symm: multimem_all_gather_out: an input of ", in.numel(), " elements on ",
                    size, " ranks and an output of ", whole.numel());
        c.all_gather(in, whole);
    });
    copy_back(out, whole);
    return out;
}

// A tensor whose blocks for the ranks lie one after the other: of dimension 0, or of the last.
at::Tensor blocks_of(const at::Tensor &input, int64_t size, bool split_last_dim)
{
    if (!split_last_dim || input.dim() < 2)
        return dense(input);
    const int64_t columns = input.size(-1);

    TORCH_CHECK(columns % size == 0, "symm: reduce_scatter_out: the last dimension has ", columns,
                " elements, which ", size, " ranks do not divide");
    count(COUNT_COPIES, input.nbytes());
    return input.reshape({-1, size, columns / size}).transpose(0, 1).contiguous();
}

at::Tensor reduce_scatter_out(const at::Tensor &input, const std::string &group,
                              bool split_last_dim, const at::Tensor &output)
{
    check_same("reduce_scatter_out", input, output);
    const at::Tensor out = dense_like(output);

    run(group, input, [&](const Caller &c, int size) {
        TORCH_CHECK(input.numel() == size * out.numel(), "symm: reduce_scatter_out: an input of ",
                    input.numel(), " elements on ", size, " ranks and an output of ",
                    out.numel());
        c.reduce_scatter(blocks_of(input, size, split_last_dim), out,
                         reduction_of(input.scalar_type(), c10d::ReduceOp::SUM));
    });
    copy_back(output, out);
    return output;
}

// ---- Registration -----------------------------------------------------------------------

std::map<std::string, c10::SafeKernelFunction> originals; // torch's; filled before it is read

template <class... Args, size_t... I>
at::Tensor call(at::Tensor (*fn)(Args...), const c10::IValue *args, std::index_sequence<I...>)
{
    return fn(args[I].template to<std::decay_t<Args>>()...);
}

template <class... Args>
void call_on(at::Tensor (*fn)(Args...), size_t symmetric, const c10::OperatorHandle &op,
             c10::DispatchKeySet keys, torch::jit::Stack *stack)
{
    const c10::IValue *args = &(*stack)[stack->size() - sizeof...(Args)];
    const std::string &name = op.operator_name().name;

    if (!is_ours(args[symmetric].toTensor().const_data_ptr())) {
        const auto found = originals.find(name);

        TORCH_CHECK(found != originals.end(), "symm: ", name,
                    " needs a tensor of symm_mem.empty(); this one's memory is not symmetric");
        found->second.callBoxed(op, keys, stack);
        return;
    }
    at::Tensor result = call(fn, args, std::index_sequence_for<Args...>());

    torch::jit::drop(*stack, sizeof...(Args));
    stack->emplace_back(std::move(result));
}

// Boxed, since torch's kernels take their arguments by value or by reference as its versions
// please. Argument `symmetric` tells whose memory it is.
template <auto fn, size_t symmetric>
void boxed(const c10::OperatorHandle &op, c10::DispatchKeySet keys, torch::jit::Stack *stack)
{
    call_on(fn, symmetric, op, keys, stack);
}

struct Operator {
    const char *name;
    torch::CppFunction (*make)();
};

template <auto fn, size_t symmetric = 0> torch::CppFunction make()
{
    return torch::CppFunction::makeFromBoxedFunction<&boxed<fn, symmetric>>();
}

const Operator operators[] = {
    {"one_shot_all_reduce", make<&one_shot_all_reduce>},
    {"one_shot_all_reduce_out", make<&all_reduce_out>},
    {"one_shot_all_reduce_copy", make<&one_shot_all_reduce_copy>},
    {"one_shot_all_reduce_copy_out", make<&one_shot_all_reduce_copy_out>},
    {"two_shot_all_reduce_", make<&all_reduce_>},
    {"two_shot_all_reduce_out", make<&all_reduce_out>},
    {"multimem_all_reduce_", make<&all_reduce_>},
    {"multimem_one_shot_all_reduce", make<&one_shot_all_reduce>},
    {"multimem_one_shot_all_reduce_out", make<&all_reduce_out>},
    {"multimem_all_gather_out", make<&multimem_all_gather_out, 2>},
    {"reduce_scatter_out", make<&reduce_scatter_out>},
};

void keep_original(const char *name)
{
    const std::string full = std::string("symm_mem::") + name;
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(full.c_str(), "");

    if (op.hasKernelForDispatchKey(c10::DispatchKey::CUDA))
        originals.emplace(full, op.getComputedKernelForDispatchKey(c10::DispatchKey::CUDA));
}

// torch warns of each kernel that is replaced.
class Silence : public c10::WarningHandler {
  public:
    void process(const c10::Warning & /* warning */) override {}
};

} // namespace

void register_memory_ops()
{
    static std::once_flag once;

    std::call_once(once, [] {
        Silence silence;
        const c10::WarningUtils::WarningHandlerGuard guard(&silence);

        for (const Operator &op : operators)
            keep_original(op.name);
        for (const c10::DispatchKey key : {c10::DispatchKey::CPU, c10::DispatchKey::CUDA}) {
            auto *library = new torch::Library(torch::Library::IMPL, "symm_mem", key, __FILE__,
                                               __LINE__); // its end would take the kernels back
            for (const Operator &op : operators)
                library->impl(op.name, op.make());
        }
    });
}

} // namespace symm_torch
