# SPDX-License-Identifier: MIT
"""Where the files of the installed package lie: the library, headers, tools, device bitcode."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path(__file__).absolute().parent / "_lib"
PTX = _ROOT / "lib" / "libsymm_device.ptx"


def _existing(path: Path, what: str) -> Path:
    if not path.exists():
        raise FileNotFoundError(f"symm: no {what} at {path}")
    return path


def library() -> Path:
    """The shared library, for ctypes and linkers. Raises FileNotFoundError."""
    found = sorted((_ROOT / "lib").glob("libsymm.so.*"))
    if not found:
        raise FileNotFoundError(f"symm: no library in {_ROOT / 'lib'}")
    return found[-1]


def include_dir() -> Path:
    """The folder of symm/symm.h, for compilers. Raises FileNotFoundError."""
    return _existing(_ROOT / "include", "headers")


def executable(name: str) -> Path:
    """A tool: symmrun, symm-info, symm-top, symm-perf, symm-plan. Raises FileNotFoundError."""
    if not isinstance(name, str):
        raise TypeError(f"executable(): name must be a string, not {type(name)}")
    return _existing(_ROOT / "bin" / name, name)


def bitcode() -> Path:
    """The functions of symm/device_bitcode.h as LLVM bitcode, for Triton. Raises FileNotFoundError
    where libsymm was built without clang."""
    return _existing(_ROOT / "lib" / "libsymm_device.bc", "device bitcode")


def ptx() -> Path:
    """The same functions as PTX, for Numba and nvJitLink. Raises FileNotFoundError."""
    return _existing(PTX, "PTX of the device functions")
