# SPDX-License-Identifier: MIT
"""Contexts, teams, buffers, collectives and one-sided calls of symm, on thread ranks."""

import array
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


# ---- Arrays -------------------------------------------------------------------------------


def test_makers_of_arrays(alone):
    t = alone.world
    for x in (np.ones(3), array.array("d", [1, 1, 1]), bytearray(b"abc"),
              memoryview(bytearray(8)).cast("q"), np.ones((2, 3), np.float32)[1]):
        before = bytes(memoryview(x).cast("B")) if not isinstance(x, np.ndarray) else x.tobytes()
        t.all_reduce(x)
        after = bytes(memoryview(x).cast("B")) if not isinstance(x, np.ndarray) else x.tobytes()
        assert before == after


@pytest.mark.parametrize("x, error, text", [
    (np.ones((4, 4))[:, 1], symm.Invalid, "not contiguous"),
    (np.ones((4, 4)).T, symm.Invalid, "not contiguous"),
    (b"abc", symm.Invalid, "read-only"),
    (np.ones(3, complex), symm.Unsupported, "format"),
    (np.ones(3, ">f4"), symm.Unsupported, "format"),
    (np.array(["a"]), symm.Unsupported, "format"),
    ([1.0, 2.0], TypeError, "must be an array"),
    (None, TypeError, "must be an array"),
    (1.0, TypeError, "must be an array"),
])
def test_arrays_refused(alone, x, error, text):
    with pytest.raises(error, match=text):
        alone.world.all_reduce(x)
    alone.world.barrier()


def test_read_only_input_is_fine(alone):
    out = bytearray(3)
    alone.world.all_reduce(b"abc", out)
    assert out == b"abc"


def test_dlpack_of_others(alone):
    class Wrapper:
        """An array that knows DLPack alone."""

        def __init__(self, inner):
            self.inner = inner

        def __dlpack__(self, **keywords):
            return self.inner.__dlpack__(**keywords)

        def __dlpack_device__(self):
            return self.inner.__dlpack_device__()

    x = np.arange(6.0)
    out = np.zeros(6)
    alone.world.all_reduce(Wrapper(x), Wrapper(out))
    assert (out == x).all()
    with pytest.raises(symm.Invalid, match="not contiguous"):
        alone.world.all_reduce(Wrapper(np.ones((4, 4))[:, 1]))


def test_dlpack_export(alone):
    b = alone.world.empty((2, 3), "int32")
    a = np.from_dlpack(b)
    a[:] = 5
    assert (np.asarray(b) == 5).all() and b.__dlpack_device__() == (1, 0)
    capsule = b.__dlpack__()
    assert "dltensor" in repr(capsule)
    del capsule
    with pytest.raises(BufferError):
        b.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError):
        b.__dlpack__(copy=True)


def test_strided_buffer(alone):
    b = alone.world.empty((4, 3), "float32", strides=(8, 1))
    a = np.asarray(b)
    assert a.strides == (32, 4) and b.strides == (8, 1)
    with pytest.raises(symm.Invalid, match="not contiguous"):
        alone.world.all_reduce(b)


def test_types_without_buffer_format(alone):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for name, dtype in (("bfloat16", ml_dtypes.bfloat16),
                        ("float8_e4m3", ml_dtypes.float8_e4m3fn),
                        ("float8_e5m2", ml_dtypes.float8_e5m2)):
        b = alone.world.empty(4, name)
        a = b.as_numpy()
        assert a.dtype == dtype
        a[:] = 2
        alone.world.all_reduce(b)
        x = np.full(4, 2, dtype)
        alone.world.all_reduce(x)
        assert (x == a).all()
        with pytest.raises(BufferError, match="as_numpy"):
            memoryview(b)
        assert alone.world.empty(4, dtype).dtype == name


def test_shapes(alone):
    t = alone.world
    assert t.empty(5).shape == (5,) and t.empty(()).shape == () and t.empty([2, 3]).size == 6
    assert t.empty(0).nbytes == 0
    t.all_reduce(t.empty(0))
    for shape, error in (((-1,), symm.Error), ((1 << 62, 4), symm.Overflow),
                         ((1 << 50,), symm.Error), ((2,) * 17, symm.Invalid),
                         ("abc", TypeError), (1.5, TypeError), ((1, "a"), TypeError),
                         (1 << 70, OverflowError)):
        with pytest.raises(error):
            t.empty(shape)
    with pytest.raises(symm.Invalid, match="strides"):
        t.empty((2, 3), strides=(1,))
    with pytest.raises(symm.Error):
        t.empty((2, 3), strides=(-1, 1))
    with pytest.raises(symm.Invalid, match="dtype|unknown"):
        t.empty(3, "float31")


# ---- Arguments ----------------------------------------------------------------------------


@pytest.mark.parametrize("call, error, text", [
    (lambda t, x: t.all_reduce(), TypeError, "missing required argument 'x'"),
    (lambda t, x: t.all_reduce(x, y=1), TypeError, "unexpected keyword argument 'y'"),
    (lambda t, x: t.all_reduce(x, x=x), TypeError, "multiple values"),
    (lambda t, x: t.all_reduce(x, x, "sum", 1), TypeError, "positional"),
    (lambda t, x: t.all_reduce(x, op="mean"), symm.Invalid, "mean"),
    (lambda t, x: t.all_reduce(x, op=1), TypeError, "op must be a str"),
    (lambda t, x: t.all_reduce(x, np.ones(5)), symm.Invalid, "4 elements, out 5"),
    (lambda t, x: t.all_reduce(x, np.ones(4, "f4")), symm.Invalid, "float64, out is float32"),
    (lambda t, x: t.all_gather(np.ones(5), x), symm.Invalid, "out has 5 elements"),
    (lambda t, x: t.reduce_scatter(x, np.ones(9)), symm.Invalid, "x has 9 elements"),
    (lambda t, x: t.all_reduce(x, timeout=-1), symm.Invalid, "timeout"),
    (lambda t, x: t.all_reduce(x, timeout=float("nan")), symm.Invalid, "timeout"),
    (lambda t, x: t.all_reduce(x, timeout="1"), TypeError, None),
    (lambda t, x: t.all_reduce(x, site=3), TypeError, "site must be a str"),
    (lambda t, x: t.all_reduce(x, site="a\0b"), symm.Invalid, "NUL"),
    (lambda t, x: t.all_reduce(x, algorithm="nope"), symm.Invalid, "nope"),
    (lambda t, x: t.all_reduce(x, numerics="nope"), symm.Invalid, "rank_order"),
    (lambda t, x: t.all_reduce(x, stream=True), TypeError, "bool"),
    (lambda t, x: t.all_reduce(x, stream="s"), TypeError, "__cuda_stream__"),
    (lambda t, x: t.all_reduce(x, channel=1 << 40), symm.Invalid, "32 bits"),
    (lambda t, x: t.broadcast(x, 7), symm.Invalid, "7"),
    (lambda t, x: t.put(x, x, 3), symm.Error, None),
    (lambda t, x: t.signal(0, 256), symm.Invalid, "256"),
    (lambda t, x: t.put(x, x, 0, signal=-3), symm.Invalid, "-3"),
    (lambda t, x: t.split(-2), symm.Invalid, "-2"),
    (lambda t, x: t.subset([]), symm.Invalid, "0 ranks"),
    (lambda t, x: t.subset([9]), symm.Invalid, "9"),
    (lambda t, x: t.subset([0] * 99), symm.Invalid, "99"),
    (lambda t, x: t.subset([0.5]), TypeError, "ranks"),
    (lambda t, x: t.subset(0), TypeError, None),
    (lambda t, x: t.prepare("fly", x), symm.Invalid, "fly"),
    (lambda t, x: t.prepare(), TypeError, "operation"),
    (lambda t, x: t.p2p([("fly", x, 0)]), symm.Invalid, "fly"),
    (lambda t, x: t.p2p([3]), TypeError, "send"),
    (lambda t, x: t.load_plan("/nowhere.json"), symm.Error, "nowhere"),
    (lambda t, x: t.free(), symm.Invalid, "site"),
    (lambda t, x: t.free(site="unknown"), symm.NotFound, None),
    (lambda t, x: t.empty(3, site="a", alloc_id=1), symm.Invalid, "one of them"),
    (lambda t, x: t.destroy(), symm.Invalid, "world"),
])
def test_bad_arguments(alone, call, error, text):
    x = np.ones(4)
    with pytest.raises(error, match=text):
        call(alone.world, x)
    alone.world.all_reduce(x)
    assert (x == 1).all()


def test_init_arguments():
    for keywords, error in (({"rank": 1}, symm.Invalid), ({"size": 0}, symm.Invalid),
                            ({"rank": 2, "size": 2, "job_id": "x"}, symm.Error),
                            ({"backend": "tpu"}, symm.Invalid), ({"timeout": -1}, symm.Invalid),
                            ({"allgather": 3}, TypeError), ({"thread_group": 3}, TypeError),
                            ({"nonsense": 3}, TypeError), ({"heap_bytes": -1}, symm.Invalid)):
        with pytest.raises(error):
            symm.init(**keywords)
    with pytest.raises(symm.Invalid):
        symm.ThreadGroup(0)


def test_errors_are_typed():
    assert issubclass(symm.Timeout, TimeoutError) and issubclass(symm.NoMemory, MemoryError)
    assert symm.PeerDead.status == -8 and symm.Error.status == 0
    with pytest.raises(symm.Invalid) as caught:
        symm.init(backend="tpu")
    assert caught.value.status == -1 and "tpu" in str(caught.value)


# ---- Failures -----------------------------------------------------------------------------


def test_timeout_names_the_rank(on_ranks):
    over = threading.Event()

    def rank_main(ctx):
        if ctx.world.rank == 1:
            assert over.wait(20)
            return
        start = time.monotonic()
        with pytest.raises(symm.Timeout, match="rank 1"):
            ctx.world.all_reduce(np.ones(4), timeout=0.3, site="late")
        assert 0.2 < time.monotonic() - start < 5
        over.set()

    on_ranks(2, rank_main)


def test_mismatch_raises_on_all(on_ranks):
    def rank_main(ctx):
        t = ctx.world
        with pytest.raises((symm.Mismatch, symm.Aborted)):
            t.all_reduce(np.ones(4 + t.rank))
        return True

    assert on_ranks(2, rank_main) == [True, True]


def test_thread_ranks_raise_the_first(on_ranks):
    def rank_main(ctx):
        if ctx.world.rank == 1:
            raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        on_ranks(3, rank_main)
    assert "on rank 1" in caught.value.__notes__


# ---- Lifetimes ----------------------------------------------------------------------------


def test_use_after_finalize(alone):
    ctx = symm.init(backend="host", rank=0, size=1)
    t, s = ctx.world, ctx.stream()
    b = t.empty(4)
    call = t.prepare("all_reduce", b)
    work = t.barrier(work=True)
    ctx.finalize()
    ctx.finalize()
    assert ctx.closed and t.closed
    for use in (lambda: ctx.world, lambda: t.barrier(), lambda: b.ptr, lambda: b.peer(0),
                lambda: np.asarray(b), call, work.done, work.synchronize, lambda: work.error,
                s.synchronize, lambda: ctx.info, ctx.stream, lambda: t.empty(3), t.explain,
                lambda: t.world_ranks, lambda: t.split(0), b.__dlpack__, ctx.__enter__,
                lambda: alone.world.all_reduce(b), lambda: t.device_team):
        with pytest.raises((symm.Invalid, BufferError), match="finalized"):
            use()


def test_arrays_outlive_finalize():
    ctx = symm.init(backend="host", rank=0, size=1)
    b = ctx.world.empty(1 << 20, "uint8")
    a = np.asarray(b)
    d = np.from_dlpack(b)
    ctx.finalize()
    a[:] = 7  # still mapped
    assert d[-1] == 7
    with pytest.raises(symm.Invalid):
        ctx.world
    del a, d
    gc.collect()
    with pytest.raises(symm.Invalid):
        b.ptr


def test_release_refuses_exports(alone):
    b = alone.world.empty(16)
    a = np.asarray(b)
    with pytest.raises(symm.InUse):
        b.release()
    del a
    b.release()
    b.release()
    with pytest.raises(symm.Invalid, match="released"):
        b.ptr
    assert "released" in repr(b)


def test_site_is_kept(alone):
    t = alone.world
    b = t.empty(16, site="s")
    offset = b.offset
    with pytest.raises(symm.InUse):
        t.empty(16, site="s")
    b.release()
    assert t.empty(16, site="s").offset == offset
    with pytest.raises(symm.Mismatch):
        t.empty(32, site="s")
    t.free(site="s")
    t.empty(32, site="s")


def test_drop_in_any_order():
    for _ in range(20):
        ctx = symm.init(backend="host", rank=0, size=1)
        t = ctx.world
        b = t.empty(100)
        a = np.asarray(b)
        s = ctx.stream()
        w = t.all_reduce(b, stream=s, work=True)
        things = [ctx, t, b, a, s, w]
        del ctx, t, b, a, s, w
        while things:
            things.pop(len(things) // 2)
        gc.collect()


def test_world_is_one_object(alone):
    assert alone.world is alone.world and alone.world.ctx is alone


def test_finalize_waits_for_calls_of_other_threads(on_ranks):
    """finalize closes at once, and a call of another thread ends as it would have."""

    over = threading.Event()

    def rank_main(ctx):
        t = ctx.world
        if t.rank == 1:
            assert over.wait(20)
            return
        errors = []

        def late():
            try:
                t.all_reduce(np.ones(4), timeout=0.5)
            except symm.Error as error:
                errors.append(error)

        thread = threading.Thread(target=late)
        thread.start()
        time.sleep(0.1)
        ctx.finalize()
        with pytest.raises(symm.Invalid):
            t.barrier()
        thread.join()
        over.set()
        assert len(errors) == 1 and isinstance(errors[0], symm.Timeout)

    on_ranks(2, rank_main)


def test_gil_is_released_while_waiting(on_ranks):
    def rank_main(ctx):
        t = ctx.world
        for _ in range(50):
            t.barrier()
            t.all_reduce(np.ones(10))

    on_ranks(4, rank_main)


# ---- Start-up -----------------------------------------------------------------------------


def test_own_allgather():
    size = 3
    barrier = threading.Barrier(size)
    blocks = [b""] * size
    results = [None] * size

    def rank_main(rank):
        def gather(block):
            barrier.wait()
            blocks[rank] = block
            barrier.wait()
            return list(blocks)

        with symm.init(backend="host", rank=rank, size=size, allgather=gather) as ctx:
            x = np.full(3, rank + 1.0)
            ctx.world.all_reduce(x)
            results[rank] = x[0]

    threads = [threading.Thread(target=rank_main, args=(r,)) for r in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [6.0] * size


def test_allgather_that_raises():
    def broken(block):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        symm.init(backend="host", rank=0, size=2, allgather=broken)
    with pytest.raises(ValueError, match="not"):
        symm.init(backend="host", rank=0, size=2, allgather=lambda block: [b"", b"x"])
    with pytest.raises((TypeError, IndexError)):
        symm.init(backend="host", rank=0, size=2, allgather=lambda block: [])


def test_heap_write(alone, tmp_path):
    alone.world.empty(100, site="s")
    path = tmp_path / "heap.json"
    with open(path, "wb") as file:
        alone.heap_write(file)
    assert "alloc_id" in path.read_text()
    with open(path, "wb") as file, pytest.raises(symm.Invalid):
        alone.heap_write(file, "xml")
