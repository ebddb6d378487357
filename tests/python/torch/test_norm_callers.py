# SPDX-License-Identifier: MIT
"""gpu_norm.py with CPU tensors: the all-reduce fused with RMSNorm, by all its callers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("gpu_norm.py")
OPERATORS = ("test_operator", "test_operator_refuses", "test_traced")
ENGINES = ("test_flashinfer", "test_vllm_fusion", "test_sglang")


@pytest.mark.parametrize("size, names", [
    (3, (*OPERATORS, *ENGINES)), (2, ("test_fused", "test_left")),
])
def test_right(size, names):
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
         str(size), str(PROGRAM), "cpu", *names],
        capture_output=True, text=True, timeout=300,
        env={**os.environ, "SYMM_BACKEND": "host", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for name in names:
        assert f"{name}: " in done.stdout
    assert f"right: {size} ranks on cpu" in done.stdout
