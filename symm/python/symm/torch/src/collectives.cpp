// SPDX-License-Identifier: MIT
// collectives.cpp - c10d collectives on single tensors, and on several of them as one call.
#include "submit.hpp"

#include <algorithm>

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sparse_coo_tensor.h>

namespace symm_torch {

// ---- Collectives ------------------------------------------------------------------------

Backend::WorkPtr Backend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts)
{
    const at::Tensor tensor = only("broadcast", tensors);
    const int64_t root = opts.rootRank;

    check_root("broadcast", root, getSize());
    return submit(c10d::OpType::BROADCAST, "symm:broadcast", tensor, tensors, opts.timeout,
                  opts.asyncOp, [tensor, root, rank = getRank()](const Caller &c) mutable {
                      const at::Tensor flat = rank == root ? dense(tensor) : dense_like(tensor);

                      c.broadcast(flat, root);
                      if (rank != root)
                          copy_back(tensor, flat);
                  });
}

namespace {

// One block of every rank, blocks along the first dimension.
at::Tensor gather_blocks(const Caller &c, const at::Tensor &block)
{
    std::vector<int64_t> sizes = block.sizes().vec();

    sizes.insert(sizes.begin(), symm_team_size(c.team));
    const at::Tensor all = at::empty(sizes, block.options());
    c.all_gather(dense(block), all);
    return all;
}

// Rows 0 to `most` of a tensor with fewer of them; the rows after its own are not set.
at::Tensor pad_rows(const at::Tensor &tensor, int64_t most)
{
    std::vector<int64_t> sizes = tensor.sizes().vec();

    sizes[0] = most;
    const at::Tensor padded = at::empty(sizes, tensor.options());
    padded.narrow(0, 0, tensor.size(0)).copy_(tensor);
    return padded;
}

// The sum of a sparse tensor in COO format: its coordinates and values are gathered, padded to
// the longest of the ranks, and added here, in the order of ranks.
void sum_sparse(const Caller &c, const at::Tensor &tensor)
{
    const at::Tensor mine = tensor.coalesce();
    const at::Tensor lengths =
        gather_blocks(c, at::full({1}, mine._nnz(), mine._indices().options())).cpu();
    const auto most = lengths.max().item<int64_t>();
    const at::Tensor indices = gather_blocks(c, pad_rows(mine._indices().t(), most));
    const at::Tensor values = gather_blocks(c, pad_rows(mine._values(), most));
    std::vector<at::Tensor> some_indices, some_values;

    for (int64_t r = 0; r < lengths.size(0); r++) {
        const auto length = lengths[r].item<int64_t>();

        some_indices.push_back(indices[r].narrow(0, 0, length));
        some_values.push_back(values[r].narrow(0, 0, length));
    }
    tensor.copy_(at::sparse_coo_tensor(at::cat(some_indices).t(), at::cat(some_values),
                                       tensor.sizes())
                     .coalesce());
}

} // namespace

Backend::WorkPtr Backend::allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts)
{
    const at::Tensor tensor = only("all_reduce", tensors);
    if (tensor.layout() == at::kSparse) {
        TORCH_CHECK(opts.reduceOp == c10d::ReduceOp::SUM,
                    "symm: all_reduce of sparse tensors takes only ReduceOp.SUM");
        return submit(c10d::OpType::_ALLREDUCE_SPARSE, "symm:all_reduce", tensor, tensors,
                      opts.timeout, opts.asyncOp,
                      [tensor](const Caller &c) { sum_sparse(c, tensor); });
    }
    const at::Tensor real = real_view(tensor, opts.reduceOp);
    const Reduction r = reduction_of(real.scalar_type(), opts.reduceOp);

    return submit(c10d::OpType::ALLREDUCE, "symm:all_reduce", tensor, tensors, opts.timeout,
                  opts.asyncOp, [real, r](const Caller &c) mutable {
                      const at::Tensor flat = dense(real);

                      c.all_reduce(flat, flat, r);
                      copy_back(real, flat);
                  });
}

Backend::WorkPtr Backend::allreduce_coalesced(Tensors &tensors,
                                              const c10d::AllreduceCoalescedOptions &opts)
{
    std::vector<at::Tensor> reals;
    std::vector<Reduction> reductions;

    TORCH_CHECK(!tensors.empty(), "symm: all_reduce_coalesced takes at least one tensor");
    for (const at::Tensor &tensor : tensors) {
        reals.push_back(real_view(tensor, opts.reduceOp));
        reductions.push_back(reduction_of(reals.back().scalar_type(), opts.reduceOp));
    }
    return submit(c10d::OpType::ALLREDUCE_COALESCED, "symm:all_reduce", tensors[0], tensors,
                  opts.timeout, opts.asyncOp, [reals, reductions](const Caller &c) mutable {
                      for (size_t i = 0; i < reals.size(); i++) {
                          const at::Tensor flat = dense(reals[i]);

                          c.all_reduce(flat, flat, reductions[i]);
                          copy_back(reals[i], flat);
                      }
                  });
}

Backend::WorkPtr Backend::reduce(Tensors &tensors, const c10d::ReduceOptions &opts)
{
    const at::Tensor tensor = only("reduce", tensors);
    const at::Tensor real = real_view(tensor, opts.reduceOp);
    const Reduction r = reduction_of(real.scalar_type(), opts.reduceOp);
    const bool is_root = getRank() == opts.rootRank;

    check_root("reduce", opts.rootRank, getSize());
    return submit(c10d::OpType::REDUCE, "symm:reduce", tensor, tensors, opts.timeout,
                  opts.asyncOp, [real, r, is_root](const Caller &c) mutable {
                      const at::Tensor in = dense(real);
                      const at::Tensor out = at::empty_like(in); // alike on all ranks

                      c.all_reduce(in, out, r);
                      if (is_root)
                          real.copy_(out);
                  });
}

Backend::WorkPtr Backend::_allgather_base(at::Tensor &output, at::Tensor &input,
                                          const c10d::AllgatherOptions &opts)
{
    check_same("all_gather_into_tensor", input, output);
    TORCH_CHECK(output.numel() == input.numel() * getSize(),
                "symm: all_gather_into_tensor: the output has ", output.numel(), " elements, not ",
                getSize(), " times the input's ", input.numel());
    return submit(c10d::OpType::_ALLGATHER_BASE, "symm:all_gather", output, {output},
                  opts.timeout, opts.asyncOp, [output, input](const Caller &c) mutable {
                      const at::Tensor flat = dense_like(output);

                      c.all_gather(dense(input), flat);
                      copy_back(output, flat);
                  });
}

Backend::WorkPtr Backend::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                          const c10d::AllgatherOptions &opts)
{
    TORCH_CHECK(!inputs.empty() && inputs.size() == outputs.size(),
                "symm: all_gather_into_tensor_coalesced takes as many outputs as inputs");
    for (size_t i = 0; i < inputs.size(); i++) {
        check_same("all_gather_into_tensor_coalesced", inputs[i], outputs[i]);
        TORCH_CHECK(outputs[i].numel() == inputs[i].numel() * getSize(),
                    "symm: all_gather_into_tensor_coalesced: output ", i, " has ",
                    outputs[i].numel(), " elements, not ", getSize(), " times the input's ",
                    inputs[i].numel());
    }
    return submit(c10d::OpType::COALESCED, "symm:all_gather", inputs[0], outputs, opts.timeout,
                  opts.asyncOp, [outputs, inputs](const Caller &c) mutable {
                      for (size_t i = 0; i < inputs.size(); i++) {
                          const at::Tensor flat = dense_like(outputs[i]);

                          c.all_gather(dense(inputs[i]), flat);
                          copy_back(outputs[i], flat);
                      }
                  });
}

Backend::WorkPtr Backend::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                               const c10d::ReduceScatterOptions &opts)
{
    check_same("reduce_scatter_tensor", input, output);
    TORCH_CHECK(input.numel() == output.numel() * getSize(),
                "symm: reduce_scatter_tensor: the input has ", input.numel(), " elements, not ",
                getSize(), " times the output's ", output.numel());
    const at::Tensor in = real_view(input, opts.reduceOp);
    const at::Tensor out = real_view(output, opts.reduceOp);
    const Reduction r = reduction_of(in.scalar_type(), opts.reduceOp);

    return submit(c10d::OpType::_REDUCE_SCATTER_BASE, "symm:reduce_scatter", output, {output},
                  opts.timeout, opts.asyncOp, [in, out, r](const Caller &c) mutable {
                      const at::Tensor flat = dense_like(out);

                      c.reduce_scatter(dense(in), flat, r);
                      copy_back(out, flat);
                  });
}

Backend::WorkPtr Backend::reduce_scatter_tensor_coalesced(
    Tensors &outputs, Tensors &inputs, const c10d::ReduceScatterOptions &opts)
{
    std::vector<at::Tensor> ins, outs;
    std::vector<Reduction> reductions;

    TORCH_CHECK(!inputs.empty() && inputs.size() == outputs.size(),
                "symm: reduce_scatter_tensor_coalesced takes as many outputs as inputs");
    for (size_t i = 0; i < inputs.size(); i++) {
        check_same("reduce_scatter_tensor_coalesced", inputs[i], outputs[i]);
        TORCH_CHECK(inputs[i].numel() == outputs[i].numel() * getSize(),
                    "symm: reduce_scatter_tensor_coalesced: input ", i, " has ",
                    inputs[i].numel(), " elements, not ", getSize(), " times the output's ",
                    outputs[i].numel());
        ins.push_back(real_view(inputs[i], opts.reduceOp));
        outs.push_back(real_view(outputs[i], opts.reduceOp));
        reductions.push_back(reduction_of(ins[i].scalar_type(), opts.reduceOp));
    }
    return submit(c10d::OpType::COALESCED, "symm:reduce_scatter", inputs[0], outputs,
                  opts.timeout, opts.asyncOp, [ins, outs, reductions](const Caller &c) mutable {
                      for (size_t i = 0; i < ins.size(); i++) {
                          const at::Tensor flat = dense_like(outs[i]);

                          c.reduce_scatter(dense(ins[i]), flat, reductions[i]);
                          copy_back(outs[i], flat);
                      }
                  });
}

} // namespace symm_torch
