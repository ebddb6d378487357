# SPDX-License-Identifier: MIT
"""A compiled program whose collectives are recorded, planned and run on the plan (symm.torch.plan).

torchrun --nproc-per-node 2 plan_program.py [aot|inductor] [FOLDER]

aot: the pass alone, on graphs of ATen operators that then run eagerly; inductor (default): through
Inductor. On CUDA where there is one, else on CPU tensors. Exit status 77 without PyTorch.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

try:
    import torch
    import torch.distributed as dist
    import torch.distributed._functional_collectives as fc
except ImportError:
    sys.exit(77)

import symm
import symm.torch.plan as sp

LAYERS, STEPS = 6, 3
CUDA = torch.cuda.is_available() and os.environ.get("SYMM_BACKEND") != "host"


def step(x, weights):
    group = dist.group.WORLD
    for w in weights:
        x = x + fc.all_reduce(torch.tanh(x @ w), "avg", group)
    y = fc.all_gather_tensor(x, 0, group)
    return fc.reduce_scatter_tensor(y * 2, "sum", 0, group)


def compiled(planned, function):
    if "aot" not in sys.argv:
        return torch.compile(function)
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    def compiler(module, _):
        planned.rewrite(module.graph)
        module.recompile()
        return make_boxed_func(module.forward)

    return torch.compile(function, backend=aot_autograd(fw_compiler=compiler))


def run(planned, x, weights, want):
    function = compiled(planned, step)
    for _ in range(STEPS):
        torch.testing.assert_close(function(x, weights), want, rtol=1e-3, atol=1e-3)
    assert planned.counts == {"all_reduce": LAYERS * STEPS, "all_gather": STEPS,
                              "reduce_scatter": STEPS}, planned.counts
    assert not planned.left, planned.left
    return function


def test_left(planned):
    """What the pass leaves to torch, and why."""
    size = dist.get_world_size()
    other = dist.new_group(list(range(size)))

    def mixed(x):
        a = fc.all_reduce(x, "sum", other)
        b = fc.all_reduce(x > 0, "max", dist.group.WORLD)
        if CUDA:  # where gloo has no calls of several tensors
            d = fc.broadcast(x * 2, 0, dist.group.WORLD) * size
        else:
            d, = fc.all_reduce_coalesced([x * 2], "sum", dist.group.WORLD)
        return a, b, fc.all_reduce(x, "sum", dist.group.WORLD), d

    x = torch.ones(5, device=planned.device)
    a, b, c, d = compiled(planned, mixed)(x)
    assert (a == size).all() and (c == size).all() and b.all() and (d == 2 * size).all()
    reasons = sorted(reason for _, reason in planned.left)
    assert reasons == ["a collective that is not planned", "another process group",
                       "the dtype torch.bool"], planned.left
    assert planned.counts["all_reduce"] == 1


def refused(kind, word, function, *args, **options):
    try:
        function(*args, **options)
    except kind as error:
        assert word in str(error), error
        return
    raise AssertionError(f"not refused: {word}")


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cpu")
    if CUDA:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    options = {"device": device}
    folder = Path(os.environ.get("SYMM_TEST_FOLDER") or tempfile.gettempdir())
    records, plan = folder / f"records.{os.getppid()}", folder / f"plan.{os.getppid()}.json"
    torch.manual_seed(rank)
    x = torch.randn(64, 256, device=device)
    torch.manual_seed(99)
    weights = [torch.randn(256, 256, device=device) / 16 for _ in range(LAYERS)]
    want = step(x.cpu(), [w.cpu() for w in weights]).to(device)

    planned = sp.install(record=records, **options)
    refused(RuntimeError, "installed already", sp.install)
    function = run(planned, x, weights, want)
    planned.close()
    planned.close()
    refused(RuntimeError, "closed", function, x, weights)
    dist.barrier()
    if rank == 0:
        refused(symm.Error, "symm-plan merge", sp.make, folder / "nothing", plan)
        print(sp.make(records, plan))
        made = json.loads(plan.read_text())
        assert len(made["buffers"]) == LAYERS + 2
        assert made["arena_bytes"] <= made["dedicated_bytes"] // 3
        assert plan.with_suffix(".program.json").exists()
    dist.barrier()

    torch.compiler.reset()
    planned = sp.install(plan=plan, **options)
    run(planned, x, weights, want)
    assert "planned" in planned.team.explain(), planned.team.explain()
    planned.close()
    refused(symm.Invalid, "record or plan", sp.install, plan=plan, record=records)
    refused(symm.Error, "", sp.install, plan=folder / "nothing.json", **options)

    torch.compiler.reset()
    planned = sp.install(**options)
    test_left(planned)
    planned.close()
    dist.barrier()
    if rank == 0:
        print(f"right: {size} ranks on {device.type}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
