# SPDX-License-Identifier: MIT
"""Peers' memory and signals in Triton kernels.

    team = symm.triton.device_team(world)            # an int, passed to the kernel
    kernel[grid](team, x, ..., extern_libs=symm.triton.extern_libs())

and in a kernel of @triton.jit: rank, size, peer, put, signal and signal_wait of this module. They
are libsymm's device functions (symm/device_bitcode.h), linked as bitcode; `team` is the kernel's
argument. Pointers are those of symmetric memory of libsymm's heap (Team.empty): a peer's copy of
it lies at the same offset. All blocks that wait for each other must run at the same time: start
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
    "device_team", "extern_libs", "peer", "put", "rank", "signal", "signal_wait", "size",
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


def _call(name: str, result: Any, arguments: list[Any], pure: bool, semantic: Any) -> Any:
    types = [_INT64] + [_INT32] * (len(arguments) - 1)
    if name == "symm_device_bc_peer":
        types[1] = _INT64
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
