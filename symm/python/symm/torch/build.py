# SPDX-License-Identifier: MIT
"""Compiles symm.torch's C++ for the installed torch, once, into a cache.

torch's C++ interface differs between its versions, and its headers for process groups and
symmetric memory are not in its stable ABI. A file's name contains the versions and a hash of the
sources.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from .. import _compile, _paths

_SOURCE = Path(__file__).absolute().parent / "src"
# One translation unit: most of the compiler's time is torch's headers.
_FILES = (
    "job.cpp", "work.cpp", "messages.cpp", "group.cpp", "collectives.cpp", "lists.cpp",
    "memory.cpp", "memory_ops.cpp", "norm_ops.cpp", "capture.cpp", "module.cpp",
)
_NAME = "_symm_torch"


def compiler() -> str:
    """The C++ compiler: $CXX, c++ or g++. Raises RuntimeError."""
    found = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if not found:
        raise RuntimeError(
            "symm.torch needs a C++ compiler for its first use with this torch: install g++, or "
            "set CXX"
        )
    return found


def flags(torch: Any) -> list[str]:
    """What every file that includes torch's headers is compiled with."""
    include = Path(torch.__path__[0]) / "include"
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    standard = "c++20" if (major, minor) >= (2, 12) else "c++17"
    return [
        f"-std={standard}", "-O2", "-fPIC", "-fvisibility=hidden", "-w",
        f"-I{include}", f"-I{include / 'torch' / 'csrc' / 'api' / 'include'}",
        f"-I{sysconfig.get_path('include')}", f"-I{_paths.include_dir()}",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        f"-DTORCH_EXTENSION_NAME={_NAME}",
    ]


def standard_library() -> list[str]:
    """The C++ library that torch has loaded, for the linker, before the compiler's own.

    A compiler may link its own statically. Then the process has two, and a stream that is made by
    one and written by the other ends in a segmentation fault: TORCH_CHECK with a number does it.
    """
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "/libstdc++.so" in line:
            return [line[line.index("/"):]]
    return []


def _build(torch: Any, target: Path) -> None:
    library = _paths.library()
    torch_lib = Path(torch.__path__[0]) / "lib"
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        whole = Path(folder) / "whole.cpp"
        whole.write_text("".join(f'#include "{_SOURCE / name}"\n' for name in _FILES))
        made = str(Path(folder) / target.name)
        _compile.run([
            compiler(), *flags(torch), "-shared", "-o", made, str(whole),
            *standard_library(), str(library), f"-Wl,-rpath,{library.parent}", f"-L{torch_lib}",
            "-lc10", "-ltorch_cpu", "-ltorch_python",
        ], f"symm.torch for torch {torch.__version__}")
        os.replace(made, target)


def extension_path() -> Path:
    """Where the compiled module for the installed torch is, or will be."""
    import torch

    digest = _compile.digest([Path(__file__), *(_SOURCE / name for name in _FILES),
                              *_SOURCE.glob("*.hpp")])
    python = f"{sys.version_info.major}{sys.version_info.minor}"
    return _compile.cache() / f"{_NAME}-{torch.__version__}-cp{python}-{digest}.so"


def load() -> ModuleType:
    """The compiled module; compiles it at the first call with this torch (half a minute)."""
    import torch

    if _NAME in sys.modules:
        return sys.modules[_NAME]
    target = extension_path()
    _compile.once(target, lambda path: _build(torch, path))
    loader = importlib.machinery.ExtensionFileLoader(_NAME, str(target))
    spec = importlib.util.spec_from_file_location(_NAME, target, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[_NAME] = module
    return module


if __name__ == "__main__":
    print(load().__file__)
