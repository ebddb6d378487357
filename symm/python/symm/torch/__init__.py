# SPDX-License-Identifier: MIT
"""libsymm under torch.distributed: the c10d backend "symm".

    import symm.torch                        # torch >= 2.14 finds it without this line
    torch.distributed.init_process_group("symm")

The C++ part is compiled for the installed torch at first use (symm.torch.build).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

__all__ = ["counters", "register", "register_backend"]


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
