# SPDX-License-Identifier: MIT
"""The all-reduce fused with RMSNorm in torch: operators, compiled graphs, FlashInfer's interface
and the engines, each against the unfused form.

torchrun --nproc-per-node 2 tests/python/torch/gpu_norm.py [cpu] [NAME...]

Ranks take the GPUs in turn; with fewer GPUs than ranks SYMM_OVERSUBSCRIBE=1 is needed. cpu: CPU
tensors, without CUDA graphs and Inductor. NAME: of the tests below. The engines are stand-ins
(engine_stand_ins.py). Exit status 77 without PyTorch.
"""

import operator
import os
import sys
import time
import warnings

try:
    import torch
    import torch.distributed as dist
    from torch._subclasses.fake_tensor import FakeTensorMode
except ImportError:
    sys.exit(77)

import engine_stand_ins as stand_ins
import norm_checks as checks
import norm_graphs as graphs

ON_CPU = "cpu" in sys.argv[1:]
NAMES = [name for name in sys.argv[1:] if name != "cpu"]
comm = stand_ins.put_flashinfer()  # before symm.flashinfer looks for it

import symm._engine  # noqa: E402
import symm.flashinfer  # noqa: E402
import symm.sglang  # noqa: E402
import symm.torch  # noqa: E402
import symm.vllm  # noqa: E402

BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn
DTYPES = (BF16, torch.float16, torch.float32)


class Job:
    """This rank: its device, the groups, tensors of it."""

    def __init__(self):
        rank = int(os.environ["LOCAL_RANK"])
        self.device = torch.device("cpu")
        if not ON_CPU:
            if not torch.cuda.is_available():
                sys.exit(77)
            self.device = torch.device("cuda", rank % torch.cuda.device_count())
            torch.cuda.set_device(self.device)
        dist.init_process_group("symm")
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.cpu_group = dist.new_group(backend="gloo")
        self.name = dist.group.WORLD.group_name

    def mine(self, *shape, dtype=BF16):
        """Other numbers on each rank."""
        generator = torch.Generator().manual_seed(1 + self.rank)
        return torch.randn(shape, generator=generator).to(self.device, dtype)

    def ours(self, *shape, dtype=BF16, seed=99):
        """The same on all ranks."""
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(shape, generator=generator).to(self.device, dtype)

    def total(self, x, **options):
        return checks.total(x, self.cpu_group, **options)


def refused(kind, word, function, *args, **options):
    try:
        function(*args, **options)
    except kind as error:
        assert word in str(error), error
        return
    raise AssertionError(f"not refused: {word}")


def same_bits(a, b):
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


# ---- Operators ---------------------------------------------------------------------------


def test_operator(job):
    """Bits of sum and residual, the norm, 8 bits, of both variants; libsymm made the calls."""
    op, calls = torch.ops.symm.all_reduce_norm, 0
    before = symm.torch.counters()["all_reduce_norm"][0]
    for dtype in DTYPES:
        for shape in ((1, 64), (3, 5, 300), (33, 4096)):
            x, residual = job.mine(*shape, dtype=dtype), job.ours(*shape, dtype=dtype)
            weight, bias = (job.ours(shape[-1], dtype=dtype, seed=s) for s in (1, 2))
            plain = x.clone()
            dist.all_reduce(plain)
            r = checks.rows_of(plain, bias, residual)
            given = dict(residual=residual, bias=bias, weight_offset=1)
            n, got_r, s = op(x, job.name, weight, 1e-5, outputs="norm,residual,sum", **given)
            assert torch.equal(s, plain) and torch.equal(s, job.total(x)) and torch.equal(got_r, r)
            checks.assert_norm(n, r, weight, 1e-5, 1.0)
            out = {f"{name}_out": torch.empty_like(x) for name in ("sum", "residual", "norm")}
            op.out(x, job.name, weight, 1e-5, **given, **out)
            for name, want in (("sum", s), ("residual", got_r), ("norm", n)):
                assert torch.equal(out[f"{name}_out"], want), name
            calls += 2 + check_quantised(op, job, x, plain)
    held, turned = job.mine(64, 4096), job.mine(4096, 64).t()  # in place; not contiguous
    want = checks.rows_of(job.total(held), None, held)
    op.out(held, job.name, residual=held, norm_out=held)
    checks.assert_norm(held, want)
    (s,) = op(turned, job.name, outputs="sum")
    assert torch.equal(s, job.total(turned))
    (s,) = op(turned, job.name, outputs="sum", round_partial=True)
    assert torch.equal(s, job.total(turned, round_partial=True))
    nothing = held[:0]  # torch's address of it is 0
    for outputs, quant in (("residual,norm", "none"), ("norm,quant,scale", "row")):
        made = op(nothing, job.name, residual=nothing, outputs=outputs, quant=quant)
        assert [len(tensor) for tensor in made] == [0] * len(made)
    assert symm.torch.counters()["all_reduce_norm"][0] == before + calls + 5


def check_quantised(op, job, x, s):
    scale = torch.full((1,), 0.004, device=job.device)
    n, q = op(x, job.name, outputs="norm,quant", quant="tensor", scale=scale)
    checks.assert_norm(n, s)
    checks.assert_quantised(q, n, scale)
    for mode in ("row", "group", "group_column"):
        n, q, scale = op(x, job.name, outputs="norm,quant,scale", quant=mode)
        want = checks.row_scales(n) if mode == "row" else checks.group_scales(n)
        spread = want if mode == "row" else checks.spread(want, x.shape[-1])
        if mode == "group_column":
            assert scale.dim() == 2 and scale.t().is_contiguous()
        checks.assert_close_scales(scale.reshape(want.shape), want)
        checks.assert_quantised(q, n, spread)
        kept, other = torch.empty_like(scale), torch.empty_like(q)
        op.out(x, job.name, quant=mode, quant_out=other, scale_out=kept)
        checks.assert_close_scales(kept, scale, False)
        checks.assert_quantised(other, n, spread, False)
    return 7


def test_operator_refuses(job):
    op, x = torch.ops.symm.all_reduce_norm, job.mine(4, 64)
    for word, options in (
        ("weight has 63", {"weight": job.ours(63)}),
        ("tensors of Float and of", {"weight": job.ours(64, dtype=torch.float32)}),
        ("residual has 64", {"residual": x[0]}),
        ("outputs 'norm,norm'", {"outputs": "norm,norm"}),
        ("outputs 'mean'", {"outputs": "mean"}),
        ("outputs 'scale'", {"outputs": "scale"}),
        ("lacks quant", {"quant": "row", "outputs": "norm,quant"}),
        ("quant 'block' is unknown", {"quant": "block"}),
        ("takes scale", {"quant": "tensor", "outputs": "quant"}),
        ("elements of float32", {"quant": "tensor", "outputs": "quant", "scale": x}),
        ("takes no scale", {"scale": torch.ones(1, device=job.device)}),
        ("takes scale", {"quant": "row", "outputs": "quant,scale",
                         "scale": torch.ones(1, device=job.device)}),
    ):
        refused(RuntimeError, word, op, x, job.name, **options)
    refused(RuntimeError, "takes no scale", op.out, x, job.name, norm_out=torch.empty_like(x),
            scale_out=torch.empty(1, device=job.device))
    refused(RuntimeError, "all outputs are NULL", op.out, x, job.name)
    refused(RuntimeError, "norm_out is", op.out, x, job.name, norm_out=x[0])
    refused(RuntimeError, "allowed: bfloat16", op, x.int(), job.name, outputs="sum")
    (n,) = op(x, job.name)
    checks.assert_norm(n, job.total(x))
    check_devices_agree(op, job, x)
    check_gradients(op, job, x)


def check_devices_agree(op, job, x):
    """With a tensor of Meta the call would go to the kernel that computes nothing."""
    one = torch.ones(1, device="meta")
    refused(RuntimeError, "tensors on meta and", op, x, job.name, job.ours(64).to("meta"))
    refused(RuntimeError, "tensors on meta and", op, x, job.name, quant="tensor",
            outputs="quant", scale=one)
    refused(RuntimeError, "tensors on meta and", op.out, x, job.name, norm_out=x.to("meta"))
    if not ON_CPU:
        refused(RuntimeError, "tensors on cpu and", op, x, job.name, quant="tensor",
                outputs="quant", scale=torch.ones(1))


def check_gradients(op, job, x):
    """None is left out without a word, and none is computed from what was overwritten."""
    weight = job.ours(64).requires_grad_()
    (n,) = op(x, job.name, weight)
    refused(RuntimeError, "derivative for symm::all_reduce_norm", n.sum().backward)
    refused(RuntimeError, "weight requires grad", op.out, x, job.name, weight, norm_out=x.clone())
    with torch.no_grad():
        op.out(x, job.name, weight, norm_out=n.detach().clone())
    saved = weight.float().exp()
    op.out(x[0].float(), job.name, norm_out=saved.detach())
    refused(RuntimeError, "modified by an inplace operation", saved.sum().backward)
    with torch.inference_mode():
        n = torch.empty_like(x)
    op.out(x, job.name, norm_out=n)


def test_traced(job):
    """torch.compile traces both variants, with sizes that change, without a graph break."""
    op, weight = torch.ops.symm.all_reduce_norm, job.ours(256)

    def functional(x, residual):
        n, q, scale = op(x * 2, job.name, weight, residual=residual, quant="group_column",
                         outputs="norm,quant,scale")
        return n + 1, q, scale

    def out(x, residual):
        n, rows = torch.empty_like(x), torch.empty_like(x)
        op.out(x * 2, job.name, weight, residual=residual, norm_out=n, residual_out=rows)
        return n + 1, rows

    for function in (functional, out):
        compiled = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=True)
        for rows in (3, 8):
            x, residual = job.mine(rows, 256), job.ours(rows, 256)
            for got, want in zip(compiled(x, residual), function(x, residual)):
                assert got.stride() == want.stride()
                assert same_bits(got, want)


def test_graph(job):
    """Captured calls, replayed with other numbers."""
    if ON_CPU:
        return
    op, weight = torch.ops.symm.all_reduce_norm, job.ours(1024)
    x, residual = job.mine(8, 1024), job.ours(8, 1024)
    scale = torch.full((1,), 0.01, device=job.device)
    for _ in range(2):
        op(x, job.name, weight, residual=residual)  # warm-up
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        rows, n = op(x, job.name, weight, residual=residual, outputs="residual,norm")
        q = torch.empty(8, 1024, dtype=FP8, device=job.device)
        op.out(n, job.name, weight, residual=rows, quant="tensor", scale=scale, quant_out=q)
    for step in range(5):
        x.copy_(job.mine(8, 1024) * (step + 1))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(rows, checks.rows_of(job.total(x), None, residual))
        checks.assert_norm(n, rows, weight)
        again = op(n, job.name, weight, residual=rows, outputs="norm")[0]
        checks.assert_quantised(q, again, scale, False)


# ---- Compiled graphs ---------------------------------------------------------------------


def compiler_of(fusion, decomposes=True):
    """The options of a backend that has the pass alone: its operators run one by one."""
    from functorch.compile import make_boxed_func
    from torch._inductor.decomposition import select_decomp_table

    def compiler(module, _):
        fusion.rewrite(module.graph)
        module.graph.lint()
        module.recompile()
        return make_boxed_func(module.forward)

    return {"fw_compiler": compiler, "decompositions": select_decomp_table() if decomposes else {}}


def traced(fusion, function, decomposes=True):
    """The function of tensors of one shape, by AOTAutograd."""
    from functorch.compile import aot_function

    return aot_function(function, **compiler_of(fusion, decomposes))


def compiled(fusion, function):
    """torch.compile of the function, for any number of rows."""
    from torch._dynamo.backends.common import aot_autograd

    backend = aot_autograd(**compiler_of(fusion))
    return torch.compile(function, backend=backend, fullgraph=True)


def assert_alike(got, want, dtype, exact=False):
    """Results of two ways to compute: equal, or a unit of the norm's last place apart."""
    got, want = ([value] if torch.is_tensor(value) else value for value in (got, want))
    assert len(got) == len(want)
    for a, b in zip(got, want):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if exact:
            assert same_bits(a, b)
        elif a.dtype == FP8:  # a unit of the norm is less than a step
            assert (checks.code(a) - checks.code(b)).abs().max() <= 1
        else:
            unit = 2.0 ** -(checks.BITS[dtype][0] - 2)
            torch.testing.assert_close(a.float(), b.float(), rtol=unit, atol=unit)


def tensors(job, shape, dtype):
    return (job.mine(*shape, dtype=dtype), job.ours(*shape, dtype=dtype),
            job.ours(shape[-1], dtype=dtype, seed=1), job.ours(shape[-1], dtype=dtype, seed=2),
            torch.full((1,), 0.02, device=job.device))


@torch.no_grad()
def test_fused(job):
    fusion = symm.torch.fuse_norm(device=job.device)
    refused(RuntimeError, "on already", symm.torch.fuse_norm)
    for dtype in (BF16, torch.float32):
        arguments = tensors(job, (3, 5, 128), dtype)
        for function, outputs in graphs.fused().items():
            fusion.counts.clear(), fusion.left.clear()
            before = symm.torch.counters()
            got = traced(fusion, function)(*arguments)
            layers = 2 if function.__name__ == "two_layers" else 1
            assert sum(fusion.counts.values()) == layers and not fusion.left, (
                function.__name__, fusion.counts, fusion.left)
            if not (function.__name__ == "wide_too" and dtype == torch.float32):
                assert outputs in fusion.counts, (function.__name__, dtype, fusion.counts)
            after = symm.torch.counters()
            assert after["all_reduce_norm"][0] == before["all_reduce_norm"][0] + layers
            assert after["all_reduce"][0] == before["all_reduce"][0]
            assert_alike(got, function(*arguments), dtype)
    check_operators(job, fusion)
    pre_norm, everything, *_ = graphs.fused()
    for function in (pre_norm, everything):
        fusion.counts.clear()
        changing = compiled(fusion, function)
        for rows in (4, 9):
            arguments = tensors(job, (rows, 128), BF16)
            for tensor in arguments[:2]:
                torch._dynamo.mark_dynamic(tensor, 0)
            assert_alike(changing(*arguments), function(*arguments), BF16)
        assert sum(fusion.counts.values()) == 1, (fusion.counts, fusion.left)
    check_sizes_of_data(job, fusion)
    fusion.close()
    fusion.close()


def check_sizes_of_data(job, fusion):
    """Shapes that no comparison may ask for."""
    which = torch.tensor([1, 0, 1, 1, 0], device=job.device)
    x, weight = job.mine(5, 128), job.ours(128)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        for function, is_fused in graphs.of_data().items():
            fusion.counts.clear(), fusion.left.clear()
            got = compiled(fusion, function)(x, weight, which)
            assert_alike(got, function(x, weight, which), BF16)
            assert bool(fusion.counts) == is_fused, (function.__name__, fusion.left)


def by_hand(fusion, results, *arguments):
    """A graph with aten._fused_rms_norm, which AOTAutograd takes apart on CPUs, run after the pass;
    results: of its two, those that are used."""
    graph, mode = torch.fx.Graph(), FakeTensorMode()
    x, residual, weight = (graph.placeholder(name) for name in ("x", "residual", "weight"))
    for node, value in zip((x, residual, weight), arguments):
        node.meta["val"] = mode.from_tensor(value)

    def call(target, *given):
        node = graph.call_function(target, given)
        node.meta["val"] = target(*torch.fx.map_arg(given, lambda each: each.meta["val"]))
        return node

    c10d = torch.ops._c10d_functional
    reduced = call(c10d.all_reduce.default, x, "sum", dist.group.WORLD.group_name)
    r = call(torch.ops.aten.add.Tensor, call(c10d.wait_tensor.default, reduced), residual)
    norm = call(torch.ops.aten._fused_rms_norm.default, r, [x.meta["val"].shape[-1]], weight, 1e-5)
    graph.output([*(call(operator.getitem, norm, i) for i in results), r])
    fusion.rewrite(graph)
    graph.lint()
    return torch.fx.GraphModule({}, graph)(*arguments)


def check_operators(job, fusion):
    """torch's own norm as one operator, and the all_reduce of symmetric memory."""
    x, residual, weight, *_ = tensors(job, (3, 5, 128), BF16)

    def whole(x, residual, weight):
        r = graphs.reduced(x) + residual
        return torch.ops.aten._fused_rms_norm(r, [128], weight, 1e-5)[0], r

    def one_shot(x, residual, weight):
        s = torch.ops.symm_mem.one_shot_all_reduce(x, "sum", job.name)
        return graphs.rms(s + residual, weight)

    fusion.counts.clear(), fusion.left.clear()
    want = whole(x, residual, weight)
    for got in (traced(fusion, whole, False)(x, residual, weight),
                by_hand(fusion, (0,), x, residual, weight)):
        assert_alike(got, want, BF16)
    assert fusion.counts == {"residual,norm": 2} and not fusion.left, (fusion.counts, fusion.left)
    got = by_hand(fusion, (0, 1), x, residual, weight)
    assert_alike([got[0], got[2]], want, BF16)
    assert fusion.left == {"a norm whose factor is used otherwise": 1}, fusion.left
    for device, outputs in (("cuda:0", "residual,quant"), ("cpu", "residual,norm")):
        fusion.counts.clear()
        fusion.rewrite(graphs.scaled_on(device))
        assert fusion.counts == {outputs: 1}, (device, fusion.counts)
    got = traced(fusion, one_shot)(x, residual, weight)
    assert fusion.counts["norm"] == 1, fusion.left
    checks.assert_norm(got, checks.rows_of(job.total(x), None, residual), weight)


@torch.no_grad()
def test_left(job):
    fusion = symm.torch.fuse_norm(device=job.device)
    arguments = tensors(job, (3, 5, 128), BF16)
    for function, reason in graphs.left(dist.new_group(list(range(job.size)))).items():
        fusion.left.clear()
        before = symm.torch.counters()["all_reduce_norm"][0]
        got = traced(fusion, function)(*arguments)
        assert fusion.left == {reason: 1} and not fusion.counts, (
            function.__name__, fusion.left, fusion.counts)
        assert symm.torch.counters()["all_reduce_norm"][0] == before
        assert_alike(got, function(*arguments), BF16)
    fusion.close()
    fusion = symm.torch.fuse_norm(device=job.device, exact=True)
    function = [each for each in graphs.fused() if each.__name__ == "llama_norm"][0]
    got = traced(fusion, function)(*arguments)
    assert fusion.counts == {"residual,norm": 1}  # the weight is left outside
    n, r = function(*arguments)
    assert torch.equal(got[1], r)
    torch.testing.assert_close(got[0], n, rtol=2**-6, atol=0)
    fusion.close()


@torch.no_grad()
def test_inductor(job):
    """Through Inductor: Llama's norm and 8 bits."""
    if ON_CPU:
        return
    try:
        import triton  # noqa: F401
    except ImportError:
        return
    fusion = symm.torch.fuse_norm()
    arguments = tensors(job, (16, 1024), BF16)
    for function, outputs in graphs.fused().items():
        if function.__name__ in ("everything", "llama_norm", "two_layers"):
            torch._dynamo.reset()
            before = symm.torch.counters()["all_reduce_norm"][0]
            got = torch.compile(function, fullgraph=True)(*arguments)
            assert symm.torch.counters()["all_reduce_norm"][0] > before, fusion.left
            assert_alike(got, function(*arguments), BF16)
    fusion.close()


# ---- FlashInfer's interface and the engines ----------------------------------------------


def workspace_of(job, **options):
    return symm.flashinfer.create_allreduce_fusion_workspace(
        world_size=job.size, rank=job.rank, max_token_num=64, hidden_dim=512, dtype=BF16,
        group=job.cpu_group, device=job.device, **options)


def test_flashinfer(job):
    """All patterns that libsymm takes, with FlashInfer's arithmetic, and what is passed on."""
    fusion, pattern = symm.flashinfer.allreduce_fusion, symm.flashinfer.AllReduceFusionPattern
    workspace, calls = workspace_of(job), 0
    assert isinstance(workspace, stand_ins.FlashInferWorkspace) and workspace.backend == "trtllm"
    assert workspace.is_buffer_size_sufficient(job.size, 10**6, 8192, BF16)
    assert not workspace.is_buffer_size_sufficient(job.size, 1, 20000, BF16)
    before = symm.flashinfer.counters()
    x, residual, gamma, _, scale = tensors(job, (9, 512), BF16)
    for wide in (False, True):
        s = job.total(x, round_partial=not wide)
        r = checks.rows_of(s, None, residual)
        got = fusion(x, workspace, pattern.kAllReduce, fp32_acc=wide)
        assert torch.equal(got, s)
        for number in (1, 2, 4, 8, 9, 10, 11):
            out = dict(residual_out=torch.empty_like(x))
            if number in (1, 4, 9, 11):
                out["norm_out"] = torch.empty_like(x)
            if number > 1:
                out["quant_out"] = torch.empty(x.shape, dtype=FP8, device=job.device)
            if number >= 8:
                out["scale_out"] = torch.empty(9, 4 if number < 10 else 1, device=job.device)
            got = fusion(x, workspace, number, residual_in=residual, rms_gamma=gamma, rms_eps=1e-5,
                         scale_factor=scale, fp32_acc=wide, weight_bias=1.0, **out)
            assert got is out.get("norm_out", out.get("quant_out"))
            assert torch.equal(out["residual_out"], r), number
            n, known = checks_norm(job, r, gamma, out.get("norm_out")), "norm_out" in out
            if number > 1:
                used = {2: scale, 4: scale}.get(number)
                if number in (8, 9):
                    checks.assert_close_scales(out["scale_out"], checks.group_scales(n), known)
                    used = checks.spread(out["scale_out"], 512)
                elif number in (10, 11):
                    checks.assert_close_scales(out["scale_out"], checks.row_scales(n), known)
                    used = out["scale_out"]
                checks.assert_quantised(out["quant_out"], n, used, known)
            calls += 1
    after = symm.flashinfer.counters()
    assert after["all_reduce_norm"][0] - before["all_reduce_norm"][0] == calls + (job.size > 2)
    assert after["all_reduce"][0] - before["all_reduce"][0] == 2 - (job.size > 2)
    flashinfer_strides(job, workspace, x)
    flashinfer_layouts(job, workspace, x, gamma)
    flashinfer_passes_on(job, workspace, x, gamma)


def checks_norm(job, r, gamma, n):
    """n, or what it is where the pattern does not write it."""
    if n is None:
        (n,) = torch.ops.symm.all_reduce_norm(
            r if job.rank == 0 else torch.zeros_like(r), job.name, gamma, 1e-5, weight_offset=1)
    checks.assert_norm(n, r, gamma, 1e-5, 1.0)
    return n


def flashinfer_strides(job, workspace, x):
    """The sum of columns that follow each other; of others nothing."""
    fusion, want = symm.flashinfer.allreduce_fusion, job.total(x)
    assert torch.equal(fusion(x.t(), workspace, 0, fp32_acc=True), want.t())
    refused(ValueError, "without gaps", fusion, x[:, :256], workspace, 0, fp32_acc=True)
    refused(ValueError, "without gaps", fusion, x.t(), workspace, 0, fp32_acc=True,
            output=torch.empty_like(x).view(x.t().shape))


def flashinfer_layouts(job, workspace, x, gamma):
    """Scales of groups by columns, and by columns that are padded to a multiple of four rows."""
    n, q = torch.empty_like(x), torch.empty(x.shape, dtype=FP8, device=job.device)
    for rows in (9, 12):
        scales = torch.full((4, rows + 3), -1.0, device=job.device)[:, :rows]
        columns = torch.empty(4, 9, device=job.device).t() if rows == 9 else scales[:, :9].t()
        symm.flashinfer.allreduce_fusion(
            x, workspace, 9, residual_in=x, rms_gamma=gamma, quant_out=q, norm_out=n,
            scale_out=columns, block_quant_group_size=128)
        checks.assert_close_scales(columns, checks.group_scales(n))
    y = x.clone()
    got = symm.flashinfer.allreduce_fusion(y, workspace, 4, rms_gamma=gamma, quant_out=q,
                                           residual_in=x, residual_out=y, scale_factor=0.02)
    checks.assert_quantised(q, got, torch.full((1,), 0.02))
    assert torch.equal(y, checks.rows_of(job.total(x, round_partial=True), None, x))


def flashinfer_passes_on(job, workspace, x, gamma):
    fusion = symm.flashinfer.allreduce_fusion
    packed = torch.empty(9, 1, dtype=torch.int32, device=job.device)
    q = torch.empty(x.shape, dtype=FP8, device=job.device)
    made = len(stand_ins.TheirWorkspace.made)
    for options in (dict(pattern=3), dict(pattern=7, moe_finalize_backend="cake"),
                    dict(pattern=8, scale_out=packed, block_quant_group_size=128),
                    dict(pattern=9, block_quant_group_size=96), dict(pattern=1, newer=True)):
        name, arguments = fusion(x, workspace, rms_gamma=gamma, quant_out=q, **options)
        assert name == "theirs" and arguments["input"] is x and arguments["rms_gamma"] is gamma
        assert {**arguments, **options} == arguments and "wide" not in arguments
    theirs = arguments["workspace"]
    assert len(stand_ins.TheirWorkspace.made) == made + 1
    assert theirs.arguments["max_token_num"] == 64 and theirs.arguments["group"] is job.cpu_group
    assert fusion(x, theirs, 1)[1]["workspace"] is theirs
    rows = {"residual_in": x}
    needed = {**rows, "rms_gamma": gamma}
    for word, pattern, options in (("needs residual_in", 1, {"rms_gamma": gamma}),
                                   ("needs rms_gamma", 1, rows),
                                   ("needs quant_out", 2, needed),
                                   ("needs scale_factor", 2, {**needed, "quant_out": q}),
                                   ("needs scale_out", 10, {**needed, "quant_out": q}),
                                   ("not (9, 1) of", 10, {**needed, "quant_out": q,
                                                          "scale_out": gamma})):
        refused(ValueError, word, fusion, x, workspace, pattern, **options)
    refused(ValueError, "not (tokens, hidden)", fusion, x[0], workspace, 10, **needed,
            quant_out=q[0], scale_out=gamma)
    refused(ValueError, "world_size is", workspace_of_size, job)
    again = workspace_of(job, backend="mnnvl")
    assert again._engine is workspace._engine and again.backend == "mnnvl"
    workspace.destroy()
    workspace.destroy()
    assert theirs._destroyed
    refused(symm.Invalid, "workspace has been destroyed", fusion, x, workspace, 0)
    assert torch.equal(fusion(x, again, 0), job.total(x))  # the team lives on
    again.destroy()
    refused(symm.Error, "", fusion, x, again, 0)
    symm.flashinfer._their_create, kept = None, symm.flashinfer._their_create
    alone = workspace_of(job)
    refused(NotImplementedError, "pattern 3 is not one", fusion, x, alone, 3)
    alone.destroy()
    symm.flashinfer._their_create = kept


def workspace_of_size(job):
    symm.flashinfer.create_allreduce_fusion_workspace(world_size=job.size + 1, rank=job.rank,
                                                      group=job.cpu_group, device=job.device)


def test_vllm_fusion(job):
    """vLLM's pass comes to libsymm once the plug-in is registered, and to FlashInfer without."""
    stand_ins.put_vllm()
    vllm = stand_ins.put_vllm_fusion()
    engines = len(symm._engine.engines())
    x, residual, gamma, _, scale = tensors(job, (7, 512), BF16)
    os.environ["SYMM_VLLM_FUSION"] = "0"
    assert symm.vllm.register() and comm.allreduce_fusion is symm.flashinfer._their_fusion
    del os.environ["SYMM_VLLM_FUSION"]
    assert symm.vllm.register() and symm.vllm.register()
    ca = sys.modules["vllm.distributed.device_communicators.custom_all_reduce"].CustomAllreduce(
        job.cpu_group, job.device)
    before = symm.vllm.counters()["all_reduce_norm"][0]
    call = vllm.call_trtllm_fused_allreduce_norm
    s, group = job.total(x), job.cpu_group
    r = checks.rows_of(s, None, residual)
    n, rows = x.clone(), residual.clone()
    if not ON_CPU:
        torch.cuda.set_device(job.device)
    workspace = call(n, rows, gamma, 1e-6, group, 1)
    assert isinstance(workspace, symm.flashinfer.AllReduceFusionWorkspace)
    assert len(symm._engine.engines()) == engines + 1  # the team of vLLM's all-reduce
    ca.close()
    ca.close()
    refused(symm.Invalid, "finalized", ca.all_reduce, x)
    assert torch.equal(rows, r)
    checks.assert_norm(n, r, gamma)
    q, given = torch.empty(x.shape, dtype=FP8, device=job.device), x.clone()
    call(given, residual.clone(), gamma, 1e-6, group, 2, quant_out=q, scale_factor=scale)
    checks.assert_quantised(q, n, scale, False)
    normed, summed = torch.empty_like(x), x.clone()  # a norm without residual
    call(summed, torch.zeros_like(x), gamma, 1e-6, group, 1, norm_out=normed)
    assert torch.equal(summed, s)
    checks.assert_norm(normed, s, gamma)
    made = len(stand_ins.TheirWorkspace.made)
    call(given, residual, gamma, 1e-6, group, 3, quant_out=q, scale_out=q)  # 4 bits: FlashInfer's
    assert len(stand_ins.TheirWorkspace.made) == made + 1
    assert symm.vllm.counters()["all_reduce_norm"][0] == before + 3
    workspace.destroy()
    assert len(symm._engine.engines()) == engines


def test_sglang(job):
    registry = stand_ins.put_sglang()
    assert symm.sglang.register()
    registry.apply_hooks()
    module = sys.modules["sglang.srt.distributed.device_communicators.custom_all_reduce"]
    os.environ["SYMM_SGLANG_FUSION"] = "0"
    plain = module.dispatch_custom_allreduce(job.cpu_group, job.device)
    assert not hasattr(plain, "fused_allreduce_rmsnorm")
    del os.environ["SYMM_SGLANG_FUSION"]
    ca = module.dispatch_custom_allreduce(job.cpu_group, job.device)(
        group=job.cpu_group, device=job.device)
    assert hasattr(ca, "fused_allreduce_rmsnorm") and hasattr(ca, "custom_fused_ar_rms")
    before = symm.sglang.counters()["all_reduce_norm"][0]
    for dtype in DTYPES:
        x, residual, weight, *_ = tensors(job, (17, 512), dtype)
        kept = x.clone(), residual.clone()
        n, r = ca.fused_allreduce_rmsnorm(x, residual, weight, 1e-5)
        assert torch.equal(x, kept[0]) and torch.equal(residual, kept[1])
        assert torch.equal(r, ca.custom_all_reduce(x) + residual)
        checks.assert_norm(n, r, weight, 1e-5)
        m, s = ca.custom_fused_ar_rms(x, residual, weight, 1e-5, True, out=x, residual_out=residual)
        assert m is x and s is residual and torch.equal(s, r)
        checks.assert_norm(m, r, weight, 1e-5)
    assert symm.sglang.counters()["all_reduce_norm"][0] == before + 6
    x, residual, weight, *_ = tensors(job, (17, 512), BF16)
    for bad in ((x.t(), residual.t(), weight), (x, residual[:3], weight), (x, residual, x),
                (x, residual, weight.float()), (x[:1, :3], residual[:1, :3], weight[:3])):
        assert ca.fused_allreduce_rmsnorm(*bad, 1e-5) is None
    with ca.capture():
        n, r = ca.fused_allreduce_rmsnorm(x, residual, weight, 1e-5)  # a warm-up: no values
        assert n.shape == r.shape == x.shape
        if not ON_CPU:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                n, r = ca.fused_allreduce_rmsnorm(x, residual, weight, 1e-5)
    assert symm.sglang.counters()["all_reduce_norm"][0] == before + 6 + (not ON_CPU)
    if not ON_CPU:
        x.copy_(x * 2)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(r, checks.rows_of(job.total(x), None, residual))
        checks.assert_norm(n, r, weight, 1e-5)
        del graph
    ca.close()
    assert ca.fused_allreduce_rmsnorm(x, residual, weight, 1e-5) is None


def main():
    job = Job()
    warnings.filterwarnings("error", "erase_node")
    for test in (test_operator, test_operator_refuses, test_traced, test_graph, test_fused,
                 test_left, test_inductor, test_flashinfer, test_vllm_fusion, test_sglang):
        if NAMES and test.__name__ not in NAMES:
            continue
        begin = time.time()
        test(job)
        dist.barrier(group=job.cpu_group)
        if job.rank == 0:
            print(f"{test.__name__}: {time.time() - begin:.1f} s", flush=True)
    if job.rank == 0:
        print(f"right: {job.size} ranks on {job.device.type}", flush=True)
    dist.destroy_process_group()


main()
