# SPDX-License-Identifier: MIT
"""Device memory and graphs over the fake CUDA driver (tests/fake_cuda.h), for programs of ranks."""

import contextlib
import ctypes
import os
import struct

_driver = ctypes.CDLL(os.environ["SYMM_CUDA_LIBRARY"])
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


def call(name, *arguments):
    """A function of the driver, which must succeed. Integers are passed as 64 bits."""
    result = getattr(_driver, name)(
        *(ctypes.c_uint64(each) if isinstance(each, int) else each for each in arguments)
    )
    assert result == 0, f"{name}: {result}"


class Array:
    """Device memory of cuMemAlloc with `count` float32 numbers."""

    def __init__(self, count):
        pointer = ctypes.c_uint64()
        call("cuMemAlloc_v2", ctypes.byref(pointer), 4 * count)
        self.ptr, self.count, self.nbytes = pointer.value, count, 4 * count
        self.__cuda_array_interface__ = {
            "shape": (count,), "typestr": "<f4", "data": (self.ptr, False), "version": 3,
        }

    def _copy(self, stream, destination, source):
        call("cuMemcpyAsync", destination, source, self.nbytes, stream.handle)
        stream.synchronize()

    def write(self, stream, value):
        text = ctypes.create_string_buffer(struct.pack("<f", value) * self.count, self.nbytes)
        self._copy(stream, self.ptr, ctypes.addressof(text))

    def read(self, stream):
        text = ctypes.create_string_buffer(self.nbytes)
        self._copy(stream, ctypes.addressof(text), self.ptr)
        return struct.unpack(f"<{self.count}f", text.raw)

    def free(self):
        call("cuMemFree_v2", self.ptr)


class Graph:
    """with graph.capture(stream): ...; then graph.replay(stream)."""

    def __init__(self):
        self._executable = ctypes.c_void_p()

    @contextlib.contextmanager
    def capture(self, stream):
        graph = ctypes.c_void_p()
        call("cuStreamBeginCapture_v2", stream.handle, _RELAXED)
        try:
            yield
        finally:
            call("cuStreamEndCapture", stream.handle, ctypes.byref(graph))
        call("cuGraphInstantiateWithFlags", ctypes.byref(self._executable), graph, 0)
        call("cuGraphDestroy", graph)

    def replay(self, stream):
        call("cuGraphLaunch", self._executable, stream.handle)


def use(device):
    """Makes the device's context current, as a program that has memory of its own does."""
    context = ctypes.c_void_p()
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
