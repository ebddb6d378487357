# SPDX-License-Identifier: MIT
"""symm.jax on CUDA: collectives eager and jitted, derivatives, a loop on the device, errors.

symmrun -n 2 -- python tests/python/jax/gpu_jax.py

Each rank has a GPU of its own; with fewer of them SYMM_OVERSUBSCRIBE=1 is needed. Exit status
77 without JAX, or where JAX finds no GPU.
"""

import os
import sys

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# JAX's device is the first one that it sees. Of several GPUs each rank sees one.
if os.environ.get("SYMM_OVERSUBSCRIBE", "0") == "0":
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", os.environ.get("LOCAL_RANK", "0"))
try:
    import jax
    import jax.numpy as jnp
    import numpy as np
except ImportError:
    sys.exit(77)

import symm
import symm.jax as sj


def same(got, want):
    assert np.array_equal(np.asarray(got).astype(float), want), (got, want)


def check_calls(team):
    rng = np.random.default_rng(1)
    for dtype in ("float32", "bfloat16", "float16", "int32", "uint8"):
        for shape in ((5,), (1000, 33), (1 << 19,)):
            whole = rng.integers(0, 4, (team.size, *shape)).astype(float)
            x = jnp.asarray(whole[team.rank]).astype(dtype)
            same(sj.all_reduce(x, team), whole.sum(0))
            same(jax.jit(lambda v: sj.all_reduce(v * 2, team, "max"))(x), 2 * whole.max(0))
            same(sj.all_gather(x, team), whole)
            same(sj.broadcast(x, team, team.size - 1), whole[-1])


def check_program(team):
    """One jitted program of calls that do not depend on each other, and of a loop."""

    @jax.jit
    def step(a, b):
        for _ in range(3):
            a = jnp.sin(a @ a.T)
        first = sj.all_reduce(b, team)
        second = sj.all_reduce(a, team, "max")
        third = sj.all_gather(b, team)

        def body(carry, v):
            carry = sj.all_reduce(carry * 0.5 + v, team)
            return carry, None

        return first, second, third, jax.lax.scan(body, jnp.zeros_like(b), third)[0]

    a = jnp.ones((128, 128)) / 128
    want = None
    for i in range(50):
        b = jnp.full((300,), float(team.rank + i))
        first, second, third, last = step(a, b)
        every = np.arange(team.size, dtype=float)[:, None] + i
        same(first, np.broadcast_to(every.sum(0), (300,)))
        same(third, np.broadcast_to(every, (team.size, 300)))
        want = np.zeros(300)
        for r in range(team.size):
            want = (want * 0.5 + every[r]) * team.size
        assert np.allclose(last, want)
        assert np.array_equal(second, jax.jit(lambda v: v)(second))
    grad = jax.jit(jax.grad(lambda v: (sj.all_reduce(v * v, team) * (team.rank + 1)).sum()))
    x = jnp.arange(6.0) + team.rank
    assert np.allclose(grad(x), 2 * x * team.size * (team.size + 1) / 2)


def check_errors(team):
    """A call on a destroyed team fails, and so do later ones until recover()."""
    part = team.split(color=0)
    steps = [jax.jit(lambda v, t=t: sj.all_reduce(v, t)) for t in (part, team)]
    for step in steps:
        assert (step(jnp.ones(10)) == team.size).all()
    part.destroy()
    for step in steps:
        try:
            step(jnp.ones(10)).block_until_ready()
        except jax.errors.JaxRuntimeError as error:
            assert "destroyed" in str(error), error
        else:
            raise AssertionError("a call after the failed one")
    sj.recover()
    assert (steps[1](jnp.ones(10)) == team.size).all()


def main():
    if jax.default_backend() != "gpu":
        sys.exit(77)
    jnp.ones(1).block_until_ready()  # JAX's context is the current one
    with symm.init(backend="cuda") as ctx:
        team = ctx.world
        check_calls(team)
        check_program(team)
        if team.rank == 0:
            print("counters:", sj.counters())
        check_errors(team)
        if team.rank == 0:
            print(f"right: JAX {jax.__version__}")


if __name__ == "__main__":
    main()
