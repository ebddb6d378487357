# SPDX-License-Identifier: MIT
"""gpu_norm.py with CPU tensors: the all-reduce fused with RMSNorm, by all its callers."""

from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("gpu_norm.py")
OPERATORS = ("test_operator", "test_operator_refuses", "test_traced")
ENGINES = ("test_flashinfer", "test_vllm_fusion", "test_sglang")


@pytest.mark.parametrize("size, names", [
    (3, (*OPERATORS, *ENGINES)), (2, ("test_fused", "test_left")),
])
def test_right(torchrun, size, names):
    done = torchrun(size, PROGRAM, ("cpu", *names))
    for name in names:
        assert f"{name}: " in done.stdout
    assert f"right: {size} ranks on cpu" in done.stdout
