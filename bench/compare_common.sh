# shellcheck shell=bash disable=SC2034 # the sourcing scripts use the variables
# SPDX-License-Identifier: MIT
#
# compare_common.sh - functions of compare.sh, compare_mpi.sh and compare_floor.sh. To be
# sourced by bash.
#
# Figures are lines of NAME, BYTES, MEDIAN, P99, separated by tabs, one for each repetition.
# The best repetition has the lowest median; its own p99 is reported with it.

compare_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
compare_bin=$compare_root/build/bin
compare_sizes=(8 1024 8192 65536 524288 4194304 67108864)
compare_ranks=2
compare_repetitions=5
compare_scale=1

# Timed calls of a size, the same number as in bench/floor.c and bench/mpi_allreduce.c.
compare_iterations() {
    awk -v bytes="$1" -v scale="$compare_scale" 'BEGIN {
        n = bytes <= 8192 ? 20000 : bytes <= 65536 ? 8000 : bytes <= 524288 ? 2000 : \
            bytes <= 4194304 ? 300 : 30
        n = int(n * scale)
        print n < 10 ? 10 : n }'
}

# compare_symm BYTES: figures of libsymm, out of place and in place.
compare_symm() {
    local n json
    n=$(compare_iterations "$1")
    json=$(mktemp)
    "$compare_bin/symm-perf" all_reduce -b "$1" -e "$1" -n "$n" -w $((n / 10 + 5)) \
        --ranks "$compare_ranks" -J "$json" >/dev/null || { rm -f "$json"; return 1; }
    jq -r '.results[] | .size as $size |
        ["libsymm", $size, .out_of_place_per_iter.p50_us, .out_of_place_per_iter.p99_us],
        ["libsymm, in place", $size, .in_place_per_iter.p50_us, .in_place_per_iter.p99_us]
        | @tsv' "$json"
    rm -f "$json"
}

# The lines "NAME ranks=.. bytes=.. median=.. us p99=.." of floor and mpi_allreduce.
compare_parse() {
    sed -nE 's/^(.*) ranks=.* bytes=([0-9]+) .*median= *([0-9.]+) us p99= *([0-9.]+) .*/\1\t\2\t\3\t\4/p'
}

# For each name and size: the best repetition, in order of first appearance.
compare_best() {
    awk -F '\t' '
        { key = $1 FS $2 }
        !(key in median) { order[++count] = key }
        !(key in median) || $3 + 0 < median[key] { median[key] = $3 + 0; p99[key] = $4 + 0 }
        END { for (i = 1; i <= count; i++)
                  printf "%s\t%.3f\t%.3f\n", order[i], median[order[i]], p99[order[i]] }'
}

compare_size_name() {
    if [ "$1" -ge 1048576 ]; then
        echo "$(($1 / 1048576)) MiB"
    elif [ "$1" -ge 1024 ]; then
        echo "$(($1 / 1024)) KiB"
    else
        echo "$1 B"
    fi
}

# One line about the machine.
compare_machine() {
    local model
    model=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
    echo "${model:-unknown processor}, $(nproc) cores, Linux $(uname -r), $(date -u +%Y-%m-%d)"
}
