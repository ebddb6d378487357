#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ctest: cost 15
#
# Installs into an empty prefix, moves the prefix, and uses it: a program is built by
# find_package (shared and static) and by pkg-config, and run. The library exports exactly
# the functions that the public headers declare, versioned, and needs only libc.

set -u
root=${SOURCE_DIR:-$(cd "$(dirname "$0")/.." && pwd)}
build=${BUILD_DIR:-$root/build}
cache=$build/CMakeCache.txt
[ -e "$cache" ] || { echo "$build is not a build of libsymm" && exit 1; }
if grep -q '^SYMM_SANITIZE:[A-Z]*=.' "$cache"; then
    echo "skipped: the library needs a sanitizer's run-time"
    exit 77
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/moved
fail() {
    echo "tool_install: $*"
    [ ! -e "$work/log" ] || cat "$work/log"
    exit 1
}
# try WHAT COMMAND...: runs it, shows its output only if it fails.
try() {
    local what=$1
    shift
    "$@" >"$work/log" 2>&1 || fail "$what: $* failed:"
    rm -f "$work/log"
}

try "installing" cmake --install "$build" --prefix "$work/first"
mv "$work/first" "$prefix"
library=$(find "$prefix" -name libsymm.so.0.2)
[ -n "$library" ] || fail "libsymm.so.0.2 was not installed"
libdir=$(dirname "$library")
for file in "$libdir/libsymm.so" "$libdir/libsymm.a" "$libdir/pkgconfig/symm.pc" \
    "$prefix/include/symm/symm.h" "$prefix/include/symm/version.h" \
    "$libdir/cmake/symm/symmConfig.cmake" "$libdir/cmake/symm/symmConfigVersion.cmake"; do
    [ -e "$file" ] || fail "${file#"$prefix"/} was not installed"
done
find "$prefix/include" -type f ! -name '*.h' | grep . && fail "not a header"
grep -rl "$work/first" "$prefix" --include='*.pc' --include='*.cmake' && fail "names a prefix"

# ---- What it exports ------------------------------------------------------------------

nm -D --defined-only "$library" | awk '{print $NF}' | grep -v '^SYMM_0\.2$' |
    sort >"$work/exported"
grep -v '^symm_[a-z0-9][a-z0-9_]*@@SYMM_0\.2$' "$work/exported" &&
    fail "exports these, which are not symm_* of version SYMM_0.2"
sed 's/@@.*//' "$work/exported" >"$work/names"
# Declarations marked SYMM_API: the name is the last word before the first parenthesis.
cat "$prefix"/include/symm/*.h | grep -v '^ *#' | tr '\n' ' ' |
    grep -oE 'SYMM_API [^;()]*\(' | sed -E 's/ *\($//; s/.*[ *]//' | sort -u >"$work/declared"
[ "$(wc -l <"$work/declared")" -ge 50 ] || fail "too few declarations were found"
comm -13 "$work/names" "$work/declared" | grep . && fail "declares these, exports them not"
comm -23 "$work/names" "$work/declared" | grep . && fail "exports these, declares them not"

# ---- What it needs --------------------------------------------------------------------

allowed='libc\.so\.6|libm\.so\.6|ld-linux[a-z0-9_-]*\.so\.[0-9]+'
readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vxE "$allowed" &&
    fail "the library needs these"
readelf -d "$library" | grep -qF 'Library soname: [libsymm.so.0.2]' || fail "wrong soname"

for tool in "$prefix"/bin/*; do
    [ -e "$tool" ] || continue
    found=$(ldd "$tool" | awk '$1 == "libsymm.so.0.2" { print $3 }')
    [ "$found" -ef "$library" ] || fail "$tool finds ${found:-no library}, not $library"
done

# ---- What is built with it ------------------------------------------------------------

mkdir "$work/consumer"
cat >"$work/consumer/main.c" <<'END'
#include <stdio.h>
#include <string.h>
#include "symm/symm.h"

int main(void)
{
    printf("%s\n", symm_version());
    return strcmp(symm_version(), SYMM_VERSION_STRING) != 0;
}
END
cat >"$work/consumer/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES C)
find_package(symm 0.2 REQUIRED CONFIG)
add_executable(shared main.c)
target_link_libraries(shared PRIVATE symm::symm)
add_executable(static main.c)
target_link_libraries(static PRIVATE symm::symm_static)
END
try "find_package" cmake -S "$work/consumer" -B "$work/out" -DCMAKE_PREFIX_PATH="$prefix"
try "find_package" cmake --build "$work/out"
try "with symm::symm" "$work/out/shared"
try "with symm::symm_static" "$work/out/static"
ldd "$work/out/static" | grep -q libsymm && fail "the static program needs libsymm.so"

export PKG_CONFIG_PATH=$libdir/pkgconfig
command -v pkg-config >/dev/null || fail "pkg-config is missing"
read -ra flags < <(pkg-config --cflags --libs symm)
try "pkg-config" cc -o "$work/by_pc" "$work/consumer/main.c" "${flags[@]}"
try "with pkg-config" env LD_LIBRARY_PATH="$libdir" "$work/by_pc"
read -ra flags < <(pkg-config --static --cflags --libs symm | sed 's/-lsymm/-l:libsymm.a/')
try "pkg-config --static" cc -o "$work/by_pc_static" "$work/consumer/main.c" "${flags[@]}"
try "with pkg-config --static" "$work/by_pc_static"

# ---- Folders given as absolute paths --------------------------------------------------
# Configured only: symm.pc and the tools' RPATH name the folders as they are.

bare=(-DBUILD_TESTING=OFF -DSYMM_CUDA=OFF -DSYMM_MPI=OFF -DCMAKE_EXPORT_COMPILE_COMMANDS=ON)
try "absolute folders" cmake -G "Unix Makefiles" -S "$root" -B "$work/absolute" "${bare[@]}" \
    -DCMAKE_INSTALL_PREFIX="$work/out of" -DCMAKE_INSTALL_BINDIR="$work/programs/bin" \
    -DCMAKE_INSTALL_LIBDIR="$work/libraries/lib" -DCMAKE_INSTALL_INCLUDEDIR="$work/headers/include"
flags=$(PKG_CONFIG_PATH=$work/absolute pkg-config --cflags --libs symm)
[ "${flags% }" = "-I$work/headers/include -L$work/libraries/lib -lsymm" ] ||
    fail "symm.pc of absolute folders says $flags"
grep -rqF -- "-rpath,\"$work/libraries/lib:" "$work/absolute/symm/tools/symm-top" ||
    fail "no RPATH to an absolute folder of libraries"

# ---- As a part of another project -----------------------------------------------------
# Its names of targets are free, its tests and its kind of build stay its own, and the library
# is optimized all the same.

mkdir "$work/around"
cat >"$work/around/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(around LANGUAGES C)
foreach(name man floor rail comparisons norm_benches norm_pair costs_source)
    add_custom_target(\${name})
endforeach()
add_subdirectory("$root" symm)
if(DEFINED BUILD_TESTING OR CMAKE_BUILD_TYPE)
    message(FATAL_ERROR "BUILD_TESTING is '\${BUILD_TESTING}', CMAKE_BUILD_TYPE '\${CMAKE_BUILD_TYPE}'")
endif()
include(CTest)
add_test(NAME of_around COMMAND true)
END
try "add_subdirectory" cmake -G "Unix Makefiles" -S "$work/around" -B "$work/around/out" \
    "${bare[@]:1}"
grep -q -- '-O2 -g' "$work/around/out/compile_commands.json" || fail "a part is not optimized"
ctest --test-dir "$work/around/out" -N | grep -q 'Total Tests: 1$' ||
    fail "a project around has tests of libsymm, or not its own"

# ---- Man pages ------------------------------------------------------------------------

if ls "$build"/man/*.[0-9] >/dev/null 2>&1; then
    for page in "$build"/man/*.[0-9]; do
        ls "$prefix/share/man/man${page##*.}/${page##*/}" >/dev/null || fail "no man page"
    done
fi
echo "installed, moved and used; $(wc -l <"$work/names") functions exported"
