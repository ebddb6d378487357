// SPDX-License-Identifier: MIT
// lists.cpp - c10d collectives on a list of tensors, one for each rank, and on blocks of uneven
// lengths.
#include "submit.hpp"

#include <algorithm>
#include <numeric>

#include <ATen/ops/tensor.h>

namespace symm_torch {

namespace {

std::vector<at::Tensor> flatten(const std::vector<std::vector<at::Tensor>> &lists)
{
    std::vector<at::Tensor> all;

    for (const auto &list : lists)
        all.insert(all.end(), list.begin(), list.end());
    return all;
}

// Whether all blocks have as many bytes.
bool are_even(const std::vector<at::Tensor> &blocks)
{
    return std::all_of(blocks.begin(), blocks.end(), [&](const at::Tensor &block) {
        return block.nbytes() == blocks[0].nbytes();
    });
}

// Copies a tensor of bytes, block by block, into tensors.
void unpack(const at::Tensor &flat, std::vector<at::Tensor> &blocks)
{
    int64_t at = 0;

    for (at::Tensor &block : blocks) {
        const auto bytes = static_cast<int64_t>(block.nbytes());

        count(COUNT_COPIES, block.nbytes());
        block.copy_(flat.narrow(0, at, bytes).view(block.scalar_type()).view(block.sizes()));
        at += bytes;
    }
}

// The blocks one after the other as bytes.
at::Tensor pack(const std::vector<at::Tensor> &blocks)
{
    int64_t total = 0, at = 0;

    for (const at::Tensor &block : blocks)
        total += static_cast<int64_t>(block.nbytes());
    const at::Tensor flat = bytes_like(blocks[0], total);
    for (const at::Tensor &block : blocks) {
        const auto bytes = static_cast<int64_t>(block.nbytes());

        count(COUNT_COPIES, block.nbytes());
        flat.narrow(0, at, bytes).view(block.scalar_type()).view(block.sizes()).copy_(block);
        at += bytes;
    }
    return flat;
}

void gather_list(const Caller &c, const at::Tensor &input, std::vector<at::Tensor> &blocks,
                 int rank)
{
    if (are_even(blocks)) {
        const at::Tensor flat = bytes_like(
            input, static_cast<int64_t>(blocks[0].nbytes() * blocks.size()));

        c.all_gather(dense(input), flat);
        unpack(flat, blocks);
        return;
    }
    for (size_t root = 0; root < blocks.size(); root++) {
        const bool is_mine = static_cast<int>(root) == rank;
        const at::Tensor flat = is_mine ? dense(input) : dense_like(blocks[root]);

        c.broadcast(flat, static_cast<int64_t>(root));
        blocks[root].copy_(flat);
    }
}

} // namespace

Backend::WorkPtr Backend::allgather(TensorLists &outputs, Tensors &inputs,
                                    const c10d::AllgatherOptions &opts)
{
    const at::Tensor input = only("all_gather", inputs);

    TORCH_CHECK(outputs.size() == 1 && outputs[0].size() == static_cast<size_t>(getSize()),
                "symm: all_gather takes a list of ", getSize(), " output tensors");
    for (const at::Tensor &block : outputs[0])
        check_same("all_gather", input, block);
    TORCH_CHECK(outputs[0][static_cast<size_t>(getRank())].numel() == input.numel(),
                "symm: all_gather: the input has ", input.numel(), " elements, its output ",
                outputs[0][static_cast<size_t>(getRank())].numel());
    return submit(c10d::OpType::ALLGATHER, "symm:all_gather", input, outputs[0], opts.timeout,
                  opts.asyncOp,
                  [input, blocks = outputs[0], rank = getRank()](const Caller &c) mutable {
                      gather_list(c, input, blocks, rank);
                  });
}

Backend::WorkPtr Backend::allgather_coalesced(TensorLists &outputs, Tensors &inputs,
                                              const c10d::AllgatherOptions &opts)
{
    TORCH_CHECK(!inputs.empty() && outputs.size() == static_cast<size_t>(getSize()),
                "symm: all_gather_coalesced takes inputs, and a list of outputs for each of ",
                getSize(), " ranks");
    for (const Tensors &list : outputs) {
        TORCH_CHECK(list.size() == inputs.size(), "symm: all_gather_coalesced: ", list.size(),
                    " outputs of a rank for ", inputs.size(), " inputs");
        for (size_t i = 0; i < inputs.size(); i++)
            check_same("all_gather_coalesced", inputs[i], list[i]);
    }
    for (size_t i = 0; i < inputs.size(); i++) {
        const int64_t own = outputs[static_cast<size_t>(getRank())][i].numel();

        TORCH_CHECK(own == inputs[i].numel(), "symm: all_gather_coalesced: input ", i, " has ",
                    inputs[i].numel(), " elements, its output ", own);
    }
    return submit(c10d::OpType::ALLGATHER_COALESCED, "symm:all_gather", inputs[0],
                  flatten(outputs), opts.timeout, opts.asyncOp,
                  [outputs, inputs, rank = getRank()](const Caller &c) mutable {
                      for (size_t i = 0; i < inputs.size(); i++) {
                          Tensors blocks;

                          for (const Tensors &list : outputs)
                              blocks.push_back(list[i]);
                          gather_list(c, inputs[i], blocks, rank);
                      }
                  });
}

Backend::WorkPtr Backend::gather(TensorLists &outputs, Tensors &inputs,
                                 const c10d::GatherOptions &opts)
{
    const at::Tensor input = only("gather", inputs);
    const bool is_root = getRank() == opts.rootRank;
    const auto size = static_cast<size_t>(getSize());

    check_root("gather", opts.rootRank, getSize());
    TORCH_CHECK(is_root ? outputs.size() == 1 && outputs[0].size() == size : outputs.empty(),
                "symm: gather: rank ", opts.rootRank, " gives a list of ", getSize(),
                " output tensors, other ranks none");
    Tensors blocks = is_root ? outputs[0] : Tensors{};
    for (const at::Tensor &block : blocks) {
        check_same("gather", input, block);
        TORCH_CHECK(block.numel() == input.numel(), "symm: gather: an output has ", block.numel(),
                    " elements, the input ", input.numel());
    }
    return submit(c10d::OpType::GATHER, "symm:gather", input, blocks, opts.timeout, opts.asyncOp,
                  [input, blocks, size](const Caller &c) mutable {
                      const at::Tensor flat = bytes_like(
                          input, static_cast<int64_t>(input.nbytes() * size));

                      c.all_gather(dense(input), flat);
                      if (!blocks.empty())
                          unpack(flat, blocks);
                  });
}

Backend::WorkPtr Backend::scatter(Tensors &outputs, TensorLists &inputs,
                                  const c10d::ScatterOptions &opts)
{
    const at::Tensor output = only("scatter", outputs);
    const bool is_root = getRank() == opts.rootRank;
    const auto size = static_cast<size_t>(getSize());

    check_root("scatter", opts.rootRank, getSize());
    TORCH_CHECK(is_root ? inputs.size() == 1 && inputs[0].size() == size : inputs.empty(),
                "symm: scatter: rank ", opts.rootRank, " gives a list of ", getSize(),
                " input tensors, other ranks none");
    Tensors blocks = is_root ? inputs[0] : Tensors{};
    for (const at::Tensor &block : blocks) {
        check_same("scatter", output, block);
        TORCH_CHECK(block.numel() == output.numel(), "symm: scatter: an input has ",
                    block.numel(), " elements, the output ", output.numel());
    }
    return submit(c10d::OpType::SCATTER, "symm:scatter", output, outputs, opts.timeout,
                  opts.asyncOp,
                  [output, blocks, size, root = opts.rootRank,
                   rank = getRank()](const Caller &c) mutable {
                      const auto bytes = static_cast<int64_t>(output.nbytes());
                      const at::Tensor flat =
                          blocks.empty() ? bytes_like(output, bytes * static_cast<int64_t>(size))
                                         : pack(blocks);

                      c.broadcast(flat, root);
                      output.copy_(flat.narrow(0, rank * bytes, bytes)
                                       .view(output.scalar_type())
                                       .view(output.sizes()));
                  });
}

Backend::WorkPtr Backend::reduce_scatter(Tensors &outputs, TensorLists &inputs,
                                         const c10d::ReduceScatterOptions &opts)
{
    const at::Tensor output = only("reduce_scatter", outputs);
    Tensors blocks;

    TORCH_CHECK(inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(getSize()),
                "symm: reduce_scatter takes a list of ", getSize(), " input tensors");
    for (const at::Tensor &block : inputs[0]) {
        check_same("reduce_scatter", output, block);
        blocks.push_back(real_view(block, opts.reduceOp));
    }
    TORCH_CHECK(inputs[0][static_cast<size_t>(getRank())].numel() == output.numel(),
                "symm: reduce_scatter: the output has ", output.numel(), " elements, its input ",
                inputs[0][static_cast<size_t>(getRank())].numel());
    const at::Tensor out = real_view(output, opts.reduceOp);
    const Reduction r = reduction_of(out.scalar_type(), opts.reduceOp);

    return submit(c10d::OpType::REDUCE_SCATTER, "symm:reduce_scatter", output, outputs,
                  opts.timeout, opts.asyncOp,
                  [blocks, out, r, rank = getRank()](const Caller &c) mutable {
                      if (are_even(blocks)) {
                          const at::Tensor flat = dense_like(out);

                          c.reduce_scatter(pack(blocks).view(out.scalar_type()), flat, r);
                          copy_back(out, flat);
                          return;
                      }
                      for (size_t root = 0; root < blocks.size(); root++) {
                          const at::Tensor in = dense(blocks[root]);
                          const at::Tensor sum = at::empty_like(in);

                          c.all_reduce(in, sum, r);
                          if (static_cast<int>(root) == rank)
                              out.copy_(sum);
                      }
                  });
}

// ---- All to all -------------------------------------------------------------------------

namespace {

// The bytes that each rank sends to each other one and expects of it, of all ranks. Raises on all
// of them where two ranks differ.
at::Tensor agree_on_lengths(const Caller &c, const std::vector<at::Tensor> &ins,
                            const std::vector<at::Tensor> &outs)
{
    const auto size = static_cast<int64_t>(ins.size());
    std::vector<int64_t> own;

    for (const auto *blocks : {&ins, &outs})
        for (const at::Tensor &block : *blocks)
            own.push_back(static_cast<int64_t>(block.nbytes()));
    const at::Tensor mine = at::tensor(own, at::kLong).to(ins[0].device());
    at::Tensor all = at::empty({size, 2, size}, mine.options());
    check(symm_all_gather(c.team, mine.data_ptr(), all.data_ptr(), mine.nbytes(), SYMM_UINT8,
                          c.call, nullptr));
    all = all.cpu();
    const auto lengths = all.accessor<int64_t, 3>();
    for (int64_t from = 0; from < size; from++)
        for (int64_t to = 0; to < size; to++)
            TORCH_CHECK(lengths[from][0][to] == lengths[to][1][from], "symm: all_to_all: rank ",
                        from, " sends ", lengths[from][0][to], " bytes to rank ", to,
                        ", which expects ", lengths[to][1][from]);
    return all;
}

// Blocks of any lengths in bytes: each padded to the longest of all ranks.
void exchange_uneven(const Caller &c, const std::vector<at::Tensor> &ins,
                     std::vector<at::Tensor> &outs)
{
    const auto size = static_cast<int64_t>(ins.size());
    const auto longest = agree_on_lengths(c, ins, outs).max().item<int64_t>();
    const at::Tensor from = bytes_like(ins[0], size * longest);
    const at::Tensor to = bytes_like(ins[0], size * longest);
    for (int64_t p = 0; p < size; p++) {
        const at::Tensor in = dense(ins[static_cast<size_t>(p)]);

        // Not by reshape: it keeps the stride of a block of one element or none, which may be any,
        // and bytes have no view with it.
        from.narrow(0, p * longest, static_cast<int64_t>(in.nbytes()))
            .copy_(in.as_strided({in.numel()}, {1}).view(at::kByte));
    }
    c.all_to_all(from, to, static_cast<int>(size));
    for (int64_t p = 0; p < size; p++) {
        at::Tensor &out = outs[static_cast<size_t>(p)];

        out.copy_(to.narrow(0, p * longest, static_cast<int64_t>(out.nbytes()))
                      .view(out.scalar_type())
                      .view(out.sizes()));
    }
}

std::vector<at::Tensor> blocks_of(const char *what, const at::Tensor &tensor,
                              const std::vector<int64_t> &sizes, int ranks)
{
    if (sizes.empty()) {
        TORCH_CHECK(tensor.size(0) % ranks == 0, "symm: ", what, ": the first dimension, ",
                    tensor.size(0), ", is not a multiple of ", ranks, " ranks");
        return tensor.chunk(ranks, 0);
    }
    TORCH_CHECK(sizes.size() == static_cast<size_t>(ranks), "symm: ", what, ": ", sizes.size(),
                " split sizes for ", ranks, " ranks");
    TORCH_CHECK(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) == tensor.size(0),
                "symm: ", what, ": the split sizes do not add up to the first dimension, ",
                tensor.size(0));
    return tensor.split_with_sizes(sizes, 0);
}

} // namespace

Backend::WorkPtr Backend::alltoall_base(at::Tensor &output, at::Tensor &input,
                                        std::vector<int64_t> &output_splits,
                                        std::vector<int64_t> &input_splits,
                                        const c10d::AllToAllOptions &opts)
{
    const char *what = "all_to_all_single";

    check_same(what, input, output);
    if (output_splits.empty() && input_splits.empty()) {
        TORCH_CHECK(input.numel() == output.numel() && input.size(0) % getSize() == 0,
                    "symm: all_to_all_single: input and output must have the same size, and a "
                    "first dimension that is a multiple of ",
                    getSize());
        return submit(c10d::OpType::ALLTOALL_BASE, "symm:all_to_all", output, {output},
                      opts.timeout, opts.asyncOp,
                      [output, input, size = getSize()](const Caller &c) mutable {
                          const at::Tensor flat = dense_like(output);

                          c.all_to_all(dense(input), flat, size);
                          copy_back(output, flat);
                      });
    }
    Tensors ins = blocks_of(what, input, input_splits, getSize());
    Tensors outs = blocks_of(what, output, output_splits, getSize());
    return submit(c10d::OpType::ALLTOALL_BASE, "symm:all_to_all", output, {output}, opts.timeout,
                  opts.asyncOp, [ins, outs](const Caller &c) mutable {
                      exchange_uneven(c, ins, outs);
                  });
}

Backend::WorkPtr Backend::alltoall(Tensors &outputs, Tensors &inputs,
                                   const c10d::AllToAllOptions &opts)
{
    const auto size = static_cast<size_t>(getSize());

    TORCH_CHECK(outputs.size() == size && inputs.size() == size,
                "symm: all_to_all takes lists of ", getSize(), " tensors");
    for (size_t p = 0; p < size; p++)
        check_same("all_to_all", inputs[p], outputs[p]);
    return submit(c10d::OpType::ALLTOALL, "symm:all_to_all", inputs[0], outputs, opts.timeout,
                  opts.asyncOp,
                  [ins = inputs, outs = outputs](const Caller &c) mutable {
                      exchange_uneven(c, ins, outs);
                  });
}

} // namespace symm_torch
