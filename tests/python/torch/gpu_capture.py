# SPDX-License-Identifier: MIT
"""CUDA graphs over plain tensors of torch's pools, in symm.torch.capture, under torchrun.

torchrun --nproc-per-node 2 tests/python/torch/gpu_capture.py [REPLAYS]

64 all-reduces among other kernels and collectives, replayed REPLAYS times (10000) and checked on
the device each time; their time beside that of symmetric tensors; each way in which a replay is an
error; what becomes of memory that torch gives back. Ranks take the GPUs in turn; with fewer GPUs
than ranks SYMM_OVERSUBSCRIBE=1 is needed, there are as many replays as a minute allows, and the
times are not judged. One line for each check. Ends within four minutes. Exit status 77 without
PyTorch or a GPU.
"""

import faulthandler
import os
import statistics
import sys
import time

try:
    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symm_mem
except ImportError:
    sys.exit(77)

import symm
import symm.torch

REPLAYS = int(sys.argv[1]) if len(sys.argv) > 1 else 10000
CALLS = 64
COUNTS = (8192, 65536, 524288, 1 << 20)  # bfloat16: 16 KiB to 2 MiB
BIG = 16 << 20  # elements of a tensor that has a segment of torch's pool to itself
SECONDS = 60  # for replays of ranks that share a GPU
# Each kernel by the table of pointers loads its entry before it arrives: 0.4 us a call on H100s.
PAIRS, RATIO, POINTERS_RATIO = 7, 1.03, 1.05


class Job:
    """This rank: its device, a context of libsymm, and gloo for the checks."""

    def __init__(self):
        if not torch.cuda.is_available():
            sys.exit(77)
        local = int(os.environ["LOCAL_RANK"])
        self.device = torch.device("cuda", local % torch.cuda.device_count())
        torch.cuda.set_device(self.device)
        dist.init_process_group("cpu:gloo,cuda:symm")
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.shares = torch.cuda.device_count() < self.size
        torch.empty(1, device=self.device)  # its context is current: libsymm takes that device
        self.ctx = symm.init(backend="cuda", timeout=60)
        self.teams = []  # they end after all graphs

    def team(self):
        """A new one: what fails does so for good."""
        self.teams.append(self.ctx.world.split(0))
        return self.teams[-1]

    def full(self, count, value):
        return torch.full((count,), float(value), dtype=torch.bfloat16, device=self.device)

    def largest(self, number):
        """The largest of the ranks' numbers; all ranks meet."""
        box = torch.tensor([float(number)], dtype=torch.float64)
        dist.all_reduce(box, dist.ReduceOp.MAX)
        return box.item()

    def say(self, text):
        if self.largest(0) == 0 and self.rank == 0:
            print(text, flush=True)


def replay(job, graph, times=1):
    """Microseconds of a replay, of the slowest rank."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    job.largest(0)
    begin.record()
    for _ in range(times):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return job.largest(1e3 * begin.elapsed_time(end) / times)


def fails(job, team, graph, words):
    """The replay is an error on this rank, as on all of them."""
    torch.cuda.synchronize()
    job.largest(0)
    graph.replay()
    torch.cuda.synchronize()
    try:
        for _ in range(20):  # the next call raises, once this rank has seen the failure
            team.barrier(stream=torch.cuda.current_stream())
            torch.cuda.synchronize()
            time.sleep(0.02)
    except symm.Aborted as error:
        assert words in str(error), error
        return
    raise AssertionError(f"no error on rank {job.rank}: {words}")


# ---- Right results -----------------------------------------------------------------------


class Mixed:
    """A graph of 64 all-reduces and some other collectives on tensors that are made while it is
    captured. `step` counts its replays, `wrong` the elements that were not as they should be."""

    def __init__(self, job, team):
        self.job, self.team = job, team
        self.bases = [job.full(count, i % 5) for i, count in enumerate(COUNTS)]
        self.step, self.wrong = (torch.zeros((), dtype=torch.int64, device=job.device)
                                 for _ in range(2))
        self.symmetric = team.empty(COUNTS[1], "bfloat16").as_torch()
        team.rendezvous()
        self.in_place = 0  # of the table of pointers

    def expect(self, y, want):
        self.wrong += (y != want).sum()

    def all_reduce(self, i, phase):
        """Of a new tensor, at a place that differs by rank; every third one in place."""
        job, base = self.job, self.bases[i % len(COUNTS)]
        room = torch.empty(base.numel() + 64, dtype=base.dtype, device=job.device)
        x = room[8 * job.rank:][:base.numel()]
        torch.add(base, phase + job.rank, out=x)
        out = x if i % 3 == 0 else torch.empty_like(x)
        self.team.all_reduce(x, out, algorithm=("two_shot_inplace", None)[i % 2])
        self.in_place += "captured between" in self.team.explain()
        self.expect(out, (base + phase) * job.size + sum(range(job.size)))

    def others(self, i, phase):
        job, base = self.job, self.bases[i % 2]
        x = base + phase + job.rank
        every = torch.empty(job.size * x.numel(), dtype=x.dtype, device=job.device)
        self.team.all_gather(every, x)
        for r, block in enumerate(every.chunk(job.size)):
            self.expect(block, base + phase + r)
        self.team.reduce_scatter(x, every)
        self.expect(x, (base + phase + job.rank) * job.size)
        self.symmetric.copy_((phase + job.rank).expand_as(self.symmetric))
        self.team.all_reduce(self.symmetric)
        self.expect(self.symmetric, phase * job.size + sum(range(job.size)))

    def capture(self):
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.step += 1
            phase = (self.step % 7).to(torch.bfloat16)
            for i in range(CALLS):
                self.all_reduce(i, phase)
                if i % 8 == 7:
                    self.others(i, phase)


def test_right(job):
    team = job.team()
    mixed = Mixed(job, team)
    with symm.torch.capture(team):
        mixed.capture()
    assert mixed.in_place >= CALLS // 2, mixed.in_place
    seconds = 1e-6 * replay(job, mixed.graph, 3)
    times = REPLAYS if not job.shares else max(20, min(REPLAYS, int(SECONDS / seconds)))
    spent = replay(job, mixed.graph, times)
    steps, wrong = mixed.step.item(), mixed.wrong.item()
    assert steps == times + 3 and wrong == 0, (steps, wrong)
    team.barrier()  # raises if a call has failed
    torch.cuda.synchronize()
    job.say(f"{CALLS} all-reduces on plain tensors ({mixed.in_place} by the table of pointers) and "
            f"others, {times} replays: right, {spent:.0f} us each")
    mixed.graph.reset()


# ---- Time --------------------------------------------------------------------------------


def chain(job, team, tensors, algorithm):
    """A graph of 64 all-reduces in place, and a kernel before each."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(CALLS):
            x = tensors[i % len(tensors)]
            x.mul_(1 / job.size)
            team.all_reduce(x, algorithm=algorithm)
    return graph


def test_time(job):
    team = job.team()
    plain = [job.full(count, 1) for count in COUNTS]
    symmetric = [team.empty(count, "bfloat16").as_torch() for count in COUNTS]
    team.rendezvous()
    for x in symmetric:
        x.fill_(1)
    for algorithm in (None, "two_shot_inplace"):
        with symm.torch.capture(team):
            graphs = [chain(job, team, tensors, algorithm) for tensors in (symmetric, plain)]
            how = "pointers" if "captured between" in team.explain() else "as it was chosen"
        times = 3 if job.shares else 100
        pairs = [[replay(job, graph, times) for graph in graphs] for _ in range(PAIRS)]
        for x in (*plain, *symmetric):
            assert (x == 1).all(), x
        ratio = statistics.median(one / other for other, one in pairs)
        other, one = (statistics.median(each) for each in zip(*pairs))
        job.say(f"{CALLS} all-reduces of {algorithm or 'any algorithm'} ({how}): {one:.1f} us on "
                f"plain tensors, {other:.1f} on symmetric ones, ratio {ratio:.3f}"
                + (" (ranks share a GPU: not judged)" if job.shares else ""))
        limit = POINTERS_RATIO if how == "pointers" else RATIO
        assert job.shares or ratio <= limit, (algorithm, pairs)


# ---- Errors ------------------------------------------------------------------------------


def simple(job, team, x, out):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        team.all_reduce(x, out, algorithm="two_shot_inplace")
    return graph


def check_simple(job, graph, x, out, value):
    x.fill_(value + job.rank)
    out.fill_(-1)
    replay(job, graph)
    assert (out == job.size * value + sum(range(job.size))).all(), out


def test_before_the_end(job):
    team = job.team()
    x, out = job.full(BIG, 1), job.full(BIG, 0)
    team.capture_begin()
    graph = simple(job, team, x, out)
    fails(job, team, graph, "symm_team_capture_end has not come yet")
    assert (out == 0).all()
    job.say("a replay before the end of the capture: an error on all ranks")


def test_body_raises(job):
    team = job.team()
    x, out = job.full(BIG, 1), job.full(BIG, 0)
    begin = time.monotonic()
    try:
        with symm.torch.capture(team):
            graph = simple(job, team, x, out)
            if job.rank == job.size - 1:
                raise ValueError("mine")
    except (ValueError, symm.Aborted) as error:
        assert "mine" in str(error), error
        assert isinstance(error, ValueError) == (job.rank == job.size - 1), error
    else:
        raise AssertionError("no error")
    assert time.monotonic() - begin < 30
    with symm.torch.capture(team):
        again = simple(job, team, x, out)
    check_simple(job, again, x, out, 3)
    fails(job, team, graph, "symm_team_capture_end has failed")
    job.say("a body that raises on one rank: an error on all ranks, the next capture is right")


def give_back(job, graph_of, what):
    """The last rank's tensors go back to the driver: new ones are right, the old graph is an error
    on all ranks."""
    team = job.team()
    x, out = job.full(BIG, 1), job.full(BIG, 0)
    with symm.torch.capture(team):
        old = graph_of(job, team, x, out)
        mapped = "captured between" in team.explain()
    if not mapped:  # equal on all ranks: their allocators have the same settings
        job.say(f"{what}: peers cannot map it, its calls are staged")
        return
    check_simple(job, old, x, out, 2)
    if job.rank == job.size - 1:
        before = x.data_ptr(), torch.cuda.memory_reserved()
        del x, out
        torch.cuda.empty_cache()
        assert torch.cuda.memory_reserved() < before[1]
        x, out = job.full(BIG, 1), job.full(BIG, 0)
        print(f"rank {job.rank}: memory comes back at "
              + ("the same place" if before[0] in (x.data_ptr(), out.data_ptr()) else "another"),
              flush=True)
    with symm.torch.capture(team):
        new = graph_of(job, team, x, out)
    for value in range(1, 6):
        check_simple(job, new, x, out, value)
    out.fill_(-1)
    fails(job, team, old, f"rank {job.size - 1} has released")
    assert (out == -1).all()
    job.say(f"{what}, given back by empty_cache() on one rank: memory used again is right, the old "
            "graph is an error on all ranks")


def test_given_back(job):
    """Without another capture, then with one; segments of cudaMalloc, then expandable ones."""
    team = job.team()
    x, out = job.full(BIG, 1), job.full(BIG, 0)
    with symm.torch.capture(team):
        graph = simple(job, team, x, out)
    check_simple(job, graph, x, out, 2)
    if job.rank == 0:
        del x
        torch.cuda.empty_cache()
    fails(job, team, graph, "rank 0 has released [")
    job.say("a segment given back by empty_cache() on one rank: an error on all ranks")
    give_back(job, simple, "a segment of torch's pool")
    torch.cuda.empty_cache()
    torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
    give_back(job, simple, "an expandable segment")
    torch._C._accelerator_setAllocatorSettings("expandable_segments:False")


def test_graph_pool(job):
    """A tensor of one graph's pool is another graph's input: it goes with the first graph."""
    team = job.team()
    out = job.full(BIG, 0)
    first = torch.cuda.CUDAGraph()
    with symm.torch.capture(team):
        with torch.cuda.graph(first):
            x = job.full(BIG, job.rank + 1)
        second = simple(job, team, x, out)
    first.replay()
    replay(job, second)
    assert (out == sum(range(1, job.size + 1))).all()
    if job.rank == 0:
        del x
        first.reset()
        torch.cuda.empty_cache()
    fails(job, team, second, "rank 0 has released [")
    job.say("a graph's pool that goes with its graph: an error on all ranks")


def test_symmetric_tensor(job):
    """A tensor of symm_mem.empty, of which the team does not know, goes when it is freed."""
    symm.torch.enable_symmetric_memory()
    team = job.team()
    x = symm_mem.empty(BIG, dtype=torch.bfloat16, device=job.device)
    out = job.full(BIG, 0)
    with symm.torch.capture(team):
        graph = simple(job, team, x, out)
    check_simple(job, graph, x, out, 2)
    if job.rank == 0:
        del x
    fails(job, team, graph, "rank 0 has released [")
    job.say("a tensor of symmetric memory that is freed: an error on all ranks")


# ---- Process groups ----------------------------------------------------------------------


def test_group(job):
    """symm.torch.capture() of the default group: its collectives in a graph."""
    x = job.full(BIG, 1)
    dist.all_reduce(x.clone())
    graph = torch.cuda.CUDAGraph()
    with symm.torch.capture():
        with torch.cuda.graph(graph):
            y = x + job.rank
            dist.all_reduce(y)
            every = torch.empty(job.size * BIG, dtype=x.dtype, device=job.device)
            dist.all_gather_into_tensor(every, y)
    for value in range(1, 6):
        x.fill_(value)
        replay(job, graph)
        want = job.size * value + sum(range(job.size))
        assert (y == want).all() and (every == want).all(), (y, every)
    job.say("collectives of the c10d backend in a graph: right")


def main():
    faulthandler.dump_traceback_later(235, exit=True)
    job = Job()
    failed = 0
    for test in (test_right, test_time, test_before_the_end, test_body_raises, test_given_back,
                 test_graph_pool, test_symmetric_tensor, test_group):
        begin = time.monotonic()
        try:
            test(job)
        except Exception as error:  # of all ranks alike, or the next meeting says so
            print(f"rank {job.rank}: {test.__name__}: FAILED after {time.monotonic() - begin:.1f} "
                  f"s: {type(error).__name__}: {str(error)[:1500]}", flush=True)
            failed += 1
        torch.cuda.synchronize()
        if job.largest(failed) != failed:
            raise SystemExit("the ranks do not agree")
        torch.cuda.empty_cache()
    dist.destroy_process_group()
    job.ctx.finalize()
    sys.exit(failed > 0)


main()
