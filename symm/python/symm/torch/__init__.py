# SPDX-License-Identifier: MIT
"""libsymm under torch.distributed: the c10d backend "symm", and symmetric memory.

    import symm.torch                        # torch >= 2.14 finds it without this line
    torch.distributed.init_process_group("symm")
    symm.torch.enable_symmetric_memory()     # for torch.distributed._symmetric_memory

The C++ part is compiled for the installed torch at first use (symm.torch.build).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

__all__ = ["counters", "enable_symmetric_memory", "register", "register_backend"]


def _make_backend(options: Any, _: Any) -> Any:
    from . import build

    timeout = options.timeout
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
    return build.load().make_backend(
        options.store, options.group_rank, options.group_size, seconds
    )


def register_backend() -> None:
    """Makes init_process_group("symm") known to torch; idempotent."""
    from torch import distributed

    if distributed.is_available() and "SYMM" not in distributed.Backend._plugins:
        distributed.Backend.register_backend(
            "symm", _make_backend, extended_api=True, devices=["cpu", "cuda"]
        )


def enable_symmetric_memory() -> None:
    """Makes libsymm the backend of torch.distributed._symmetric_memory ("SYMM"); idempotent.

    For CUDA tensors it calls torch's set_backend, which torch refuses (RuntimeError) once memory
    of another backend has been allocated. CPU tensors have no other backend. The process groups
    may be of any c10d backend; their ranks must be on one host.
    """
    import torch
    from torch.distributed import _symmetric_memory

    from . import build

    build.load()
    if torch.cuda.is_available():
        _symmetric_memory.set_backend("SYMM")  # type: ignore[arg-type]


def register() -> None:
    """Registers what libsymm has for torch without being asked for more; idempotent."""
    register_backend()


def counters() -> dict[str, tuple[int, int]]:
    """What libsymm has moved for torch in this process: operation -> (calls, bytes).

    Operations: all_reduce, reduce_scatter, all_gather, broadcast, all_to_all, barrier, send, recv;
    copies: of tensors that are not contiguous, and of lists. Compiles the C++ part if that has not
    been done.
    """
    from . import build

    result: dict[str, tuple[int, int]] = build.load().counters()
    return result


register()
