# SPDX-License-Identifier: MIT
"""Ranks for the tests: threads of this process, or processes started by symmrun."""

import os
import subprocess
import sys
import textwrap

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

    def run(size, source, *args, check=True, timeout=120):
        program = tmp_path / "program.py"
        program.write_text(textwrap.dedent(source))
        done = subprocess.run(
            [str(symm.executable("symmrun")), "-n", str(size), sys.executable, str(program), *args],
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, "SYMM_BACKEND": "host"},
        )
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run
