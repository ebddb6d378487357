#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ctest: cost 10
# ctest: load 2
#
# Includes between rooms: tests/rooms.py checks every #include of the tree against
# tests/rooms.txt. Tests may include anything. On a copy of the tree the check must fail.

set -u
root=${SOURCE_DIR:-$(cd "$(dirname "$0")/.." && pwd)}
command -v python3 >/dev/null || { echo "no python3"; exit 77; }

# check ROOT: prints every violation; the status says whether there was none.
check() { python3 -B "$root/tests/rooms.py" "$1"; }

# must_fail FILE LINE TEXT: with LINE added to FILE the check fails and says TEXT.
must_fail() {
    local said status
    [ -e "$copy/$1" ] || { echo "$1 does not exist: plant elsewhere"; missed=1; return; }
    cp "$copy/$1" "$kept"
    printf '%s\n' "$2" >>"$copy/$1"
    said=$(check "$copy")
    status=$?
    cp "$kept" "$copy/$1"
    planted=$((planted + 1))
    if [ "$status" -eq 0 ]; then
        echo "planted in $1, not found: $2"
    elif ! grep -qF "$3" <<<"$said"; then
        echo "planted in $1: $2: expected \"$3\", got: $said"
    else
        return
    fi
    missed=1
}

files=$(cd "$root" && find include symm kernels -name '*.[ch]' | wc -l)
if [ "$files" -lt 10 ]; then
    echo "only $files files found below $root: nothing to check?"
    exit 1
fi
check "$root" || exit 1

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
copy=$work/tree kept=$work/kept
mkdir -p "$copy/tests"
for folder in include symm kernels planner bench tests/rooms.txt; do
    cp -r "$root/$folder" "$copy/$folder"
done
planted=0 missed=0
must_fail include/symm/symm.h '#include <pthread.h>' 'only headers of the C standard'
must_fail include/symm/symm.h '#include "util/status.h"' 'only public headers'
must_fail symm/tools/symmrun/main.c '#include "core/heap.h"' 'may not include symm/core'
must_fail symm/tools/symm-info/main.c '#  include "bootstrap/job.h"' \
    'may not include symm/bootstrap'
must_fail bench/perf/main.c '#include "kernels/reduce/reduce.h"' \
    'may not include kernels/reduce'
must_fail bench/perf/main.c '#include "../symm/status.h"' "from its part's root"
must_fail bench/perf/main.c '#include <symm/job.h>' 'may write <symm/...>'
must_fail symm/core/heap.c '#include "call/channel.h"' 'may not include symm/call'
must_fail symm/core/heap.c '#include "bootstrap/bootstrap.h"' \
    'may not include symm/bootstrap'
must_fail symm/core/heap.c '#include "kernels/host/round.h"' \
    'may not include kernels/host'
must_fail symm/core/heap.c '#include "heap.h"' "from its part's root"
must_fail symm/core/heap.c '#include "symm/status.h"' "from its part's root"
must_fail symm/core/heap.c '#include <symm/symm.h>' 'may write <symm/...>'
must_fail symm/core/heap.c '#include <hwloc.h>' 'only for symm/topology'
must_fail symm/core/heap.c '#include <jansson.h>' 'only for'
must_fail symm/core/heap.c '#include <cuda.h>' 'only for'
must_fail symm/util/status.h '#include "topology/bind.h"' \
    'these modules include each other'
must_fail kernels/reduce/reduce.c '#include "util/status.h"' 'may not include symm/util'
must_fail kernels/reduce/reduce.c '#include <cuda.h>' 'only for'
must_fail planner/check/fit.c '#include "pack/items.h"' 'may not include planner/pack'
must_fail planner/order/order.c '#include "pack/items.h"' 'may not include planner/pack'
must_fail tests/rooms.txt 'circle: symm/core/heap symm/util/log' 'no such circle'
must_fail tests/rooms.txt 'symm/core: symm/util' 'no "May include:"'
[ "$missed" = 0 ] || exit 1
check "$copy" || exit 1
echo "$files files keep the include rules; all of $planted planted violations were found"
