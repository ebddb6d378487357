#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The documents are correct: every complete program of README.md, docs/guide.md and
# docs/planner.md is extracted. The commands of the console block after it run unchanged
# against the build tree and must print the block's output (lines in any order; a line that
# ends in " ..." shows a beginning). Functions, macros and variables named in the documents
# exist, link targets exist, and the man pages build.

set -u
export LC_ALL=C
root=${SOURCE_DIR:-$(cd "$(dirname "$0")/.." && pwd)}
build=${BUILD_DIR:-$root/build}
if grep -q '^SYMM_SANITIZE:[A-Z]*=.' "$build/CMakeCache.txt" 2>/dev/null; then
    echo "skipped: the library needs a sanitizer's run-time"
    exit 77
fi
for needed in "$build/bin/symmrun" "$build/lib/libsymm.so" "$build/include/symm/version.h"; do
    [ -e "$needed" ] || { echo "$needed is missing: build first, or set BUILD_DIR" && exit 1; }
done
command -v pkg-config >/dev/null || { echo "skipped: pkg-config is missing" && exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
fail() {
    echo "FAILED: $*"
    failed=$((failed + 1))
}

# What another launcher around this test has set must not decide.
for name in $(compgen -e | grep -E '^(SYMM_|OMPI_|PMIX_|PMI_|SLURM_|MPI_|TORCHELASTIC_)'); do
    unset "$name"
done
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT

# An installed libsymm, as far as compiler and loader can tell.
cat >"$work/symm.pc" <<END
Name: symm
Description: the build tree
Version: 0
Cflags: -I$root/include -I$build/include
Libs: -L$build/lib -lsymm
END
export PKG_CONFIG_PATH=$work LD_LIBRARY_PATH=$build/lib PATH=$build/bin:$PATH
export SYMM_RUNTIME_DIR=$work/runtime SYMM_HEAP_BYTES=1G SYMM_TEAM_BYTES=64M
mkdir -m 700 "$SYMM_RUNTIME_DIR"

# ---- Programs -------------------------------------------------------------------------

# blocks FILE DIR: fenced blocks as DIR/001.c, DIR/002.console, ... by their language.
blocks() {
    awk -v dir="$2" '
        /^```/ && !inside { language = substr($0, 4); inside = 1
                            file = sprintf("%s/%03d.%s", dir, ++n, language ? language : "none")
                            printf "" >file; next }
        /^```/ { inside = 0; close(file); next }
        inside { print >file }
        END { exit inside }' "$1"
}

# commands CONSOLE: runs its lines behind "$ " one after the other.
commands() {
    local line
    while IFS= read -r line; do
        timeout 300 bash -c "${line#\$ }" 2>&1 </dev/null ||
            echo "exit status $? of: ${line#\$ }"
    done < <(grep '^\$ ' "$1")
}

# same WANTED GOT: the same lines, sorted; "BEGINNING ..." stands for a longer one.
same() {
    local wanted got
    [ "$(wc -l <"$1")" = "$(wc -l <"$2")" ] || return 1
    while IFS= read -r wanted <&3 && IFS= read -r got <&4; do
        case $wanted in
        *" ...") [[ $got == "${wanted%...}"* ]] || return 1 ;;
        *) [ "$got" = "$wanted" ] || return 1 ;;
        esac
    done 3< <(sort "$1") 4< <(sort "$2")
}

programs=0
# run_program WHERE PROGRAM CONSOLE DIR
run_program() {
    local source
    source=$(sed -nE 's/^\$ cc .* ([a-z_]+\.c)( .*)?$/\1/p' "$3" | head -n 1)
    [ -n "$source" ] || { fail "$1: the console block behind it compiles no file"; return; }
    mkdir "$4" && cp "$2" "$4/$source"
    (cd "$4" && commands "$3") >"$4/got"
    grep -v '^\$ ' "$3" >"$4/wanted"
    programs=$((programs + 1))
    [ -s "$4/wanted" ] || fail "$1: $source shows no output"
    same "$4/wanted" "$4/got" && return
    fail "$1: $source does not print what it is said to"
    diff "$4/wanted" "$4/got"
}

for document in README.md docs/guide.md docs/planner.md; do
    mkdir "$work/${document##*/}"
    blocks "$root/$document" "$work/${document##*/}" || fail "$document: a block has no end"
    for block in "$work/${document##*/}"/*.c; do
        grep -q 'int main(' "$block" 2>/dev/null || continue
        number=$(basename "$block" .c)
        next=$(printf '%s/%03d.console' "${block%/*}" $((10#$number + 1)))
        if [ -e "$next" ]; then
            run_program "$document, block $number" "$block" "$next" \
                "$work/${document##*/}/$number.run"
        else
            fail "$document, block $number: a whole program without a console block behind it"
        fi
    done
done
[ "$programs" -ge 5 ] || fail "only $programs programs were found in the documents"

# ---- Names, links ---------------------------------------------------------------------

documents=("$root/README.md" "$root"/docs/*.md "$root"/docs/man/symm.7.scd)
{
    find "$root/include" "$root/symm" "$root/kernels" -type f \
        -regex '.*\.\(c\|h\|h\.in\|cuh\|py\)' -exec cat {} + |
        grep -oE '\b(symm|SYMM)_[A-Za-z0-9_]+'
    grep -ohE '\bSYMM_TEST_[A-Z]+' "$root"/tests/*.c # the tests' own variables
    # What tables of macros make, and files whose names look alike.
    sed -nE 's/^    X\(([A-Z_0-9]+), [A-Z]+, .*/SYMM_\1/p' "$root/symm/util/option_table.h"
    grep -oE 'X\([A-Z0-9_]+, -?[0-9]+, "' "$root/include/symm/types.h" |
        sed -E 's/X\(([A-Z0-9_]+),.*/SYMM_\1/'
    find "$root"/tests "$root"/bench "$root"/docs "$root"/symm "$root"/kernels -type f |
        sed -E 's/.*\///; s/\..*//' | grep -E '^symm_'
} | sort -u >"$work/known"
# A name before "..." or "*" is a family: its beginning must exist.
for document in "${documents[@]}"; do
    [ -e "$document" ] || { fail "${document#"$root"/} is missing"; continue; }
    case ${document##*/} in contributing.md) continue ;; esac
    case $document in
    */migration.md) sed -E 's/^\|[^|]*//' "$document" ;; # its first column has the old names
    *) sed 's/\\_/_/g' "$document" ;;
    esac | grep -oE '\b(symm|SYMM)_[A-Za-z0-9_]+' | sort -u |
        while IFS= read -r name; do
            case $name in
            *_) grep -q "^$name" "$work/known" ;;
            *) grep -qx "$name" "$work/known" ;;
            esac || echo "${document#"$root"/}: $name does not exist"
        done
    case $document in
    *.md)
        awk '/^```/ { code = !code } !code' "$document" |
            grep -oE '\]\([^)#: ]+' | sed 's/^](//' | sort -u |
            while IFS= read -r link; do
                [ -e "$(dirname "$document")/$link" ] ||
                    echo "${document#"$root"/}: the link to $link leads nowhere"
            done
        ;;
    esac
done >"$work/said"
[ ! -s "$work/said" ] || { cat "$work/said"; fail "names or links"; }

# ---- Man pages ------------------------------------------------------------------------

pages=0
if command -v scdoc >/dev/null; then
    for page in "$root"/docs/man/*.scd; do
        scdoc <"$page" >"$work/page" || fail "${page#"$root"/} is refused by scdoc"
        pages=$((pages + 1))
    done
fi
[ "$failed" -eq 0 ] || { echo "$failed failed" && exit 1; }
echo "$programs programs of the documents run as shown; $pages man pages build"
