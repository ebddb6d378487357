# SPDX-License-Identifier: MIT
"""PyTorch's own suite of symmetric memory on a backend of symmetric memory.

python symm_mem_suite.py PATH/TO/test_symmetric_memory.py [--backend SYMM|CUDA] [TEST...]

PATH is the file test/distributed/test_symmetric_memory.py of a PyTorch of about 2.10; it is not
changed. Without --backend the suite runs on torch's own backend CUDA and then on libsymm's, so that
what fails on both can be told apart. TEST: names of tests, or beginnings of names. One line a test
with what libsymm has moved on each rank, then sums. Exit status 1 if a test fails on SYMM, passes
on CUDA (or CUDA was not run), and is not among DIFFERENT, or if libsymm has moved nothing where it
should have (MOVES); 77 without GPUs. Multicast stays off. Tests run in processes that are kept,
those whose end is a process's end in new ones.

What this driver decides (adapt() and the tables): tests for 4 GPUs run on 2 where they can; the
operators multimem_*, for which libsymm has collectives, are tested on SYMM without multicast.
--device cpu rehearses on CPU tensors with gloo and without GPU: operators that torch has for CUDA
alone fail there.
"""

import argparse
import collections
import faulthandler
import importlib.abc
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback

os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"
os.environ["NCCL_NVLS_ENABLE"] = "0"
os.environ.pop("CI", None)

NEEDS_4 = {"test_reduce_scatter_corner_cases"}  # its numbers, not its text
# Of the operators with multicast, those that libsymm has. The others are torch's kernels.
WITHOUT_MULTICAST = ("test_multimem_all_reduce", "test_multimem_one_shot_all_reduce",
                     "test_multimem_all_gather_align")
# In processes of their own.
ALONE = {"test_allow_overlapping_devices"}
ENVIRONMENT = {"test_allow_overlapping_devices": {"SYMM_OVERSUBSCRIBE": "1"}}
# What SYMM does in another way, and documents (docs/python.md).
DIFFERENT = {
    "test_put_signal_timeout": "signals count: a second one does not wait for a wait",
    "test_reduce_scatter_corner_cases": "sizes are not limited to multiples of 16 bytes",
    "test_barrier_timeout": "a timeout is an error of the group's next call, not a trap",
    "test_wait_signal_timeout": "a timeout is an error of the group's next call, not a trap",
}
# Operations that a test must have made on each rank, by the beginning of its name.
MOVES = {
    "test_one_shot_all_reduce": "all_reduce", "test_two_shot_all_reduce": "all_reduce",
    "test_multimem_all_reduce": "all_reduce", "test_multimem_one_shot": "all_reduce",
    "test_multimem_all_gather_align": "all_gather", "test_reduce_scatter": "reduce_scatter",
    "test_low_contention": "barrier", "test_fused": "barrier", "test_subgroup": "barrier",
    "test_empty_strided_p2p": "barrier",
}
CONTINUOUS = ("SymmetricMemoryTest", "SymmMemCollectiveTest", "LoweringTest", "AsyncTPTest")
SINGLE = "SymmMemSingleProcTest"


# ---- In a rank ----------------------------------------------------------------------------


class Source(importlib.abc.SourceLoader):
    """The file; for CPU tensors with other words in its text."""

    def __init__(self, path, device):
        self.path, self.device = path, device

    def get_filename(self, fullname):
        return self.path

    def get_data(self, path):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if self.device == "cpu":
            for old, new in (('"cuda"', '"cpu"'), ('"cuda:0"', '"cpu"'), ('"nccl"', '"gloo"'),
                             ("torch.device(device_type, self.rank)", 'torch.device("cpu")'),
                             ("torch.cuda.set_device", "str"),
                             ("torch.cuda.synchronize()", "None")):
                text = text.replace(old, new)
        return text.encode()


def adapt(path, backend, device, size):
    """The file as a module, with what it takes from torch adapted. Before it, set the backend."""
    import torch
    import torch.distributed._symmetric_memory as symm_mem
    import torch.testing._internal.common_distributed as common
    import torch.testing._internal.common_utils as utils

    if backend == "SYMM":
        import symm.torch

        symm.torch.enable_symmetric_memory()
    else:  # torch's default; set_backend does not know a default by its name
        assert symm_mem.get_backend(torch.device("cuda")) in (None, backend)
    at_least = common.skip_if_lt_x_gpu
    common.skip_if_lt_x_gpu = lambda gpus, **k: at_least(min(gpus, 2), **k)
    common.requires_multicast_support = lambda: (lambda test: test)
    if device == "cpu":
        common.skip_if_lt_x_gpu = lambda gpus, **k: (lambda test: test)
        common.PLATFORM_SUPPORTS_SYMM_MEM = True
        utils.requires_cuda_p2p_access = lambda: (lambda test: test)
        utils.requires_cuda = lambda test: test
        torch.cpu.device_count = lambda: size
        common.MultiProcContinuousTest.backend_str = classmethod(lambda cls: "gloo")
    spec = importlib.util.spec_from_loader("test_symmetric_memory", Source(path, device))
    module = importlib.util.module_from_spec(spec)
    sys.modules["test_symmetric_memory"] = module
    spec.loader.exec_module(module)
    return module


def names_of(module):
    """(class, function, test, why it is skipped or None) of all tests, in the file's order."""
    import inspect
    import unittest

    found = []
    for case in vars(module).values():
        if not (isinstance(case, type) and issubclass(case, unittest.TestCase)
                and case.__module__ == module.__name__):
            continue
        all_skipped = getattr(case, "__unittest_skip_why__", None)
        for name in vars(case):
            if name.startswith("test_") and callable(getattr(case, name)):
                why = getattr(vars(case)[name], "__unittest_skip_why__", None)
                found.append((case.__name__, inspect.unwrap(vars(case)[name]).__name__, name,
                              all_skipped or why))
    return found


class Rank:
    def __init__(self, options):
        self.options, self.started = options, False
        # What takes long and needs no device, before there is a job.
        import torch.distributed._symmetric_memory  # noqa: F401
        import torch._inductor.utils  # noqa: F401
        import torch.testing._internal.common_cuda  # noqa: F401
        import torch.testing._internal.common_device_type  # noqa: F401
        import torch.testing._internal.common_distributed as common

        self.skips = {skip.exit_code: skip.message for skip in common.TEST_SKIPS.values()}
        if options.backend == "SYMM":
            import symm.torch.build

            symm.torch.build.load()

    def moved(self):
        if self.options.backend != "SYMM":
            return {}
        import symm.torch

        return {name: calls for name, (calls, _) in symm.torch.counters().items()}

    def start(self):
        o = self.options
        self.module = adapt(o.path, o.backend, o.device, o.size)

    def run(self, job):
        """Runs a test; (result, its last line)."""
        import unittest

        o, case = self.options, getattr(self.module, job["class"])
        try:
            if job["class"] == SINGLE:
                if o.rank == 0:
                    getattr(case(job["test"]), job["test"])()
            elif job["class"] in CONTINUOUS:
                if not self.started:
                    case._init_pg(o.rank, o.size, job["file"])
                    self.started = True
                case.rank, case.world_size = o.rank, o.size
                case._run_test_given_id(f"{job['class']}.{job['test']}")
            else:
                test = case(job["test"])
                test.rank, test.file_name = o.rank, job["file"]
                getattr(test, job["test"])()
            if o.device == "cuda":
                import torch

                torch.cuda.synchronize()
        except unittest.SkipTest as skip:
            return "skipped", str(skip)
        except SystemExit as end:
            if end.code in self.skips:
                return "skipped", self.skips[end.code]
            return "failed", f"exit status {end.code}"
        except BaseException as error:
            traceback.print_exc()
            lines = [line for line in str(error).splitlines() if line.strip()]
            where = traceback.extract_tb(error.__traceback__)
            line = next((f.lineno for f in reversed(where) if f.filename == o.path), 0)
            if o.device == "cpu" and (isinstance(error, NotImplementedError)
                                      or "CUDA driver" in str(error)):
                return "skipped", "torch has it for CUDA alone"
            return "failed", f"line {line}: {type(error).__name__}: {(lines or [''])[0][:150]}"
        return "passed", ""


def rank_main(options):
    faulthandler.dump_traceback_later(options.limit + 20, exit=True)  # if the driver was killed
    answers = os.fdopen(options.answers, "w", encoding="utf-8")

    def answer(**what):
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    rank = Rank(options)
    for line in sys.stdin:
        job = json.loads(line)
        os.environ.update(job.get("environment", {}))
        print(f"---- {job}", file=sys.stderr, flush=True)
        if not hasattr(rank, "module"):
            rank.start()
        if job.get("list"):
            answer(tests=names_of(rank.module))
            continue
        before = rank.moved()
        result, why = rank.run(job)
        after = rank.moved()
        moved = {name: after[name] - before[name] for name in after if after[name] != before[name]}
        answer(result=result, why=why, moved=moved)
    os._exit(0)  # destroying groups may wait for peers


# ---- The driver ---------------------------------------------------------------------------


class Ranks:
    """Processes, one a rank, that run tests together; each has a session of its own."""

    def __init__(self, options, backend, folder, number):
        self.log = os.path.join(folder, f"{backend}{number}")
        self.processes, self.pipes, self.partial = [], [], []
        if os.path.exists(self.log + ".store"):  # of a run before
            os.remove(self.log + ".store")
        for rank in range(options.size):
            reading, writing = os.pipe()
            command = [sys.executable, __file__, options.path, "--backend", backend, "--device",
                       options.device, "--size", str(options.size), "--limit",
                       str(options.limit), "--rank", str(rank), "--answers", str(writing)]
            with open(f"{self.log}.{rank}", "w") as log:
                self.processes.append(subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=log, stderr=log, pass_fds=[writing],
                    start_new_session=True, text=True))
            os.close(writing)
            self.pipes.append(reading)
            self.partial.append(b"")

    def ask(self, seconds, ranks=None, **job):
        """The answers by rank: a dictionary, None for an end without answer (exit status 0), or
        a sentence."""
        job.setdefault("file", self.log + ".store")
        asked = range(len(self.processes)) if ranks is None else ranks
        for rank in asked:
            try:
                self.processes[rank].stdin.write(json.dumps(job) + "\n")
                self.processes[rank].stdin.flush()
            except OSError:
                pass
        answers, end = {}, time.monotonic() + seconds
        while len(answers) < len(asked):
            waiting = [self.pipes[rank] for rank in asked if rank not in answers]
            left = end - time.monotonic()
            ready = select.select(waiting, [], [], max(left, 0))[0] if left > 0 else []
            if not ready:
                break
            for pipe in ready:
                rank = self.pipes.index(pipe)
                data = os.read(pipe, 1 << 20)
                self.partial[rank] += data
                if not data:
                    answers[rank] = self.ended(rank)
                elif self.partial[rank].endswith(b"\n"):
                    answers[rank] = json.loads(self.partial[rank])
                    self.partial[rank] = b""
            # One rank has failed: the others may wait for it in vain.
            if any(a and (isinstance(a, str) or a.get("result") == "failed")
                   for a in answers.values()):
                end = min(end, time.monotonic() + 5)
        for rank in asked:
            answers.setdefault(rank, f"no answer within {seconds:.0f} s")
        return answers

    def ended(self, rank):
        status = self.processes[rank].wait()
        if status == 0:
            return None
        with open(f"{self.log}.{rank}") as log:
            lines = [line.strip() for line in log if line.strip()]
        return f"ended with {status}: {(lines or ['nothing said'])[-1][:150]}"

    def kill(self):
        for process, pipe in zip(self.processes, self.pipes):
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
            os.close(pipe)


class Line:
    """Prints one line for each test; one for all forms of a test that have one result."""

    def __init__(self, backend):
        self.backend, self.forms, self.key = backend, 0, None

    def add(self, function, name, result, why, moved, seconds):
        key = (function, result, why, name if result == "failed" else "")
        if key != self.key:
            self.end()
            self.key, self.name, self.forms, self.seconds, self.moved = key, name, 0, 0, {}
        self.forms += 1
        self.seconds += seconds
        for rank, of_rank in enumerate(moved):
            counts = self.moved.setdefault(rank, collections.Counter())
            counts.update(of_rank or {})

    def end(self):
        if not self.forms:
            return
        function, result, why, _ = self.key
        moved = " | ".join(" ".join(f"{k} {v}" for k, v in sorted(m.items())) or "-"
                           for m in self.moved.values())
        print(f"{self.backend} {result} {self.name if self.forms == 1 else function}"
              f"{f' x{self.forms}' if self.forms > 1 else ''} {self.seconds:.1f} s"
              f"{': ' + why if why else ''}"
              f"{f' [{moved}]' if moved.strip('-| ') else ''}", flush=True)
        self.forms = 0


class Suite:
    """The suite on one backend."""

    def __init__(self, options, backend, folder):
        self.options, self.backend, self.folder = options, backend, folder
        self.ready, self.made = collections.deque(), 0
        self.kept, self.results = None, {}
        self.fill()

    def fill(self):
        while len(self.ready) < self.options.ahead:
            self.made += 1
            self.ready.append(Ranks(self.options, self.backend, self.folder, self.made))

    def take(self):
        self.fill()
        taken = self.ready.popleft()
        self.fill()
        return taken

    def close(self):
        for ranks in [*self.ready, *([self.kept] if self.kept else [])]:
            ranks.kill()

    def why_not(self, name, why):
        """Why a test is not run; None if it is."""
        if why:
            return why
        if name in NEEDS_4 and self.options.size < 4:
            return "its numbers are for 4 ranks"
        if name.startswith("test_multimem_") and (
                self.backend != "SYMM" or not name.startswith(WITHOUT_MULTICAST)):
            return "multicast"
        return None

    def judge(self, name, answers):
        """(result, why, moved by rank) of all ranks' answers."""
        moved = [a.get("moved", {}) if isinstance(a, dict) else None
                 for _, a in sorted(answers.items())]
        for rank, a in sorted(answers.items()):
            if isinstance(a, str):
                worst = next((b for b in answers.values()
                              if isinstance(b, dict) and b["result"] == "failed"), None)
                return "failed", worst["why"] if worst else f"rank {rank}: {a}", moved
        for rank, a in sorted(answers.items()):
            if a and a["result"] != "passed":
                return a["result"], a["why"], moved
        if self.backend == "SYMM":
            for beginning, operation in MOVES.items():
                if name.startswith(beginning) and not all(m and m.get(operation) for m in moved):
                    return "failed", f"libsymm has made no {operation} on some rank", moved
        return "passed", "", moved

    def run_one(self, case, name, seconds):
        job = {"class": case, "test": name, "environment": ENVIRONMENT.get(name, {})}
        if case not in (*CONTINUOUS, SINGLE) or name in ALONE:
            ranks = self.take()
            try:
                return self.judge(name, ranks.ask(seconds, **job))
            finally:
                ranks.kill()
        if not self.kept:
            self.kept = self.take()
        only = [0] if case == SINGLE else None
        answer = self.judge(name, self.kept.ask(seconds, only, **job))
        if answer[0] == "failed":  # ranks may differ now
            self.kept.kill()
            self.kept = None
        return answer

    def run(self, end):
        began = time.monotonic()
        self.kept = self.take()
        listed = self.kept.ask(self.options.seconds, [0], list=True)[0]
        if not isinstance(listed, dict):
            print(f"{self.backend}: the file cannot be used: {listed}")
            return False
        order = [*CONTINUOUS[:3], SINGLE, *CONTINUOUS[3:]]
        tests = sorted(listed["tests"],
                       key=lambda t: order.index(t[0]) if t[0] in order else len(order))
        line = Line(self.backend)
        for case, function, name, why in tests:
            if self.options.tests and not name.startswith(tuple(self.options.tests)):
                continue
            start = time.monotonic()
            why = self.why_not(name, why)
            if not why and end - start < 2:
                result, why, moved = "failed", "no time was left", []
            elif why:
                result, moved = "skipped", []
            else:
                result, why, moved = self.run_one(
                    case, name, min(self.options.seconds, end - start))
            self.results[f"{case}.{name}"] = (result, why)
            line.add(function, name, result, why, moved, time.monotonic() - start)
        line.end()
        counts = collections.Counter(result for result, _ in self.results.values())
        print(f"{self.backend}: {counts['passed']} passed, {counts['failed']} failed, "
              f"{counts['skipped']} skipped in {time.monotonic() - began:.0f} s", flush=True)
        return True


def compare(by_backend):
    """Says what fails on SYMM; how many of these are faults."""
    ours, theirs = by_backend.get("SYMM", {}), by_backend.get("CUDA", {})
    faults = 0
    for name, (result, why) in ours.items():
        if result != "failed":
            continue
        known = DIFFERENT.get(name.split(".")[1])
        if known:
            print(f"SYMM differs: {name}: {known}")
        elif theirs.get(name, ("",))[0] == "failed":
            print(f"fails on both: {name}: {why}")
        else:
            print(f"SYMM FAILS: {name}: {why}")
            faults += 1
    for name, (result, why) in theirs.items():
        if result == "failed" and ours.get(name, ("",))[0] == "passed":
            print(f"CUDA fails alone: {name}: {why}")
    return faults


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("path")
    parser.add_argument("tests", nargs="*")
    parser.add_argument("--backend", choices=("SYMM", "CUDA"))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--size", type=int, default=2, help="ranks")
    parser.add_argument("--seconds", type=float, default=60, help="a test's limit")
    parser.add_argument("--limit", type=float, default=200, help="the whole run's, in seconds")
    parser.add_argument("--ahead", type=int, default=4, help="jobs whose processes start ahead")
    parser.add_argument("--logs", help="a folder for what the ranks print")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--answers", type=int, help=argparse.SUPPRESS)
    options = parser.parse_intermixed_args()
    options.path = os.path.abspath(options.path)
    return options


def main():
    options = arguments()
    if options.rank is not None:
        return rank_main(options)
    if options.device == "cuda":
        gpus = len([name for name in os.listdir("/dev") if name[:6] == "nvidia"
                    and name[6:].isdigit()])
        if gpus < options.size:
            print(f"{options.size} GPUs are needed, there are {gpus}")
            return 77
    backends = [options.backend] if options.backend else ["CUDA", "SYMM"]
    if options.device == "cpu":
        backends = ["SYMM"]
    end = time.monotonic() + options.limit
    folder = options.logs or tempfile.mkdtemp(prefix="symm_mem_suite.")
    os.makedirs(folder, exist_ok=True)
    by_backend, listed = {}, True
    # Compiles symm.torch's C++ part, once.
    compiler = subprocess.Popen([sys.executable, "-c", "import symm.torch as s; s.counters()"])
    for i, backend in enumerate(backends):
        if backend == "SYMM":
            compiler.wait()
        now = time.monotonic()
        suite = Suite(options, backend, folder)
        try:
            listed = suite.run(now + (end - now) / (len(backends) - i)) and listed
        finally:
            suite.close()
        by_backend[backend] = suite.results
    faults = compare(by_backend)
    print(f"{faults} faults; what the ranks printed: {folder}")
    return int(faults > 0 or not listed)


if __name__ == "__main__":
    sys.exit(main())
