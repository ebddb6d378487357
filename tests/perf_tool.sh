# SPDX-License-Identifier: MIT
#
# perf_tool.sh - shared by the tests of symm-perf, which source it. Exits with 77 if the tool
# was not built.

set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
source_dir=${SOURCE_DIR:-$here/..}
build=${BUILD_DIR:-$source_dir/build}
perf=$build/bin/symm-perf
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

[ -x "$perf" ] || { echo "symm-perf was not built: skipped"; exit 77; }

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# expect STATUS WHAT ARG...: runs symm-perf; output in $work/out and $work/err.
expect() {
    local wanted=$1 what=$2 status
    shift 2
    timeout 300 "$perf" "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    [ "$status" = "$wanted" ] && return 0
    fail "$what: exit status $status instead of $wanted: symm-perf $*"
    head -n 5 "$work/err"
    return 1
}

# says FILE TEXT WHAT
says() {
    grep -qF -- "$2" "$work/$1" || { fail "$3: no '$2'"; head -n 5 "$work/$1"; }
}
