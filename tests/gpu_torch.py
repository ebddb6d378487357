# SPDX-License-Identifier: MIT
"""libsymm with PyTorch and Triton, under torchrun.

torchrun --nproc-per-node 2 tests/gpu_torch.py, with SYMM_LIBRARY naming libsymm.so and
libsymm_device.bc beside it. Tests: a buffer through torch.from_dlpack and back; all-reduces of
tensors of a torch.cuda.MemPool in the symmetric heap; a Triton kernel that signals its peer
and waits, through the bitcode library. Exit status 77 without PyTorch.
"""

import ctypes
import os
import sys

try:
    import torch
except ImportError:
    sys.exit(77)

FLOAT32, SUM = 1, 0


class Symm:
    """The few functions that are used here; a status other than 0 raises its sentence."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.symm_last_error.restype = ctypes.c_char_p
        self.lib.symm_explain.restype = ctypes.c_char_p
        for name in ("symm_team_world", "symm_buffer_ptr"):
            getattr(self.lib, name).restype = ctypes.c_void_p
            getattr(self.lib, name).argtypes = [ctypes.c_void_p]
        self.ctx = ctypes.c_void_p()
        self.check(self.lib.symm_init(None, ctypes.byref(self.ctx)))
        self.team = ctypes.c_void_p(self.lib.symm_team_world(self.ctx))
        self.rank = self.lib.symm_team_rank(self.team)
        self.size = self.lib.symm_team_size(self.team)

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.lib.symm_last_error().decode())

    def empty(self, *shape):
        dims = len(shape)
        sizes = (ctypes.c_int64 * dims)(*shape)
        strides = (ctypes.c_int64 * dims)()
        step = 1
        for d in reversed(range(dims)):
            strides[d] = step
            step *= shape[d]
        buffer = ctypes.c_void_p()
        self.check(
            self.lib.symm_empty_strided_p2p(
                self.team, dims, sizes, strides, FLOAT32, ctypes.c_uint64(0),
                ctypes.byref(buffer),
            )
        )
        return buffer

    def all_reduce(self, tensor):
        class Call(ctypes.Structure):
            _fields_ = [
                ("size", ctypes.c_size_t),
                ("site", ctypes.c_char_p),
                ("stream", ctypes.c_void_p),
                ("algorithm", ctypes.c_char_p),
                ("numerics", ctypes.c_uint32),
                ("timeout", ctypes.c_double),
            ]

        call = Call(ctypes.sizeof(Call), b"torch", torch.cuda.current_stream().cuda_stream)
        pointer = ctypes.c_void_p(tensor.data_ptr())
        self.check(
            self.lib.symm_all_reduce(
                self.team, pointer, pointer, ctypes.c_size_t(tensor.numel()), FLOAT32, SUM,
                ctypes.byref(call), None,
            )
        )


def through_dlpack(symm):
    capsule_new = ctypes.pythonapi.PyCapsule_New
    capsule_new.restype = ctypes.py_object
    capsule_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    buffer = symm.empty(37, 5)
    symm.check(symm.lib.symm_rendezvous(symm.team))
    managed = ctypes.c_void_p()
    symm.check(symm.lib.symm_buffer_dlpack(buffer, ctypes.byref(managed)))
    address = symm.lib.symm_buffer_ptr(buffer)
    tensor = torch.from_dlpack(capsule_new(managed, b"dltensor", None))
    assert tensor.shape == (37, 5) and tensor.dtype == torch.float32
    assert tensor.data_ptr() == address and tensor.device.type == "cuda"
    tensor.copy_(torch.arange(37 * 5, dtype=torch.float32).reshape(37, 5) + symm.rank)
    symm.all_reduce(tensor)
    base = torch.arange(37 * 5, dtype=torch.float32).reshape(37, 5)
    want = symm.size * base + symm.size * (symm.size - 1) / 2
    assert torch.equal(tensor.cpu(), want), "all-reduce of a DLPack tensor"
    torch.cuda.synchronize()
    del tensor  # the deleter gives the buffer back


def through_pool(symm, path):
    symm.check(symm.lib.symm_torch_bind(symm.team))
    allocator = torch.cuda.memory.CUDAPluggableAllocator(
        path, "symm_torch_alloc", "symm_torch_free"
    )
    pool = torch.cuda.MemPool(allocator.allocator())
    with torch.cuda.use_mem_pool(pool):
        tensor = torch.full((100_000,), float(symm.rank + 1), device="cuda")
    symm.check(symm.lib.symm_rendezvous(symm.team))
    symm.all_reduce(tensor)
    want = symm.size * (symm.size + 1) / 2
    assert bool((tensor == want).all()), "all-reduce of a tensor of the pool"
    explained = symm.lib.symm_explain(symm.team).decode()
    torch.cuda.synchronize()
    del tensor
    return explained, pool, allocator


def through_triton(symm, bitcode):
    import triton
    import triton.language as tl
    from triton.language import core

    @core.extern
    def signal(team, peer, number, tag, _semantic=None):
        return core.extern_elementwise(
            "symm_device", "", [team, peer, number, tag],
            {
                (core.dtype("int64"), core.dtype("int32"), core.dtype("int32"),
                 core.dtype("int32")): ("symm_device_bc_block_signal", core.dtype("int32")),
            },
            is_pure=False, _semantic=_semantic,
        )

    @core.extern
    def wait(team, peer, number, tag, _semantic=None):
        return core.extern_elementwise(
            "symm_device", "", [team, peer, number, tag],
            {
                (core.dtype("int64"), core.dtype("int32"), core.dtype("int32"),
                 core.dtype("int32")): ("symm_device_bc_block_signal_wait", core.dtype("int32")),
            },
            is_pure=False, _semantic=_semantic,
        )

    @triton.jit
    def exchange(team, to, source, out):
        raised = signal(team, to, 7, 0)
        waited = wait(team, source, 7, 0)
        tl.store(out, raised + waited)

    device_team = ctypes.c_void_p()
    symm.check(symm.lib.symm_team_device(symm.team, ctypes.byref(device_team)))
    out = torch.full((1,), -1, dtype=torch.int32, device="cuda")
    to = (symm.rank + 1) % symm.size
    source = (symm.rank + symm.size - 1) % symm.size
    for _ in range(5):
        out.fill_(-1)
        exchange[(1,)](  # an address is more than 32 bits, so Triton takes it as an int64
            device_team.value, to, source, out, num_warps=1,
            extern_libs={"symm_device": bitcode},
        )
        torch.cuda.synchronize()
        assert out.item() == 0, f"the Triton kernel returned {out.item()}"


def main():
    path = os.environ["SYMM_LIBRARY"]
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    torch.zeros(1, device="cuda")
    symm = Symm(path)
    through_dlpack(symm)
    explained, pool, allocator = through_pool(symm, path)
    bitcode = os.path.join(os.path.dirname(path), "libsymm_device.bc")
    triton = "no bitcode library"
    if os.path.exists(bitcode):
        through_triton(symm, bitcode)
        triton = "Triton signalled"
    print(f"rank {symm.rank}: DLPack, MemPool ({explained}), {triton}: right", flush=True)
    del pool, allocator
    symm.lib.symm_finalize(symm.ctx)
    os._exit(0)  # the pool's own teardown would call into the finalized library


if __name__ == "__main__":
    main()
