# SPDX-License-Identifier: MIT
"""ThreadRanks: a job whose ranks are threads of this process, for tests and examples."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from ._core import Aborted, Context, PeerDead, ThreadGroup, Timeout, init

_T = TypeVar("_T")


class ThreadRanks:
    """`size` ranks as threads.

    with symm.ThreadRanks(4) as ranks:
        sums = ranks.run(lambda ctx: ...)   # on each rank's thread; results in rank order

    Options are those of symm.init, for all ranks. `size` is the number of ranks.
    """

    def __init__(self, size: int, **options: Any) -> None:
        self.size = size
        self._group = ThreadGroup(size)
        self._options = options

    def __enter__(self) -> ThreadRanks:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    def run(self, function: Callable[[Context], _T]) -> list[_T]:
        """Calls function(ctx) on each rank with a context of its own, and ends the contexts.

        Raises the first rank's exception, with those of other ranks as notes. The first is the
        lowest rank whose exception does not say that another one has failed or is late.
        """
        results: list[Any] = [None] * self.size
        errors: list[BaseException | None] = [None] * self.size

        def rank_main(rank: int) -> None:
            try:
                with init(
                    thread_group=self._group, rank=rank, size=self.size, **self._options
                ) as ctx:
                    results[rank] = function(ctx)
            except BaseException as error:
                errors[rank] = error

        threads = [
            threading.Thread(target=rank_main, args=(rank,), name=f"rank {rank}")
            for rank in range(self.size)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        failed = sorted(
            ((rank, error) for rank, error in enumerate(errors) if error is not None),
            key=lambda each: isinstance(each[1], (PeerDead, Aborted, Timeout)),
        )
        if failed:
            first_rank, first = failed[0]
            first.add_note(f"on rank {first_rank}")
            for rank, error in failed[1:]:
                first.add_note(f"rank {rank}: {type(error).__name__}: {error}")
            raise first
        return results
