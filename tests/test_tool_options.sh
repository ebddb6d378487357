#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Each option that a tool takes, by the tables in its source (ARGS_ROW), is in its --help, or that
# of a command, and has an entry in its man page. The library reads no number by the program's
# locale, whose decimal point may be a comma.
# ctest: cost 1

set -u
export LC_ALL=C
root=${SOURCE_DIR:-$(cd "$(dirname "$0")/.." && pwd)}
bin=${BUILD_DIR:-$root/build}/bin
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
count=0

# names FILE: the options that a text names, one a line.
names() {
    grep -oE '(^|[^a-z0-9_.-])--?[a-zA-Z][a-z-]*' "$1" | sed -E 's/^[^-]*//' |
        grep -E '^(--[a-z-]+|-[a-zA-Z])$' | sort -u
}

# look TOOL FOLDER COMMAND...
look() {
    local tool=$1 folder=$root/$2 page=$root/docs/man/$1.1.scd where
    shift 2
    [ -x "$bin/$tool" ] || { echo "$tool is not built: left out"; return; }
    tr '\n' ' ' < <(cat "$folder"/*.c) | grep -oE 'ARGS_ROW\( *("[a-z-]+"|NULL), *(0|'"'.'"')' |
        sed -E "s/ARGS_ROW\( *//; s/NULL, *//; s/\"([a-z-]+)\", */--\1 /; s/'(.)'/-\1/; s/ 0$//" |
        tr ' ' '\n' | grep . | sort -u >"$work/taken"
    [ -s "$work/taken" ] || { echo "$tool: no table of options was found"; failed=1; }
    "$bin/$tool" --help >"$work/help"
    for command in "$@"; do
        "$bin/$tool" "$command" --help >>"$work/help"
    done
    grep '^[*]' "$page" | sed 's/\\//g; s/[*_]/ /g' >"$work/page" # the lines that begin an entry
    for where in help page; do
        names "$work/$where" >"$work/said"
        # --help need not name itself, nor a letter that stands for a name.
        comm -23 "$work/taken" "$work/said" |
            { [ $where = page ] && cat || grep -vE '^(-.|--help|--output)$'; } >"$work/missing"
        [ ! -s "$work/missing" ] ||
            { echo "$tool: $(tr '\n' ' ' <"$work/missing")is not in its $where"; failed=1; }
    done
    count=$((count + $(wc -l <"$work/taken")))
}

look symmrun symm/tools/symmrun
look symm-info symm/tools/symm-info dump trace
look symm-top symm/tools/symm-top
look symm-plan planner/tool plan check emit merge pack
look symm-perf bench/perf

# Tools and the programs of the build are in the C locale.
by_locale=$(grep -rnE '\b(strto[fd]|strtold|ato[fd]|sto[fd]|stold)\(|scanf\(.*%l?[fgea]' \
    --include='*.[ch]' --include='*.[ch]pp' "$root/symm" "$root/planner" "$root/kernels" |
    grep -vE '/(tools|tool)/|/select/costs_source\.c:')
[ -z "$by_locale" ] || { echo "a number by the locale (util/seconds.h): $by_locale"; failed=1; }

[ "$failed" = 0 ] || exit 1
echo "$count options are in --help and in the man pages"
