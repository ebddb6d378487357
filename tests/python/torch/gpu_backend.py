# SPDX-License-Identifier: MIT
"""The c10d backend "symm" with CUDA tensors under torchrun, compared with gloo on the CPU.

torchrun --nproc-per-node 2 tests/python/torch/gpu_backend.py [cpu]

Ranks take the GPUs in turn; with fewer GPUs than ranks SYMM_OVERSUBSCRIBE=1 is needed. Point-to-
point calls need an engine, and so a GPU for each rank. cpu: the same program on CPU tensors.
Exit status 77 without PyTorch.
"""

import os
import sys
import time

try:
    import torch
    import torch.distributed as dist
except ImportError:
    sys.exit(77)

import symm.torch

ON_CPU = sys.argv[1:] == ["cpu"]


def device_of(rank):
    if ON_CPU:
        return torch.device("cpu")
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def test_collectives(device, gloo):
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.int16,
                  torch.uint8, torch.bool):
        for shape in ((1,), (7,), (33, 5), (4096,), (0,), (1 << 18,)):
            x = torch.randint(0, 2 if dtype == torch.bool else 4, shape).to(dtype)
            y = x.to(device, copy=True)
            lists = [torch.empty(shape) for _ in range(size)]  # gloo has not all types
            dist.all_gather(lists, x.float(), group=gloo)
            want = sum(lists).to(dtype)
            lists = [t.to(dtype) for t in lists]
            dist.all_reduce(y)
            assert torch.equal(y.cpu(), want), (dtype, shape)
            y = x.to(device, copy=True)
            got = [torch.empty_like(y) for _ in range(size)]
            dist.all_gather(got, y)
            assert all(torch.equal(a.cpu(), b) for a, b in zip(got, lists))
            whole = torch.empty(size * y.numel(), dtype=dtype, device=device)
            dist.all_gather_into_tensor(whole, y.flatten())
            assert torch.equal(whole.cpu(), torch.cat([t.flatten() for t in lists]))
            turned = torch.empty_like(whole)
            dist.all_to_all_single(turned, whole)
            assert torch.equal(turned.cpu(), lists[rank].flatten().repeat(size))
            dist.broadcast(y, size - 1)
            assert torch.equal(y.cpu(), lists[size - 1])
    half = torch.ones(6, device=device)[::2]
    dist.all_reduce(half)
    assert (half == size).all()


def test_streams(device):
    """Works of calls on several streams, awaited in another order."""
    size = dist.get_world_size()
    works, tensors = [], []
    if ON_CPU:
        return
    for i in range(20):
        with torch.cuda.stream(torch.cuda.Stream()):
            x = torch.full((1000 * (i + 1),), float(i), device=device)
            works.append(dist.all_reduce(x, async_op=True))
            tensors.append(x)
    for i in reversed(range(20)):
        assert works[i].wait()
        assert (tensors[i] == size * i).all(), i
    future = dist.all_reduce(x := torch.ones(5, device=device), async_op=True).get_future()
    assert (future.wait()[0] == size).all() and (x == size).all()


def test_graph(device):
    if ON_CPU:
        return
    size = dist.get_world_size()
    x = torch.ones(512, device=device)
    dist.all_reduce(x.clone())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(x)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert (x == size ** 3).all(), x[0]


def test_ddp(device, gloo):
    """The sum of two ranks has one order, so training gives the same bits on the CPU."""
    from torch.nn.parallel import DistributedDataParallel as DDP

    results = []
    for group, place in ((None, device), (gloo, device)):
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(),
                                    torch.nn.Linear(64, 8)).to(place)
        start = [p.detach().clone() for p in model.parameters()]
        if group is None:
            ddp = DDP(model, bucket_cap_mb=0.001)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(4):
            torch.manual_seed(100 * step + dist.get_rank())
            optimizer.zero_grad()
            inputs = torch.randn(16, 32).to(place)
            (ddp if group is None else model)(inputs).pow(2).mean().backward()
            if group is not None:  # the reference: gradients through gloo on the CPU
                for p in model.parameters():
                    gradient = p.grad.cpu()
                    dist.all_reduce(gradient, group=gloo)
                    p.grad.copy_(gradient / dist.get_world_size())
            optimizer.step()
        results.append([p.detach().cpu() for p in model.parameters()])
        assert not all(torch.equal(a, p) for a, p in zip(start, model.parameters()))
    for a, b in zip(*results):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-6)


def test_point_to_point(device):
    rank, size = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % size, (rank - 1) % size
    if not ON_CPU and torch.cuda.device_count() < size:
        try:
            dist.send(torch.ones(3, device=device), after)
        except (RuntimeError, dist.DistBackendError) as error:
            print(f"rank {rank}: no engine: {error}", flush=True)
            return
        raise AssertionError("sent without an engine")
    x, y = torch.full((1000,), float(rank), device=device), torch.empty(1000, device=device)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, after),
                                        dist.P2POp(dist.irecv, y, before)]):
        work.wait()
    assert (y == before).all()


def test_device(device):
    """A group whose first call comes while another device is the current one."""
    count = 1 if ON_CPU else torch.cuda.device_count()
    if count < 2:
        return
    group = dist.new_group(backend="symm")
    with torch.cuda.device((device.index + 1) % count):
        x = torch.ones(1000, device=device)
        dist.all_reduce(x, group=group)
    assert (x == dist.get_world_size()).all()


def time_all_reduce(device):
    for count in (2, 4096, 1 << 20):
        x = torch.zeros(count, device=device)
        for repeats in (20, 200):
            begin = time.perf_counter()
            for _ in range(repeats):
                dist.all_reduce(x)
            if not ON_CPU:
                torch.cuda.synchronize()
            spent = (time.perf_counter() - begin) / repeats
        if dist.get_rank() == 0:
            print(f"all_reduce of {4 * count} B: {1e6 * spent:.1f} us a call", flush=True)


def main():
    device = device_of(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("symm")
    gloo = dist.new_group(backend="gloo")
    tests = ((test_collectives, (device, gloo)), (test_streams, (device,)),
             (test_graph, (device,)), (test_ddp, (device, gloo)),
             (test_device, (device,)), (time_all_reduce, (device,)),
             (test_point_to_point, (device,)))
    for test, arguments in tests:
        begin = time.time()
        test(*arguments)
        if dist.get_rank() == 0:
            print(f"{test.__name__}: {time.time() - begin:.1f} s", flush=True)
    moved = symm.torch.counters()
    assert moved["all_reduce"][0] > 100 and moved["all_gather"][0] > 50
    print(f"rank {dist.get_rank()}: {moved}", flush=True)
    dist.destroy_process_group()


main()
