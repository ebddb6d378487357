#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# python.sh - the tests of the Python package, in a virtual environment of their own.
#
#   tests/python.sh BUILD      builds the extension module in the build folder BUILD, installs what
#                              the tests need (numpy, pytest), and runs
#                              them
#
# The environment is kept in $SYMM_PYTHON_VENV (BUILD/venv), so a second run installs nothing.
# The last line is "python: N passed, N failed, N skipped". Without network to the package index,
# or without Python's headers, a message says so and the stage counts as one skipped test.

set -u
export LC_ALL=C PIP_DISABLE_PIP_VERSION_CHECK=1
exec </dev/null
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:?usage: tests/python.sh BUILD}" && pwd) || exit 1
venv=${SYMM_PYTHON_VENV:-$build/venv}

say() { printf '== %s\n' "$*"; }
passed=0 failed=0 skipped=0
finish() {
    echo "python: $passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
    exit
}
skip() {
    say "$*"
    skipped=$((skipped + 1))
    finish
}
# test_with NAME PATH...: pytest's tests of these paths.
test_with() {
    local report=$build/python-$1.xml
    shift
    rm -f "$report"
    "$venv/bin/python" -m pytest -q --no-header --junitxml "$report" "$@"
    add_report "$report"
}

# Adds a junit report of pytest to the sums; without one the run counts as failed.
add_report() {
    local numbers
    numbers=$("$venv/bin/python" - "$1" <<'EOF'
import sys
from xml.etree import ElementTree

suite = ElementTree.parse(sys.argv[1]).getroot().find("testsuite")
bad = int(suite.get("failures")) + int(suite.get("errors"))
skipped = int(suite.get("skipped"))
print(int(suite.get("tests")) - bad - skipped, bad, skipped)
EOF
    ) || numbers="0 1 0"
    local good bad none
    read -r good bad none <<<"$numbers"
    passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + none))
}

# install PACKAGE...: nothing if all are there.
install() {
    "$venv/bin/python" -m pip install -q --no-input "$@" >"$build/pip.log" 2>&1
}

python=$(command -v python3) || skip "there is no python3"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    skip "$python is older than 3.11"
[ -e "$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ] ||
    skip "$python has no headers (package python3-dev)"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv" ||
    skip "no virtual environment could be made (package python3-venv)"
"$venv/bin/python" -c 'import numpy, pytest, ml_dtypes' 2>/dev/null ||
    install numpy pytest ml_dtypes ||
    skip "numpy and pytest could not be installed: $(tail -n 1 "$build/pip.log")"

say "building the extension module"
if ! cmake -S "$root" -B "$build" -DSYMM_PYTHON=ON -DPython_EXECUTABLE="$venv/bin/python" \
    >"$build/python.log" 2>&1 ||
    ! cmake --build "$build" --target symm_python symmrun symm-info >>"$build/python.log" 2>&1; then
    cat "$build/python.log"
    failed=1
    finish
fi
export PYTHONPATH=$build/python

say "testing the core package"
export SYMM_TORCH_CACHE=$venv/cache
test_with core "$root"/tests/python/test_*.py

finish
