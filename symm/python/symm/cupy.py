# SPDX-License-Identifier: MIT
"""CuPy arrays in memory that can be shared: an allocator for CuPy.

    cupy.cuda.set_allocator(symm.cupy.memory_pool().malloc)
    x = cupy.zeros(1 << 20, "float32")
    buffer = team.register(x)                # each rank; maps it into all peers at
    team.rendezvous()                        # the team's next rendezvous

Every array of the pool can be registered with any team on CUDA, and the Buffer holds it. Collectives
take all CuPy arrays as they are; registered ones can also be put to, got from and read by peers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _core

if TYPE_CHECKING:
    from cupy.cuda import MemoryPool

__all__ = ["allocator", "memory_pool"]

_MEMORY_ALLOCATION = 2  # cudaErrorMemoryAllocation


def _malloc(size: int, device: int) -> int:
    try:
        return _core._mem_alloc("cuda", device, size)
    except _core.NoMemory as error:  # CuPy's pool frees what it keeps, and tries again
        from cupy.cuda import runtime

        raise runtime.CUDARuntimeError(_MEMORY_ALLOCATION) from error


def _free(ptr: int, device: int) -> None:
    _core._mem_free(ptr)


def allocator() -> Any:
    """A cupy.cuda.PythonFunctionAllocator of libsymm's memory, in allocations of 2 MiB.

    For a pool of your own; memory_pool() is one. Its malloc raises symm.Unsupported where libsymm
    finds no CUDA.
    """
    from cupy.cuda import PythonFunctionAllocator

    return PythonFunctionAllocator(_malloc, _free)


def memory_pool() -> MemoryPool:
    """A new cupy.cuda.MemoryPool over allocator().

    An array's memory is reused by later ones, as in CuPy's own pool; free_all_blocks() gives it
    back.
    """
    from cupy.cuda import MemoryPool

    return MemoryPool(allocator().malloc)
