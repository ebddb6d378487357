#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Large programs are planned and proved at the lower bound with a certificate of linear size,
# loaded, and run right under random delays. SYMM_TEST_LONG=1: all sizes of
# bench/planner_growth.py, and full programs for the runs.
#
# ctest: cost 7

set -u
root=${SOURCE_DIR:-$(cd "$(dirname "$0")/.." && pwd)}
build=${BUILD_DIR:-$root/build}
planner=$build/bin/symm-plan perf=$build/bin/symm-perf
command -v jq >/dev/null && command -v python3 >/dev/null || { echo "no jq or python3"; exit 77; }
"$planner" plan /dev/null -o /dev/null 2>&1 | grep -q jansson && exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
    echo "FAILED: $1"
    failures=$((failures + 1))
}

# made FAMILY N ARG...: program and plan, proved; ARGs are for the generator.
made() {
    python3 "$root/bench/planner_programs.py" "$@" > "$work/program" &&
        timeout 60 "$planner" plan "$work/program" -o "$work/plan" ${algorithm:+--algorithm "$algorithm"} \
            > "$work/out" 2>&1 &&
        timeout 60 "$planner" check "$work/program" "$work/plan" > "$work/out" 2>&1 && return
    fail "$*: $(tail -n 1 "$work/out")"
    return 1
}

algorithm=
for what in "moe 60" "zero3 20" "serve 2000" "moe 10 --world 32" "stack 20000"; do
    made $what || continue
    jq -e '.arena_bytes <= 1.05 * .lower_bound_bytes and
           (.certificate | length) <= 3 * (.buffers | length)' "$work/plan" > /dev/null ||
        fail "$what: $(jq -c '[.arena_bytes, .lower_bound_bytes, (.certificate | length)]' "$work/plan")"
done
made moe 10 --world 32 && [ "$(stat -c %s "$work/plan")" -lt 3000000 ] || fail "the plan is too large"

# A run gives what the program says, whoever is late.
layers=(3 2)
[ "${SYMM_TEST_LONG:-0}" = 0 ] || layers=(20 10)
for algorithm in "" one_shot_pull; do
    for what in "moe ${layers[0]}" "zero3 ${layers[1]}"; do
        made $what --world 4 --divide 512 || continue
        SYMM_CHECK=plan timeout 300 "$perf" replay "$work/program" --plan "$work/plan" \
            --iterations 4 --delay 100 > "$work/out" 2>&1 </dev/null &&
            grep -qF "Out of bounds values : 0 OK" "$work/out" ||
            fail "$what replayed ${algorithm:-by cost}: $(tail -n 3 "$work/out")"
    done
done

if [ "${SYMM_TEST_LONG:-0}" != 0 ]; then
    python3 "$root/bench/planner_growth.py" "$planner" || fail "growth"
fi

[ "$failures" = 0 ] && echo "all right"
[ "$failures" = 0 ]
