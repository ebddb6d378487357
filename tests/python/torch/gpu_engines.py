# SPDX-License-Identifier: MIT
"""The plug-ins for vLLM and SGLang with CUDA tensors and graphs, under torchrun.

torchrun --nproc-per-node 2 tests/python/torch/gpu_engines.py [cpu]

The engines are stand-ins (engine_stand_ins.py). Ranks take the GPUs in turn; with fewer GPUs than
ranks SYMM_OVERSUBSCRIBE=1 is needed. cpu: what needs no graph, on CPU tensors. Exit status 77
without PyTorch.
"""

import os
import sys
import time

try:
    import torch
    import torch.distributed as dist
except ImportError:
    sys.exit(77)

import engine_stand_ins as stand_ins

import symm.sglang
import symm.vllm

ON_CPU = sys.argv[1:] == ["cpu"]
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def device_of(rank):
    if ON_CPU:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        sys.exit(77)
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def rank_order(x):
    """A float32 sum of x in rank order, rounded once, on the CPU."""
    blocks = [torch.empty(x.shape) for _ in range(dist.get_world_size())]
    dist.all_gather(blocks, x.float().cpu().contiguous())
    total = blocks[0].clone()
    for block in blocks[1:]:
        total += block
    return total.to(x.dtype)


def test_eager(ca, device):
    """Bit-exact results of all three calls, also of a transposed tensor."""
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    for dtype in DTYPES:
        for shape in ((8,), (3, 40), (128, 1024), (500, 4096)):
            x = torch.randn(shape).to(device, dtype)
            got = ca.custom_all_reduce(x)
            assert got.device == x.device and torch.equal(got.cpu(), rank_order(x)), (dtype, shape)
            wide = torch.randn((size * shape[0], *shape[1:])).to(device, dtype)
            if wide.nbytes <= 16 << 20:
                want = rank_order(wide)[rank * shape[0]:(rank + 1) * shape[0]]
                assert torch.equal(ca.custom_reduce_scatter(wide).cpu(), want), (dtype, shape)
            if x.nbytes <= 2 << 20:
                blocks = [torch.empty(shape) for _ in range(size)]
                dist.all_gather(blocks, x.float().cpu())
                assert torch.equal(ca.custom_all_gather(x).float().cpu(), torch.cat(blocks))
    x = torch.randn(96, 64).to(device).t()
    assert torch.equal(ca.custom_all_reduce(x).cpu(), rank_order(x))


def test_graphs(ca, device):
    """Graphs of several sizes, captured as vLLM does: warm-up, then capture, in capture()."""
    if ON_CPU:
        return
    before = symm.vllm.counters()
    stream = torch.cuda.Stream()
    inputs, outputs, graphs = [], [], []
    with ca.capture(), torch.cuda.stream(stream):
        for rows in (2048, 64, 8, 1):
            x = torch.zeros(rows, 1024, dtype=torch.bfloat16, device=device)
            for _ in range(2):
                assert ca.custom_all_reduce(x).shape == x.shape  # warm-up
            stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                y = ca.custom_all_reduce(x)  # two layers
                z = ca.custom_all_reduce(y + 1)
            inputs.append(x)
            outputs.append((y, z))
            graphs.append(graph)
    counts = symm.vllm.counters()
    assert counts["captured"][0] - before["captured"][0] == 8, counts
    assert counts["all_reduce"][0] - before["all_reduce"][0] == 8, counts
    for step in range(5):
        for x, (y, z), graph in zip(inputs, outputs, graphs):
            torch.manual_seed(100 * step + dist.get_rank())
            x.copy_(torch.randn(x.shape))
            graph.replay()
            torch.cuda.synchronize()
            assert torch.equal(y.cpu(), rank_order(x)), step
            assert torch.equal(z.cpu(), rank_order(y + 1)), step
            x.fill_(2)  # eager calls between replays
            assert (ca.custom_all_reduce(x) == 2 * dist.get_world_size()).all()
    time_graphs(ca, inputs, device)


def time_graphs(ca, inputs, device):
    for x in inputs:
        graph = torch.cuda.CUDAGraph()
        with ca.capture(), torch.cuda.graph(graph):
            for _ in range(50):
                ca.custom_all_reduce(x)
            direct = "captured between" in ca._engine.team.explain()
        dist.barrier()
        for _ in range(3):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            graph.replay()
            torch.cuda.synchronize()
            spent = (time.perf_counter() - begin) / 50
        if dist.get_rank() == 0:
            print(f"all_reduce of {x.nbytes} B in a graph: {1e6 * spent:.2f} us a call"
                  + (", by the table of pointers" if direct else ""), flush=True)


def test_shared_buffer(ca, device):
    pointers = ca.create_shared_buffer(1 << 20)
    assert len(pointers) == len(set(pointers)) == dist.get_world_size() and all(pointers)
    ca.free_shared_buffer(pointers)


def test_sglang(device):
    registry = stand_ins.put_sglang()
    assert symm.sglang.register()
    registry.apply_hooks()
    from sglang.srt.distributed.device_communicators.custom_all_reduce import (
        dispatch_custom_allreduce,
    )

    ca = dispatch_custom_allreduce(dist.group.WORLD, device)(
        group=dist.group.WORLD, device=device)
    assert isinstance(ca, symm.sglang.CustomAllreduce)
    x = torch.randn(64, 64).to(device)
    assert torch.equal(ca.custom_all_reduce(x).cpu(), rank_order(x))
    assert symm.sglang.counters()["all_reduce"] == (1, x.nbytes)
    ca.close()


def main():
    device = device_of(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("gloo")
    module = stand_ins.put_vllm()
    assert symm.vllm.register()
    ca = module.CustomAllreduce(dist.group.WORLD, device)
    assert not ca.disabled and not stand_ins.VllmCustomAllreduce.made
    for test, arguments in ((test_eager, (ca, device)), (test_graphs, (ca, device)),
                            (test_shared_buffer, (ca, device)), (test_sglang, (device,))):
        begin = time.time()
        test(*arguments)
        if dist.get_rank() == 0:
            print(f"{test.__name__}: {time.time() - begin:.1f} s", flush=True)
    print(f"rank {dist.get_rank()}: {symm.vllm.counters()}", flush=True)
    ca.close()
    dist.destroy_process_group()


main()
