#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# gpu_trace.sh BIN RANKS [REPLAYS] - a trace of eager calls and of a graph's replays on GPUs: valid by the
# rules of the trace event format, and with as many slices as the metrics count calls.
# For tests/gpu.sh.

set -u
bin=$1 ranks=$2 graphs=${3:-3000}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# traced NAME OPTION...: runs symm-perf, prints "slices calls replays".
traced() {
    local folder=$work/$1
    shift
    mkdir "$folder"
    SYMM_TRACE=$folder/trace SYMM_TRACE_SAMPLE=1 SYMM_SIGHT=1 SYMM_METRICS_FILE=$folder/metrics.%r \
        "$bin/symm-perf" "$@" --ranks "$ranks" --backend cuda >"$folder/out" 2>&1 ||
        { cat "$folder/out" && return 1; }
    "$bin/symm-info" trace -o "$folder/all.json" "$folder/trace" >"$folder/out" 2>&1 &&
        python3 "$here/trace_check.py" "$folder/all.json" --merged >"$folder/found" ||
        { cat "$folder/out" "$folder/found" && return 1; }
    cat "$folder/found"
    slices=$(awk '$1 == "rank" && $3 !~ /^(wait|failure|dropped)$/ { n += $NF } END { print n + 0 }' \
        "$folder/found")
    calls=$(cat "$folder"/metrics.* |
        awk '/^symm_calls_total/ && !/op="exchange"/ { n += $NF } END { print n + 0 }')
    replays=$(grep -c '"ph": *"C"' "$folder/all.json")
    echo "$slices slices, $calls calls, $replays values of replays"
}

traced eager all_reduce -b 8 -e 1M -f 4 -n 50 || exit 1
[ "$slices" -gt 0 ] && [ "$slices" = "$calls" ] || { echo "not as many slices as calls"; exit 1; }
traced replays all_reduce -b 64K -e 64K -G 100 -n "$graphs" || exit 1
[ "$slices" = "$calls" ] || { echo "not as many slices as calls"; exit 1; }
[ "$replays" -gt 0 ] || { echo "no counter of replays"; exit 1; }
