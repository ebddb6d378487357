#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# python.sh - the tests of the Python package, in a virtual environment of their own.
#
#   tests/python.sh BUILD            builds the extension module in the build folder BUILD,
#                                    installs what the tests need (numpy, pytest, pdoc, JAX, torch),
#                                    and runs them. The package's reference goes to BUILD/python-api
#   tests/python.sh install BUILD    only installs; what fails is tried again by the tests' run
#   tests/python.sh compile BUILD    installs, and compiles what the tests need; likewise
#
# The environment is kept in $SYMM_PYTHON_VENV (BUILD/venv), so a second run installs nothing.
# The last line is "python: N passed, N failed, N skipped". Without network to the package index,
# or without Python's headers, a message says so and the stage counts as one skipped test. torch
# needs the libraries of a CUDA toolkit, even for CPU tensors: where it cannot be imported, its
# tests count as one skipped test.

set -u
export LC_ALL=C PIP_DISABLE_PIP_VERSION_CHECK=1
exec </dev/null
root=$(cd "$(dirname "$0")/.." && pwd)
only=''
case ${1-} in install | compile)
    only=$1
    shift
    ;;
esac
build=$(cd "${1:?usage: tests/python.sh [install | compile] BUILD}" && pwd) || exit 1
venv=${SYMM_PYTHON_VENV:-$build/venv}
jax=jax==0.10.2
torch=torch==2.11.0

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

# torch's wheel for Linux wants libraries that a machine without GPU lacks: stand-ins that define
# the symbols it imports let it load. They trap when they are called.
make_stand_ins() {
    local libraries=$1 out=$2 entry prefix name version
    mkdir -p "$out"
    for entry in cufile:libcufile.so.0: cusparseLt:libcusparseLt.so.0: \
        nvshmem:libnvshmem_host.so.3:NVSHMEM; do
        IFS=: read -r prefix name version <<<"$entry"
        [ ! -e "$out/$name" ] || continue
        nm -D --undefined-only "$libraries"/libtorch_*.so | awk '{ print $2 }' | sed 's/@.*//' |
            grep -i "^$prefix" | sort -u |
            sed 's/.*/void &(void) { __builtin_trap(); }/' >"$out/$name.c"
        local flags=()
        if [ -n "$version" ]; then
            echo "$version { *; };" >"$out/$name.map"
            flags=("-Wl,--version-script=$out/$name.map")
        fi
        cc -w -shared -fPIC "$out/$name.c" -o "$out/$name" "-Wl,-soname,$name" "${flags[@]}"
    done
}

python=$(command -v python3) || skip "there is no python3"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    skip "$python is older than 3.11"
[ -e "$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ] ||
    skip "$python has no headers (package python3-dev)"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv" ||
    skip "no virtual environment could be made (package python3-venv)"
"$venv/bin/python" -c 'import numpy, pytest, ml_dtypes, pdoc, xdist' 2>/dev/null ||
    install numpy pytest pytest-xdist ml_dtypes pdoc ||
    skip "numpy, pytest and pdoc could not be installed: $(tail -n 1 "$build/pip.log")"
has_jax() {
    "$venv/bin/python" -m pip show -q jax 2>/dev/null || install "$jax"
}
has_torch() {
    "$venv/bin/python" -m pip show -q torch 2>/dev/null ||
        { install --no-deps "$torch" && install filelock typing-extensions sympy networkx jinja2 \
            fsspec expecttest; }
}
if [ "$only" = install ]; then
    has_jax
    has_torch
    exit
fi

say "building the extension module"
if ! cmake -S "$root" -B "$build" -DSYMM_PYTHON=ON -DPython_EXECUTABLE="$venv/bin/python" \
    >"$build/python.log" 2>&1 ||
    ! cmake --build "$build" --target symm_python symmrun symm-info >>"$build/python.log" 2>&1; then
    cat "$build/python.log"
    failed=1
    finish
fi
export PYTHONPATH=$build/python SYMM_TORCH_CACHE=$venv/cache SYMM_PYTHON_API=$build/python-api

tests=("$root"/tests/python/test_*.py)
if has_jax; then
    tests+=("$root/tests/python/jax")
else
    say "JAX could not be installed: $(tail -n 1 "$build/pip.log")"
    skipped=$((skipped + 1))
fi
if has_torch; then
    site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    make_stand_ins "$site/torch/lib" "$venv/stand-ins"
    export LD_LIBRARY_PATH=$venv/stand-ins:/usr/local/cuda/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    if "$venv/bin/python" -c 'import torch' 2>"$build/torch.log"; then
        tests+=("$root/tests/python/torch")
        [ -z "$only" ] || "$venv/bin/python" -m symm.torch.build
    else
        say "torch cannot be imported here: $(tail -n 1 "$build/torch.log")"
        skipped=$((skipped + 1))
    fi
else
    say "torch could not be installed: $(tail -n 1 "$build/pip.log")"
    skipped=$((skipped + 1))
fi
[ -z "$only" ] || exit 0

say "testing the package"
report=$build/python.xml
rm -rf "$report" "$build/python-api"
# A job of two ranks leaves the cores idle for half of the time: three jobs at once.
"$venv/bin/python" -m pytest -q --no-header --junitxml "$report" -n 3 --dist load \
    --maxschedchunk 1 "${tests[@]}"
add_report "$report"
finish
