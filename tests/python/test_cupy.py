# SPDX-License-Identifier: MIT
"""symm.cupy against a stand-in for CuPy, and the memory that it gives on the host."""

import ctypes
import sys
import types

import numpy as np
import pytest

import symm
import symm.cupy
from symm import _core


@pytest.fixture
def cupy(monkeypatch):
    """As much of CuPy as symm.cupy uses."""

    class CUDARuntimeError(RuntimeError):
        pass

    class PythonFunctionAllocator:
        def __init__(self, malloc_func, free_func):
            self.malloc_func, self.free_func = malloc_func, free_func

        def malloc(self, size):
            return self.malloc_func(size, 3)

    class MemoryPool:
        def __init__(self, allocator):
            self.allocator = allocator

    runtime = types.SimpleNamespace(CUDARuntimeError=CUDARuntimeError)
    cuda = types.ModuleType("cupy.cuda")
    cuda.PythonFunctionAllocator, cuda.MemoryPool = PythonFunctionAllocator, MemoryPool
    cuda.runtime = runtime
    package = types.ModuleType("cupy")
    package.cuda = cuda
    monkeypatch.setitem(sys.modules, "cupy", package)
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
    return package


def test_pool(cupy, monkeypatch):
    calls = []
    monkeypatch.setattr(_core, "_mem_alloc", lambda *args: calls.append(args) or 4096)
    monkeypatch.setattr(_core, "_mem_free", calls.append)
    assert symm.cupy.memory_pool().allocator(1 << 20) == 4096
    symm.cupy.allocator().free_func(4096, 3)
    assert calls == [("cuda", 3, 1 << 20), 4096]


def test_no_memory(cupy, monkeypatch):
    def fail(*_):
        raise symm.NoMemory("no memory")

    monkeypatch.setattr(_core, "_mem_alloc", fail)
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError) as caught:
        symm.cupy.allocator().malloc(8)
    assert caught.value.args == (2,)


def test_bad_arguments():
    for bad in (-1, 1 << 60):
        with pytest.raises(symm.Error):
            _core._mem_alloc("host", -1, bad)
    with pytest.raises(symm.Invalid):
        _core._mem_alloc("tpu", -1, 64)
    with pytest.raises(symm.NotFound):
        _core._mem_free(4096)


def test_registered_on_the_host():
    def main(ctx):
        team = ctx.world
        ptr = _core._mem_alloc("host", -1, 4096)
        array = np.frombuffer((ctypes.c_char * 4096).from_address(ptr), "int32")
        buffer = team.register(array)
        team.rendezvous()
        array[:] = team.rank
        team.barrier()
        seen = [int(np.asarray(buffer.peer(r)).view("int32")[7]) for r in range(team.size)]
        team.barrier()
        buffer.release()
        _core._mem_free(ptr)
        return seen

    with symm.ThreadRanks(3) as ranks:
        assert ranks.run(main) == [[0, 1, 2]] * 3
