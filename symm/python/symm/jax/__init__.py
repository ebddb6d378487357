# SPDX-License-Identifier: MIT
"""libsymm's collectives in JAX programs of one process a rank, jitted or not.

    import symm.jax
    ctx = symm.init()                          # before or after JAX's own initialization
    y = symm.jax.all_reduce(x, ctx.world)      # in jax.jit, grad, vmap, scan, shard_map

A collective is a call of XLA's foreign function interface, on the CPU (teams on the host) or on
JAX's CUDA stream (teams on CUDA). It has an ordered effect of JAX: all collectives run in the order
of the program, which must be the same on all ranks. The C part is compiled for the installed jaxlib
at first use (a second; a C compiler is needed).

Derivatives (forward and reverse) are those of a loss that is summed over all ranks: the cotangent
of an all_reduce is the all_reduce of the cotangents, that of an all_gather their reduce_scatter.
Reductions other than "sum" and "avg" have none. A failure raises jax.errors.JaxRuntimeError with
libsymm's sentence, and so do all later calls of the thread until recover(). Ranks that are threads
of one process (symm.ThreadRanks) are refused, and so are programs of several devices of a process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._core import Team

if TYPE_CHECKING:
    from jax import Array

__all__ = [
    "all_gather", "all_reduce", "all_to_all", "broadcast", "counters", "recover",
    "reduce_scatter",
]


def _call(name: str, x: Any, team: Team, op: str = "sum", root: int = 0) -> Any:
    from . import _primitive

    return _primitive.bind(_primitive.NAMES.index(name), x, team, op, root)


def all_reduce(x: Any, team: Team, op: str = "sum") -> Array:
    """Reduces x (any shape) of all ranks; the same shape and bits on every rank.

    op: sum, avg, prod, min, max, and for integers band, bor, bxor; symm.Invalid: another one. x is
    of float64, float32, float16, bfloat16, float8_e4m3fn, float8_e5m2, or an integer type of 8 to
    64 bits; symm.Unsupported: of another dtype (bool, complex64, int4, other 8-bit floats).
    """
    result: Array = _call("all_reduce", x, team, op)
    return result


def reduce_scatter(x: Any, team: Team, op: str = "sum") -> Array:
    """Block `rank` of the reduced x: [size, ...] -> [...], as lax.psum_scatter.

    op and dtypes as for all_reduce.
    """
    result: Array = _call("reduce_scatter", x, team, op)
    return result


def all_gather(x: Any, team: Team) -> Array:
    """x of all ranks: [...] -> [size, ...], as lax.all_gather.

    Any dtype of whole bytes, keys of jax.random too; symm.Unsupported: int4, float4_e2m1fn and the
    like.
    """
    result: Array = _call("all_gather", x, team)
    return result


def all_to_all(x: Any, team: Team) -> Array:
    """Block i goes to rank i: [size, ...] -> [size, ...]. Dtypes as for all_gather."""
    result: Array = _call("all_to_all", x, team)
    return result


def broadcast(x: Any, team: Team, root: int = 0) -> Array:
    """x of rank `root`, on every rank. Dtypes as for all_gather; root: a number of Python."""
    result: Array = _call("broadcast", x, team, root=root)
    return result


def counters() -> dict[str, tuple[int, int]]:
    """What libsymm has moved for JAX in this process: operation -> (calls, bytes of operands)."""
    from . import _primitive

    return _primitive.counters()


def recover() -> None:
    """Lets this thread call again after a failure, on a team that works (Team.shrink).

    JAX orders calls by handing each the token of the one before. A failed call's token fails all
    later ones, and is reported at exit; this drops it. Not while a jitted program is running.
    """
    from . import _primitive

    _primitive.recover()
