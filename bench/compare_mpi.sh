#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# compare_mpi.sh - compares all_reduce of libsymm with Open MPI and MPICH: a table, a plot.
#
#   bench/compare_mpi.sh [--repetitions R] [--scale X] [--build DIR] [--figures FILE]
#
# Two ranks, each bound to a core of its own, float32 sum. Every rank rewrites its input
# before each call. Median and p99 of the slowest rank, best of R interleaved repetitions
# (5). --scale multiplies the number of calls. The table (Markdown) goes to stdout, the plot
# to DIR/plots/compare_mpi.svg; with --figures only FILE is written, with the figures. A
# message names an MPI that is not installed.

set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=bench/setup.sh
. "$here/setup.sh"
# shellcheck source=bench/compare_common.sh
. "$here/compare_common.sh"
usage() { sed -n 's/^#   //p' "$0" >&2; exit 2; }

build=$compare_root/build keep=
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case $1 in
    --repetitions) compare_repetitions=$2 ;;
    --scale) compare_scale=$2 ;;
    --build) build=$2 ;;
    --figures) keep=$2 ;;
    *) usage ;;
    esac
    shift 2
done
compare_bin=$build/bin

prepare() {
    setup_packages "${setup_build_packages[@]}" "${setup_compare_packages[@]}" ||
        setup_say "going on with what is there"
    setup_configure release "$build"
    setup_build "$build" symm-perf comparisons
}
prepare >&2

mpis=()
for mpi in openmpi mpich; do
    if command -v "mpirun.$mpi" >/dev/null && [ -x "$compare_bin/mpi_allreduce.$mpi" ]; then
        mpis+=("$mpi")
    else
        setup_say "$mpi: not here, left out" >&2
    fi
done

mpi_version() {
    case $1 in
    openmpi) mpirun.openmpi --version | sed -n '1s/.* /Open MPI /p' ;;
    mpich) mpirun.mpich --version | sed -n 's/^ *Version: */MPICH /p' ;;
    esac
}

# run_mpi MPI BYTES: figures under the MPI's own name.
run_mpi() {
    local command=("mpirun.$1") name
    name=$(mpi_version "$1")
    case $1 in
    openmpi)
        command+=(--bind-to none --oversubscribe)
        [ "$(id -u)" != 0 ] || command+=(--allow-run-as-root)
        ;;
    mpich) command+=(-bind-to none) ;;
    esac
    "${command[@]}" -n "$compare_ranks" "$compare_bin/mpi_allreduce.$1" "$name" \
        "$compare_scale" "$2" </dev/null | compare_parse
}

figures=$(mktemp)
trap 'rm -f "$figures" "$figures.best"' EXIT
for ((repetition = 1; repetition <= compare_repetitions; repetition++)); do
    setup_say "repetition $repetition of $compare_repetitions" >&2
    for bytes in "${compare_sizes[@]}"; do
        compare_symm "$bytes" >> "$figures"
        for mpi in "${mpis[@]}"; do
            run_mpi "$mpi" "$bytes" >> "$figures"
        done
    done
done
compare_best < "$figures" > "$figures.best"
if [ -n "$keep" ]; then
    mv "$figures.best" "$keep"
    exit 0
fi

echo "all_reduce, float32 sum, $compare_ranks ranks; microseconds, median / p99 of the slowest"
echo "rank, best of $compare_repetitions repetitions. $(compare_machine)"
echo
header='| implementation |' rule='|---|'
for bytes in "${compare_sizes[@]}"; do
    header+=" $(compare_size_name "$bytes") |"
    rule+='---|'
done
echo "$header"
echo "$rule"
awk -F '\t' '
    function show(x) { return sprintf(x < 10 ? "%.2f" : x < 1000 ? "%.1f" : "%.0f", x) }
    !($1 in row) { order[++count] = $1 }
    { row[$1] = row[$1] " " show($3) " / " show($4) " |" }
    END { for (i = 1; i <= count; i++) print "| " order[i] " |" row[order[i]] }' \
    "$figures.best"
echo
plot=$(bash "$here/plot.sh" "$build/plots/compare_mpi.svg" \
    "all_reduce, float32 sum, $compare_ranks ranks on one machine" < "$figures.best")
echo "plot: $plot"
