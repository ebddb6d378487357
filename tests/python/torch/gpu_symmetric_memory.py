# SPDX-License-Identifier: MIT
"""torch's symmetric memory on libsymm with CUDA tensors, under torchrun.

torchrun --nproc-per-node 2 tests/python/torch/gpu_symmetric_memory.py

Ranks take the GPUs in turn; with fewer GPUs than ranks SYMM_OVERSUBSCRIBE=1 is needed. Exit status
77 without PyTorch or a GPU.
"""

import gc
import os
import random
import sys
import time

try:
    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symm_mem
except ImportError:
    sys.exit(77)
if not torch.cuda.is_available():
    sys.exit(77)

from torch._C._distributed_c10d import _SymmetricMemory

import symm.torch

DEVICE = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())


def empty(*shape, dtype=torch.float32):
    return symm_mem.empty(*shape, dtype=dtype, device=DEVICE)


def test_handle(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    t = empty(1000).fill_(rank + 1)
    h = symm_mem.rendezvous(t, dist.group.WORLD)
    assert (h.rank, h.world_size) == (rank, size) and h.buffer_size >= 4000, h.buffer_size
    assert len(set(h.buffer_ptrs)) == size and h.multicast_ptr == 0
    h.barrier()
    assert (h.get_remote_tensor(right, (1000,), torch.float32) == right + 1).all()
    h.barrier()
    h.get_remote_tensor(right, (1000,), torch.float32)[7] = 40 + rank
    h.barrier(channel=2)
    assert t[7] == 40 + left
    pads = [h.get_signal_pad(r) for r in range(size)]
    assert all((pad == 0).all() for pad in pads)
    h.barrier()
    pads[right][5] = 9 + rank
    h.barrier()
    assert pads[rank][5] == 9 + left
    # The tables of addresses are in the device's memory, one after the other.
    assert h.buffer_ptrs_dev != 0 and h.signal_pad_ptrs_dev == h.buffer_ptrs_dev + 8 * size


def test_signals(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    t = empty(8)
    h = symm_mem.rendezvous(t, dist.group.WORLD)
    theirs = h.get_remote_tensor(right, (8,), torch.float32)
    for step in range(20):
        theirs.fill_(step * 10 + rank)
        h.put_signal(right, 3)
        h.wait_signal(left, 3)
        assert (t == step * 10 + left).all()
        h.barrier()


def test_histories_differ(rank, size):
    random.seed(rank)
    kept = []
    for step in range(15):
        strangers = [empty(random.randrange(1, 5000)) for _ in range(random.randrange(3))]
        t = empty(100).fill_(10 * step + rank)
        h = symm_mem.rendezvous(t, dist.group.WORLD)
        h.barrier()
        for r in range(size):
            assert (h.get_remote_tensor(r, (100,), torch.float32) == 10 * step + r).all()
        h.barrier()
        kept.append((t, 10 * step))
        del t, h, strangers
        while len(kept) > random.randrange(1, 5):
            kept.pop(random.randrange(len(kept)))
        gc.collect()
    for t, value in kept:
        assert (t == value + rank).all()


def test_operators(rank, size):
    ops, name = torch.ops.symm_mem, dist.group.WORLD.group_name
    torch.manual_seed(1)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for shape in ((1,), (7, 9), (4096,), (3, 40000)):
            parts = [torch.randint(0, 5, shape).to(dtype).to(DEVICE) for _ in range(size)]
            total = sum(parts[1:], parts[0].clone())
            t = empty(*shape, dtype=dtype)
            symm_mem.rendezvous(t, name)
            t.copy_(parts[rank])
            assert torch.equal(ops.one_shot_all_reduce(t, "sum", name), total)
            out = torch.empty_like(total)
            ops.one_shot_all_reduce_out(t, "sum", name, out)
            assert torch.equal(out, total)
            assert torch.equal(ops.one_shot_all_reduce_copy(t, parts[rank], "sum", name), total)
            ops.two_shot_all_reduce_(t, "sum", name)
            assert torch.equal(t, total)
    t = empty(6, 4 * size)
    symm_mem.rendezvous(t, name)
    whole = torch.arange(24.0 * size, device=DEVICE).reshape(6, -1)
    for last in (False, True) if 6 % size == 0 else (True,):
        t.copy_(whole * (rank + 1))
        want = whole.chunk(size, -1 if last else 0)[rank] * (size * (size + 1) // 2)
        out = torch.empty_like(want, memory_format=torch.contiguous_format)
        ops.reduce_scatter_out(t, name, last, out)
        assert torch.equal(out, want), last


def test_graph(rank, size):
    name = dist.group.WORLD.group_name
    t = empty(4096).fill_(1)
    symm_mem.rendezvous(t, name)
    torch.ops.symm_mem.one_shot_all_reduce(t, "sum", name)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        t.copy_(torch.ops.symm_mem.one_shot_all_reduce(t, "sum", name))
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert (t == size ** 3).all(), t[0]


def test_call_sites(rank, size):
    name = dist.group.WORLD.group_name
    random.seed(100 + rank)  # Inductor draws the ids on each rank
    sites = [random.getrandbits(63) for _ in range(4)]
    for _ in range(3):
        for i, site in enumerate(sites):
            t = _SymmetricMemory.empty_strided_p2p((4, 8), (8, 1), torch.float32, DEVICE, name,
                                                   alloc_id=site)
            t.fill_(rank + i)
            out = torch.ops.symm_mem.one_shot_all_reduce(t, "sum", name)
            assert (out == size * i + size * (size - 1) // 2).all()
            del t


def test_compile(rank, size):
    """Inductor's own lowering of all_reduce to symm_mem.one_shot_all_reduce, ours underneath."""
    import torch._inductor.config as config
    from torch._inductor.utils import run_and_get_code
    from torch.distributed import _functional_collectives as funcol

    symm_mem.enable_symm_mem_for_group(dist.group.WORLD.group_name)
    config._collective.auto_select = True

    def step(x):
        y = x * 2
        y = funcol.all_reduce(y, "sum", dist.group.WORLD)
        return y + 1

    x = torch.full((4096,), float(rank + 1), device=DEVICE)
    before = symm.torch.counters()["all_reduce"][0]
    got, codes = run_and_get_code(torch.compile(step, fullgraph=True), x)
    assert (got == size * (size + 1) + 1).all(), got[0]
    assert any("one_shot_all_reduce" in code for code in codes), codes
    assert symm.torch.counters()["all_reduce"][0] > before


def main():
    torch.cuda.set_device(DEVICE)
    dist.init_process_group("symm")
    symm.torch.enable_symmetric_memory()
    assert symm_mem.get_backend(DEVICE) == "SYMM"
    rank, size = dist.get_rank(), dist.get_world_size()
    failed = 0
    for test in (test_handle, test_signals, test_histories_differ, test_operators, test_graph,
                 test_call_sites, test_compile):
        begin = time.time()
        try:
            test(rank, size)
            result = "right"
        except Exception as error:  # all ranks fail alike, or the next test says so
            result = f"FAILED: {type(error).__name__}: {str(error)[:1500]}"
            failed += 1
        print(f"rank {rank}: {test.__name__}: {result} ({time.time() - begin:.1f} s)", flush=True)
    print(f"rank {rank}: {symm.torch.counters()}", flush=True)
    dist.destroy_process_group()
    sys.exit(failed > 0)


main()
