#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ctest: cost 3
# ctest: load 2
#
# symm-plan emit: its header compiles without warnings and sets up the ranks by the plan:
# offsets, teams, algorithms, barriers. A program that includes it (data/emit/run.c) gets
# every result right. Loading a changed header fails. Bad command lines and plans of another
# program leave no file.

set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
source_dir=${SOURCE_DIR:-$here/..}
build=${BUILD_DIR:-$source_dir/build}
plan=$build/bin/symm-plan
programs=$source_dir/bench/programs
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

[ -x "$plan" ] && [ -x "$build/bin/symmrun" ] || { echo "not built: skipped"; exit 77; }
"$plan" plan "$programs/odd-cycle-3.json" -o "$work/odd.plan" >"$work/out" 2>&1
if grep -q jansson "$work/out"; then
    echo "no libjansson.so.4: skipped"
    exit 77
fi

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# A link (as /dev/stdout) is written to, and stays.
ln -s odd.target "$work/link"
"$plan" plan "$programs/odd-cycle-3.json" -o "$work/link" >"$work/out" 2>&1 || fail "-o of a link"
[ -L "$work/link" ] && cmp "$work/odd.plan" "$work/odd.target" || fail "-o replaces a link"

# emit STATUS ARG...: output in $work/out and $work/err.
emit() {
    local wanted=$1 status
    shift
    "$plan" emit "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    [ "$status" = "$wanted" ] && return 0
    fail "exit status $status instead of $wanted: symm-plan emit $*"
    head -n 5 "$work/err"
    return 1
}

# says FILE TEXT WHAT
says() {
    grep -qF -- "$2" "$work/$1" || { fail "$3: no '$2'"; head -n 5 "$work/$1"; }
}

# compile NAME SOURCE [FLAG...]: SOURCE over $work/NAME.h becomes $work/NAME.
compile() {
    local name=$1 source=$2
    shift 2
    "${CC:-cc}" -std=c11 -O2 -Wall -Wextra -Wconversion -Wshadow -Wcast-qual -Werror \
        -I"$source_dir/include" -I"$build/include" -include "$work/$name.h" "$@" \
        -o "$work/$name" "$here/data/emit/$source" \
        -L"$build/lib" -Wl,-rpath,"$build/lib" -lsymm >"$work/err" 2>&1 && return 0
    fail "$name.h does not compile with $source"
    head -n 5 "$work/err"
    return 1
}

# run STATUS RANKS NAME ARG...: on so many ranks.
run() {
    local wanted=$1 ranks=$2 name=$3 status
    shift 3
    SYMM_CHECK=plan timeout 300 "$build/bin/symmrun" -n "$ranks" -- "$work/$name" "$@" \
        >"$work/out" 2>"$work/err" </dev/null
    status=$?
    [ "$status" = "$wanted" ] && return 0
    fail "$name on $ranks ranks: exit status $status instead of $wanted: $*"
    head -n 5 "$work/out" "$work/err"
    return 1
}

# ---- Every program -------------------------------------------------------------------

# whole NAME PROGRAM: plans and emits it, and sets its ranks up by the header.
whole() {
    local name=$1 program=$2 ranks prefix
    ranks=$(sed -n 's/.*"world": *\([0-9]*\).*/\1/p' "$program" | head -n 1)
    "$plan" plan "$program" -o "$work/$name.plan" >"$work/out" 2>&1 ||
        { fail "$name: no plan"; return; }
    emit 0 "$program" "$work/$name.plan" --lang c -o "$work/$name.h" || return
    emit 0 --lang c "$program" "$work/$name.plan" || return
    cmp -s "$work/out" "$work/$name.h" || fail "$name: standard output is not the file"
    prefix=$(sed -n 's/^struct \(plan_.*\) {$/\1/p' "$work/$name.h")
    compile "$name" set_up.c -DPLAN="$prefix" -DCAPITALS="${prefix^^}" || return
    run 0 "$ranks" "$name" "$program" "$work/$name.plan"
    [ "$(grep -c 'set up, 0 wrong$' "$work/out")" = "$ranks" ] ||
        fail "$name: not all ranks were set up"
}

for name in odd-cycle-3 ring-pipeline-4 tp2-dp2-two-streams llama3-8b-tp4-decode-b1 \
    moe-8x-tp8; do
    whole "$name" "$programs/$name.json"
done
whole every-op "$here/data/programs/every-op.json"
whole every-norm "$here/data/programs/every-norm.json"
[ "$(grep -c '\.norm = true' "$work/every-norm.h")" = 7 ] && ! grep -q 'norm = true' "$work/every-op.h" ||
    fail "which ops are an all_reduce_norm?"

# Names that C does not have, and a program that does nothing.
cat > "$work/gather.json" <<'PROGRAM'
{"format": "symm-program/1", "name": "a \"b\" */ \\ ??/ é", "world": 3, "loop": false,
 "groups": {"x y": [[2, 0, 1]]},
 "buffers": [{"name": "a.b", "dtype": "float16", "shape": [600]},
             {"name": "a_b", "dtype": "float16", "shape": [3, 200], "alloc_id":
              "18446744073709551615"}],
 "ops": [{"op": "reduce_scatter", "site": "\"*/%s$@", "in": "a.b", "out": "a_b",
          "reduce": "avg", "group": "x y"},
         {"op": "all_gather", "site": "g", "in": "a_b", "count": 200, "group": "x y"}]}
PROGRAM
# Names that would be one name in C, and one that is another's with its number.
cat > "$work/names.json" <<'PROGRAM'
{"format": "symm-program/1", "name": "names", "world": 2,
 "buffers": [{"name": "a b", "bytes": 8}, {"name": "a_b__2", "bytes": 8},
             {"name": "a_b", "bytes": 8}, {"name": "a-b", "bytes": 8},
             {"name": "a_b__0", "bytes": 8}],
 "ops": [{"op": "write", "buffers": ["a b", "a_b__2", "a_b", "a-b", "a_b__0"]},
         {"op": "all_reduce", "site": "s", "in": "a b"}]}
PROGRAM
cat > "$work/empty.json" <<'PROGRAM'
{"format": "symm-program/1", "name": "empty", "world": 2, "buffers": [], "ops": []}
PROGRAM
for name in gather names empty; do
    whole "$name" "$work/$name.json"
done

# Two headers in one source.
cat "$work/names.h" "$work/odd-cycle-3.h" > "$work/both.h"
compile both set_up.c -DPLAN=plan_names -DCAPITALS=PLAN_NAMES

# ---- A program over a header -----------------------------------------------------------

for algorithm in copy_in one_shot_pull; do
    "$plan" plan "$here/data/emit/run.json" --algorithm "$algorithm" -o "$work/run.plan" \
        >/dev/null || fail "run.json: no plan"
    emit 0 "$here/data/emit/run.json" "$work/run.plan" --lang c -o "$work/run.h"
    compile run run.c && run 0 2 run
    [ "$(grep -c 'rank [01]: 0 wrong$' "$work/out")" = 2 ] ||
        fail "$algorithm: not both ranks are right"
done
run 1 3 run
says err "world: found 2, allowed: 3" "a job of 3 ranks"

# changed EDIT WHAT: the header, changed by sed, does not set a rank up.
cp "$work/run.h" "$work/whole.h"
changed() {
    sed "$1" "$work/whole.h" > "$work/run.h"
    cmp -s "$work/run.h" "$work/whole.h" && fail "$2: nothing was changed"
    compile run run.c && run 1 2 run
    says err "plan of emit run: run_hash: found " "$2"
}
changed 's/^\(#define PLAN_EMIT_RUN_OFFSET_sum ((size_t)\).*/\10)/;
    s/^\(#define PLAN_EMIT_RUN_OFFSET_in ((size_t)\).*/\14096)/' "another offset"
changed 's/\.entry_barrier = true/.entry_barrier = false/' "no barrier"
changed 's/SYMM_ALGORITHM_ONE_SHOT_PULL/SYMM_ALGORITHM_COPY_IN/' "another algorithm"

# ---- Refusals ------------------------------------------------------------------------

emit 0 --help && says out "usage: symm-plan emit PROGRAM.json PLAN.json --lang c" help
odd=$programs/odd-cycle-3.json

# refused STATUS TEXT ARG...: one line on stderr, and no file.
refused() {
    local status=$1 text=$2
    shift 2
    rm -f "$work/no.h"
    emit "$status" "$@" || return
    says err "$text" "symm-plan emit $*"
    [ "$(wc -l < "$work/err")" = 1 ] || fail "symm-plan emit $*: not one line of error"
    [ ! -s "$work/out" ] && [ ! -e "$work/no.h" ] || fail "symm-plan emit $*: it wrote"
}
refused 2 "--lang: found nothing, allowed: c" "$odd" "$work/odd.plan" -o "$work/no.h"
refused 2 "--lang: found 'cobol', allowed: c" "$odd" "$work/odd.plan" --lang cobol
refused 2 "exactly one program and one plan" "$odd" --lang c -o "$work/no.h"
refused 2 "exactly one program and one plan" "$odd" "$work/odd.plan" more --lang c
refused 2 "symm-plan emit: '--nonsense': unknown option" --nonsense
for command in plan pack; do
    "$plan" "$command" --nonsense >"$work/out" 2>"$work/err"
    [ $? = 2 ] || fail "symm-plan $command --nonsense: exit status"
    says err "symm-plan $command: '--nonsense': unknown option" "$command --nonsense"
done
"$plan" check -- "$odd" "$work/odd.plan" >"$work/out" 2>&1 || fail "symm-plan check -- A B"
"$plan" check -- "$odd" -x >"$work/out" 2>&1
[ $? = 2 ] && says out "symm-plan check: -x: cannot be opened" "a file behind --"
"$plan" check --nonsense "$odd" "$work/odd.plan" >"$work/out" 2>&1
[ $? = 2 ] && says out "symm-plan check: '--nonsense': unknown option" "check --nonsense"
refused 2 "$work/none.json" "$work/none.json" "$work/odd.plan" --lang c -o "$work/no.h"
refused 2 "none.plan" "$odd" "$work/none.plan" --lang c -o "$work/no.h"
refused 1 "not proved: the plan is of a program with hash " "$programs/ring-pipeline-4.json" "$work/odd.plan" --lang c \
    -o "$work/no.h"
refused 2 "cannot be created" "$odd" "$work/odd.plan" --lang c -o "$work/no/such/file.h"
[ ! -w /dev/full ] || refused 2 "cannot be written" "$odd" "$work/odd.plan" --lang c -o /dev/full

# A plan of this program that is not safe: the buffers that share bytes lose their barriers.
"$plan" plan "$odd" --algorithm one_shot_pull -o "$work/pull.plan" >/dev/null 2>&1
sed 's/"\(entry\|exit\)_barrier": *true/"\1_barrier": false/g; s/"\(plan\|run\)_hash": *"[^"]*", *//g' \
    "$work/pull.plan" > "$work/unsafe.plan"
refused 1 "unsafe.plan: not proved: " "$odd" "$work/unsafe.plan" --lang c -o "$work/no.h"

[ "$failures" = 0 ] && echo "all right"
[ "$failures" = 0 ]
