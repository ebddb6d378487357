# SPDX-License-Identifier: MIT
"""The reference that docs/python_api.py makes: every public name is in it with its docstring, and
the signatures of the extension module are those of its stub."""

import ast
import html
import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import symm

pytest.importorskip("pdoc")
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))
python_api = importlib.import_module("python_api")


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The folder with the pages: $SYMM_PYTHON_API (tests/python.sh), else a temporary one."""
    folder = Path(os.environ.get("SYMM_PYTHON_API") or tmp_path_factory.mktemp("api"))
    subprocess.run([sys.executable, ROOT / "docs" / "python_api.py", folder], check=True,
                   timeout=120)
    return folder


@pytest.fixture(scope="module")
def modules():
    """Public modules by name; torch, Triton and Numba are stand-ins while they are imported."""
    stand_ins = python_api.stand_ins()
    before = {name: sys.modules.pop(name, None)
              for name in (*stand_ins, "symm.numba", "symm.torch", "symm.triton")}
    sys.modules.update(stand_ins)
    try:
        yield {name: importlib.import_module(name) for name in python_api.public_modules()}
    finally:
        for name, module in before.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module


def words(text):
    """The words of a text, without what Markdown takes away."""
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


def text_of(page):
    return words(html.unescape(re.sub(r"<[^>]*>", " ", page.read_text(encoding="utf-8"))))


def is_documented(value):
    """Functions, methods, classes and properties have docstrings; other values do not."""
    return inspect.isclass(value) or inspect.isroutine(value) or inspect.isdatadescriptor(value)


def members(owner):
    """Public methods and properties of a class that libsymm defines, with names."""
    for base in owner.__mro__:
        if base.__module__.startswith("symm"):
            for name, value in vars(base).items():
                if not name.startswith("_") and is_documented(value):
                    yield name, getattr(owner, name)


def public_names(module):
    for name in module.__all__:
        value = getattr(module, name)
        if is_documented(value):
            yield name, value
        if inspect.isclass(value):
            for member, what in members(value):
                yield f"{name}.{member}", what


def page_of(reference, name):
    return reference / (name.replace(".", "/") + ".html")


def test_no_page_is_missing(reference, modules):
    names = set(modules)
    assert {"symm", "symm.jax", "symm.sglang", "symm.torch", "symm.triton", "symm.vllm"} <= names
    pages = {str(path.relative_to(reference)) for path in reference.rglob("*.html")}
    assert pages == {"index.html"} | {name.replace(".", "/") + ".html" for name in names}


def test_every_name_is_in_it(reference, modules):
    wrong = []
    for module_name, module in modules.items():
        page = page_of(reference, module_name).read_text(encoding="utf-8")
        text = text_of(page_of(reference, module_name))
        assert words(module.__doc__) in text, module_name
        for name, value in public_names(module):
            documentation = words(inspect.getdoc(value) or "")
            if not documentation:
                wrong.append(f"{module_name}.{name} has no docstring")
            elif f'id="{name}"' not in page:
                wrong.append(f"{module_name}.{name} is not on its page")
            elif documentation not in text:
                wrong.append(f"the page of {module_name} lacks the docstring of {name}")
    assert not wrong, "\n".join(wrong)


# ---- Signatures --------------------------------------------------------------------------


def stub_parameters(function, options):
    """[(name, kind)] of a function in the stub; **options become the keywords that they are."""
    arguments = function.args
    kinds = inspect.Parameter
    found = [(a.arg, kinds.POSITIONAL_ONLY) for a in arguments.posonlyargs]
    found += [(a.arg, kinds.POSITIONAL_OR_KEYWORD) for a in arguments.args]
    if arguments.vararg:
        found.append((arguments.vararg.arg, kinds.VAR_POSITIONAL))
    found += [(a.arg, kinds.KEYWORD_ONLY) for a in arguments.kwonlyargs]
    if arguments.kwarg and "Unpack" in ast.unparse(arguments.kwarg.annotation):
        found += [(name, kinds.KEYWORD_ONLY) for name in options]
    elif arguments.kwarg:
        found.append((arguments.kwarg.arg, kinds.VAR_KEYWORD))
    return found


def test_signatures_are_the_stub():
    """What help() and the reference show of compiled functions is what type checkers see."""
    tree = ast.parse((ROOT / "symm/python/symm/_core.pyi").read_text(encoding="utf-8"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    options = [node.target.id for node in classes["_Options"].body
               if isinstance(node, ast.AnnAssign)]
    checked, wrong = 0, []
    for owner, body in [(None, tree.body), *((c, n.body) for c, n in classes.items())]:
        for node in body:
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
                continue
            if any(ast.unparse(d) == "property" for d in node.decorator_list):
                continue
            holder = getattr(symm, owner) if owner else symm._core
            shown = [(p.name, p.kind) for p in
                     inspect.signature(getattr(holder, node.name)).parameters.values()]
            wanted = stub_parameters(node, options)
            if [n for n, _ in shown] == ["self"] + [n for n, _ in wanted][1:]:
                shown[0] = wanted[0]  # a compiled method's self is positional
            checked += 1
            if shown != wanted:
                wrong.append(f"{owner}.{node.name}: {shown} is not {wanted}")
    assert not wrong, "\n".join(wrong)
    assert checked > 40
