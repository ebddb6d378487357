# SPDX-License-Identifier: MIT
"""The c10d backend "symm" with CPU tensors under torchrun, compared with gloo."""

PRELUDE = """
import torch, torch.distributed as dist, symm, symm.torch
dist.init_process_group("symm")
rank, size = dist.get_rank(), dist.get_world_size()
assert dist.get_backend() == "symm"
gloo = dist.new_group(backend="gloo")
"""


def test_collectives_equal_gloo(torchrun):
    torchrun(3, PRELUDE + """
import os
ops = (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT)
bitwise = (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR)
torch.manual_seed(rank)
shapes = ((7,), (3, 5), (1,), (0,))
for dtype in (torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8):
    every = dtype == torch.float32 or "SYMM_TEST_LONG" in os.environ
    for shape in shapes if every else shapes[1::2]:
        x = torch.randint(0, 4, shape).to(dtype)
        for op in ops:
            a, b = x.clone(), x.clone()
            dist.all_reduce(a, op); dist.all_reduce(b, op, group=gloo)
            assert torch.equal(a, b), (dtype, shape, op)
            a, b = x.clone(), x.clone()
            dist.reduce(a, 1, op); dist.reduce(b, 1, op, group=gloo)
            assert torch.equal(a, b) if rank == 1 else torch.equal(a, x)
        for op in bitwise if not dtype.is_floating_point else ():
            a, b = x.clone(), x.clone()
            dist.all_reduce(a, op); dist.all_reduce(b, op, group=gloo)
            assert torch.equal(a, b), (dtype, shape, op)
        lists = [[torch.empty_like(x) for _ in range(size)] for _ in range(2)]
        dist.all_gather(lists[0], x); dist.all_gather(lists[1], x, group=gloo)
        assert all(map(torch.equal, *lists))
        for root in range(size):
            a, b = x.clone(), x.clone()
            dist.broadcast(a, root); dist.broadcast(b, root, group=gloo)
            assert torch.equal(a, b)
            got = [torch.empty_like(x) for _ in range(size)] if rank == root else None
            dist.gather(x, got, root)
            assert rank != root or all(map(torch.equal, got, lists[0]))
            part = torch.empty_like(x)
            dist.scatter(part, lists[0] if rank == root else None, root)
            assert torch.equal(part, lists[0][rank])
        out = torch.empty((size * x.numel(),), dtype=dtype)
        dist.all_gather_into_tensor(out, x.flatten())
        assert torch.equal(out, torch.cat([t.flatten() for t in lists[0]]))
        sums = torch.empty_like(x.flatten())
        dist.reduce_scatter_tensor(sums, out)
        assert torch.equal(sums, x.flatten() * size)
        sums = torch.empty_like(x)
        dist.reduce_scatter(sums, lists[0])
        assert torch.equal(sums, x * size)
        turned = torch.empty_like(out)
        dist.all_to_all_single(turned, out)
        assert torch.equal(turned, lists[0][rank].flatten().repeat(size))
moved = symm.torch.counters()
assert moved["all_reduce"][0] > 0 and moved["all_gather"][0] > 0 and moved["broadcast"][0] > 0
dist.barrier()
dist.destroy_process_group()
""", real=True)


def test_types_that_libsymm_lacks(torchrun):
    """bool and complex tensors are reduced through other types; moves take every dtype."""
    torchrun(2, PRELUDE + """
b = torch.tensor([rank == 0, True, False])
for op, want in ((dist.ReduceOp.MAX, [True, True, False]), (dist.ReduceOp.MIN, [False, True, False]),
                 (dist.ReduceOp.SUM, [True, True, False]), (dist.ReduceOp.BOR, [True, True, False]),
                 (dist.ReduceOp.BXOR, [True, False, False])):
    x = b.clone(); dist.all_reduce(x, op)
    assert x.tolist() == want, (op, x)
i = torch.tensor([300, -5, 32767], dtype=torch.int16); dist.all_reduce(i)  # gloo has none
assert i.tolist() == [600, -10, -2]
z = torch.tensor([1 + 2j, rank * 1j]); dist.all_reduce(z)
assert z.tolist() == [2 + 4j, 1j]
for dtype in (torch.bool, torch.int16, torch.complex64, torch.bfloat16, torch.float8_e4m3fn):
    x = torch.ones(5).to(dtype)
    got = [torch.zeros(5).to(dtype) for _ in range(size)]
    dist.all_gather(got, x)
    assert all(torch.equal(t.float() if dtype != torch.complex64 else t,
                           x.float() if dtype != torch.complex64 else x) for t in got)
for bad in (lambda: dist.all_reduce(torch.ones(3), dist.ReduceOp.BAND),
            lambda: dist.all_reduce(torch.ones(3).to_sparse(), dist.ReduceOp.MAX)):
    try:
        bad()
    except RuntimeError as error:
        assert "symm" in str(error)
    else:
        raise AssertionError("not refused")
dist.all_reduce(b.float())
dist.destroy_process_group()
""")


def test_sparse(torchrun):
    torchrun(3, PRELUDE + """
for shape, lengths in (((10, 2), (3, 0, 4)), ((6,), (0, 0, 0)), ((4, 5), (1, 1, 1))):
    torch.manual_seed(rank)
    rows = torch.randint(0, shape[0], (1, lengths[rank]))  # some come twice
    values = torch.randint(0, 9, (lengths[rank], *shape[1:])).double()
    a = torch.sparse_coo_tensor(rows, values, shape)
    b, plain = a.clone(), a.to_dense()
    dist.all_reduce(a)
    dist.all_reduce(b, group=gloo)
    dist.all_reduce(plain)
    assert torch.equal(a.to_dense(), plain) and torch.equal(b.to_dense(), plain)
try:
    dist.all_reduce(a, dist.ReduceOp.MAX)
except RuntimeError as error:
    assert "sparse" in str(error)
else:
    raise AssertionError("not refused")
if rank == 1:
    try:
        from datetime import timedelta
        dist.group.WORLD.monitored_barrier(timedelta(milliseconds=500), wait_all_ranks=True)
    except dist.DistBackendError as error:
        assert ("Rank 1 timed out in monitoredBarrier: Rank 0 and rank 2 failed to pass "
                "monitoredBarrier: symm: rank 0 and rank 2 did not") in str(error), error
    else:
        raise AssertionError("nobody came")
dist.barrier(gloo)
dist.destroy_process_group()
""")


def test_uneven_and_strided(torchrun):
    torchrun(3, PRELUDE + """
x = torch.full((rank + 1, 2), float(rank))
got = [torch.empty((r + 1, 2)) for r in range(size)]
dist.all_gather(got, x)
assert all((t == r).all() for r, t in enumerate(got))
sums = torch.empty((rank + 1, 2))
dist.reduce_scatter(sums, [torch.full((r + 1, 2), float(rank)) for r in range(size)])
assert (sums == 3).all()
ins = [rank + 1 + p for p in range(size)]
outs = [p + 1 + rank for p in range(size)]
source = torch.cat([torch.full((n,), 10.0 * rank + p) for p, n in enumerate(ins)])
target = torch.empty(sum(outs))
dist.all_to_all_single(target, source, outs, ins)
assert torch.equal(target, torch.cat([torch.full((n,), 10.0 * p + rank)
                                      for p, n in enumerate(outs)]))
lists = [torch.empty(n) for n in outs]
dist.all_to_all(lists, list(source.split(ins)))
assert torch.equal(torch.cat(lists), target)
short = [torch.tensor([10.0 * rank + p, -1])[: 2 * (p > 0) : 2] for p in range(size)]
assert short[1].is_contiguous() and short[1].stride() == (2,) and short[0].numel() == 0
lists = [torch.empty(int(rank > 0)) for p in range(size)]
dist.all_to_all(lists, short)
assert [t.tolist() for t in lists] == [[10.0 * p + rank] * (rank > 0) for p in range(size)]
strided = torch.ones(4, 6).t()[1::2]
dist.all_reduce(strided)
assert (strided == 3).all()
dist.broadcast(strided, 2)
assert symm.torch.counters()["copies"][0] > 0
dist.destroy_process_group()
""")


def test_blocks_that_differ(torchrun):
    """Ranks that disagree of a block's length all say so, and no memory beyond it is touched."""
    torchrun(2, PRELUDE + """
def refused(words, call, *arguments):
    try:
        call(*arguments)
    except RuntimeError as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)

x = torch.arange(4.0) + 4 * rank
for splits in ([3, 1], [1, 3], [1, 1]):
    refused("sends 8 bytes to rank 0, which expects", dist.all_to_all_single,
            torch.zeros(sum(splits)), x, splits, [2, 2])
refused("rank 1 sends 8 bytes to rank 0, which expects 12", dist.all_to_all,
        [torch.zeros(2), torch.zeros(3 if rank == 0 else 2)], list(x.split(2)))
refused("input 0 has 100000 elements, its output 2", dist.all_gather_coalesced,
        [[torch.zeros(2)], [torch.zeros(2)]], [torch.ones(100000)])
out = torch.zeros(4)
dist.all_to_all_single(out, x, [2, 2], [2, 2])
assert out.tolist() == [2 * rank, 2 * rank + 1, 2 * rank + 4, 2 * rank + 5]
dist.destroy_process_group()
""")


def test_autograd_and_inference(torchrun):
    """Outputs may be parameters or tensors of inference mode, contiguous or not; nothing is
    recorded for backward(), on whichever thread a call runs."""
    torchrun(2, PRELUDE + """
import time

def plain(tensor):
    return tensor

def parameter(tensor):
    return tensor.requires_grad_()

def strided(*sizes):
    return torch.zeros(*sizes, 2)[..., 0].detach()

def check(make, is_async):
    def run(call, *arguments):
        work = call(*arguments, async_op=is_async)
        if is_async:
            work.wait()

    for new in (torch.zeros, strided):
        out = make(new(4))
        run(dist.reduce, out, 0)
        blocks = [make(new(4)) for _ in range(size)]
        mine = make(torch.full((4,), 1.0 + rank))
        run(dist.all_gather, blocks, mine)
        assert torch.stack(blocks).sum() == 12
        run(dist.all_gather, uneven := [make(new(2 + r)) for r in range(size)],
            make(torch.ones(2 + rank)))
        assert all((block == 1).all() for block in uneven)
        run(dist.scatter, out, [mine, mine] if rank == 0 else None, 0)
        assert (out == 1).all()
        run(dist.all_to_all_single, out, mine, [2, 2], [2, 2])
        assert out.sum() == 6
        run(dist.reduce_scatter, out, [mine, mine])
        assert (out == 3).all()
        run(dist.all_reduce, out)
        assert (out == 6).all()
        if rank == 0: # before the receive, and long after it
            dist.send(torch.full((4,), 7.0), 1, tag=1)
            dist.barrier()
            time.sleep(0.2)
            dist.send(torch.full((4,), 8.0), 1, tag=2)
        else:
            other = dist.irecv(make(new(4)), 0, tag=2)
            dist.barrier()
            dist.recv(out, 0, tag=1)
            assert (out == 7).all()
            other.wait()
        for tensor in (out, *blocks, *uneven):
            assert tensor.is_leaf and tensor.requires_grad == (make is parameter)

for is_async in (False, True):
    check(plain, is_async)
    check(parameter, is_async)
    with torch.inference_mode():
        check(plain, is_async)
if rank == 1: # the receive fails, and it ends
    work = dist.irecv(torch.zeros(1).expand(4), 0)
    dist.barrier()
    try:
        work.wait()
        raise SystemExit("all elements are one")
    except RuntimeError as error:
        assert "single memory location" in str(error)
else:
    dist.barrier()
    dist.send(torch.ones(4), 1)
dist.barrier()
dist.destroy_process_group()
""")


def test_async_in_any_mixture(torchrun):
    """Ranks pair calls by their order, however each rank waits for them."""
    torchrun(2, PRELUDE + """
xs = [torch.ones(1000) * (i + 1) for i in range(50)]
works = []
for i, x in enumerate(xs):
    if (i + rank) % 3 == 0:
        dist.all_reduce(x)
    else:
        works.append(dist.all_reduce(x, async_op=True))
for w in works:
    assert w.wait()
assert all(w.is_completed() and w.is_success() for w in works)
assert all((x == 2 * (i + 1)).all() for i, x in enumerate(xs))
work = dist.all_reduce(xs[0], async_op=True)
future = work.get_future().then(lambda f: f.value()[0] + 1)
assert (future.wait() == 5).all() and work.result()[0] is not None
with dist._coalescing_manager(async_ops=True) as manager:
    for x in xs:
        dist.all_reduce(x)
manager.wait()
assert (xs[1] == 8).all()
dist.destroy_process_group()
""")


def test_callback_that_waits(torchrun):
    """As that of torch's PowerSGD hook: its call would queue behind the one that calls it back."""
    torchrun(2, PRELUDE + """
import time
x, y, z = torch.ones(4), torch.ones(4), torch.ones(4)

def nested(future):
    dist.all_reduce(y)
    return dist.all_reduce(z, async_op=True).get_future().wait()[0] + future.value()[0]

if rank == 1: # the other rank's callback is there before the call has ended
    time.sleep(1)
total = dist.all_reduce(x, async_op=True).get_future().then(nested).wait()
assert (total == 4).all() and (y == 2).all()
dist.barrier()
dist.destroy_process_group()
""", timeout=60)


def test_point_to_point(torchrun):
    torchrun(3, PRELUDE + """
after, before = (rank + 1) % size, (rank - 1) % size
for n in (0, 1, 1000, 3_000_000):  # the last are longer than what a send may leave behind
    for dtype in (torch.float32, torch.bool, torch.complex64):
        x, y = torch.full((n,), rank, dtype=dtype), torch.empty(n, dtype=dtype)
        send, receive = dist.isend(x, after), dist.irecv(y, before)
        assert send.wait() and receive.wait() and receive.source_rank() == before
        assert torch.equal(y, torch.full((n,), before, dtype=dtype))
if rank == 0:  # the k-th of a tag, whatever lies between
    for i, tag in enumerate((3, 1, 2, 3)):
        dist.send(torch.tensor([tag, i]), 1, tag=tag)
elif rank == 1:
    for tag, i in ((1, 1), (3, 0), (3, 3), (2, 2)):
        v = torch.zeros(2, dtype=torch.int64)
        assert dist.recv(v, 0, tag=tag) == 0 and v.tolist() == [tag, i]
dist.barrier()
if rank == 0:
    senders = []
    for tag in (7, 7, 8, 8):
        v = torch.zeros(1, dtype=torch.int64)
        senders.append((dist.recv(v, tag=tag), tag))
        assert v.item() == senders[-1][0]
    assert sorted(senders) == [(1, 7), (1, 8), (2, 7), (2, 8)]
else:
    for tag in (8, 7):
        dist.send(torch.tensor([rank]), 0, tag=tag)
dist.barrier()
x, y = torch.arange(12.0).reshape(3, 4) + rank, torch.zeros(3, 4)
work = dist.isend(x.t(), after)
dist.recv(y.t(), before)
work.wait()
assert torch.equal(y, torch.arange(12.0).reshape(3, 4) + before)
got = torch.zeros(5)
for work in dist.batch_isend_irecv([dist.P2POp(dist.irecv, got, before),
                                    dist.P2POp(dist.isend, torch.full((5,), 1.0 * rank), after)]):
    work.wait()
assert (got == before).all()
if rank == 1:
    dist.send_object_list([{"a": 1}, "b"], 2)
elif rank == 2:
    objects = [None, None]
    dist.recv_object_list(objects, 1)
    assert objects == [{"a": 1}, "b"]
dist.barrier()
if rank == 0:
    dist.send(torch.zeros(3), 1)
    dist.send(torch.ones(3), 1)
elif rank == 1:
    try:
        dist.recv(torch.zeros(4), 0)
    except RuntimeError as error:
        assert "rank 0 sent 12 bytes" in str(error) and "has 16" in str(error), error
    else:
        raise AssertionError("a message of another size")
    x = torch.zeros(3)
    dist.recv(x, 0)  # the group goes on
    assert (x == 1).all()
future = dist.irecv(x := torch.zeros(1), before).get_future().then(lambda f: f.value()[0] + 1)
dist.send(torch.tensor([1.0]), after)
assert future.wait().item() == 2
moved = symm.torch.counters()
assert moved["send"][0] >= 16 and moved["recv"][1] >= 3_000_000 * (4 + 1 + 8)
dist.destroy_process_group()
""")


def test_many_threads_of_messages(torchrun):
    """Every rank sends to every other one at a time, with collectives in between."""
    torchrun(4, PRELUDE + """
import random
dice = random.Random(rank)
sent, works, received = [], [], []
for peer in range(size):
    for k in range(40):
        tag, n = k % 5, 1 + (k * 7919 + 131 * peer) % 30000
        works.append(dist.isend(torch.full((n,), 100 * rank + k), peer, tag=tag) if peer != rank
                     else None)
x = torch.ones(1000)
dist.all_reduce(x)
order = [(peer, tag) for peer in range(size) for tag in range(5) if peer != rank]
dice.shuffle(order)
for peer, tag in order:
    for k in range(tag, 40, 5):
        y = torch.zeros(1 + (k * 7919 + 131 * rank) % 30000, dtype=torch.int64)
        received.append((dist.irecv(y, peer, tag=tag), y, 100 * peer + k))
dist.all_reduce(x)
for work, y, value in received:
    work.wait()
    assert (y == value).all()
for work in works:
    assert work is None or work.wait()
assert (x == size * size).all()
dist.destroy_process_group()
""")


def test_messages_that_cannot_end(torchrun):
    """A late peer, an abort and a shutdown end what waits; nothing hangs."""
    torchrun(2, PRELUDE + """
import threading, time
from datetime import timedelta

def ended(work, text):
    begin = time.time()
    try:
        work.wait()
    except dist.DistBackendError as error:
        assert text in str(error), error
    else:
        raise AssertionError("came to an end")
    return time.time() - begin

dist.barrier()  # the groups' timeouts are those of making them, too
short, aborted, unsent, unreceived = (dist.new_group(timeout=timedelta(seconds=t))
                                      for t in (2, 60, 60, 60))
cpu = torch.device("cpu")
if rank == 0:
    assert ended(dist.irecv(torch.zeros(4), 1, tag=9, group=short), "rank 1 with tag 9") < 10
dist.barrier()
if rank == 0:
    threading.Timer(0.2, aborted._get_backend(cpu).abort).start()
assert ended(dist.irecv(torch.zeros(4), 1 - rank, group=aborted), "rank 0 has aborted") < 10
dist.barrier()
begin = time.time()
work = dist.isend(torch.zeros(1_000_000), 1 - rank, group=unsent)
unsent._get_backend(cpu).shutdown()
ended(work, "aborted")
work = dist.irecv(torch.zeros(4), 1 - rank, group=unreceived)
unreceived._get_backend(cpu).shutdown()
ended(work, "aborted")
assert time.time() - begin < 20
dist.barrier()
dist.destroy_process_group()
""")


def test_end_of_interpreter(torchrun):
    """A backend's thread that needs the GIL when the interpreter begins to end gets it."""
    done = torchrun(2, PRELUDE + """
import os, time

def called(_):          # on the backend's thread
    time.sleep(1)
    os.write(1, b"called\\n")

work = dist.all_reduce(torch.ones(8), async_op=True)
work.get_future().add_done_callback(called)
work.wait()
""")
    assert done.stdout.count("called") == 2, done.stdout


def test_killed_rank_ends_messages(torchrun):
    done = torchrun(3, PRELUDE + """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
dist.barrier()
if rank == 2:
    os.kill(os.getpid(), signal.SIGKILL)
for call in (lambda: dist.recv(torch.zeros(1), 2), lambda: dist.send(torch.zeros(1), 2)):
    try:
        call()
    except dist.DistBackendError as error:
        os.write(1, f"rank {rank} caught {error}\\n".encode())  # at once: ranks share the pipe
""", check=False)
    for rank in (0, 1):
        assert done.stdout.count(f"rank {rank} caught symm") == 2, done.stdout + done.stderr


def test_groups_and_objects(torchrun):
    torchrun(4, PRELUDE + """
halves = [dist.new_group([0, 2]), dist.new_group([3, 1])]
mine = halves[rank % 2]
x = torch.tensor([float(rank)])
dist.all_reduce(x, group=mine)
assert x.item() == (2 if rank % 2 == 0 else 4)
objects = [None] * size
dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank})
assert [o["rank"] for o in objects] == list(range(size))
one = [None]
dist.broadcast_object_list(one if rank else [{"a": 1}], 0)
got = [None] * size if rank == 0 else None
dist.gather_object(rank, got, 0)
assert rank or got == [0, 1, 2, 3]
for _ in range(20):
    g = dist.new_group([0, 1, 2, 3]); dist.barrier(g); dist.destroy_process_group(g)
dist.destroy_process_group()
""")


def test_killed_rank_raises(torchrun):
    done = torchrun(2, PRELUDE + """
import os, signal, sys
x = torch.ones(4)
dist.all_reduce(x)
if rank == 1:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.kill(os.getpid(), signal.SIGKILL)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
try:
    for _ in range(100000):
        dist.all_reduce(x)
except dist.DistBackendError as error:
    print("caught", error, flush=True)
try:
    dist.all_reduce(x, async_op=True).wait()
except dist.DistBackendError as error:
    print("again", error, flush=True)
""", check=False, real=True)
    assert "caught symm: rank 1" in done.stdout and "again symm" in done.stdout, (
        done.stdout + done.stderr)


def test_mismatch_and_timeout(torchrun):
    torchrun(2, PRELUDE + """
from datetime import timedelta
bad = dist.new_group(timeout=timedelta(seconds=20))
try:
    dist.all_reduce(torch.ones(4 + rank), group=bad)
except dist.DistBackendError as error:
    assert "symm:" in str(error)
else:
    raise AssertionError("shapes differ")
dist.barrier()  # the group's timeout is that of making it, too
slow = dist.new_group(timeout=timedelta(seconds=2))
if rank == 0:
    try:
        dist.all_reduce(torch.ones(4), group=slow)
    except dist.DistBackendError as error:
        assert "rank 1" in str(error), error
    else:
        raise AssertionError("rank 1 did not come")
dist.barrier()
dist.destroy_process_group()
try:
    bad.allreduce([torch.ones(3)])
except RuntimeError as error:
    assert "shut down" in str(error), error
else:
    raise AssertionError("used after destroy")
""")


def test_ddp_equals_gloo(torchrun):
    torchrun(2, PRELUDE + """
from torch.nn.parallel import DistributedDataParallel as DDP
results = []
for group in (None, gloo):
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    ddp = DDP(model, process_group=group, bucket_cap_mb=0.001)
    optimizer = torch.optim.SGD(ddp.parameters(), 0.1)
    for step in range(5):
        torch.manual_seed(100 * step + rank)
        optimizer.zero_grad()
        ddp(torch.randn(16, 32)).pow(2).mean().backward()
        optimizer.step()
    results.append([p.detach().clone() for p in model.parameters()])
assert all(torch.equal(a, b) for a, b in zip(*results))  # a sum of two has one order
assert symm.torch.counters()["all_reduce"][0] >= 5
dist.destroy_process_group()
""")


def test_fsdp2_and_dtensor(torchrun):
    torchrun(2, PRELUDE + """
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                               parallelize_module)
mesh = DeviceMesh("cpu", list(range(size)))
torch.manual_seed(5)
reference = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
x = torch.randn(6, 8)
want = reference(x)
import copy
tp = parallelize_module(copy.deepcopy(reference), mesh,
                        {"0": ColwiseParallel(), "2": RowwiseParallel()})
assert torch.allclose(tp(x), want, atol=1e-6)
sharded = copy.deepcopy(reference)
fully_shard(sharded[0], mesh=mesh); fully_shard(sharded, mesh=mesh)
optimizer = torch.optim.SGD(sharded.parameters(), 0.1)
plain = torch.optim.SGD(reference.parameters(), 0.1)
for _ in range(3):
    for model, opt in ((sharded, optimizer), (reference, plain)):
        opt.zero_grad(); model(x).pow(2).sum().backward(); opt.step()
for a, b in zip(sharded.parameters(), reference.parameters()):
    assert torch.allclose(a.full_tensor(), b, atol=1e-5)
d = distribute_tensor(torch.arange(8.0).reshape(4, 2), mesh, [Shard(0)])
assert torch.equal(d.redistribute(mesh, [Replicate()]).to_local(),
                   torch.arange(8.0).reshape(4, 2))
assert torch.equal(d.redistribute(mesh, [Shard(1)]).full_tensor(),
                   torch.arange(8.0).reshape(4, 2))
moved = symm.torch.counters()
assert moved["reduce_scatter"][0] > 0 and moved["all_gather"][0] > 0
dist.destroy_process_group()
""")


def test_checkpoint(torchrun, tmp_path):
    torchrun(2, PRELUDE + f"""
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard, distribute_tensor
mesh = DeviceMesh("cpu", list(range(size)))
state = {{"w": distribute_tensor(torch.arange(40.0).reshape(8, 5), mesh, [Shard(0)]), "n": 3}}
dcp.save(state, checkpoint_id={str(tmp_path / "checkpoint")!r})
again = {{"w": distribute_tensor(torch.zeros(8, 5), mesh, [Shard(1)]), "n": 0}}
dcp.load(again, checkpoint_id={str(tmp_path / "checkpoint")!r})
assert torch.equal(again["w"].full_tensor(), torch.arange(40.0).reshape(8, 5)) and again["n"] == 3
dist.destroy_process_group()
""")
