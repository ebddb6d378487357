#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Libraries that are loaded when they are wanted: without jansson a plan is refused with the
# package's name, without hwloc the topology is read from /sys; neither is loaded from the
# working directory, and no call but these loads them.

set -u
root=${SOURCE_DIR:-$(cd "$(dirname "$0")/.." && pwd)}
build=${BUILD_DIR:-$root/build}
programs=$root/bench/programs
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "tool_libraries: $*"
    exit 1
}
if grep -q '^SYMM_SANITIZE:[A-Z]*=.' "$build/CMakeCache.txt"; then
    echo "skipped: a sanitizer's run-time loads before other libraries"
    exit 77
fi
cc=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")

mkdir "$work/broken" "$work/empty" "$work/here"
echo 'int symm_test_nothing;' >"$work/empty.c"
cat >"$work/planted.c" <<'END'
#include <unistd.h>
__attribute__((constructor)) static void planted(void)
{
    _exit(write(1, "PLANTED\n", 8) == 8 ? 99 : 98);
}
END
for name in libjansson.so.4 libhwloc.so.15; do
    echo "no library" >"$work/broken/$name"
    "$cc" -shared -fPIC -o "$work/empty/$name" "$work/empty.c" || exit 1
    "$cc" -shared -fPIC -o "$work/here/$name" "$work/planted.c" || exit 1
done
with() { # FOLDER COMMAND...: with the libraries of a folder
    local folder=$work/$1
    shift
    LD_LIBRARY_PATH=$folder timeout 60 "$@" 2>&1
}

# ---- jansson ----------------------------------------------------------------------------

program=$programs/odd-cycle-3.json
[ -e "$program" ] || fail "$program is missing"
for folder in broken empty; do
    said=$(with $folder "$build/bin/symm-plan" plan "$program") &&
        fail "a plan was made with a $folder libjansson.so.4"
    case $folder:$said in
        broken:*"$program"*"libjansson.so.4 does not load: "*"install jansson (Debian: libjansson4)"*) ;;
        empty:*"$program"*"libjansson.so.4 lacks json_"*"install jansson (Debian: libjansson4)"*) ;;
        *) fail "with a $folder libjansson.so.4: $said" ;;
    esac
done
said=$(with here "$build/bin/symm-plan" plan "$program")
[ "$said" = PLANTED ] || fail "reading a program does not load libjansson.so.4: $said"
said=$(with here "$build/bin/symm-plan" --version)
[ "${said%% *}" = symm-plan ] || fail "--version loads libjansson.so.4: $said"

# ---- hwloc ------------------------------------------------------------------------------

said=$(with broken "$build/bin/symm-info" --topology) || fail "without hwloc: $said"
case $said in
    *"hwloc "[0-9]*) fail "a broken libhwloc.so.15 was used: $said" ;;
    */sys*) ;;
    *) fail "the topology without hwloc does not name /sys: $said" ;;
esac
pus=$(grep -c 'PU' <<<"$said")
[ "$pus" -gt 0 ] || fail "no PU without hwloc: $said"
with broken "$build/bin/symm-info" --topology | grep -q 'hwloc failed' &&
    fail "a missing library is reported as a failure of hwloc"
if grep -q '^HWLOC_FOUND:INTERNAL=1' "$build/CMakeCache.txt"; then
    said=$(with here "$build/bin/symm-info" --topology)
    [ "$said" = PLANTED ] || fail "the topology does not load libhwloc.so.15: $said"
fi

# ---- The working directory ----------------------------------------------------------------

said=$(cd "$work/here" && env -u LD_LIBRARY_PATH "$build/bin/symm-info" --topology 2>&1)
case $said in *PLANTED*) fail "libhwloc.so.15 is loaded from the working directory" ;; esac
said=$(cd "$work/here" && env -u LD_LIBRARY_PATH "$build/bin/symm-plan" plan "$program" 2>&1)
case $said in *PLANTED*) fail "libjansson.so.4 is loaded from the working directory" ;; esac
exit 0
