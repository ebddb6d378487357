# SPDX-License-Identifier: MIT
"""How the ranks of a torchrun job over several hosts find each other: by torch's own store.

symm.init calls allgather() where the launcher is torchrun, there are ranks on other hosts, and
SYMM_BOOTSTRAP_PORT names no other way. Rank 0 makes the job's secret, and it goes over the store.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

_TOKEN = 16  # random bytes
_LEAST, _MOST = 0.02, 1.0  # seconds of a wait; doubles
_FIRST, _LAST = 0.001, 0.05  # seconds between two looks of a wait; doubles
_STALE = 0.1  # seconds between looks at what an earlier try has left
_LINGER = 2.0  # seconds for what rank 0 says at the deadline to reach the others
_stores: list[Any] = []  # rank 0's process may serve its store: it lives as long as the process


def _open(size: int, seconds: float) -> Any:
    """The store of the default process group, if that has all ranks, else of torch's env://."""
    from torch import distributed
    from torch.distributed import distributed_c10d
    from torch.distributed.rendezvous import rendezvous

    if distributed.is_initialized() and distributed.get_world_size() == size:
        return distributed_c10d._get_default_store()
    if not _stores:
        _stores.append(next(rendezvous("env://", timeout=timedelta(seconds=max(seconds, 1))))[0])
    return _stores[0]


class _Failed(RuntimeError):
    """The sentence of an exchange that came to no end."""


class _Gather:
    """One allgather by a store that may hold what ranks of earlier tries have left in it.

    A restart of torchrun can keep the store, and its counts of restarts differ between hosts. So
    nothing counts that does not carry a random token of this try:

        rank R         a token of R and its block
        now            a version, random: what rank 0 has read last
        VERSION/all    b"+" and what all ranks have put; b"-", their tokens and a sentence
        VERSION/has R  R has found its own token there
        VERSION/go     all have: the blocks are of ranks that live

    Where a rank has not found its token, rank 0 reads again, under another version.
    """

    def __init__(self, store: Any, prefix: str, rank: int, size: int, until: float,
                 did: str) -> None:
        """until: by time.monotonic(). did: what a rank that comes has done, for sentences."""
        self._store, self._prefix, self._rank, self._size = store, prefix, rank, size
        self._did, self._until = did, until

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}"

    def _are_there(self, names: list[str], seconds: float) -> bool:
        """By looks: torch logs a warning of each wait() of its store that ends without the keys."""
        keys = [self._key(name) for name in names]
        until, pause = time.monotonic() + seconds, _FIRST
        while not self._store.check(keys):
            left = until - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LAST * (1 + self._size // 64))
        return True

    def _put(self, name: str, value: bytes) -> None:
        self._store.set(self._key(name), value)

    def _get(self, name: str) -> bytes:
        value: bytes = self._store.get(self._key(name))
        return value

    def _waits(self, more: float = 0) -> Iterator[float]:
        """Lengths of waits until the deadline."""
        wait = _LEAST
        while (left := self._until + more - time.monotonic()) > 0:
            yield max(min(wait, left), _LEAST)
            wait = min(2 * wait, _MOST)

    def _sentence(self, names: list[str]) -> str:
        late = [name.split()[-1] for name in names if not self._store.check([self._key(name)])]
        if not late:
            return ("the ranks put blocks of different sizes into torch's store: has each host the "
                    "same libsymm?")
        shown = ", ".join(f"rank {rank}" for rank in late[:8])
        if len(late) > 8:
            shown += f" and {len(late) - 8} more"
        return f"{shown} {'has' if len(late) == 1 else 'have'} not {self._did}"

    def _publish(self, mark: bytes, parts: list[bytes]) -> str:
        version = os.urandom(_TOKEN).hex()
        self._put(f"{version}/all", mark + b"".join(parts))
        self._put("now", version.encode())
        return version

    def _tokens(self, names: list[str]) -> list[bytes]:
        """Of the ranks that have put something."""
        there = [self._store.check([self._key(name)]) for name in names]
        return [self._get(name)[:_TOKEN] if is_there else bytes(_TOKEN)
                for name, is_there in zip(names, there)]

    def lead(self, block: bytes) -> list[bytes]:
        """Rank 0's part."""
        ranks = [f"rank {rank}" for rank in range(self._size)]
        wanted, mine = ranks, os.urandom(_TOKEN) + block
        parts: list[bytes] = []
        self._put(ranks[0], mine)
        for wait in self._waits():
            if not self._are_there(wanted, wait) and wanted is ranks:
                continue
            found: list[bytes] = self._store.multi_get([self._key(name) for name in ranks])
            if any(len(part) != len(mine) for part in found):
                time.sleep(min(wait, _STALE))  # of an earlier try?
            elif found != parts:
                parts = found
                version = self._publish(b"+", parts)
                wanted = [f"{version}/has {rank}" for rank in range(1, self._size)]
            elif self._store.check([self._key(name) for name in wanted]):
                self._put(f"{version}/go", b"+")
                return [part[_TOKEN:] for part in parts]
        sentence = self._sentence(wanted)
        self._publish(b"-", [*self._tokens(ranks), sentence.encode()])
        raise _Failed(sentence)

    def _judge(self, everything: bytes, mine: bytes) -> list[bytes] | None:
        """The parts of all ranks; None: they are of an earlier try."""
        failed, rest = everything[:1] == b"-", everything[1:]
        token, length = mine[:_TOKEN], _TOKEN if failed else len(mine)
        parts = [rest[r * length:(r + 1) * length] for r in range(self._size)]
        if parts[self._rank][:_TOKEN] != token or not failed and len(rest) != self._size * length:
            return None
        if failed:
            sentence = rest[self._size * length:].decode(errors="replace")
            raise _Failed(sentence)
        return parts

    def follow(self, block: bytes) -> list[bytes]:
        """The other ranks' part."""
        mine, seen = os.urandom(_TOKEN) + block, ""
        parts: list[bytes] | None = None
        self._put(f"rank {self._rank}", mine)
        for wait in self._waits(_LINGER):
            come = self._are_there([f"{seen}/go" if parts else "now"], wait)
            if come and parts:
                return [part[_TOKEN:] for part in parts]
            if not come and not seen:
                continue
            version = self._get("now").decode()
            if version != seen:
                parts, seen = self._judge(self._get(f"{version}/all"), mine), version
                if parts:
                    self._put(f"{version}/has {self._rank}", b"+")
            elif not parts:
                time.sleep(min(wait, _STALE))
        raise _Failed(f"rank 0 has not {self._did}, or has ended")

    def run(self, block: bytes) -> list[bytes]:
        """The blocks of all ranks. Raises _Failed, and what the store raises."""
        return self.lead(block) if self._rank == 0 else self.follow(block)


def gather(store: Any, prefix: str, rank: int, size: int, seconds: float, block: bytes) -> bytes:
    """The blocks of all ranks of a process group, one after the other, by its store.

    The torch backend's start. Raises RuntimeError with a sentence.
    """
    did = "made a call of this process group before the timeout"
    until = time.monotonic() + seconds
    return b"".join(_Gather(store, prefix, rank, size, until, did).run(block))


def _init(open_store: Callable[[], Any], prefix: str, rank: int, size: int, seconds: float,
          block: bytes) -> list[bytes]:
    """To open the store takes a part of the seconds."""
    until = time.monotonic() + seconds
    did = f"called symm.init() within {seconds:.3g} s"
    try:
        return _Gather(open_store(), prefix, rank, size, until, did).run(block)
    except _Failed as error:
        raise RuntimeError(f"symm: init(): {error}") from None


def allgather(rank: int, size: int, seconds: float) -> Callable[[bytes], list[bytes]] | None:
    """What symm.init passes to the library, which calls it once; None: torch is not there.

    It raises RuntimeError with a sentence that names the ranks that do not come within `seconds`,
    and what torch raises if its store cannot be reached.
    """
    try:
        import torch.distributed
    except ImportError:
        return None
    if not torch.distributed.is_available():
        return None

    def exchange(block: bytes) -> list[bytes]:
        return _init(lambda: _open(size, seconds), "symm/init", rank, size, seconds, block)

    return exchange
