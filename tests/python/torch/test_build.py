# SPDX-License-Identifier: MIT
"""How the extension for torch is compiled."""

import ctypes
import subprocess

import pytest

torch = pytest.importorskip("torch")

from symm.torch import build  # noqa: E402

PROGRAM = """
#include <c10/util/ArrayRef.h>
#include <c10/util/StringUtil.h>
#include <cstring>

extern "C" __attribute__((visibility("default"))) int length(long number)
{
    return (int)std::strlen(c10::str("number ", number, " of ", c10::IntArrayRef({1, 2})).c_str());
}
"""


@pytest.mark.parametrize("options", [[], ["-static-libstdc++"]], ids=["shared", "static"])
def test_one_standard_library(tmp_path, options):
    """The C++ library is torch's, also with a compiler that links its own statically."""
    source, made = tmp_path / "text.cpp", tmp_path / "text.so"
    source.write_text(PROGRAM)
    (runtime,) = build.standard_library()
    subprocess.run([build.compiler(), *options, *build.flags(torch), "-shared", "-o", made, source, runtime,
                    f"-L{torch.__path__[0]}/lib", "-lc10"], check=True)
    names = subprocess.run(["nm", "-D", "--defined-only", made], check=True, capture_output=True,
                           text=True).stdout
    assert " length\n" in names and "_ZNSo9_M_insertIlEERSoT_" not in names
    assert ctypes.CDLL(str(made)).length(ctypes.c_long(7)) == len("number 7 of [1, 2]")
