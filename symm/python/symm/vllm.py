# SPDX-License-Identifier: MIT
"""libsymm in vLLM: replaces vLLM's custom all-reduce, and the one that is fused with RMSNorm.

An installed libsymm is found by vLLM (0.33 and later) as a general plug-in; nothing has to be
called. SYMM_VLLM=0, alike on all ranks, switches it off; SYMM_VLLM_FUSION=0 leaves vLLM's fusion
pass to FlashInfer.

    import symm.vllm
    print(symm.vllm.counters())       # in a worker: {"all_reduce": (calls, bytes), ...}

Lines of the logger "symm" (logging.getLogger) say which groups use libsymm, and why one does not.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from typing import Any

from . import _engine
from ._engine import MIB, log

__all__ = ["CustomAllreduce", "counters", "register"]

_MODULE = "vllm.distributed.device_communicators.custom_all_reduce"
_OLDEST = (0, 33)
_counters = _engine.Counters()


class CustomAllreduce(_engine.Communicator):
    """vLLM's CustomAllreduce on libsymm; register() puts it in front of vLLM's own class.

    Where libsymm cannot make a team of the group (ranks on several hosts, more than 8 GPUs, no
    peer access), all ranks log a warning and the object behaves as vLLM's own class does.

    Attributes: disabled (refuses all calls), world_size, rank, group, device, max_size in bytes,
    fully_connected (True: a team of one host maps the memory of all peers).
    """

    def __init__(
        self,
        group: Any,
        device: Any,
        max_size: int = 8 * MIB,
        max_all_gather_size: int = 2 * MIB,
        max_mnnvl_all_gather_size: int | None = None,
        max_reduce_scatter_size: int = 16 * MIB,
        max_mnnvl_reduce_scatter_size: int = 16 * MIB,
        max_mnnvl_multimem_reduce_scatter_size: int = 64 * MIB,
        symm_mem_enabled: bool = False,
        *,
        register_graph_buffers: bool = True,
    ) -> None:
        """Collective over the group.

        group: a torch process group with CPU tensors (gloo), of the ranks of one host; None: the
        default group. device: this rank's, as torch.device, name or number of a GPU; "cpu" uses
        libsymm's host backend. Sizes in bytes, of this rank's input. The mnnvl sizes,
        symm_mem_enabled and register_graph_buffers matter to vLLM's own class alone. A group of
        one rank is disabled.
        """
        from torch import distributed

        group = distributed.group.WORLD if group is None else group
        device = _engine.device_of(device)
        self.disabled = True
        if group.size() == 1:
            self.group, self.device, self.rank, self.world_size = group, device, 0, 1
            self.max_size, self.fully_connected = max_size, True
            return
        engine = _engine.make_engine("vllm", group, device, _counters)
        if engine is not None:
            self._max_all_gather_size = max_all_gather_size
            self._max_reduce_scatter_size = max_reduce_scatter_size
            self._start(engine, max_size)
        elif self._has_original("should_custom_ar"):
            super(_engine.Communicator, self).__init__(  # type: ignore[call-arg]
                group, device, max_size, max_all_gather_size, max_mnnvl_all_gather_size,
                max_reduce_scatter_size, max_mnnvl_reduce_scatter_size,
                max_mnnvl_multimem_reduce_scatter_size, symm_mem_enabled,
                register_graph_buffers=register_graph_buffers,
            )
            self._falls_back = True

    _falls_back = False

    @classmethod
    def _has_original(cls, name: str) -> bool:
        return hasattr(super(_engine.Communicator, cls), name)

    def _original(self, name: str) -> Any:
        """A method of vLLM's own class, bound to this object."""
        return getattr(super(_engine.Communicator, self), name)

    def should_custom_ar(self, inp: Any) -> bool:
        if self._falls_back:
            return bool(self._original("should_custom_ar")(inp))
        return super().should_custom_ar(inp)

    def all_reduce(self, inp: Any, *, out: Any = None, registered: bool = False) -> Any:
        if self._falls_back:
            return self._original("all_reduce")(inp, out=out, registered=registered)
        return super().all_reduce(inp, out=out, registered=registered)

    def custom_all_reduce(self, input: Any) -> Any:
        if self._falls_back:
            return self._original("custom_all_reduce")(input)
        return super().custom_all_reduce(input)

    def custom_all_gather(self, inp: Any) -> Any:
        """The inp of all ranks in rank order along dimension 0, in a new tensor: shape
        (world_size x inp.shape[0], ...).

        None if disabled, or inp is not contiguous, not a multiple of 16 bytes or longer than
        max_all_gather_size. Raises and captures as custom_all_reduce does.
        """
        import torch

        if self._falls_back:
            return self._original("custom_all_gather")(inp)
        if self.disabled or not _engine.takes_all_gather(inp, self._max_all_gather_size):
            return None
        out = torch.empty((self.world_size * inp.shape[0], *inp.shape[1:]), dtype=inp.dtype,
                          device=inp.device)
        if not self._is_warm_up():
            self._live().all_gather(inp, out)
        return out

    def custom_reduce_scatter(self, inp: Any) -> Any:
        """Block `rank` along dimension 0 of the sum of inp, in a new tensor: shape
        (inp.shape[0] / world_size, ...).

        Sums as all_reduce. None if disabled, or inp is not float32, float16 or bfloat16, not
        contiguous, its blocks are not of a multiple of 16 bytes, or it is longer than
        max_reduce_scatter_size. Raises and captures as custom_all_reduce does.
        """
        import torch

        if self._falls_back:
            return self._original("custom_reduce_scatter")(inp)
        if self.disabled or not _engine.takes_reduce_scatter(
            inp, self.world_size, self._max_reduce_scatter_size
        ):
            return None
        out = torch.empty((inp.shape[0] // self.world_size, *inp.shape[1:]), dtype=inp.dtype,
                          device=inp.device)
        if not self._is_warm_up():
            self._live().reduce_scatter(inp, out)
        return out

    def capture(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        if self._falls_back:
            context: contextlib.AbstractContextManager[None] = self._original("capture")()
            return context
        return super().capture()

    def close(self) -> None:
        if self._falls_back:
            self._original("close")()
        else:
            super().close()

    @classmethod
    def create_shared_buffer(
        cls, size_in_bytes: int, group: Any = None, uncached: bool = False
    ) -> list[int]:
        """Collective over the group: symmetric memory of size_in_bytes bytes on each rank; the
        addresses of all ranks' copies in this process, in rank order.

        It lives until free_shared_buffer, or until the group's CustomAllreduce is closed. Of a
        group without a CustomAllreduce on libsymm: vLLM's own function, if there is one, else
        RuntimeError.
        """
        from torch import distributed

        wanted = distributed.group.WORLD if group is None else group
        for engine in _engine.engines():
            if engine.group is wanted:
                return engine.share(size_in_bytes)
        if not cls._has_original("create_shared_buffer"):
            raise RuntimeError("symm: create_shared_buffer(): the group has no CustomAllreduce")
        pointers: list[int] = getattr(super(_engine.Communicator, cls), "create_shared_buffer")(
            size_in_bytes, group=group, uncached=uncached
        )
        return pointers

    @classmethod
    def free_shared_buffer(
        cls, pointers: list[int], group: Any = None, rank: int | None = None
    ) -> None:
        """Frees this rank's part of what create_shared_buffer returned; peers keep theirs.

        Pointers of vLLM's own function go there. RuntimeError if they are of neither.
        """
        if any(engine.unshare(pointer) for engine in _engine.engines() for pointer in pointers):
            return
        if not cls._has_original("free_shared_buffer"):
            raise RuntimeError("symm: free_shared_buffer(): no buffer of libsymm is there")
        getattr(super(_engine.Communicator, cls), "free_shared_buffer")(
            pointers, group=group, rank=rank
        )


def _refusal(vllm: Any, original: Any) -> str | None:
    """Why this vLLM is left as it is; None: it can be used."""
    version = str(getattr(vllm, "__version__", ""))
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and (int(numbers[1]), int(numbers[2])) < _OLDEST:
        return f"vLLM {version} is older than {_OLDEST[0]}.{_OLDEST[1]}"
    needed = ("custom_all_reduce", "custom_all_gather", "custom_reduce_scatter", "capture")
    missing = [name for name in needed if not hasattr(original, name)]
    if isinstance(original, type) and missing:
        return f"the CustomAllreduce of vLLM {version} has no {missing[0]}"
    return None


def _over(original: Any) -> type:
    """CustomAllreduce in front of vLLM's class; without it where that is no class to derive
    from."""
    bases = (CustomAllreduce, original) if isinstance(original, type) else (CustomAllreduce,)
    return type("CustomAllreduce", bases, {"__doc__": CustomAllreduce.__doc__})


def _create_workspace(*args: Any, **options: Any) -> Any:
    """symm.flashinfer's create_allreduce_fusion_workspace, with vLLM's counters."""
    from . import flashinfer

    workspace = flashinfer.create_allreduce_fusion_workspace(*args, **options)
    if isinstance(workspace, flashinfer.AllReduceFusionWorkspace):
        workspace._count_in(_counters)
    return workspace


def _hook_fusion() -> None:
    """Puts libsymm under what vLLM calls of FlashInfer: its fusion pass and FlashInferAllReduce
    look the functions up in flashinfer.comm at each call."""
    if os.environ.get("SYMM_VLLM_FUSION") == "0":
        log.info("symm: vLLM's fusion pass calls FlashInfer: SYMM_VLLM_FUSION=0")
        return
    try:
        comm: Any = importlib.import_module("flashinfer.comm")
    except Exception as error:  # FlashInfer looks for a GPU and a compiler
        log.info("symm: vLLM has no fusion of all-reduce and RMSNorm without FlashInfer: %s", error)
        return
    from . import flashinfer

    if flashinfer.has_flashinfer() and comm.allreduce_fusion is not flashinfer.allreduce_fusion:
        comm.allreduce_fusion = flashinfer.allreduce_fusion
        comm.create_allreduce_fusion_workspace = _create_workspace
        log.info("symm: vLLM's fusion pass calls libsymm in place of FlashInfer")


def register() -> bool:
    """Replaces CustomAllreduce of vLLM by libsymm's; vLLM calls it in every process.

    Where FlashInfer is installed, its allreduce_fusion and create_allreduce_fusion_workspace are
    replaced too, for vLLM's pass that fuses all-reduces with RMSNorm, unless SYMM_VLLM_FUSION=0.

    Idempotent. Returns whether CustomAllreduce is replaced; if not, the logger "symm" says why:
    SYMM_VLLM=0, no vLLM, or one that is too old. Never raises for these.
    """
    if os.environ.get("SYMM_VLLM") == "0":
        log.info("symm: vLLM keeps its own custom all-reduce: SYMM_VLLM=0")
        return False
    try:
        vllm = importlib.import_module("vllm")
        module = importlib.import_module(_MODULE)
        original: Any = module.CustomAllreduce
    except (ImportError, AttributeError) as error:
        log.warning("symm: vLLM's custom all-reduce was not replaced: %s", error)
        return False
    if isinstance(original, type) and issubclass(original, CustomAllreduce):
        _hook_fusion()
        return True
    why = _refusal(vllm, original)
    if why:
        log.warning("symm: vLLM's custom all-reduce was not replaced: %s", why)
        return False
    setattr(module, "CustomAllreduce", _over(original))
    log.info("symm: vLLM's custom all-reduce is replaced by libsymm's")
    _hook_fusion()
    return True


def counters() -> dict[str, tuple[int, int]]:
    """What libsymm has done for vLLM in this process: operation -> (calls, bytes of inputs).

    Operations: all_reduce, all_reduce_norm, all_gather, reduce_scatter; captured: those of them
    that were recorded into a graph, whose replays are not counted.
    """
    return _counters.read()
