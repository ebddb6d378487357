# SPDX-License-Identifier: MIT
"""The start and the end of contexts of symm, and of what they hold, in any order."""

import gc
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest

import symm


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


def test_cycles_are_collected(alone):
    """An array may refer to the call, the work or the buffer that holds it."""

    class Array:
        def __init__(self):
            self.array = np.ones(4)
            self.__array_interface__ = self.array.__array_interface__

    made = []
    for refer in (lambda x: alone.world.prepare("all_reduce", x),
                  lambda x: alone.world.all_reduce(x, work=True)):
        x = Array()
        x.refers = refer(x)
        made.append(weakref.ref(x))
    del x
    gc.collect()
    assert [x() for x in made] == [None, None]


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


@pytest.mark.parametrize("before", [
    "", "import symm; ctx = symm.init(backend='host', rank=0, size=1)",
])
def test_subinterpreter(before):
    """Its end closed the contexts of the main interpreter."""
    done = subprocess.run([sys.executable, "-c", f"""
{before}
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
inner = interpreters.create()
program = '''
try:
    import symm
except ImportError as error:
    print("refused", error)
'''
getattr(interpreters, "exec", interpreters.run_string)(inner, program)
interpreters.destroy(inner)
import symm
ctx = {"ctx" if before else "symm.init(backend='host', rank=0, size=1)"}
ctx.world.barrier()
"""], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "refused" in done.stdout, done.stdout + done.stderr
