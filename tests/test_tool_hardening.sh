#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ctest: cost 6
# ctest: load 2
#
# The build is hardened: full RELRO, no executable stack, no text relocations, a RUNPATH
# of absolute folders and $ORIGIN alone, stack protectors, checked string functions (in
# optimized builds without sanitizers), control-flow protection on x86-64, no undefined
# symbols in the libraries. And no program loads a library from the working directory.
# readelf reads the ELF files; the last part plants libraries and starts the tools.

set -u
export LC_ALL=C
build=${BUILD_DIR:-build}
command -v readelf >/dev/null || { echo 'no readelf: skipped'; exit 77; }
[ -e "$build/lib/libsymm.so" ] || { echo 'no build: skipped'; exit 77; }
build=$(cd "$build" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0 checks=0

fail() {
    echo "FAILED: $*"
    failed=1
}

cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }

# rpath_is_safe PATH: no element is empty or relative, which is the working directory's.
rpath_is_safe() {
    case ":$1:" in *::*) return 1 ;; esac
    local element
    while read -r element; do
        case $element in /* | '$ORIGIN' | '$ORIGIN'/* | '${ORIGIN}' | '${ORIGIN}'/*) ;; *) return 1 ;; esac
    done < <(tr ':' '\n' <<<"$1")
}

for bad in '$ORIGIN/../lib:' ':/usr/lib' '/usr/lib::/lib' lib . '$ORIGINAL'; do
    ! rpath_is_safe "$bad" || fail "the check takes the RUNPATH '$bad' for safe"
done
rpath_is_safe '$ORIGIN/../lib:/opt/lib' || fail "the check takes a good RUNPATH for bad"

# check_file FILE: what every linked file must have.
check_file() {
    local file=$1 name=${1#"$build"/} headers dynamic path
    checks=$((checks + 1))
    headers=$(readelf -lW "$file")
    dynamic=$(readelf -dW "$file")
    grep -q 'GNU_RELRO' <<<"$headers" || fail "$name: no RELRO segment"
    grep -qE 'BIND_NOW|FLAGS_1.* NOW' <<<"$dynamic" || fail "$name: not bound at start (-z now)"
    ! grep 'GNU_STACK' <<<"$headers" | grep -q 'RWE' || fail "$name: its stack is executable"
    ! grep -q 'TEXTREL' <<<"$dynamic" || fail "$name: has text relocations"
    path=$(sed -n 's/.*(\(RUNPATH\|RPATH\)).*\[\(.*\)\]/\2/p' <<<"$dynamic")
    [ -z "$path" ] && ! grep -qE '\((RUNPATH|RPATH)\)' <<<"$dynamic" || rpath_is_safe "$path" ||
        fail "$name: the RUNPATH [$path] leads to the working directory"
}

compiled=("$build"/bin/symmrun "$build"/bin/symm-info "$build"/bin/symm-top "$build"/bin/symm-perf
    "$build"/bin/symm-plan "$build"/lib/libsymm.so "$build"/lib/libsymm_mpi.so)
for file in "$build"/bin/* "$build"/lib/*.so "$build"/tests/*; do
    [ -f "$file" ] && [ ! -L "$file" ] || [ "$file" = "$build/lib/libsymm.so" ] || continue
    # Programs of other compilers (nvcc, mpicc, clang's fuzzer) have flags of their own.
    case $file in */bin/gpu_* | */bin/mpi_* | */bin/fuzz_* | */bin/floor) continue ;; esac
    readelf -h "$file" 2>/dev/null | grep -qE 'Type: +(EXEC|DYN)' || continue
    check_file "$file"
done
[ "$checks" -ge 3 ] || fail "only $checks files were found in $build"

# ---- What is compiled ------------------------------------------------------------------

sanitize=$(cached SYMM_SANITIZE)
kind=$(cached CMAKE_BUILD_TYPE)
for file in "${compiled[@]}"; do
    [ -e "$file" ] || continue
    name=${file#"$build"/}
    symbols=$(readelf --dyn-syms -W "$file")
    grep -q 'UND __stack_chk_fail' <<<"$symbols" || fail "$name: no stack protectors"
    case ${sanitize:+sanitized}$kind in
        Release | RelWithDebInfo | MinSizeRel)
            grep -qE 'UND __[a-z]+_chk(@|$| )' <<<"$symbols" ||
                fail "$name: no checked functions (_FORTIFY_SOURCE)"
            ;;
    esac
    # Not the file's mark: the linker drops it where the C library's start files lack it.
    if [ "$(uname -m)" = x86_64 ] && [ -n "$(cached SYMM_HAS_fcf_protection_full)" ]; then
        [ "$(objdump -d --no-show-raw-insn "$file" | grep -c 'endbr64')" -gt 10 ] ||
            fail "$name: no control-flow protection"
    fi
    # A sanitizer's functions are in the program.
    if [ -z "$sanitize" ] && [ "$name" != "${name#lib/}" ]; then
        ! ldd -r "$file" 2>&1 | grep 'undefined symbol' || fail "$name: undefined symbols (-z defs)"
    fi
done

# ---- The working directory -------------------------------------------------------------

cc=$(cached CMAKE_C_COMPILER)
if [ -z "$sanitize" ] && [ -n "$cc" ]; then
    mkdir "$work/here"
    cat >"$work/planted.c" <<'END'
#include <unistd.h>
__attribute__((constructor)) static void planted(void)
{
    _exit(write(1, "PLANTED\n", 8) == 8 ? 99 : 98);
}
END
    for tool in symmrun symm-info symm-top symm-perf symm-plan; do
        [ -x "$build/bin/$tool" ] || continue
        for library in $(readelf -dW "$build/bin/$tool" "$build/lib/libsymm.so" |
            sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u); do
            [ -e "$work/here/$library" ] ||
                "$cc" -shared -fPIC -o "$work/here/$library" "$work/planted.c" || exit 1
        done
        said=$(cd "$work/here" && env -u LD_LIBRARY_PATH timeout 60 "$build/bin/$tool" --version 2>&1 | head -c 200)
        case $said in
            *PLANTED*) fail "$tool loads libraries from the working directory" ;;
            "$tool "*) ;;
            *) fail "$tool --version beside planted libraries: $said" ;;
        esac
    done
fi

[ "$failed" = 0 ] || exit 1
echo "$checks files are hardened"
