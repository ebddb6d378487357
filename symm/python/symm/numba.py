# SPDX-License-Identifier: MIT
"""Signals and peers in kernels of Numba (numba-cuda).

    team = symm.numba.device_team(world)                  # an argument of the kernel
    peers = symm.numba.peers(buffer)                      # another: arrays, one for each rank

    @cuda.jit
    def kernel(team, peers, x):
        i = cuda.grid(1)
        to = (symm.numba.rank(team) + 1) % symm.numba.size(team)
        peers[to][i] = x[i]                               # a put
        symm.numba.signal(team, to, cuda.blockIdx.x, 0)
        ...

rank, size, signal and signal_wait call libsymm's device functions (symm/device_bitcode.h), linked
as PTX. All blocks that wait for each other must run at the same time: start no more of them than the
device has multiprocessors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda, types

from . import _paths
from ._core import Buffer, Team, Unsupported

__all__ = ["device_team", "peers", "rank", "signal", "signal_wait", "size"]


def _declare(name: str, result: Any, parameters: int) -> Any:
    signature = result(types.uint64, *[types.int32] * parameters)
    return cuda.declare_device(
        f"symm_device_bc_{name}", signature, link=[str(_paths.PTX)], abi="c"
    )


_rank, _size = _declare("rank", types.int32, 0), _declare("size", types.int32, 0)
_signal = _declare("signal", types.void, 3)
_signal_wait = _declare("signal_wait", types.int32, 3)


@cuda.jit(device=True)
def _is_first():  # type: ignore[no-untyped-def]
    return cuda.threadIdx.x == 0 and cuda.threadIdx.y == 0 and cuda.threadIdx.z == 0


@cuda.jit(device=True)
def rank(team):  # type: ignore[no-untyped-def]
    """This rank in the team."""
    return _rank(team)


@cuda.jit(device=True)
def size(team):  # type: ignore[no-untyped-def]
    """The number of ranks of the team."""
    return _size(team)


# Barriers of the block are written here: Numba does not know that a linked function has some.


@cuda.jit(device=True)
def signal(team, peer, number, tag):  # type: ignore[no-untyped-def]
    """Raises signal `number` (0 to 255) at the peer, after all that this block did before.

    All threads of the block call it. All blocks that use one number of a peer must be ordered; give
    each block its own. The wait must have the same tag, else both fail.
    """
    cuda.syncthreads()
    if _is_first():
        _signal(team, peer, number, tag)
    cuda.syncthreads()


@cuda.jit(device=True)
def signal_wait(team, peer, number, tag):  # type: ignore[no-untyped-def]
    """Waits for the peer's next raising of the signal: the k-th wait matches the k-th signal.

    All threads of the block call it. 0; else the wait has failed (the peer is dead, the team's
    timeout is over, another tag): write nothing then; the team's next call says why.
    """
    result = cuda.shared.array(1, types.int32)
    cuda.syncthreads()
    if _is_first():
        result[0] = _signal_wait(team, peer, number, tag)
    cuda.syncthreads()
    return result[0]


def device_team(team: Team) -> np.uint64:
    """The address of the team for kernels, valid until the team is destroyed.

    symm.Unsupported: the team is on the host backend, or on several hosts. FileNotFoundError:
    libsymm was built without clang, which makes the device functions.
    """
    _paths.ptx()
    if not team.device.startswith("cuda"):
        raise Unsupported(f"symm.numba needs a team on CUDA; this one is on {team.device!r}")
    return np.uint64(team.device_team)


def peers(buffer: Buffer) -> tuple[Any, ...]:
    """All ranks' copies of a buffer of Team.empty, as arrays of numba.cuda, by rank.

    symm.Unsupported: a rank's copy is not mapped here: no rendezvous(), or another host.
    """
    copies = [buffer.peer(r) for r in range(buffer.team.size)]
    if None in copies:
        raise Unsupported("symm.numba.peers(): not every rank's copy of the buffer is mapped here; "
                          "call Team.rendezvous() first")
    return tuple(cuda.as_cuda_array(copy) for copy in copies)
