#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# plot.sh - latency over size as an SVG, both axes logarithmic.
#
#   bench/plot.sh OUT.svg TITLE < FIGURES
#
# FIGURES are lines of LABEL, BYTES, MEDIAN, P99 (microseconds), separated by tabs; lines of
# one label make one curve: the median with points, p99 dashed in the same colour.
# Prints the path of what it has written. Exit status 2: no gnuplot, or nothing to plot.

set -euo pipefail
export LC_ALL=C

[ $# -eq 2 ] || { echo "usage: bench/plot.sh OUT.svg TITLE < FIGURES" >&2; exit 2; }
command -v gnuplot >/dev/null || { echo "plot.sh: there is no gnuplot here" >&2; exit 2; }
out=$1 title=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat > "$work/figures"
mapfile -t labels < <(awk -F '\t' 'NF == 4 && !seen[$1]++ { print $1 }' "$work/figures")
[ ${#labels[@]} -gt 0 ] || { echo "plot.sh: no figures to plot" >&2; exit 2; }

colours=('#0072b2' '#d55e00' '#009e73' '#cc79a7' '#56b4e9' '#e69f00')
curves=
for i in "${!labels[@]}"; do
    awk -F '\t' -v label="${labels[i]}" 'NF == 4 && $1 == label { print $2, $3, $4 }' \
        "$work/figures" | sort -n > "$work/curve$i"
    look="linecolor rgb '${colours[i % ${#colours[@]}]}'"
    curves+="${curves:+, }'$work/curve$i' using 1:2 with linespoints linewidth 2 \
pointtype $((5 + 2 * (i % 3))) pointsize 0.7 $look title '${labels[i]//\'/}'"
    curves+=", '$work/curve$i' using 1:3 with lines linewidth 1 dashtype 2 $look notitle"
done

mkdir -p "$(dirname "$out")"
gnuplot <<PLOT
set terminal svg size 960,600 background rgb 'white' font 'sans-serif,15' noenhanced
set output '$out'
set title '${title//\'/}'
set logscale x 2
set logscale y 10
set xlabel 'size of the buffer'
set ylabel 'time of one call, slowest rank'
set xtics ('8 B' 8, '64 B' 64, '512 B' 512, '4 KiB' 4096, '32 KiB' 32768, \
    '256 KiB' 262144, '2 MiB' 2097152, '16 MiB' 16777216, '64 MiB' 67108864)
set ytics ('10 ns' 0.01, '100 ns' 0.1, '1 µs' 1, '10 µs' 10, '100 µs' 100, '1 ms' 1e3, \
    '10 ms' 1e4, '100 ms' 1e5, '1 s' 1e6, '10 s' 1e7)
set mytics 10
set grid xtics ytics linecolor rgb '#d0d0d0'
set key left top reverse Left spacing 1.2
plot $curves, NaN with lines linewidth 1 dashtype 2 linecolor rgb '#606060' title 'dashed: p99'
PLOT
echo "$out"
