#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# NVTX: with a profiler's library (a stand-in, fake_nvtx.c) each call is one range of the domain
# "symm", on the thread that runs it, with its site, bytes, algorithm and reason as a registered
# message; ranges end where they begin. Without one, or with one that does not load, there are none.

set -u
bin=${BUILD_DIR:?}/bin
library=$BUILD_DIR/lib/libfake_nvtx.so
for need in "$bin/symmrun" "$bin/trace_program" "$library"; do
    [ -e "$need" ] || {
        echo "$need is not built"
        exit 77
    }
done

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

fail() {
    echo "FAIL: $*"
    failed=1
}

# job LIBRARY ENV... -- ARGUMENTS: runs trace_program as 2 ranks; what NVTX gets goes to NAME.PID.
job() {
    local variables=(NVTX_INJECTION64_PATH="$1")
    shift
    while [ "$1" != -- ]; do
        variables+=("$1")
        shift
    done
    shift
    rm -f "$folder"/nvtx.*
    env SYMM_RUNTIME_DIR="$folder" SYMM_BACKEND=host FAKE_NVTX_OUT="$folder/nvtx" \
        "${variables[@]}" "$bin/symmrun" -n 2 --no-prefix "$bin/trace_program" "$@" \
        >"$folder/out" 2>"$folder/err" || fail "the program: $(cat "$folder/err")"
}

# ranges WHAT: as many ranges as calls, by operation, each ended by its thread before the next.
ranges() {
    sed 's/rank . //' "$folder/out" | awk '{n[$1] += $2} END {for (op in n) print op, n[op]}' |
        sort >"$folder/wanted"
    cat "$folder"/nvtx.* | awk '/^push/ {n[$5]++} END {for (op in n) print op, n[op]}' |
        sort >"$folder/found"
    diff "$folder/wanted" "$folder/found" || fail "$1: other ranges than calls"
    ! grep -h '^bad' "$folder"/nvtx.* || fail "$1: not as NVTX has it"
    awk '/^push/ {if (open[$2]++) exit 1} /^pop/ {if (--open[$2] < 0) exit 1}
        END {for (t in open) if (open[t]) exit 1}' "$folder"/nvtx.* || fail "$1: open ranges"
    [ "$(cat "$folder"/nvtx.* | grep -c '^domain symm$')" = 2 ] || fail "$1: the domain"
}

job "$library" -- calls=50 streams=3000 puts=5 barriers=3 fail
ranges "host"
reason="so few bytes travel beside the signal"
for message in "8 say \"\\\\ 8 B copy_in: $reason" "8 queued 8 B copy_in: $reason"; do
    grep -hq "^push [0-9]* [0-9]* ${message%% *} all_reduce ${message#* }\$" "$folder"/nvtx.* ||
        fail "no range '$message'"
done
grep -hq "^push [0-9]* [0-9]* 64 put 64 B\$" "$folder"/nvtx.* || fail "no range of a put"
category=$(grep -h '^category .* put$' "$folder"/nvtx.* | head -1 | cut -d' ' -f2)
grep -hq "^push [0-9]* $category 64 put" "$folder"/nvtx.* || fail "a range of another category"
[ "$(cat "$folder"/nvtx.* | grep '^push' | grep queued | cut -d' ' -f2 | sort -u | wc -l)" = 2 ] ||
    fail "queued calls are not on the streams' threads"
! cat "$folder"/nvtx.* | grep '^push' | grep -v queued | cut -d' ' -f2 | sort -u |
    grep -qxF "$(cat "$folder"/nvtx.* | grep '^push' | grep queued | cut -d' ' -f2 | sort -u)" ||
    fail "queued calls are on the caller's thread"
[ "$(cat "$folder"/nvtx.* | grep -c '^string')" -le 20 ] || fail "messages are registered anew"

job "$library" SYMM_TRACE="$folder/trace" -- calls=50 streams=3000
ranges "with a trace"
job "$folder/none.so" -- calls=5
job "" -- calls=5
! ls "$folder"/nvtx.* 2>/dev/null || fail "ranges without a library"

if [ -e "$BUILD_DIR/lib/libfake_cuda.so" ]; then
    mkdir "$folder/kernels"
    for file in "$SOURCE_DIR"/kernels/cuda/*.cu; do # the fake driver wants modules by their looks
        printf '\x50\xed\x55\xba\1\0\0\0\0\0\0\0\0\0\0\0' \
            >"$folder/kernels/$(basename "$file" .cu).fatbin"
    done
    job "$library" SYMM_BACKEND=cuda SYMM_CUDA_LIBRARY="$BUILD_DIR/lib/libfake_cuda.so" \
        FAKE_CUDA_DEVICES=2 SYMM_KERNELS="$folder/kernels" -- calls=20 streams=20 puts=5 barriers=3
    ranges "CUDA"
fi

exit $failed
