# SPDX-License-Identifier: MIT
"""Compiles the parts of the package that depend on a framework's version, once, into a cache.

The cache is $SYMM_TORCH_CACHE, else $XDG_CACHE_HOME/libsymm, else ~/.cache/libsymm.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

from . import _paths


def cache() -> Path:
    """The folder of compiled files; it need not exist."""
    named = os.environ.get("SYMM_TORCH_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "libsymm"


def digest(sources: Iterable[Path]) -> str:
    """A hash of what a compiled file depends on: its sources, the library and its headers."""
    sums = hashlib.sha256()
    for path in sorted(sources):
        sums.update(path.read_bytes())
    sums.update(str(_paths.library()).encode())
    for header in sorted((_paths.include_dir() / "symm").glob("*.h")):
        sums.update(header.read_bytes())
    return sums.hexdigest()[:16]


def run(command: list[str], what: str) -> None:
    """Runs a compiler; RuntimeError with its output if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(
            f"{what} could not be compiled: " + " ".join(command) + "\n" + done.stdout
            + done.stderr
        )


def once(target: Path, make: Callable[[Path], None]) -> None:
    """Calls make(target) if target does not exist.

    Of processes that call at the same time one makes it and the others wait.
    """
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            make(target)
