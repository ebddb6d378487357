# SPDX-License-Identifier: MIT
"""symm.torch.capture and the hook in torch's allocator, without a GPU: teams are on the fake CUDA
driver, or stand-ins. gpu_capture.py has the rest."""

import ctypes
import subprocess
import textwrap

import pytest
import torch
from capture_program import BEGIN, END

import symm
import symm.torch
from symm.torch import _allocator

# Lets a test play the part of torch's allocator, which has no device here.
EVENTS = """
#include <symm_source/allocator.cpp>

extern "C" __attribute__((visibility("default")))
void test_event(int action, size_t at, size_t size)
{
    static const TraceEntry::Action actions[] = {
        TraceEntry::ALLOC, TraceEntry::FREE_REQUESTED, TraceEntry::FREE_COMPLETED,
        TraceEntry::SEGMENT_ALLOC, TraceEntry::SEGMENT_MAP, TraceEntry::SNAPSHOT, TraceEntry::OOM,
        TraceEntry::SEGMENT_FREE, TraceEntry::SEGMENT_UNMAP};

    on_event(TraceEntry(actions[action], 0, at, size, nullptr, {0, 0}, 0));
}
"""


@pytest.fixture
def compile_hook(tmp_path, monkeypatch):
    """compile_hook(text, include): the library made of a file that may include allocator.cpp."""

    def make(text, include):
        monkeypatch.setattr(_allocator, "_cuda_include", lambda torch: include)
        (tmp_path / "symm_source").symlink_to(_allocator._SOURCE.parent)
        source, target = tmp_path / "hook.cpp", tmp_path / "hook.so"
        source.write_text(text)
        subprocess.run([*_allocator.command(torch, source, target), f"-I{tmp_path}"], check=True)
        return target

    return make


# ---- The hook ----------------------------------------------------------------------------


def test_hook_compiles_and_attaches(tmp_path, monkeypatch):
    monkeypatch.setenv("SYMM_TORCH_CACHE", str(tmp_path))
    path = _allocator.path()
    assert path.parent == tmp_path and path.exists()
    before = path.stat().st_mtime_ns
    assert _allocator.path() == path and path.stat().st_mtime_ns == before
    attach = ctypes.CDLL(str(path)).symm_torch_attach
    attach.restype = ctypes.c_char_p
    if _allocator._cuda_include(torch):
        assert attach() is None
    else:
        assert b"compiled without CUDA's headers" in attach()


def test_hook_without_cuda(compile_hook):
    """As for a torch without CUDA."""
    path = compile_hook("#include <symm_source/allocator.cpp>\n", None)
    attach = ctypes.CDLL(str(path)).symm_torch_attach
    attach.restype = ctypes.c_char_p
    assert b"compiled without CUDA's headers" in attach()


def test_attach_says_why(monkeypatch, tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(RuntimeError, match="NVIDIA|CUDA"):
        _allocator.attach()
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(RuntimeError, match="this torch has no CUDA"):
        _allocator.attach()
    monkeypatch.undo()
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(_allocator, "_cuda_include", lambda torch: None)
    monkeypatch.setenv("SYMM_TORCH_CACHE", str(tmp_path))
    with pytest.raises(RuntimeError, match="cannot say when captured memory goes: .*CUDA_HOME"):
        _allocator.attach()
    monkeypatch.setenv("SYMM_TORCH_CACHE", str(tmp_path / "other"))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(RuntimeError, match="needs a C.. compiler"):
        _allocator.attach()


RELEASES = BEGIN + """
import ctypes, torch
hook = ctypes.CDLL("PATH")
hook.test_event.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t]
other = team.split(0)
with team.capture(), other.capture():
    made = graph()
    second = Graph()
    with second.capture(stream):
        other.all_reduce(a, b, algorithm="two_shot_inplace", stream=stream)
for each in range(7):
    hook.test_event(each, a.ptr, a.nbytes)
hook.test_event(action, Array(64).ptr, 256)        # of no call
for round in range(3):
    replay(made, 1.0 + round)
    replay(second, 1.0 + round)
meet()
if team.rank == 1:                                 # a segment in which the array lies
    hook.test_event(action, a.ptr - 512, 4096)
fails(made, "rank 1 has released [")
second.replay(stream)
aborted(other, "rank 1 has released [")            # the other team's graph, too
ctx.finalize()
hook.test_event(action, a.ptr, a.nbytes)           # no team is left
print("right after", action, flush=True)
"""


def test_hook_releases(compile_hook, symmrun, fake_cuda):
    """Events of the allocator: those that give memory back end the calls that use it, of all
    teams; others do not."""
    include = _allocator._cuda_include(torch)
    if not include:
        pytest.skip("needs a torch with CUDA, and CUDA's headers")
    # A job for both actions, one after the other: the ranks import torch, which takes a while.
    program = "for action in 7, 8:\n" + textwrap.indent(
        RELEASES.replace("PATH", str(compile_hook(EVENTS, include))), "    ")
    done = symmrun(2, program, **fake_cuda)
    for action in 7, 8:
        assert done.stdout.count(f"right after {action}") == 2, done.stdout + done.stderr


# ---- symm.torch.capture ------------------------------------------------------------------


def test_team(symmrun, fake_cuda):
    """symm.torch.capture(team): the hook, the bracket; a body that raises, a rank without hook."""
    done = symmrun(2, BEGIN + """
import symm.torch
from symm.torch import _allocator

def no_hook():
    raise RuntimeError("no hook here")

calls = []
_allocator.attach = lambda: calls.append("attached")
with symm.torch.capture(team) as nothing:
    assert calls == ["attached"] and nothing is None
    made = graph()
replay(made, 2.0)

def body(error, together=False):
    with symm.torch.capture(team):
        graph()
        if together:
            meet()
        if error and team.rank == 1:
            raise error

if team.rank == 1:
    raises(KeyError, lambda: body(KeyError("mine"), True), "mine")
else:
    raises(symm.Aborted, lambda: body(None, True),
           "rank 1 has abandoned bracket 2: KeyError: 'mine'")
_allocator.attach = no_hook if team.rank == 0 else _allocator.attach
if team.rank == 0:
    raises(RuntimeError, lambda: body(None), "no hook here")
else:
    raises(symm.Aborted, lambda: body(None), "rank 0 has abandoned", "no hook here")
_allocator.attach = lambda: None
with symm.torch.capture(team):
    again = graph(2)
for round in range(3):
    replay(again, 1.0 + round)
    replay(made, 1.0 + round)
""" + END, **fake_cuda)
    assert done.stdout.count("right") == 2, done.stdout + done.stderr


def test_errors_without_a_gpu(torchrun):
    torchrun(2, """
import torch, torch.distributed as dist, symm, symm.torch

def raises(kind, of, words):
    try:
        with symm.torch.capture(of):
            raise AssertionError("the body runs")
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError("no error")

raises(ValueError, None, "there is no default process group")
dist.init_process_group("symm")
raises(RuntimeError, None, "no CUDA device here")
raises(RuntimeError, dist.group.WORLD, "no CUDA device here")
with symm.init(backend="host", rank=0, size=1) as ctx:
    raises(symm.Unsupported, ctx.world, "host backend")
dist.destroy_process_group()
""")


def test_group_brackets(torchrun):
    """Which contexts of a group have brackets; these are on the host, and refuse."""
    torchrun(2, """
import torch, torch.distributed as dist, symm, symm.torch
from symm.torch import build
dist.init_process_group("gloo")
group = dist.group.WORLD
brackets = build.load().brackets
gloo = group._get_backend(torch.device("cpu"))
assert brackets(gloo, group.group_name) == brackets(None, group.group_name) == []
symm.torch.enable_operators()
torch.ops.symm.all_reduce_norm(torch.ones(1, 8), group.group_name, outputs="sum")
assert brackets(gloo, group.group_name) == []      # its context is for CPU tensors
dist.destroy_process_group()
""")


def test_group(torchrun, fake_cuda):
    """symm.torch.capture() of the default group, whose context is on the fake driver: its bracket,
    and a body that raises on one rank. (Tensors on a GPU there are none.)"""
    torchrun(2, """
import torch, torch.distributed as dist, symm.torch
from symm.torch import _allocator

dist.init_process_group("cpu:gloo,cuda:symm")
torch.cuda.is_available, _allocator.attach = lambda: True, lambda: None
for of in (None, dist.group.WORLD):
    with symm.torch.capture(of):
        try:
            with symm.torch.capture(of):
                pass
        except RuntimeError as error:
            assert "has begun already" in str(error), error
        else:
            raise AssertionError("no error")
try:
    with symm.torch.capture():
        if dist.get_rank() == 1:
            raise KeyError("mine")
except KeyError as error:
    assert dist.get_rank() == 1 and not hasattr(error, "__notes__")
except dist.DistBackendError as error:
    assert dist.get_rank() == 0 and "rank 1 has abandoned bracket 3: KeyError: 'mine'" in str(error)
else:
    raise AssertionError("no error")
with symm.torch.capture():
    pass
dist.destroy_process_group()
""", **{**fake_cuda, "SYMM_OVERSUBSCRIBE": "1"})


class Recorder:
    """A bracket that notes what is called, and fails where it is told to."""

    def __init__(self, fails=()):
        self.calls, self.fails = [], fails

    def _note(self, call, name):
        self.calls.append(call)
        if name in self.fails:
            raise RuntimeError(f"{name} fails")

    def begin(self):
        self._note("begin", "begin")

    def end(self):
        self._note("end", "end")

    def abandon(self, why):
        self._note(("abandon", why), "abandon")


def test_bracket_of_a_group(monkeypatch):
    recorders = [Recorder(), Recorder()]
    monkeypatch.setattr(_allocator, "attach", lambda: recorders[1].calls.append("attach"))
    monkeypatch.setattr(symm.torch, "_brackets",
                        lambda group: [symm.torch._bracket(each) for each in recorders])
    with symm.torch.capture("a group"):
        assert recorders[0].calls == ["begin"] and recorders[1].calls == ["begin", "attach"]
    assert recorders[0].calls == ["begin", "end"]
    with pytest.raises(KeyError), symm.torch.capture("a group"):
        raise KeyError("x")
    for each in recorders:
        assert each.calls[-1] == ("abandon", "KeyError: 'x'")
    recorders[1].fails = ("end",)  # then the first one is abandoned
    with pytest.raises(RuntimeError, match="end fails"), symm.torch.capture("a group"):
        pass
    assert recorders[0].calls[-1] == ("abandon", "RuntimeError: end fails")
    recorders[1].fails = ("begin",)
    with pytest.raises(RuntimeError, match="begin fails"), symm.torch.capture("a group"):
        raise AssertionError("the body runs")
    assert recorders[0].calls[-1] == ("abandon", "RuntimeError: begin fails")
    recorders[1].fails = ("abandon",)
    with pytest.raises(KeyError) as caught, symm.torch.capture("a group"):
        raise KeyError("y")
    assert caught.value.__notes__ == ["symm: the capture's bracket was not abandoned: "
                                      "abandon fails"]
