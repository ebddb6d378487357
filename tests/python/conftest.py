# SPDX-License-Identifier: MIT
"""Ranks for the tests: threads of this process, or processes started by symmrun, on the host or
over the fake CUDA driver."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import symm


@pytest.fixture
def on_ranks():
    """on_ranks(size, function, **options): function(ctx) on each rank's thread."""

    def run(size, function, **options):
        options.setdefault("backend", "host")
        options.setdefault("timeout", 20)
        with symm.ThreadRanks(size, **options) as ranks:
            return ranks.run(function)

    return run


@pytest.fixture
def alone():
    """A context of one rank."""
    with symm.init(backend="host", rank=0, size=1, timeout=10) as ctx:
        yield ctx


@pytest.fixture
def symmrun(tmp_path):
    """symmrun(size, source, *args): runs Python source on ranks that are processes."""

    def run(size, source, *args, check=True, timeout=120, **env):
        program = tmp_path / "program.py"
        program.write_text(textwrap.dedent(source))
        done = subprocess.run(
            [str(symm.executable("symmrun")), "-n", str(size), sys.executable, str(program), *args],
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, "SYMM_BACKEND": "host", **env},
        )
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


@pytest.fixture
def fake_cuda(tmp_path):
    """The environment of ranks on the fake CUDA driver, whose module for them is fake_device."""
    driver = symm.library().parent / "libfake_cuda.so"
    if not driver.exists():
        pytest.skip("the fake CUDA driver was not built: it needs cuda.h")
    images = tmp_path / "images"
    images.mkdir()
    for source in (Path(__file__).parents[2] / "kernels" / "cuda").glob("*.cu"):
        # The driver has the kernels as functions; the head of a file lets it be taken.
        (images / f"{source.stem}.fatbin").write_bytes(b"\x50\xed\x55\xba\x01" + bytes(11))
    return {
        "SYMM_BACKEND": "cuda", "SYMM_CUDA_LIBRARY": str(driver), "SYMM_KERNELS": str(images),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ["PYTHONPATH"]]),
    }
