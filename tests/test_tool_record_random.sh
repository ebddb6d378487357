#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ctest: cost 10
#
# Random programs over the public header are recorded, merged, planned, proved, and run on
# their plan with random delays of the ranks: every element must be right. Without annotations
# no buffers of their plans share bytes. On the plan of another program, SYMM_CHECK=plan ends
# the run with an error.
#
# SYMM_TEST_PLANS=N sets the number of programs (default 6; 200 with SYMM_TEST_LONG=1),
# SYMM_TEST_SEED the first seed, which is printed.

set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
build=${BUILD_DIR:-${SOURCE_DIR:-$here/..}/build}
planner=$build/bin/symm-plan run=$build/bin/symmrun program=$build/bin/random_program
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
unset SYMM_RECORD SYMM_PLAN SYMM_CHECK
export SYMM_BACKEND=host SYMM_TIMEOUT=60

[ -x "$planner" ] && [ -x "$program" ] || { echo "symm-plan was not built: skipped"; exit 77; }
"$planner" plan /dev/null -o /dev/null 2>&1 | grep -q jansson &&
    { echo "the library reads no JSON: skipped"; exit 77; }

fail() {
    echo "FAILED: $*"
    head -3 "$work/out"
    failures=$((failures + 1))
    return 1
}

# planned WHAT RANKS SEED [DELAY silent]: its plan is $work/plan, its program $work/program.
planned() {
    local what=$1 ranks=$2
    shift 2
    rm -rf "$work/records"
    SYMM_RECORD=$work/records "$run" -n "$ranks" -- "$program" "$@" >"$work/out" 2>&1 ||
        { fail "$what: not recorded"; return 1; }
    "$planner" merge "$work/records" -o "$work/program" >"$work/out" 2>&1 ||
        { fail "$what: not merged"; return 1; }
    "$planner" plan "$work/program" -o "$work/plan" >"$work/out" 2>&1 ||
        { fail "$what: not planned"; return 1; }
    "$planner" check "$work/program" "$work/plan" >"$work/out" 2>&1 || fail "$what: not proved"
}

count=6
[ "${SYMM_TEST_LONG:-0}" = 0 ] || count=200
count=${SYMM_TEST_PLANS:-$count}
first=${SYMM_TEST_SEED:-1}
shared=0
norms=0
echo "first seed $first"
for ((seed = first; seed < first + count; seed++)); do
    ranks=$((2 + seed % 3))
    if planned "seed $seed" "$ranks" "$seed"; then
        jq -e '.arena_bytes < .dedicated_bytes' "$work/plan" >/dev/null && shared=$((shared + 1))
        norms=$((norms + $(jq '[.ops[] | select(.norm)] | length' "$work/plan")))
        SYMM_CHECK=plan SYMM_PLAN=$work/plan "$run" -n "$ranks" -- "$program" "$seed" 300 \
            >"$work/out" 2>&1 || fail "seed $seed: wrong on its plan"
        SYMM_CHECK=plan SYMM_PLAN=$work/plan "$run" -n "$ranks" --grace 1 -- "$program" \
            "$((seed + 3))" >"$work/out" 2>&1 && fail "seed $seed: right for another program"
        # Two buffers of one call may share bytes there: that is an error of the call's own.
        grep -q "plan '\|overlap" "$work/out" || fail "seed $seed: another error"
    fi
    [ $((seed % 3)) = 0 ] || continue
    if planned "seed $seed, silent" "$ranks" "$seed" 0 silent; then
        jq -e '.arena_bytes == .dedicated_bytes' "$work/plan" >/dev/null ||
            fail "seed $seed, silent: something is shared"
        SYMM_CHECK=plan SYMM_PLAN=$work/plan "$run" -n "$ranks" -- "$program" "$seed" 300 \
            silent >"$work/out" 2>&1 || fail "seed $seed, silent: wrong on its plan"
    fi
done
[ "$shared" -gt 0 ] || fail "no plan shares anything"
[ "$norms" -gt 0 ] || fail "no plan has an all_reduce_norm"

[ "$failures" -eq 0 ] || { echo "$failures failures"; exit 1; }
echo "random programs recorded: all right, $shared of $count share memory, $norms norms"
