#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ctest: cost 7
# ctest: load 3
#
# SYMM_RECORD, symm-plan merge, SYMM_PLAN: a program without code for plans is recorded,
# merged, planned, and runs on its plan with every element right. Programs without annotations
# get plans in which no buffers share bytes. Contradictory or incomplete records are refused
# with an error. The record of a replay equals its program.

set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
source_dir=${SOURCE_DIR:-$here/..}
build=${BUILD_DIR:-$source_dir/build}
planner=$build/bin/symm-plan
program=$build/bin/record_program
run=$build/bin/symmrun
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
unset SYMM_RECORD SYMM_PLAN SYMM_CHECK
export SYMM_BACKEND=host SYMM_TIMEOUT=60

[ -x "$planner" ] && [ -x "$program" ] || { echo "symm-plan was not built: skipped"; exit 77; }
"$planner" plan "$source_dir/bench/programs/odd-cycle-3.json" 2>&1 >/dev/null |
    grep -q jansson && { echo "the library reads no JSON: skipped"; exit 77; }

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# record NAME RANKS WORD...: the records go to $work/NAME.
record() {
    local name=$1 ranks=$2
    shift 2
    rm -rf "${work:?}/$name"
    if [ "$ranks" = threads ]; then
        SYMM_RECORD=$work/$name "$program" threads "$@" >"$work/out" 2>&1
    else
        SYMM_RECORD=$work/$name "$run" -n "$ranks" --grace 1 -- "$program" "$@" \
            >"$work/out" 2>&1
    fi
}

# planned NAME RANKS WORD...: recorded, merged, planned, proved, and run on the plan.
planned() {
    local name=$1 ranks=$2
    shift 2
    record "$name" "$ranks" "$@" || { fail "$name: not recorded"; head -3 "$work/out"; return 1; }
    "$planner" merge "$work/$name" -o "$work/$name.json" >"$work/said" 2>&1 ||
        { fail "$name: not merged"; head -3 "$work/said"; return 1; }
    "$planner" plan "$work/$name.json" -o "$work/$name.plan" >"$work/out" 2>&1 ||
        { fail "$name: not planned"; head -3 "$work/out"; return 1; }
    "$planner" check "$work/$name.json" "$work/$name.plan" >"$work/out" 2>&1 ||
        { fail "$name: not proved"; head -3 "$work/out"; return 1; }
    if [ "$ranks" = threads ]; then
        SYMM_CHECK=plan SYMM_PLAN=$work/$name.plan "$program" threads "$@" \
            >"$work/out" 2>&1
    else
        SYMM_CHECK=plan SYMM_PLAN=$work/$name.plan "$run" -n "$ranks" -- "$program" "$@" \
            >"$work/out" 2>&1
    fi || { fail "$name: wrong on its plan"; head -3 "$work/out"; return 1; }
}

arena() { jq .arena_bytes "$work/$1.plan"; }
dedicated() { jq .dedicated_bytes "$work/$1.plan"; }
# ops NAME: how many calls its plan has.
ops() { jq '.ops | length' "$work/$1.plan"; }

# refused WHAT WORDS FILE...: merge says no, by a sentence with these words, and writes nothing.
refused() {
    local what=$1 words=$2
    shift 2
    rm -f "$work/no.json"
    "$planner" merge "$@" -o "$work/no.json" >"$work/out" 2>&1
    [ $? = 2 ] || fail "$what: merged"
    grep -qF "$words" "$work/out" || { fail "$what: another sentence"; head -3 "$work/out"; }
    [ ! -e "$work/no.json" ] || fail "$what: a file was written"
}

# ---- Programs, with annotations and without -------------------------------------------

one=20224 # bytes of a buffer, rounded up
planned loop 3 notes periods shares
grep -q shared "$work/out" || fail "loop: SYMM_PLAN was not used"
[ "$(arena loop)" = $one ] || fail "loop: arena $(arena loop)"
[ "$(dedicated loop)" = $((6 * one)) ] || fail "loop: dedicated $(dedicated loop)"
planned warm 3 notes periods warm
[ "$(arena warm)" = $one ] || fail "warm: arena $(arena warm)"
planned late 3 notes periods late
[ "$(arena late)" = $((6 * one)) ] || fail "late: arena $(arena late)"
planned teams 4 notes periods teams
[ "$(ops teams)" = 6 ] || fail "teams: $(ops teams) ops"
[ "$(jq -c .groups.split1 "$work/teams.json")" = '[[0,2],[1,3]]' ] || fail "teams: groups"
planned streams 2 notes periods streams
[ "$(arena streams)" -lt "$(dedicated streams)" ] || fail "streams: nothing is shared"
planned ring 3 notes periods ring
[ "$(jq '[.ops[] | select(.op == "put" or .op == "wait")] | length' "$work/ring.json")" = 2 ] ||
    fail "ring: no put"
planned root 3 notes periods root
planned threads threads notes periods
[ "$(arena threads)" = $one ] || fail "threads: arena $(arena threads)"
planned bigids 2 notes periods bigids
jq -e '.buffers[0].alloc_id == "18446744073709551515"' "$work/bigids.plan" >/dev/null ||
    fail "bigids: $(jq -c .buffers[0] "$work/bigids.plan")"

# Without annotations nothing is shared, whatever is known besides.
planned none 3 shares
grep -q apart "$work/out" || fail "none: two buffers share their place"
[ "$(arena none)" = "$(dedicated none)" ] || fail "none: arena $(arena none)"
planned unnoted 3 periods late
[ "$(arena unnoted)" = "$(dedicated unnoted)" ] || fail "unnoted: arena $(arena unnoted)"
[ "$(ops unnoted)" = 6 ] || fail "unnoted: $(ops unnoted) ops"
planned unnotedstreams 2 periods streams teams
[ "$(arena unnotedstreams)" = "$(dedicated unnotedstreams)" ] || fail "unnoted streams"
planned partly 3 notes periods partly
[ "$(arena partly)" = $((2 * one)) ] || fail "partly: arena $(arena partly)"

planned peers 3 notes periods peers
[ "$(arena peers)" = $((2 * one)) ] || fail "peers: arena $(arena peers)"
planned forces 3 notes periods forces
[ "$(arena forces)" = $((2 * one)) ] && [ "$(ops forces)" = 5 ] || fail "forces: $(arena forces)"

# An all_reduce_norm is an op, and its arrays are ordered by it.
planned norm 3 notes periods norm
[ "$(arena norm)" = $((5 * one)) ] && [ "$(ops norm)" = 7 ] || fail "norm: arena $(arena norm)"
planned normalone 2 periods norm
[ "$(arena normalone)" = "$(dedicated normalone)" ] && [ "$(ops normalone)" = 7 ] ||
    fail "norm alone: arena $(arena normalone)"
# The weight, which no annotation names, is alone, and the residual lives. The quantised result is
# shorter than what is read of its buffer, so that lives always. An input and a result are left.
planned layers 3 notes periods layers
[ "$(arena layers)" = $((5 * one)) ] && [ "$(ops layers)" = 2 ] || fail "layers: arena $(arena layers)"
[ "$(jq -c '[.ops[] | select(.norm) | .norm | [.norm_out, .quant, .weight, .scale, .constant]]' \
    "$work/layers.json")" = '[["b102","none","b105",null,false],["b103","row","b105",true,false]]' ] ||
    { fail "layers: which arrays?"; jq -c '.ops[].norm' "$work/layers.json"; }
[ "$(jq -c '[.ops[].norm]' "$work/layers.plan")" = '[true,true]' ] || fail "layers: no norms planned"
planned layersthreads threads notes periods layers
# A result that begins inside its buffer renews nothing: it is carried around the circle.
planned inside 3 notes periods layers inside
[ "$(arena inside)" = $((5 * one)) ] && [ "$(ops inside)" = 2 ] || fail "inside: arena $(arena inside)"
planned layersnone 2 periods layers
[ "$(arena layersnone)" = "$(dedicated layersnone)" ] || fail "layers without annotations"
# One site for two calls: both stay outside, with all of their arrays.
planned twice 2 notes periods layers twice
[ "$(arena twice)" = "$(dedicated twice)" ] && [ "$(ops twice)" = 0 ] || fail "twice: arena $(arena twice)"
grep -q "2 calls.* outside.*all_reduce_norm at 'first'" <(tr '\n' ' ' <"$work/said") ||
    { fail "twice: not named"; cat "$work/said"; }

# A plan in memory is loaded like a file.
SYMM_TEST_PLAN=$work/loop.plan SYMM_CHECK=plan "$run" -n 3 -- "$program" plans shares \
    >"$work/out" 2>&1 || fail "symm_team_load_plan"
grep -q shared "$work/out" || fail "symm_team_load_plan had no effect"

# ---- Sizes up to a bound -----------------------------------------------------------------

# bounded FILTER: a plan of the recorded loop, its calls for sizes up to a bound.
bounded() {
    jq "(.ops[] | select(.site)) |= (.up_to = true | $1)" "$work/loop.json" >"$work/bound.json"
    "$planner" plan "$work/bound.json" -o "$work/bound.plan" --algorithm "$2" >"$work/out" 2>&1 ||
        { fail "a bound: not planned"; head -3 "$work/out"; }
    "$planner" check "$work/bound.json" "$work/bound.plan" >"$work/out" 2>&1 ||
        { fail "a bound: not proved"; head -3 "$work/out"; }
    SYMM_CHECK=plan SYMM_PLAN=$work/bound.plan "$run" -n 3 -- "$program" sizes >"$work/out" 2>&1
}
bounded . two_shot_inplace || { fail "a bound"; head -3 "$work/out"; }
[ "$(jq -c '[.ops[].up_to] | unique' "$work/bound.plan")" = '[20000]' ] || fail "which bound?"
grep -q '5000: .* took two_shot_inplace .*: the plan names it' "$work/out" || fail "a bound: a large call"
grep -q ' 9: .* took copy_in .*: the plan is for sizes up to a bound' "$work/out" ||
    fail "a bound: a small call"
bounded '.count = 1000' two_shot_inplace && fail "beyond the bound"
[ "$(grep -c "with 20000 bytes, and the plan is for up to 4000" "$work/out")" = 3 ] ||
    { fail "beyond the bound: not on all ranks"; head -4 "$work/out"; }
jq 'del(.ops[0].up_to, .plan_hash)' "$work/bound.plan" >"$work/less"
"$planner" check "$work/bound.json" "$work/less" >"$work/out" && fail "a bound that is missing"

# Standard input and output.
"$planner" merge "$work/loop" 2>/dev/null | "$planner" plan - -o - 2>/dev/null >"$work/piped"
cmp -s "$work/piped" "$work/loop.plan" || fail "plan - -o -"
"$planner" check - "$work/loop.plan" <"$work/loop.json" >/dev/null || fail "check -"
"$planner" check "$work/loop.json" - <"$work/loop.plan" >/dev/null || fail "check PROGRAM -"
"$planner" check - - <"$work/loop.plan" >/dev/null 2>"$work/out"
[ $? = 2 ] && grep -q "standard input once" "$work/out" || fail "check - -"
"$planner" emit "$work/loop.json" - --lang c -o - <"$work/loop.plan" | grep -q symm_team_load_plan ||
    fail "emit -"
printf 'id,lower,upper,size\na,0,2,8\n' | "$planner" pack - --capacity 8 -o - 2>/dev/null |
    grep -q '^a,0,2,8,0$' || fail "pack -"
"$planner" plan - </dev/null >/dev/null 2>"$work/out"
[ $? = 2 ] && grep -q "standard input: line 1" "$work/out" || fail "plan - of nothing"

# ---- What is refused -----------------------------------------------------------------

record dies 3 notes periods dies && fail "dies: came to its end"
refused "a killed rank" "did not come to its end: it was killed" "$work/dies"
record leaves 2 notes periods leaves
refused "no symm_finalize" "rank 1 did not come to its end" "$work/leaves"
record extra 2 notes periods extra
refused "periods that differ" "its periods differ" "$work/extra"
files=("$work"/loop/*.json)
refused "a rank that is missing" "the file of rank 2 is missing" "${files[0]}" "${files[1]}"
refused "a rank twice" "are both of rank 0" "${files[0]}" "${files[0]}"
refused "no folder" "No such file" "$work/nowhere"
mkdir "$work/empty"
refused "an empty folder" "found no record" "$work/empty"
cp -r "$work/loop" "$work/two" && cp "$work"/late/*.json "$work/two"
refused "two jobs" "found the records of 2 jobs" "$work/two"
job=$(basename "${files[0]}" | cut -c 1-16)
"$planner" merge "$work/two" --job "$job" -o - 2>/dev/null | cmp -s - "$work/loop.json" ||
    fail "two jobs, one chosen"
refused "files of two jobs" "give the files of one job" "${files[0]}" "$work"/late/*rank1*

# changed WHAT WORDS FILTER: rank 1's file of the loop, changed.
changed() {
    rm -rf "$work/changed" && cp -r "$work/loop" "$work/changed"
    jq -c "$3" "${files[1]}" >"$work/changed/$(basename "${files[1]}")"
    refused "$1" "$2" "$work/changed"
}
changed "another count" "contradict each other at site 'sum2'" \
    '(.period[] | select(.site == "sum2")).count = 7'
changed "another reduction" "rank 1 calls all_reduce max" \
    '(.period[] | select(.site == "sum2")).reduce = "max"'
changed "a call that is missing" "rank 1 does not call it" \
    'del(.period[] | select(.site == "sum2"))'
changed "another order" "contradict each other on stream 0" \
    '.period |= [.[3, 4, 5], .[0, 1, 2]] + .[6:]'
changed "another buffer" "placed alloc_id 7" '.buffers[2].alloc_id = "7"'
changed "fewer periods" "called symm_record_period 4 times, rank 1 3 times" '.periods = 3'
changed "another format" 'allowed: "symm-record/1"' '.format = "symm-record/2"'
changed "an index beyond" "period[0].stream: found 9" '.period[0].stream = 9'
head -c 700 "${files[1]}" >"$work/changed/$(basename "${files[1]}")"
refused "a cut file" "allowed: JSON" "$work/changed"


# changed_norm WHAT WORDS FILTER: the same of the layers.
changed_norm() {
    rm -rf "$work/changed" && cp -r "$work/layers" "$work/changed"
    files=("$work"/layers/*.json)
    jq -c "$3" "${files[1]}" >"$work/changed/$(basename "${files[1]}")"
    refused "$1" "$2" "$work/changed"
}
changed_norm "another width" "contradict each other at site 'second'" \
    '(.period[] | select(.site == "second")).norm.hidden = 625'
changed_norm "a row without its begin" 'period[2].norm.part: found 1, allowed: 0' \
    'del(.period[2])'
changed_norm "an array of no norm" 'period[2].norm.reads: found "x", allowed: the name of an array' \
    '.period[2].norm.reads = "x"'
changed_norm "no norm" 'period[2].norm: found nothing, allowed: an object' 'del(.period[2].norm)'
record weighs 2 notes periods layers weighs
refused "a constant that is written" '(write): found a write to "b105", allowed: none' "$work/weighs"

# A folder that cannot be had, or written, is found at the start; nothing is left behind.
touch "$work/file"
for folder in "$work/file" "$work/no/where"; do
    SYMM_RECORD=$folder "$program" >"$work/out" 2>&1 && fail "$folder: recorded"
    grep -q "SYMM_RECORD='$folder'" "$work/out" || fail "$folder: another sentence"
done
SYMM_RECORD=/dev/full "$program" >"$work/out" 2>&1 && fail "/dev/full"
SYMM_PLAN=$work/nowhere "$program" >"$work/out" 2>&1 && fail "SYMM_PLAN of no file"
grep -q "SYMM_PLAN: $work/nowhere" "$work/out" || fail "SYMM_PLAN of no file: which?"
SYMM_PLAN=$work/loop.plan "$run" -n 2 -- "$program" >"$work/out" 2>&1 && fail "SYMM_PLAN of 3"
grep -q "world: found 3, allowed: 2" "$work/out" || fail "SYMM_PLAN of 3: what is wrong?"
SYMM_PLAN=$work/loop.plan SYMM_RECORD=$work/both "$run" -n 3 -- "$program" >"$work/out" 2>&1
refused "a record of a run on a plan" "record it without SYMM_PLAN" "$work/both"
cat >"$work/some.sh" <<'END'
[ "$RANK" = 1 ] && unset SYMM_RECORD
exec "$@"
END
SYMM_RECORD=$work/some "$run" -n 2 -- bash "$work/some.sh" "$program" >"$work/out" 2>&1 &&
    fail "SYMM_RECORD on one rank"
grep -q "SYMM_RECORD is set on rank 0 and not on rank 1" "$work/out" || fail "which rank?"

# ---- The record of a replay ------------------------------------------------------------

# same PROGRAM: as small a plan from its replay's record as from the file itself.
same() {
    local file=$1 name ranks
    name=$(basename "$file" .json)
    ranks=$(jq .world "$file")
    rm -rf "$work/records"
    SYMM_RECORD=$work/records "$run" -n "$ranks" -- "$build/bin/symm-perf" replay "$file" \
        --iterations 1 -T 100 >"$work/out" 2>&1 || { fail "$name: replay"; return; }
    "$planner" merge "$work/records" -o "$work/$name.json" >"$work/out" 2>&1 ||
        { fail "$name: merge"; head -3 "$work/out"; return; }
    "$planner" plan "$work/$name.json" -o "$work/$name.plan" >/dev/null || fail "$name: plan"
    "$planner" plan "$file" -o "$work/hand.plan" >/dev/null || fail "$name: plan by hand"
    jq -e --slurpfile hand "$work/hand.plan" '.arena_bytes == $hand[0].arena_bytes and
        .dedicated_bytes == $hand[0].dedicated_bytes and
        (.ops | map({site, algorithm, entry_barrier, exit_barrier}) | sort) ==
        ($hand[0].ops | map({site, algorithm, entry_barrier, exit_barrier}) | sort)' \
        "$work/$name.plan" >/dev/null || fail "$name: another plan than by hand"
    SYMM_CHECK=plan SYMM_PLAN=$work/$name.plan "$run" -n "$ranks" -- "$build/bin/symm-perf" \
        replay "$file" --iterations 2 -T 100 >"$work/out" 2>&1 ||
        { fail "$name: replay on the plan"; head -3 "$work/out"; }
}
if [ -x "$build/bin/symm-perf" ]; then
    for name in odd-cycle-3 ring-pipeline-4 tp2-dp2-two-streams; do
        same "$source_dir/bench/programs/$name.json"
    done
    same "$here/data/programs/every-op.json"
    same "$here/data/programs/every-norm.json"
    jq '.loop = false' "$source_dir/bench/programs/odd-cycle-3.json" >"$work/line.json"
    same "$work/line.json"
fi

[ "$failures" -eq 0 ] || { echo "$failures failures"; exit 1; }
echo "programs recorded: all right"
