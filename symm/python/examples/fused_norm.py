# SPDX-License-Identifier: MIT
"""RMSNorm fused with the all_reduce before it: torchrun --nproc-per-node 2 fused_norm.py [compile]

Tensor parallel layers, each a column and a row parallel matrix: the row parallel product is added
over the ranks, then to the residual, then normalised. torch.ops.symm.all_reduce_norm does that in
one call; the residual must have the same bits, and the norm be the same up to its last place.
compile: also written without it, and fused by torch.compile with symm.torch.fuse_norm().
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as fc
import torch.nn.functional as F

import symm.torch

LAYERS, ROWS, HIDDEN, EPS = 4, 8, 512, 1e-6


def device_of_rank():
    if not torch.cuda.is_available() or os.environ.get("SYMM_BACKEND") == "host":
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def partial_product(n, weights):
    up, down = weights
    return torch.tanh(n @ up) @ down


def plain(n, residual, layers, gamma):
    """Each layer's sum, addition and norm, one after the other."""
    group = dist.group.WORLD
    for weights in layers:
        residual = residual + fc.all_reduce(partial_product(n, weights), "sum", group)
        n = F.rms_norm(residual, (HIDDEN,), gamma, EPS)
    return residual, n


def fused(n, residual, layers, gamma):
    """The same as one call for each layer."""
    name = dist.group.WORLD.group_name
    for weights in layers:
        residual, n = torch.ops.symm.all_reduce_norm(
            partial_product(n, weights), name, gamma, EPS, residual=residual,
            outputs="residual,norm")
    return residual, n


def make_layers(rank, size, device):
    """This rank's columns of the first matrices, and rows of the second ones."""
    layers, width = [], 2 * HIDDEN // size
    for layer in range(LAYERS):
        generator = torch.Generator().manual_seed(100 * layer + rank)
        up, down = (torch.randn(shape, generator=generator) / HIDDEN**0.5
                    for shape in ((HIDDEN, width), (width, HIDDEN)))
        layers.append((up.to(device, torch.bfloat16), down.to(device, torch.bfloat16)))
    return layers


@torch.no_grad()
def main():
    device = device_of_rank()
    dist.init_process_group("symm")
    symm.torch.enable_operators()
    rank, size = dist.get_rank(), dist.get_world_size()
    layers = make_layers(rank, size, device)
    x = torch.randn(ROWS, HIDDEN, generator=torch.Generator().manual_seed(7))
    x, gamma = x.to(device, torch.bfloat16), torch.ones(HIDDEN, device=device, dtype=torch.bfloat16)

    first, n = fused(x, x, layers[:1], gamma)
    want, normed = plain(x, x, layers[:1], gamma)
    assert torch.equal(first, want)  # the sum is in rank order on both ways
    torch.testing.assert_close(n, normed, rtol=2**-7, atol=0)
    whole = plain(x, x, layers, gamma)
    for got, want in zip(fused(x, x, layers, gamma), whole):
        torch.testing.assert_close(got, want, rtol=2**-4, atol=2**-4)
    if "compile" in sys.argv[1:]:
        fusion = symm.torch.fuse_norm(device=device)
        compiled = torch.compile(plain, fullgraph=True)
        before = symm.torch.counters()["all_reduce_norm"][0]
        for got, want in zip(compiled(x, x, layers, gamma), whole):
            torch.testing.assert_close(got, want, rtol=2**-4, atol=2**-4)
        assert symm.torch.counters()["all_reduce_norm"][0] == before + LAYERS, fusion.left
        fusion.close()
    calls = symm.torch.counters()["all_reduce_norm"][0]
    if rank == 0:
        print(f"right: {size} ranks on {device.type}, {calls} fused calls")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
