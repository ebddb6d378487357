# SPDX-License-Identifier: MIT
"""libsymm under torch.distributed: the c10d backend "symm", symmetric memory, fused norms.

    import symm.torch                        # torch >= 2.14 finds it without this line
    torch.distributed.init_process_group("symm")
    symm.torch.enable_symmetric_memory()     # for torch.distributed._symmetric_memory
    symm.torch.enable_operators()            # torch.ops.symm.all_reduce_norm
    with symm.torch.capture(): ...           # around captures of CUDA graphs
    symm.torch.fuse_norm()                   # torch.compile uses it

The C++ part is compiled for the installed torch at first use (symm.torch.build).
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

__all__ = ["capture", "counters", "enable_operators", "enable_symmetric_memory", "fuse_norm",
           "register", "register_backend"]


def _make_backend(options: Any, _: Any) -> Any:
    from . import build

    timeout = options.timeout
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
    return build.load().make_backend(
        options.store, options.group_rank, options.group_size, seconds
    )


def register_backend() -> None:
    """Makes init_process_group("symm") known to torch; idempotent."""
    from torch import distributed

    if distributed.is_available() and "SYMM" not in distributed.Backend._plugins:
        distributed.Backend.register_backend(
            "symm", _make_backend, extended_api=True, devices=["cpu", "cuda"]
        )


def enable_symmetric_memory() -> None:
    """Makes libsymm the backend of torch.distributed._symmetric_memory ("SYMM"); idempotent.

    For CUDA tensors it calls torch's set_backend, which torch refuses (RuntimeError) once memory
    of another backend has been allocated. CPU tensors have no other backend. The process groups
    may be of any c10d backend; their ranks must be on one host.
    """
    import torch
    from torch.distributed import _symmetric_memory

    from . import build

    build.load()
    if torch.cuda.is_available():
        _symmetric_memory.set_backend("SYMM")  # type: ignore[arg-type]


def enable_operators() -> None:
    """Makes torch.ops.symm.all_reduce_norm known; idempotent. The backend "symm" and symmetric
    memory make it known too.

    all_reduce_norm(input, group_name, weight=None, eps=1e-6, *, residual=None, bias=None,
    weight_offset=0.0, outputs="norm", quant="none", scale=None, round_partial=False,
    constant=False) returns a list of new tensors: those that `outputs` names, in its order,
    separated by commas. "sum": s, input of all ranks added in float32 in rank order and rounded;
    "residual": r = s + bias + residual, rounded after each addition; "norm": n = r / sqrt(mean of
    r * r over the last dimension + eps) * (weight_offset + weight); with a quant also "quant": n
    divided by a scale in float8_e4m3fn, and "scale" where it is computed. quant "tensor" takes the
    float32 tensor scale of one element; "row" returns a scale for each row, (..., 1); "group" one
    for 128 columns, (..., groups); "group_column" the same as (rows, groups) with strides (1,
    rows). input is bfloat16, float16 or float32, with at most 16384 columns; weight, bias and
    residual have its dtype. norm.h has the arithmetic; round_partial and constant are its flags.

    all_reduce_norm.out takes sum_out, residual_out, norm_out, quant_out and scale_out in place of
    outputs, each may be None, and returns nothing. Outside of compiled graphs an output may be
    input or residual itself.

    Both run on CPU and CUDA tensors, on the current stream, and may be captured into CUDA graphs.
    They have no derivative: backward() through a result of the first raises, and the second refuses
    arguments that require grad outside of torch.no_grad(). The ranks are those of the process group
    with that name, of any backend, on one host; the first call of a group for a kind of device is
    collective for its context of libsymm, which symmetric memory uses too. Tensors that are not
    contiguous are copied. Raises RuntimeError for arguments, torch.distributed.DistBackendError for
    what peers do, with libsymm's sentence.
    """
    from . import build

    build.load()


def fuse_norm(group: Any = None, *, device: Any = None, exact: bool = False) -> Any:
    """Makes torch.compile fuse all_reduce, bias, residual, RMSNorm and static 8 bits.

    Graphs that Inductor compiles from now on get torch.ops.symm.all_reduce_norm for the functional
    all_reduce ("sum") of the group, which torch.distributed.all_reduce is there, and what follows
    it, where the arithmetic is that of norm.h within rounding (symm.torch.fusion has the forms).
    Collective over the group (None: the default one), whose ranks are on one host; one group at a
    time. device: of the tensors; None: the current CUDA device, else the CPU. exact: where a model
    rounds the normalised rows before it multiplies by the weight, leave that multiplication outside
    of the call, which has one rounding less (so has Inductor's own code).

    Returns a symm.torch.fusion.NormFusion: counts and left say what was fused and what was not,
    rewrite(graph) serves other backends of torch.compile, close() ends it. Raises RuntimeError if
    it is on already.
    """
    from . import fusion

    return fusion.install(group, device, exact)


@contextlib.contextmanager
def _bracket(bracket: Any) -> Iterator[None]:
    """Of a context that symm.torch's C++ part owns; as Team.capture()."""
    bracket.begin()
    try:
        yield
    except BaseException as error:
        try:
            bracket.abandon(traceback.format_exception_only(error)[-1].strip())
        except RuntimeError as failed:
            error.add_note(f"symm: the capture's bracket was not abandoned: {failed}")
        raise
    bracket.end()


def _brackets(group: Any) -> list[contextlib.AbstractContextManager[None]]:
    """Of the contexts of a process group. Collective, where the backend has none for CUDA yet."""
    import torch
    from torch import distributed

    from . import build

    group = distributed.group.WORLD if group is None else group
    if group is None:
        raise ValueError("symm: capture(): there is no default process group: give one, or a Team")
    if not torch.cuda.is_available():
        raise RuntimeError("symm: capture(): torch has no CUDA device here, and so no graphs")
    try:
        backend = group._get_backend(torch.device("cuda"))
    except RuntimeError:  # it has none for CUDA
        backend = None
    found = build.load().brackets(backend, group.group_name)
    if not found:
        raise RuntimeError(
            f"symm: capture(): libsymm makes no call of process group {group.group_name}: its "
            "backend for CUDA is not symm, and no operator of libsymm has been called with it"
        )
    return [_bracket(each) for each in found]


@contextlib.contextmanager
def capture(of: Any = None) -> Iterator[None]:
    """Around captures of CUDA graphs (torch.cuda.graph), any number of them: collectives of
    libsymm that they capture then read and write tensors of torch's pools in place.

    of: a symm.Team, or a process group; None: the default one. Of a group these are the
    collectives of its backend "symm", torch.ops.symm and the symmetric memory of "SYMM". Without
    capture() their graphs stage what is not symmetric. Collective at its end: replay after it. All
    ranks capture the same calls in one order.

    From the first use on, torch's caching allocator says which memory it gives back to the driver
    (empty_cache, a graph's pool that has gone, expandable segments too): replays that use such
    memory are errors on all ranks. Drop a graph before its memory. Memory of other allocators:
    Team.capture_release. A little C++ is compiled at first use for the installed torch.

    If the body raises on some ranks, their exceptions go on and the other ranks' capture() raises;
    the graphs stay unusable. Ranks whose body has raised wait 10 seconds for the others at most;
    then the team fails, and so do calls that wait for them. Raises what Team.capture does, of a
    group RuntimeError and torch.distributed.DistBackendError; RuntimeError without a GPU, and with
    an allocator that cannot say what it gives back (cudaMallocAsync, pluggable ones).
    """
    from .._core import Team
    from . import _allocator

    with contextlib.ExitStack() as stack:
        for bracket in [of.capture()] if isinstance(of, Team) else _brackets(of):
            stack.enter_context(bracket)
        _allocator.attach()  # within: if it fails on one rank, no other one waits
        yield


def register() -> None:
    """Registers what libsymm has for torch without being asked for more; idempotent."""
    register_backend()


def counters() -> dict[str, tuple[int, int]]:
    """What libsymm has moved for torch in this process: operation -> (calls, bytes).

    Operations: all_reduce, all_reduce_norm, reduce_scatter, all_gather, broadcast, all_to_all,
    barrier, send, recv; copies: of tensors that are not contiguous, and of lists. Compiles the C++
    part if that has not been done.
    """
    from . import build

    result: dict[str, tuple[int, int]] = build.load().counters()
    return result


register()
