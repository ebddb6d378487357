#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ctest: cost 12
# ctest: load 3
#
# symm-perf replay --plan: the programs of bench/programs, one of every op and one of every kind of
# all_reduce_norm run on plans
# with SYMM_CHECK=plan and random delays, with each algorithm of the planner, and every result
# is right; plans with a planted mistake are refused or give wrong results.
# SYMM_TEST_LONG=1 adds the two programs that take minutes, and iterations.

set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
source_dir=${SOURCE_DIR:-$here/..}
build=${BUILD_DIR:-$source_dir/build}
perf=$build/bin/symm-perf
planner=$build/bin/symm-plan
programs=$source_dir/bench/programs
every=$here/data/programs/every-op.json
norms=$here/data/programs/every-norm.json
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
few=1 many=10 # iterations
[ -z "${SYMM_TEST_LONG-}" ] || few=20 many=200

[ -x "$perf" ] && [ -x "$planner" ] || { echo "symm-perf was not built: skipped"; exit 77; }

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# plan WHAT PROGRAM ARG...: makes $work/plan.
plan() {
    local what=$1
    shift
    "$planner" plan "$@" -o "$work/plan" >"$work/out" 2>"$work/err" && return
    fail "$what: no plan"
    head -n 3 "$work/err"
    return 1
}

# What is no file is written to, not replaced.
mkfifo "$work/pipe"
cat "$work/pipe" >"$work/piped" &
"$planner" plan "$every" -o "$work/pipe" >"$work/out" 2>&1 || fail "a plan to a pipe"
wait
[ -p "$work/pipe" ] || fail "a pipe was replaced by a file"
grep -q '"certificate"' "$work/piped" || fail "no plan came through the pipe"

# replay STATUS WHAT PROGRAM ARG...: on $work/plan, checked; output in $work/out and err.
replay() {
    local wanted=$1 what=$2 status
    shift 2
    SYMM_CHECK=plan timeout 300 "$perf" replay "$@" --plan "$work/plan" \
        >"$work/out" 2>"$work/err" </dev/null
    status=$?
    [ "$status" = "$wanted" ] && return
    fail "$what: exit status $status instead of $wanted"
    head -n 3 "$work/err"
    return 1
}

# right WHAT PROGRAM ARG...
right() {
    replay 0 "$@" || return
    grep -qF "Out of bounds values : 0 OK" "$work/out" || fail "$1: no result was checked"
    grep -q "^# Results checked *: [1-9]" "$work/out" || fail "$1: no result was checked"
}

# ---- Every program ------------------------------------------------------------------

for program in odd-cycle-3 ring-pipeline-4 llama3-8b-tp2-decode-b1 llama3-8b-tp4-decode-b1 \
    tp2-dp2-two-streams moe-8x-tp8 llama3-70b-tp8-decode-b32; do
    iterations=1
    [ "$program" = odd-cycle-3 ] && iterations=$many
    plan "$program" "$programs/$program.json" &&
        right "$program" "$programs/$program.json" --iterations $iterations --delay 50
done
for program in ${SYMM_TEST_LONG:+llama3-70b-tp8-prefill-8192 llama3-70b-tp8-serve-family}; do
    plan "$program" "$programs/$program.json" &&
        right "$program" "$programs/$program.json" --iterations 1 -T 300
done

# The arena is what is reserved, not the sum of the buffers.
plan "bytes" "$programs/llama3-8b-tp4-decode-b1.json"
right "bytes" "$programs/llama3-8b-tp4-decode-b1.json" --iterations 1 -J "$work/json"
jq -e --slurpfile plan "$work/plan" \
    '.replay.plan == {hash: $plan[0].plan_hash, arena_bytes: $plan[0].arena_bytes}
     and .replay.plan.arena_bytes < .replay.buffer_bytes' "$work/json" >/dev/null ||
    fail "the JSON of a replay with a plan"

# Each run of a program that is no loop has its values from outside: `rest` is read beyond what is
# put there, `last` then takes its bytes.
cat >"$work/outside" <<'EOF'
{"format": "symm-program/1", "name": "outside", "world": 2, "loop": false,
 "buffers": [{"name": "first", "dtype": "float32", "shape": [64]},
             {"name": "rest", "dtype": "float32", "shape": [192]},
             {"name": "last", "dtype": "float32", "shape": [192]}],
 "ops": [{"op": "write", "buffers": ["first"]},
         {"op": "put", "site": "p", "src": "first", "dst": "rest", "shift": 1},
         {"op": "wait", "site": "p"}, {"op": "read", "buffers": ["rest"]},
         {"op": "write", "buffers": ["last"]}, {"op": "read", "buffers": ["last"]}]}
EOF
plan "values from outside" "$work/outside"
jq -e '.buffers[1].offset == .buffers[2].offset' "$work/plan" >/dev/null || fail "nothing is shared"
right "values from outside" "$work/outside" --iterations 3

# A put of a rank to itself, overwritten before the wait.
sed 's/"shift": 1}/"shift": 2}, {"op": "write", "buffers": ["rest"]}/' "$work/outside" >"$work/itself"
plan "a put to itself" "$work/itself" && right "a put to itself" "$work/itself" --iterations 3

# ---- Every algorithm ----------------------------------------------------------------

for algorithm in ll_push lamport_push copy_in engine; do
    plan "every op by $algorithm" "$every" --algorithm $algorithm &&
        right "every op by $algorithm" "$every" --iterations $few --delay 50
done
for algorithm in ll_push two_shot_push two_shot_pull copy_in engine; do
    plan "every norm by $algorithm" "$norms" --algorithm $algorithm &&
        right "every norm by $algorithm" "$norms" --iterations $few --delay 50
done

# costs NAME ALGORITHM...: a table in which the first is the cheapest, copy_in the last.
costs() {
    local us=1 rows=
    for algorithm in "${@:2}"; do
        rows="$rows\"$algorithm\": {\"latency_us\": $us, \"bytes_per_us\": 300000}, "
        us=$((us + 5))
    done
    echo "{\"format\": \"symm-costs/1\", \"barrier_us\": 1.5, \"memory_us_per_gib\": 16,
        \"algorithms\": {$rows \"copy_in\": {\"latency_us\": 1000, \"bytes_per_us\": 300}}}" \
        >"$work/costs-$1"
}
costs pull one_shot_pull two_shot_inplace
costs two two_shot_pull one_shot_pull two_shot_inplace
costs engine copy_engine two_shot_inplace one_shot_pull
costs switch multimem_one_shot multimem_two_shot one_shot_pull
for name in pull two engine switch; do
    plan "every norm by $name" "$norms" --table "$work/costs-$name" &&
        right "every norm by $name" "$norms" --iterations $few --delay 50
    plan "every op by $name" "$every" --table "$work/costs-$name" || continue
    right "every op by $name" "$every" --iterations $few --delay 50
done
jq -e '[.ops[].algorithm] | contains(["multimem_one_shot", "multimem_two_shot"])' \
    "$work/plan" >/dev/null || fail "no op by the switch"

# ---- Planted mistakes ---------------------------------------------------------------

odd=$programs/odd-cycle-3.json
plan "odd" "$odd" --algorithm one_shot_pull && cp "$work/plan" "$work/good"
right "odd by pull" "$odd" --iterations $many --delay 50

# planted STATUS WHAT FILTER: the good plan, changed, its hashes taken away.
planted() {
    jq "($3) | del(.plan_hash, .run_hash)" "$work/good" >"$work/plan"
    replay "$1" "$2" "$odd" --iterations 50 --delay 200
}
planted 0 "no mistake" .
planted 1 "a barrier dropped" '.ops[1].entry_barrier = false'
planted 1 "two buffers that a peer still reads on one place" \
    '.buffers[1].offset = .buffers[0].offset | .buffers[].after = [0, 1, 2]'
planted 2 "an overlap without a word" '.buffers[1].offset = .buffers[0].offset' &&
    { grep -qF "buffers 'b0' and 'b1' share bytes" "$work/err" || fail "which buffers?"; }
planted 2 "another world" '.world = 3' &&
    { grep -qF "world: found 3, allowed: 4" "$work/err" || fail "which world?"; }
planted 2 "ops out of turn" '.ops |= [.[1], .[0], .[2]]' &&
    { grep -qF "calls 's0' where the plan has 's1' next" "$work/err" || fail "which op?"; }
jq '.ops[1].entry_barrier = false' "$work/good" >"$work/plan"
replay 2 "a wrong hash" "$odd" --iterations 1 &&
    { grep -qF "run_hash: found" "$work/err" || fail "which hash?"; }
head -c 300 "$work/good" >"$work/plan"
replay 2 "a cut plan" "$odd" --iterations 1

# ---- The same of norms ----------------------------------------------------------------

"$planner" plan "$norms" --table "$work/costs-pull" -o "$work/good" >"$work/out" || fail "no norms"
grep -q "^every-norm: .*, 7 of them all_reduce_norms, 4 ranks" "$work/out" || fail "how many norms?"
# planted_norm STATUS WORDS WHAT FILTER: the checker says no by these words; the replay's status.
planted_norm() {
    jq "($4) | del(.plan_hash, .run_hash)" "$work/good" >"$work/plan"
    "$planner" check "$norms" "$work/plan" >"$work/said" 2>&1 && [ -n "$2" ] && fail "$3: proved"
    grep -qF "$2" "$work/said" || { fail "$3: another sentence"; head -3 "$work/said"; }
    replay "$1" "$3" "$norms" --iterations 10 --delay 200
}
# share A B: buffer B lies where A does, and says so.
share='def share($a; $b): .buffers as $all | ($all | map(.name) | index($a)) as $from |
    (.buffers[] | select(.name == $b)).offset = $all[$from].offset |
    .buffers[].after = [range($all | length)]; '
planted_norm 0 "" "norms, no mistake" .
planted_norm 0 "op 1 (all_reduce_norm first) has no exit barrier" "a norm's exit barrier dropped" \
    '(.ops[] | select(.site == "first")).exit_barrier = false' # the host copies: no peer reads
planted_norm 1 "uses buffers" "a residual on another live buffer" "$share"'share("x"; "residual")'
planted_norm 2 "uses buffers" "two results on one place" "$share"'share("y"; "residual")' &&
    { grep -qF '`residual_out`' "$work/err" && grep -qF overlap "$work/err" || fail "which arrays?"; }
planted_norm 0 "uses buffers" "a norm on its input" "$share"'share("x"; "y")' # as if in place
planted_norm 1 "holds its value all the time" "a weight on a buffer" "$share"'share("half"; "weight")'
planted_norm 2 "the plan has no all_reduce_norm" "a norm that the plan has as another call" \
    '(.ops[] | select(.site == "first")) |= del(.norm)' &&
    { grep -qF "no all_reduce_norm at 'first', and the call is all_reduce_norm" "$work/err" ||
        fail "which kinds?"; }
planted_norm 2 "the plan has an all_reduce_norm" "another call that the plan has as a norm" \
    '(.ops[] | select(.site == "again")).norm = true' &&
    { grep -qF "an all_reduce_norm at 'again', and the call is all_reduce" "$work/err" ||
        fail "which kinds?"; }

[ "$failures" -eq 0 ] || { echo "$failures failures"; exit 1; }
echo "plans run: all right"
