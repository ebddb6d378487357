# SPDX-License-Identifier: MIT
"""The examples of symm/python/examples that use torch."""

import os
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "symm" / "python" / "examples"


@pytest.mark.parametrize("name, ranks", [
    ("ddp", 3), ("tensor_parallel", 4), ("pipeline", 1), ("pipeline", 4), ("llama_decode", 2),
    ("fused_norm", 2),
])
def test_example(torchrun, name, ranks):
    done = torchrun(ranks, (EXAMPLES / f"{name}.py").read_text(encoding="utf-8"))
    assert done.stdout.startswith("right: "), done.stdout


@pytest.mark.skipif(not os.environ.get("SYMM_TEST_LONG"), reason="a minute of C++ compilers")
def test_compiled_decoder(torchrun):
    """torch.compile fuses each all_reduce of a decode step with the addition and the norm."""
    source = (EXAMPLES / "llama_decode.py").read_text(encoding="utf-8")
    done = torchrun(2, source, ("--compile", "--layers", "1", "--tokens", "4"))
    assert "2 fused calls" in done.stdout, done.stdout


def test_all_are_run():
    """Every example is in one of these files."""
    here = Path(__file__)
    files = (here, here.parents[1] / "test_processes.py", here.parents[1] / "jax" / "test_jax.py",
             here.parents[2] / "gpu.sh")
    tests = "".join(path.read_text(encoding="utf-8") for path in files)
    for path in EXAMPLES.glob("*.py"):
        assert f'"{path.stem}"' in tests or path.name in tests, path.name
