# SPDX-License-Identifier: MIT
"""What all_reduce_norm computes, in numpy: norm.h step by step, roundings where it has them."""

import ml_dtypes
import numpy as np

E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
GROUP = 128


def total(inputs, round_partial=False):
    """The sum of all ranks' inputs in rank order."""
    dtype, sums = inputs[0].dtype, inputs[0].astype(np.float32)
    for block in inputs[1:]:
        sums = sums + block.astype(np.float32)
        if round_partial:
            sums = sums.astype(dtype).astype(np.float32)
    return sums.astype(dtype)


def add(a, b):
    """a + b in float32, rounded to a's dtype; b None: a."""
    return a if b is None else (a.astype(np.float32) + b.astype(np.float32)).astype(a.dtype)


def norm(r, weight=None, eps=1e-6, offset=0.0):
    """The normalised rows in float64, not rounded to r's dtype."""
    wide, eps = r.astype(np.float64), np.float64(np.float32(eps))
    wide = wide / np.sqrt(np.mean(wide * wide, axis=-1, keepdims=True) + eps)
    return wide if weight is None else wide * (offset + weight.astype(np.float64))


def spacing(exact, dtype):
    """The distance between neighbouring numbers of dtype at exact."""
    bits, least = {"bfloat16": (8, -126), "float16": (11, -14), "float32": (24, -126)}[dtype.name]
    exponent = np.maximum(np.floor(np.log2(np.maximum(np.abs(exact), 1e-300))), least)
    return 2.0 ** (exponent - bits + 1)


def assert_norm(n, r, weight=None, eps=1e-6, offset=0.0):
    """n is the norm of the rows r, rounded once; float32's own rounding may move a tie."""
    exact = norm(r, weight, eps, offset)
    allowed = 0.5 * spacing(exact, n.dtype) + np.abs(exact) * 2.0**-18
    wrong = np.abs(n.astype(np.float64) - exact) > allowed
    assert not wrong.any(), (n[wrong][:4], exact[wrong][:4])


def scales(n, kind):
    """The scales that 'row' and the groups write, for the rows n."""
    wide = np.abs(n.astype(np.float32))
    if kind == "row":
        return np.maximum(wide.max(-1), np.float32(2.0**-9)) / np.float32(448)
    groups = [wide[:, i:i + GROUP].max(-1) for i in range(0, n.shape[-1], GROUP)]
    made = np.maximum(np.stack(groups, 1), np.float32(1e-10)) / np.float32(448)
    return made if kind == "group" else np.ascontiguousarray(made.T)


def quantise(n, scale, kind):
    """n in 8 bits, as bytes."""
    wide = n.astype(np.float32)
    if kind == "tensor":
        wide = wide * (np.float32(1) / np.float32(scale))
    else:
        if kind == "row":
            scale = scale[:, None]
        else:
            scale = (scale if kind == "group" else scale.T).repeat(GROUP, 1)[:, :n.shape[-1]]
        wide = wide / scale
    return np.clip(wide, -448, 448).astype(E4M3).view(np.uint8)
