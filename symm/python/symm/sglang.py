# SPDX-License-Identifier: MIT
"""libsymm in SGLang: takes the place of SGLang's custom all-reduce.

An installed libsymm is found by SGLang (0.5.23 and later) as a plug-in; nothing has to be called.
SYMM_SGLANG=0, alike on all ranks, switches it off, as does SGLANG_PLUGINS without "symm".

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

__all__ = ["CustomAllreduce", "counters", "register"]

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


def _dispatch(original: Any, *args: Any, **options: Any) -> Any:
    """The hook: SGLang's choice, with libsymm before it."""
    chosen = original(*args, **options)
    if not callable(chosen):
        return chosen
    if isinstance(chosen, type) and issubclass(chosen, CustomAllreduce):
        return chosen
    return type("CustomAllreduce", (CustomAllreduce,),
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

    Operations: all_reduce; captured: those that were recorded into a graph, whose replays are not
    counted. all_gather and reduce_scatter stay (0, 0): SGLang keeps its own.
    """
    return _counters.read()
