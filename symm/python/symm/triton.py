# SPDX-License-Identifier: MIT
"""Peers' memory and signals in Triton kernels.

    team = symm.triton.device_team(world)            # an int, passed to the kernel
    kernel[grid](team, x, ..., extern_libs=symm.triton.extern_libs())

and in a kernel of @triton.jit: rank, size, peer, put, signal, signal_wait and the exchange_
functions of this module. They are libsymm's device functions (symm/device_bitcode.h), linked as
bitcode; `team` is the kernel's argument. Pointers are those of symmetric memory of libsymm's heap
(Team.empty): a peer's copy of it lies at the same offset. All blocks that wait for each other must run at the same time: start
no more of them than the device has multiprocessors.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.language import core

from . import _paths
from ._core import Team, Unsupported

__all__ = [
    "device_team", "exchange_begin", "exchange_bytes", "exchange_end", "exchange_push",
    "exchange_wait", "extern_libs", "peer", "put", "rank", "signal", "signal_wait", "size",
]

_LIBRARY = "symm_device"
_INT32, _INT64 = core.dtype("int32"), core.dtype("int64")


def extern_libs() -> dict[str, str]:
    """For a kernel's launch: the bitcode by its name. FileNotFoundError: built without it."""
    return {_LIBRARY: str(_paths.bitcode())}


def device_team(team: Team) -> int:
    """The address of the team for kernels, valid until the team is destroyed.

    symm.Unsupported: the team is on the host backend, or on several hosts.
    """
    if not team.device.startswith("cuda"):
        raise Unsupported(f"symm.triton needs a team on CUDA; this one is on {team.device!r}")
    return team.device_team


def exchange_bytes(size: int, units: int) -> int:
    """Bytes of a workspace for `size` ranks that exchange up to `units` units of 8 bytes each.

    It is a buffer of Team.empty after a rendezvous. Set it to zero on all ranks, then call
    Team.barrier, before the first exchange in it.
    """
    # symm_device_exchange_bytes of symm/device_exchange.h
    return 160 * 4 + 160 * 2 * 72 * 16 + (units + 31) // 32 * 2 * size * 32 * 16


# Arguments of 64 bits, besides the team.
_WIDE = {
    "symm_device_bc_peer": (1,),
    "symm_device_bc_block_exchange_begin": (1,),
    "symm_device_bc_exchange_push": (1, 2, 4),
    "symm_device_bc_exchange_wait": (1, 2),
    "symm_device_bc_block_exchange_end": (1, 2),
}


def _call(name: str, result: Any, arguments: list[Any], pure: bool, semantic: Any) -> Any:
    wide = (0, *_WIDE.get(name, ()))
    types = [_INT64 if i in wide else _INT32 for i in range(len(arguments))]
    return core.extern_elementwise(
        _LIBRARY, "", arguments, {tuple(types): (name, result)}, is_pure=pure, _semantic=semantic
    )


@core.extern
def rank(team: Any, _semantic: Any = None) -> Any:
    """This rank in the team (int32)."""
    return _call("symm_device_bc_rank", _INT32, [team], True, _semantic)


@core.extern
def size(team: Any, _semantic: Any = None) -> Any:
    """The number of ranks of the team (int32)."""
    return _call("symm_device_bc_size", _INT32, [team], True, _semantic)


@core.extern
def _peer_address(team: Any, address: Any, peer: Any, _semantic: Any = None) -> Any:
    return _call("symm_device_bc_peer", _INT64, [team, address, peer], True, _semantic)


@core.extern
def signal(team: Any, peer: Any, number: Any, tag: Any, _semantic: Any = None) -> Any:
    """Raises signal `number` (0 to 255) at the peer, after all that this block did before.

    All blocks that use one number of a peer must be ordered; give each block its own. The wait
    must have the same tag (int32), else both fail. int32: 0.
    """
    return _call(
        "symm_device_bc_block_signal", _INT32, [team, peer, number, tag], False, _semantic
    )


@core.extern
def signal_wait(team: Any, peer: Any, number: Any, tag: Any, _semantic: Any = None) -> Any:
    """Waits for the peer's next raising of the signal: the k-th wait matches the k-th signal.

    int32: 0, or 1 where the wait has failed (the peer is dead, the team's timeout is over, another
    tag): write nothing then; the team has failed and its next call says why.
    """
    return _call(
        "symm_device_bc_block_signal_wait", _INT32, [team, peer, number, tag], False, _semantic
    )


@triton.jit
def peer(team, pointer, rank):  # type: ignore[no-untyped-def]
    """Where rank's copy of a pointer (scalar) into this rank's symmetric memory is mapped here."""
    address = _peer_address(team, pointer.to(tl.int64, bitcast=True), rank)
    return address.to(pointer.dtype, bitcast=True)


@triton.jit
def put(team, pointer, offsets, value, rank, mask):  # type: ignore[no-untyped-def]
    """Stores value at pointer + offsets in rank's memory; signal() makes it visible there."""
    tl.store(peer(team, pointer, rank) + offsets, value, mask)


@core.extern
def _exchange_begin(team: Any, memory: Any, block: Any, blocks: Any, units: Any, tag: Any,
                    _semantic: Any = None) -> Any:
    return _call("symm_device_bc_block_exchange_begin", _INT64,
                 [team, memory, block, blocks, units, tag], False, _semantic)


@core.extern
def _exchange_push(team: Any, memory: Any, exchange: Any, unit: Any, value: Any,
                   _semantic: Any = None) -> Any:
    return _call("symm_device_bc_exchange_push", _INT32, [team, memory, exchange, unit, value],
                 False, _semantic)


@core.extern
def _exchange_wait(team: Any, memory: Any, exchange: Any, unit: Any, rank: Any,
                   _semantic: Any = None) -> Any:
    return _call("symm_device_bc_exchange_wait", _INT64, [team, memory, exchange, unit, rank],
                 False, _semantic)


@core.extern
def _exchange_end(team: Any, memory: Any, exchange: Any, _semantic: Any = None) -> Any:
    return _call("symm_device_bc_block_exchange_end", _INT32, [team, memory, exchange], False,
                 _semantic)


@triton.jit
def exchange_begin(team, workspace, units, tag):  # type: ignore[no-untyped-def]
    """Begins a one-shot exchange of units 0 to units - 1 by the programs of axis 0.

    All ranks have the same number of programs, units and tag (int32, not 0). Each program pushes
    its units, then waits for the same units of all ranks, then ends. int64, for the other
    functions; less than 0: it has failed, and exchange_end says so.
    """
    return _exchange_begin(team, workspace.to(tl.int64, bitcast=True), tl.program_id(0),
                           tl.num_programs(0), units, tag)


@triton.jit
def exchange_push(team, workspace, exchange, units, values):  # type: ignore[no-untyped-def]
    """Sends values (int64: 8 bytes of any type) as these units (int32) to all ranks, also to this."""
    _exchange_push(team, workspace.to(tl.int64, bitcast=True), exchange, units, values)


@triton.jit
def exchange_wait(team, workspace, exchange, units, rank):  # type: ignore[no-untyped-def]
    """Waits for these units of a rank, this one too. int64; 0 where the wait has failed."""
    return _exchange_wait(team, workspace.to(tl.int64, bitcast=True), exchange, units, rank)


@triton.jit
def exchange_end(team, workspace, exchange):  # type: ignore[no-untyped-def]
    """Ends the exchange, after all waits. int32: 0, or 1 where it has failed (see signal_wait)."""
    return _exchange_end(team, workspace.to(tl.int64, bitcast=True), exchange)
