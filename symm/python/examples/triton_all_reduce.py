# SPDX-License-Identifier: MIT
"""A one-shot all-reduce and a ring of puts, both written in Triton over symmetric memory.

torchrun --nproc-per-node 2 triton_all_reduce.py [CALLS]

all_reduce: each block tells its twins on all ranks that this rank's input is complete, waits for
theirs, and adds all ranks' inputs in rank order; so the bits are the same on all ranks. Before it
ends it waits until its twins have read this rank's input, which may change then.
ring: each block puts its part into the next rank's buffer and raises a signal there.
Ranks take the GPUs in turn; with fewer GPUs than ranks SYMM_OVERSUBSCRIBE=1 is needed.
"""

import os
import sys

import torch
import triton
import triton.language as tl

import symm
import symm.triton as st

BLOCKS, BLOCK = 16, 1024
READY, READ = 0, 64  # the first of each block's signals


@triton.jit
def meet(team, first, size: tl.constexpr):
    """Every rank's twin of this block has come here: 0, or what failed."""
    failed = 0
    for p in tl.static_range(size):
        st.signal(team, p, first + tl.program_id(0), 1)
    for p in tl.static_range(size):
        failed += st.signal_wait(team, p, first + tl.program_id(0), 1)
    return failed


@triton.jit
def all_reduce(team, x, out, count, READY: tl.constexpr, READ: tl.constexpr, SIZE: tl.constexpr,
               BLOCK: tl.constexpr):
    if meet(team, READY, SIZE) == 0:
        for start in range(tl.program_id(0) * BLOCK, count, tl.num_programs(0) * BLOCK):
            at = start + tl.arange(0, BLOCK)
            total = tl.zeros([BLOCK], dtype=tl.float32)
            for p in tl.static_range(SIZE):
                total += tl.load(st.peer(team, x, p) + at, mask=at < count).to(tl.float32)
            tl.store(out + at, total.to(out.dtype.element_ty), mask=at < count)
        meet(team, READ, SIZE)


@triton.jit
def ring(team, x, inbox, out, count, BLOCK: tl.constexpr):
    me, size = st.rank(team), st.size(team)
    block = tl.program_id(0)
    for start in range(block * BLOCK, count, tl.num_programs(0) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        st.put(team, inbox, at, tl.load(x + at, mask=at < count), (me + 1) % size, at < count)
    st.signal(team, (me + 1) % size, 128 + block, 2)
    if st.signal_wait(team, (me + size - 1) % size, 128 + block, 2) == 0:
        for start in range(block * BLOCK, count, tl.num_programs(0) * BLOCK):
            at = start + tl.arange(0, BLOCK)
            tl.store(out + at, tl.load(inbox + at, mask=at < count), mask=at < count)


def inputs(rank, call, count):
    torch.manual_seed(1000 * call + rank)
    return torch.randn(count).to(torch.bfloat16)


def main(calls=20):
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    with symm.init() as ctx:
        world = ctx.world
        buffers = [world.empty(100_000, "bfloat16", site=name) for name in ("x", "inbox")]
        world.rendezvous()
        x, inbox = (buffer.as_torch() for buffer in buffers)
        team, libraries = st.device_team(world), st.extern_libs()
        for call in range(calls):
            count = 1 + (call * 9_973) % x.numel()
            parts = [inputs(r, call, count) for r in range(world.size)]
            x[:count].copy_(parts[world.rank])
            out = torch.empty(count, dtype=torch.bfloat16, device="cuda")
            all_reduce[(BLOCKS,)](team, x, out, count, READY, READ, world.size, BLOCK,
                                  extern_libs=libraries)
            total = sum((part.float() for part in parts[1:]), parts[0].float())
            assert torch.equal(out.cpu(), total.to(torch.bfloat16)), call
            ring[(BLOCKS,)](team, x, inbox, out, count, BLOCK, extern_libs=libraries)
            assert torch.equal(out.cpu(), parts[world.rank - 1]), call
            world.barrier()  # the inbox has been read
        if world.rank == 0:
            print(f"right: {calls} all-reduces and rings on {world.size} ranks", flush=True)
        del x, inbox, out


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
