#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""decode_step.py - the decode step of Llama-3-8B, a rank's part of it, by several all-reduces.

    torchrun --standalone --nproc-per-node 2 bench/decode_step.py [--json OUT.json] [--batch 1,32]
    python3 bench/decode_step.py --ranks 1

One rank has what a rank of --tp (2) has: its part of 32 layers' matrices, in bfloat16, random,
streamed from the GPU's memory; attention itself is left out. A step is one CUDA graph with 64
all-reduces, each followed by a residual addition and an RMSNorm. Ways:

    bare       no all-reduces, and no additions and norms
    none       no all-reduces
    skew       all-reduces of 16 bytes in their place: what the ranks wait for each other
    nccl       torch.distributed.all_reduce
    torch      torch.ops.symm_mem.one_shot_all_reduce
    symm       libsymm's all_reduce
    fused      libsymm's all_reduce_norm, which adds and normalises too

All graphs take turns, in one order and in the other. Figures: the slowest rank's median and p99
of -n replays, each after a barrier, in microseconds. Multicast stays off. With one rank nothing
is sent: `fused` is then a copy and the kernel of the norm, `nccl` and `torch` are left out. The
package symm must be importable (PYTHONPATH=build/python). Exit status 1: a result was wrong, 2: no
torch, no GPU, or arguments that make no step.
"""

import argparse
import json
import os
import statistics
import sys

os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")

HIDDEN, MLP, KEYS, EPS = 4096, 14336, 1024, 1e-6
WAYS = ("bare", "none", "skew", "nccl", "torch", "symm", "fused")


def batches(text):
    """Positive numbers, by comma."""
    numbers = [int(word) for word in text.split(",")]
    if min(numbers) < 1:
        raise ValueError
    return numbers


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--batch", type=batches, default="1,32", help="sequences, by comma")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--tp", type=int, default=0, help="parts of each matrix (ranks, 2 at least)")
    parser.add_argument("--ranks", type=int, default=0, help="1: without torchrun")
    parser.add_argument("-n", type=int, default=50, help="timed replays")
    parser.add_argument("--json")
    options = parser.parse_args()
    options.ways = options.ways.split(",")
    if not set(options.ways) <= set(WAYS) or options.n < 1 or options.layers < 1:
        parser.error(f"--ways are among {', '.join(WAYS)}; -n and --layers at least 1")
    take_rank(options, parser.error)
    return options


def take_rank(options, refuse):
    """The environment of a job of one rank, where torchrun has made none; the parts of a matrix."""
    if options.ranks == 1 and "RANK" not in os.environ:
        os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1",
                          MASTER_ADDR="127.0.0.1", MASTER_PORT="29561")
    if "RANK" not in os.environ:
        refuse("start it by torchrun, or with --ranks 1")
    world = int(os.environ["WORLD_SIZE"])
    if options.ranks not in (0, world):
        refuse(f"--ranks {options.ranks}, but the job has {world}")
    options.tp = options.tp or max(world, 2)
    if options.tp < 1 or any(width % options.tp for width in (HIDDEN, KEYS, MLP)):
        refuse(f"{options.tp} ranks or --tp {options.tp}: no equal parts of matrices of {HIDDEN}, "
               f"{KEYS} and {MLP} columns")


class Bench:
    def __init__(self, options, torch, dist, team):
        self.options, self.torch, self.dist, self.team = options, torch, dist, team
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.tp = options.tp
        self.kept, self.made = [], 0  # what graphs use
        generator = torch.Generator("cuda").manual_seed(7 + self.rank)

        def matrix(rows, columns):
            made = torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16,
                               generator=generator)
            return made.mul_(rows ** -0.5)

        self.layers = [
            (matrix(HIDDEN, (HIDDEN + 2 * KEYS) // self.tp), matrix(HIDDEN // self.tp, HIDDEN),
             matrix(HIDDEN, 2 * MLP // self.tp), matrix(MLP // self.tp, HIDDEN))
            for _ in range(options.layers)]
        self.norms = [torch.ones(HIDDEN, device="cuda", dtype=torch.bfloat16)
                      for _ in range(2 * options.layers + 1)]

    def empty(self, batch):
        """A symmetric tensor of libsymm."""
        self.made += 1
        buffer = self.team.empty((batch, HIDDEN), self.torch.bfloat16, site=f"part{self.made}")
        self.team.rendezvous()
        self.kept.append(buffer)
        return buffer.as_torch()

    def torch_empty(self, batch):
        import torch.distributed._symmetric_memory as symmetric
        made = symmetric.empty(batch * HIDDEN, dtype=self.torch.bfloat16, device="cuda")
        symmetric.rendezvous(made, self.dist.group.WORLD.group_name)
        return made.view(batch, HIDDEN)

    def tail(self, way, batch):
        """A function: a, its matrix, x and a norm's weights to x + the sum of a @ matrix, its norm."""
        torch, team = self.torch, self.team
        functional = torch.nn.functional
        group = self.dist.group.WORLD.group_name

        def add(x, part, weight):
            x = x + part
            return x, functional.rms_norm(x, (HIDDEN,), weight, EPS)

        if way == "bare":
            return lambda which, a, matrix, x, weight: (x, a @ matrix)
        if way == "none":
            return lambda which, a, matrix, x, weight: add(x, a @ matrix, weight)
        if way == "skew":
            small = self.empty(1)[0, :8]

            def skewed(which, a, matrix, x, weight):
                part = a @ matrix
                team.all_reduce(small, torch.empty_like(small), site="skew")
                return add(x, part, weight)
            return skewed
        if way == "nccl":
            def nccl(which, a, matrix, x, weight):
                part = a @ matrix
                self.dist.all_reduce(part)
                return add(x, part, weight)
            return nccl
        if way == "torch":
            buffer = self.torch_empty(batch)

            def one_shot(which, a, matrix, x, weight):
                torch.mm(a, matrix, out=buffer)
                return add(x, torch.ops.symm_mem.one_shot_all_reduce(buffer, "sum", group), weight)
            return one_shot
        buffers = [self.empty(batch) for _ in range(2)]

        def plain(which, a, matrix, x, weight):
            part = torch.mm(a, matrix, out=buffers[which])
            total = torch.empty_like(part)
            team.all_reduce(part, total, site=("out", "down")[which])
            return add(x, total, weight)

        def fused(which, a, matrix, x, weight):
            part = torch.mm(a, matrix, out=buffers[which])
            h = torch.empty_like(part)
            residual = torch.empty_like(part)
            team.all_reduce_norm(part, weight, EPS, residual=x, residual_out=residual, norm_out=h,
                                 constant=True, site=("out", "down")[which])
            return residual, h

        return plain if way == "symm" else fused

    def step(self, way, batch):
        torch = self.torch
        functional = torch.nn.functional
        tail = self.tail(way, batch)
        generator = torch.Generator("cuda").manual_seed(3)
        x0 = torch.randn(batch, HIDDEN, device="cuda", dtype=torch.bfloat16, generator=generator)

        def run():
            x, h = x0, functional.rms_norm(x0, (HIDDEN,), self.norms[0], EPS)
            for at, (qkv, out, gate_up, down) in enumerate(self.layers):
                a = (h @ qkv)[:, : HIDDEN // self.tp].contiguous()
                x, h = tail(0, a, out, x, self.norms[2 * at + 1])
                gate, up = (h @ gate_up).chunk(2, 1)
                x, h = tail(1, functional.silu(gate) * up, down, x, self.norms[2 * at + 2])
            return h
        return run

    def capture(self, way, batch):
        """The graph and its result; None: left out, by all ranks."""
        torch = self.torch
        failure = None
        graph, result = torch.cuda.CUDAGraph(), None
        try:
            step = self.step(way, batch)
            self.kept.append(step)
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(3):
                    step()
            torch.cuda.current_stream().wait_stream(stream)
            torch.cuda.synchronize()
            self.dist.barrier()
            with torch.cuda.graph(graph):
                result = step()
        except Exception as error:  # a way that this machine lacks
            failure = error
        if self.largest([float(failure is not None)])[0]:
            if failure is not None:
                print(f"[{self.rank}] left out: {way}, batch {batch}: {failure}", file=sys.stderr)
            return None
        return graph, result

    def largest(self, values):
        every = self.torch.tensor(values, device="cuda", dtype=self.torch.float64)
        self.dist.all_reduce(every, op=self.dist.ReduceOp.MAX)
        return every.tolist()

    def replay(self, graph):
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.dist.barrier()
        self.torch.cuda.synchronize()
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3

    def run(self, batch):
        """Rows of results: way to median, p99 and the difference of its result from none's sum."""
        ways = [way for way in self.options.ways
                if self.world > 1 or way not in ("nccl", "torch")]
        graphs = {way: self.capture(way, batch) for way in ways}
        graphs = {way: made for way, made in graphs.items() if made}
        times = {way: [] for way in graphs}
        for turn in range(self.options.n + 5):
            for way in list(graphs)[:: 1 if turn % 2 else -1]:
                us = self.replay(graphs[way][0])
                if turn >= 5:
                    times[way].append(us)
        figures = self.largest([value for way in graphs for value in (
            statistics.median(times[way]), sorted(times[way])[int(0.99 * len(times[way]))])])
        rows = {way: {"median_us": figures[2 * i], "p99_us": figures[2 * i + 1]}
                for i, way in enumerate(graphs)}
        self.compare(graphs, rows)
        return rows

    def compare(self, graphs, rows):
        """The results of ways that all sum the same: the norm of the difference, relative."""
        sums = [way for way in ("nccl", "torch", "symm", "fused") if way in graphs]
        if self.world == 1:
            sums = [way for way in ("none", "symm", "fused") if way in graphs]
        for way in sums[1:]:
            want, found = (graphs[w][1].float() for w in (sums[0], way))
            difference = (found - want).norm() / want.norm()
            rows[way]["difference"] = self.largest([float(difference)])[0]


def report(rows, batch):
    none = rows.get("none", {}).get("median_us")
    for way, row in rows.items():
        over = row["median_us"] - none if none else float("nan")
        row["over_none_us"] = over
        print(f"{batch:5d}  {way:6s}  {row['median_us']:9.1f}  {row['p99_us']:9.1f}  {over:9.1f}"
              f"  {row.get('difference', 0):10.2e}", flush=True)


def main():
    options = arguments()
    try:
        import torch
        import torch.distributed as dist
        import symm
    except ImportError as error:
        print(f"decode_step.py: {error}", file=sys.stderr)
        return 2
    if not torch.cuda.is_available():
        print("decode_step.py: no GPU", file=sys.stderr)
        return 2
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.set_grad_enabled(False)
    dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
    results, wrong = [], False
    with symm.init() as ctx:
        bench = Bench(options, torch, dist, ctx.world)
        if bench.rank == 0:
            print(f"# {torch.cuda.get_device_name()}, {bench.world} ranks, a rank's part of TP "
                  f"{bench.tp}, {options.layers} layers, torch {torch.__version__}")
            print(f"# {'batch':>5}  {'way':6}  {'median us':>9}  {'p99 us':>9}  {'over none':>9}"
                  f"  {'difference':>10}")
        for batch in options.batch:
            rows = bench.run(batch)
            if bench.rank == 0:
                report(rows, batch)
            wrong |= any(not row.get("difference", 0) < 0.1 for row in rows.values())
            results += [{"batch": batch, "way": way, **row} for way, row in rows.items()]
        torch.cuda.synchronize()
        if options.json and bench.rank == 0:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump({"ranks": bench.world, "tp": bench.tp, "layers": options.layers,
                           "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
                           "results": results}, file, indent=1)
        dist.barrier()
        torch.cuda.synchronize()
        sys.stdout.flush()
        os._exit(int(wrong))  # graphs hold calls of both libraries: nothing to take apart


if __name__ == "__main__":
    sys.exit(main())
