#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ctest: cost 60
#
# symm-plan emit: what it writes is formatted, compiles without warnings, and finds every
# result right on the ranks of its program, with and without the plan; it finds wrong ones
# wrong. Bad command lines and plans that are not the program's leave no file.

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
    echo "built without jansson: skipped"
    exit 77
fi

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

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

# compile NAME: $work/NAME.c becomes $work/NAME.
compile() {
    "${CC:-cc}" -std=c11 -O2 -Wall -Wextra -Wconversion -Wshadow -Werror \
        -I"$source_dir/include" -I"$build/include" -o "$work/$1" "$work/$1.c" \
        -L"$build/lib" -Wl,-rpath,"$build/lib" -lsymm >"$work/err" 2>&1 && return 0
    fail "$1.c does not compile"
    head -n 5 "$work/err"
    return 1
}

# run STATUS RANKS NAME ARG...: on so many ranks.
run() {
    local wanted=$1 ranks=$2 name=$3 status
    shift 3
    timeout 300 "$build/bin/symmrun" -n "$ranks" -- "$work/$name" "$@" \
        >"$work/out" 2>"$work/err" </dev/null
    status=$?
    [ "$status" = "$wanted" ] && return 0
    fail "$name on $ranks ranks: exit status $status instead of $wanted: $*"
    head -n 5 "$work/out" "$work/err"
    return 1
}

# all_right NAME RANKS: each rank has compared something, and nothing was wrong.
all_right() {
    local lines
    lines=$(grep -cE 'rank [0-9]+: [1-9][0-9]* elements compared, 0 wrong$' "$work/out")
    [ "$lines" = "$2" ] || fail "$1: $lines of $2 ranks say that all is right"
}

format=$(command -v clang-format-14 || command -v clang-format)
[ -z "$format" ] || "$format" --version | grep -q 'version 14' || format=

# ---- Every program -------------------------------------------------------------------

# whole NAME PROGRAM: plans, emits, compiles and runs it.
whole() {
    local name=$1 program=$2 ranks
    ranks=$(sed -n 's/.*"world": *\([0-9]*\).*/\1/p' "$program" | head -n 1)
    "$plan" plan "$program" -o "$work/$name.plan" >"$work/out" 2>&1 ||
        { fail "$name: no plan"; return; }
    emit 0 "$program" "$work/$name.plan" --lang c -o "$work/$name.c" || return
    emit 0 --lang c "$program" "$work/$name.plan" || return
    cmp -s "$work/out" "$work/$name.c" || fail "$name: standard output is not the file"
    if [ -n "$format" ]; then
        "$format" --style="file:$source_dir/.clang-format" "$work/$name.c" |
            cmp -s - "$work/$name.c" || fail "$name.c is not formatted as this repository"
    fi
    compile "$name" || return
    run 0 "$ranks" "$name" && all_right "$name" "$ranks"
    run 0 "$ranks" "$name" "$work/$name.plan" && all_right "$name, planned" "$ranks"
}

for name in odd-cycle-3 ring-pipeline-4 tp2-dp2-two-streams llama3-8b-tp2-decode-b1 \
    llama3-8b-tp4-decode-b1 moe-8x-tp8; do
    whole "$name" "$programs/$name.json"
done
whole every-op "$here/data/programs/every-op.json"
grep -q 'Not compared: 1 results' "$work/every-op.c" ||
    fail "every-op: what is not compared is not told"

# Programs that lack one thing or another: nothing unused may be emitted.
cat > "$work/gather.json" <<'PROGRAM'
{"format": "symm-program/1", "name": "a \"b\" */ \\ ??/ é", "world": 3, "loop": false,
 "groups": {"x y": [[2, 0, 1]]},
 "buffers": [{"name": "a.b", "dtype": "float16", "shape": [600]},
             {"name": "a_b", "dtype": "float16", "shape": [3, 200]}],
 "ops": [{"op": "reduce_scatter", "site": "\"*/%s", "in": "a.b", "out": "a_b",
          "reduce": "avg", "group": "x y"},
         {"op": "all_gather", "site": "g", "in": "a_b", "count": 200, "group": "x y"}]}
PROGRAM
cat > "$work/hop.json" <<'PROGRAM'
{"format": "symm-program/1", "name": "hop", "world": 2, "loop": true,
 "streams": ["one", "two"],
 "buffers": [{"name": "raw", "bytes": 1000}, {"name": "to", "bytes": 1000}],
 "ops": [{"op": "put", "site": "p", "src": "raw", "dst": "to", "shift": 1, "stream": "two"},
         {"op": "wait", "site": "p", "stream": "two"},
         {"op": "depend", "stream": "two", "on": "two"},
         {"op": "read", "buffers": ["to"], "stream": "two"}]}
PROGRAM
# Names that are one name in C, and one that is another's with its number.
cat > "$work/names.json" <<'PROGRAM'
{"format": "symm-program/1", "name": "names", "world": 2,
 "buffers": [{"name": "a b", "bytes": 8}, {"name": "a_b__2", "bytes": 8},
             {"name": "a_b", "bytes": 8}, {"name": "a-b", "bytes": 8}],
 "ops": [{"op": "write", "buffers": ["a b", "a_b__2", "a_b", "a-b"]},
         {"op": "all_reduce", "site": "s", "in": "a b"}]}
PROGRAM
whole names "$work/names.json"
whole gather "$work/gather.json"
whole hop "$work/hop.json"

# ---- Wrong results are noticed ---------------------------------------------------------

# sabotaged NAME RANKS EDIT WHAT: a source changed by sed finds something wrong.
sabotaged() {
    sed "$3" "$work/$1.c" > "$work/bad.c"
    cmp -s "$work/bad.c" "$work/$1.c" && fail "$4: nothing was changed"
    compile bad && run 1 "$2" bad && says err "rank 0, period 0" "$4"
}
sabotaged odd-cycle-3 4 's/\.from = 2,/.from = 0,/' "the data of another write"
says err "ops[3]: element 0 is " "the data of another write"
sabotaged ring-pipeline-4 4 's/rank - op->shift/rank + op->shift/' "a put from elsewhere"
sabotaged moe-8x-tp8 8 's/.reduce = SYMM_SUM, .from = 0,/.reduce = SYMM_SUM, .from = 2,/' \
    "the wrong buffer"
run 2 2 odd-cycle-3
says err "found a job of 2 ranks, allowed: 4" "a job of 2 ranks"
run 2 1 odd-cycle-3 --help
says err "usage: " "an option"

# ---- Refusals ------------------------------------------------------------------------

emit 0 --help && says out "usage: symm-plan emit PROGRAM.json PLAN.json --lang c" help
odd=$programs/odd-cycle-3.json

# refused STATUS TEXT ARG...: one line on stderr, and no file.
refused() {
    local status=$1 text=$2
    shift 2
    rm -f "$work/no.c"
    emit "$status" "$@" || return
    says err "$text" "symm-plan emit $*"
    [ "$(wc -l < "$work/err")" = 1 ] || fail "symm-plan emit $*: not one line of error"
    [ ! -s "$work/out" ] && [ ! -e "$work/no.c" ] || fail "symm-plan emit $*: it wrote"
}
refused 2 "--lang: found nothing, allowed: c" "$odd" "$work/odd.plan" -o "$work/no.c"
refused 2 "--lang: found 'cobol', allowed: c" "$odd" "$work/odd.plan" --lang cobol
refused 2 "exactly one program and one plan" "$odd" --lang c -o "$work/no.c"
refused 2 "exactly one program and one plan" "$odd" "$work/odd.plan" more --lang c
refused 2 "symm-plan emit: unrecognized option" --nonsense
for command in plan pack; do
    "$plan" "$command" --nonsense >"$work/out" 2>"$work/err"
    [ $? = 2 ] || fail "symm-plan $command --nonsense: exit status"
    says err "symm-plan $command: unrecognized option '--nonsense'" "$command --nonsense"
done
"$plan" check -- "$odd" "$work/odd.plan" >"$work/out" 2>&1 || fail "symm-plan check -- A B"
"$plan" check -- "$odd" -x >"$work/out" 2>&1
[ $? = 2 ] && says out "symm-plan check: -x: cannot be opened" "a file behind --"
"$plan" check --nonsense "$odd" "$work/odd.plan" >"$work/out" 2>&1
[ $? = 2 ] && says out "found option '--nonsense'" "check --nonsense"
refused 2 "$work/none.json" "$work/none.json" "$work/odd.plan" --lang c -o "$work/no.c"
refused 2 "none.plan" "$odd" "$work/none.plan" --lang c -o "$work/no.c"
refused 2 "program_hash: found " "$programs/ring-pipeline-4.json" "$work/odd.plan" --lang c \
    -o "$work/no.c"
refused 2 "cannot be created" "$odd" "$work/odd.plan" --lang c -o "$work/no/such/file.c"
[ ! -w /dev/full ] || refused 2 "cannot be written" "$odd" "$work/odd.plan" --lang c -o /dev/full

# C has no empty tables.
cat > "$work/empty.json" <<'PROGRAM'
{"format": "symm-program/1", "name": "empty", "world": 2,
 "buffers": [{"name": "a", "bytes": 8}], "ops": []}
PROGRAM
sed 's/{"name": "a", "bytes": 8}//; s/\[\]}/[{"op": "depend", "stream": "t", "on": "s"}], "streams": ["s", "t"]}/' \
    "$work/empty.json" > "$work/bare.json"
for name in empty bare; do
    "$plan" plan "$work/$name.json" -o "$work/$name.plan" >/dev/null || fail "$name: no plan"
done
refused 2 "empty: found no ops" "$work/empty.json" "$work/empty.plan" --lang c -o "$work/no.c"
refused 2 "empty: found no buffers" "$work/bare.json" "$work/bare.plan" --lang c \
    -o "$work/no.c"

# More than the library can run: see limits.sh.
for words in "streams 9" "puts 257 back"; do
    # shellcheck disable=SC2086
    "$here/limits.sh" $words > "$work/limits.json"
    "$plan" plan "$work/limits.json" -o "$work/limits.plan" >/dev/null ||
        fail "$words: no plan"
    refused 2 "symm-plan emit: $work/limits.json: " "$work/limits.json" "$work/limits.plan" --lang c \
        -o "$work/no.c"
done

# A plan of this program that is not safe: the buffers that share bytes lose their barriers.
"$plan" plan "$odd" --algorithm one_shot_pull -o "$work/pull.plan" >/dev/null 2>&1
sed 's/"\(entry\|exit\)_barrier": *true/"\1_barrier": false/g; s/"\(plan\|run\)_hash": *"[^"]*", *//g' \
    "$work/pull.plan" > "$work/unsafe.plan"
refused 1 "unsafe.plan: not proved: " "$odd" "$work/unsafe.plan" --lang c -o "$work/no.c"

[ "$failures" = 0 ] && echo "all right"
[ "$failures" = 0 ]
