#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# demo.sh - builds a fresh clone, makes a checked run and a plot, in one command.
#
#   bench/demo.sh
#
# Installs what is missing (Debian), builds into build/, replays a decode step of an 8B model
# on 4 ranks with every result checked, times all_reduce, and plots it. A second run
# installs and builds nothing. Exit status: 0; 1 if a result was wrong or a step failed.

set -uo pipefail
export LC_ALL=C
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
# shellcheck source=bench/setup.sh
. bench/setup.sh

fail() {
    setup_say "demo failed: $*"
    exit 1
}

build=$root/build
program=bench/programs/llama3-8b-tp4-decode-b1.json
plots=$build/plots
cores=$(nproc)

setup_packages "${setup_build_packages[@]}" gnuplot-nox:gnuplot ||
    setup_say "going on with what is there"
setup_configure release "$build" || fail "could not be configured"
setup_build "$build" symm-perf symmrun || fail "could not be built"
mkdir -p "$plots"

run() {
    local ranks=$1
    shift
    "$build/bin/symmrun" --no-prefix -n "$ranks" -- "$build/bin/symm-perf" "$@" </dev/null
}

setup_say "a decode step of Llama 3 8B on 4 ranks, every result checked"
run 4 replay "$program" -J "$plots/replay.json" || fail "the replay"
jq -e '.replay.nwrong == 0 and .replay.results_checked > 0' "$plots/replay.json" >/dev/null ||
    fail "the replay checked nothing"

# Ranks that share a core would time the scheduler as much as the library.
if [ "$cores" -ge 4 ]; then
    counts=(4)
else
    counts=(4 2)
    setup_say "there are only $cores cores: 4 ranks share them, so 2 ranks are timed too"
fi
for ranks in "${counts[@]}"; do
    setup_say "all_reduce on $ranks ranks, 8 B to 4 MiB"
    run "$ranks" all_reduce -b 8 -e 4M -f 2 -n 100 -J "$plots/all_reduce_$ranks.json" ||
        fail "all_reduce on $ranks ranks"
done

setup_say "plotting"
for ranks in "${counts[@]}"; do
    jq -r --arg ranks "$ranks ranks" '.results[] | .size as $size |
        [$ranks, $size, .out_of_place_per_iter.p50_us, .out_of_place_per_iter.p99_us],
        [$ranks + ", in place", $size, .in_place_per_iter.p50_us, .in_place_per_iter.p99_us]
        | @tsv' "$plots/all_reduce_$ranks.json"
done | bash bench/plot.sh "$plots/all_reduce.svg" \
    "all_reduce, float32 sum, host backend, $cores cores" >/dev/null || fail "the plot"

backend=$(jq -r '.config.backend' "$plots/all_reduce_${counts[0]}.json")
setup_say "backend: $backend; every result was right"
setup_say "plot: ${plots#"$root"/}/all_reduce.svg"
