#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""compare_torch.py - times PyTorch's all-reduces by symm-perf's method: symmetric memory in one
shot and in two, and NCCL as PyTorch calls it.

    torchrun --nproc-per-node N bench/compare_torch.py --json OUT.json [-b 16 -e 64M -f 4]

Each size: -G calls are captured in one CUDA graph; -n replays are timed by events. A barrier
precedes each replay. Figures: median and p99 of the slowest rank. Multicast stays off:
TORCH_SYMM_MEM_DISABLE_MULTICAST=1 is set unless the variable exists. The result of each
variant is checked once; sizes that a variant cannot do are omitted. Rank 0 writes the JSON.
Exit status 2: no torch, no GPUs, or an unknown argument.
"""

import argparse
import json
import os
import sys

os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")


def size(text):
    units = {"K": 10, "M": 20, "G": 30}
    shift = units.get(text[-1:].upper(), 0)
    return int(text[:-1] if shift else text) << shift


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--json", required=True)
    parser.add_argument("-b", type=size, default=16, help="smallest size, bytes")
    parser.add_argument("-e", type=size, default=64 << 20, help="largest size")
    parser.add_argument("-f", type=int, default=4, help="factor between sizes")
    parser.add_argument("-s", default="", help="further sizes, by comma")
    parser.add_argument("-n", type=int, default=30, help="timed replays")
    parser.add_argument("-w", type=int, default=5, help="replays before them")
    parser.add_argument("-G", type=int, default=50, help="calls in a graph")
    parser.add_argument("-d", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    options = parser.parse_args()
    if options.b < 1 or options.f < 2 or options.e < options.b or options.G < 1 or options.n < 1:
        parser.error("-b, -n and -G are at least 1, -f at least 2, -e at least -b")
    options.sizes = {size(word) for word in options.s.split(",") if word}
    at = options.b
    while at <= options.e:
        options.sizes.add(at)
        at *= options.f
    return options


def percentile(times, share):
    """The sorted list's element at floor(n x share), as in symm-perf."""
    return sorted(times)[int(len(times) * share)]


class Bench:
    def __init__(self, options, torch, dist, symm):
        self.options, self.torch, self.dist = options, torch, dist
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.group = dist.group.WORLD.group_name
        self.dtype = getattr(torch, options.d)
        largest = max(options.sizes)
        self.buffer = symm.empty(
            max(largest // self.dtype.itemsize, 1), dtype=self.dtype, device="cuda"
        )
        self.handle = symm.rendezvous(self.buffer, dist.group.WORLD)
        self.word = torch.zeros(1, device="cuda")
        self.stream = torch.cuda.Stream()

    def slowest(self, values):
        tensor = self.torch.tensor(values, device="cuda", dtype=self.torch.float64)
        self.dist.all_reduce(tensor, op=self.dist.ReduceOp.MAX)
        return tensor.tolist()

    def agree(self, fine):
        """Whether `fine` is true on all ranks."""
        return self.slowest([0.0 if fine else 1.0])[0] == 0.0

    def variants(self, count):
        ops, here = self.torch.ops.symm_mem, self.buffer[:count]
        out = self.torch.empty_like(here)
        plain = self.torch.empty_like(here)

        def nccl():
            self.dist.all_reduce(plain)
            return plain

        found = {
            "torch one-shot": (
                here,
                lambda: ops.one_shot_all_reduce_out(here, "sum", self.group, out),
            ),
            "torch nccl": (plain, nccl),
        }
        if here.numel() * here.element_size() % (16 * self.world) == 0:
            found["torch two-shot"] = (
                here,
                lambda: ops.two_shot_all_reduce_(here, "sum", self.group),
            )
        return found

    def is_right(self, source, call):
        torch = self.torch
        source.fill_(self.rank + 1)
        torch.cuda.synchronize()
        self.dist.barrier()
        result = call()
        torch.cuda.synchronize()
        return bool((result == self.world * (self.world + 1) // 2).all())

    def replays(self, graph):
        torch, times = self.torch, []
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for turn in range(self.options.w + self.options.n):
            with torch.cuda.stream(self.stream):
                self.dist.all_reduce(self.word)  # a barrier
                begin.record()
                graph.replay()
                end.record()
            end.synchronize()
            if turn >= self.options.w:
                times.append(begin.elapsed_time(end) * 1e3 / self.options.G)
        return times

    def time(self, source, call):
        torch = self.torch
        source.zero_()  # sums of zeros stay zero
        with torch.cuda.stream(self.stream):
            for _ in range(3):
                call()
        torch.cuda.synchronize()
        self.dist.barrier()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            for _ in range(self.options.G):
                call()
        times = self.replays(graph)
        return self.slowest([percentile(times, 0.5), percentile(times, 0.99)])

    def figure(self, bytes_, name, source, call):
        """One figure, or None after a message on rank 0; the same on all ranks."""
        try:
            right, why = self.is_right(source, call), "its result is wrong"
        except (RuntimeError, AttributeError) as error:
            right, why = False, str(error).split("\n", maxsplit=1)[0][:160]
        if not self.agree(right):
            if self.rank == 0:
                print(f"{name} of {bytes_} bytes is left out: {why}", file=sys.stderr)
            return None
        p50, p99 = self.time(source, call)
        return {
            "op": "all_reduce", "dtype": self.options.d, "ranks": self.world,
            "bytes": bytes_, "who": name, "p50": round(p50, 3), "p99": round(p99, 3),
        }  # fmt: skip

    def run(self):
        figures = []
        for bytes_ in sorted(self.options.sizes):
            count = bytes_ // self.dtype.itemsize
            for name, (source, call) in self.variants(count).items() if count else ():
                made = self.figure(bytes_, name, source, call)
                if made:
                    figures.append(made)
                    if self.rank == 0:
                        print(f"{bytes_:>10} {name:<16} {made['p50']:9.2f} us", flush=True)
        return figures


def main():
    options = arguments()
    try:
        import torch
        import torch.distributed as dist
        import torch.distributed._symmetric_memory as symm
    except ImportError as error:
        print(f"compare_torch.py: {error}", file=sys.stderr)
        return 2
    if not torch.cuda.is_available() or "LOCAL_RANK" not in os.environ:
        print("compare_torch.py: needs GPUs, and torchrun to start it", file=sys.stderr)
        return 2
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    bench = Bench(options, torch, dist, symm)
    if bench.handle.multicast_ptr:
        print("compare_torch.py: PyTorch has multicast on, in spite of "
              "TORCH_SYMM_MEM_DISABLE_MULTICAST: not measured", file=sys.stderr)  # fmt: skip
        return 2
    figures = bench.run()
    if bench.rank == 0:
        versions = {
            "torch": torch.__version__,
            "torch nccl": ".".join(map(str, torch.cuda.nccl.version())),
        }
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"versions": versions, "figures": figures}, file)
    dist.barrier()
    torch.cuda.synchronize()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
