# SPDX-License-Identifier: MIT
"""What symm.torch.fusion looks for in a graph of ATen operators: the rows that come of an
all_reduce, the norm of rows, 8 bits of a norm. Nothing is changed here.

A value's dtype and shape are those of node.meta["val"]; a node without it matches nothing."""

from __future__ import annotations

import operator
from typing import Any, Iterator

import torch
from torch import fx

_aten, _prims = torch.ops.aten, torch.ops.prims
_functional = torch.ops._c10d_functional
_VIEWS = (_aten.view.default, _aten.reshape.default, _aten._unsafe_view.default)
_ADDS = (_aten.add.Tensor, _aten.add.Scalar)
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
_MAX_HIDDEN = 16384
_LARGEST = 448.0  # of float8_e4m3fn
_LARGEST_FLOAT = torch.finfo(torch.float32).max
REDUCES = (_functional.all_reduce.default, torch.ops.symm_mem.one_shot_all_reduce.default)


# ---- Nodes ------------------------------------------------------------------------------------


def calls(node: Any, *targets: Any) -> bool:
    return isinstance(node, fx.Node) and node.op == "call_function" and node.target in targets


def dtype_of(node: Any) -> Any:
    return getattr(node.meta.get("val"), "dtype", None) if isinstance(node, fx.Node) else None


def shape_of(node: fx.Node) -> list[Any]:
    return list(node.meta["val"].shape)


def same_shape(a: list[Any], b: list[Any]) -> bool:
    """Equal for sure: numbers, or the same symbols. Symbols are not compared by ==, which makes
    a guard, and raises where the size comes from data."""
    return len(a) == len(b) and all(
        x == y if isinstance(x, int) and isinstance(y, int) else str(x) == str(y)
        for x, y in zip(a, b))


def _ones(shape: list[Any]) -> bool:
    return same_shape(shape, [1] * len(shape))


def is_dense(node: fx.Node) -> bool:
    """Whether a node's tensor is contiguous for sure."""
    shape, expected = shape_of(node), 1
    for length, stride in zip(reversed(shape), reversed(node.meta["val"].stride())):
        if not same_shape([length], [1]) and not same_shape([stride], [expected]):
            return False
        expected = expected * length
    return True


def _source(node: Any, dtype: Any) -> Any:
    """What `node` converts to `dtype`; None: it is no conversion to it."""
    if calls(node, _prims.convert_element_type.default) and node.args[1] == dtype:
        return node.args[0]
    if calls(node, _aten._to_copy.default) and node.kwargs.get("dtype") == dtype:
        source = node.args[0]
        same = {"dtype": dtype, "layout": torch.strided, "device": source.meta["val"].device}
        return source if all(same.get(k) == v for k, v in node.kwargs.items()) else None
    return None


def _same(a: Any, b: Any) -> bool:
    """The same value: one node, or two conversions of one node."""
    if a is b:
        return True
    source = _source(a, dtype_of(a))
    return source is not None and source is _source(b, dtype_of(a))


def _unview(node: Any, hidden: int) -> tuple[Any, list[Any]]:
    """What a node is a view of, with the same last dimension, or was copied from, and the nodes
    from it to that. The in-place all_reduce of torch.distributed is one, and then a copy."""
    path = [node]
    while True:
        if calls(node, *_VIEWS) and same_shape(shape_of(node.args[0])[-1:], [hidden]):
            node = node.args[0]
        elif calls(node, _aten.copy.default) and _is_like(node.args[1], node):
            node = node.args[1]
        else:
            return node, path
        path.append(node)


def _is_like(a: Any, b: fx.Node) -> bool:
    """Tensors of one dtype, device and shape."""
    return (isinstance(a, fx.Node) and dtype_of(a) is not None and dtype_of(a) == dtype_of(b)
            and a.meta["val"].device == b.meta["val"].device
            and same_shape(shape_of(a), shape_of(b)))


def _sole_user(node: fx.Node) -> Any:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_add(node: Any) -> bool:
    return calls(node, *_ADDS) and node.kwargs.get("alpha", 1) == 1


def _pairs(node: fx.Node) -> list[tuple[Any, Any]]:
    """The two arguments in both orders."""
    return [(node.args[0], node.args[1]), (node.args[1], node.args[0])]


def _is_row(node: Any, hidden: int) -> bool:
    """A vector of `hidden` elements, which is the same for all rows."""
    if not isinstance(node, fx.Node) or "val" not in node.meta:
        return False
    shape = shape_of(node)
    return same_shape(shape[-1:], [hidden]) and _ones(shape[:-1])


# ---- From the all_reduce to the rows that are normalised --------------------------------------


class Rows:
    """s, b and r of a norm: the nodes that have these values, and what they are made of."""

    def __init__(self, reduce: fx.Node, total: list[Any], biased: list[Any], rows: list[Any],
                 bias: Any = None, residual: Any = None) -> None:
        self.reduce, self.total, self.biased, self.rows = reduce, total, biased, rows
        self.bias, self.residual = bias, residual

    @property
    def input(self) -> fx.Node:
        first: Any = self.reduce.args[0]
        assert isinstance(first, fx.Node)
        return first

    @property
    def nodes(self) -> list[fx.Node]:
        """From the end to the beginning."""
        return [*self.rows, *self.biased, *self.total, self.reduce]


def reduce_of(node: Any) -> Any:
    """The all_reduce, of any group, whose result `node` is; None: of none."""
    if calls(node, _functional.wait_tensor.default):
        node = node.args[0]
        return node if calls(node, _functional.all_reduce.default) else None
    return node if calls(node, torch.ops.symm_mem.one_shot_all_reduce.default) else None


def _terms(node: Any, dtype: Any) -> Iterator[tuple[Any, Any]]:
    """An addition in `dtype` as (term of its shape, other term), in both orders."""
    if not calls(node, _aten.add.Tensor) or node.kwargs.get("alpha", 1) != 1:
        return
    for term, other in _pairs(node):
        if (dtype_of(term) == dtype_of(other) == dtype_of(node) == dtype
                and same_shape(shape_of(term), shape_of(node))):
            yield term, other


def rows_of(rows: Any, hidden: int, dtype: Any) -> Rows | None:
    """How the tensor `rows` comes of an all_reduce; None: in none of the ways that are known."""
    node, path = _unview(rows, hidden)
    if reduce_of(node):
        return Rows(reduce_of(node), path, [], [])
    for term, other in _terms(node, dtype):
        base, inner = _unview(term, hidden)
        is_residual = same_shape(shape_of(other), shape_of(node))
        if not is_residual and not _is_row(other, hidden):
            continue
        if reduce_of(base):
            kind = "residual" if is_residual else "bias"
            return Rows(reduce_of(base), inner, [], path, **{kind: other})
        for first, bias in _terms(base, dtype) if is_residual else ():
            source, innermost = _unview(first, hidden)
            if _is_row(bias, hidden) and reduce_of(source):
                return Rows(reduce_of(source), innermost, inner, path, bias, other)
    return None


# ---- The norm ---------------------------------------------------------------------------------


class Norm:
    """A norm of rows: `result` has n; `nodes` are what it is made of, from the end."""

    def __init__(self, rows: fx.Node, eps: float, dims: list[int]) -> None:
        self.rows, self.eps, self.dims = rows, eps, dims
        self.weight: Any = None
        self.offset = 0.0
        self.result: Any = None
        self.nodes: list[fx.Node] = []
        self.kept: list[fx.Node] = []  # of these, what may be used elsewhere
        self.objection: str | None = None


def _decomposed(root: fx.Node) -> Norm | None:
    """rsqrt(mean(rows squared) + eps), as what it is part of; without the weight yet."""
    plus: Any = root.args[0]
    if not _is_add(plus) or not _number(plus.args[1]):
        return None
    mean = plus.args[0]
    if not calls(mean, _aten.mean.dim) or mean.kwargs or list(mean.args[2:]) != [True]:
        return None
    square = mean.args[0]
    if calls(square, _aten.pow.Tensor_Scalar) and square.args[1] == 2:
        wide = square.args[0]
    elif calls(square, _aten.mul.Tensor) and _same(*square.args):
        wide = square.args[0]
    else:
        return None
    if dtype_of(wide) != torch.float32:
        return None
    rows = _source(wide, torch.float32)
    eps: Any = plus.args[1]
    norm = Norm(wide if rows is None else rows, float(eps), list(mean.args[1]))
    norm.nodes = [root, plus, mean, square]
    if rows is not None:
        norm.kept = [each for each in rows.users if _same(each, wide)]
    scaled = _sole_user(root)
    if not calls(scaled, _aten.mul.Tensor) or not any(
            a is root and _same(b, wide) for a, b in _pairs(scaled)):
        norm.objection = "a norm whose factor is used otherwise"
        return norm
    norm.nodes.insert(0, scaled)
    norm.result = scaled
    return norm


def _whole(node: fx.Node) -> Norm | None:
    """aten._fused_rms_norm of a last dimension."""
    arguments: tuple[Any, ...] = (*node.args, None, None)
    rows, shape, weight, eps = arguments[:4]
    if not isinstance(rows, fx.Node) or node.kwargs or not isinstance(shape, (list, tuple)):
        return None
    norm = Norm(rows, float(torch.finfo(torch.float32).eps if eps is None else eps),
                 [-i - 1 for i in range(len(shape))])
    norm.weight, norm.nodes = weight, [node]
    users = list(node.users)
    if any(not calls(user, operator.getitem) or user.args[1] != 0 for user in users):
        norm.objection = "a norm whose factor is used otherwise"
    elif len(users) != 1:
        norm.objection = "a norm that is taken twice"
    else:
        norm.result = users[0]
        norm.nodes.insert(0, users[0])
    return norm


def _factor(node: Any, hidden: int, dtype: Any) -> tuple[Any, float] | None:
    """(weight, offset) of what float32 rows are multiplied by; None: of another form."""
    offset = 0.0
    if not _is_row(node, hidden):
        return None
    if _is_add(node) and dtype_of(node) == torch.float32:
        for constant, other in _pairs(node):
            if _number(constant):
                offset, node = float(constant), other
                break
    if not abs(offset) <= _LARGEST_FLOAT:
        return None
    source = _source(node, torch.float32)
    if source is not None and dtype_of(source) == dtype:
        node = source
    return (node, offset) if dtype_of(node) == dtype and _is_row(node, hidden) else None


def _take_weight(norm: Norm, hidden: int, dtype: Any, exact: bool) -> None:
    """Follows norm.result, in float32, to n in dtype; sets norm.objection where it does not."""
    node = norm.result
    user = _sole_user(node)
    if calls(user, _aten.mul.Tensor) and dtype_of(user) == torch.float32:
        factors = (_factor(b, hidden, dtype) for a, b in _pairs(user) if a is node)
        found = next((factor for factor in factors if factor), None)
        if found is not None:
            norm.weight, norm.offset = found
            norm.nodes.insert(0, user)
            node = norm.result = user
    if dtype == torch.float32:
        return
    user = _sole_user(node)
    if user is None or _source(user, dtype) is not node:
        norm.objection = "a norm that is used before it is rounded"
        return
    norm.nodes.insert(0, user)
    norm.result = user
    after = _sole_user(user)
    if not exact and norm.weight is None and calls(after, _aten.mul.Tensor):
        for a, b in _pairs(after):
            if a is user and _is_row(b, hidden) and dtype_of(b) == dtype_of(after) == dtype:
                norm.weight, norm.result = b, after
                norm.nodes.insert(0, after)
                return


def norms(graph: fx.Graph, exact: bool) -> Iterator[Norm]:
    """The norms in a graph, of any tensors, whose rows have the last dimension `hidden`."""
    for node in list(graph.nodes):
        if calls(node, _aten.rsqrt.default):
            norm = _decomposed(node)
        elif calls(node, _aten._fused_rms_norm.default):
            norm = _whole(node)
        else:
            continue
        if norm is None or dtype_of(norm.rows) not in DTYPES or not shape_of(norm.rows):
            continue
        shape, dtype = shape_of(norm.rows), dtype_of(norm.rows)
        if [n % len(shape) for n in norm.dims] != [len(shape) - 1]:
            norm.objection = "a norm over other dimensions than the last"
        elif not isinstance(shape[-1], int) or not 1 <= shape[-1] <= _MAX_HIDDEN:
            norm.objection = f"rows of {shape[-1]} columns"
        elif not 0 <= norm.eps <= _LARGEST_FLOAT:
            norm.objection = f"the eps {norm.eps}"
        elif not norm.objection and calls(node, _aten.rsqrt.default):
            _take_weight(norm, shape[-1], dtype, exact)
        elif norm.weight is not None and dtype_of(norm.weight) != dtype:
            norm.objection = "a weight of another dtype"
        yield norm


# ---- Quantisation -----------------------------------------------------------------------------


def _clamped(node: Any) -> tuple[Any, list[fx.Node]]:
    """What is clamped to float8_e4m3fn's range, and the nodes that do it; (None, []): nothing."""
    if calls(node, _aten.clamp.default) and tuple(node.args[1:]) == (-_LARGEST, _LARGEST):
        return node.args[0], [node]
    bounds = {_aten.clamp_min.default: -_LARGEST, _aten.clamp_max.default: _LARGEST}
    if calls(node, *bounds) and node.args[1] == bounds.pop(node.target):
        inner = node.args[0]
        if calls(inner, *bounds) and inner.args[1] == bounds[inner.target]:
            return inner.args[0], [node, inner]
    return None, []


def quantised(n: fx.Node) -> tuple[Any, list[fx.Node]]:
    """The static scale, and the nodes from the 8 bits back to n; (None, []): n is not quantised."""
    wides = [n] if dtype_of(n) == torch.float32 else [
        user for user in n.users if _source(user, torch.float32) is n]
    for wide in wides:
        for divided in wide.users:
            if dtype_of(divided) != torch.float32:
                continue
            scale: Any = None
            if calls(divided, _aten.div.Tensor) and divided.args[0] is wide:
                scale = divided.args[1]
            elif calls(divided, _aten.mul.Tensor):
                scale = next((b.args[0] for a, b in _pairs(divided)
                              if a is wide and calls(b, _aten.reciprocal.default)), None)
            if (dtype_of(scale) != torch.float32 or not _ones(shape_of(scale))
                    or scale.meta["val"].device != wide.meta["val"].device):
                continue
            node, nodes = _sole_user(divided), [divided]
            while node is not None and _source(node, torch.float8_e4m3fn) is None:
                nodes.insert(0, node)
                node = _sole_user(node) if len(nodes) < 4 else None
            if node is not None and _clamped(node.args[0]) == (divided, nodes[:-1]):
                return scale, [node, *nodes, *([] if wide is n or len(wide.users) > 1 else [wide])]
    return None, []
