#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# run.sh - installs missing packages, builds, and runs every test.
#
#   tests/run.sh            all tests of the release build, then the host suites of the
#                           builds with AddressSanitizer and UBSan, and ThreadSanitizer, then
#                           those of the Python package (tests/python.sh)
#   tests/run.sh --quick    the release build only
#   tests/run.sh --long     the same as without an option, with SYMM_TEST_LONG=1: more repetitions,
#                           larger sizes, every kernel as it is shipped, all host suites with the
#                           sanitizers, and those of the CUDA backend with AddressSanitizer and UBSan
#
# The last line is "N passed, N failed" or "N passed, N failed, N skipped", over all builds.
# A test that did not run, and a build that failed, count as failed. Exit status 0 only if
# nothing failed. Needs no input; a second run installs and builds nothing.

set -u
export LC_ALL=C
exec </dev/null
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
# shellcheck source=bench/setup.sh
. "$root/bench/setup.sh"

quick=0 long=0
case "${1-}" in
'') ;;
--quick) quick=1 ;;
--long)
    long=1
    export SYMM_TEST_LONG=1
    ;;
*)
    echo "usage: tests/run.sh [--quick | --long]" >&2
    exit 2
    ;;
esac

passed=0 failed=0 skipped=0 ahead='' install=''

# The tests of a report by what became of them: "passed skipped". The rest has failed.
count() {
    awk '
        /<testcase / { passed += /status="run"/ }
        /<skipped message="SKIP_RETURN_CODE=77"/ { skipped++ }
        END { print passed + 0, skipped + 0 }' "$1"
}

# The builds with sanitizers, while tests of the release build wait for deadlines. What fails here
# is tried again, and reported, by `run`.
build_ahead() {
    local preset
    renice -n 19 "$BASHPID" >/dev/null
    for preset in asan tsan; do
        setup_configure "$preset" "build-$preset" &&
            setup_build "build-$preset" host_tests
    done
}

# A suite says how many half cores it keeps busy (tests/CMakeLists.txt): side by side, those of many
# ranks take each other's time slices, and five times as long. But all suites wait for deadlines, too:
# with as many as there are half cores a fifth of the time was idle, so there are half as many again.
# run PRESET DIR TARGET [CTEST OPTION...]
run() {
    local preset=$1 dir=$2 target=$3 report total good=0 bad none=0 ctest=() jobs
    shift 3
    jobs=$((3 * $(nproc)))
    [ "$preset" = release ] || wait ${ahead:+"$ahead"}
    if ! setup_configure "$preset" "$dir"; then
        setup_say "$preset: could not be configured"
        failed=$((failed + 1))
        return
    fi
    if ! setup_build "$dir" "$target"; then
        setup_say "$preset: the build failed"
        failed=$((failed + 1))
    fi
    if [ "$preset" = release ] && [ "$quick" = 0 ]; then
        build_ahead >"$dir/ahead.log" 2>&1 &
        ahead=$!
    fi
    ctest=(ctest --test-dir "$dir" "$@")
    report=$root/$dir/tests.xml
    rm -f "$report"
    total=$("${ctest[@]}" -N | sed -n 's/^Total Tests: //p')
    setup_say "testing $preset"
    "${ctest[@]}" --parallel "$jobs" --output-on-failure --output-junit "$report"
    [ ! -e "$report" ] || read -r good none < <(count "$report")
    bad=$((${total:-0} - good - none))
    if [ "${total:-0}" -eq 0 ]; then
        setup_say "$preset: there are no tests"
        bad=1
    fi
    setup_say "$preset: $good passed, $bad failed, $none skipped"
    passed=$((passed + good))
    failed=$((failed + bad))
    skipped=$((skipped + none))
}

setup_packages "${setup_build_packages[@]}" "${setup_compare_packages[@]}" \
    "${setup_python_packages[@]}"
setup_nvcc
if [ "$quick" = 0 ]; then # pip waits for the network most of the time
    mkdir -p build
    tests/python.sh install build >build/python-install.log 2>&1 &
    install=$!
fi
# The machine code of sm_80 and sm_100, two thirds of nvcc's time, is built by whoever builds without
# this script. Where no GPU will run them, nvcc optimizes only kernels of one file among those that have
# the most registers, so that tool_kernels sees spills; all others, some take it a minute, with --long.
# Without the places of variables in debug information the C compiler takes a fifth less.
if [ "$long" = 0 ]; then
    setup_options=(-DSYMM_CUDA_ARCHITECTURES='90;90-virtual' -DCMAKE_C_FLAGS=-fno-var-tracking)
    if [ ! -e /dev/nvidiactl ] && [[ $setup_nvcc_help == *--Ofast-compile* ]]; then
        setup_options+=(-DSYMM_CUDA_OPTIMIZE=copy_in)
    fi
fi
run release build all
setup_options=()
some=(--tests-regex '^host_')
[ "$long" = 1 ] || some+=(--label-exclude '^sanitize-long$')
if [ "$quick" = 0 ]; then
    wait ${install:+"$install"}
    nice -n 5 tests/python.sh compile build >build/python-compile.log 2>&1 &
    run asan build-asan host_tests "${some[@]}"
    run tsan build-tsan host_tests "${some[@]}"
fi
if [ "$long" = 1 ]; then
    # as many repetitions as without --long; a stand-in NCCL that never returns keeps memory; large
    # kernels in the simulator are so slow that other deadlines end first
    unset SYMM_TEST_LONG
    export ASAN_OPTIONS=detect_leaks=0
    run asan-cuda build-asan-cuda all --tests-regex '^(driver|cuda|engine_nccl)_' \
        --exclude-regex '^driver_wide_(chunks|room)$'
    unset ASAN_OPTIONS
    export SYMM_TEST_LONG=1
fi

# The Python package, in the folder of the release build.
python_stage() {
    local line good bad none
    wait
    tests/python.sh build | tee build/python-stage.log
    line=$(tail -n 1 build/python-stage.log)
    if [[ $line =~ ^python:\ ([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]]; then
        good=${BASH_REMATCH[1]} bad=${BASH_REMATCH[2]} none=${BASH_REMATCH[3]}
    else
        good=0 bad=1 none=0
    fi
    setup_say "python: $good passed, $bad failed, $none skipped"
    passed=$((passed + good))
    failed=$((failed + bad))
    skipped=$((skipped + none))
}

[ "$quick" = 1 ] || python_stage

line="$passed passed, $failed failed"
[ "$skipped" -eq 0 ] || line="$line, $skipped skipped"
echo "$line"
[ "$failed" -eq 0 ]
