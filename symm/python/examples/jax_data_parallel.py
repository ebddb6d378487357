# SPDX-License-Identifier: MIT
"""Data parallel training in JAX, one process a rank: symmrun -n 2 -- python jax_data_parallel.py

Each rank has its part of a batch; gradients are averaged by an all_reduce inside the jitted step.
The weights must come to those of one process that sees the whole batch.
"""

import jax
import jax.numpy as jnp
import numpy as np

import symm
import symm.jax

STEPS, PART, WIDTH = 20, 16, 8


def loss(weights, inputs, targets):
    hidden = jnp.tanh(inputs @ weights["in"])
    return jnp.mean((hidden @ weights["out"] - targets) ** 2)


def start():
    rng = np.random.default_rng(0)
    return {"in": jnp.asarray(rng.normal(size=(4, WIDTH)), jnp.float32),
            "out": jnp.asarray(rng.normal(size=(WIDTH, 1)), jnp.float32)}


def batch(step, part):
    rng = np.random.default_rng([step, part])
    inputs = rng.normal(size=(PART, 4)).astype(np.float32)
    return inputs, np.sin(inputs.sum(1, keepdims=True)).astype(np.float32)


def update(weights, gradients):
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients)


def main():
    with symm.init() as ctx:
        team = ctx.world

        @jax.jit
        def parallel(weights, inputs, targets):
            gradients = jax.grad(loss)(weights, inputs, targets)
            return update(weights, jax.tree.map(
                lambda g: symm.jax.all_reduce(g, team, "avg"), gradients))

        @jax.jit
        def serial(weights, inputs, targets):
            return update(weights, jax.grad(loss)(weights, inputs, targets))

        mine = whole = start()
        for step in range(STEPS):
            parts = [batch(step, r) for r in range(team.size)]
            mine = parallel(mine, *parts[team.rank])
            whole = serial(whole, *map(np.concatenate, zip(*parts)))
        for name in mine:
            assert jnp.allclose(mine[name], whole[name], atol=1e-5), name
            every = symm.jax.all_gather(mine[name], team)
            assert (every == mine[name]).all(), "the ranks' weights differ"
        if team.rank == 0:
            print(f"right: {STEPS} steps on {team.size} ranks")


if __name__ == "__main__":
    main()
