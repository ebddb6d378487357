# SPDX-License-Identifier: MIT
"""Errors of symm: of wrong arguments, and of ranks that are late, differ or fail."""

import threading
import time

import numpy as np
import pytest

import symm


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
    (lambda t, x: t.all_reduce(x, timeout="1"), TypeError, "timeout must be a number of seconds"),
    (lambda t, x: t.all_reduce(x, site=3), TypeError, "site must be a str"),
    (lambda t, x: t.all_reduce(x, site="a\0b"), symm.Invalid, "NUL"),
    (lambda t, x: t.all_reduce(x, algorithm="nope"), symm.Invalid, "nope"),
    (lambda t, x: t.all_reduce(x, numerics="nope"), symm.Invalid, "rank_order"),
    (lambda t, x: t.all_reduce(x, stream=True), TypeError, "bool"),
    (lambda t, x: t.all_reduce(x, stream="s"), TypeError, "__cuda_stream__"),
    (lambda t, x: t.all_reduce(x, stream=1 << 70), symm.Invalid, "stream .* no handle"),
    (lambda t, x: t.load_plan(3), TypeError, "path must be a path"),
    (lambda t, x: t.ctx.heap_write("f"), TypeError, "fd must be an integer"),
    (lambda t, x: symm.executable(3), TypeError, "name must be a string"),
    (lambda t, x: t.all_reduce(x, channel=1 << 40), symm.Invalid, "32 bits"),
    (lambda t, x: t.broadcast(x, 7), symm.Invalid, "7"),
    (lambda t, x: t.broadcast(x, 1 << 80), symm.Invalid, "root .* 32 bits"),
    (lambda t, x: t.put(x, x, 3), symm.Error, None),
    (lambda t, x: t.signal(0, 256), symm.Invalid, "256"),
    (lambda t, x: t.put(x, x, 0, signal=-3), symm.Invalid, "-3"),
    (lambda t, x: t.split(-2), symm.Invalid, "-2"),
    (lambda t, x: t.subset([]), symm.Invalid, "0 ranks"),
    (lambda t, x: t.subset([9]), symm.Invalid, "9"),
    (lambda t, x: t.subset([0] * 99), symm.Invalid, "99"),
    (lambda t, x: t.subset([0.5]), TypeError, "ranks"),
    (lambda t, x: t.subset(0), TypeError, "ranks must be a sequence"),
    (lambda t, x: t.subset("0"), TypeError, "ranks must be a sequence"),
    (lambda t, x: t.subset({0}), TypeError, "ranks must be a sequence"),
    (lambda t, x: t.prepare("fly", x), symm.Invalid, "fly"),
    (lambda t, x: t.prepare(), TypeError, "operation"),
    (lambda t, x: t.p2p([("fly", x, 0)]), symm.Invalid, "fly"),
    (lambda t, x: t.p2p([3]), TypeError, "send"),
    (lambda t, x: t.p2p(3), TypeError, "operations must be a sequence"),
    (lambda t, x: t.load_plan("/nowhere.json"), symm.Error, "nowhere"),
    (lambda t, x: t.free(), symm.Invalid, "site"),
    (lambda t, x: t.free(site="unknown"), symm.NotFound, None),
    (lambda t, x: t.empty(3, site="a", alloc_id=1), symm.Invalid, "one of them"),
    (lambda t, x: t.empty(3, alloc_id="a"), TypeError, "alloc_id must be an integer"),
    (lambda t, x: t.empty(3.0), TypeError, "shape must be an integer or a sequence"),
    (lambda t, x: t.empty("3"), TypeError, "shape must be an integer or a sequence"),
    (lambda t, x: t.empty((3, 2.0)), TypeError, "shape must be .*float"),
    (lambda t, x: t.empty((3, 2), strides=2.0), TypeError, "strides must be"),
    (lambda t, x: t.empty(1 << 70), symm.Overflow, "shape"),
    (lambda t, x: t.empty(3, np.dtype(">f4")), symm.Invalid, "byte order"),
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


def test_thread_ranks_raise_the_cause(on_ranks):
    """Not what it has made of the ranks that wait for the one that has failed."""

    def rank_main(ctx):
        if ctx.world.rank == 2:
            raise KeyError("mine")
        ctx.world.barrier()

    with pytest.raises(KeyError) as caught:
        on_ranks(3, rank_main)
    assert caught.value.__notes__[0] == "on rank 2"
    assert caught.value.__notes__[1].startswith("rank 0: PeerDead: ")


def test_thread_ranks_raise_the_first(on_ranks):
    def rank_main(ctx):
        if ctx.world.rank == 1:
            raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        on_ranks(3, rank_main)
    assert "on rank 1" in caught.value.__notes__
