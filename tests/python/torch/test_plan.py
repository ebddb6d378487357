# SPDX-License-Identifier: MIT
"""symm.torch.plan: graphs that are recorded, planned and run on the plan. The pass alone: Inductor
needs a minute to compile for CPUs (run plan_program.py by hand for that, and on GPUs)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("plan_program.py")


@pytest.mark.parametrize("size", [2])
def test_recorded_and_planned(tmp_path, size):
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
         str(size), str(PROGRAM), "aot"],
        capture_output=True, text=True, timeout=240,
        env={**os.environ, "SYMM_BACKEND": "host", "OMP_NUM_THREADS": "1",
             "SYMM_TEST_FOLDER": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"right: {size} ranks" in done.stdout
