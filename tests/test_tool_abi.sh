#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The binary interface: libsymm.so keeps that of tests/abi/VERSION.abi (tests/abi.py), its
# exported symbols have the version of the release, which symm.map, the soname and the project
# agree on, and it is linked with -z defs. Against copies of the file that differ from the library
# by one change, the comparison must fail for a change or a removal and pass for an addition.

set -u
export LC_ALL=C
root=${SOURCE_DIR:-$(cd "$(dirname "$0")/.." && pwd)}
build=${BUILD_DIR:-$root/build}
library=$build/lib/libsymm.so
[ -e "$library" ] || { echo "$library is missing: skipped"; exit 77; }
for tool in python3 readelf nm; do
    command -v "$tool" >/dev/null || { echo "no $tool: skipped"; exit 77; }
done
if grep -q '^SYMM_SANITIZE:[A-Z]*=.' "$build/CMakeCache.txt"; then
    echo 'the library has a sanitizer: skipped'
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}

# ---- Versions and the linker's option, which need no libabigail --------------------------

project=$(sed -n 's/^project(symm VERSION \([0-9]*\.[0-9]*\)\..*/\1/p' "$root/CMakeLists.txt")
soname=$(readelf -dW "$library" | sed -n 's/.*Library soname: \[libsymm\.so\.\(.*\)\]/\1/p')
nodes=$(sed -n 's/^SYMM_\([0-9.]*\) {$/\1/p' "$root/symm/symm.map")
[ -n "$project" ] && [ "$soname" = "$project" ] ||
    fail "the soname is libsymm.so.$soname, the project's version $project"
[ "$(tail -n 1 <<<"$nodes")" = "$project" ] ||
    fail "the last node of symm/symm.map is not SYMM_$project: each release has its own"
nm -D --defined-only "$library" | awk '{ print $NF }' | grep -v "@@SYMM_$project\$" |
    grep -vxF "SYMM_$project" && fail "exports these without the version SYMM_$project"
[ -s "$root/tests/abi/$soname.abi" ] || fail "tests/abi/$soname.abi is missing"
# defs FILE: the link of libsymm.so, by Ninja or make, has -z defs.
defs() {
    awk '/^build [^:]*libsymm\.so[^:]*: C_SHARED_LIBRARY_LINKER/ { inside = 1 }
        /^$/ { inside = 0 }
        inside && /LINK_FLAGS/ || / -shared .*libsymm\.so/ { print }' "$1" | grep -q -e '-z,defs'
}
rules=$build/build.ninja
[ -e "$rules" ] || rules=$build/CMakeFiles/symm.dir/link.txt
defs "$rules" || fail 'libsymm.so is not linked with -z defs'
sed 's/-Wl,-z,defs//' "$rules" >"$work/rules"
defs "$work/rules" && fail 'a link without -z defs is not found'

# ---- The interface ----------------------------------------------------------------------

python3 -B "$root/tests/abi.py" check "$build"
case $? in
0) ;;
77)
    [ "$failed" = 0 ] && exit 77
    exit 1
    ;;
*) exit 1 ;;
esac

python3 -B - "$root" "$build" "$work" <<'END' || failed=1
"""The comparison with files of libraries that this one would have changed or extended."""
import sys
import xml.etree.ElementTree as tree

root, build, work = sys.argv[1:]
sys.path.insert(0, root + "/tests")
import abi  # noqa: E402

new = abi.read_library(build, work + "/new.abi")


class Old:
    """The file of an older library."""

    def __init__(self):
        self.corpus = tree.parse(f"{root}/tests/abi/{abi.soname_version(new)}.abi")
        self.structs = abi.structs(self.corpus)
        self.enums = {e.get("name"): e for e in self.corpus.iter("enum-decl")}
        self.symbols = next(self.corpus.iter("elf-function-symbols"))

    def members(self, name):
        return self.structs[name].findall("data-member")

    def drop_last(self, name):
        struct = self.structs[name]
        struct.remove(self.members(name)[-1])
        struct.set("size-in-bits", str(int(struct.get("size-in-bits")) - 64))

    def each_version(self, change):
        """What the file has of symm_version()."""
        for unit in list(self.corpus.iter("abi-instr")) + [self.symbols]:
            for entry in list(unit):
                if entry.get("name") == "symm_version":
                    change(unit, entry)

    def rename_function(self):
        def rename(_, entry):
            for key in ("name", "mangled-name", "elf-symbol-id"):
                if entry.get(key):
                    entry.set(key, entry.get(key).replace("symm_version", "symm_gone"))
        self.each_version(rename)

    def exchange(self, name):
        first, second = (m.find("var-decl") for m in self.members(name)[-2:])
        kept = first.get("name")
        first.set("name", second.get("name"))
        second.set("name", kept)

    def last(self, name):
        return self.enums[name].findall("enumerator")[-1]

    def count_less(self, name):
        value = self.last(name)
        value.set("value", str(int(value.get("value")) - 1))


PASS = {
    "nothing is changed": lambda o: None,
    "a function is added": lambda o: o.each_version(lambda unit, entry: unit.remove(entry)),
    "an enumerator is added": lambda o: o.enums["symm_op"].remove(o.last("symm_op")),
    "a counted enumerator is added": lambda o: o.count_less("symm_algorithm"),
    "a struct taken by its size grows": lambda o: o.drop_last("symm_call"),
}
FAIL = {
    "a function is removed": lambda o: o.rename_function(),
    "a symbol has another version": lambda o: o.symbols[0].set("version", "SYMM_0.1"),
    "a member is renamed": lambda o: o.members("symm_pack_item")[0].find("var-decl").set(
        "name", "x"),
    "members are exchanged": lambda o: o.exchange("symm_call"),
    "a member is moved": lambda o: o.members("symm_call")[-1].set("layout-offset-in-bits", "64"),
    "a struct without a size grows": lambda o: o.drop_last("symm_pack_item"),
    "a struct that is taken in its size alone grows": lambda o: o.drop_last("symm_plan_report"),
    "an enumerator has another value": lambda o: o.last("symm_op").set("value", "77"),
    "an enumerator is removed": lambda o: tree.SubElement(
        o.enums["symm_op"], "enumerator", name="SYMM_X", value="99"),
}
missed = 0
for plants, fails in ((PASS, False), (FAIL, True)):
    for what, plant in plants.items():
        old = Old()
        plant(old)
        old.corpus.write(work + "/old.abi", encoding="unicode")
        found = abi.differences(new, work + "/old.abi")
        if bool(found) != fails:
            missed += 1
            print(f"FAILED: where {what}, the comparison says: {found or 'nothing'}")
print(f"{len(FAIL)} changes are found, {len(PASS)} additions pass" if not missed else "")
sys.exit(missed > 0)
END
[ "$failed" = 0 ]
