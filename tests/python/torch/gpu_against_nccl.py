# SPDX-License-Identifier: MIT
"""Training by DDP and FSDP2 on the backend "symm" and on NCCL, from equal seeds, under torchrun.

torchrun --nproc-per-node 2 tests/python/torch/gpu_against_nccl.py [cpu]

Two process groups of the same ranks in one process. The losses of the steps, the gradients of
the last one and the parameters after it must be equal bit for bit with 2 ranks: the sum of two
numbers has one order, both backends add float32 in float32 and bfloat16 in float32 with one
rounding, and DDP and FSDP2 multiply by the same factor before or after. With more ranks the orders
differ, and where NCCL's own steps differ from themselves the model's kernels do: differences up to
1e-4 (float32) and 2e-2 (bfloat16) of a tensor's largest number pass then.
Counters prove that libsymm moved what the steps on "symm" reduce and gather, and nothing in steps
on NCCL. A GPU for each rank is needed. cpu: the same on CPU tensors, with gloo in NCCL's place.
Ends itself after 240 s. Exit status 77 without PyTorch or the GPUs.
"""

import faulthandler
import os
import sys
import time

os.environ["NCCL_NVLS_ENABLE"] = "0"
os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
faulthandler.dump_traceback_later(240, exit=True)

try:
    import torch
    import torch.distributed as dist
except ImportError:
    sys.exit(77)

import symm.torch

ON_CPU = sys.argv[1:] == ["cpu"]
OTHER = "gloo" if ON_CPU else "nccl"
STEPS = 4


class Block(torch.nn.Module):
    """A transformer's layer without dropout."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x):
        rows, length, width = x.shape
        q, k, v = (part.reshape(rows, length, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.norms[0](x)).chunk(3, -1))
        weights = torch.softmax(q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5, -1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(x.shape))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norms[1](x))))


def mlp():
    layers = torch.nn
    return layers.Sequential(layers.Linear(64, 512), layers.ReLU(), layers.Linear(512, 512),
                             layers.ReLU(), layers.Linear(512, 64)), (16, 64)


def transformer():
    return torch.nn.Sequential(Block(128, 4), Block(128, 4)), (4, 32, 128)


def wrap(how, model, group, mesh, device):
    if how == "ddp":
        from torch.nn.parallel import DistributedDataParallel as DDP

        return DDP(model, process_group=group, bucket_cap_mb=0.25,
                   device_ids=None if ON_CPU else [device.index])
    from torch.distributed.fsdp import fully_shard

    for layer in model:
        if any(True for _ in layer.parameters()):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def whole(tensor):
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().clone()


def train(how, make, dtype, group, mesh, device):
    """What the steps leave: names to tensors."""
    torch.manual_seed(3)
    model, shape = make()
    model = wrap(how, model.to(device=device, dtype=dtype), group, mesh, device)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    left = {}
    for step in range(STEPS):
        torch.manual_seed(1000 * step + dist.get_rank())
        inputs = torch.randn(shape).to(device=device, dtype=dtype)
        optimizer.zero_grad()
        loss = model(inputs).float().pow(2).mean()
        loss.backward()
        left[f"loss {step}"] = loss.detach().clone()
        if step == STEPS - 1:
            for name, p in model.named_parameters():
                left["gradient " + name] = whole(p.grad)
        optimizer.step()
    for name, p in model.named_parameters():
        left["parameter " + name] = whole(p)
    if not ON_CPU:
        torch.cuda.synchronize()
    return left


def difference(a, b):
    """(how many tensors differ in a bit, the largest difference by the tensor's largest number)."""
    differ, worst = 0, 0.0
    assert a.keys() == b.keys() and a
    for name in a:
        x, y = a[name].float(), b[name].float()
        if not torch.isfinite(x).all():
            raise AssertionError(f"{name} is not finite")
        if not torch.equal(a[name], b[name]):
            differ += 1
            worst = max(worst, float((x - y).abs().max() / x.abs().max().clamp_min(1e-30)))
    return differ, worst


def calls():
    moved = symm.torch.counters()
    return {name: moved[name][0] for name in ("all_reduce", "reduce_scatter", "all_gather")}


def check(how, make, dtype, groups, meshes, device):
    """What was found, and the sentence of failure or None."""
    size, left, moved = dist.get_world_size(), {}, {}
    for backend in ("symm", OTHER):
        before = calls()
        left[backend] = train(how, make, dtype, groups[backend], meshes[backend], device)
        moved[backend] = {name: count - before[name] for name, count in calls().items()}
    again = train(how, make, dtype, groups[OTHER], meshes[OTHER], device)
    noise, _ = difference(left[OTHER], again)
    differ, worst = difference(left["symm"], left[OTHER])
    tolerance = 0 if size == 2 and not noise else 1e-4 if dtype == torch.float32 else 2e-2
    needed = ("all_reduce",) if how == "ddp" else ("reduce_scatter", "all_gather")
    found = (f"{differ} of {len(again)} tensors differ (by {worst:.1e}), {OTHER} from itself "
             f"{noise}; libsymm: "
             f"{' '.join(f'{name} {count}' for name, count in moved['symm'].items())}")
    if worst > tolerance:
        return found, f"the tolerance is {tolerance}"
    if any(moved["symm"][name] < STEPS for name in needed):
        return found, "libsymm has moved too little"
    if any(moved[OTHER].values()):
        return found, f"libsymm has moved in steps on {OTHER}: {moved[OTHER]}"
    return found, None


def main():
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if not ON_CPU and torch.cuda.device_count() < size:
        print(f"{size} GPUs are needed, there are {torch.cuda.device_count()}")
        sys.exit(77)
    device = torch.device("cpu") if ON_CPU else torch.device("cuda", rank)
    if not ON_CPU:
        torch.cuda.set_device(device)
        torch.backends.cuda.matmul.allow_tf32 = False
    torch.use_deterministic_algorithms(True)
    from torch.distributed.device_mesh import DeviceMesh

    dist.init_process_group(OTHER)
    groups = {OTHER: dist.group.WORLD, "symm": dist.new_group(backend="symm")}
    # DTensor takes meshes that are equal but for their groups for one.
    meshes = {name: DeviceMesh.from_group(group, device.type, mesh_dim_names=(name,))
              for name, group in groups.items()}
    failed = 0
    for how in ("ddp", "fsdp2"):
        for make in (mlp, transformer):
            for dtype in (torch.float32, torch.bfloat16):
                began = time.time()
                found, wrong = check(how, make, dtype, groups, meshes, device)
                failed += wrong is not None
                if wrong or rank == 0:
                    print(f"rank {rank}: {how} {make.__name__} {str(dtype)[6:]}: "
                          f"{'FAILED: ' + wrong if wrong else 'right'}: {found} "
                          f"({time.time() - began:.1f} s)\n", end="", flush=True)
    print(f"rank {rank}: {failed} failed", flush=True)
    dist.barrier()
    sys.stdout.flush()
    dist.destroy_process_group()
    sys.exit(failed > 0)


main()
