# SPDX-License-Identifier: MIT
"""Writes the reference of the Python package as HTML, from its docstrings, with pdoc.

    python docs/python_api.py FOLDER

The package must be importable (PYTHONPATH=BUILD/python). torch, Triton and Numba are not needed.
"""

import importlib
import inspect
import pkgutil
import sys
import types
from pathlib import Path


def stand_ins():
    """Modules by name that let symm.torch, symm.triton and symm.numba be imported where their
    libraries are not: a torch without process groups, and decorators that change nothing."""

    def nothing(*_, **__):
        return None

    torch, triton = types.ModuleType("torch"), types.ModuleType("triton")
    language, core = types.ModuleType("triton.language"), types.ModuleType("triton.language.core")
    torch.distributed = types.SimpleNamespace(is_available=lambda: False)
    triton.jit = core.extern = lambda function: function
    core.dtype = str
    numba = types.ModuleType("numba")
    numba.types = types.SimpleNamespace(int32=nothing, uint64=None, void=nothing)
    numba.cuda = types.SimpleNamespace(
        declare_device=nothing, jit=lambda **_: lambda function: function)
    triton.language, language.core = language, core
    return {module.__name__: module for module in (torch, triton, language, core, numba)}


def public_modules():
    """symm and what lies in it, but for names with an underscore."""
    symm = importlib.import_module("symm")
    found = pkgutil.iter_modules(symm.__path__, "symm.")
    return ["symm", *(m.name for m in found if not m.name.split(".")[1].startswith("_"))]


def adopt(module):
    """Gives public classes copies of the methods that they inherit from private modules, for pdoc
    shows a method where it is defined."""
    for owner in filter(inspect.isclass, (getattr(module, name) for name in module.__all__)):
        for base in owner.__mro__[1:]:
            for name, value in vars(base).items():
                if (base.__module__.startswith("symm._") and inspect.isfunction(value)
                        and not name.startswith("_") and name not in vars(owner)):
                    copy = types.FunctionType(value.__code__, value.__globals__, name,
                                              value.__defaults__, value.__closure__)
                    copy.__dict__.update(value.__dict__)  # what it wraps
                    copy.__doc__, copy.__annotations__ = value.__doc__, value.__annotations__
                    copy.__kwdefaults__ = value.__kwdefaults__
                    copy.__module__ = module.__name__
                    copy.__qualname__ = f"{owner.__qualname__}.{name}"
                    setattr(owner, name, copy)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/python_api.py FOLDER")
    import pdoc

    sys.modules.update(stand_ins())
    for name in public_modules():
        adopt(importlib.import_module(name))
    pdoc.render.configure(docformat="markdown", show_source=False, search=True)
    pdoc.pdoc(*public_modules(), output_directory=Path(sys.argv[1]))


if __name__ == "__main__":
    main()
