# SPDX-License-Identifier: MIT
"""What `await work` does: a future of asyncio's running loop, which the end of the call completes.

The loop is told by Work.notify and not by Work.fileno, so that thousands of works can be awaited
at a time: each descriptor of a work is one of the process's, often 1024.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

from ._core import Error, Work


async def _wait(work: Work) -> None:
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def end(error: Error | None) -> None:
        if ended.done():  # cancelled
            return
        if error is None:
            ended.set_result(None)
        else:
            ended.set_exception(error)

    def tell(error: Error | None) -> None:
        try:
            loop.call_soon_threadsafe(end, error)
        except RuntimeError:
            pass  # the loop was closed before the call has ended: nobody waits

    work.notify(tell)
    await ended


def wait(work: Work) -> Generator[Any, None, None]:
    """The iterator of `await work`."""
    return _wait(work).__await__()
