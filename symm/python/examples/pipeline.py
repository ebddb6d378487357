# SPDX-License-Identifier: MIT
"""Pipeline stages that send and receive on the backend "symm", on CPUs, or on a GPU a rank.

torchrun --nproc-per-node 3 pipeline.py

Each rank has one layer. Microbatches flow from rank 0 to the last one; a stage posts the next
receive before it computes, and never waits for a send before the end.
"""

import os

import torch
import torch.distributed as dist

import symm.torch

MICROBATCHES, ROWS, WIDTH = 12, 32, 128


def device_of_rank(size):
    if torch.cuda.device_count() < size:  # libsymm's engine needs a GPU for each rank
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


def layer_of(rank, device):
    torch.manual_seed(rank)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()).to(device)


def input_of(k, device):
    torch.manual_seed(1000 + k)
    return torch.randn(ROWS, WIDTH).to(device)


@torch.no_grad()
def run_stage(rank, size, device):
    """The outputs of the last stage; of the others none."""
    layer = layer_of(rank, device)
    inputs = [torch.empty(ROWS, WIDTH, device=device) for _ in range(MICROBATCHES)]
    receives, sends, outputs = {}, [], []
    for k in range(MICROBATCHES):
        if rank == 0:
            inputs[k] = input_of(k, device)
        else:
            for ahead in (k, k + 1):
                if ahead < MICROBATCHES and ahead not in receives:
                    receives[ahead] = dist.irecv(inputs[ahead], rank - 1)
            receives[k].wait()
        output = layer(inputs[k])
        if rank + 1 < size:
            sends.append(dist.isend(output, rank + 1))
        else:
            outputs.append(output)
    for work in sends:
        work.wait()
    return outputs


@torch.no_grad()
def main():
    size = int(os.environ["WORLD_SIZE"])
    device = device_of_rank(size)
    dist.init_process_group("symm")
    rank = dist.get_rank()
    outputs = run_stage(rank, size, device)
    for k, output in enumerate(outputs):
        wanted = input_of(k, device)
        for stage in range(size):
            wanted = layer_of(stage, device)(wanted)
        torch.testing.assert_close(output, wanted)
    dist.barrier()
    if rank == size - 1:
        received = symm.torch.counters()["recv"]
        print(f"right: {len(outputs)} microbatches through {size} stages; "
              f"libsymm received {received[0]} messages, {received[1]} bytes")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
