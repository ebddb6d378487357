#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# compare_floor.sh - compares all_reduce of libsymm with the floor of this machine.
#
#   bench/compare_floor.sh [--strict] [--repetitions R] [--scale X] [--build DIR]
#
# The floor (bench/floor.c) is the time of bare C11 atomics without error handling: of mode
# copyin at 8 B, of the fastest mode above. Two bound ranks, float32 sum in place, same
# method; medians of the slowest rank, best of R interleaved repetitions (5). A size misses
# its limit if libsymm takes longer than 1.1 times the floor at 8 B, 1.2 times above.
# Exit status: 0; with --strict 1 if a size misses its limit.

set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=bench/setup.sh
. "$here/setup.sh"
# shellcheck source=bench/compare_common.sh
. "$here/compare_common.sh"
usage() { sed -n 's/^#   //p' "$0" >&2; exit 2; }

build=$compare_root/build strict=0
while [ $# -gt 0 ]; do
    case $1 in
    --strict) strict=1 && shift && continue ;;
    esac
    [ $# -ge 2 ] || usage
    case $1 in
    --repetitions) compare_repetitions=$2 ;;
    --scale) compare_scale=$2 ;;
    --build) build=$2 ;;
    *) usage ;;
    esac
    shift 2
done
compare_bin=$build/bin
floor=$compare_bin/floor-native

prepare() {
    setup_packages "${setup_build_packages[@]}" || setup_say "going on with what is there"
    setup_configure release "$build"
    setup_build "$build" symm-perf
    # -march=native: without this processor's vectors the floor would be too high.
    if [ ! -x "$floor" ] || [ "$here/floor.c" -nt "$floor" ] ||
        [ "$here/method.h" -nt "$floor" ]; then
        "${CC:-cc}" -std=gnu11 -D_GNU_SOURCE -O3 -march=native -o "$floor" "$here/floor.c"
    fi
}
prepare >&2

figures=$(mktemp)
trap 'rm -f "$figures"' EXIT
for ((repetition = 1; repetition <= compare_repetitions; repetition++)); do
    setup_say "repetition $repetition of $compare_repetitions" >&2
    for bytes in "${compare_sizes[@]}"; do
        for mode in copyin symm symm1 twoshot; do
            "$floor" "$mode" -r "$compare_ranks" -s "$bytes" -x "$compare_scale" |
                compare_parse >> "$figures"
        done
        compare_symm "$bytes" >> "$figures"
    done
done

echo "all_reduce, float32 sum, $compare_ranks ranks; microseconds, median of the slowest rank,"
echo "best of $compare_repetitions repetitions. $(compare_machine)"
echo
echo "| size | libsymm, in place | floor | mode | ratio | allowed | |"
echo "|---|---|---|---|---|---|---|"
missed=0
compare_best < "$figures" | awk -F '\t' '
    function size_name(b) {
        return b >= 1048576 ? b / 1048576 " MiB" : b >= 1024 ? b / 1024 " KiB" : b " B"
    }
    !seen[$2]++ { order[++count] = $2 }
    $1 == "libsymm, in place" { ours[$2] = $3 }
    $1 ~ /^floor / {
        mode = substr($1, 7)
        if ($2 <= 8 && mode != "copyin") next
        if (!($2 in least) || $3 < least[$2]) { least[$2] = $3; which[$2] = mode }
    }
    END {
        for (i = 1; i <= count; i++) {
            b = order[i]
            allowed = b <= 8 ? 1.1 : 1.2
            ratio = ours[b] / least[b]
            verdict = "held"
            if (ratio > allowed) {
                verdict = "missed"
                missed = 1
            }
            printf "| %s | %.3f | %.3f | %s | %.2f | %.1f | %s |\n", size_name(b), ours[b],
                   least[b], which[b], ratio, allowed, verdict
        }
        exit missed
    }' || missed=1
echo
if [ "$missed" = 0 ]; then
    echo "every size is within its limit"
else
    echo "not every size is within its limit"
    [ "$strict" = 0 ] || exit 1
fi
