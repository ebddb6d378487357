#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Lost output is an error of every tool: on a full disk, to a closed stream, beyond the limit
# on a file's size. No other file gets a closed stream's number. The file of symm-perf's -J
# and --tune -o is checked before anything is measured.
# ctest: cost 8

set -u
export LC_ALL=C
build=${BUILD_DIR:-build}
source_dir=${SOURCE_DIR:-.}
[ -w /dev/full ] || { echo 'no /dev/full: skipped'; exit 77; }
bin=$(cd "$build/bin" && pwd)
program=$(realpath "$source_dir/bench/programs/odd-cycle-3.json")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export SYMM_BACKEND=host
failed=0 checks=0

fail() {
    echo "FAILED: $*"
    failed=1
}

# lost TOOL ARGUMENT...: with stdout full, closed, or limited: not 0, and one line that says why.
lost() {
    local tool=$1 way status
    shift
    for way in full closed limit; do
        checks=$((checks + 1))
        case $way in
            full) "$bin/$tool" "$@" >/dev/full 2>err </dev/null ;;
            closed) "$bin/$tool" "$@" >&- 2>err <&- ;;
            limit)
                head -c 1024 /dev/zero >limited
                (ulimit -f 1 && exec "$bin/$tool" "$@" >>limited 2>err </dev/null)
                ;;
        esac
        status=$?
        [ "$status" -ne 0 ] && [ "$status" -lt 126 ] ||
            fail "$tool $*: exit status $status with stdout $way"
        grep -qE 'stdout|standard output' err ||
            fail "$tool $*, stdout $way: says '$(head -c 300 err)'"
    done
}

# tool exists, or its test is left out (no jansson)
has() { [ -x "$bin/$1" ] || { echo "$1: not built, left out"; false; }; }

if has symmrun; then
    lost symmrun --help
    lost symmrun --version
    lost symmrun -n 2 -- echo hi
fi
if has symm-info; then
    lost symm-info --help
    lost symm-info --version
    lost symm-info --job
    lost symm-info --json --options
    # What --probe opens must not be written to instead.
    SYMM_RUNTIME_DIR=$work "$bin/symm-info" --probe >&- 2>err
    [ $? = 1 ] || fail 'symm-info --probe with a closed stdout'
fi
if has symm-top; then
    lost symm-top --help
    lost symm-top --version
    lost symm-top --once
fi
if has symm-plan; then
    lost symm-plan --help
    lost symm-plan --version
    for command in plan check emit pack; do
        lost symm-plan $command --help
    done
    "$bin/symm-plan" plan "$program" -o plan.json >out || fail "symm-plan plan"
    lost symm-plan plan "$program"
    lost symm-plan check "$program" plan.json
    lost symm-plan emit "$program" plan.json --lang c
    printf 'id,lower,upper,size\na,0,2,64\n' >in.csv
    lost symm-plan pack in.csv --capacity 64
    # The file is right, and no part of what is printed got into it.
    "$bin/symm-plan" plan "$program" -o other.json >&- 2>err
    [ $? = 2 ] || fail 'symm-plan plan -o with a closed stdout'
    cmp plan.json other.json || fail 'symm-plan plan -o with a closed stdout: another plan'
fi
if has symm-perf; then
    lost symm-perf --help
    lost symm-perf --version
    # A limit too small for a segment is an error that names it, not a signal.
    (ulimit -f 8 && exec "$bin/symm-perf" all_reduce --ranks 2 -b 8 -e 8) 2>&1 | cat >out
    [ "${PIPESTATUS[0]}" = 3 ] || fail "a limit on files: exit status ${PIPESTATUS[0]}"
    grep -q 'RLIMIT_FSIZE' out || fail "a limit on files: says '$(cat out)'"
    # A log file beyond the limit ends no rank either.
    head -c 8192 /dev/zero >log
    (ulimit -f 8 && SYMM_LOG=debug SYMM_LOG_FILE=$work/log \
        exec "$bin/symm-perf" all_reduce --ranks 2 -b 8 -e 8) 2>&1 | cat >out
    [ "${PIPESTATUS[0]}" = 3 ] || fail "a log beyond the limit: exit status ${PIPESTATUS[0]}"

    # refused FLAG FILE ARGUMENT...: exit status 2 before a line of the table.
    refused() {
        local flag=$1 file=$2
        shift 2
        checks=$((checks + 1))
        timeout 60 "$bin/symm-perf" "$@" --ranks 2 "$flag" "$file" >out 2>err
        [ $? = 2 ] || fail "symm-perf $* $flag $file: not exit status 2"
        grep -q "symm-perf: $flag: $file cannot be written" err || fail "$flag $file: $(cat err)"
        [ "$(wc -l <err)" = 1 ] || fail "$flag $file: said more than once: $(cat err)"
        [ ! -s out ] || fail "$flag $file: measured first: $(head -n 3 out)"
    }
    mkdir folder
    ln -s no/such/file link
    for file in no/such/file folder folder/ link "$(printf '%0300d' 0)"; do
        refused -J "$file" all_reduce -b 8 -e 8
        refused -o "$file" --tune --budget 600
    done
    if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
        mkdir -m 555 closed
        chmod 755 "$work"
        checks=$((checks + 1))
        setpriv --reuid 54320 --regid 54320 --clear-groups env -C /tmp "$bin/symm-perf" all_reduce \
            --ranks 2 -b 8 -e 8 -J "$work/closed/file" >out 2>err
        [ $? = 2 ] && [ ! -s out ] || fail "-J in a folder that may not be written: $(cat out)"
    fi
    # What can be written is left as it is by the trial, and is written at the end.
    echo old >file.json
    ln -s target.json good
    for file in file.json good; do
        "$bin/symm-perf" all_reduce --ranks 2 -b 8 -e 8 -J $file >out 2>err || fail "-J $file: $(cat err)"
        grep -q out_of_place $file || fail "-J $file: not written"
    done
    [ -L good ] || fail '-J has replaced a link'
    echo old >file.json
    "$bin/symm-perf" all_reduce --ranks 2 -b 3 -e 2 -J file.json >out 2>&1
    grep -qx old file.json || fail 'a refused command line has changed the file of -J'
    "$bin/symm-perf" all_reduce --ranks 2 -b 8 -e 8 -J good -T 1e-9 >out 2>&1
    ls | grep -E 'json\.[0-9]+$' && fail 'the trial has left a file'
    mkfifo pipe
    timeout 60 cat pipe >read &
    reader=$!
    timeout 60 "$bin/symm-perf" all_reduce --ranks 2 -b 8 -e 8 -J pipe >out 2>err || fail "-J pipe: $(cat err)"
    wait $reader
    grep -q out_of_place read || fail '-J pipe: not written'
fi

[ "$failed" = 0 ] || exit 1
echo "all of $checks runs went as they should"
