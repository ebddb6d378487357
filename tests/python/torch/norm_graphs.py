# SPDX-License-Identifier: MIT
"""Functions for symm.torch.fuse_norm, of (x, residual, weight, bias, scale): some that are fused,
and some that look alike and are left."""

import operator

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as fc
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

FP8 = torch.float8_e4m3fn


def reduced(x, op="sum", group=None):
    return fc.all_reduce(x, op, dist.group.WORLD if group is None else group)


def rms(r, weight, eps=1e-6):
    return F.rms_norm(r, r.shape[-1:], weight, eps)


def llama(r, weight):
    wide = r.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    return weight * wide.to(r.dtype)


def quantised(n, scale):
    return (n.float() / scale).clamp(-448, 448).to(FP8)


def fused():
    """Name: (function of tensors, what becomes of the call). All are fused."""
    def pre_norm(x, residual, weight, bias, scale):
        r = reduced(x) + residual
        return rms(r, weight), r

    def everything(x, residual, weight, bias, scale):
        s = reduced(x)
        r = residual + (s + bias)
        n = rms(r, weight)
        q = quantised(n, scale)
        return s * 2, r, n, q

    def only_quantised(x, residual, weight, bias, scale):
        return (rms(reduced(x), weight).float() * scale.reciprocal()).clamp(
            min=-448, max=448).to(FP8)

    def biased(x, residual, weight, bias, scale):
        return rms(reduced(x) + bias, None)

    def gemma(x, residual, weight, bias, scale):
        wide = (reduced(x) + residual).float()
        wide = wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-6)
        return (wide * (1.0 + weight.float())).type_as(x)

    def viewed(x, residual, weight, bias, scale):
        s = reduced(x.view(-1, x.shape[-1])).view(x.shape)
        return rms(s + residual, weight), s

    def wide_too(x, residual, weight, bias, scale):
        wide = (reduced(x) + residual).float()
        n = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)
        return n, wide.sum()

    def two_layers(x, residual, weight, bias, scale):
        r = reduced(x) + residual
        n = rms(r, weight)
        r2 = reduced(torch.tanh(n)) + r
        return rms(r2, weight), r2

    def dynamic_scale(x, residual, weight, bias, scale):
        n = rms(reduced(x), weight)
        return quantised(n, (n.abs().max().float() / 448).view(1))

    def not_clamped(x, residual, weight, bias, scale):
        return (rms(reduced(x), weight).float() / scale).to(FP8)

    def llama_norm(x, residual, weight, bias, scale):
        r = reduced(x) + residual
        return llama(r, weight), r

    def in_place(x, residual, weight, bias, scale):  # of torch.distributed.all_reduce
        y = x * 2
        y.copy_(reduced(y))
        return rms(y + residual, weight), y

    def weight_last(x, residual, weight, bias, scale):
        wide = (reduced(x) + residual).float()
        n = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return n.to(x.dtype) * torch.exp(weight), wide.sum()

    return {in_place: "sum,norm", weight_last: "residual,norm",
            pre_norm: "residual,norm", everything: "sum,residual,norm,quant",
            only_quantised: "quant", biased: "norm", gemma: "norm", viewed: "sum,norm",
            wide_too: "residual,norm", two_layers: "residual,norm", dynamic_scale: "norm",
            not_clamped: "norm", llama_norm: "residual,norm"}


def left(other):
    """Functions that look alike, and why their all_reduce stays as it is. other: a second group."""

    def normalised(wide, dim=-1, eps=1e-6):
        return wide * torch.rsqrt(wide.pow(2).mean(dim, keepdim=True) + eps)

    def other_dimension(x, residual, weight, bias, scale):
        return normalised((reduced(x) + residual).float(), 0).to(x.dtype)

    def both_dimensions(x, residual, weight, bias, scale):
        return normalised((reduced(x) + residual).float(), (-2, -1)).to(x.dtype)

    def heads(x, residual, weight, bias, scale):
        return rms(reduced(x).view(*x.shape[:-1], 4, -1), None)

    def used_between(x, residual, weight, bias, scale):
        s = reduced(x)
        return rms(s + torch.tanh(s), weight)

    def added_to_itself(x, residual, weight, bias, scale):
        s = reduced(x)
        return rms(s + s, weight)

    def average(x, residual, weight, bias, scale):
        return rms(reduced(x, "avg") + residual, weight)

    def largest(x, residual, weight, bias, scale):
        return rms(reduced(x, "max") + residual, weight)

    def other_group(x, residual, weight, bias, scale):
        return rms(reduced(x, group=other) + residual, weight)

    def not_rounded(x, residual, weight, bias, scale):
        return normalised(reduced(x).float() + residual.float()).to(x.dtype)

    def scaled_sum(x, residual, weight, bias, scale):
        return rms(torch.add(reduced(x), residual, alpha=2), weight)

    def bias_last(x, residual, weight, bias, scale):
        return rms(reduced(x) + residual + bias, weight)

    def bias_used(x, residual, weight, bias, scale):
        b = reduced(x) + bias
        return rms(b + residual, weight), b

    def factor_used(x, residual, weight, bias, scale):
        wide = (reduced(x) + residual).float()
        factor = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return (wide * factor).to(x.dtype), factor

    def wide_norm(x, residual, weight, bias, scale):
        return normalised((reduced(x) + residual).float())

    def wide_weight(x, residual, weight, bias, scale):
        n = normalised((reduced(x) + residual).float()) * weight.double().float()
        return n.to(x.dtype)

    def no_norm(x, residual, weight, bias, scale):
        return reduced(x) + residual

    def other_power(x, residual, weight, bias, scale):
        wide = (reduced(x) + residual).float()
        return (wide * torch.rsqrt(wide.pow(4).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    def columns_first(x, residual, weight, bias, scale):
        r = residual.permute(2, 0, 1).contiguous().permute(1, 2, 0) + reduced(x)
        return normalised(r.float()).to(x.dtype)

    def large_eps(x, residual, weight, bias, scale):
        return normalised((reduced(x) + residual).float(), eps=1e39).to(x.dtype)

    def large_offset(x, residual, weight, bias, scale):
        n = normalised((reduced(x) + residual).float()) * (1e39 + weight.float())
        return n.to(x.dtype).clamp(-1, 1)

    none = "no norm of it was found"
    rounded = "a norm that is used before it is rounded"
    dimensions = "a norm over other dimensions than the last"
    early = "a sum that is used before the residual, weight or scale is there"
    return {other_dimension: dimensions, both_dimensions: dimensions, heads: none,
            used_between: early, added_to_itself: early, average: "the reduction 'avg'",
            largest: "the reduction 'max'", other_group: "another process group",
            not_rounded: none, scaled_sum: none, bias_last: none,
            bias_used: "the sum with the bias, which is used elsewhere",
            factor_used: "a norm whose factor is used otherwise", wide_norm: rounded,
            wide_weight: rounded, no_norm: none, other_power: none,
            columns_first: "a result that is not contiguous", large_eps: "the eps 1e+39",
            large_offset: rounded}


def of_data():
    """Functions of (x, weight, the rows that are taken), of shapes that come from data."""
    def rows(x, weight, which):
        return rms(reduced(x[which.nonzero().squeeze(-1)]), weight)

    def gated(x, weight, which):
        x = x[which.nonzero().squeeze(-1)]
        n = rms(reduced(x), weight)
        return n * x, n.float() / (x.float() + 9)

    def flat(x, weight, which):
        x = x[which.nonzero().squeeze(-1)]
        return rms(reduced(x.view(-1)).view(-1, weight.shape[0]), weight)

    return {rows: True, gated: True, flat: False}


def scaled_on(device):
    """A graph of tensors on a GPU, which need not be there, with 8 bits by a scale on `device`."""
    aten, c10d, convert = torch.ops.aten, torch.ops._c10d_functional, torch.ops.prims
    graph, mode = torch.fx.Graph(), FakeTensorMode()

    def given(name, shape, dtype=torch.bfloat16, device="cuda:0"):
        node = graph.placeholder(name)
        with mode:
            node.meta["val"] = torch.empty(shape, dtype=dtype, device=device)
        return node

    def call(target, *arguments):
        node = graph.call_function(target, arguments)
        with mode:
            node.meta["val"] = target(*torch.fx.map_arg(arguments, lambda each: each.meta["val"]))
        return node

    x, residual, weight = given("x", (4, 128)), given("residual", (4, 128)), given("weight", 128)
    scale = given("scale", (), torch.float32, device)
    s = call(c10d.all_reduce.default, x, "sum", dist.group.WORLD.group_name)
    r = call(aten.add.Tensor, call(c10d.wait_tensor.default, s), residual)
    n = call(operator.getitem, call(aten._fused_rms_norm.default, r, [128], weight, 1e-5), 0)
    wide = call(convert.convert_element_type.default, n, torch.float32)
    q = call(aten.clamp.default, call(aten.div.Tensor, wide, scale), -448.0, 448.0)
    graph.output((call(convert.convert_element_type.default, q, FP8), r))
    return graph
