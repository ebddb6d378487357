# SPDX-License-Identifier: MIT
"""Collectives of compiled graphs on symmetric buffers, recorded and planned.

    planned = symm.torch.plan.install(record="records")        # a first run
    step = torch.compile(step)                                 # functional collectives in it
    ...                                                        # a few steps
    planned.close()                                            # writes the records
    symm.torch.plan.make("records", "plan.json")               # on one rank
    planned = symm.torch.plan.install(plan="plan.json")        # later runs

While it is installed, Inductor's graphs pass through Planned.rewrite: the all_reduce,
all_gather_into_tensor and reduce_scatter_tensor of torch.distributed._functional_collectives on
that group become calls of libsymm. Each has a call site and, at it, a symmetric buffer that its
input is copied to. Recorded runs say when these buffers are in use. In a plan they share memory,
need fewer barriers, and calls have the algorithms that the plan has chosen (docs/planner.md).

All ranks must compile the same graphs in the same order; else a call raises symm.Mismatch.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any, Iterator

import torch
import torch.distributed as dist
from torch import fx
from torch._inductor.custom_graph_pass import CustomGraphPass

import symm

__all__ = ["Planned", "install", "make"]

_KINDS = {
    "all_reduce": "all_reduce",
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
}
_OPS = {"sum": "sum", "avg": "avg", "product": "prod", "min": "min", "max": "max",
        "band": "band", "bor": "bor", "bxor": "bxor"}
_installed: Planned | None = None


# ---- The operator -----------------------------------------------------------------------------


def _shape(shape: list[Any], kind: str, size: int) -> list[Any]:
    factor = {"all_gather": (size, 1), "reduce_scatter": (1, size)}.get(kind, (1, 1))
    return [shape[0] * factor[0] // factor[1], *shape[1:]] if shape else []


def _collective(x: torch.Tensor, kind: str, op: str, size: int, site: str) -> torch.Tensor:
    if _installed is None:
        raise RuntimeError("symm.torch.plan: this graph was compiled for a Planned that is closed")
    return _installed._run(x, kind, op, site)


def _fake(x: torch.Tensor, kind: str, op: str, size: int, site: str) -> torch.Tensor:
    return x.new_empty(_shape(list(x.shape), kind, size))


_library: Any = torch.library.Library("symm_plan", "DEF")  # type: ignore[no-untyped-call]
_library.define("collective(Tensor x, str kind, str op, int size, str site) -> Tensor")
_library.impl("collective", _collective, "CompositeExplicitAutograd")
torch.library.register_fake("symm_plan::collective", _fake, lib=_library)


# ---- Graphs -----------------------------------------------------------------------------------


def _collectives(graph: fx.Graph) -> Iterator[tuple[fx.Node, str | None]]:
    """The functional collectives, with the kinds of those that are known."""
    functional = torch.ops._c10d_functional
    known = {getattr(functional, name).default: kind for name, kind in _KINDS.items()}
    for node in list(graph.nodes):
        if (node.op == "call_function" and node.target != functional.wait_tensor.default
                and getattr(node.target, "namespace", None) == "_c10d_functional"):
            yield node, known.get(node.target)


def _waits(node: fx.Node) -> list[fx.Node]:
    wait = torch.ops._c10d_functional.wait_tensor.default
    return [user for user in node.users if user.target == wait]


class _Pass(CustomGraphPass):
    """Inductor's pass. It has no state, since Inductor copies and pickles its configuration."""

    def __call__(self, graph: fx.Graph) -> None:
        if _installed is not None:
            if _installed._before is not None:
                _installed._before(graph)
            _installed.rewrite(graph)

    def uuid(self) -> Any:
        """None: graphs are not cached, since call sites are numbered as graphs are compiled."""
        return None


class Planned:
    """What install() returns.

    counts: a Counter of calls made, by kind. left: why collectives of graphs were not taken, by
    the collective's name: a Counter of (name, reason).
    """

    def __init__(self, group: Any, device: torch.device, team: symm.Team, ctx: symm.Context):
        self.group, self.device, self.team, self.ctx = group, device, team, ctx
        self.counts: Counter[str] = Counter()
        self.left: Counter[tuple[str, str]] = Counter()
        self._graphs = 0
        self._wanted: dict[str, tuple[int, str]] = {}  # site -> elements and dtype of the input
        self._buffers: dict[str, torch.Tensor] = {}
        self._first: str | None = None  # the site that begins a period
        self._before: Any = None

    def rewrite(self, graph: fx.Graph) -> int:
        """Replaces the graph's collectives on the group; how many it took. For backends of
        torch.compile other than Inductor, on graphs of ATen operators."""
        taken = 0
        for node, kind in _collectives(graph):
            reason = "a collective that is not planned"
            if kind is not None:
                reason = self._objection(node) or ""
            if kind is None or reason:
                self.left[str(node.target), reason] += 1
                continue
            self._replace(graph, node, kind, f"g{self._graphs}.{taken}.{kind}")
            taken += 1
        self._graphs += taken > 0
        return taken

    @staticmethod
    def _arguments(node: fx.Node) -> tuple[Any, str, str]:
        """Input, reduction and group name of a functional collective."""
        target: Any = node.target
        names = (argument.name for argument in target._schema.arguments)
        given: dict[str, Any] = {**dict(zip(names, node.args)), **node.kwargs}
        return given["input"], given.get("reduce_op", "sum"), given["group_name"]

    def _objection(self, node: fx.Node) -> str | None:
        source, op, name = self._arguments(node)
        value = source.meta.get("val")
        if name != self.group.group_name:
            return "another process group"
        if op not in _OPS:
            return f"the reduction {op!r}"
        if value is None or any(not isinstance(n, int) for n in value.shape):
            return "a shape that is not static"
        if value.device.type != self.device.type:
            return f"a tensor on {value.device.type}"
        try:
            symm.dtype_size(value.dtype)
        except symm.Error:
            return f"the dtype {value.dtype}"
        if not value.shape or value.numel() == 0:
            return "a tensor of no dimension or element"
        if len(node.users) != len(_waits(node)):
            return "a result that is used before it is awaited"
        return None

    def _replace(self, graph: fx.Graph, node: fx.Node, kind: str, site: str) -> None:
        source, op, _ = self._arguments(node)
        value = source.meta["val"]
        self._wanted[site] = (value.numel(), str(value.dtype).removeprefix("torch."))
        arguments = (source, kind, _OPS[op], self.team.size, site)
        with graph.inserting_after(node):
            made = graph.call_function(torch.ops.symm_plan.collective.default, arguments)
        made.meta.update(node.meta)
        made.meta.pop("eager_input_vals", None)  # of the old operator's arguments
        for wait in _waits(node):
            wait.replace_all_uses_with(made)
            graph.erase_node(wait)
        graph.erase_node(node)

    # ---- Running ----

    def _buffer(self, site: str) -> torch.Tensor:
        """The site's buffer. Collective at the first call of a graph: places all of its sites."""
        found = self._buffers.get(site)
        if found is None:
            for name, (count, dtype) in self._wanted.items():
                if name not in self._buffers:
                    self._buffers[name] = self.team.empty(count, dtype, site=name).as_torch()
            self.team.rendezvous()
            found = self._buffers[site]
        return found

    def _run(self, x: torch.Tensor, kind: str, op: Any, site: str) -> torch.Tensor:
        team = self.team
        staged = self._buffer(site).view(x.shape)
        if self._first is None or self._first == site:
            self._first = site
            team.record_period()
        staged.copy_(x)
        team.record_write(staged)
        out = x.new_empty(_shape(list(x.shape), kind, team.size))
        if kind == "all_reduce":
            team.all_reduce(staged, out, op, site=site)
        elif kind == "all_gather":
            team.all_gather(out, staged, site=site)
        else:
            team.reduce_scatter(out, staged, op, site=site)
        self.counts[kind] += 1
        return out

    def close(self) -> None:
        """Ends it on this rank, and writes its record; idempotent. Compiled graphs no longer run:
        compile them again (torch.compiler.reset)."""
        global _installed

        from torch._inductor import config

        if _installed is not self:
            return
        _installed = None
        config.post_grad_custom_post_pass = self._before
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self._buffers.clear()
        self.ctx.finalize()


# ---- Setting up -------------------------------------------------------------------------------


def _device(device: Any) -> torch.device:
    if device is not None:
        return torch.device(device)
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def _allgather(group: Any) -> Any:
    def exchange(block: bytes) -> list[bytes]:
        blocks: list[Any] = [None] * dist.get_world_size(group)
        dist.all_gather_object(blocks, block, group)
        return blocks

    return exchange


def _context(group: Any, device: torch.device, record: Any) -> symm.Context:
    """A context of the group's ranks; the device is the one that is current."""
    before = os.environ.get("SYMM_RECORD")
    if record is not None:
        os.environ["SYMM_RECORD"] = os.fspath(record)
    current = torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
    try:
        with current:
            torch.empty(1, device=device)  # makes the CUDA context current
            return symm.init(backend="cuda" if device.type == "cuda" else "host",
                             rank=dist.get_rank(group), size=dist.get_world_size(group),
                             allgather=_allgather(group))
    finally:
        if record is not None and before is None:
            del os.environ["SYMM_RECORD"]
        elif before is not None:
            os.environ["SYMM_RECORD"] = before


def install(group: Any = None, *, device: Any = None, plan: str | os.PathLike[str] | None = None,
            record: str | os.PathLike[str] | None = None) -> Planned:
    """Puts libsymm under the functional collectives of graphs that are compiled from now on.

    Collective over the group (None: the default one), whose ranks must be on one host; one at a
    time. device: of the tensors; None: the current CUDA device, else the CPU. record: a folder for
    each rank's record, written by close(). plan: a file of make(), the same on every rank.

    Raises RuntimeError if one is installed, symm.Invalid for a plan of another size or version.
    """
    global _installed

    from torch._inductor import config

    if _installed is not None:
        raise RuntimeError("symm.torch.plan: one is installed already; close() it first")
    if record is not None and plan is not None:
        raise symm.Invalid("symm.torch.plan.install(): give record or plan")
    group = dist.group.WORLD if group is None else group
    where = _device(device)
    ctx = _context(group, where, record)
    try:
        if plan is not None:
            ctx.world.load_plan(plan)
    except BaseException:
        ctx.finalize()
        raise
    _installed = Planned(group, where, ctx.world, ctx)
    _installed._before = config.post_grad_custom_post_pass
    config.post_grad_custom_post_pass = _Pass()
    return _installed


def make(records: str | os.PathLike[str], plan: str | os.PathLike[str],
         costs: str | os.PathLike[str] | None = None) -> str:
    """Merges a folder of records and writes the plan for them; what symm-plan says of it.

    On one rank, after close() of all. Beside plan.json it keeps the program, plan.program.json.
    costs: a table of symm-perf --tune; None: a model of GPUs with NVLink. Raises symm.Error with
    the tool's message.
    """
    tool, target = str(symm.executable("symm-plan")), Path(plan)
    program = target.with_suffix(".program.json")
    said = ""
    table = [] if costs is None else ["--table", os.fspath(costs)]
    for command in (["merge", os.fspath(records), "-o", str(program)],
                    ["plan", str(program), "-o", str(target), *table]):
        done = subprocess.run([tool, *command], capture_output=True, text=True)
        if done.returncode != 0:
            raise symm.Error(f"symm-plan {command[0]}: {done.stderr.strip()}")
        said += done.stdout
    return said
