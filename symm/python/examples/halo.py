# SPDX-License-Identifier: MIT
"""Heat on a ring of rods, one rod a rank: ends go to both neighbours by put_signal.

symmrun -n 4 -- python halo.py [STEPS [POINTS]]

Each rank has two symmetric buffers, for even and for odd steps: POINTS values and a copy of each
neighbour's nearest value. A step writes this rank's ends straight into its neighbours' copies,
and waits for theirs; no step has a barrier. A neighbour may be one step ahead, and then writes the
buffer of the other parity; it cannot be two ahead, since it waits for this rank's ends.
"""

import sys

import numpy as np

import symm

LEFT, RIGHT = 0, 1  # signals: a value came from the left, from the right


def diffuse(values):
    """The inner points of one step."""
    return values[1:-1] + 0.25 * (values[:-2] - 2 * values[1:-1] + values[2:])


def serial(rods, steps):
    whole = np.concatenate(rods)
    for _ in range(steps):
        whole = diffuse(np.concatenate([whole[-1:], whole, whole[:1]]))
    return whole.reshape(len(rods), -1)


def step(world, now, later):
    """Fills the copies of `now` at the neighbours, and `later`'s points from `now`."""
    left, right = (world.rank - 1) % world.size, (world.rank + 1) % world.size
    world.put(now[-1:], now[1:2], left, signal=RIGHT)
    world.put(now[:1], now[-2:-1], right, signal=LEFT)
    world.signal_wait(left, LEFT)
    world.signal_wait(right, RIGHT)
    later[1:-1] = diffuse(now)


def main(steps=50, points=100):
    with symm.init() as ctx:
        world = ctx.world
        buffers = [world.empty(points + 2, "float64", site=name) for name in ("even", "odd")]
        world.rendezvous()
        arrays = [np.asarray(buffer) for buffer in buffers]
        rods = [np.random.default_rng(r).random(points) for r in range(world.size)]
        arrays[0][1:-1] = rods[world.rank]
        world.barrier()
        for k in range(steps):
            step(world, arrays[k % 2], arrays[(k + 1) % 2])
        found = arrays[steps % 2][1:-1]
        wanted = serial(rods, steps)[world.rank]
        assert np.array_equal(found, wanted), np.abs(found - wanted).max()
        world.barrier()
        if world.rank == 0:
            print(f"right: {steps} steps on {world.size} ranks, mean {found.mean():.6f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
