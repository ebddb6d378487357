# SPDX-License-Identifier: MIT
"""Data parallel training on the backend "symm": torchrun --nproc-per-node 2 ddp.py

The ranks train on halves of a batch; a copy of the model that sees the whole batch must come to
the same weights.
"""

import copy
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

import symm.torch

STEPS = 10


def device_of_rank():
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def train_step(model, optimizer, inputs, targets):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    device = device_of_rank()
    dist.init_process_group("symm")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 8)).to(device)
    whole = copy.deepcopy(model)
    ddp = DDP(model)
    optimizers = [torch.optim.AdamW(m.parameters(), 1e-3) for m in (ddp, whole)]
    for _ in range(STEPS):
        inputs, targets = torch.randn(32 * size, 64), torch.randn(32 * size, 8)
        mine = slice(32 * rank, 32 * (rank + 1))
        train_step(ddp, optimizers[0], inputs[mine].to(device), targets[mine].to(device))
        loss = train_step(whole, optimizers[1], inputs.to(device), targets.to(device))
    for a, b in zip(model.parameters(), whole.parameters()):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
    calls, moved = symm.torch.counters()["all_reduce"]
    assert calls >= STEPS
    if rank == 0:
        print(f"right: loss {loss:.4f}; libsymm reduced {moved} bytes in {calls} calls")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
