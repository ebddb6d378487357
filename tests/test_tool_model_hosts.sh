#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ctest: cost 16
# ctest: load 2
#
# symm-perf model: its command line and tables; every figure over hosts that was measured
# (docs/performance.md) within 20 % of what it predicts; sanity of what was not measured.

# shellcheck disable=SC2016 # variables of jq and awk
# shellcheck source=tests/perf_tool.sh
. "$(dirname "$0")/perf_tool.sh"
doc=$source_dir/docs/performance.md
network="--network 3.2 --latency 18 --sockets --nics 1" # of the measured points

# refused TEXT ARG...: exit status 2 and one sentence.
refused() {
    local text=$1
    shift
    expect 2 "refusal" model "$@" || return
    says err "$text" "symm-perf model $*"
    [ "$(wc -l < "$work/err")" = 1 ] || fail "symm-perf model $*: not one line of error"
    [ ! -s "$work/out" ] || fail "symm-perf model $*: wrote to stdout"
}

# predict JQ ARG...: what jq prints of the JSON.
predict() {
    local filter=$1
    shift
    expect 0 "model" model -J "$work/model.json" "$@" || return
    jq -r "$filter" "$work/model.json"
}

# holds JQ WHAT ARG...
holds() {
    local filter=$1 what=$2
    shift 2
    [ "$(predict "$filter" "$@")" = true ] ||
        { fail "$what: symm-perf model $*"; cat "$work/out"; }
}

# ---- The command line ---------------------------------------------------------------

refused "--hosts: found '0', allowed: an integer from 1 to 4096" --hosts 0
refused "--gpus: found '73', allowed: an integer from 1 to 72" --gpus 73
refused "--gpus: found 1, allowed with one host: an integer from 2 to 72" --hosts 1 --gpus 1
refused "--nics: found 4, allowed: an integer from 1 to 2" --gpus 2 --nics 4
refused "--network: found '0'" --network 0
refused "--network: found 'fast'" --network fast
refused "--latency: found '-1'" --latency -1
refused "-b: found 0, allowed with model: 1 or more" -b 0
refused "-b: found 16, allowed: at most -e, which is 8" -b 16 -e 8
refused "OP: found 'put', allowed with model: all_reduce" put
refused "after the last argument" all_reduce extra
refused "unknown option" --ranks 2
refused "none.json" --costs "$work/none.json"
refused "-J: " -J "$work/none/model.json"
expect 0 help model --help && says out "symm-perf model [OP] [options]" help

# ---- The table and the JSON ----------------------------------------------------------

cat > "$work/head" <<'TABLE'
#       size        ours   one piece          NCCL ring          NCCL tree    NCCL   ratio
#        (B)        (us)        (us)        (us)               (us)          takes
TABLE
expect 0 table model all_reduce --hosts 16 -b 1K -e 64M -f 256 -J "$work/model.json"
grep -A1 'NCCL ring' "$work/out" | cmp - "$work/head" || fail "the table's header"
[ "$(grep -cE '^ +[0-9]+( +[0-9.]+){3} +(LL|LL128|Simple) ' "$work/out")" = 3 ] ||
    { fail "not 3 rows"; cat "$work/out"; }
jq -e '.predicted and .config.hosts == 16 and .config.gpus == 8
    and .config.network_gb_s == 50 and (.results | map(.size)) == [1024, 262144, 67108864]
    and all(.results[]; ((.ratio * .nccl_us / .ours_us - 1) | fabs) < 1e-6)' \
    "$work/model.json" >/dev/null || { fail "JSON"; cat "$work/model.json"; }

# ---- Every measured point -------------------------------------------------------------

bytes_of() {
    case $1 in
    *KiB) echo $((${1% KiB} * 1024)) ;;
    *MiB) echo $((${1% MiB} * 1048576)) ;;
    esac
}

# near FOUND WANTED PERCENT
near() {
    awk -v a="$1" -v b="$2" -v most="$3" \
        'BEGIN { d = 100 * (a / b - 1); exit !(b > 0 && d <= most && d >= -most) }'
}

# Rows of docs/performance.md: | hosts x GPUs | size | ours | predicted | NCCL | predicted | takes |
sed -n '/<!-- hosts:begin -->/,/<!-- hosts:end -->/p' "$doc" |
    grep -E '^\| [0-9]+ x [0-9]+ ' > "$work/points"
# None was measured in chunks: the one that is long enough for them is older than they.
points=0
while IFS='|' read -r _ shape size ours ours_model nccl nccl_model takes _; do
    read -r hosts _ gpus <<< "$shape"
    size=$(bytes_of "$(sed 's/^ *//; s/ *$//' <<< "$size")")
    # shellcheck disable=SC2086
    read -r ours_now nccl_now takes_now < <(predict '.results[0] |
        "\(.one_piece_us) \(.nccl_us) \(.nccl_takes)"' \
        --hosts "$hosts" --gpus "$gpus" $network -b "$size" -e "$size")
    where="$hosts x $gpus, $size bytes"
    near "$ours_now" "$ours" 20 || fail "$where: measured $ours, predicted $ours_now"
    near "$nccl_now" "$nccl" 20 || fail "$where: NCCL $nccl, predicted $nccl_now"
    near "$ours_now" "$ours_model" 1 || fail "$where: the document says $ours_model, not $ours_now"
    near "$nccl_now" "$nccl_model" 1 || fail "$where: the document says $nccl_model, not $nccl_now"
    [ "$takes_now" = "$(tr -d ' ' <<< "$takes")" ] || fail "$where: takes $takes_now"
    points=$((points + 2))
done < "$work/points"
[ "$points" = 20 ] || fail "$points measured points in docs/performance.md instead of 20"

# The figures as they were reported first, in the same document.
series() { awk -F' *[|] *' -v c="$2" '$2 ~ /^ *2 x '"$1"'/ { printf "%s ", $c }' \
    "$work/points"; }
grep -qF "| libsymm | $(series 1 4 | sed 's/ $//; s/ / | /g') |" "$doc" ||
    fail "ours of 2 x 1 differ from the measured table"
grep -qF "| NCCL | $(series 1 6 | sed 's/ $//; s/ / | /g') |" "$doc" ||
    fail "NCCL's of 2 x 1 differ from the measured table"
pairs=$(awk -F' *[|] *' '$2 ~ /^ *2 x 2/ { printf "%s%s %s / %s%s", n++ ? ", " : "", $3, $4,
    n == 1 ? "NCCL " : "", $6 }' "$work/points")
tr '\n' ' ' < "$doc" | grep -qF "one run: $pairs." ||
    fail "the figures of 2 x 2 differ from the measured ones: $pairs"

# Predictions for machines of 8: | hosts | size | ours | one piece | ring | tree | takes |
sed -n '/<!-- predictions:begin -->/,/<!-- predictions:end -->/p' "$doc" |
    grep -E '^\| [0-9]+ \| ' > "$work/predictions"
while IFS='|' read -r _ hosts size ours piece ring tree takes _; do
    hosts=${hosts// /}
    size=$(bytes_of "$(sed 's/^ *//; s/ *$//' <<< "$size")")
    read -r ours_now piece_now ring_now tree_now takes_now < <(predict '.results[0] |
        "\(.ours_us) \(.one_piece_us) \(.nccl_ring.us) \(.nccl_tree.us) \(.nccl_takes)"' \
        --hosts "$hosts" -b "$size" -e "$size")
    if ! { near "$ours_now" "$ours" 1 && near "$piece_now" "$piece" 1 &&
        near "$ring_now" "$ring" 1 && near "$tree_now" "$tree" 1 &&
        [ "$takes_now" = "$(tr -d ' ' <<< "$takes")" ]; }; then
        fail "the document's prediction for $hosts hosts, $size bytes: now $ours_now" \
            "$piece_now $ring_now $tree_now $takes_now"
    fi
done < "$work/predictions"
[ "$(wc -l < "$work/predictions")" = 16 ] || fail "not 16 predictions in docs/performance.md"

# What chunks are to one piece: | hosts | a column for each size |
sed -n '/<!-- chunks:begin -->/,/<!-- chunks:end -->/p' "$doc" | grep -E '^\| [0-9]+ \| ' \
    > "$work/ratios"
while IFS='|' read -r _ hosts ratios; do
    predict '.results[] | [.size, .ours_us / .one_piece_us] | @tsv' --hosts "$((hosts))" \
        -b 4M -e 256M > "$work/now"
    for size in 4 8 16 32 64 256; do
        now=$(awk -v size=$((size << 20)) '$1 == size { printf "%.2f", $2 }' "$work/now")
        [ "$now" = "$(cut -d'|' -f1 <<< "$ratios" | tr -d ' ')" ] ||
            fail "the document's ratio for $((hosts)) hosts, $size MiB: now $now"
        ratios=${ratios#*|}
    done
done < "$work/ratios"
[ "$(wc -l < "$work/ratios")" = 5 ] || fail "not 5 rows of ratios in docs/performance.md"

# The same of the other collectives: | call | hosts x gpus | a column for each size |
sed -n '/<!-- blocks:begin -->/,/<!-- blocks:end -->/p' "$doc" |
    grep -E '^\| [a-z_]+ \| [0-9]+ x ' > "$work/ratios"
while IFS='|' read -r _ op shape ratios; do
    read -r hosts _ gpus <<< "$shape"
    predict '.results[] | [.size, .ours_us / .one_piece_us] | @tsv' "${op// /}" \
        --hosts "$hosts" --gpus "$gpus" -b 64M -e 1G > "$work/now"
    for size in 64 128 256 512 1024; do
        now=$(awk -v size=$((size << 20)) '$1 == size { printf "%.2f", $2 }' "$work/now")
        [ "$now" = "$(cut -d'|' -f1 <<< "$ratios" | tr -d ' ')" ] ||
            fail "the document's ratio of $op for $hosts x $gpus, $size MiB: now $now"
        awk -v now="$now" 'BEGIN { exit !(now <= 1) }' || fail "$op: chunks are slower: $now"
        ratios=${ratios#*|}
    done
done < "$work/ratios"
[ "$(wc -l < "$work/ratios")" = 18 ] || fail "not 18 rows of ratios in docs/performance.md"

# ---- Sanity --------------------------------------------------------------------------

# More bytes never take less, but for the noise of measured curves: 5 %. Three begin where blocks are
# whole packets: one of 8 B takes longer than one of 16, in reduce_scatter up to 25 %.
rises='.results | [.[].ours_us] as $a | [.[].nccl_ring.us] as $b
    | all(range(1; $a | length); $a[.] >= 0.95 * $a[. - 1] and $b[.] >= $b[. - 1])'
for op in all_reduce reduce_scatter all_gather broadcast all_to_all; do
    case $op in
    all_reduce) from=16 ;;
    all_gather) from=64 ;;
    reduce_scatter) from=32K ;;
    *) from=8 ;;
    esac
    for hosts in 1 2 3 256; do
        holds "$rises" "falls with bytes" "$op" --hosts "$hosts" -b "$from" -e 1G
    done
done
# shellcheck disable=SC2086
holds "$rises" "falls with bytes" --gpus 2 $network

# More hosts are never faster where latency decides, and neither is a slower network.
for op in all_reduce reduce_scatter all_gather broadcast barrier; do
    last=0
    for hosts in 1 2 3 4 16 64 256; do
        now=$(predict '.results[0].ours_us' "$op" --hosts "$hosts" -b 16K -e 16K)
        awk -v a="$now" -v b="$last" 'BEGIN { exit !(a > 0 && a >= b) }' ||
            fail "$op: $hosts hosts take $now us, fewer took $last"
        last=$now
    done
done
slow=$(predict '.results[0].ours_us' -b 64M -e 64M --network 10)
fast=$(predict '.results[0].ours_us' -b 64M -e 64M --network 100)
near "$slow" "$fast" 20 && fail "64 MiB: the network's rate makes no difference"
slow=$(predict '.results[0].ours_us' -b 1K -e 1K --latency 11)
fast=$(predict '.results[0].ours_us' -b 1K -e 1K --latency 1)
near "$(awk -v a="$slow" -v b="$fast" 'BEGIN { print a - b }')" 20 0.1 ||
    fail "10 us a hop more make $slow of $fast us over two hosts"

# One host: the least measured time at a measured size, and nothing of the network.
least=$(jq '[.measured[] | select(.collective == "all_reduce" and .data == "half"
    and .ranks == 4 and .in_place == false) | .points[] | select(.[0] == 1048576) | .[1]] | min' \
    "$source_dir/bench/costs/h200.json")
alone=$(predict '.results[0].ours_us' --hosts 1 --gpus 4 -b 1M -e 1M --latency 500)
near "$alone" "$least" 0.01 || fail "one host takes $alone us, measured $least"

# ---- Chunks (docs/design.md, "Several hosts") ------------------------------------------

# Where the network's latency is all, n chunks take n times as long as one piece.
while read -r hosts gpus size chunks op; do
    for latency in 100000 200000; do
        predict '.results[0] | "\(.ours_us) \(.one_piece_us)"' "${op:-all_reduce}" \
            -b "$size" -e "$size" --hosts "$hosts" --gpus "$gpus" --latency "$latency"
    done > "$work/slopes"
    near "$(awk '{ ours = $1 - ours; piece = $2 - piece } END { print ours / piece }' \
        "$work/slopes")" "$chunks" 0.1 ||
        fail "$op $hosts x $gpus, $size bytes are not in $chunks chunks: $(tr '\n' ' ' < "$work/slopes")"
done <<'SIZES'
2 2 8388604 1
2 2 8388608 2
2 2 12582912 3
2 8 16777216 3
2 8 33554432 5
2 8 67108864 5
2 8 268435456 7
4 8 16777184 1
16 4 67108864 2
16 4 268435456 5
2 2 67108860 1 broadcast
2 8 67108864 2 broadcast
2 4 134217720 1 all_gather
2 4 134217728 3 all_gather
2 4 268435456 5 reduce_scatter
2 5 268435520 1 reduce_scatter
16 4 4294967296 1 all_gather
SIZES
holds 'all(.results[]; .ours_us == .one_piece_us)' "chunks of one rank a host" \
    --gpus 1 --nics 1 -b 1M -e 256M
holds 'all(.results[]; .ours_us == .one_piece_us)' "chunks on one host" --hosts 1 -b 1M -e 256M

# The two streams of hierarchical_chunks.c step by step: kernels, and the engine's steps. Each line
# is the scatter, the engine's step and the gather of a chunk. Printed are the time, and how many
# steps of the engine end before, and after, the kernels that run beside them.
two_streams() {
    awk '{
        kernels += $1
        before = engine
        engine = (engine > kernels ? engine : kernels) + $2
        if (NR > 1) {
            before > kernels ? late++ : early++
            kernels = (kernels > before ? kernels : before) + gather
        }
        gather = $3
    }
    END { print((kernels > engine ? kernels : engine) + gather, early + 0, late + 0) }'
}
# step CHUNK: a line of two_streams. In one piece, what else it takes than on one host is the engine's.
step() {
    if [ ! -e "$work/host.$1" ]; then
        echo "$(predict '.results[0].ours_us' reduce_scatter --hosts 1 -b "$1" -e "$1")" \
            "$(predict '.results[0].ours_us' all_gather --hosts 1 -b "$1" -e "$1")" > "$work/host.$1"
    fi
    [ -e "$work/piece.$1.$network" ] ||
        predict '.results[0].one_piece_us' --network "$network" -b "$1" -e "$1" \
            > "$work/piece.$1.$network"
    paste "$work/host.$1" "$work/piece.$1.$network" | awk '{ print $1, $3 - $1 - $2, $2 }'
}
while read -r size chunks; do
    for network in 1 50 300 10000; do
        for chunk in $chunks; do
            step "$chunk"
        done > "$work/steps"
        now=$(predict '.results[0].ours_us' --network "$network" -b "$size" -e "$size")
        read -r walked early late <<< "$(two_streams < "$work/steps")"
        near "$now" "$walked" 0.01 ||
            fail "$size bytes, $network GB/s: $now us, the streams take $walked"
        echo "$((early > 0)) $((late > 0))" >> "$work/cases"
    done
done <<'SIZES'
8M 4M 4M
16M 4M 6M 6M
32M 4M 8M 10M 5M 5M
256M 16M 32M 64M 64M 40M 20M 20M
SIZES
for case in "1 0" "1 1" "0 1"; do
    grep -qx "$case" "$work/cases" || fail "no network for the case $case of two streams"
done

# Another table is used: one that is ten times as slow.
jq '.measured[].points[][1] *= 10' "$source_dir/bench/costs/h200.json" > "$work/slow.json"
slow=$(predict '.results[0].ours_us' --hosts 1 --gpus 4 -b 1M -e 1M --costs "$work/slow.json")
near "$slow" "$(awk -v a="$least" 'BEGIN { print 10 * a }')" 0.1 ||
    fail "--costs: $slow us by a table of 10 x $least"
jq '.measured = [.measured[] | select(.ranks == 4)]' "$source_dir/bench/costs/h200.json" \
   > "$work/few.json"
expect 2 "a table without 2 ranks" model --gpus 2 --costs "$work/few.json" &&
    says err "--costs: the table has no curves of bfloat16 for 2 to 2 ranks" "few curves"
jq '.measured = [.measured[] | select(.collective != "reduce_scatter")]' \
    "$source_dir/bench/costs/h200.json" > "$work/few.json"
for size in 1M 64M; do
    expect 2 "a table without reduce_scatter" model -b $size -e $size --costs "$work/few.json"
done

[ "$failures" = 0 ] && echo "all right"
[ "$failures" = 0 ]
