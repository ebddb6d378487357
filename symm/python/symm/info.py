# SPDX-License-Identifier: MIT
"""What libsymm finds on this machine, for a bug report: python -m symm.info [--json] [--compile]

The package and its files, which frameworks are there and how libsymm is used by each, then the
output of symm-info. --compile also compiles symm.torch for the installed torch, as its first use
would, and says what that gave.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from . import __version__, _paths

__all__ = ["frameworks", "main", "package", "torch_backend"]

FRAMEWORKS = ("torch", "jax", "cupy", "triton", "vllm", "sglang", "numpy")


def _path_of(find: Callable[[], Any]) -> str:
    try:
        return str(find())
    except FileNotFoundError as error:
        return f"missing ({error})"


def package() -> dict[str, Any]:
    """The package's version and where its files are."""
    return {
        "version": __version__,
        "python": f"{platform.python_version()} at {sys.executable}",
        "package": str(_paths._ROOT.parent),
        "library": _path_of(_paths.library),
        "headers": _path_of(_paths.include_dir),
        "bitcode": _path_of(_paths.bitcode),
    }


def frameworks() -> dict[str, str | None]:
    """Installed version of each framework; None: it is not there. Imports none of them."""
    found: dict[str, str | None] = {}
    for name in FRAMEWORKS:
        try:
            found[name] = (
                importlib.metadata.version(name) if importlib.util.find_spec(name) else None
            )
        except importlib.metadata.PackageNotFoundError:
            found[name] = "of an unknown version"
    return found


def torch_backend(compiles: bool) -> dict[str, Any]:
    """How torch.distributed finds the backend "symm"; imports torch."""
    try:
        import torch

        from .torch import build
    except Exception as error:  # a torch that does not load here is what this tool is to show
        return {"usable": False, "why": f"{type(error).__name__}: {error}"}
    result: dict[str, Any] = {
        "usable": torch.distributed.is_available(),
        "cuda": torch.version.cuda,
        "devices": torch.cuda.device_count(),
        "extension": str(build.extension_path()),
        "compiled": build.extension_path().exists(),
    }
    entry_points = importlib.metadata.entry_points(group="torch.distributed.backends")
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    result["found_without_import"] = version >= (2, 14) and any(
        point.name == "symm" for point in entry_points
    )
    if compiles:
        try:
            build.load()
            result["compiled"] = True
        except RuntimeError as error:
            result["why"] = str(error)
    return result


def _machine(as_json: bool) -> Any:
    try:
        command = [str(_paths.executable("symm-info")), *(["--json"] if as_json else [])]
    except FileNotFoundError as error:
        return {"why": str(error)} if as_json else f"{error}\n"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return {"why": done.stderr.strip()} if as_json else done.stderr
    return json.loads(done.stdout) if as_json else done.stdout


def _print_section(title: str, values: dict[str, Any]) -> None:
    print(title)
    for name, value in values.items():
        print(f"  {name.replace('_', ' '):<20} {'-' if value is None else value}")


def main(arguments: list[str] | None = None) -> int:
    """Prints the report. arguments: of the command line, None: sys.argv's. Returns the exit
    status."""
    parser = argparse.ArgumentParser(prog="python -m symm.info", description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    parser.add_argument("--compile", action="store_true", help="compile symm.torch if it is not")
    options = parser.parse_args(arguments)
    there = frameworks()
    torch = torch_backend(options.compile) if there["torch"] else None
    # The report may be published, and whoever knows a job's secret can join the job.
    variables = {name: "(set, not shown)" if name in ("SYMM_SECRET", "SYMM_JOB_SECRET") else value
                 for name, value in sorted(os.environ.items()) if name.startswith("SYMM_")}

    if options.json:
        json.dump({"package": package(), "frameworks": there, "torch": torch,
                   "variables": variables, "machine": _machine(True)}, sys.stdout, indent=2)
        print()
        return 0
    _print_section("libsymm for Python", package())
    _print_section("frameworks", there)
    if torch:
        _print_section('torch.distributed backend "symm"', torch)
    print(_machine(False), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
