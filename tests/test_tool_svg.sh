#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Drawings of symm-plan: every buffer is a box with its name, every barrier a line, peak and
# lower bound are marked; names are escaped; a failed write leaves no file.

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

[ -x "$plan" ] || { echo "symm-plan was not built: skipped"; exit 77; }
"$plan" plan "$programs/odd-cycle-3.json" -o "$work/plan" >"$work/out" 2>&1
if grep -q jansson "$work/out"; then
    echo "no libjansson.so.4: skipped"
    exit 77
fi

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# draw NAME PROGRAM ARG...: its drawing is $work/NAME.svg
draw() {
    local name=$1 program=$2
    shift 2
    "$plan" plan "$program" -o "$work/$name.plan" --svg "$work/$name.svg" "$@" \
        >"$work/out" 2>&1 || { fail "$name"; head -n 3 "$work/out"; }
    if command -v xmllint >/dev/null; then
        xmllint --noout "$work/$name.svg" || fail "$name.svg is not well-formed"
    fi
}

# counts NAME TEXT WANTED
counts() {
    local found
    found=$(grep -c -- "$2" "$work/$1.svg")
    [ "$found" = "$3" ] || fail "$1.svg: $found of $3 times $2"
}

decode=$programs/llama3-70b-tp8-decode-b32.json
draw pull "$decode" --algorithm one_shot_pull
counts pull '<title>' 160
counts pull 'class="m name"' 160
counts pull 'class="entry"' 160
counts pull 'class="exit"' 0
counts pull 'class="strong"' 1
counts pull '>peak 1048576<' 1
counts pull '>lower bound 1048576<' 1
counts pull '>l79.mlp</text>' 1

# Boxes of a pixel or two have their names above them.
draw family "$programs/llama3-70b-tp8-serve-family.json"
names=$(grep -cE 'class="(m )?name"' "$work/family.svg")
[ "$names" = 1600 ] || fail "family.svg: $names of 1600 names"

draw streams "$programs/tp2-dp2-two-streams.json"
entries=$(grep -o '"entry_barrier": *true' "$work/streams.plan" | wc -l)
exits=$(grep -o '"exit_barrier": *true' "$work/streams.plan" | wc -l)
[ "$entries" -gt 0 ] && [ "$exits" -gt 0 ] || fail "the program has no barriers to draw"
counts streams 'class="entry"' "$entries"
counts streams 'class="exit"' "$exits"

sed 's/"b1"/"<\&>"/g' "$programs/odd-cycle-3.json" > "$work/odd.json"
draw odd "$work/odd.json"
counts odd '>&lt;&amp;&gt;</text>' 1

"$plan" plan "$decode" -o "$work/plan" --svg "$work/no/such/file.svg" >"$work/out" 2>"$work/err"
[ $? = 2 ] || fail "a drawing that cannot be written: not exit status 2"
grep -q 'cannot be created' "$work/err" || fail "a drawing that cannot be written: not told"

# ---- What is left after an error -----------------------------------------------------

odd=$programs/odd-cycle-3.json
rm -f "$work/plan"
"$plan" plan "$odd" -o "$work/plan" --svg "$work/no/p.svg" >"$work/out" 2>&1
[ $? = 2 ] && [ ! -e "$work/plan" ] || fail "a drawing that cannot be written: a plan is left"
"$plan" plan "$odd" -o "$work/no/plan" --svg "$work/p.svg" >"$work/out" 2>"$work/err"
[ $? = 2 ] && [ ! -e "$work/p.svg" ] || fail "a plan that cannot be written: a drawing is left"
grep -qF "symm-plan plan: $work/no/plan: cannot be created" "$work/err" ||
    fail "a plan that cannot be written: its path is not told"
if [ -w /dev/full ]; then
    "$plan" plan "$odd" >/dev/full 2>"$work/err"
    [ $? = 2 ] || fail "a full standard output: not exit status 2"
    grep -q '^symm-plan: standard output cannot be written: ' "$work/err" ||
        fail "a full standard output: not told"
fi

# Files beside the plan are somebody's; equal paths would leave one of two results.
echo mine > "$work/mine.new"
"$plan" plan "$odd" -o "$work/mine" >"$work/out" 2>&1 || fail "a plan beside another file"
[ "$(cat "$work/mine.new")" = mine ] || fail "a file beside the plan is gone"
[ -s "$work/mine" ] && [ ! -e "$work/mine.new1" ] || fail "a plan beside another file"
printf 'id,lower,upper,size\na,0,1,4\n' > "$work/in.csv"
for _ in new old; do # when the file is not there yet, and when it is
    for svg in "$work/both" "$work/./both" "$work/../${work##*/}/both"; do
        "$plan" plan "$odd" -o "$work/both" --svg "$svg" >"$work/out" 2>"$work/err"
        [ $? = 2 ] || fail "plan -o and --svg $svg: not exit status 2"
        "$plan" pack "$work/in.csv" --fast -o "$work/both" --svg "$svg" >"$work/out" 2>&1
        [ $? = 2 ] || fail "pack -o and --svg $svg: not exit status 2"
    done
    grep -q 'another file than that of -o' "$work/err" || fail "equal paths: not told"
    [ ! -s "$work/both" ] || fail "equal paths: something was written"
    : > "$work/both"
done

[ "$failures" = 0 ] && echo "all right"
[ "$failures" = 0 ]
