# SPDX-License-Identifier: MIT
"""Jobs of torchrun over several hosts, which one machine plays: no secret and no port is given.

An engine of the tests moves the data between hosts. Starting torch is most of a test's time, so one
job shows all that needs one.
"""

import threading
import time

import pytest


@pytest.fixture
def gather():
    """gather(store, blocks, seconds, opens): symm.init's allgather with a thread for each rank that
    has a block; each one's result, or its sentence. opens: seconds until the store is there."""
    from symm._torchrun import _init

    def run(store, blocks, seconds=60, opens=0):
        def open_store():
            time.sleep(opens)
            return store

        results = [None] * len(blocks)

        def rank_main(rank):
            try:
                results[rank] = _init(open_store, "test", rank, len(blocks), seconds,
                                      blocks[rank])
            except RuntimeError as error:
                results[rank] = str(error)

        threads = [threading.Thread(target=rank_main, args=(rank,))
                   for rank, block in enumerate(blocks) if block is not None]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    return run


def test_gather(gather):
    """A store with what earlier tries have left: none of it is taken for a rank of this one."""
    from torch.distributed import HashStore

    store = HashStore()
    for turn in range(3):
        blocks = [bytes([turn, rank]) * 50 for rank in range(5)]
        assert gather(store, blocks) == [blocks] * 5
    late = "symm: init(): rank 2, rank 4 have not called symm.init() within 0.5 s"
    assert gather(store, [b"x" * 100, b"y" * 100, None, b"z" * 100, None], 0.5) == [
        late, late, None, late, None]
    late = "symm: init(): rank 0 has not called symm.init() within 0.1 s, or has ended"
    assert gather(store, [None, b"x"], 0.1) == [None, late]
    uneven = "symm: init(): the ranks put blocks of different sizes into torch's store: has each"
    said = gather(store, [b"x", b"yy", b"z"], 0.5)
    assert said[0].startswith(uneven) and said[1].startswith(uneven), said
    blocks = [b"1", b"2", b"3"]
    assert gather(store, blocks) == [blocks] * 3


def test_deadline(gather):
    """What opening the store takes is not waited for once more."""
    from torch.distributed import HashStore

    best = min(waits(gather, HashStore()) for _ in range(3))
    assert 2 <= best < 3, best


def waits(gather, store):
    start = time.monotonic()
    assert gather(store, [b"x", None], 2, opens=1.5) == [
        "symm: init(): rank 1 has not called symm.init() within 2 s", None]
    return time.monotonic() - start


def test_late_rank_is_not_logged(torchrun):
    """torch logs two lines of each wait() of its store that ends without the key."""
    done = torchrun(2, """
import os, time, torch, torch.distributed as dist
import symm.torch
dist.init_process_group("gloo")
if dist.get_rank() == 1:
    time.sleep(0.5)
group = dist.new_group(backend="symm")
dist.barrier(group)
print("right")
dist.destroy_process_group()
""")
    assert done.stdout.count("right") == 2 and "waitForInput" not in done.stderr, done.stderr


def test_job(torchrun_hosts):
    """The first try lacks a rank. The restart meets nothing that it left in the store."""
    done = torchrun_hosts((2, 1), """
import os, pathlib, time
from datetime import timedelta

rank, first = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
failed = [pathlib.Path(__file__ + f".{r}") for r in range(2)]

# When ranks 0 and 1 have both failed: torchrun ends a host's other ranks with its first one, and
# starts rank 2 again at once, which must not join the first try of ranks 0 and 1.
def end_first_try():
    while not all(path.exists() for path in failed):
        time.sleep(0.05)
    os._exit(1)

if first and rank == 2:
    end_first_try()

import numpy as np, torch, torch.distributed as dist
import symm, symm.torch

if first:
    try:
        symm.init(init_timeout=2)
    except RuntimeError as error:
        os.write(1, f"said: {error}\\n".encode())  # at once: ranks share the pipe
    try:
        dist.init_process_group("symm", timeout=timedelta(seconds=2))
        dist.all_reduce(torch.ones(1))
    except RuntimeError as error:
        os.write(1, f"said: {error}\\n".encode())
    # What goes first: a port of rank 0, which wants a secret.
    os.environ["SYMM_BOOTSTRAP_PORT"] = "29999"
    try:
        symm.init(init_timeout=2)
    except symm.JobError as error:
        os.write(1, f"said: {error}\\n".encode())
    failed[rank].touch()
    end_first_try()

def check(ctx):
    world, info = ctx.world, ctx.info
    assert (world.rank, world.size, info.hosts) == (rank, 3, 2)
    assert (info.local_rank, info.local_size) == ((rank, 2) if rank < 2 else (0, 1))
    x = world.empty(1000, "float32", site="x")
    world.rendezvous()
    a = np.asarray(x)
    a[:] = rank + 1
    world.all_reduce(x)
    assert (a == 6).all()

for _ in range(2):
    with symm.init() as ctx:
        check(ctx)
assert not dist.is_initialized()
dist.init_process_group("symm", init_method="env://")  # the store is still free for it
x = torch.full((1000,), rank + 1.0)
dist.all_reduce(x)
assert (x == 6).all()
with symm.init() as ctx:  # beside it
    check(ctx)
dist.barrier()
dist.destroy_process_group()
print("right", flush=True)
""")
    said = "".join(done)
    missing = "said: symm: init(): rank 2 has not called symm.init() within 2 s"
    assert said.count(missing) == 2, said
    missing = "rank 2 has not made a call of this process group before the timeout"
    assert said.count(missing) == 2, said
    assert said.count("said: a job over several hosts needs a secret") == 2, said
    assert said.count("right") == 3, said
