// SPDX-License-Identifier: MIT
// calls.hpp - tensors as libsymm's calls take them: their types, dense forms of them, and the
// calls themselves on dense tensors. Tensors that are not dense are copied (counted in
// COUNT_COPIES). Moves without arithmetic go as bytes, so they take every dtype.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/view_as_real.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "job.hpp"

namespace symm_torch {

// ---- Types ------------------------------------------------------------------------------

inline symm_dtype dtype_of(at::ScalarType type)
{
    switch (type) {
    case at::kDouble:
        return SYMM_FLOAT64;
    case at::kFloat:
        return SYMM_FLOAT32;
    case at::kHalf:
        return SYMM_FLOAT16;
    case at::kBFloat16:
        return SYMM_BFLOAT16;
    case at::kFloat8_e4m3fn:
        return SYMM_FLOAT8_E4M3;
    case at::kFloat8_e5m2:
        return SYMM_FLOAT8_E5M2;
    case at::kLong:
        return SYMM_INT64;
    case at::kInt:
        return SYMM_INT32;
    case at::kChar:
        return SYMM_INT8;
    case at::kUInt64:
        return SYMM_UINT64;
    case at::kUInt32:
        return SYMM_UINT32;
    case at::kByte:
        return SYMM_UINT8;
    case at::kShort:
        return SYMM_INT16;
    case at::kUInt16:
        return SYMM_UINT16;
    default:
        TORCH_CHECK(false, "symm: reductions of ", type, " are not supported");
    }
}

struct Reduction {
    symm_dtype dtype;
    symm_op op;
};

// How libsymm reduces elements of a type. bool: 0 and 1 in bytes, OR is their maximum.
inline Reduction reduction_of(at::ScalarType type, const c10d::ReduceOp &op)
{
    const bool is_bool = type == at::kBool;
    const symm_dtype dtype = is_bool ? SYMM_UINT8 : dtype_of(type);

    switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
    case c10d::ReduceOp::SUM:
        return {dtype, is_bool ? SYMM_MAX : SYMM_SUM};
    case c10d::ReduceOp::AVG:
        TORCH_CHECK(!is_bool, "symm: ReduceOp.AVG of bool is not supported");
        return {dtype, SYMM_AVG};
    case c10d::ReduceOp::PRODUCT:
        return {dtype, is_bool ? SYMM_MIN : SYMM_PROD};
    case c10d::ReduceOp::MIN:
        return {dtype, SYMM_MIN};
    case c10d::ReduceOp::MAX:
        return {dtype, SYMM_MAX};
    case c10d::ReduceOp::BAND:
        return {dtype, SYMM_BAND};
    case c10d::ReduceOp::BOR:
        return {dtype, SYMM_BOR};
    case c10d::ReduceOp::BXOR:
        return {dtype, SYMM_BXOR};
    default:
        TORCH_CHECK(
            false, "symm: this ReduceOp is not supported; there are SUM, AVG, PRODUCT, "
                   "MIN, MAX, BAND, BOR, BXOR");
    }
}

// ---- Tensors ----------------------------------------------------------------------------

inline void check_strided(const at::Tensor &tensor)
{
    TORCH_CHECK(tensor.layout() == at::kStrided,
                "symm: sparse tensors are supported by all_reduce alone, in COO format");
}

// A dense tensor with the values of `tensor`: itself where it is contiguous.
inline at::Tensor dense(const at::Tensor &tensor)
{
    check_strided(tensor);
    if (tensor.is_contiguous())
        return tensor;
    count(COUNT_COPIES, tensor.nbytes());
    return tensor.contiguous();
}

// A dense tensor like an output, which copy_back fills it from.
inline at::Tensor dense_like(const at::Tensor &output)
{
    check_strided(output);
    return output.is_contiguous() ? output
                                  : at::empty(output.sizes(), output.options());
}

inline void copy_back(const at::Tensor &output, const at::Tensor &from)
{
    if (output.is_same(from))
        return;
    count(COUNT_COPIES, output.nbytes());
    output.copy_(from);
}

// Complex numbers as pairs of reals: sums and averages are the same.
inline at::Tensor real_view(const at::Tensor &tensor, const c10d::ReduceOp &op)
{
    if (!tensor.is_complex())
        return tensor;
    TORCH_CHECK(c10d::isComplexViewAsRealAllowed(op),
                "symm: complex tensors are reduced by SUM and AVG, not by this ReduceOp");
    return at::view_as_real(tensor);
}

inline at::Tensor bytes_like(const at::Tensor &tensor, int64_t bytes)
{
    return at::empty({bytes}, tensor.options().dtype(at::kByte));
}

inline const at::Tensor &only(const char *what, const std::vector<at::Tensor> &tensors)
{
    TORCH_CHECK(tensors.size() == 1, "symm: ", what, " takes one tensor, not ", tensors.size());
    return tensors[0];
}

inline void check_same(const char *what, const at::Tensor &a, const at::Tensor &b)
{
    TORCH_CHECK(a.scalar_type() == b.scalar_type(), "symm: ", what, ": tensors of ",
                a.scalar_type(), " and of ", b.scalar_type());
    TORCH_CHECK(a.device() == b.device(), "symm: ", what, ": tensors on ", a.device(), " and on ",
                b.device());
}

inline void check_root(const char *what, int64_t root, int size)
{
    TORCH_CHECK(root >= 0 && root < size, "symm: ", what, ": root ", root, " of ", size, " ranks");
}

// ---- Calls of libsymm -------------------------------------------------------------------

// Each takes dense memory and counts what it moves.
struct Caller {
    symm_team *team;
    const symm_call *call;

    void all_reduce(const at::Tensor &in, const at::Tensor &out, Reduction r) const
    {
        check(symm_all_reduce(team, in.data_ptr(), out.data_ptr(),
                              static_cast<size_t>(in.numel()), r.dtype, r.op, call, nullptr));
        count(COUNT_ALL_REDUCE, in.nbytes());
    }

    void reduce_scatter(const at::Tensor &in, const at::Tensor &out, Reduction r) const
    {
        check(symm_reduce_scatter(team, in.data_ptr(), out.data_ptr(),
                                  static_cast<size_t>(out.numel()), r.dtype, r.op, call,
                                  nullptr));
        count(COUNT_REDUCE_SCATTER, in.nbytes());
    }

    void all_gather(const at::Tensor &in, const at::Tensor &out) const
    {
        check(symm_all_gather(team, in.data_ptr(), out.data_ptr(), in.nbytes(), SYMM_UINT8, call,
                              nullptr));
        count(COUNT_ALL_GATHER, out.nbytes());
    }

    void broadcast(const at::Tensor &tensor, int64_t root) const
    {
        check(symm_broadcast(team, tensor.data_ptr(), tensor.data_ptr(), tensor.nbytes(),
                             SYMM_UINT8, static_cast<int>(root), call, nullptr));
        count(COUNT_BROADCAST, tensor.nbytes());
    }

    void all_to_all(const at::Tensor &in, const at::Tensor &out, int size) const
    {
        check(symm_all_to_all(team, in.data_ptr(), out.data_ptr(),
                              in.nbytes() / static_cast<size_t>(size), SYMM_UINT8, call,
                              nullptr));
        count(COUNT_ALL_TO_ALL, in.nbytes());
    }
};

} // namespace symm_torch
