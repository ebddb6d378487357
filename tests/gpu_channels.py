# SPDX-License-Identifier: MIT
"""All-reduces on many streams and on each channel of a team, timed on the device.

torchrun --nproc-per-node 2 tests/gpu_channels.py, with SYMM_LIBRARY naming libsymm.so. Each turn is
CALLS all_reduces of one size on one stream, or on some call by call. The turns come in a shuffled
order, behind a kernel that sleeps, so that the host's time does not count, and behind an all_reduce
that makes the ranks begin together.

    graphs         34 streams take turns, more than a team has channels, each with a graph that is
                   made, replayed and destroyed: none may be 3 % slower than the first, or 0.1 us:
                   so much depends on where a channel's scratch lies. From 128 to 256 KiB times
                   differ by stream, whichever channel it has, with graphs and without: a third
    named          the same of streams on the channels 1 to 32, named by symm_call.channel: those
                   with little scratch take other algorithms for calls that are too large for it,
                   and may take three times as long
    default        without graphs: the default stream and CUDA's per-thread default stream may not
                   be 15 % slower than the slowest of some other streams
    alternating    two streams, call by call: not 3 % slower than one of them
    three at once  for information: the third has little scratch
    at once        alternating and three at once, of each collective: at most half as much again
                   as one stream's calls

Prints a table; times are relative to the first stream's of the same kind. What is too slow is
measured again, in more turns, before it fails. CHANNELS_TURNS (5) is the number of turns,
CHANNELS_BYTES the largest size (64 MiB). Exit status 77 without PyTorch or with one GPU.
"""

import ctypes
import os
import random
import signal
import statistics
import sys
import time

try:
    import torch
    import torch.distributed as dist
except ImportError:
    sys.exit(77)

from gpu_crossed import Symm

CALLS = 50
STREAMS, CHANNELS = 34, 32
SLEEP = 3_000_000  # clock cycles of the GPU: longer than the host needs for CALLS calls
MIDDLE = 96 << 10, 256 << 10  # bytes of calls that differ by stream
RELEASE = 0.005  # seconds until the driver has freed what a destroyed graph held
PER_THREAD = 2  # CU_STREAM_PER_THREAD


def new_streams(count):
    """Streams of their own; torch.cuda.Stream has 32, which it gives again."""
    driver, made = ctypes.CDLL("libcuda.so.1"), []
    torch.cuda.current_stream().synchronize()  # makes the context
    for _ in range(count):
        handle = ctypes.c_void_p()
        assert driver.cuStreamCreate(ctypes.byref(handle), 1) == 0  # CU_STREAM_NON_BLOCKING
        made.append(torch.cuda.ExternalStream(handle.value))
    return made


class Turns:
    """Streams by name, and what a turn of each takes."""

    def __init__(self, symm, source, target):
        self.symm, self.source, self.target = symm, source, target
        self.kind = "all_reduce"
        pool, others = new_streams(STREAMS), new_streams(CHANNELS)
        default = torch.cuda.default_stream()
        self.graphs = {f"graph {k + 1}": [(s, 0)] for k, s in enumerate(pool)}
        self.named = {f"channel {k + 1}": [(s, k + 1)] for k, s in enumerate(others)}
        self.plain = {f"stream {k + 1}": [(s, 0)] for k, s in enumerate(pool[:6])}
        self.default = {
            "default": [(default, 0)],
            "per thread": [(torch.cuda.ExternalStream(PER_THREAD), 0)],
        }
        self.pairs = {
            "alternating 1 2": [(pool[0], 0), (pool[1], 0)],
            "alternating 1 default": [(pool[0], 0), (default, 0)],
        }
        self.three = {"three at once": [(s, 0) for s in pool[:3]]}
        self.streams = {**self.graphs, **self.named, **self.plain, **self.default,
                        **self.pairs, **self.three}

    def call(self, stream, channel, count):
        for wait in range(1000):
            try:
                return self.symm.collective(self.symm.world, self.kind, self.source,
                                            self.target, count, stream, b"channels", channel)
            except RuntimeError as error:
                if "in use" not in str(error) or wait == 999:
                    raise
                time.sleep(RELEASE)

    def calls(self, streams, count):
        for k in range(CALLS):
            self.call(*streams[k % len(streams)], count)

    def time_graph(self, stream, channel, count):
        graph = torch.cuda.CUDAGraph()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(stream):
            graph.capture_begin(capture_error_mode="thread_local")
            self.calls([(stream, channel)], count)
            graph.capture_end()
            dist.barrier()
            torch.cuda._sleep(SLEEP)
            graph.replay()
            begin.record()
            graph.replay()
            end.record()
        torch.cuda.synchronize()
        graph.reset()
        time.sleep(RELEASE)
        return begin.elapsed_time(end)

    def time_calls(self, streams, count):
        main = streams[0][0]
        begin, ready = torch.cuda.Event(enable_timing=True), torch.cuda.Event()
        ends = [torch.cuda.Event(enable_timing=True) for _ in streams]
        dist.barrier()
        for stream, channel in streams:
            with torch.cuda.stream(stream):
                torch.cuda._sleep(SLEEP)
            self.call(stream, channel, count)
            ready.record(stream)
            main.wait_event(ready)
        begin.record(main)
        for stream, _ in streams[1:]:
            stream.wait_event(begin)
        self.calls(streams, count)
        for (stream, _), end in zip(streams, ends):
            end.record(stream)
        torch.cuda.synchronize()
        return max(begin.elapsed_time(end) for end in ends)

    def time(self, name, count):
        """Microseconds a call of one turn, on this rank."""
        streams = self.streams[name]
        captured = name in self.graphs or name in self.named
        took = (self.time_graph(*streams[0], count) if captured
                else self.time_calls(streams, count))
        return took * 1e3 / CALLS

    def medians(self, names, count, turns, seed):
        """The median of a name's turns, of each turn the slowest rank."""
        took = {name: [] for name in names}
        shared = random.Random(seed)
        for name in names:
            self.time(name, count)
        for _ in range(turns):
            order = list(names)
            shared.shuffle(order)
            for name in order:
                took[name].append(self.time(name, count))
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, took)
        return {
            name: statistics.median(max(each) for each in zip(*(t[name] for t in everyone)))
            for name in names
        }

    def reference(self, name, medians, size):
        """What the name's median is compared with, and what it may be at most."""
        times = 1.4 if MIDDLE[0] <= size <= MIDDLE[1] else 1.03
        if name in self.graphs:
            base = medians["graph 1"]
        elif name in self.named:
            base, times = medians["graph 1"], 3.0
        elif name in self.pairs:
            base = max(medians["stream 1"], medians["stream 2"])
        else:
            base, times = max(medians[other] for other in self.plain), max(times, 1.15)
        return base, max(times * base, base + 0.1)

    def slow(self, medians, size):
        """Names that are slower than they may be, and how slow they are."""
        found = {}
        for name, took in medians.items():
            base, most = self.reference(name, medians, size)
            if name not in self.three and took > most:
                found[name] = took / base
        return found

    def size(self, count, turns, seed):
        """Medians of all streams, and those which are too slow in more turns, too."""
        medians = {}
        for names in (self.graphs, self.named, {**self.plain, **self.default}, self.pairs,
                      self.three):
            medians.update(self.medians(list(names), count, turns, seed))
        late = self.slow(medians, 4 * count)
        if late:
            names = {"graph 1": 0, **self.plain, **late}
            again = self.medians(list(names), count, 4 * turns, seed)
            late = self.slow(again, 4 * count)
        return medians, late


def sizes(most):
    size = 16
    while size <= most:
        yield size
        size *= 4 if size < 1 << 16 else 2


def row(run, size, medians, late):
    graph, plain = medians["graph 1"], medians["stream 1"]

    def span(names, first):
        ratios = [medians[name] / first for name in names]
        return f"{min(ratios):.3f} to {max(ratios):.3f}"

    few = [f"channel {k}" for k in range(3, 9)]
    least = [f"channel {k}" for k in range(9, CHANNELS + 1)]
    return (f"{size:8d} {graph:8.2f}  {span(run.graphs, graph)}  {span(few, graph)}  "
            f"{span(least, graph)} {plain:8.2f}  {span(run.plain, plain)}  "
            f"{span(run.default, plain)}  {span(run.pairs, plain)}  "
            f"{medians['three at once'] / plain:.3f}"
            + "".join(f"  SLOW: {name} {ratio:.3f}" for name, ratio in late.items()))


def at_once(run, turns, most):
    """Streams at the same time, of each collective; how many took too long."""
    failed = 0
    for run.kind in ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast"):
        whole = run.kind in ("all_reduce", "broadcast")
        for size in (1 << 14, 1 << 17, 1 << 20, 1 << 22, 1 << 24):
            if size > most:
                break
            count = size // 4 // (1 if whole else dist.get_world_size())
            names = ["stream 1", "stream 2", *run.pairs, *run.three]
            took = run.medians(names, count, turns, size)
            base = max(took["stream 1"], took["stream 2"])
            ratios = {name: took[name] / base for name in names[2:]}
            failed += max(ratios.values()) > 1.5
            if dist.get_rank() == 0:
                print(f"{run.kind:14s} {size:8d} {base:8.2f} us, "
                      + ", ".join(f"{name} {ratio:.3f}" for name, ratio in ratios.items()),
                      flush=True)
    run.kind = "all_reduce"
    return failed


def main():
    if torch.cuda.device_count() < 2 or int(os.environ["WORLD_SIZE"]) < 2:
        sys.exit(77)
    signal.alarm(230)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("gloo")
    symm = Symm(os.environ["SYMM_LIBRARY"])
    most = int(os.environ.get("CHANNELS_BYTES", str(64 << 20)))
    turns = int(os.environ.get("CHANNELS_TURNS", "5"))
    source, target = symm.empty(symm.world, most // 4), symm.empty(symm.world, most // 4)
    symm.check(symm.lib.symm_rendezvous(symm.world))
    source.fill_(1.0)
    torch.cuda.synchronize()
    run = Turns(symm, source, target)
    failed = 0
    if dist.get_rank() == 0:
        print("   bytes   graph       34 streams   channels 3 to 8  channels 9 to 32   "
              "plain        6 streams           default       alternating  three")
    for k, size in enumerate(sizes(most)):
        medians, late = run.size(size // 4, turns, k)
        failed += len(late)
        if dist.get_rank() == 0:
            print(row(run, size, medians, late), flush=True)
    failed += at_once(run, turns, most)
    torch.cuda.synchronize()
    run.call(*run.streams["stream 1"][0], most // 4)
    torch.cuda.synchronize()
    right = bool((target == float(dist.get_world_size())).all())
    dist.barrier()
    symm.lib.symm_finalize(symm.ctx)
    sys.exit(1 if failed or not right else 0)


if __name__ == "__main__":
    main()
