# SPDX-License-Identifier: MIT
"""torch's symmetric memory on libsymm, with CPU tensors under torchrun."""

PRELUDE = """
import gc, os, torch, torch.distributed as dist, symm.torch
import torch.distributed._symmetric_memory as symm_mem
from torch._C._distributed_c10d import _SymmetricMemory as native
dist.init_process_group(os.environ.get("TEST_BACKEND", "symm"))
rank, size = dist.get_rank(), dist.get_world_size()
symm.torch.enable_symmetric_memory(); symm.torch.enable_symmetric_memory()
world = dist.group.WORLD
name = world.group_name
right, left = (rank + 1) % size, (rank - 1) % size
def empty(*shape, dtype=torch.float32):
    return symm_mem.empty(*shape, dtype=dtype, device="cpu")
def words(handle, value, shape):
    # every rank sees every rank's value in its buffer
    handle.get_buffer(rank, shape, torch.float32).fill_(value + rank)
    handle.barrier()
    for r in range(size):
        assert (handle.get_buffer(r, shape, torch.float32) == value + r).all(), (r, value)
    handle.barrier()
"""
END = """
dist.barrier()
dist.destroy_process_group()
"""


def test_handle(torchrun):
    torchrun(3, PRELUDE + """
assert symm_mem.get_backend(torch.device("cpu")) == "SYMM"
t = empty(1000).fill_(rank + 1)
h = symm_mem.rendezvous(t, world)
assert (h.rank, h.world_size, h.buffer_size) == (rank, size, 4000)
assert h.signal_pad_size == native.signal_pad_size if hasattr(native, "signal_pad_size") else True
assert len(h.buffer_ptrs) == len(h.signal_pad_ptrs) == size
assert h.buffer_ptrs[rank] == t.data_ptr() and len(set(h.buffer_ptrs)) == size
assert h.multicast_ptr == 0
assert symm_mem.rendezvous(t, name).buffer_ptrs == h.buffer_ptrs
h.barrier()
assert (h.get_buffer(right, (10, 100), torch.float32) == right + 1).all()
assert h.get_buffer(right, (3,), torch.float32, 997)[2] == right + 1
assert (h.get_remote_tensor(left, (1000,), torch.float32) == left + 1).all()
h.barrier()
h.get_buffer(right, (1000,), torch.float32)[7] = 40 + rank  # a put
h.barrier()
assert t[7] == 40 + left
# The pads are zero, and the user's between his own calls.
pads = [h.get_signal_pad(r) for r in range(size)]
assert all((pad == 0).all() for pad in pads) and pads[0].numel() * 4 == h.signal_pad_size
h.barrier()
pads[right][5] = 9 + rank; h.barrier(channel=1)
assert h.get_signal_pad(rank)[5] == 9 + left and t[7] == 40 + left
assert symm_mem.rendezvous(torch.ones(4), world) is None  # as torch's own backend
for bad in (lambda: h.get_buffer(right, (1001,), torch.float32), lambda: h.put_signal(size, 0),
            lambda: h.wait_signal(-1, 0), lambda: h.put_signal(right, 256),
            lambda: h.barrier(channel=-1)):
    try:
        bad()
    except RuntimeError as error:
        assert str(error)
    else:
        raise AssertionError("not refused")
h.barrier()
""" + END)


def test_signals(torchrun):
    """Channels and handles are apart from each other; a wait that nobody answers ends."""
    torchrun(2, PRELUDE + """
import time
a, b = (symm_mem.rendezvous(empty(8), world) for _ in range(2))
x = a.get_buffer(right, (8,), torch.float32)
for step in range(50):
    x[0] = step * 10 + rank
    b.put_signal(right, 3); a.put_signal(right, 3); a.put_signal(right, 4)
    a.wait_signal(left, 4); a.wait_signal(left, 3)
    assert a.get_buffer(rank, (8,), torch.float32)[0] == step * 10 + left
    b.wait_signal(left, 3); a.barrier()
began = time.monotonic()
try:
    if rank == 0:
        a.wait_signal(1, 9, timeout_ms=300)
        raise AssertionError("nobody has put that signal")
except RuntimeError as error:
    assert "symm" in str(error) and 0.25 < time.monotonic() - began < 20, error
dist.barrier()  # of a team of its own
os._exit(0)
""")


def test_waits_leave_python_alone(torchrun):
    """Other threads of a rank run while it waits for its peers."""
    torchrun(2, PRELUDE + """
import threading, time
ticks, over = 0, False
def tick():
    global ticks
    while not over:
        ticks += 1
        time.sleep(0.001)
thread = threading.Thread(target=tick)
thread.start()
a = symm_mem.rendezvous(empty(8), world)
for wait in (a.barrier, lambda: symm_mem.rendezvous(empty(8), world),
             lambda: (a.put_signal(right, 1), a.wait_signal(left, 1))):
    if rank == 1:
        time.sleep(1)
    before = ticks
    wait()
    assert rank == 1 or ticks > before + 20, (ticks, before)
    a.barrier()
over = True
thread.join()
""" + END)


def test_histories_differ(torchrun):
    """Ranks free what they have when they like, and allocate what the others do not."""
    torchrun(3, PRELUDE + """
import os, random
random.seed(rank)
kept, shape = [], (100,)
for step in range(40 if "SYMM_TEST_LONG" in os.environ else 20):
    strangers = [empty(random.randrange(1, 5000)) for _ in range(random.randrange(3))]
    t = empty(*shape)
    h = symm_mem.rendezvous(t, world)
    words(h, 10 * step, shape)
    kept.append((t, h, 10 * step))
    del t, h
    while len(kept) > random.randrange(1, 6):
        kept.pop(random.randrange(len(kept)))
    gc.collect()
for t, h, value in kept:
    assert (t == value + rank).all()
# A handle outlives its tensor.
t = empty(*shape); h = symm_mem.rendezvous(t, world); del t; gc.collect()
words(h, 5, shape)
""" + END)


def test_groups(torchrun):
    """One block of memory in the world, in parts of it, and in overlapping groups."""
    torchrun(4, PRELUDE + """
halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
mine, base = halves[rank // 2], rank // 2 * 2
t = empty(16).fill_(rank)
h = symm_mem.rendezvous(t, mine)  # before the world has it
assert (h.rank, h.world_size) == (rank - base, 2)
h.barrier()
assert (h.get_buffer(1 - h.rank, (16,), torch.float32) == base + 1 - h.rank).all()
w = symm_mem.rendezvous(t, world)
w.barrier()
assert [int(w.get_buffer(r, (1,), torch.float32)) for r in range(4)] == [0, 1, 2, 3]
middle = dist.new_group([1, 2])
if rank in (1, 2):
    m = symm_mem.rendezvous(t, middle)
    m.barrier()
    assert m.get_buffer(1 - m.rank, (1,), torch.float32) == 3 - rank
w.barrier()
out = torch.ops.symm_mem.one_shot_all_reduce(t, "sum", mine.group_name)
assert (out == 2 * base + 1).all()
out = torch.ops.symm_mem.one_shot_all_reduce(t, "sum", name)
assert (out == 6).all() and (t == rank).all()
""" + END)


def test_operators(torchrun):
    torchrun(3, PRELUDE + """
ops = torch.ops.symm_mem
before = symm.torch.counters()
torch.manual_seed(1)
for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int32):
    for shape in ((1,), (7, 9), (4096,), (3, 40000)):
        parts = [torch.randint(0, 5, shape).to(dtype) for _ in range(size)]
        t = empty(*shape, dtype=dtype); symm_mem.rendezvous(t, world)
        total = sum(parts[1:], parts[0].clone())
        t.copy_(parts[rank])
        assert torch.equal(ops.one_shot_all_reduce(t, "sum", name), total)
        out = torch.empty(shape, dtype=dtype)
        assert ops.one_shot_all_reduce_out(t, "max", name, out) is out
        assert torch.equal(out, torch.stack(parts).amax(0)) and torch.equal(t, parts[rank])
        plain = parts[rank].clone()
        assert torch.equal(ops.one_shot_all_reduce_copy(t, plain, "sum", name), total)
        ops.one_shot_all_reduce_copy_out(t, plain, "sum", name, out)
        assert torch.equal(out, total)
        out.zero_(); ops.two_shot_all_reduce_out(t, "sum", name, out)
        assert torch.equal(out, total)
        assert torch.equal(ops.multimem_one_shot_all_reduce(t, "sum", name), total)
        assert ops.two_shot_all_reduce_(t, "sum", name) is t and torch.equal(t, total)
        t.copy_(parts[rank]); ops.multimem_all_reduce_(t, "sum", name)
        assert torch.equal(t, total)
for last in (False, True):
    t = empty(6, 12); symm_mem.rendezvous(t, world)
    whole = torch.arange(72.).reshape(6, 12)
    t.copy_(whole * (rank + 1))
    out = torch.empty(6, 4) if last else torch.empty(2, 12)
    ops.reduce_scatter_out(t, name, last, out)
    want = whole.chunk(size, -1 if last else 0)[rank] * 6
    assert torch.equal(out, want), (last, out)
g = empty(size * 5); symm_mem.rendezvous(g, world)
ops.multimem_all_gather_out(torch.full((5,), float(rank)), name, g)
assert torch.equal(g, torch.arange(size).repeat_interleave(5).float())
after = symm.torch.counters()
assert after["all_reduce"][0] - before["all_reduce"][0] == 4 * 4 * 8
assert after["reduce_scatter"][0] == before["reduce_scatter"][0] + 2
for bad in (lambda: ops.one_shot_all_reduce(t, "median", name),
            lambda: ops.one_shot_all_reduce(torch.ones(3), "sum", name),
            lambda: ops.one_shot_all_reduce_out(t, "sum", name, torch.ones(3)),
            lambda: ops.reduce_scatter_out(t, name, False, torch.ones(3)),
            lambda: ops.one_shot_all_reduce(t, "sum", "no such group")):
    try:
        bad()
    except RuntimeError as error:
        assert str(error)
    else:
        raise AssertionError("not refused")
""" + END)


def test_call_sites(torchrun):
    """What Inductor emits: empty_strided_p2p with an alloc_id that is drawn on each rank."""
    torchrun(2, PRELUDE + """
import random
random.seed(100 + rank)
sites = [random.getrandbits(63) for _ in range(5)]
def site(i):
    return native.empty_strided_p2p((4, 8), (8, 1), torch.float32, torch.device("cpu"), name,
                                    alloc_id=sites[i])
first = [site(i).data_ptr() for i in range(5)]
for step in range(3):
    for i in range(5):
        t = site(i)
        assert t.data_ptr() == first[i]
        h = native.rendezvous(t)  # the group is the allocation's
        t.fill_(rank + i)
        out = torch.ops.symm_mem.one_shot_all_reduce(t, "sum", name)
        assert (out == 2 * i + 1).all()
        try:
            site(i)
        except RuntimeError as error:
            assert "still active" in str(error)
        else:
            raise AssertionError("held, and given again")
        del t
""" + END)


def test_with_gloo_groups(torchrun, monkeypatch, tmp_path):
    """The process group may be of another backend, and be made anew under the same name."""
    monkeypatch.setenv("TEST_BACKEND", "gloo")
    monkeypatch.setenv("TEST_STORE", str(tmp_path / "store"))
    torchrun(2, PRELUDE + """
t = empty(100).fill_(rank)
words(symm_mem.rendezvous(t, world), 3, (100,))
dist.barrier(); dist.destroy_process_group()
dist.init_process_group("gloo", store=dist.FileStore(os.environ["TEST_STORE"], size), rank=rank,
                        world_size=size)
world = dist.group.WORLD
t.fill_(rank)
words(symm_mem.rendezvous(t, world), 7, (100,))
out = torch.ops.symm_mem.one_shot_all_reduce(t, "sum", world.group_name)
assert (out == 15).all()
""" + END)
