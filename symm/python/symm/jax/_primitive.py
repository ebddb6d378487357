# SPDX-License-Identifier: MIT
"""The primitive of symm.jax: its lowering to XLA's custom calls, its derivatives and batching.

It uses JAX's internal interface for ordered effects, which has no public form.
"""

from __future__ import annotations

import ctypes
import operator
import os
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
from jax._src import core, dispatch, effects
from jax._src import ffi as _ffi
from jax._src.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

from .. import _compile, _core, _paths
from .._core import Team

_SOURCE = Path(__file__).absolute().parent / "src"
NAMES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast")
ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, ALL_TO_ALL, BROADCAST = range(len(NAMES))
_OPS = {"sum": 0, "avg": 1, "prod": 2, "min": 3, "max": 4, "band": 5, "bor": 6, "bxor": 7}
_LINEAR = (_OPS["sum"], _OPS["avg"])
_BITWISE = (_OPS["band"], _OPS["bor"], _OPS["bxor"])
# JAX's names. Its float8_e4m3 is another format than libsymm's, which JAX calls float8_e4m3fn.
_REDUCED = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64",
            "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8")

# A compiled program names a team by its address, so it must live as long as the process.
_teams: dict[int, Team] = {}
_library: ctypes.CDLL


# ---- The handler ------------------------------------------------------------------------------


def _build(target: Path) -> None:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        raise RuntimeError("symm.jax needs a C compiler for its first use: install gcc, or set CC")
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = str(Path(folder) / target.name)
        _compile.run([
            compiler, "-std=gnu11", "-O2", "-fPIC", "-shared", "-w", f"-I{_SOURCE}",
            f"-I{jax.ffi.include_dir()}", f"-I{_paths.include_dir()}", "-o", made,
            str(_SOURCE / "handler.c"),
        ], f"symm.jax for jaxlib {jaxlib.__version__}")
        os.replace(made, target)


def _register() -> ctypes.CDLL:
    sums = _compile.digest(_SOURCE.glob("*.[ch]"))
    target = _compile.cache() / f"_symm_jax-{jaxlib.__version__}-{sums}.so"
    _compile.once(target, _build)
    library = ctypes.CDLL(str(target))
    library.symm_jax_start.argtypes = [ctypes.c_void_p]
    library.symm_jax_start(_core._direct_call())
    for platform, handler in (("cpu", library.symm_jax_cpu), ("CUDA", library.symm_jax_cuda)):
        capsule = jax.ffi.pycapsule(handler)
        jax.ffi.register_ffi_target("symm_collective", capsule, platform=platform)
    return library


def recover() -> None:
    dispatch.runtime_tokens.current_tokens.pop(_order, None)


def counters() -> dict[str, tuple[int, int]]:
    numbers = (ctypes.c_uint64 * (2 * len(NAMES)))()
    _library.symm_jax_counters(numbers)
    return {name: (numbers[2 * i], numbers[2 * i + 1]) for i, name in enumerate(NAMES)}


# ---- The primitive ----------------------------------------------------------------------------


class _Order(effects.Effect):
    def __str__(self) -> str:
        return "symm"


_order = _Order()
for _kept in (effects.ordered_effects, effects.lowerable_effects,
              effects.control_flow_allowed_effects, effects.custom_derivatives_allowed_effects,
              effects.remat_allowed_effects, effects.shardable_ordered_effects):
    _kept.add_type(_Order)

_collective = core.Primitive("symm_collective")
_collective.def_impl(partial(dispatch.apply_primitive, _collective))


def _outer(kind: int, first: Any, of: tuple[Any, ...]) -> tuple[Any, ...]:
    """What describes the operand's dimensions, for the result's; first: of the ranks'."""
    if kind == ALL_GATHER:
        return (first, *of)
    return of[1:] if kind == REDUCE_SCATTER else of


def _bits(dtype: Any) -> int:
    """Of an element in XLA's memory: an int4 has an itemsize of 1."""
    if jnp.issubdtype(dtype, jnp.integer):
        return int(jnp.iinfo(dtype).bits)
    if jnp.issubdtype(dtype, jnp.floating):
        return int(jnp.finfo(dtype).bits)
    return 8 * int(dtype.itemsize)


def _check_dtype(kind: int, dtype: Any, op: int) -> None:
    """Raises for what libsymm cannot do, as long as the program is traced."""
    what, name = f"symm.jax.{NAMES[kind]}()", dtype.name
    if kind in (ALL_REDUCE, REDUCE_SCATTER):
        if name not in _REDUCED:
            raise _core.Unsupported(
                f"{what}: {name} has no reductions (which the derivatives of the other calls are, "
                "too); there are those of " + " ".join(_REDUCED))
        if op in _BITWISE and not jnp.issubdtype(dtype, jnp.integer):
            raise _core.Invalid(f"{what}: band, bor and bxor are for integers, not for {name}")
    elif _bits(dtype) < 8:
        raise _core.Unsupported(f"{what}: elements of {name} are parts of a byte; pass x.astype() "
                                "of 8 bits")


def _abstract(x: Any, *, team: int, kind: int, op: int, **_: Any) -> Any:
    _check_dtype(kind, x.dtype, op)
    # Within shard_map the result differs along the mesh's axes that x differs along.
    sharding = NamedSharding(x.sharding.mesh,
                             PartitionSpec(*_outer(kind, None, tuple(x.sharding.spec))))
    shape = _outer(kind, _teams[team].size, x.shape)
    return x.update(shape=shape, weak_type=False, sharding=sharding), {_order}


_collective.def_effectful_abstract_eval(_abstract)


def _devices(context: Any) -> int:
    """Of the program, by JAX's context of jit, of shard_map or of pmap."""
    if hasattr(context, "num_devices"):
        return int(context.num_devices)
    mesh = getattr(context, "mesh", None)
    return int(mesh.size) if mesh is not None else int(context.axis_env.nreps)


def _lower(ctx: Any, x: Any, *, team: int, kind: int, op: int, root: int) -> Any:
    aval, = ctx.avals_in
    devices = _devices(ctx.module_context.axis_context)
    if devices > 1:  # each would make the call, in no order
        raise _core.Unsupported(
            f"symm.jax.{NAMES[kind]}(): the program runs on {devices} devices of this process, and "
            "a rank makes a call once; start a process for each device")
    count = int(np.prod(aval.shape, dtype=np.int64))
    if kind in (REDUCE_SCATTER, ALL_TO_ALL):
        count //= _teams[team].size  # of one rank's block
    token = ctx.tokens_in.get(_order)
    inner = ctx.replace(avals_in=[core.abstract_token, *ctx.avals_in],
                        avals_out=[core.abstract_token, *ctx.avals_out])
    token, result = _ffi.build_ffi_lowering_function("symm_collective", has_side_effect=True)(
        inner, token, x, team=np.int64(team), kind=np.int64(kind), op=np.int64(op),
        root=np.int64(root), count=np.int64(count),
        itemsize=np.int64(aval.dtype.itemsize),
    ).results
    ctx.set_tokens_out(ctx.tokens_in.update_tokens(mlir.TokenSet({_order: token})))
    return [result]


for _platform in ("cpu", "cuda"):
    mlir.register_lowering(_collective, _lower, platform=_platform)


def _jvp(primals: Any, tangents: Any, *, kind: int, op: int, **parameters: Any) -> Any:
    x, = primals
    tangent, = tangents
    out = _collective.bind(x, kind=kind, op=op, **parameters)
    if kind in (ALL_REDUCE, REDUCE_SCATTER) and op not in _LINEAR:
        raise NotImplementedError("symm.jax: only reductions by sum and avg have derivatives")
    if isinstance(tangent, ad.Zero):
        return out, ad.Zero.from_primal_value(out)
    return out, _collective.bind(tangent, kind=kind, op=op, **parameters)


def _transpose(cotangent: Any, x: Any, *, team: int, kind: int, op: int, root: int) -> Any:
    if isinstance(cotangent, ad.Zero):
        return [ad.Zero(x.aval)]
    call = partial(_collective.bind, team=team, root=root)
    if kind == BROADCAST:
        total = call(cotangent, kind=ALL_REDUCE, op=_OPS["sum"])
        return [total if _teams[team].rank == root else jnp.zeros_like(total)]
    turned = {ALL_GATHER: REDUCE_SCATTER, REDUCE_SCATTER: ALL_GATHER}.get(kind, kind)
    result = call(cotangent, kind=turned, op=_OPS["sum"] if kind == ALL_GATHER else op)
    if kind == REDUCE_SCATTER and op == _OPS["avg"]:
        result = result / _teams[team].size
    return [result]


def _batch(args: Any, dims: Any, *, kind: int, **parameters: Any) -> Any:
    (x,), (dim,) = args, dims
    has_blocks = kind in (REDUCE_SCATTER, ALL_TO_ALL)
    x = jnp.moveaxis(x, dim, 1 if has_blocks else 0)
    out = _collective.bind(x, kind=kind, **parameters)
    return out, 1 if kind in (ALL_TO_ALL, ALL_GATHER) else 0


ad.primitive_jvps[_collective] = _jvp
ad.primitive_transposes[_collective] = _transpose
batching.primitive_batchers[_collective] = _batch


# ---- Calls ----------------------------------------------------------------------------------


def bind(kind: int, x: Any, team: Team, op: str, root: int) -> Any:
    """A collective of x, checked; kind: an index of NAMES."""
    what = f"symm.jax.{NAMES[kind]}()"
    if not isinstance(team, Team):
        raise TypeError(f"{what}: the team is a {type(team).__name__}, not a symm.Team")
    if team.ctx.thread_group is not None and team.size > 1:
        raise _core.Unsupported(f"{what}: the team's ranks are threads of one process, where JAX "
                                "makes one call after the other; start a process for each rank")
    if not isinstance(op, str) or op not in _OPS:
        raise _core.Invalid(f"{what}: the reduction {op!r} is unknown; there are "
                            + " ".join(_OPS))
    if not hasattr(type(root), "__index__") or isinstance(root, jax.core.Tracer):
        raise TypeError(f"{what}: root must be an integer that is known when the program is "
                        f"traced, not {type(root)}")
    root = operator.index(root)
    if not 0 <= root < team.size:
        raise _core.Invalid(f"{what}: root {root} of {team.size} ranks")
    if isinstance(x, _core.Buffer):
        raise TypeError(f"{what}: x is a symm.Buffer: pass jax.dlpack.from_dlpack(x)")
    try:
        x = jnp.asarray(x)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{what}: x must be an array, not {type(x)}; jax.tree.map makes the call "
                        "for each array of a tree") from error
    if kind in (REDUCE_SCATTER, ALL_TO_ALL) and (x.ndim == 0 or x.shape[0] != team.size):
        raise _core.Invalid(f"{what}: dimension 0 of {x.shape} is not the team's {team.size} "
                            "ranks")
    _teams[id(team)] = team
    return _collective.bind(x, team=id(team), kind=kind, op=_OPS[op], root=root)


_library = _register()
