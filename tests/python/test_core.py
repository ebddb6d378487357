# SPDX-License-Identifier: MIT
"""Contexts, teams, collectives, one-sided calls and messages of symm, on thread ranks."""

import gc
import threading
import time
import weakref

import numpy as np
import pytest

import symm

DTYPES = {
    "float64": np.float64, "float32": np.float32, "float16": np.float16,
    "int64": np.int64, "int32": np.int32, "int8": np.int8,
    "uint64": np.uint64, "uint32": np.uint32, "uint8": np.uint8,
    "int16": np.int16, "uint16": np.uint16,
}


# ---- Collectives --------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", DTYPES)
def test_collectives_equal_numpy(on_ranks, size, dtype):
    count = 37
    rng = np.random.default_rng(7)
    inputs = rng.integers(0, 5, (size, size * count)).astype(DTYPES[dtype])

    def rank_main(ctx):
        t = ctx.world
        mine = inputs[t.rank].copy()
        every = np.empty(size * size * count, mine.dtype)
        t.all_gather(every, mine)
        assert (every.reshape(size, -1) == inputs).all()
        part = np.empty(count, mine.dtype)
        t.reduce_scatter(part, mine)
        assert (part == inputs.sum(0, dtype=mine.dtype)[t.rank * count:][:count]).all()
        turned = np.empty_like(mine)
        t.all_to_all(turned, mine)
        assert (turned.reshape(size, count)
                == inputs.reshape(size, size, count)[:, t.rank]).all()
        for op, function in (("sum", np.sum), ("max", np.max), ("min", np.min)):
            out = np.empty_like(mine)
            t.all_reduce(mine, out, op)
            want = function(inputs, axis=0)
            assert (out == want.astype(mine.dtype)).all()
        for op, function in (("band", np.bitwise_and), ("bor", np.bitwise_or),
                             ("bxor", np.bitwise_xor)):
            if mine.dtype.kind == "f":
                with pytest.raises(symm.Invalid, match=f"found {op} of float"):
                    t.all_reduce(mine, out, op)
            else:
                t.all_reduce(mine, out, op)
                assert (out == function.reduce(inputs, axis=0)).all()
        assert (mine == inputs[t.rank]).all()
        t.broadcast(mine, size - 1)
        assert (mine == inputs[size - 1]).all()
        t.all_reduce(mine)
        assert (mine == (inputs[size - 1] * size).astype(mine.dtype)).all()
        t.barrier()

    on_ranks(size, rank_main)


def test_symmetric_and_peers(on_ranks):
    def rank_main(ctx):
        t = ctx.world
        x = t.empty((3, 5), "int32", site="l7")
        t.rendezvous()
        a = np.asarray(x)
        assert a.shape == (3, 5) and a.dtype == np.int32 and not a.flags.owndata
        a[:] = t.rank
        t.barrier()
        assert [int(x.peer(p).as_numpy()[2, 4]) for p in range(3)] == [0, 1, 2]
        assert x.peer(t.rank) is x
        t.barrier()
        t.all_reduce(x)
        assert (a == 3).all()
        return x.offset, x.alloc_id

    results = on_ranks(3, rank_main)
    assert len(set(results)) == 1 and results[0][1] != 0


def test_one_sided(on_ranks):
    def rank_main(ctx):
        t = ctx.world
        inbox = t.empty(100, "float64")
        t.rendezvous()
        right, left = (t.rank + 1) % t.size, (t.rank - 1) % t.size
        src = np.arange(100.0) + t.rank
        t.put(inbox, src, right, signal=9)
        t.signal_wait(left, 9)
        assert (np.asarray(inbox) == np.arange(100.0) + left).all()
        t.barrier()
        got = np.zeros(100)
        t.get(got, inbox, right)
        assert (got == np.arange(100.0) + t.rank).all()
        t.signal(right, 3)
        t.signal_wait(left, 3)
        t.barrier()

    on_ranks(4, rank_main)


def test_split_and_ids(on_ranks):
    def rank_main(ctx):
        t = ctx.world
        half = t.split(t.rank % 2, key=-t.rank)
        assert half.size == 2 and half.world_ranks == ((2, 0) if t.rank % 2 == 0 else (3, 1))
        assert t.split(0 if t.rank else None) is None or t.rank
        x = np.full(4, t.rank, np.int64)
        half.all_reduce(x)
        assert (x == (2 if t.rank % 2 == 0 else 4)).all()
        half.set_name("half")
        half.destroy()
        assert half.closed
        with pytest.raises(symm.Invalid, match="destroyed"):
            half.barrier()

    on_ranks(4, rank_main)


def test_streams_and_work(on_ranks):
    def rank_main(ctx):
        t = ctx.world
        s = ctx.stream()
        x = np.ones(1 << 18, np.float32)
        w = t.all_reduce(x, stream=s, work=True)
        w.synchronize(10)
        assert w.done() and w.error == "" and (x == 2).all()
        seen = []
        following = t.all_reduce(x, stream=s, work=True).then(seen.append, s)
        following.synchronize()
        assert seen == [s.handle] and (x == 4).all()
        w = t.all_reduce(x, stream=s, work=True)
        w.wait()
        assert (x == 8).all()
        t.all_reduce(x, stream=s)
        s.synchronize()
        assert (x == 16).all()
        assert s.__cuda_stream__() == (0, s.handle)

    on_ranks(2, rank_main)


def test_queued_call_keeps_its_arrays(on_ranks):
    """An array that is dropped while its call is queued must live until the call has run."""

    def rank_main(ctx):
        t = ctx.world
        s = ctx.stream()
        x = np.ones(1 << 20, np.float32)
        alive = weakref.ref(x)
        t.barrier()
        if t.rank == 0:
            t.all_reduce(x, stream=s)
            del x
            gc.collect()
            assert alive() is not None  # rank 1 has not come yet
            t.signal(1, 1)
            s.synchronize()
            deadline = time.monotonic() + 5
            while alive() is not None and time.monotonic() < deadline:
                time.sleep(0.001)
            assert alive() is None
        else:
            t.signal_wait(0, 1)
            t.all_reduce(x, stream=s)
            s.synchronize()
            assert (x == 2).all()

    on_ranks(2, rank_main)


def test_prepared(on_ranks):
    def rank_main(ctx):
        t = ctx.world
        x = t.empty(64)
        t.rendezvous()
        a = np.asarray(x)
        a[:] = 1
        call = t.prepare("all_reduce", x, op="sum", site="loop")
        for _ in range(10):
            assert call() is None
        assert (a == 2.0**10).all()
        with pytest.raises(TypeError):
            call(1)
        out = np.empty(64 * t.size, np.float32)
        gather = t.prepare("all_gather", out, x, work=True)
        gather().synchronize()
        assert (out == 2.0**10).all()
        assert "all_reduce" in repr(call)

    on_ranks(2, rank_main)


def test_explain_names_the_call(alone):
    alone.world.all_reduce(np.ones(4))
    assert "all_reduce" in alone.world.explain()


def test_info(alone):
    info = alone.info
    assert info.backend == "host" and info.rank == 0 and info.world_size == 1
    assert info.device == -1 and info.heap_bytes > 0 and info[0] == 0


# ---- Messages ------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 4])
def test_messages(on_ranks, size):
    def rank_main(ctx):
        t = ctx.world
        after, before = (t.rank + 1) % size, (t.rank - 1) % size
        for n in (0, 1, 100_000):
            x, y = np.full(n, t.rank), np.empty(n, np.int64)
            t.p2p([("recv", y, before), ("send", x, after)])
            assert (y == before).all()
            with symm.batch(t) as b:
                b.send(y, after)
                b.recv(x, before)
            assert (x == (t.rank - 2) % size).all()
        if t.rank == 0:
            t.send(np.arange(3), 0)
            assert t.recv(got := np.zeros(3, np.int64), 0) is None and got.tolist() == [0, 1, 2]
            one = np.zeros(1, np.int64)
            senders = [(t.recv_any(one, timeout=10, site="any"), one[0]) for _ in range(size - 1)]
            assert sorted(senders) == [(r, 10 * r) for r in range(1, size)]
        else:
            t.send(np.array([10 * t.rank]), 0)
        t.barrier()
        work = t.recv(y, before, stream=(stream := ctx.stream()), work=True)
        t.send(x, after)
        work.synchronize(10)
        del stream

    on_ranks(size, rank_main)


def test_batch_of_an_iterator(alone):
    """The arrays of operations that exist for the time of the call alone."""
    out = np.zeros(1000)
    alone.world.p2p((kind, np.full(1000, 5.0) if kind == "send" else out, 0)
                    for kind in ("send", "recv"))
    assert (out == 5).all()


def test_messages_refused(on_ranks):
    def rank_main(ctx):
        t = ctx.world
        for keywords in ({"work": True}, {"stream": ctx.stream()}):
            with pytest.raises(symm.Invalid, match="neither a stream nor work"):
                t.recv_any(np.zeros(1), **keywords)
        with pytest.raises(TypeError):
            t.recv_any()
        with pytest.raises(symm.Invalid):
            t.recv(np.zeros(1), 7)
        if t.rank == 0:
            t.send(np.zeros(3), 1)
        else:
            with pytest.raises(symm.Mismatch, match="rank 0 sent 3 elements of float64"):
                t.recv_any(np.zeros(4))

    on_ranks(2, rank_main)


def test_subsets(on_ranks):
    def rank_main(ctx):
        t = ctx.world
        teams = [t.subset(ranks, key=i) for i, ranks in enumerate([(2, 0), range(1, 4), [3, 2]])
                 if t.rank in ranks]
        for team in teams:
            assert team.world_ranks[team.rank] == t.rank
            x = np.full(3, t.rank, np.int32)
            team.all_reduce(x)
            assert (x == sum(team.world_ranks)).all()
        if t.rank == 2:
            assert [team.world_ranks for team in teams] == [(2, 0), (1, 2, 3), (3, 2)]
            part = teams[1].subset([1, 0])  # ranks of the parent
        elif t.rank == 1:
            part = teams[0].subset([1, 0], 0)
        else:
            with pytest.raises(symm.Invalid, match="not among the 2 ranks"):
                t.subset([1, 2])
            part = t.subset(ranks=[t.rank])
        assert part.world_ranks == ((2, 1) if t.rank in (1, 2) else (t.rank,))
        part.barrier()
        t.barrier()
        if t.rank < 2:
            with pytest.raises(symm.Mismatch, match=r"\[1 0 3\]"):
                t.subset([0, 1] if t.rank == 0 else [1, 0, 3], 5)
        t.barrier()

    on_ranks(4, rank_main)


def test_subset_without_a_rank(on_ranks):
    over = threading.Event()

    def rank_main(ctx):
        if ctx.world.rank == 0:
            with pytest.raises(symm.Timeout, match=r"rank 1 has not come to .*\[0 1\]"):
                ctx.world.subset([0, 1])
            over.set()
        assert over.wait(20)
        ctx.world.subset([0, 1]).barrier()

    on_ranks(2, rank_main, timeout=2.0)


def test_abort(on_ranks):
    def rank_main(ctx):
        t = ctx.world
        if t.rank == 0:
            threading.Timer(0.1, t.abort, ("no more work",)).start()
        begin = time.monotonic()
        with pytest.raises(symm.Aborted, match="rank 0 has aborted world: no more work"):
            t.recv(np.zeros(1), (t.rank + 1) % 3) if t.rank < 2 else t.barrier()
        assert time.monotonic() - begin < 10
        t.abort()  # it has failed already
        rest = t.shrink()
        rest.barrier()

    on_ranks(3, rank_main)
