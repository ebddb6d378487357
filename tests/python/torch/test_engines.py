# SPDX-License-Identifier: MIT
"""The plug-ins for vLLM and SGLang with CPU tensors under torchrun.

Neither engine is installed: engine_stand_ins.py puts modules with their paths and signatures into
sys.modules. So these tests show what the plug-ins do when they are called as vLLM and SGLang call
them, not that a server runs.
"""

import importlib
import logging
import tomllib
from pathlib import Path

import engine_stand_ins as stand_ins
import pytest

import symm.sglang
import symm.vllm

HERE = Path(__file__).parent
PRELUDE = f"""
import logging, os, sys
import torch, torch.distributed as dist
import engine_stand_ins as stand_ins
import symm, symm.vllm, symm.sglang, symm._engine
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stdout)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()

def rank_order(x):
    # A float32 sum in rank order, rounded once.
    blocks = [torch.empty(x.shape) for _ in range(size)]
    dist.all_gather(blocks, x.float().contiguous())
    total = blocks[0].clone()
    for block in blocks[1:]:
        total += block
    return total.to(x.dtype)

def with_vllm(**options):
    module = stand_ins.put_vllm()
    assert symm.vllm.register() and symm.vllm.register()
    return module.CustomAllreduce(dist.group.WORLD, torch.device("cpu"), **options)
"""


# ---- vLLM --------------------------------------------------------------------------------


def test_vllm_calls(torchrun):
    """Bit-exact sums, gathers and scatters in every dtype; counted."""
    torchrun(3, PRELUDE + """
ca = with_vllm()
assert isinstance(ca, stand_ins.VllmCustomAllreduce) and not stand_ins.VllmCustomAllreduce.made
assert (ca.disabled, ca.fully_connected, ca.world_size, ca.rank) == (False, True, size, rank)
assert ca.max_size == 8 << 20
torch.manual_seed(rank)
calls = 0
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    for shape in ((8,), (3, 40), (1024, 33, 8), (4096 * size, 64)):
        x = torch.randn(shape).to(dtype)
        before, want = x.clone(), rank_order(x)
        got = ca.custom_all_reduce(x)
        assert torch.equal(got, want) and torch.equal(x, before), (dtype, shape)
        assert torch.equal(ca.all_reduce(x, registered=True), want)
        assert ca.all_reduce(x, out=x) is x and torch.equal(x, want)
        x = torch.randn(shape).to(dtype)
        gathered = ca.custom_all_gather(x)
        lists = [torch.empty(shape) for _ in range(size)]
        dist.all_gather(lists, x.float())
        assert x.nbytes > 2 << 20 or torch.equal(gathered.float(), torch.cat(lists))
        assert (gathered is None) == (x.nbytes > 2 << 20)
        x = torch.randn((size * shape[0], *shape[1:])).to(dtype)
        want = rank_order(x)[rank * shape[0]:(rank + 1) * shape[0]]
        assert torch.equal(ca.custom_reduce_scatter(x), want)
t = torch.randn(64, 24).t()
assert t.stride() == (1, 24)
got = ca.custom_all_reduce(t)
assert torch.equal(got, rank_order(t)) and got.stride() == t.stride()
t = torch.randn(8, 4, 6).permute(2, 0, 1)[:, :, :]
assert torch.equal(ca.custom_all_reduce(t), rank_order(t))
counts = symm.vllm.counters()
assert counts["all_reduce"][0] == 3 * 12 + 2 and counts["captured"] == (0, 0), counts
assert counts["reduce_scatter"][0] == 12 and counts["all_gather"][0] > 8
assert counts["all_reduce"][1] > 3 * 3 * 2 * 1024 * 33 * 8
""")


def test_vllm_gates(torchrun):
    """What is refused: None, and nothing is called; errors of use are sentences."""
    torchrun(2, PRELUDE + """
ca = with_vllm(max_size=4096, max_all_gather_size=1024, max_reduce_scatter_size=2048)
x = torch.ones(1024)
cases = [
    (torch.ones(4), True), (torch.ones(3), False),             # 16 and 12 bytes
    (torch.ones(1020), True), (torch.ones(1024), False),       # less than max_size
    (torch.ones(8, dtype=torch.float64), False), (torch.ones(8, dtype=torch.int32), False),
    (torch.ones(8, dtype=torch.bool), False), (torch.ones(8, dtype=torch.bfloat16), True),
    (torch.ones(16, 16).t(), True), (torch.ones(16, 16)[:, :8], False),
    (torch.ones(16, 16).t()[:8], False),        # does not fill its storage
    (torch.ones(16, 16)[8:].t(), True), (torch.ones(4, 1).expand(4, 4), False),
    (torch.ones(16).as_strided((2, 2, 4), (6, 6, 1)), False),  # fills it, but overlaps
]
for i, (t, want) in enumerate(cases):
    assert ca.should_custom_ar(t) is want, i
    assert (ca.custom_all_reduce(t) is not None) is want, i
assert ca.custom_all_gather(torch.ones(256)) is not None
assert ca.custom_all_gather(torch.arange(4)).tolist() == [0, 1, 2, 3] * 2
for t in (torch.ones(260), torch.ones(3), torch.ones(4, 4).t(), torch.tensor(1.0),
          torch.ones(16, dtype=torch.bool)):
    assert ca.custom_all_gather(t) is None
assert ca.custom_reduce_scatter(torch.ones(512)) is not None
for t in (torch.ones(516), torch.ones(4), torch.ones(3, 8), torch.ones(4, 4).t(),
          torch.ones(16, dtype=torch.int32), torch.tensor(1.0)):
    assert ca.custom_reduce_scatter(t) is None
for out in (torch.ones(5), torch.ones(4, dtype=torch.float16)):
    try:
        ca.all_reduce(torch.ones(4), out=out)
    except ValueError as error:
        assert "out has shape" in str(error)
    else:
        raise AssertionError("not refused")
ca.disabled = True  # as an engine may set it
assert not ca.should_custom_ar(x[:4]) and ca.custom_all_reduce(x[:4]) is None
assert ca.custom_all_gather(x[:4]) is None and ca.custom_reduce_scatter(x[:8]) is None
alone = [dist.new_group([r]) for r in range(size)][rank]
one = type(ca)(alone, "cpu")
assert one.disabled and one.world_size == 1 and one.custom_all_reduce(x[:4]) is None
one.close()
""")


def test_vllm_capture_and_close(torchrun):
    """Inside capture() a warm-up makes no call, a captured call makes one; close ends the team."""
    torchrun(2, PRELUDE + """
ca = with_vllm()
x = torch.full((8,), 1.0 + rank)
with ca.capture():
    for call, shape in ((ca.custom_all_reduce, (8,)), (ca.custom_all_gather, (16,)),
                        (ca.custom_reduce_scatter, (4,))):
        got = call(x)
        assert got.shape == shape and got.dtype == x.dtype and got.data_ptr() != x.data_ptr()
    assert all(value == (0, 0) for value in symm.vllm.counters().values())
    symm._engine.Engine.is_stream_capturing = lambda self: True
    assert (ca.custom_all_reduce(x) == 3).all() and (ca.custom_reduce_scatter(x) == 3).all()
    symm._engine.Engine.is_stream_capturing = lambda self: False
counts = symm.vllm.counters()
assert counts["captured"] == (2, 64) and counts["all_reduce"] == (1, 32)
try:
    with ca.capture():
        raise KeyError
except KeyError:
    pass
assert (ca.custom_all_reduce(x) == 3).all()
second = type(ca)(dist.group.WORLD, "cpu")  # beside the first
assert (second.custom_all_reduce(x) == 3).all() and (ca.custom_all_reduce(x) == 3).all()
ca.close(); ca.close()
assert ca.disabled and ca.custom_all_reduce(x) is None
try:
    ca.all_reduce(x)
except symm.Invalid as error:
    assert "finalized" in str(error)
else:
    raise AssertionError("used after close")
assert (second.custom_all_reduce(x) == 3).all()
del second, ca
""")


def test_captures_bracket(torchrun):
    """Communicator.capture() opens the team's bracket once, on a GPU, if all ranks have the hook;
    a stand-in takes the place of the team."""
    torchrun(2, """
import contextlib, logging, types
import torch, torch.distributed as dist
import symm._engine as engine
from symm.torch import _allocator

dist.init_process_group("gloo")
rank, events, lines = dist.get_rank(), [], []
handler = logging.Handler()
handler.emit = lambda record: lines.append(record.getMessage())
engine.log.addHandler(handler)

class Team:
    rank, size = rank, 2

    @contextlib.contextmanager
    def capture(self):
        events.append("begin")
        try:
            yield
        except BaseException:
            events.append("abandon")
            raise
        events.append("end")

def make(kind):
    made = object.__new__(engine.Engine)
    made.group, made.device, made.team = dist.group.WORLD, torch.device(kind), Team()
    communicators = [engine.Communicator(), engine.Communicator()]
    for each in communicators:
        each._start(made, 1 << 20)
    return communicators

def fail():
    raise RuntimeError("no compiler")

attached = []
_allocator.attach = lambda: attached.append(1)
with make("cpu")[0].capture():
    pass
with engine.Communicator().capture():            # disabled
    pass
assert events == attached == []

first, second = make("cuda")
for _ in range(2):
    with first.capture():
        assert first._capturing and not second._capturing
        with second.capture(), first.capture():
            assert events[-1] == "begin"
        assert first._capturing and events[-1] == "begin"
    assert events[-1] == "end"
assert events == ["begin", "end"] * 2 and attached == [1] and not lines
try:
    with first.capture():
        raise KeyError("x")
except KeyError:
    assert events[-1] == "abandon" and not first._capturing
with second.capture():
    pass
assert events[-1] == "end"

if rank == 1:
    _allocator.attach = fail
del events[:]
third, _ = make("cuda")
for _ in range(2):
    with third.capture():
        assert third._capturing
assert events == [], events
assert lines == ["symm: graphs of the group of 2 ranks stage their tensors: rank 1 of the "
                 "process group: no compiler"], lines
""")


def test_vllm_shared_buffers(torchrun):
    torchrun(3, PRELUDE + """
import ctypes
ca = with_vllm()
pointers = ca.create_shared_buffer(4096)
again = type(ca).create_shared_buffer(64, group=dist.group.WORLD)
assert len(pointers) == len(again) == size and not set(pointers) & set(again)
text = f"from {rank}".encode()
for peer in range(size):
    ctypes.memmove(pointers[peer] + 100 * rank, text, len(text))
dist.barrier()
for peer in range(size):
    assert ctypes.string_at(pointers[rank] + 100 * peer, 6) == f"from {peer}".encode()
dist.barrier()
type(ca).free_shared_buffer(pointers, rank=rank)
other = dist.new_group(list(range(size)))
assert type(ca).create_shared_buffer(7, group=other) == [7]  # vLLM's own function
type(ca).free_shared_buffer([7])
assert stand_ins.VllmCustomAllreduce.freed == [7]
for call in (lambda: symm.vllm.CustomAllreduce.create_shared_buffer(7, group=other),
             lambda: symm.vllm.CustomAllreduce.free_shared_buffer([7])):
    try:
        call()
    except RuntimeError as error:
        assert "shared_buffer()" in str(error)
    else:
        raise AssertionError("not refused")
ca.close()
""")


def test_vllm_falls_back(torchrun):
    """One rank that cannot join sends all ranks to vLLM's own class, with its sentence."""
    done = torchrun(3, PRELUDE + """
original = symm._engine.init
def failing(**options):
    if rank == 1:
        raise symm.Unsupported("no such luck")
    return original(**options)
symm._engine.init = failing
ca = with_vllm(max_size=4096, symm_mem_enabled=True, register_graph_buffers=False)
assert ca.arguments == (4096, 2 << 20, True, False) and ca.made == [ca] and not ca.disabled
x = torch.ones(8)
assert ca.should_custom_ar(x) and ca.all_reduce(x, registered=True) == ("original", True)
for call in (ca.custom_all_reduce, ca.custom_all_gather, ca.custom_reduce_scatter):
    assert call(x) == "original"
with ca.capture() as value:
    assert value == "original"
ca.close()
assert ca.closed
def late(**options):  # fails where the others have already made theirs
    ctx = original(**options)
    if rank == 2:
        ctx.finalize()
        raise ValueError("too late")
    return ctx
symm._engine.init = late
alone = symm.vllm.CustomAllreduce(dist.group.WORLD, "cpu")  # without a class behind it
assert alone.disabled and alone.custom_all_reduce(x) is None
alone.close()
symm._engine.init = original
ca = type(ca)(dist.group.WORLD, 0)  # a GPU that is not there
assert ca.custom_all_reduce(x) == "original"
ca = type(ca)(dist.group.WORLD, "meta")
assert ca.custom_all_reduce(x) == "original"
ca = type(ca)(dist.group.WORLD, "cpu")
assert (ca.custom_all_reduce(x) == 3).all()
assert symm.vllm.counters()["all_reduce"] == (1, 32)
dist.barrier()
""")
    assert done.stdout.count("rank 1 of the process group: no such luck") == 3, done.stdout
    assert done.stdout.count("rank 2 of the process group: too late") == 3, done.stdout
    assert "WARNING symm: the vllm group of 3 ranks does not use libsymm" in done.stdout
    assert done.stdout.count("INFO symm: the vllm group of 3 ranks on cpu uses libsymm") == 3


def test_vllm_killed_peer(torchrun):
    done = torchrun(3, PRELUDE + """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
ca = with_vllm()
x = torch.ones(8)
ca.custom_all_reduce(x)
if rank == 2:
    os.kill(os.getpid(), signal.SIGKILL)
begin = time.time()
try:
    ca.custom_all_reduce(x)
except symm.PeerDead as error:
    os.write(1, f"rank {rank} caught {error}\\n".encode())  # at once: ranks share the pipe
assert time.time() - begin < 20
""", check=False)
    for rank in (0, 1):
        lines = [line for line in done.stdout.splitlines() if f"rank {rank} caught" in line]
        assert len(lines) == 1 and "rank 2" in lines[0].split("caught")[1], done.stdout
        assert "vllm.all_reduce" in lines[0], done.stdout


def test_vllm_late_peer(torchrun):
    """SYMM_TIMEOUT bounds the wait; the error names who is late, and for what."""
    torchrun(2, PRELUDE + """
os.environ["SYMM_TIMEOUT"] = "1"
ca = with_vllm()
x = torch.ones(8)
ca.custom_all_reduce(x)
if rank == 0:
    try:
        ca.custom_all_reduce(x)
    except symm.Timeout as error:
        assert isinstance(error, TimeoutError) and "rank 1" in str(error), error
    else:
        raise AssertionError("rank 1 did not come")
dist.barrier()
ca.close()
""")


@pytest.fixture
def logged(caplog):
    caplog.set_level(logging.INFO, "symm")
    return caplog


@pytest.fixture
def vllm_module():
    yield stand_ins.put_vllm
    stand_ins.remove("vllm")


def test_vllm_register(vllm_module, logged, monkeypatch):
    module = vllm_module()
    monkeypatch.setenv("SYMM_VLLM", "0")
    assert not symm.vllm.register() and "SYMM_VLLM=0" in logged.text
    assert module.CustomAllreduce is stand_ins.VllmCustomAllreduce
    monkeypatch.delenv("SYMM_VLLM")
    assert symm.vllm.register()
    replaced = module.CustomAllreduce
    assert issubclass(replaced, symm.vllm.CustomAllreduce)
    assert issubclass(replaced, stand_ins.VllmCustomAllreduce)
    assert symm.vllm.register() and module.CustomAllreduce is replaced
    bare = replaced.__new__(replaced)  # as unit tests of vLLM make it
    assert bare.disabled and bare.should_custom_ar(None) is False
    bare.close()


def test_vllm_is_absent_or_old(vllm_module, logged):
    assert not symm.vllm.register() and "No module named 'vllm'" in logged.text
    for version in ("0.32.1", "0.9"):
        module = vllm_module(version)
        assert not symm.vllm.register() and f"vLLM {version} is older than 0.33" in logged.text
        assert module.CustomAllreduce is stand_ins.VllmCustomAllreduce
    module = vllm_module("dev", type("CustomAllreduce", (), {"custom_all_reduce": None}))
    assert not symm.vllm.register() and "has no custom_all_gather" in logged.text
    for version in ("0.33.1.dev7+g1234", "1.0", "dev"):
        module = vllm_module(version)
        assert symm.vllm.register(), version
    module = vllm_module(original=lambda *arguments: None)  # nothing to derive from
    assert symm.vllm.register() and issubclass(module.CustomAllreduce, symm.vllm.CustomAllreduce)


# ---- SGLang ------------------------------------------------------------------------------


def test_sglang_calls(torchrun):
    done = torchrun(3, PRELUDE + """
registry = stand_ins.put_sglang()
assert symm.sglang.register() and symm.sglang.register() and len(registry.hooks) == 1
registry.apply_hooks()
from sglang.srt.distributed.device_communicators.custom_all_reduce import (
    dispatch_custom_allreduce)
cpu = torch.device("cpu")
chosen = dispatch_custom_allreduce(dist.group.WORLD, cpu)
assert isinstance(chosen, type)
ca = chosen(group=dist.group.WORLD, device=cpu)
assert hasattr(ca, "fused_allreduce_rmsnorm") and not hasattr(ca, "reduce_scatter")
assert (ca.disabled, ca.world_size, ca.max_size) == (False, size, 8 << 20)
torch.manual_seed(rank)
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    x = torch.randn(64, 96).to(dtype)
    assert ca.should_custom_ar(x) and torch.equal(ca.custom_all_reduce(x), rank_order(x))
assert not ca.should_custom_ar(torch.ones(3)) and ca.custom_all_reduce(torch.ones(3)) is None
with ca.capture():
    assert ca.custom_all_reduce(x).shape == x.shape
assert symm.sglang.counters()["all_reduce"] == (3, 8 * 64 * 96)
assert symm.vllm.counters()["all_reduce"] == (0, 0)
ca.close()
assert ca.disabled
def failing(**options):
    raise symm.Unsupported("not here")
symm._engine.init, original = failing, symm._engine.init
ca = chosen(group=dist.group.WORLD, device=cpu)
assert type(ca) is stand_ins.SglangCustomAllReduceV2 and not ca.disabled
symm._engine.init = original
alone = [dist.new_group([r]) for r in range(size)][rank]
one = chosen(group=alone, device=cpu)
assert one.disabled and one.custom_all_reduce(x) is None
one.close()
module = sys.modules["sglang.srt.distributed.device_communicators.custom_all_reduce"]
assert symm.sglang._dispatch(lambda group, device: None, dist.group.WORLD, cpu) is None
assert symm.sglang._dispatch(lambda group, device: chosen, dist.group.WORLD, cpu) is chosen
dist.barrier()
""")
    assert done.stdout.count("WARNING symm: the sglang group of 3 ranks does not use libsymm: "
                             "rank 0 of the process group: not here") == 3, done.stdout


def test_sglang_register(logged, monkeypatch):
    assert not symm.sglang.register() and "No module named 'sglang'" in logged.text
    registry = stand_ins.put_sglang()
    try:
        monkeypatch.setenv("SYMM_SGLANG", "0")
        assert not symm.sglang.register() and "SYMM_SGLANG=0" in logged.text
        assert not registry.hooks
        monkeypatch.delenv("SYMM_SGLANG")
        assert symm.sglang.register() and symm.sglang.register()
        assert [hook[0].rsplit(".", 1)[1] for hook in registry.hooks] == [
            "dispatch_custom_allreduce"]
        del registry.register
        stand_ins.remove("sglang")
        stand_ins.put("sglang.srt.plugins.hook_registry")  # another shape of the module
        assert not symm.sglang.register() and "HookRegistry" in logged.text
    finally:
        stand_ins.remove("sglang")


def test_entry_points():
    """The engines find what pyproject.toml names."""
    project = HERE.parents[2] / "symm" / "python" / "pyproject.toml"
    points = tomllib.loads(project.read_text())["project"]["entry-points"]
    for group, module in (("vllm.general_plugins", symm.vllm), ("sglang.srt.plugins", symm.sglang)):
        path, name = points[group]["symm"].split(":")
        assert importlib.import_module(path) is module and getattr(module, name) is module.register
