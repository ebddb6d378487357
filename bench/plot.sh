#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# plot.sh - plots latency or bandwidth over size as an SVG.
#
#   bench/plot.sh [--latency|--bandwidth] OUT.svg TITLE < FIGURES
#
# FIGURES are lines of LABEL, BYTES, MEDIAN, P99 (microseconds; with --bandwidth GB/s), separated
# by tabs; lines of one label make one curve. Each curve has its own mark and colour, so that
# the marks suffice without colours. The p99 of a label that begins with "libsymm" is dashed; a
# label that begins with "floor" is a broad grey line without marks. Both axes are logarithmic,
# except that the bandwidth's begins at 0. Prints the path of the SVG. Exit status 2: no
# gnuplot, or nothing to plot.

set -euo pipefail
export LC_ALL=C

kind=latency
case ${1:-} in --latency | --bandwidth) kind=${1#--} && shift ;; esac
[ $# -eq 2 ] || { sed -n 's/^#   /usage: /p' "$0" >&2; exit 2; }
command -v gnuplot >/dev/null || { echo "plot.sh: there is no gnuplot here" >&2; exit 2; }
out=$1 title=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat > "$work/figures"
mapfile -t labels < <(awk -F '\t' 'NF == 4 && !seen[$1]++ { print $1 }' "$work/figures")
[ ${#labels[@]} -gt 0 ] || { echo "plot.sh: no figures to plot" >&2; exit 2; }

colours=('#0072b2' '#d55e00' '#009e73' '#cc79a7' '#56b4e9' '#e69f00' '#404040')
marks=(7 4 9 1 10 2 12) # disc, square, triangle, plus, hollow triangle, cross, diamond
curves='' dashed='' i=0
for label in "${labels[@]}"; do
    data=$work/curve$i
    awk -F '\t' -v label="$label" 'NF == 4 && $1 == label { print $2, $3, $4 }' \
        "$work/figures" | sort -n > "$data"
    name=${label//\'/}
    if [ "${label#floor}" != "$label" ]; then
        curves="'$data' using 1:2 with lines linewidth 6 linecolor rgb '#c8c8c8' title '$name'${curves:+, }$curves"
    else
        width=2
        [ "${label#libsymm}" = "$label" ] || width=3.5
        look="linecolor rgb '${colours[i % ${#colours[@]}]}'"
        curves+="${curves:+, }'$data' using 1:2 with linespoints linewidth $width \
pointtype ${marks[i % ${#marks[@]}]} pointsize 0.8 $look title '$name'"
        if [ "$kind" = latency ] && [ "$width" = 3.5 ]; then
            curves+=", '$data' using 1:3 with lines linewidth 1 dashtype 2 $look notitle"
            dashed=", NaN with lines linewidth 1 dashtype 2 linecolor rgb '#606060' title 'dashed: p99'"
        fi
    fi
    i=$((i + 1))
done

if [ "$kind" = latency ]; then
    axis="set logscale y 10
set ylabel 'time of one call, slowest rank'
set ytics ('10 ns' 0.01, '100 ns' 0.1, '1 µs' 1, '2 µs' 2, '5 µs' 5, '10 µs' 10, '20 µs' 20, \
'50 µs' 50, '100 µs' 100, '1 ms' 1e3, '10 ms' 1e4, '100 ms' 1e5, '1 s' 1e6, '10 s' 1e7)
set mytics 10"
else
    axis="set yrange [0:*]
set ylabel 'bus bandwidth, GB/s'"
fi

mkdir -p "$(dirname "$out")"
gnuplot <<PLOT
set terminal svg size 960,600 background rgb 'white' font 'sans-serif,15' noenhanced
set output '$out'
set title '${title//\'/}'
set logscale x 2
set xlabel 'size of the buffer'
set xtics ('8 B' 8, '64 B' 64, '512 B' 512, '4 KiB' 4096, '32 KiB' 32768, \
    '256 KiB' 262144, '2 MiB' 2097152, '16 MiB' 16777216, '64 MiB' 67108864)
$axis
set grid xtics ytics linecolor rgb '#d0d0d0'
set key left top reverse Left spacing 1.2 samplen 5
plot $curves$dashed
PLOT
echo "$out"
