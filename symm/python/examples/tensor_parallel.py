# SPDX-License-Identifier: MIT
"""A tensor parallel MLP on the backend "symm": torchrun --nproc-per-node 2 tensor_parallel.py

The first layer is split by columns and the second by rows, so that a forward pass needs one
all_reduce. Output and gradients must be those of the whole model.
"""

import copy
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel, RowwiseParallel, parallelize_module,
)

import symm.torch


def device_of_rank():
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def main():
    device = device_of_rank()
    dist.init_process_group("symm")
    rank, size = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh(device.type, (size,))
    torch.manual_seed(0)
    whole = torch.nn.Sequential(
        torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)).to(device)
    parallel = parallelize_module(
        copy.deepcopy(whole), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    x = torch.randn(16, 256, device=device)
    outputs = [model(x) for model in (parallel, whole)]
    torch.testing.assert_close(*outputs, rtol=1e-4, atol=1e-5)
    for output in outputs:
        output.pow(2).mean().backward()
    for a, b in zip(parallel.parameters(), whole.parameters()):
        torch.testing.assert_close(a.grad.full_tensor(), b.grad, rtol=1e-4, atol=1e-6)
    calls = symm.torch.counters()["all_reduce"][0]
    assert calls > 0
    if rank == 0:
        print(f"right: {size} ranks, {calls} all_reduces")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
