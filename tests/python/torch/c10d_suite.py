# SPDX-License-Identifier: MIT
"""PyTorch's own suite of c10d on a backend, with CPU tensors: python c10d_suite.py [TEST...]

The environment names the backend (BACKEND), the ranks (WORLD_SIZE) and a folder (TEMP_DIR).
Ranks are forked from this process, which has imported torch already; spawned ones would import
it anew, ten seconds a test. SYMM_SUITE_COUNTERS names a file that gets a line for each rank that
passes a test, with what libsymm has moved there.
"""

import os
import sys
import tempfile

os.environ.setdefault("BACKEND", "symm")
os.environ.setdefault("WORLD_SIZE", "2")
os.environ.setdefault("INIT_METHOD", "env://")
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
if "TEMP_DIR" not in os.environ:
    os.environ["TEMP_DIR"] = tempfile.mkdtemp()
for folder in ("barrier", "test_dir", "init_dir"):
    os.makedirs(os.path.join(os.environ["TEMP_DIR"], folder), exist_ok=True)

# The suite decides at import, by the backend's name, which tests it skips: as "gloo" it has all of
# its tests for CPU tensors.
backend = os.environ["BACKEND"]
os.environ["BACKEND"] = "gloo"
# With CI set, torch's run_tests writes XML by a package that only torch's own CI installs.
os.environ.pop("CI", None)

import torch  # noqa: E402
import torch.testing._internal.common_distributed as common  # noqa: E402
from torch.testing._internal.common_utils import run_tests  # noqa: E402

if backend == "symm":
    import symm.torch
    import symm.torch.build

    symm.torch.build.load()
    for feature in common.DistTestCases.backend_feature.values():
        if "gloo" in feature:
            feature.add("symm")

from torch.testing._internal.distributed import distributed_test  # noqa: E402
from torch.testing._internal.distributed.distributed_test import (  # noqa: E402
    DistributedTest,
    TestDistBackend,
)


class AlsoGloo(str):
    """A name that the suite's tests take for "gloo" where they compare it with that."""

    __hash__ = str.__hash__

    def __eq__(self, other):
        return other == "gloo" or str.__eq__(self, other)

    def __ne__(self, other):
        return not self == other


os.environ["BACKEND"] = backend
distributed_test.BACKEND = AlsoGloo(backend)


class TestSuite(TestDistBackend, DistributedTest._DistTestBase):
    """The suite, with forked ranks."""

    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)

    @classmethod
    def _run(cls, rank, test_name, file_name, pipe, **keywords):
        try:
            super()._run(rank, test_name, file_name, pipe, **keywords)
        except SystemExit as end:
            if end.code:  # failed, or skipped on this machine
                raise
        path = os.environ.get("SYMM_SUITE_COUNTERS")
        if path and backend == "symm":
            with open(path, "a", encoding="utf-8") as file:
                moved = {name: value for name, value in symm.torch.counters().items() if value[0]}
                file.write(f"{test_name} {rank} {moved}\n")


if __name__ == "__main__":
    sys.exit(run_tests())
