# SPDX-License-Identifier: MIT
"""libsymm in SGLang: takes the place of SGLang's custom all-reduce.

An installed libsymm is found by SGLang (0.5.23 and later) as a plug-in; nothing has to be called.
SYMM_SGLANG=0, alike on all ranks, switches it off, as does SGLANG_PLUGINS without "symm".
SYMM_SGLANG_FUSION=0 leaves out the all-reduce that is fused with RMSNorm.

    import symm.sglang
    print(symm.sglang.counters())     # in a worker: {"all_reduce": (calls, bytes), ...}

Lines of the logger "symm" (logging.getLogger) say which groups use libsymm, and why one does not.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from . import _engine
from ._engine import MIB, log

__all__ = ["CustomAllreduce", "FusedAllreduce", "counters", "register"]

_TARGET = (
    "sglang.srt.distributed.device_communicators.custom_all_reduce.dispatch_custom_allreduce"
)
_counters = _engine.Counters()
_hooked: Any = None  # the HookRegistry that has the hook


class CustomAllreduce(_engine.Communicator):
    """The communicator that SGLang makes of the class that dispatch_custom_allreduce returns.

    CustomAllreduce(group, device) is collective over the group. Where libsymm cannot make a team
    of it (ranks on several hosts, more than 8 GPUs, no peer access), all ranks log a warning and
    get an object of SGLang's own class instead.

    Attributes: disabled (refuses all calls), world_size, rank, group, device, max_size in bytes,
    fully_connected (True: a team of one host maps the memory of all peers).
    """

    _original: Any = None  # SGLang's own class

    def __new__(cls, group: Any, device: Any, max_size: int = 8 * MIB, **options: Any) -> Any:
        engine = None
        if group.size() > 1:
            engine = _engine.make_engine("sglang", group, _engine.device_of(device), _counters)
            if engine is None and cls._original is not None:
                return cls._original(group=group, device=device, **options)
        self = super().__new__(cls)
        self._engine = engine
        return self

    def __init__(self, group: Any, device: Any, max_size: int = 8 * MIB, **options: Any) -> None:
        """group: a torch process group with CPU tensors (gloo), of the ranks of one host. device:
        this rank's, as torch.device, name or number of a GPU; "cpu" uses libsymm's host backend.
        max_size: bytes of the longest input, which is excluded. Other options matter to SGLang's
        own class alone. A group of one rank is disabled.
        """
        self.disabled = True
        self.group, self.device = group, _engine.device_of(device)
        self.rank, self.world_size, self.max_size = group.rank(), group.size(), max_size
        self.fully_connected = True
        if self._engine is not None:
            self._start(self._engine, max_size)


class FusedAllreduce(CustomAllreduce):
    """CustomAllreduce with the all-reduce fused with RMSNorm, which SGLang finds by hasattr. It is
    what dispatch_custom_allreduce returns, unless SYMM_SGLANG_FUSION=0."""

    def fused_allreduce_rmsnorm(
        self, input_: Any, residual_inp_: Any, weight_: Any, eps: float
    ) -> tuple[Any, Any] | None:
        """(norm, residual) of the sum of input_ over the ranks, in new tensors: the residual is the
        sum plus residual_inp_, the norm its RMSNorm over the last dimension with weight_.

        The residual has the bits of custom_all_reduce and an addition; norm.h has the arithmetic.
        None, and SGLang makes the parts, unless should_custom_ar takes input_, it is contiguous
        with at most 16384 columns, and the others have its dtype and fitting shapes. Raises and
        captures as custom_all_reduce does.
        """
        return self.custom_fused_ar_rms(input_, residual_inp_, weight_, eps)

    def custom_fused_ar_rms(
        self, input_: Any, residual_inp_: Any, weight_: Any, eps: float, use_1stage: bool = False,
        *, out: Any = None, residual_out: Any = None,
    ) -> tuple[Any, Any] | None:
        """fused_allreduce_rmsnorm into out and residual_out, where they are given: they may be
        input_ and residual_inp_. libsymm chooses its algorithm by itself: use_1stage has no effect.
        """
        import torch

        if self.disabled or not _engine.takes_norm(input_, residual_inp_, weight_, self.max_size):
            return None
        out = torch.empty_like(input_) if out is None else out
        residual_out = torch.empty_like(residual_inp_) if residual_out is None else residual_out
        if not self._is_warm_up():
            self._live().all_reduce_norm(
                input_, weight=weight_, eps=eps, residual=residual_inp_,
                residual_out=residual_out, norm_out=out)
        return out, residual_out


def _dispatch(original: Any, *args: Any, **options: Any) -> Any:
    """The hook: SGLang's choice, with libsymm before it."""
    chosen = original(*args, **options)
    if not callable(chosen):
        return chosen
    if isinstance(chosen, type) and issubclass(chosen, CustomAllreduce):
        return chosen
    fused = os.environ.get("SYMM_SGLANG_FUSION") != "0"
    return type("CustomAllreduce", (FusedAllreduce if fused else CustomAllreduce,),
                {"_original": staticmethod(chosen), "__doc__": CustomAllreduce.__doc__})


def register() -> bool:
    """Hooks dispatch_custom_allreduce of SGLang; SGLang calls it in every process.

    Idempotent. Returns whether the hook is set; if not, the logger "symm" says why: SYMM_SGLANG=0,
    no SGLang, or one without plug-ins. Never raises for these.
    """
    global _hooked
    if os.environ.get("SYMM_SGLANG") == "0":
        log.info("symm: SGLang keeps its own custom all-reduce: SYMM_SGLANG=0")
        return False
    try:
        hooks = importlib.import_module("sglang.srt.plugins.hook_registry")
        registry, around = hooks.HookRegistry, hooks.HookType.AROUND
    except (ImportError, AttributeError) as error:
        log.warning("symm: SGLang's custom all-reduce was not hooked: %s", error)
        return False
    if _hooked is not registry:
        registry.register(_TARGET, _dispatch, around)
        _hooked = registry
        log.info("symm: SGLang's custom all-reduce is hooked by libsymm")
    return True


def counters() -> dict[str, tuple[int, int]]:
    """What libsymm has done for SGLang in this process: operation -> (calls, bytes of inputs).

    Operations: all_reduce, all_reduce_norm; captured: those that were recorded into a graph, whose
    replays are not counted. all_gather and reduce_scatter stay (0, 0): SGLang keeps its own.
    """
    return _counters.read()
