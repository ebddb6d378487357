# SPDX-License-Identifier: MIT
"""What all_reduce_norm computes, in torch: the unfused form, and comparisons with it."""

import torch
import torch.distributed as dist

BITS = {torch.bfloat16: (8, -126), torch.float16: (11, -14), torch.float32: (24, -126)}
LARGEST = 448.0


def total(x, group=None, round_partial=False):
    """The sum of x over the ranks in rank order in float32, gathered on the CPU."""
    blocks = [torch.empty(x.shape) for _ in range(dist.get_world_size(group))]
    dist.all_gather(blocks, x.float().cpu().contiguous(), group=group)
    sums = blocks[0]
    for block in blocks[1:]:
        sums = sums + block
        if round_partial:
            sums = sums.to(x.dtype).float()
    return sums.to(x.dtype).to(x.device)


def rows_of(s, bias=None, residual=None):
    """r, as torch adds."""
    rows = s if bias is None else s + bias
    return rows if residual is None else rows + residual


def assert_norm(n, r, weight=None, eps=1e-6, offset=0.0, slack=0.0):
    """n is the norm of the rows r, rounded once; slack: more units of n's last place."""
    wide = r.double().cpu()
    eps = torch.tensor(eps, dtype=torch.float32).item()
    exact = wide / torch.sqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    if weight is not None:
        exact = exact * (offset + weight.double().cpu())
    bits, least = BITS[n.dtype]
    exponent = torch.frexp(exact)[1].clamp(min=least + 1)
    unit = torch.ldexp(torch.ones_like(exact), exponent - bits)
    wrong = (n.double().cpu() - exact).abs() > (0.5 + slack) * unit + exact.abs() * 2**-18
    assert not wrong.any(), (n.cpu()[wrong][:4], exact[wrong][:4])


def group_scales(n):
    wide = n.float().abs()
    blocks = [block.amax(-1, keepdim=True).clamp(min=1e-10) for block in wide.split(128, -1)]
    return torch.cat(blocks, -1) / LARGEST


def row_scales(n):
    return n.float().abs().amax(-1, keepdim=True).clamp(min=2**-9) / LARGEST


def assert_close_scales(got, want, n_known=True):
    """n_known: want was computed from the very n."""
    torch.testing.assert_close(got, want, rtol=2**-22 if n_known else 2**-7, atol=0)


def spread(scale, columns):
    """Scales of groups for each column."""
    return scale.repeat_interleave(128, -1)[..., :columns]


def code(q):
    """A number's place among those of float8_e4m3fn."""
    bits = q.view(torch.uint8).int().cpu()
    return torch.where(bits < 128, bits, 128 - bits)


def assert_quantised(q, n, scale, n_known=True):
    """q is n / scale in 8 bits: at most a step off, where the quotient lies between two numbers.
    n_known: it is the very n; else n of another call, which may be rounded to its neighbour."""
    exact = n.double().cpu() / scale.double().cpu()
    want = exact.clamp(-LARGEST, LARGEST).float().to(torch.float8_e4m3fn)
    steps = (code(q) - code(want)).abs()
    assert steps.max() <= 1, steps.max()
    if not n_known:
        assert (steps > 0).double().mean() < 0.01
        return
    middle = (q.float().cpu().double() + want.double()) / 2
    far = (steps > 0) & ((exact - middle).abs() > exact.abs() * 2**-20)
    assert not far.any(), (exact[far][:4], q.float().cpu()[far][:4])
