# SPDX-License-Identifier: MIT
"""What the plug-ins for inference engines share: a team of libsymm with the ranks of a torch
process group, and an all-reduce communicator over it."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any

from ._core import Buffer, Context, Invalid, init

log = logging.getLogger("symm")

# Ranks of a server may be minutes apart while they compile or tune kernels. A dead peer is
# noticed at once, whatever this is.
_TIMEOUT = 600.0
MIB = 1024 * 1024
NORM_COLUMNS = 16384  # of all_reduce_norm
_REDUCED = ("float32", "float16", "bfloat16")
_MOVED = (*_REDUCED, "float64", "float8_e4m3fn", "float8_e5m2", "int64", "int32", "int16", "int8",
          "uint8")


# ---- Counters ----------------------------------------------------------------------------


class Counters:
    """Calls and bytes by operation; threads may add at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values = {
            name: (0, 0) for name in ("all_reduce", "all_reduce_norm", "all_gather",
                                      "reduce_scatter", "captured")
        }

    def add(self, name: str, nbytes: int) -> None:
        with self._lock:
            calls, total = self._values[name]
            self._values[name] = (calls + 1, total + nbytes)

    def read(self) -> dict[str, tuple[int, int]]:
        with self._lock:
            return dict(self._values)


# ---- Making a team -----------------------------------------------------------------------


class _PeerFailed(RuntimeError):
    """Some ranks could not make the team; the sentences of all of them."""


class _Exchange:
    """All-gathers bytes over a process group, and tells all ranks if some have failed.

    Each exchange gathers a header first (length, whether the sender has failed). So a rank that
    fails in its own step meets peers that are in another one, and no rank waits for it.
    """

    def __init__(self, group: Any) -> None:
        self._group = group

    def _gather(self, mine: Any) -> list[Any]:
        import torch

        blocks = [torch.empty_like(mine) for _ in range(self._group.size())]
        self._group.allgather([blocks], [mine]).wait()
        return blocks

    def __call__(self, block: bytes, failed: bool = False) -> list[bytes]:
        import torch

        header = torch.tensor([len(block), int(failed)], dtype=torch.int64)
        headers = [tuple(each.tolist()) for each in self._gather(header)]
        longest = max(1, *(length for length, _ in headers))
        padded = torch.frombuffer(bytearray(block.ljust(longest, b"\0")), dtype=torch.uint8)
        blocks = [
            bytes(each.tolist())[:length]
            for each, (length, _) in zip(self._gather(padded), headers)
        ]
        culprits = [
            f"rank {rank} of the process group: {text.decode(errors='replace')}"
            for rank, (text, (_, bad)) in enumerate(zip(blocks, headers)) if bad
        ]
        if culprits:
            raise _PeerFailed("; ".join(culprits))
        return blocks


def device_of(device: Any) -> Any:
    """A torch.device from an int (of a GPU), a name or a torch.device."""
    import torch

    return torch.device("cuda", device) if isinstance(device, int) else torch.device(device)


def _init(exchange: _Exchange, group: Any, device: Any) -> Context:
    import torch

    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device {device}: libsymm has tensors on cpu and cuda")
    if device.type == "cuda":
        torch.empty(1, device=device)  # makes its context current: libsymm takes that device
    ctx = init(
        backend="host" if device.type == "cpu" else "cuda", rank=group.rank(), size=group.size(),
        allgather=exchange, timeout=0 if os.environ.get("SYMM_TIMEOUT") else _TIMEOUT,
    )
    if ctx.info.hosts > 1:
        ctx.finalize()
        raise RuntimeError(f"the process group spans {ctx.info.hosts} hosts, give one host's")
    if device.type == "cuda" and device.index not in (None, ctx.info.device):
        used = ctx.info.device
        ctx.finalize()
        raise RuntimeError(f"libsymm took cuda:{used} instead of {device}")
    return ctx


def _make_context(group: Any, device: Any) -> Context:
    """Collective: a context on all ranks, or _PeerFailed on all ranks."""
    import torch

    exchange = _Exchange(group)
    ctx = None
    try:
        with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
            ctx = _init(exchange, group, device)
    except _PeerFailed:
        raise
    except Exception as error:
        exchange(str(error).encode(), failed=True)
    assert ctx is not None
    try:
        exchange(b"")
    except BaseException:
        ctx.finalize()
        raise
    return ctx


# ---- The team's calls --------------------------------------------------------------------

_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
_numbers = itertools.count()


class Engine:
    """Out-of-place collectives of one process group on torch's current stream.

    Plain tensors are staged by libsymm, one stage for each channel, so calls of several streams
    do not share any memory; in graphs that are captured within capture() they are read and written
    in place. Sums are in rank order in float32, rounded once.
    """

    _in_bracket = False
    _can_bracket: bool | None = None  # None: not asked yet

    def __init__(self, name: str, group: Any, device: Any, counters: Counters) -> None:
        self.group, self.device, self.number = group, device, next(_numbers)
        self.ctx = _make_context(group, device)
        self.team = self.ctx.world
        self._sites = {
            operation: f"{name}.{operation}"
            for operation in ("all_reduce", "all_reduce_norm", "all_gather", "reduce_scatter")
        }
        self._counters = counters
        self._holders = 1
        self._shared: dict[int, Buffer] = {}
        _engines.add(self)

    def is_stream_capturing(self) -> bool:
        """Whether torch's current stream is recorded into a graph."""
        import torch

        return self.device.type == "cuda" and bool(torch.cuda.is_current_stream_capturing())

    def _count(self, operation: str, nbytes: int, counters: Counters | None = None) -> None:
        counters = self._counters if counters is None else counters
        counters.add(operation, nbytes)
        if self.is_stream_capturing():
            counters.add("captured", nbytes)

    def all_reduce(self, x: Any, out: Any, counters: Counters | None = None) -> None:
        """out = the sum of x; both without gaps and of the same strides, else ValueError. counters:
        None: the engine's."""
        if not (x.is_contiguous() and out.is_contiguous()):
            if not _has_no_gaps(x) or out.shape != x.shape or out.stride() != x.stride():
                raise ValueError(
                    f"symm: all_reduce(): a tensor of shape {tuple(x.shape)} with strides "
                    f"{x.stride()} to one of shape {tuple(out.shape)} with {out.stride()}: the "
                    "same are needed, without gaps")
        self.team.all_reduce(
            _flat(x), _flat(out), "sum", numerics="rank_order", site=self._sites["all_reduce"]
        )
        self._count("all_reduce", x.nbytes, counters)

    def all_reduce_norm(self, x: Any, counters: Counters | None = None, **arguments: Any) -> None:
        """Team.all_reduce_norm with these arguments; tensors are contiguous."""
        self.team.all_reduce_norm(x, site=self._sites["all_reduce_norm"], **arguments)
        self._count("all_reduce_norm", x.nbytes, counters)

    def all_gather(self, x: Any, out: Any) -> None:
        """out = the x of all ranks, one after the other; both contiguous."""
        self.team.all_gather(out, x, site=self._sites["all_gather"])
        self._count("all_gather", x.nbytes)

    def reduce_scatter(self, x: Any, out: Any) -> None:
        """out = block `rank` of the sum of x; both contiguous."""
        self.team.reduce_scatter(
            out, x, "sum", numerics="rank_order", site=self._sites["reduce_scatter"]
        )
        self._count("reduce_scatter", x.nbytes)

    def _agree_on_brackets(self) -> bool:
        """Collective: whether torch's allocator tells all ranks which memory it gives back."""
        from .torch import _allocator

        exchange = _Exchange(self.group)
        try:
            try:
                _allocator.attach()
            except Exception as error:
                exchange(str(error).encode(), failed=True)
            exchange(b"")
        except _PeerFailed as error:
            log.warning("symm: graphs of the group of %d ranks stage their tensors: %s",
                        self.group.size(), error)
            return False
        return True

    @contextlib.contextmanager
    def capture(self) -> Iterator[None]:
        """Around captures of graphs; collective on a GPU, at its begin too. See Team.capture."""
        if self.device.type == "cuda" and self._can_bracket is None:
            self._can_bracket = self._agree_on_brackets()
        if self._in_bracket or not self._can_bracket:
            yield
            return
        self._in_bracket = True
        try:
            with self.team.capture():
                yield
        finally:
            self._in_bracket = False

    def share(self, nbytes: int) -> list[int]:
        """Collective: symmetric memory; the addresses of all ranks' copies, in rank order."""
        buffer = self.team.empty(nbytes, "uint8")
        self.team.rendezvous()
        copies = [buffer.peer(rank) for rank in range(self.team.size)]
        if any(copy is None for copy in copies):
            raise RuntimeError("libsymm: not all peers' memory is mapped into this process")
        pointers = [copy.ptr for copy in copies if copy is not None]
        self._shared[pointers[self.team.rank]] = buffer
        return pointers

    def unshare(self, pointer: int) -> bool:
        """Frees what share() gave this rank at `pointer`; False: not from there."""
        return self._shared.pop(pointer, None) is not None

    def hold(self) -> Engine:
        """One user more, who calls close() too."""
        self._holders += 1
        return self

    def close(self) -> None:
        """Of the last user: ends it. Not collective; calls after it raise symm.Invalid."""
        self._holders -= 1
        if self._holders > 0:
            return
        self._shared.clear()
        _engines.discard(self)
        self.ctx.finalize()


def engines() -> list[Engine]:
    """Those that are open."""
    return list(_engines)


def make_engine(name: str, group: Any, device: Any, counters: Counters) -> Engine | None:
    """Collective over the group: an Engine on all its ranks, or None on all of them, with a
    warning that says why."""
    try:
        engine = Engine(name, group, device, counters)
    except Exception as error:
        log.warning("symm: the %s group of %d ranks does not use libsymm: %s", name,
                    group.size(), error)
        return None
    log.info("symm: the %s group of %d ranks on %s uses libsymm (backend %s)", name,
             group.size(), device, engine.team.backend)
    return engine


def find_engine(group: Any, device: Any) -> Engine | None:
    """An open one of the group and device, which the caller now holds too; None: there is none.
    Ranks that have opened and closed the same ones get the same answer."""
    for engine in sorted(_engines, key=lambda each: each.number):
        if engine.group is group and engine.device == device:
            return engine.hold()
    return None


# ---- Gates -------------------------------------------------------------------------------


def _is_dense(x: Any) -> bool:
    """Whether x is contiguous, or fills its storage to the end in another order."""
    if x.is_contiguous():
        return True
    tail = x.untyped_storage().nbytes() - x.storage_offset() * x.element_size()
    return bool(tail == x.nbytes) and _has_no_gaps(x)


def _has_no_gaps(x: Any) -> bool:
    """Whether x's elements follow each other in memory, in some order."""
    expected = 1
    for stride, length in sorted(zip(x.stride(), x.shape)):
        if length != 1:
            if stride != expected:
                return False
            expected *= length
    return True


def _flat(x: Any) -> Any:
    """A dense tensor as a contiguous one of one dimension: itself if it is contiguous."""
    return x if x.is_contiguous() else x.as_strided((x.numel(),), (1,))


def _has_dtype(x: Any, names: tuple[str, ...]) -> bool:
    return str(x.dtype).removeprefix("torch.") in names


def takes_all_reduce(x: Any, max_bytes: int) -> bool:
    """Float32, float16 or bfloat16, dense, a multiple of 16 bytes, less than max_bytes."""
    return bool(
        x.nbytes % 16 == 0 and x.nbytes < max_bytes and _has_dtype(x, _REDUCED) and _is_dense(x)
    )


def takes_all_gather(x: Any, max_bytes: int) -> bool:
    """Contiguous, a multiple of 16 bytes, at most max_bytes."""
    return bool(
        x.dim() > 0 and x.nbytes % 16 == 0 and x.nbytes <= max_bytes and x.is_contiguous()
        and _has_dtype(x, _MOVED)
    )


def takes_reduce_scatter(x: Any, size: int, max_bytes: int) -> bool:
    """As all_reduce, but contiguous, in `size` blocks of a multiple of 16 bytes, at most
    max_bytes."""
    return bool(
        x.dim() > 0 and x.shape[0] % size == 0 and x.nbytes % (16 * size) == 0
        and x.nbytes <= max_bytes and x.is_contiguous() and _has_dtype(x, _REDUCED)
    )


def takes_norm(x: Any, residual: Any, weight: Any, max_bytes: int) -> bool:
    """Rows that takes_all_reduce takes and that are contiguous, of 1 to 16384 columns; a residual
    like them, and a weight of their columns and dtype."""
    return bool(
        takes_all_reduce(x, max_bytes) and x.dim() > 0 and 1 <= x.shape[-1] <= NORM_COLUMNS
        and x.is_contiguous() and weight.is_contiguous() and residual.is_contiguous()
        and residual.shape == x.shape and weight.shape == x.shape[-1:]
        and x.dtype == residual.dtype == weight.dtype
    )


# ---- The communicator --------------------------------------------------------------------


class Communicator:
    """The all-reduce that inference engines call, over an Engine."""

    disabled = True  # of an object made by __new__ alone
    _engine: Engine | None = None
    _capturing = False
    _closed = False

    def _start(self, engine: Engine, max_size: int) -> None:
        self._engine = engine
        self.group, self.device = engine.group, engine.device
        self.rank, self.world_size = engine.team.rank, engine.team.size
        self.max_size = max_size
        self.fully_connected = True  # a team of one host maps all peers
        self.disabled = False

    def _live(self) -> Engine:
        if self._engine is None:
            raise RuntimeError("symm: this CustomAllreduce is disabled and makes no calls")
        if self._closed:
            raise Invalid("symm: this CustomAllreduce has been closed, its team is finalized")
        return self._engine

    def should_custom_ar(self, inp: Any) -> bool:
        """Whether custom_all_reduce takes the tensor: not disabled; float32, float16 or
        bfloat16; contiguous, or dense to the end of its storage; a multiple of 16 bytes and
        less than max_size bytes."""
        return not self.disabled and takes_all_reduce(inp, self.max_size)

    def all_reduce(self, inp: Any, *, out: Any = None, registered: bool = False) -> Any:
        """The sum of inp over the ranks, in a new tensor or in `out`, which may be inp.

        In rank order in float32, rounded once: the same bits on all ranks. On torch's current
        stream; CPU tensors: complete on return. `registered` is not needed: libsymm finds out
        by itself whether memory is symmetric. Raises symm.Error with libsymm's sentence
        (symm.PeerDead, symm.Timeout, symm.Mismatch), ValueError if inp has gaps between its
        elements, or out is not like it.
        """
        import torch

        engine = self._live()
        if out is None:
            out = torch.empty_like(inp)
        elif (out.shape, out.dtype, out.stride()) != (inp.shape, inp.dtype, inp.stride()):
            raise ValueError(
                f"symm: all_reduce(): out has shape {tuple(out.shape)}, strides {out.stride()} "
                f"and {out.dtype}, inp {tuple(inp.shape)}, {inp.stride()} and {inp.dtype}"
            )
        engine.all_reduce(inp, out)
        return out

    def custom_all_reduce(self, input: Any) -> Any:
        """The sum of input in a new tensor, or None if should_custom_ar refuses it.

        Inside capture() and outside of a graph: a new tensor with no defined values, so that a
        warm-up allocates as the captured run will.
        """
        import torch

        if not self.should_custom_ar(input):
            return None
        if self._is_warm_up():
            return torch.empty_like(input)
        return self.all_reduce(input)

    def _is_warm_up(self) -> bool:
        return self._capturing and not self._live().is_stream_capturing()

    @contextlib.contextmanager
    def capture(self) -> Iterator[None]:
        """Around the capture of graphs; see custom_all_reduce. Captured calls read and write the
        tensors that they were given each time the graph is replayed, in place.

        On a GPU collective at its end, before which no graph may be replayed: symm.Mismatch if the
        ranks have captured different calls, symm.Aborted if another rank's body has raised."""
        engine = self._engine
        before, self._capturing = self._capturing, True
        try:
            with engine.capture() if engine and not self._closed else contextlib.nullcontext():
                yield
        finally:
            self._capturing = before

    def close(self) -> None:
        """Ends the team of this rank, unless others use it (symm.flashinfer); not collective, and
        nothing if done already. Later calls raise symm.Invalid; destroy graphs that hold calls
        first."""
        self.disabled = True
        if self._engine is not None and not self._closed:
            self._closed = True
            self._engine.close()
