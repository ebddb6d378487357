#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ctest: cost 10
#
# symm-plan plan --from: the plan of a changed program keeps the offsets, algorithms and
# barriers of unchanged ops, is proved by the checker, and is as good as a plan with the other
# buffers fixed can be. A plan of another program is allowed and does no harm.

set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
source_dir=${SOURCE_DIR:-$here/..}
build=${BUILD_DIR:-$source_dir/build}
planner=$build/bin/symm-plan
programs=$source_dir/bench/programs
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

[ -x "$planner" ] || { echo "symm-plan was not built: skipped"; exit 77; }
"$planner" plan "$programs/odd-cycle-3.json" 2>&1 >/dev/null | grep -q jansson &&
    { echo "the library reads no JSON: skipped"; exit 77; }

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# again WHAT OLD.json NEW.json: plans OLD, then NEW from that plan, and proves it.
again() {
    "$planner" plan "$2" -o "$work/old" >/dev/null 2>&1 || { fail "$1: no plan"; return 1; }
    "$planner" plan "$3" --from "$work/old" -o "$work/new" >"$work/out" 2>&1 ||
        { fail "$1: no plan again"; head -3 "$work/out"; return 1; }
    "$planner" check "$3" "$work/new" >"$work/out" 2>&1 ||
        { fail "$1: not proved"; head -3 "$work/out"; return 1; }
}

# kept WHAT: what both plans name has its place, its algorithm, and at least its barriers.
kept() {
    jq -e --slurpfile old "$work/old" '
        ($old[0].buffers | map({key: .name, value: .}) | from_entries) as $was |
        ($old[0].ops | map({key: .site, value: .}) | from_entries) as $did |
        all(.buffers[]; $was[.name] as $w | $w == null or $w.bytes != .bytes or
            $w.offset == .offset) and
        all(.ops[]; $did[.site] as $d | $d == null or ($d.algorithm == .algorithm and
            (($d.entry_barrier | not) or .entry_barrier) and
            (($d.exit_barrier | not) or .exit_barrier)))' "$work/new" >/dev/null ||
        fail "$1: something was moved"
}

# An op more in the middle, on a buffer of its own.
more='(.ops | length / 2 | floor) as $k | (.ops[$k].stream // .streams[0] // "main") as $s |
    .streams = (.streams // ["main"]) |
    .buffers += [{name: "new", dtype: "float32", shape: [64]}] |
    .ops = .ops[:$k] + [{op: "write", buffers: ["new"], stream: $s},
        {op: "all_reduce", site: "new", in: "new", reduce: "sum", stream: $s},
        {op: "read", buffers: ["new"], stream: $s}] + .ops[$k:]'
for name in odd-cycle-3 ring-pipeline-4 tp2-dp2-two-streams moe-8x-tp8 \
    llama3-8b-tp4-decode-b1 llama3-70b-tp8-decode-b32; do
    program=$programs/$name.json
    again "$name, the same" "$program" "$program" && kept "$name, the same"
    jq -e --slurpfile old "$work/old" '.arena_bytes == $old[0].arena_bytes and
        .lower_bound_bytes == $old[0].lower_bound_bytes' "$work/new" >/dev/null ||
        fail "$name, the same: another arena"
    jq "$more" "$program" >"$work/more.json"
    again "$name, one more" "$program" "$work/more.json" && kept "$name, one more"
    again "$name, one less" "$work/more.json" "$program" # its order may have kept others apart
done
jq '(.buffers[] | select(.name == "l3.mlp")).shape[0] = 512 |
    (.buffers[] | select(.name == "l3.mlp")).stride = [8192, 1]' \
    "$programs/llama3-70b-tp8-decode-b32.json" >"$work/large.json"
again "a larger buffer" "$programs/llama3-70b-tp8-decode-b32.json" "$work/large.json" &&
    kept "a larger buffer"
for name in every-op every-norm; do
    again "$name" "$here/data/programs/$name.json" "$here/data/programs/$name.json" &&
        kept "$name"
done

# Names that mean something else now: their places may not fit, and the plan is safe.
for name in moe-8x-tp8 tp2-dp2-two-streams; do
    program=$programs/$name.json
    "$planner" plan "$program" -o "$work/plan" >/dev/null
    jq 'del(.plan_hash, .run_hash) | .buffers |= (map(.offset) as $o | to_entries |
        map(.value.offset = $o[(.key * 7 + 3) % ($o | length)] | .value))' \
        "$work/plan" >"$work/wrong"
    "$planner" plan "$program" --from "$work/wrong" -o "$work/new" >"$work/out" 2>&1 ||
        { fail "$name from a wrong plan"; head -3 "$work/out"; }
    "$planner" check "$program" "$work/new" >"$work/out" ||
        { fail "$name from a wrong plan: not proved"; head -3 "$work/out"; }
done
"$planner" plan "$programs/moe-8x-tp8.json" --from "$work/plan" --algorithm ll_push \
    >/dev/null 2>"$work/out"
[ $? = 2 ] && grep -q "found previous and algorithm" "$work/out" || fail "--from and --algorithm"

[ "$failures" -eq 0 ] || { echo "$failures failures"; exit 1; }
echo "plans made again: all right"
