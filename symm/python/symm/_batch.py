# SPDX-License-Identifier: MIT
"""batch: send and recv as one call."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from ._core import Team, Work


class batch:
    """Collects sends and receives of a team and makes them as one call at the end of `with`.

    with symm.batch(team) as b:
        b.send(x, peer=1)
        b.recv(y, peer=1)

    They may stand in any order on each rank. Options are those of Team.p2p; with work=True
    b.work is the Work. An exception inside `with` makes no call. The end of `with` raises what
    Team.p2p raises.
    """

    def __init__(self, team: Team, **options: Any) -> None:
        self._team = team
        self._options = options
        self._operations: list[tuple[str, Any, int]] = []
        self.work: Work | None = None

    def send(self, x: Any, peer: int) -> None:
        """Adds a send of x to rank peer, whose recv has as many elements of the same dtype."""
        self._operations.append(("send", x, peer))

    def recv(self, x: Any, peer: int) -> None:
        """Adds a receive into x from rank peer."""
        self._operations.append(("recv", x, peer))

    def __enter__(self) -> batch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.work = self._team.p2p(self._operations, **self._options)
