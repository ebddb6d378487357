# SPDX-License-Identifier: MIT
"""symm.numba: a ring of puts, and an all-reduce in one shot, as kernels of Numba.

symmrun -n 2 -- python tests/python/gpu_numba.py

Ranks take the GPUs in turn; with fewer GPUs than ranks SYMM_OVERSUBSCRIBE=1 is needed. Exit status
77 without numba-cuda.
"""

import sys

try:
    import numpy as np

    if not hasattr(np, "row_stack"):  # numba-cuda 0.30 asks newer versions of NumPy for it
        np.row_stack = np.vstack
    from numba import cuda
except ImportError:
    sys.exit(77)

import symm
import symm.numba as sn

THREADS, BLOCKS = 256, 4
COUNT = THREADS * BLOCKS


@cuda.jit
def ring(team, inboxes, x, failed):
    i, block = cuda.grid(1), cuda.blockIdx.x
    rank, size = sn.rank(team), sn.size(team)
    to, source = (rank + 1) % size, (rank + size - 1) % size
    inboxes[to][i] = x[i]
    sn.signal(team, to, block, 7)
    if sn.signal_wait(team, source, block, 7) != 0:
        failed[0] = 1


@cuda.jit
def all_reduce(team, parts, x, out, failed):
    """Each rank pushes its values to all; parts[r] holds a row for each sender, on rank r."""
    i, block = cuda.grid(1), cuda.blockIdx.x
    rank, size = sn.rank(team), sn.size(team)
    for r in range(size):
        parts[r][rank, i] = x[i]
    for r in range(size):
        sn.signal(team, r, 100 + block, 1)
    for r in range(size):
        if sn.signal_wait(team, r, 100 + block, 1) != 0:
            failed[0] = 1
            return
    total = 0.0
    for r in range(size):
        total += parts[rank][r, i]
    out[i] = total


def main():
    with symm.init() as ctx:
        team = ctx.world
        cuda.select_device(ctx.info.device)
        rank, size = team.rank, team.size
        inbox, parts = team.empty(COUNT, "float32"), team.empty((size, COUNT), "float64")
        team.rendezvous()
        address = sn.device_team(team)
        inboxes, every = sn.peers(inbox), sn.peers(parts)
        failed = cuda.to_device(np.zeros(1, np.int32))
        for turn in range(20):
            x = np.arange(COUNT, dtype=np.float32) * (rank + 1) + turn
            ring[BLOCKS, THREADS](address, inboxes, cuda.to_device(x), failed)
            source = (rank + size - 1) % size
            got = inboxes[rank].copy_to_host()
            assert np.array_equal(got, np.arange(COUNT, dtype=np.float32) * (source + 1) + turn)
            team.barrier()  # all have read their inboxes
            cuda.synchronize()
            out = cuda.to_device(np.zeros(COUNT))
            all_reduce[BLOCKS, THREADS](address, every, cuda.to_device(x.astype(float)), out,
                                        failed)
            want = np.arange(COUNT) * (size * (size + 1) / 2) + turn * size
            assert np.array_equal(out.copy_to_host(), want)
            team.barrier()
            cuda.synchronize()
        assert failed.copy_to_host()[0] == 0
        if rank == 0:
            print(f"right: {size} ranks")


if __name__ == "__main__":
    main()
