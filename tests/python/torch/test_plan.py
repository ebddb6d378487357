# SPDX-License-Identifier: MIT
"""symm.torch.plan: graphs that are recorded, planned and run on the plan. The pass alone: Inductor
needs a minute to compile for CPUs (run plan_program.py by hand for that, and on GPUs)."""

from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("plan_program.py")


@pytest.mark.parametrize("size", [2])
def test_recorded_and_planned(torchrun, tmp_path, size):
    done = torchrun(size, PROGRAM, ("aot",), SYMM_TEST_FOLDER=str(tmp_path))
    assert f"right: {size} ranks" in done.stdout
