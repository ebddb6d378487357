# SPDX-License-Identifier: MIT
"""Runs programs under torchrun."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture
def torchrun(tmp_path):
    """torchrun(size, source): runs Python source on ranks; the text that they printed."""

    def run(size, source, check=True, timeout=240, **env):
        program = tmp_path / "program.py"
        ends_gloo = f"import sys; sys.path.insert(0, {str(HERE)!r}); import ends_gloo\n"
        program.write_text(ends_gloo + textwrap.dedent(source))
        done = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--standalone",
             "--nproc-per-node", str(size), str(program)],
            capture_output=True, text=True, timeout=timeout,
            env={**os.environ, "SYMM_BACKEND": "host", "OMP_NUM_THREADS": "1", **env},
        )
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run
