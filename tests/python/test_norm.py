# SPDX-License-Identifier: MIT
"""Team.all_reduce_norm against its parts: all_reduce, the additions, the norm, 8 bits."""

import ml_dtypes
import norm_reference as ref
import numpy as np
import pytest

import symm

DTYPES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32}


def data(seed, shape, dtype):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(dtype)


def inputs(size, shape, dtype):
    return [data(rank, shape, dtype) for rank in range(size)]


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("size, shape", [(2, (5, 256)), (3, (2, 3, 40)), (2, (1, 4097))])
def test_all_outputs(on_ranks, name, size, shape):
    """Sum and residual have the bits of all_reduce and two additions; the norm is rounded once."""
    dtype = DTYPES[name]
    weight, bias = data(90, shape[-1], dtype), data(91, shape[-1], dtype)
    residual = data(92, shape, dtype)

    def rank_main(ctx):
        x = data(ctx.world.rank, shape, dtype)
        s, r, n, plain = (np.empty_like(x) for _ in range(4))
        ctx.world.all_reduce_norm(
            x, weight, 1e-5, residual=residual, bias=bias, weight_offset=1, sum_out=s,
            residual_out=r, norm_out=n, site="fused")
        ctx.world.all_reduce(x, plain)
        assert "all_reduce " in ctx.world.explain()
        assert s.tobytes() == plain.tobytes()
        return s, r, n

    results = on_ranks(size, rank_main)
    s, r, n = results[0]
    assert s.tobytes() == ref.total(inputs(size, shape, dtype)).tobytes()
    assert r.tobytes() == ref.add(ref.add(s, bias), residual).tobytes()
    ref.assert_norm(n, r, weight, 1e-5, 1.0)
    for other in results[1:]:
        assert all(a.tobytes() == b.tobytes() for a, b in zip(other, results[0]))


@pytest.mark.parametrize("kind", ["tensor", "row", "group", "group_column"])
@pytest.mark.parametrize("name", DTYPES)
def test_quantised(on_ranks, name, kind):
    dtype, shape = DTYPES[name], (6, 300)
    given = {"tensor": (1,), "row": (6,), "group": (6, 3), "group_column": (3, 6)}[kind]

    def rank_main(ctx):
        x = data(ctx.world.rank, shape, dtype)
        n, q = np.empty_like(x), np.empty(shape, ref.E4M3)
        scale = np.full(given, 0.004, np.float32)  # so that some are beyond 448
        ctx.world.all_reduce_norm(x, norm_out=n, quant_out=q, scale=scale, quant=kind)
        alone = np.empty(shape, np.uint8)
        ctx.world.all_reduce_norm(x, quant_out=alone, scale=scale, quant=kind)
        assert alone.tobytes() == q.tobytes()
        return n, q.view(np.uint8), scale

    for n, q, scale in on_ranks(2, rank_main):
        ref.assert_norm(n, ref.total(inputs(2, shape, dtype)))
        if kind == "tensor":
            assert scale[0] == np.float32(0.004) and (q & 0x7F == 0x7E).any()
        else:
            assert (scale == ref.scales(n, kind)).all()
        assert (q == ref.quantise(n, scale if kind != "tensor" else scale[0], kind)).all()


def test_options(on_ranks):
    """round_partial, in place, hidden, symmetric buffers, a prepared call, streams and works."""
    shape = (4, 64)
    blocks = inputs(3, shape, ml_dtypes.bfloat16)

    def rank_main(ctx):
        team, x = ctx.world, blocks[ctx.world.rank]
        s = np.empty_like(x)
        team.all_reduce_norm(x, sum_out=s, round_partial=True)
        assert s.tobytes() == ref.total(blocks, round_partial=True).tobytes()
        buffer = team.empty(shape, "bfloat16", site="x")
        team.rendezvous()
        held = np.asarray(buffer).view(ml_dtypes.bfloat16)
        held[:] = x
        r = x.copy()
        call = team.prepare("all_reduce_norm", buffer, residual=r, residual_out=r, norm_out=buffer,
                            constant=True)
        for step in range(3):
            held[:] = x
            before = r.copy()
            assert call() is None
            want = ref.add(ref.total(blocks), before)
            assert r.tobytes() == want.tobytes()
            ref.assert_norm(held, want)
        flat = np.empty(256, ml_dtypes.bfloat16)
        stream = ctx.stream()
        work = team.all_reduce_norm(x.reshape(-1), norm_out=flat, hidden=32, stream=stream,
                                    work=True)
        work.synchronize(10)
        assert work.done()
        ref.assert_norm(flat.reshape(8, 32), ref.total(blocks).reshape(8, 32))

    on_ranks(3, rank_main)


def test_refused(on_ranks):
    x, n = np.zeros((2, 8), np.float32), np.zeros((2, 8), np.float32)
    q, one = np.zeros((2, 8), np.uint8), np.ones(1, np.float32)
    fixed = np.zeros((2, 8), np.float32)
    fixed.flags.writeable = False
    cases = [
        ("outputs are NULL", (x,), {}),
        ("weight has 7 elements, not 8", (x, np.ones(7, np.float32)), {"norm_out": n}),
        ("weight is float64, input is float32", (x, np.ones(8)), {"norm_out": n}),
        ("residual has 8 elements, not 16", (x,), {"residual": x[0], "norm_out": n}),
        ("norm_out is read-only", (x,), {"norm_out": fixed}),
        ("no multiple of hidden, 5", (x,), {"norm_out": n, "hidden": 5}),
        ("allowed: 1 to 16384", (x,), {"norm_out": n, "hidden": 0}),
        ("allowed: bfloat16", (x.astype(np.int32),), {"sum_out": n.astype(np.int32)}),
        ("given together", (x,), {"norm_out": n, "quant_out": q}),
        ("given together", (x,), {"norm_out": n, "quant": "row"}),
        ("given together", (x,), {"norm_out": n, "scale": one}),
        ("'tensor', 'row', 'group'", (x,), {"quant_out": q, "scale": one, "quant": "block"}),
        ("scale is 1 of float32, not 2", (x,), {"quant_out": q, "scale": one, "quant": "row"}),
        ("scale is 1 of float64", (x,), {"quant_out": q, "scale": np.ones(1)}),
        ("quant_out is 16 of float32", (x,), {"quant_out": n, "scale": one}),
        ("overlap", (x, x[0]), {"norm_out": x, "sum_out": x}),
        ("eps -1", (x, None, -1), {"norm_out": n}),
    ]

    def rank_main(ctx):
        for sentence, args, options in cases:
            with pytest.raises(symm.Invalid, match=sentence):
                ctx.world.all_reduce_norm(*args, **options)
        with pytest.raises(TypeError, match="eps must be a number"):
            ctx.world.all_reduce_norm(x, None, "small", norm_out=n)
        with pytest.raises(TypeError, match="unexpected keyword argument 'gamma'"):
            ctx.world.all_reduce_norm(x, gamma=x)
        ctx.world.all_reduce_norm(x, norm_out=n)

    on_ranks(2, rank_main)


def test_ranks_disagree(on_ranks):
    """Another eps on one rank is an error on all."""
    def rank_main(ctx):
        x = np.ones((2, 8), np.float32)
        with pytest.raises(symm.Mismatch):
            ctx.world.all_reduce_norm(x, None, 1e-6 * (1 + ctx.world.rank), norm_out=x)

    on_ranks(2, rank_main)


def test_processes(symmrun):
    symmrun(3, """
        import numpy as np, symm
        with symm.init() as ctx:
            x = np.full((2, 16), 1.0 + ctx.world.rank, np.float32)
            r, n = np.ones_like(x), np.empty_like(x)
            ctx.world.all_reduce_norm(x, np.full(16, 3, np.float32), 0, residual=r, residual_out=r,
                                      norm_out=n)
            assert (r == 7).all() and abs(n - 3).max() < 1e-6, (r, n)
        """)
