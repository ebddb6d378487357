# SPDX-License-Identifier: MIT
"""symm.jax on CPU arrays, on ranks that are processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import symm

EXAMPLE = Path(__file__).parents[3] / "symm" / "python" / "examples" / "jax_data_parallel.py"
PRELUDE = """
import os, jax, jax.numpy as jnp, numpy as np, symm, symm.jax as sj
ctx = symm.init()
team = ctx.world
rank, size = team.rank, team.size
def refused(function, *words):
    try:
        jax.block_until_ready(function())
    except Exception as error:
        assert all(word in str(error) for word in words), (str(error), words)
        return error
    raise AssertionError("not refused")
"""


@pytest.fixture
def ranks(tmp_path):
    """ranks(size, source): runs Python source on that many processes; the finished symmrun."""

    def run(size, source, check=True, timeout=240):
        program = tmp_path / "program.py"
        program.write_text(source if "symm.init" in source else PRELUDE + source)
        done = subprocess.run(
            # A program is traced and compiled after a death: on a busy machine not within 5 s.
            [str(symm.executable("symmrun")), "-n", str(size), "--grace", "60", sys.executable,
             str(program)],
            capture_output=True, text=True, timeout=timeout,
            env={**os.environ, "JAX_PLATFORMS": "cpu", "SYMM_BACKEND": "host"},
        )
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


@pytest.mark.parametrize("size", [1, 3])
def test_collectives(ranks, size):
    ranks(size, """
rng = np.random.default_rng(7)  # references by numpy: JAX compiles each operation anew
shapes = {"float32": ((), (300, 200)), "bfloat16": ((3, 7),), "float16": ((0,),), "int32": ((5,),),
          "int16": ((3, 7),), "uint8": ((9,),), "float8_e5m2": ((4,),)}
def same(got, want, dtype):
    assert got.shape == want.shape and got.dtype == dtype, (got.shape, want.shape, got.dtype)
    assert np.array_equal(np.asarray(got).astype(float), want.astype(dtype).astype(float)), dtype
for dtype in shapes:
    for shape in shapes[dtype]:
        whole = rng.integers(0, 4, (size, *shape)).astype(float)
        x = jnp.asarray(whole[rank].astype(jnp.dtype(dtype)))
        same(sj.all_reduce(x, team), whole.sum(0), x.dtype)
        same(sj.all_reduce(x, team, "max"), whole.max(0), x.dtype)
        same(sj.all_gather(x, team), whole, x.dtype)
        same(sj.broadcast(x, team, size - 1), whole[-1], x.dtype)
        whole = rng.integers(0, 4, (size, size, *shape)).astype(float)
        x = jnp.asarray(whole[rank].astype(jnp.dtype(dtype)))
        same(sj.all_to_all(x, team), whole[:, rank], x.dtype)
        same(sj.reduce_scatter(x, team), whole.sum(0)[rank], x.dtype)
for value in (np.ones(3, bool), np.ones(3, "complex64")):  # moves take every type
    same(sj.all_gather(value, team), np.stack([value] * size).real, value.dtype)
    assert jnp.array_equal(sj.broadcast(value, team), value)
calls = sj.counters()
assert calls["all_reduce"][0] == 2 * 8 and calls["all_gather"][0] == 8 + 2, calls
assert calls["all_to_all"][0] == calls["reduce_scatter"][0] == 8, calls
before = calls["all_to_all"][1]
sj.all_to_all(jnp.ones((size, 10), "int16"), team).block_until_ready()
assert sj.counters()["all_to_all"] == (9, before + 20 * size)
assert np.asarray(sj.all_reduce(np.array([6, 3]), team, "band")).tolist() == [6, 3]
""")


def test_order(ranks):
    """Calls without a data dependence between them: each takes the token of the one before."""
    ranks(3, """
import re
@jax.jit
def step(a, b, c):
    # c is ready first, and its call is the last one of the program
    for _ in range(4):
        a = jnp.sin(a @ a.T) @ a
    p = sj.all_reduce(a * 0 + rank, team)
    q = sj.all_gather(b, team)
    r = sj.all_reduce(b, team, "max")
    s = sj.broadcast(b * 2, team, size - 1)
    t = sj.all_reduce(c, team)
    return p, q, r, s, t
a = jnp.ones((64, 64)) / 64
text = step.lower(a, jnp.ones(7), jnp.ones(100)).as_text()
calls = re.findall(r"%(\\d+):2 = stablehlo.custom_call @symm_collective\\((%\\w+(?:#0)?),", text)
assert len(calls) == 5 and calls[0][1].startswith("%arg"), text
assert all(token == f"%{before}#0" for (before, _), (_, token) in zip(calls, calls[1:])), text
for i in range(200):
    b, c = jnp.full((7,), float(rank * i)), jnp.full((100,), rank + i)
    p, q, r, s, t = step(a, b, c)
    assert (p == size * (size - 1) // 2).all() and (q[:, 0] == jnp.arange(size) * i).all(), i
    assert (r == (size - 1) * i).all() and (s == 2 * (size - 1) * i).all(), i
    assert (t == size * (size - 1) // 2 + size * i).all(), i
""")


def test_transformations(ranks):
    ranks(2, """
from jax.sharding import Mesh, PartitionSpec as P
x = jnp.arange(6.0).reshape(2, 3) + 10 * rank
total = size * (size + 1) // 2
# The loss is the sum of all ranks' losses.
grad = jax.jit(jax.grad(lambda v: (sj.all_reduce(v * v, team) * (rank + 1)).sum()))(x)
assert np.allclose(grad, 2 * x * total)
grad = jax.grad(lambda v: (sj.all_reduce(v, team, "avg") * (rank + 1)).sum())(x)
assert np.allclose(grad, total / size)
grad = jax.grad(lambda v: (sj.all_gather(v, team) * (rank + 1)).sum())(x)
assert (grad == total).all()
grad = jax.grad(lambda v: (sj.reduce_scatter(v, team) * (rank + 1)).sum())(x)
assert (grad == jnp.array([[1.0], [2.0]])).all(), grad
grad = jax.grad(lambda v: (sj.all_to_all(v, team) * (rank + 1)).sum())(x)
assert (grad == jnp.array([[1.0], [2.0]])).all(), grad
grad = jax.grad(lambda v: (sj.broadcast(v, team, 1) * (rank + 1)).sum())(x)
assert (grad == (total if rank == 1 else 0)).all()
layer = jax.checkpoint(lambda v: sj.all_reduce(jnp.sin(v), team))
grad = jax.jit(jax.grad(lambda v: (layer(layer(v)) * (rank + 1)).sum()))(x)
inner = sj.all_reduce(jnp.sin(x), team)
assert np.allclose(grad, size * total * jnp.cos(inner) * jnp.cos(x), rtol=1e-5)
value, tangent = jax.jvp(lambda v: sj.all_reduce(v, team), (x,), (jnp.ones_like(x) * rank,))
assert (tangent == 1).all()
refused(lambda: jax.grad(lambda v: sj.all_reduce(v, team, "max").sum())(x), "sum and avg")
# vmap, over each dimension
for axis in (0, 1):
    got = jax.vmap(lambda v: sj.all_reduce(v, team), axis, axis)(x)
    assert np.array_equal(got, sj.all_reduce(x, team))
    got = jax.vmap(lambda v: sj.all_gather(v, team), axis)(x)
    assert np.array_equal(got, jnp.moveaxis(sj.all_gather(x, team), axis + 1, 0))
got = jax.vmap(lambda v: sj.reduce_scatter(v, team), 1)(x)
assert np.array_equal(got, sj.reduce_scatter(x, team))
got = jax.vmap(lambda v: sj.all_to_all(v, team), 1, 1)(x)
assert np.array_equal(got, sj.all_to_all(x, team))
# in a loop, and in shard_map over this process's device
def body(carry, v):
    carry = sj.all_reduce(carry + v, team)
    return carry, carry
_, seen = jax.jit(lambda v: jax.lax.scan(body, jnp.zeros(3), v))(x)
want = sj.all_reduce(x[0], team)
assert np.allclose(seen, jnp.stack([want, size * want + sj.all_reduce(x[1], team)]))
mesh = Mesh(np.array(jax.devices()[:1]), ("i",))
mapped = jax.jit(jax.shard_map(lambda v: sj.all_reduce(v, team), mesh=mesh, in_specs=P("i"),
                               out_specs=P("i")))
assert np.array_equal(mapped(x), sj.all_reduce(x, team))
# derivatives and loops in it, where JAX compares the axes that values differ along
mapped = jax.shard_map(lambda v: sj.all_gather(v, team), mesh=mesh, in_specs=P("i"),
                       out_specs=P(None, "i"))
grad = jax.grad(lambda v: (mapped(v) * (rank + 1)).sum())(x)
assert (grad == total).all(), grad
mapped = jax.jit(jax.shard_map(lambda v: jax.lax.scan(body, v[0] * 0, v)[0][None], mesh=mesh,
                               in_specs=P("i"), out_specs=P("i")))
assert np.array_equal(mapped(x)[0], seen[-1])
explicit = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Explicit,))
with jax.set_mesh(explicit):
    y = jax.device_put(x, jax.sharding.NamedSharding(explicit, P(None, "i")))
    for call in sj.all_reduce, sj.all_gather, sj.reduce_scatter, sj.all_to_all, sj.broadcast:
        assert jax.grad(lambda v: call(v, team).sum())(y).shape == x.shape
""")


def test_dtypes(ranks):
    """Each dtype that JAX has: right, or refused as long as the program is traced."""
    ranks(2, """
import ml_dtypes
jax.config.update("jax_enable_x64", True)
reduced = ("float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2 int64 int32 int16 int8 "
           "uint64 uint32 uint16 uint8").split()
moved = ("bool complex64 complex128 float8_e3m4 float8_e4m3 float8_e8m0fnu float8_e4m3b11fnuz "
         "float8_e4m3fnuz float8_e5m2fnuz").split()
packed = "int2 int4 uint2 uint4 float4_e2m1fn".split()
reductions, moves = ["all_reduce", "reduce_scatter"], ["all_gather", "all_to_all", "broadcast"]
for dtype in reduced + moved + packed:
    x = np.ones((size, 4), jnp.dtype(dtype))  # JAX would compile a program for it
    right = reductions * (dtype in reduced) + moves * (dtype not in packed)
    step = jax.jit(lambda v: [getattr(sj, name)(v, team) for name in right])
    for name, got in zip(right, step(x), strict=True):
        assert got.dtype == dtype, (name, got.dtype, dtype)
        wanted = size if name in reductions else 1
        assert (np.asarray(got).astype(complex) == wanted).all(), (name, dtype, got)
    for name in {*reductions, *moves} - {*right}:
        error = refused(lambda: jax.jit(lambda v: getattr(sj, name)(v, team))(x),
                        f"symm.jax.{name}()", dtype)
        assert isinstance(error, symm.Unsupported), error
keys = jax.random.split(jax.random.key(rank), size)
got = jax.random.key_data(sj.broadcast(keys, team, 1))
assert (got == jax.random.key_data(jax.random.split(jax.random.key(1), size))).all()
# A sum of complex numbers is what this derivative would be.
refused(lambda: jax.grad(lambda v: jnp.abs(sj.all_gather(v + 1j, team)).sum())(jnp.ones(2)),
        "complex128", "derivatives")
assert (sj.all_reduce(jnp.ones(2), team) == size).all()  # and none needs recover()
""")


def test_several_devices(ranks):
    """Each device of a program would make the call: in no order, so of any other's data."""
    ranks(2, """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
""" + PRELUDE + """
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()), ("i",))
x = jnp.arange(4.0)
def step(v):
    return sj.all_reduce(v, team)
for axes in {}, {"check_vma": False}:
    mapped = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=P("i"), out_specs=P("i"), **axes))
    error = refused(lambda: mapped(x), "2 devices", "all_reduce")
    assert isinstance(error, symm.Unsupported)
refused(lambda: jax.jit(step)(jax.device_put(x, NamedSharding(mesh, P("i")))), "2 devices")
refused(lambda: jax.pmap(step)(jnp.ones((2, 2))), "2 devices")
for device in jax.devices():
    assert jnp.array_equal(step(jax.device_put(x, device)), x * size)
""")


def test_errors(ranks):
    ranks(2, """
x = jnp.ones((3, 4))
refused(lambda: sj.all_reduce(x, team, "median"), "median", "sum")
refused(lambda: sj.all_reduce(x, "world"), "symm.Team")
refused(lambda: sj.all_reduce(x > 0, team), "bool")
refused(lambda: sj.all_to_all(x, team), "2 ranks")
refused(lambda: sj.reduce_scatter(jnp.float32(1), team), "2 ranks")
refused(lambda: sj.broadcast(x, team, 2), "root 2")
for root in 1.5, "0":
    refused(lambda: sj.broadcast(x, team, root), "root must be an integer")
refused(lambda: jax.jit(lambda r: sj.broadcast(x, team, r))(0), "root must be", "traced")
refused(lambda: sj.all_reduce(x, team, ["sum"]), "reduction ['sum']")
refused(lambda: sj.all_reduce(x, team, "band"), "integers", "float32")
refused(lambda: sj.all_reduce({"w": x}, team), "x must be an array", "dict", "jax.tree.map")
refused(lambda: sj.all_reduce(team.empty(4, "float32", site="b"), team), "from_dlpack")
step = jax.jit(lambda v: sj.all_reduce(v, team))
assert (step(x) == 2).all()
# Shapes that differ between ranks: all ranks are told, and the team goes on or says why.
error = refused(lambda: step(jnp.ones(10 + 1000 * rank)), "symm")
assert isinstance(error, jax.errors.JaxRuntimeError)
ctx.finalize()
refused(lambda: step(x), "finalized")
""")


def test_refuses_threads():
    """In a process of its own: JAX is not for a process that forks."""
    done = subprocess.run([sys.executable, "-c", """
import symm, symm.jax
def main(ctx):
    try:
        symm.jax.all_reduce(1.0, ctx.world)
    except symm.Unsupported as error:
        return "threads" in str(error)
with symm.ThreadRanks(2) as ranks:
    assert ranks.run(main) == [True, True]
"""], capture_output=True, text=True, timeout=120, env={**os.environ, "JAX_PLATFORMS": "cpu"})
    assert done.returncode == 0, done.stderr


def test_killed_rank(ranks):
    done = ranks(3, """
import signal, sys
step = jax.jit(lambda v: sj.all_reduce(v, team))
step(jnp.ones(100)).block_until_ready()
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
error = refused(lambda: [step(jnp.ones(100)) for _ in range(3)], "rank 1")
sj.recover()
team = team.shrink()
got = jax.jit(lambda v: sj.all_reduce(v, team))(jnp.full(100, 1.0 + rank))
assert team.size == 2 and (got == 4).all(), got
print("told", rank, flush=True)
""", check=False)
    assert done.stdout.count("told") == 2, done.stdout + done.stderr
    assert "Exception ignored" not in done.stdout + done.stderr


def test_example(ranks):
    done = ranks(3, EXAMPLE.read_text(encoding="utf-8"))
    assert "right: " in done.stdout
