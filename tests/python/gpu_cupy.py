# SPDX-License-Identifier: MIT
"""CuPy arrays on CUDA: in symm.cupy's memory, registered, put to by peers, and reduced.

symmrun -n 2 -- python tests/python/gpu_cupy.py

Ranks take the GPUs in turn; with fewer GPUs than ranks SYMM_OVERSUBSCRIBE=1 is needed. Exit status
77 without CuPy.
"""

import sys

try:
    import cupy
except ImportError:
    sys.exit(77)

import symm
import symm.cupy

COUNT = 1000


def refused(kind, function, *args):
    try:
        function(*args)
    except kind:
        return
    raise AssertionError(f"{function} did not raise {kind}")


def check(team, x, mine):
    """x: zeros of the pool; mine: an array of CuPy's own memory."""
    buffer = team.register(x)
    team.rendezvous()
    mine[:] = cupy.arange(COUNT, dtype="int32") + 1000 * team.rank
    team.put(x, mine, (team.rank + 1) % team.size)
    team.barrier()
    source = (team.rank + team.size - 1) % team.size
    assert (x == cupy.arange(COUNT) + 1000 * source).all()
    theirs = cupy.asarray(buffer.peer(source)).view("int32")
    before = (source + team.size - 1) % team.size
    assert (theirs == cupy.arange(COUNT) + 1000 * before).all()
    total = cupy.empty_like(x)
    team.all_reduce(x, total)
    assert (total == cupy.arange(COUNT) * team.size + 1000 * sum(range(team.size))).all()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        team.all_reduce(total)  # on that stream
        assert (total == cupy.arange(COUNT) * team.size**2
                + 1000 * sum(range(team.size)) * team.size).all()
        stream.synchronize()
    team.barrier()
    cupy.cuda.Device().synchronize()
    buffer.release()
    refused(symm.Invalid, team.put, x, mine, source)
    team.rendezvous()


def main():
    with symm.init(backend="cuda") as ctx:
        team = ctx.world
        pool = symm.cupy.memory_pool()
        with cupy.cuda.Device(ctx.info.device):
            mine = cupy.zeros(COUNT, "int32")
            for count in (COUNT, 3 * COUNT):  # of the pool: parts of a block, reused
                with cupy.cuda.using_allocator(pool.malloc):
                    arrays = [cupy.zeros(count, "int32") for _ in range(3)]
                for array in arrays:
                    check(team, array[count - COUNT:], mine)
                del arrays, array
            assert pool.total_bytes() > 0
            pool.free_all_blocks()
            assert pool.total_bytes() == 0
            refused(cupy.cuda.memory.OutOfMemoryError, pool.malloc, 1 << 46)
        if team.rank == 0:
            print("right: CuPy arrays that peers write")


if __name__ == "__main__":
    main()
