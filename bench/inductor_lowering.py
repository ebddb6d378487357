#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""inductor_lowering.py - Inductor's lowering of all_reduce to symmetric memory, SYMM and CUDA.

    python3 bench/inductor_lowering.py [--sizes 4096,16384,...] [--turns 9] [--json OUT.json]

torch.compile makes one_shot_all_reduce over symmetric memory of the functional all_reduce of
small bfloat16 tensors (torch._inductor.config._collective.auto_select, a group that has
enable_symm_mem_for_group). Here that is done for 1 + all_reduce(x * w) * 0.5 on libsymm's backend
of symmetric memory (SYMM) and on torch's own (CUDA). torch has one backend a process: the program
starts two jobs of --ranks (2) processes each, which take turns, for each size.

    lowered    the compiled function: a kernel, the all-reduce, a kernel
    rest       the compiled function without its all_reduce
    bare       torch.ops.symm_mem.one_shot_all_reduce_out alone

Each is a CUDA graph of --calls (50) calls. Figures: microseconds a call, the slowest rank, median
of --turns turns; a turn is the best of 5 times 4 replays behind a barrier. "speedup" is CUDA's
time by SYMM's, median of the turns' own. Results are compared with the sum of what the ranks
have, equal bit for bit with 2 ranks. Exit status 1: a wrong result, a call that was not lowered,
or "lowered" at 16384 bytes not --target (1.5) times as fast as torch's; 77 without the GPUs.
Multicast stays off. symm must be importable (PYTHONPATH=build/python). --device cpu rehearses the
turns on CPU tensors, which Inductor does not lower so: by aot_eager, with SYMM in both places.
"""

import argparse
import contextlib
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback

os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"
os.environ["NCCL_NVLS_ENABLE"] = "0"
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # small kernels, many processes

WAYS = ("lowered", "rest", "bare")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--sizes", default="4096,16384,65536,262144", help="bytes, by comma")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--calls", type=int, default=50, help="calls in a graph")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--target", type=float, default=1.5, help="0: none")
    parser.add_argument("--limit", type=float, default=270, help="seconds for all")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--capture", action="store_true", help="SYMM: symm.torch.capture()")
    parser.add_argument("--json")
    parser.add_argument("--job", help=argparse.SUPPRESS)  # backend,rank,file,answers
    options = parser.parse_args()
    options.sizes = [int(word) for word in options.sizes.split(",")]
    return options


# ---- In a rank ----------------------------------------------------------------------------


class Rank:
    def __init__(self, options, backend, rank, store):
        import torch
        import torch._inductor.config as config
        import torch.distributed as dist
        import torch.distributed._symmetric_memory as symm_mem

        self.options, self.backend, self.rank = options, backend, rank
        self.torch, self.dist, self.symm_mem = torch, dist, symm_mem
        on_cuda = options.device == "cuda"
        self.device = torch.device("cuda", rank) if on_cuda else torch.device("cpu")
        if on_cuda:
            torch.cuda.set_device(self.device)
        if backend == "SYMM" or not on_cuda:
            import symm.torch

            symm.torch.enable_symmetric_memory()
        else:  # torch's default; set_backend does not know a default by its name
            assert symm_mem.get_backend(self.device) in (None, backend)
        dist.init_process_group("nccl" if on_cuda else "gloo", init_method=f"file://{store}",
                                rank=rank, world_size=options.ranks,
                                **({"device_id": self.device} if on_cuda else {}))
        self.group = dist.group.WORLD
        symm_mem.enable_symm_mem_for_group(self.group.group_name)
        config._collective.auto_select = True
        config._collective.one_shot_all_reduce_threshold_bytes = 1 << 20
        torch.set_grad_enabled(False)
        self.graphs = {}

    def moved(self):
        if self.backend != "SYMM":
            return 0
        import symm.torch

        return symm.torch.counters()["all_reduce"][0]

    def part(self, rank, size):
        """Input and factor of a rank."""
        generator = self.torch.Generator().manual_seed(1000 * size + rank)
        x, w = (self.torch.randn(size // 2, generator=generator).to(self.torch.bfloat16)
                for _ in range(2))
        return x.to(self.device), w.to(self.device)

    def functions(self, size):
        """Each way's function without arguments, and its right result."""
        torch = self.torch
        from torch._inductor.utils import run_and_get_code
        from torch.distributed import _functional_collectives as funcol

        dist = self.dist

        def lowered(x, w):
            return funcol.all_reduce(x * w, "sum", dist.group.WORLD) * 0.5 + 1

        def rest(x, w):
            return (x * w) * 0.5 + 1

        x, w = self.part(self.rank, size)
        parts = [a * b for a, b in (self.part(r, size) for r in range(self.options.ranks))]
        total = parts[0].float()
        for each in parts[1:]:
            total = total + each.float()
        total = total.to(torch.bfloat16)
        made, codes = {}, []
        torch._dynamo.reset()
        for name, function in (("lowered", lowered), ("rest", rest)):
            if self.options.device == "cpu":
                compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
                made[name] = lambda compiled=compiled: compiled(x, w)
                continue
            compiled = torch.compile(function, fullgraph=True, dynamic=False)
            _, code = run_and_get_code(compiled, x, w)
            codes.append(code)
            made[name] = lambda compiled=compiled: compiled(x, w)
        if codes and not any("one_shot_all_reduce" in code for code in codes[0]):
            raise RuntimeError(f"all_reduce of {size} bytes was not lowered to one_shot_all_reduce")
        buffer = self.symm_mem.empty(size // 2, dtype=torch.bfloat16, device=self.device)
        self.symm_mem.rendezvous(buffer, self.group.group_name)
        buffer.copy_(parts[self.rank])
        out = torch.empty_like(total)

        def bare():
            torch.ops.symm_mem.one_shot_all_reduce_out(buffer, "sum", self.group.group_name, out)
            return out

        made["bare"] = bare
        # The compiled code keeps float32 between the factor and the addition.
        return {"lowered": (made["lowered"], (total.float() * 0.5 + 1).to(torch.bfloat16)),
                "rest": (made["rest"], None), "bare": (made["bare"], total)}

    def bracket(self):
        if self.backend != "SYMM" or not self.options.capture:
            return contextlib.nullcontext()
        import symm.torch

        return symm.torch.capture(self.group)

    def prepare(self, size):
        """Compiles and captures; the largest difference of the results from right ones."""
        torch, worst, before = self.torch, 0.0, self.moved()
        for way, (function, want) in self.functions(size).items():
            if self.options.device == "cuda":
                stream = torch.cuda.Stream()
                stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(stream):
                    for _ in range(3):
                        function()
                torch.cuda.current_stream().wait_stream(stream)
                torch.cuda.synchronize()
                self.dist.barrier()
                graph = torch.cuda.CUDAGraph()
                with self.bracket(), torch.cuda.graph(graph):
                    for _ in range(self.options.calls):
                        result = function()
                graph.replay()
                torch.cuda.synchronize()
                # Compiled code's buffers have ended with the function; the graph keeps the pool.
                self.graphs[size, way] = (graph.replay, function, result)
            else:
                def replay(function=function):
                    for _ in range(self.options.calls):
                        function()
                result = function()
                self.graphs[size, way] = (replay, function, result)
            if want is not None:
                worst = max(worst, float((result.float() - want.float()).abs().max()))
        return {"difference": worst, "moved": self.moved() - before}

    def measure(self, size, way):
        """Microseconds a call."""
        torch, times = self.torch, []
        replay = self.graphs[size, way][0]
        for _ in range(5):
            self.dist.barrier()
            if self.options.device == "cuda":
                torch.cuda.synchronize()
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                for _ in range(4):
                    replay()
                end.record()
                end.synchronize()
                seconds = begin.elapsed_time(end) * 1e-3
            else:
                began = time.perf_counter()
                for _ in range(4):
                    replay()
                seconds = time.perf_counter() - began
            times.append(seconds / 4 / self.options.calls * 1e6)
        return {"us": min(times)}


def rank_main(options):
    backend, rank, store, answers = options.job.split(",")
    pipe = os.fdopen(int(answers), "w", encoding="utf-8")
    made = None
    for line in sys.stdin:
        job = json.loads(line)
        try:
            if made is None:
                made = Rank(options, backend, int(rank), store)
            if job["way"]:
                answer = made.measure(job["size"], job["way"])
            else:
                answer = made.prepare(job["size"])
        except Exception as error:
            traceback.print_exc()
            lines = [line for line in str(error).splitlines() if line.strip()]
            answer = {"failed": f"{type(error).__name__}: {(lines or [''])[0][:200]}"}
        pipe.write(json.dumps(answer) + "\n")
        pipe.flush()
    os._exit(0)


# ---- Two jobs that take turns -------------------------------------------------------------


class Job:
    def __init__(self, options, backend, folder):
        self.backend, self.processes, self.pipes = backend, [], []
        for rank in range(options.ranks):
            reading, writing = os.pipe()
            with open(os.path.join(folder, f"{backend}.{rank}"), "w") as log:
                self.processes.append(subprocess.Popen(
                    [sys.executable, *sys.argv, "--job",
                     f"{backend},{rank},{folder}/{backend}.store,{writing}"],
                    stdin=subprocess.PIPE, stdout=log, stderr=log, pass_fds=[writing],
                    start_new_session=True, text=True))
            os.close(writing)
            self.pipes.append(os.fdopen(reading, encoding="utf-8"))

    def begin(self, size, way=""):
        for process in self.processes:
            try:
                process.stdin.write(json.dumps({"size": size, "way": way}) + "\n")
                process.stdin.flush()
            except OSError:
                pass

    def finish(self, end):
        """The ranks' answers."""
        answers = []
        for rank, pipe in enumerate(self.pipes):
            ready = select.select([pipe], [], [], max(end - time.monotonic(), 0))[0]
            line = pipe.readline() if ready else ""
            answer = json.loads(line) if line else {
                "failed": "its process has ended" if ready else "no time was left"}
            if "failed" in answer:
                raise RuntimeError(f"{self.backend}, rank {rank}: {answer['failed']}")
            answers.append(answer)
        return answers

    def kill(self):
        for process in self.processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


def prepare(options, jobs, size, end):
    """Compiles and compares; whether a result was wrong."""
    wrong = False
    for job in jobs:  # Both at once on one GPU: torch's own hung in its rendezvous.
        job.begin(size)
        answers = job.finish(end)
        difference = max(answer["difference"] for answer in answers)
        needed = 2 * options.calls if options.device == "cuda" else 1  # lowered and bare
        few = job.backend == "SYMM" and min(answer["moved"] for answer in answers) < needed
        if difference > (0 if options.ranks == 2 else 0.05) or few:
            print(f"{job.backend} {size} B: WRONG by {difference:g}"
                  f"{', libsymm has moved nothing' if few else ''}", flush=True)
            wrong = True
    return wrong


def take_turns(options, jobs, size, end):
    """A line and a row of figures for each way."""
    turns = {(job.backend, way): [] for job in jobs for way in WAYS}
    rows = []
    for turn in range(options.turns + 1):
        for way in WAYS:
            for job in jobs[:: 1 if turn % 2 else -1]:
                job.begin(size, way)
                us = max(answer["us"] for answer in job.finish(end))
                if turn:  # the first one warms up
                    turns[job.backend, way].append(us)
    for way in WAYS:
        ours, theirs = turns["SYMM", way], turns["CUDA", way]
        rows.append({"bytes": size, "way": way, "SYMM_us": statistics.median(ours),
                     "CUDA_us": statistics.median(theirs), "turns": [ours, theirs],
                     "speedup": statistics.median(b / a for a, b in zip(ours, theirs))})
        print("{bytes:9d} {way:8} {SYMM_us:8.2f} {CUDA_us:8.2f} {speedup:8.2f}".format(**rows[-1]),
              flush=True)
    return rows


def run(options, folder):
    """Whether a result was wrong, or too slow. Each size has jobs of its own: Inductor's persistent
    allocation has one size for the life of a process."""
    end = time.monotonic() + options.limit
    wrong, results = False, []
    print(f"# {'bytes':>7} {'way':8} {'SYMM us':>8} {'CUDA us':>8} {'speedup':>8}")
    for size in options.sizes:
        of_size = os.path.join(folder, str(size))
        os.mkdir(of_size)
        jobs = [Job(options, backend, of_size) for backend in ("SYMM", "CUDA")]
        try:
            wrong |= prepare(options, jobs, size, end)
            results += take_turns(options, jobs, size, end)
        finally:
            for job in jobs:
                job.kill()
    for row in results:
        if (row["bytes"], row["way"]) == (16384, "lowered") and row["speedup"] < options.target:
            print(f"lowered at 16384 B: {row['speedup']:.2f} times as fast; the target is "
                  f"{options.target}")
            wrong = True
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"ranks": options.ranks, "calls": options.calls, "results": results}, file,
                      indent=1)
    return wrong


def main():
    options = arguments()
    if options.job:
        return rank_main(options)
    if options.device == "cuda":
        gpus = len([name for name in os.listdir("/dev") if name[:6] == "nvidia"
                    and name[6:].isdigit()])
        if gpus < options.ranks:
            print(f"{options.ranks} GPUs are needed, there are {gpus}")
            return 77
    folder = tempfile.mkdtemp(prefix="inductor_lowering.")
    subprocess.run([sys.executable, "-c", "import symm.torch; symm.torch.counters()"],
                   timeout=options.limit)  # compiles its C++ part, once
    try:
        wrong = run(options, folder)
    except RuntimeError as error:
        print(f"{error} (what the ranks printed: {folder})")
        wrong = True
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
