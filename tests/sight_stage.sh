# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# sight_stage.sh - sourced by the tests of tools that look at running jobs: a folder that goes when
# the test ends, and jobs of four by $program, of which nothing is left then.

set -u
bin=${BUILD_DIR:?}/bin
for program in "${needs[@]}" symmrun sight_program; do
    [ -x "$bin/$program" ] || {
        echo "$program is not built"
        exit 77
    }
done

folder=$(mktemp -d)
export SYMM_RUNTIME_DIR=$folder LC_ALL=C SYMM_TIMEOUT=60 SYMM_INIT_TIMEOUT=60
# shellcheck disable=SC2034
failed=0 run= pids=() program=sight_program
touch "$folder/out" "$folder/err" "$folder/pids" "$folder/said"
trap 'stop; rm -rf "$folder"' EXIT

# start MODE: a job of four, whose processes are in `pids`, by rank; what they say goes to said.
start() {
    local line rank
    : >"$folder/pids" # before the shell behind & does so: the last job's are no longer there
    "$bin/symmrun" -n 4 -- "$bin/$program" "$1" >"$folder/pids" 2>"$folder/said" &
    run=$!
    for _ in $(seq 400); do
        [ "$(grep -c . "$folder/pids")" = 4 ] && break
        sleep 0.05
    done
    pids=()
    while read -r rank line; do
        rank=${rank#[} && pids[${rank%]}]=$line
    done <"$folder/pids"
    [ "${#pids[@]}" = 4 ] || { fail "$1: the ranks did not start"; exit 1; }
}

stop() {
    [ -n "$run" ] || return
    kill -KILL "$run" "${pids[@]}" 2>/dev/null
    wait "$run" 2>/dev/null
    run=
}
