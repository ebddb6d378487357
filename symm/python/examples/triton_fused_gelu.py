# SPDX-License-Identifier: MIT
"""An all-reduce, bias and GELU of bfloat16 rows as one Triton kernel: a one-shot exchange.

torchrun --nproc-per-node 2 triton_fused_gelu.py [CALLS]

Each program pushes its units (8 bytes: 4 elements) to all ranks, waits for theirs, adds them in
rank order, and goes on with the sum in registers. Ranks take the GPUs in turn; with fewer GPUs than
ranks SYMM_OVERSUBSCRIBE=1 is needed.
"""

import os
import sys

import torch
import triton
import triton.language as tl

import symm
import symm.triton as st

BLOCK, ROWS, COLUMNS = 256, 4, 8192
TAG = 5


@triton.jit
def gelu(v):
    """By tanh: 0.5 v (1 + tanh(z)) is v sigmoid(2 z)."""
    return v * tl.sigmoid(1.5957691216 * (v + 0.044715 * v * v * v))


@triton.jit
def all_reduce_gelu(team, workspace, x, bias, out, columns, TAG: tl.constexpr,
                    SIZE: tl.constexpr, BLOCK: tl.constexpr):
    unit = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    exchange = st.exchange_begin(team, workspace, tl.num_programs(0) * BLOCK, TAG)
    st.exchange_push(team, workspace, exchange, unit, tl.load(x + unit))
    sum0 = tl.load(bias + (4 * unit + 0) % columns).to(tl.float32)
    sum1 = tl.load(bias + (4 * unit + 1) % columns).to(tl.float32)
    sum2 = tl.load(bias + (4 * unit + 2) % columns).to(tl.float32)
    sum3 = tl.load(bias + (4 * unit + 3) % columns).to(tl.float32)
    for p in tl.static_range(SIZE):
        got = st.exchange_wait(team, workspace, exchange, unit, p)
        sum0 += ((got & 0xFFFF) << 16).to(tl.int32).to(tl.float32, bitcast=True)
        sum1 += ((got >> 16 & 0xFFFF) << 16).to(tl.int32).to(tl.float32, bitcast=True)
        sum2 += ((got >> 32 & 0xFFFF) << 16).to(tl.int32).to(tl.float32, bitcast=True)
        sum3 += ((got >> 48 & 0xFFFF) << 16).to(tl.int32).to(tl.float32, bitcast=True)
    if st.exchange_end(team, workspace, exchange) == 0:  # else the team's next call says why
        tl.store(out + 4 * unit + 0, gelu(sum0).to(tl.bfloat16))
        tl.store(out + 4 * unit + 1, gelu(sum1).to(tl.bfloat16))
        tl.store(out + 4 * unit + 2, gelu(sum2).to(tl.bfloat16))
        tl.store(out + 4 * unit + 3, gelu(sum3).to(tl.bfloat16))


def inputs(rank, call):
    torch.manual_seed(1000 * call + rank)
    return torch.randn(ROWS, COLUMNS).to(torch.bfloat16)


def main(calls=20):
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    with symm.init() as ctx:
        world = ctx.world
        units = ROWS * COLUMNS // 4
        buffer = world.empty(st.exchange_bytes(world.size, units), "uint8", site="workspace")
        world.rendezvous()
        workspace = buffer.as_torch()
        workspace.zero_()
        world.barrier()  # zero on all ranks, before one pushes
        team, libraries = st.device_team(world), st.extern_libs()
        bias = inputs(63, 0)[0].cuda()
        out = torch.empty(ROWS, COLUMNS, dtype=torch.bfloat16, device="cuda")
        for call in range(calls):
            parts = [inputs(r, call) for r in range(world.size)]
            x = parts[world.rank].cuda().view(torch.int64)
            all_reduce_gelu[(units // BLOCK,)](team, workspace, x, bias, out, COLUMNS, TAG,
                                               world.size, BLOCK, extern_libs=libraries)
            total = sum((part.double() for part in parts), bias.cpu().double())
            wanted = torch.nn.functional.gelu(total, approximate="tanh")
            torch.testing.assert_close(out.cpu().double(), wanted, rtol=1 / 128, atol=1e-5)
        world.barrier()
        if world.rank == 0:
            print(f"right: {calls} fused all-reduces on {world.size} ranks", flush=True)
        del workspace


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
