#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""abi.py - the binary interface of libsymm.so, kept in tests/abi/VERSION.abi.

    tests/abi.py write BUILD             writes tests/abi/VERSION.abi from BUILD/lib/libsymm.so
    tests/abi.py check BUILD             compares BUILD/lib/libsymm.so with it

VERSION is that of the soname, 0.2. The file holds exported functions, their symbol versions and
the types of public headers that they reach, as libabigail's abidw writes them, and no path of
the machine. `check` fails for whatever a program that was linked with the file's library would
notice, and exits with 77 where abidw and abidiff, or debug information, are missing. Additions
pass: a function; an enumerator, also before one named *_COUNT; a member at the end of a struct
whose size the library takes from its first member.
"""

import copy
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as tree

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SKIPPED = 77
# Where no path, parameter name or source line is written, every build gives the same file.
ABIDW = """abidw --drop-private-types --exported-interfaces-only --no-corpus-path
--no-comp-dir-path --no-show-locs --no-elf-needed --no-architecture --no-parameter-names
--type-id-style hash""".split()
# Without defaults, which are of the machine. Harmless for a processor is also a renamed member.
ABIDIFF = """abidiff --no-default-suppression --leaf-changes-only --harmless
--no-added-syms""".split()
# symm_p2p_op is not among them: the library refuses a shorter one.
TAKEN = re.compile(r'symm__struct_(?:take|check)\(\s*"(symm_\w+)"')


@functools.cache
def growing_structs():
    """Structs of which the library takes a shorter one from older programs."""
    found = set()
    for part in ("symm", "planner"):
        for folder, _, files in os.walk(os.path.join(ROOT, part)):
            for name in files:
                if name.endswith(".c"):
                    with open(os.path.join(folder, name), encoding="utf-8") as file:
                        found.update(TAKEN.findall(file.read()))
    return found


def read_library(build, path):
    """Writes to `path` what abidw says of the build's library."""
    library = os.path.join(build, "lib", "libsymm.so")
    if not os.path.exists(library):
        sys.exit(f"{library} is missing: build the target symm first")
    sections = subprocess.run(["readelf", "-SW", library], capture_output=True, text=True,
                              check=True).stdout
    if ".debug_info" not in sections:
        print(f"skipped: {library} has no debug information")
        sys.exit(SKIPPED)
    headers = [os.path.join(ROOT, "include"), os.path.join(build, "include")]
    command = ABIDW + [word for folder in headers for word in ("--headers-dir", folder)]
    subprocess.run(command + ["--out-file", path, library], check=True)
    corpus = tree.parse(path)
    for unit in corpus.iter("abi-instr"):
        where = unit.get("path", "")
        unit.set("path", re.sub(r"^.*?((planner|symm|kernels)/.*)$", r"\1", where))
    return corpus


def structs(corpus):
    return {s.get("name"): s for s in corpus.iter("class-decl")
            if s.get("is-declaration-only") != "yes"}


def enumerators(corpus):
    return {e.get("name"): {v.get("name"): v for v in e.iter("enumerator")}
            for e in corpus.iter("enum-decl")}


def shorten(struct, old):
    """Takes the members after the old struct's last one away, if the struct begins with its
    size."""
    members, before = struct.findall("data-member"), old.findall("data-member")
    first = members[0].find("var-decl") if members else None
    if first is None or first.get("name") != "size" or len(members) <= len(before):
        return
    for member in members[len(before):]:
        struct.remove(member)
    struct.set("size-in-bits", old.get("size-in-bits"))


def forget_additions(new, old):
    """What is new and no program of the old library can notice is taken out of `new`."""
    before = structs(old)
    for name, struct in structs(new).items():
        if name in before and name in growing_structs():
            shorten(struct, before[name])
    values = enumerators(old)
    for enum in new.iter("enum-decl"):
        known = values.get(enum.get("name"))
        if known is None:
            continue
        for value in enum.findall("enumerator"):
            name = value.get("name")
            if name not in known:
                enum.remove(value)
            elif name.endswith("_COUNT") and int(value.get("value")) > int(
                    known[name].get("value")):
                value.set("value", known[name].get("value"))


def soname_version(corpus):
    return corpus.getroot().get("soname").removeprefix("libsymm.so.")


def write(build):
    with tempfile.TemporaryDirectory() as work:
        corpus = read_library(build, os.path.join(work, "new.abi"))
    path = os.path.join(ROOT, "tests", "abi", f"{soname_version(corpus)}.abi")
    corpus.write(path, encoding="unicode")
    with open(path, "a", encoding="utf-8") as file:
        file.write("\n")
    print(f"{path}: {sum(1 for _ in corpus.iter('function-decl'))} functions")


def differences(new, kept):
    """What abidiff says of `new` against the file `kept`, without additions; "": nothing."""
    new = copy.deepcopy(new)
    forget_additions(new, tree.parse(kept))
    with tempfile.NamedTemporaryFile(suffix=".abi") as file:
        new.write(file.name, encoding="unicode")
        found = subprocess.run(ABIDIFF + [kept, file.name], stdout=subprocess.PIPE, text=True,
                               check=False)
    return found.stdout if found.returncode else ""


def check(build):
    with tempfile.TemporaryDirectory() as work:
        new = read_library(build, os.path.join(work, "new.abi"))
    version = soname_version(new)
    kept = os.path.join(ROOT, "tests", "abi", f"{version}.abi")
    if not os.path.exists(kept):
        sys.exit(f"tests/abi/{version}.abi is missing: a new soname needs a file of its own; "
                 f"write it by tests/abi.py write {build}, and commit it")
    found = differences(new, kept)
    if not found:
        print(f"libsymm.so keeps the binary interface of {version}")
        return
    print(found)
    sys.exit(f"libsymm.so does not keep the interface of tests/abi/{version}.abi: programs that "
             "were linked with it break. Take the change back, and add a function, or a member at "
             "the end of a struct that the library takes by its size; or, for a new release, "
             "raise the version in CMakeLists.txt, which gives a new soname, name the node in "
             f"symm/symm.map after it, and write the new file by tests/abi.py write {build}")


def main(arguments):
    if len(arguments) != 2 or arguments[0] not in ("write", "check"):
        sys.exit(__doc__)
    for tool in ("abidw", "abidiff", "readelf"):
        if not shutil.which(tool):
            print(f"skipped: no {tool} (Debian's packages abigail-tools and binutils)")
            sys.exit(SKIPPED)
    {"write": write, "check": check}[arguments[0]](arguments[1])


if __name__ == "__main__":
    main(sys.argv[1:])
