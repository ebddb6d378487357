# SPDX-License-Identifier: MIT
"""libsymm for Python: symmetric memory for the ranks of a job, and collectives over it.

    import symm
    with symm.init() as ctx:                # ranks come from symmrun, torchrun, mpirun, ...
        x = ctx.world.empty(1024, "float32", site="example")
        ctx.world.rendezvous()
        ctx.world.all_reduce(x)             # in place, in rank order: the same bits everywhere

`import symm` needs the standard library alone. Arrays of torch, numpy, CuPy, JAX and others are
taken as they are, without a copy. The names in __all__ are the promise.
"""

import atexit as _atexit

from ._core import (
    Aborted,
    Buffer,
    Busy,
    Call,
    Context,
    Damaged,
    Error,
    Forked,
    InUse,
    Info,
    Invalid,
    JobError,
    Mismatch,
    NoMemory,
    NotFound,
    Overflow,
    PeerDead,
    Refused,
    Stream,
    SystemFailure,
    Team,
    ThreadGroup,
    Timeout,
    Unsupported,
    Work,
    _check_interpreter,
    dtype_size,
    finalize_all as _finalize_all,
    init,
    version as _version,
)
from ._ranks import ThreadRanks
from ._batch import batch
from ._paths import bitcode, executable, include_dir, library, ptx

__all__ = [
    "Aborted", "Buffer", "Busy", "Call", "Context", "Damaged", "Error", "Forked", "InUse",
    "Info", "Invalid", "JobError", "Mismatch", "NoMemory", "NotFound", "Overflow", "PeerDead",
    "Refused", "Stream", "SystemFailure", "Team", "ThreadGroup", "ThreadRanks", "Timeout",
    "Unsupported", "Work", "__version__", "batch", "bitcode", "dtype_size", "executable",
    "include_dir", "init", "library", "ptx",
]

__version__: str = _version
"""The library's version, as '0.2.0'."""

_check_interpreter()
_atexit.register(_finalize_all)
