# SPDX-License-Identifier: MIT
"""Finds all_reduce + additions + RMSNorm (+ 8 bits) in graphs of torch.compile, and makes one call
of libsymm of them: torch.ops.symm.all_reduce_norm.

symm.torch.fuse_norm() turns it on. The pass works on graphs of ATen operators before Inductor's
own passes, since these drop roundings. What it takes, with T bfloat16, float16 or float32:

    s = wait_tensor(_c10d_functional.all_reduce(x, "sum", group)), or symm_mem.one_shot_all_reduce;
        or a copy of it, which torch.distributed.all_reduce makes
    b = s + bias, r = b + residual     each may be absent; in T; views between them are followed
    n = r * rsqrt(mean(r * r) + eps)   in float32, over the last dimension; or aten._fused_rms_norm
    n = T(n * (constant + weight)), T(n * weight), T(n), or T(n) * weight unless `exact`
    q = float8_e4m3fn(clamp(n / scale or n * reciprocal(scale), -448, 448))    in float32

s, r and n that are used elsewhere become outputs of the call. All other graphs stay as they are:
NormFusion.left says why.
"""

from __future__ import annotations

import operator
from collections import Counter
from typing import Any

import torch
import torch.distributed as dist
from torch import fx
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files

from . import build, match
from .match import (
    DTYPES, REDUCES, Norm, Rows, calls, dtype_of, is_dense, norms, quantised, reduce_of, rows_of,
    same_shape, shape_of,
)

__all__ = ["NormFusion", "install"]

_aten = torch.ops.aten
_functional = torch.ops._c10d_functional
_installed: NormFusion | None = None


class _Left(Exception):
    """Why a graph's all_reduce stays as it is."""


# ---- Rewriting --------------------------------------------------------------------------------


class NormFusion:
    """What symm.torch.fuse_norm() returns.

    counts: a Counter of fused calls by their outputs ("residual,norm"), as graphs are compiled; a
    graph from Inductor's cache is not compiled. left: a Counter of the reasons why an all_reduce
    was not fused.
    """

    def __init__(self, group: Any, exact: bool) -> None:
        self.group, self.exact = group, exact
        self.counts: Counter[str] = Counter()
        self.left: Counter[str] = Counter()
        self._before: Any = None

    def rewrite(self, graph: fx.Graph) -> int:
        """Fuses what it finds in a functional graph of ATen operators; how many calls it made. For
        backends of torch.compile other than Inductor."""
        reasons = {node: self._objection(node) for node in graph.nodes if calls(node, *REDUCES)}
        open_ = {node for node, reason in reasons.items() if reason == _NO_NORM}
        made = 0
        for norm in norms(graph, self.exact):
            rows = rows_of(norm.rows, shape_of(norm.rows)[-1], dtype_of(norm.rows))
            if rows is None or rows.reduce not in open_:
                continue
            try:
                if norm.objection:
                    raise _Left(norm.objection)
                if not self._fuse_quantised(graph, norm, rows):
                    self._fuse(graph, norm, rows, None, [])
            except _Left as reason:
                reasons[rows.reduce] = str(reason)
                continue
            open_.remove(rows.reduce)
            del reasons[rows.reduce]
            made += 1
        self.left.update(reasons.values())
        return made

    def _objection(self, node: fx.Node) -> str:
        """Why an all_reduce cannot be fused, whatever follows; else what it lacks so far."""
        arguments: Any = node.args
        value = node.args[0].meta.get("val") if isinstance(node.args[0], fx.Node) else None
        if len(arguments) != 3 or arguments[2] != self.group.group_name:
            return "another process group"
        if arguments[1] != "sum":
            return f"the reduction {arguments[1]!r}"
        if value is None or value.dtype not in DTYPES:
            return f"the dtype {getattr(value, 'dtype', None)}"
        waits = [user for user in node.users if reduce_of(user) is node]
        if node.target is _functional.all_reduce.default and len(node.users) != len(waits):
            return "a sum that is used before it is awaited"
        if node.target is _functional.all_reduce.default and len(waits) != 1:
            return "a sum that is awaited twice"
        return _NO_NORM

    def _fuse_quantised(self, graph: fx.Graph, norm: Norm, rows: Rows) -> bool:
        """With 8 bits, if they are there and their scale is not computed from the norm."""
        scale, quant = quantised(norm.result)
        try:
            if quant:
                self._fuse(graph, norm, rows, scale, quant)
        except _Left:
            return False
        return bool(quant)

    def _fuse(self, graph: fx.Graph, norm: Norm, rows: Rows, scale: Any,
              quant: list[fx.Node]) -> None:
        inner = {*quant, *norm.nodes, *rows.nodes}
        values = {"sum": rows.total, "residual": rows.rows, "norm": [norm.result]}
        ends = [norm.result, *rows.nodes]
        for node in norm.nodes + quant[1:]:
            if node is not norm.result and any(user not in inner for user in node.users):
                raise _Left("a step inside the norm that is used elsewhere")
        inner.update(norm.kept)
        if any(user not in inner for node in rows.biased for user in node.users):
            raise _Left("the sum with the bias, which is used elsewhere")
        wanted = {name: [node for node in nodes if self._is_shown(node, inner, norm.kept)]
                  for name, nodes in values.items()}
        if quant:
            wanted["quant"] = [quant[0]]
        elif not wanted["norm"]:
            raise _Left("a norm without use")
        outputs = [name for name, nodes in wanted.items() if nodes]
        place = self._place(graph, norm, rows, scale, inner, ends + quant)
        self._check_shapes(rows, wanted)
        results = self._call(graph, place, norm, rows, scale, outputs)
        for name, result in zip(outputs, results):
            for node in wanted[name]:
                self._replace(graph, node, result)
        for node in norm.kept:  # the call may be behind it
            if node.users:
                node.args[0].append(node)
        for node in dict.fromkeys([*quant, *norm.nodes, *norm.kept, *rows.nodes]):
            if not node.users:
                graph.erase_node(node)
        self.counts[",".join(outputs)] += 1

    @staticmethod
    def _is_shown(node: fx.Node, inner: set[fx.Node], kept: list[fx.Node]) -> bool:
        """Whether a node has users that stay. A conversion of the rows stays with its users."""
        return any(user not in inner or (user in kept and any(u not in inner for u in user.users))
                   for user in node.users)

    @staticmethod
    def _place(graph: fx.Graph, norm: Norm, rows: Rows, scale: Any, inner: set[fx.Node],
               ends: list[fx.Node]) -> fx.Node:
        """The node after which the call goes: after its arguments, before its results' uses."""
        order = {node: i for i, node in enumerate(graph.nodes)}
        arguments: list[Any] = [rows.input, rows.bias, rows.residual, norm.weight, scale,
                                rows.total[-1]]
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        place = max((node for node in (*arguments, *placeholders) if isinstance(node, fx.Node)),
                    key=order.__getitem__)
        users = {user for node in (*ends, *norm.kept) for user in node.users} - inner
        if (any(order[user] <= order[place] for user in users)
                or not inner.isdisjoint(arguments[1:-1])):
            raise _Left("a sum that is used before the residual, weight or scale is there")
        return place

    @staticmethod
    def _check_shapes(rows: Rows, wanted: dict[str, list[fx.Node]]) -> None:
        shape = shape_of(rows.input)
        for node in (node for nodes in wanted.values() for node in nodes):
            if not is_dense(node):
                raise _Left("a result that is not contiguous")
            if not same_shape(shape_of(node), shape) and any(
                    not isinstance(n, int) for n in shape_of(node)):
                raise _Left("views of a shape that is not static")

    def _call(self, graph: fx.Graph, place: fx.Node, norm: Norm, rows: Rows, scale: Any,
              outputs: list[str]) -> list[fx.Node]:
        target = torch.ops.symm.all_reduce_norm.default
        options: dict[str, Any] = {"outputs": ",".join(outputs)}
        for name, node in (("residual", rows.residual), ("bias", rows.bias), ("scale", scale)):
            if node is not None:
                options[name] = node
        if norm.offset:
            options["weight_offset"] = norm.offset
        if scale is not None:
            options["quant"] = "tensor"
        arguments = (rows.input, self.group.group_name, norm.weight, norm.eps)
        results = []
        with graph.inserting_after(place):
            call = graph.call_function(target, arguments, options)
        call.meta["val"] = target(*fx.map_arg(arguments, _value), **fx.map_arg(options, _value))
        if "stack_trace" in norm.result.meta:
            call.meta["stack_trace"] = norm.result.meta["stack_trace"]
        last = call
        for i in range(len(outputs)):
            with graph.inserting_after(last):
                last = graph.call_function(operator.getitem, (call, i))
            last.meta["val"] = call.meta["val"][i]
            results.append(last)
        return results

    @staticmethod
    def _replace(graph: fx.Graph, node: fx.Node, result: fx.Node) -> None:
        if not same_shape(shape_of(node), shape_of(result)):
            arguments = (result, shape_of(node))
            with graph.inserting_after(result):
                result = graph.call_function(_aten.view.default, arguments)
            result.meta["val"] = _aten.view.default(arguments[0].meta["val"], arguments[1])
        node.replace_all_uses_with(result)

    def close(self) -> None:
        """Ends it on this rank: graphs that are compiled later are left as they are. Idempotent.
        Graphs that were compiled keep their calls."""
        global _installed

        from torch._inductor import config

        if _installed is self:
            _installed = None
            config.joint_custom_pre_pass = self._before


_NO_NORM = "no norm of it was found"


def _value(node: fx.Node) -> Any:
    return node.meta["val"]


# ---- Setting up -------------------------------------------------------------------------------


class _Pass(CustomGraphPass):
    """Inductor's pass. It has no state, since Inductor copies and pickles its configuration."""

    def __call__(self, graph: fx.Graph) -> None:
        if _installed is not None:
            if _installed._before is not None:
                _installed._before(graph)
            _installed.rewrite(graph)

    def uuid(self) -> Any:
        """Of the pass and what it depends on, for Inductor's cache; None: not to be cached."""
        if _installed is None:
            return None
        before = _installed._before.uuid() if _installed._before is not None else b""
        if before is None:
            return None
        extra = f"{_installed.group.group_name} {_installed.exact} {before!r}"
        return get_hash_for_files((__file__, match.__file__), extra)


def install(group: Any, device: Any, exact: bool) -> NormFusion:
    """See symm.torch.fuse_norm."""
    global _installed

    from torch._inductor import config

    if _installed is not None:
        raise RuntimeError("symm.torch.fuse_norm: it is on already; close() it first")
    group = dist.group.WORLD if group is None else group
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    where = torch.device(device)
    if where.type == "cuda" and where.index is None:
        where = torch.device("cuda", torch.cuda.current_device())
    build.load().join(group.group_name, str(where))
    _installed = NormFusion(group, exact)
    _installed._before = config.joint_custom_pre_pass
    config.joint_custom_pre_pass = _Pass()
    return _installed
