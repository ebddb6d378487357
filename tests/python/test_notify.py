# SPDX-License-Identifier: MIT
"""The end of calls: Work.notify, Work.fileno and `await work`."""

import asyncio
import gc
import os
import select
import threading
import weakref

import numpy as np
import pytest

import symm


class Told:
    """A function for Work.notify, and what it was called with."""

    def __init__(self):
        self.errors, self.threads, self.event = [], [], threading.Event()

    def __call__(self, error):
        self.errors.append(error)
        self.threads.append(threading.get_ident())
        self.event.set()

    def wait(self):
        assert self.event.wait(60)
        return self.errors[0]


def test_notify(on_ranks):
    def rank_main(ctx):
        s = ctx.stream()
        x = np.ones(1 << 18, np.float32)
        first, second, inner = Told(), Told(), Told()
        w = ctx.world.all_reduce(x, stream=s, work=True)
        w.notify(first)
        assert first.wait() is None and (x == 2).all()
        w.notify(lambda error: w.notify(inner))  # from within a function
        w.notify(second)
        assert inner.wait() is None and second.wait() is None
        w.synchronize()
        s.synchronize()
        assert first.errors == second.errors == inner.errors == [None]
        assert threading.get_ident() not in first.threads + second.threads
        with pytest.raises(TypeError, match="callable"):
            w.notify(7)

    on_ranks(2, rank_main)


def test_notify_keeps_the_work_until_the_end(on_ranks):
    def rank_main(ctx):
        s, told, gone = ctx.stream(), Told(), threading.Event()
        if ctx.world.rank == 0:
            x = np.ones(1000, np.float32)
            alive = weakref.ref(x, lambda _: gone.set())
            ctx.world.recv(x, 1, stream=s, work=True).notify(told)
            del x
            gc.collect()
            assert alive() is not None
            ctx.world.barrier()
            assert told.wait() is None and gone.wait(60)
        else:
            ctx.world.barrier()
            ctx.world.send(np.zeros(1000, np.float32), 0)

    on_ranks(2, rank_main)


def test_failure_is_told(on_ranks):
    judged = threading.Event()

    def rank_main(ctx):
        if ctx.world.rank == 1:  # does not come
            assert judged.wait(60)
            return
        told, s = Told(), ctx.stream()
        w = ctx.world.barrier(stream=s, timeout=0.1, site="lonely", work=True)
        w.notify(told)
        error = told.wait()
        assert isinstance(error, symm.Timeout) and "lonely" in str(error)
        assert error.status == symm.Timeout.status and str(error) == w.error
        assert select.select([w], [], [], 10)[0] == [w]

        async def main():
            with pytest.raises(symm.Timeout, match="lonely"):
                await w

        asyncio.run(main())
        judged.set()

    on_ranks(2, rank_main)


def test_exception_of_a_function(alone, monkeypatch):
    seen, done = [], Told()
    monkeypatch.setattr("sys.unraisablehook", lambda raised: seen.append(raised.exc_value))
    w = alone.world.barrier(work=True)

    def fails(error):
        raise KeyError("mine")

    w.notify(fails)
    w.notify(done)
    assert done.wait() is None
    assert len(seen) == 1 and isinstance(seen[0], KeyError)


def test_fileno(alone):
    s = alone.stream()
    w = alone.world.barrier(stream=s, work=True)
    fd = w.fileno()
    assert fd == w.fileno() and not os.get_inheritable(fd)
    poll = select.poll()
    poll.register(w, select.POLLIN)
    for _ in range(2):
        assert poll.poll(60000) == [(fd, select.POLLIN)]
    del w
    gc.collect()
    with pytest.raises(OSError):
        os.fstat(fd)


def test_await(on_ranks):
    def rank_main(ctx):
        t, s = ctx.world, ctx.stream()
        x = np.arange(100, dtype=np.int32)

        async def one(i):
            return await t.all_reduce(x[i:i + 1], stream=s, work=True)

        async def main():
            assert await asyncio.gather(*map(one, range(100))) == [None] * 100
            w = t.barrier(stream=s, work=True)
            await asyncio.gather(wait(w), wait(w))  # twice at a time
            await w  # and after its end
            await t.barrier(work=True)

        async def wait(w):
            await w

        asyncio.run(main())
        assert (x == 2 * np.arange(100)).all()

    on_ranks(2, rank_main)


def test_await_that_is_cancelled(on_ranks):
    """Neither a cancelled wait nor a loop that is closed disturbs the call."""

    def rank_main(ctx):
        t, s = ctx.world, ctx.stream()
        if t.rank == 0:
            w = t.recv(np.zeros(1, np.int32), 1, stream=s, work=True)

            async def wait():
                await w

            async def main():
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(wait(), 0.05)

            asyncio.run(main())
        t.barrier()
        if t.rank == 0:
            w.synchronize()
        else:
            t.send(np.ones(1, np.int32), 0)

    on_ranks(2, rank_main)


def test_destroy_and_finalize_call_what_is_pending():
    told = [Told() for _ in range(100)]
    ctx = symm.init(backend="host", rank=0, size=1)
    team, s = ctx.world.split(0), ctx.stream()
    for i, one in enumerate(told):
        (team if i < 50 else ctx.world).barrier(stream=s, work=True).notify(one)
    team.destroy()
    assert all(one.errors == [None] for one in told[:50])
    ctx.finalize()
    assert all(one.errors == [None] for one in told[50:])
    with pytest.raises(symm.Invalid, match="finalized"):
        ctx.stream()


@pytest.mark.parametrize("how", ["finalize", "drop"])
def test_context_that_ends_in_a_function(how):
    """libsymm's thread must not wait for its own end: the main thread ends the context."""
    ctx = symm.init(backend="host", rank=0, size=1)
    alive, told, held = weakref.ref(ctx), Told(), [ctx, ctx.world]
    ready = threading.Event()

    def end(error):
        ready.wait(60)
        if how == "finalize":
            held[0].finalize()
            told.errors.append(held[0].closed)
        held.clear()
        told.event.set()

    held[1].barrier(work=True).notify(end)
    del ctx
    ready.set()
    del end
    assert told.event.wait(60)
    for _ in range(6000):
        if alive() is None:
            break
        threading.Event().wait(0.01)
    assert alive() is None
    assert told.errors == ([True] if how == "finalize" else [])


@pytest.mark.parametrize("end", ["pass", "raise SystemExit(0)", "ctx.finalize()", "del ctx, s"])
def test_exit_with_pending_functions(symmrun, end):
    done = symmrun(2, f"""
        import symm, threading
        ctx = symm.init()
        s = ctx.stream()
        for i in range(1000):
            ctx.world.barrier(stream=s, work=True).notify(lambda e: print("told", e))
        w = ctx.world.barrier(stream=s, work=True)
        w.fileno()
        {end}
    """)
    assert done.stdout.count("told None") == 2000 and done.stderr == ""


def test_forked_child(symmrun):
    symmrun(1, """
        import os, symm
        ctx = symm.init()
        s = ctx.stream()
        w = ctx.world.barrier(stream=s, work=True)
        w.notify(lambda e: None)
        if (child := os.fork()) == 0:
            try:
                w.notify(print)
            except symm.Forked:
                ctx.finalize()
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        w.synchronize()
    """)
