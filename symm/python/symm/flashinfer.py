# SPDX-License-Identifier: MIT
"""FlashInfer's fused all-reduce on libsymm: flashinfer.comm.allreduce_fusion with its signature.

    import symm.flashinfer as comm                # in place of flashinfer.comm

    workspace = comm.create_allreduce_fusion_workspace(
        world_size=size, rank=rank, max_token_num=2048, hidden_dim=4096, dtype=torch.bfloat16,
        group=group)                              # collective
    comm.allreduce_fusion(x, workspace, comm.AllReduceFusionPattern.kARResidualRMSNorm,
                          residual_in=residual, residual_out=residual, norm_out=x, rms_gamma=weight)
    workspace.destroy()

Written after FlashInfer 0.7. libsymm takes the patterns 0, 1, 2, 4, 10, 11, and 8 and 9 with
float32 scales; all else goes to FlashInfer where it is installed, and raises where it is not.
symm.vllm lets vLLM's fusion pass come here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _engine
from ._core import Invalid

if TYPE_CHECKING:
    import torch

try:
    import flashinfer.comm as _theirs
    from flashinfer.comm.workspace_base import AllReduceFusionWorkspace as _Base

    _their_fusion: Any = _theirs.allreduce_fusion
    _their_create: Any = _theirs.create_allreduce_fusion_workspace
except Exception:  # not installed, or it cannot be loaded on this machine
    _their_fusion = _their_create = None

    class _Base:  # type: ignore[no-redef]
        """What FlashInfer's class of that name sets."""

        def __init__(self, world_size: int, rank: int) -> None:
            self.world_size, self.rank, self._destroyed = world_size, rank, False


__all__ = [
    "AllReduceFusionPattern", "AllReduceFusionWorkspace", "QuantizationSFLayout",
    "allreduce_fusion", "counters", "create_allreduce_fusion_workspace",
]

_counters = _engine.Counters()


class AllReduceFusionPattern:
    """FlashInfer's numbers of what follows the all-reduce."""

    kAllReduce = 0
    kARResidualRMSNorm = 1
    kARResidualRMSNormFP8Quant = 2
    kARResidualRMSNormFP4Quant = 3
    kARResidualRMSNormOutFP8Quant = 4
    kARResidualRMSNormOutFP4Quant = 5
    kMoEReductionARResidualRMSNorm = 6
    kMoEFinalizeARResidualRMSNorm = 7
    kARResidualRMSNormPerTokenGroupFP8PackedQuant = 8
    kARResidualRMSNormOutPerTokenGroupFP8PackedQuant = 9
    kARResidualRMSNormDynamicFP8Quant = 10
    kARResidualRMSNormOutDynamicFP8Quant = 11


class QuantizationSFLayout:
    """FlashInfer's layouts of scales of 4 bits, for calls that are passed on to it."""

    SWIZZLED_128x4 = 0
    SWIZZLED_8x4 = 1
    LINEAR = 2


# Pattern: how it quantises, and whether it writes norm_out.
_PATTERNS = {
    0: ("none", False), 1: ("none", True), 2: ("tensor", False), 4: ("tensor", True),
    8: ("group", False), 9: ("group", True), 10: ("row", False), 11: ("row", True),
}
_DTYPES = ("torch.bfloat16", "torch.float16", "torch.float32")


# ---- Workspaces --------------------------------------------------------------------------


class AllReduceFusionWorkspace(_Base):  # type: ignore[misc, unused-ignore]
    """A team of libsymm with the ranks of a process group; create_allreduce_fusion_workspace makes
    it. A subclass of FlashInfer's class of that name where FlashInfer is installed."""

    def __init__(self, engine: _engine.Engine, backend: str, theirs: dict[str, Any]) -> None:
        super().__init__(engine.team.size, engine.team.rank)
        self._destroyed: bool = False
        self._engine, self._backend, self._counters = engine, backend, _counters
        self._theirs_arguments, self._theirs = theirs, None

    def _count_in(self, counters: _engine.Counters) -> None:
        """Has its calls counted by a plug-in."""
        self._counters = counters

    @property
    def backend(self) -> str:
        """The backend of FlashInfer that was asked for, in whose place libsymm is: callers compare
        it."""
        return self._backend

    def is_buffer_size_sufficient(
        self, tp_size: int, num_tokens: int, hidden_dim: int, dtype: torch.dtype,
        use_oneshot: Any = None,
    ) -> bool:
        """Whether allreduce_fusion takes tensors of that size: any number of tokens, at most 16384
        columns of bfloat16, float16 or float32."""
        return bool(tp_size == self.world_size and num_tokens >= 0
                    and 1 <= hidden_dim <= _engine.NORM_COLUMNS and str(dtype) in _DTYPES)

    def _of_flashinfer(self, what: str) -> Any:
        """FlashInfer's own workspace, made at the first call that libsymm does not take; collective
        then. NotImplementedError without FlashInfer."""
        if _their_create is None:
            raise NotImplementedError(f"symm.flashinfer: {what} is not one of libsymm's calls, and "
                                      "FlashInfer, which would take it, is not installed")
        if self._theirs is None:
            self._theirs = _their_create(**self._theirs_arguments)
        return self._theirs

    def destroy(self) -> None:
        """Ends it on this rank; not collective. Idempotent."""
        if self._destroyed:
            return
        self._destroyed = True
        self._engine.close()
        if self._theirs is not None:
            self._theirs.destroy()


def has_flashinfer() -> bool:
    """Whether FlashInfer is installed and can be loaded."""
    return _their_fusion is not None


def _group_of(group: Any, comm_backend: Any) -> Any:
    from torch import distributed

    if group is None:
        group = getattr(comm_backend, "_group", None)  # of FlashInfer's TorchDistBackend
    return distributed.group.WORLD if group is None else group


def _device_of(device: Any) -> Any:
    import torch

    if device is None and not torch.cuda.is_available():
        return torch.device("cpu")
    return _engine.device_of(torch.cuda.current_device() if device is None else device)


def _create(arguments: dict[str, Any], device: Any) -> Any:
    group = _group_of(arguments["group"], arguments["comm_backend"])
    where = _device_of(device)
    for what, given, own in (("world_size", arguments["world_size"], group.size()),
                             ("rank", arguments["rank"], group.rank())):
        if given is not None and given != own:
            raise ValueError(f"symm.flashinfer: {what} is {given}, the process group's {own}")
    engine = (_engine.find_engine(group, where)
              or _engine.make_engine("flashinfer", group, where, _counters))
    if engine is not None:
        backend = "trtllm" if arguments["backend"] == "auto" else arguments["backend"]
        return AllReduceFusionWorkspace(engine, backend, arguments)
    if _their_create is None:
        raise RuntimeError("symm.flashinfer: libsymm cannot be used by this process group, as the "
                           "log says, and FlashInfer is not installed")
    return _their_create(**arguments)


def create_allreduce_fusion_workspace(
    backend: str = "auto", world_size: int | None = None, rank: int | None = None,
    max_token_num: int | None = None, hidden_dim: int | None = None,
    dtype: torch.dtype | None = None, gpus_per_node: int | None = None, comm_backend: Any = None,
    force_oneshot_support: bool = False, group: Any = None, *, device: Any = None,
    **options: Any,
) -> Any:
    """Collective over the group: an AllReduceFusionWorkspace.

    group: a torch process group with CPU tensors (gloo) of the ranks of one host; None: that of
    comm_backend, else the default one. world_size and rank: None, or the group's. device: None: the
    current GPU, without one the CPU. The others matter to FlashInfer alone: libsymm takes tensors
    of any size. Where libsymm cannot make a team (several hosts, no peer access), all ranks log a
    warning and get FlashInfer's own workspace, or RuntimeError without FlashInfer.

    The team is shared with other workspaces and communicators of the same group.
    """
    arguments = dict(
        backend=backend, world_size=world_size, rank=rank, max_token_num=max_token_num,
        hidden_dim=hidden_dim, dtype=dtype, gpus_per_node=gpus_per_node,
        comm_backend=comm_backend, force_oneshot_support=force_oneshot_support, group=group,
        **options)
    return _create(arguments, device)


# ---- Calls -------------------------------------------------------------------------------


def _takes(x: Any, pattern: int, scale_out: Any, group_size: int | None,
           options: dict[str, Any]) -> str:
    """What libsymm does not take of a call, for the error; "": it takes it."""
    unknown = [name for name in options if name != "moe_finalize_backend"]
    if unknown:
        return f"the option {unknown[0]}"
    if pattern not in _PATTERNS:
        return f"pattern {pattern}"
    if str(x.dtype) not in _DTYPES:
        return f"input of {x.dtype}"
    if _PATTERNS[pattern][0] == "group":
        if group_size not in (None, 128):
            return f"block_quant_group_size {group_size}"
        if scale_out is not None and str(scale_out.dtype) != "torch.float32":
            return f"pattern {pattern} with scales of {scale_out.dtype}"
    return ""


def _needed(pattern: int, **arguments: Any) -> None:
    for name, value in arguments.items():
        if value is None:
            raise ValueError(f"symm.flashinfer: pattern {pattern} needs {name}")


def _static_scale(scale_factor: Any, x: Any) -> Any:
    import torch

    if not isinstance(scale_factor, torch.Tensor):
        return torch.full((1,), float(scale_factor), dtype=torch.float32, device=x.device)
    return scale_factor.to(torch.float32)


def _quantisation(x: Any, pattern: int, quant_out: Any, scale_out: Any,
                  scale_factor: Any) -> tuple[dict[str, Any], Any]:
    """The arguments of a quantisation, and scales to be copied to scale_out after the call."""
    import torch

    mode = _PATTERNS[pattern][0]
    if mode == "none":
        return {}, None
    _needed(pattern, quant_out=quant_out)
    if mode == "tensor":
        _needed(pattern, scale_factor=scale_factor)
        return {"quant_out": quant_out, "scale": _static_scale(scale_factor, x)}, None
    _needed(pattern, scale_out=scale_out)
    if x.dim() != 2:
        raise ValueError(f"symm.flashinfer: input is {tuple(x.shape)}, not (tokens, hidden)")
    rows, hidden = x.shape
    wanted = (rows, 1 if mode == "row" else (hidden + 127) // 128)
    if tuple(scale_out.shape) != wanted or scale_out.dtype != torch.float32:
        raise ValueError(f"symm.flashinfer: scale_out is {tuple(scale_out.shape)} of "
                         f"{scale_out.dtype}, not {wanted} of torch.float32")
    if scale_out.is_contiguous():
        return {"quant_out": quant_out, "scale": scale_out, "quant": mode}, None
    turned = scale_out.t()
    if turned.is_contiguous():
        mode = mode if mode == "row" else "group_column"
        return {"quant_out": quant_out, "scale": turned, "quant": mode}, None
    scales = torch.empty(wanted, dtype=torch.float32, device=x.device)  # rows with gaps
    return {"quant_out": quant_out, "scale": scales, "quant": mode}, scales


def allreduce_fusion(
    input: torch.Tensor, workspace: Any, pattern: int, launch_with_pdl: bool = False,
    trigger_completion_at_end: bool = True, output: torch.Tensor | None = None,
    residual_out: torch.Tensor | None = None, norm_out: torch.Tensor | None = None,
    quant_out: torch.Tensor | None = None, scale_out: torch.Tensor | None = None,
    residual_in: torch.Tensor | None = None, rms_gamma: torch.Tensor | None = None,
    rms_eps: float = 1e-6, scale_factor: torch.Tensor | float | None = None,
    layout_code: int | None = None, use_oneshot: bool | None = None, fp32_acc: bool = False,
    moe_reduction_device_num_experts: int | None = None,
    moe_reduction_scale_input: torch.Tensor | None = None,
    moe_reduction_active_experts_token_input: torch.Tensor | None = None,
    moe_reduction_token_input: torch.Tensor | None = None,
    expanded_idx_to_permuted_idx: torch.Tensor | None = None,
    expert_scale_factor: torch.Tensor | None = None,
    shared_expert_output: torch.Tensor | None = None, block_quant_group_size: int | None = None,
    weight_bias: float = 0.0, **options: Any,
) -> Any:
    """flashinfer.comm.allreduce_fusion on libsymm, on torch's current stream.

    input, output, residual_in, residual_out, norm_out: (tokens, hidden), contiguous, of bfloat16,
    float16 or float32; an output may be input or residual_in itself. rms_gamma: (hidden,). With
    s the sum of input over the ranks, r = s + residual_in and n the RMSNorm of r times (weight_bias
    + rms_gamma), pattern 0 writes s to output, the others r to residual_out if it is given, and
    1: n to norm_out, a new tensor if None; 2: n / scale_factor to quant_out (float8_e4m3fn);
    4: as 2, and n to norm_out; 10, 11: as 2, 4 with scales of rows to scale_out, (tokens, 1);
    8, 9: with scales of 128 columns, (tokens, hidden / 128) of float32, whose rows or columns may
    be the contiguous ones (FlashInfer's own packed scales go to FlashInfer).

    fp32_acc: the sum is in float32 and rounded once; False: every partial sum is rounded to input's
    dtype (a workspace of the backend "mnnvl" never does that). The rest of the arithmetic is
    FlashInfer's too: norm.h. launch_with_pdl, trigger_completion_at_end, use_oneshot and
    layout_code have no effect.

    Returns output (pattern 0), norm_out (1, 4, 9, 11) or quant_out (2, 8, 10). Other patterns,
    dtypes, workspaces and options are passed on to FlashInfer; NotImplementedError without it.
    Raises ValueError for missing tensors, symm.Error with libsymm's sentence.
    """
    import torch

    ours = isinstance(workspace, AllReduceFusionWorkspace)
    if ours and workspace._destroyed:  # its team may live on in another workspace
        raise Invalid("symm.flashinfer: allreduce_fusion(): workspace has been destroyed")
    what = (_takes(input, pattern, scale_out, block_quant_group_size, options) if ours
            else "this workspace")
    if what:
        arguments = {name: value for name, value in locals().items() if name in _FORWARDED}
        return _pass_on(workspace, what, {**arguments, **options})
    engine, counters = workspace._engine, workspace._counters
    partial = not fp32_acc and workspace.backend != "mnnvl"
    if pattern == AllReduceFusionPattern.kAllReduce:
        output = torch.empty_like(input) if output is None else output
        if partial and workspace.world_size > 2:
            engine.all_reduce_norm(input, counters, sum_out=output, round_partial=True)
        else:
            engine.all_reduce(input, output, counters)
        return output
    _needed(pattern, residual_in=residual_in, rms_gamma=rms_gamma)
    writes_norm = _PATTERNS[pattern][1]
    if writes_norm and norm_out is None:
        norm_out = torch.empty_like(input)
    quantisation, scales = _quantisation(input, pattern, quant_out, scale_out, scale_factor)
    engine.all_reduce_norm(
        input, counters, weight=rms_gamma, eps=rms_eps, weight_offset=weight_bias,
        residual=residual_in, residual_out=residual_out, norm_out=norm_out if writes_norm else None,
        round_partial=partial, **quantisation)
    if scales is not None and scale_out is not None:
        scale_out.copy_(scales)
    return norm_out if writes_norm else quant_out


_FORWARDED = allreduce_fusion.__code__.co_varnames[:allreduce_fusion.__code__.co_argcount]


def _pass_on(workspace: Any, what: str, arguments: dict[str, Any]) -> Any:
    if isinstance(workspace, AllReduceFusionWorkspace):
        arguments["workspace"] = workspace._of_flashinfer(what)
    elif _their_fusion is None:
        raise TypeError(f"symm.flashinfer: allreduce_fusion() needs a workspace of "
                        f"create_allreduce_fusion_workspace(), not {type(workspace)}")
    return _their_fusion(**arguments)


def counters() -> dict[str, tuple[int, int]]:
    """What libsymm has done for callers of this module: operation -> (calls, bytes of inputs).

    Operations: all_reduce, all_reduce_norm; captured: those that were recorded into a graph, whose
    replays are not counted. What was passed on to FlashInfer is not in it; vLLM's calls are in
    symm.vllm.counters().
    """
    return _counters.read()
