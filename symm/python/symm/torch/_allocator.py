# SPDX-License-Identifier: MIT
"""The hook in torch's caching allocator that reports captured memory that goes.

It is a small library of its own, compiled for the installed torch at its first use.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import tempfile
import threading
from pathlib import Path
from typing import Any

from .. import _compile, _paths
from . import build

_SOURCE = Path(__file__).absolute().parent / "src" / "allocator.cpp"
_lock = threading.Lock()
_attached = False


def _cuda_include(torch: Any) -> Path | None:
    """The folder of CUDA's headers, of the wheels that torch depends on, else of a toolkit. None:
    there is none, or this torch has no CUDA."""
    if torch.version.cuda is None:
        return None
    folders = []
    nvidia = importlib.util.find_spec("nvidia")
    for root in (nvidia.submodule_search_locations or ()) if nvidia else ():
        folders += sorted(Path(root).glob("*/include"))
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            folders.append(Path(os.environ[name]) / "include")
    folders += map(Path, ("/usr/local/cuda/include", "/usr/local/include", "/usr/include"))
    needed = ("cuda_runtime_api.h", "crt/host_defines.h")
    return next((each for each in folders if all((each / name).exists() for name in needed)), None)


def command(torch: Any, source: Path, target: Path) -> list[str]:
    """The compiler's command that makes the library `target` of a source that is or includes
    allocator.cpp."""
    library, torch_lib = _paths.library(), Path(torch.__path__[0]) / "lib"
    include = _cuda_include(torch)
    return [
        build.compiler(), *build.flags(torch), f"-DSYMM_HAS_CUDA={int(include is not None)}",
        *([f"-I{include}"] if include else []), "-shared", "-o", str(target), str(source),
        *build.standard_library(), str(library), f"-Wl,-rpath,{library.parent}", f"-L{torch_lib}",
        "-lc10", *(["-lc10_cuda"] if include else []),
    ]


def _build(torch: Any, target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / target.name
        _compile.run(command(torch, _SOURCE, made),
                     f"symm.torch's allocator hook for torch {torch.__version__}")
        os.replace(made, target)


def path() -> Path:
    """The compiled hook for the installed torch; compiles it at the first call (seconds)."""
    import torch

    sums = hashlib.sha256(f"{_compile.digest([_SOURCE, Path(__file__)])} {_cuda_include(torch)}".encode())
    target = (_compile.cache()
              / f"_symm_allocator-{torch.__version__}-{sums.hexdigest()[:16]}.so")
    _compile.once(target, lambda made: _build(torch, made))
    return target


def attach() -> None:
    """From now on captured memory is released when torch's allocator gives it back to the driver.

    Idempotent. Starts torch's CUDA part. Raises RuntimeError: no GPU, an allocator without hooks
    (cudaMallocAsync, a pluggable one), no compiler, no headers of CUDA.
    """
    global _attached
    import torch

    with _lock:
        if _attached:
            return
        if torch.version.cuda is None:
            raise RuntimeError("symm: this torch has no CUDA, and so no captured memory")
        torch.cuda.init()  # type: ignore[no-untyped-call]
        function = ctypes.CDLL(str(path())).symm_torch_attach
        function.restype = ctypes.c_char_p
        error = function()
        if error is not None:
            raise RuntimeError("symm: torch's allocator cannot say when captured memory goes: "
                               + error.decode(errors="replace"))
        _attached = True
