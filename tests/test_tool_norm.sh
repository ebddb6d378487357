#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ctest: cost 7
# ctest: load 2
#
# The programs that measure and test all_reduce_norm on GPUs, over the fake driver: gpu_norm,
# norm_pair and norm_job find nothing wrong, with clusters of blocks, too; gpu_norm sees a wrong
# result.

set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
build=${BUILD_DIR:-$here/../build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
export SYMM_CUDA_LIBRARY=$build/lib/libfake_cuda.so FAKE_CUDA_PROCESSORS=8

for program in gpu_norm norm_pair norm_job symmrun; do
    [ -x "$build/bin/$program" ] && [ -e "$SYMM_CUDA_LIBRARY" ] ||
        { echo "$program or the fake driver was not built: skipped"; exit 77; }
done
# The fake driver looks at the form of an image alone.
for kernels in "${SOURCE_DIR:-$here/..}"/kernels/cuda/*.cu; do
    printf '\x50\xed\x55\xba%060d' 0 > "$work/$(basename "$kernels" .cu).fatbin"
done
export SYMM_KERNELS=$work

# expect STATUS COMMAND...
expect() {
    local wanted=$1 status
    shift
    timeout 120 "$@" >"$work/out" 2>&1 </dev/null
    status=$?
    [ "$status" = "$wanted" ] && return
    echo "FAILED: exit status $status instead of $wanted: $*"
    tail -n 5 "$work/out"
    failures=$((failures + 1))
}

run() { expect "$1" "$build/bin/symmrun" -n "$2" -- "${@:3}"; }
for ranks in 1 2 3 4; do
    run 0 $ranks "$build/bin/gpu_norm" --shapes 60 --most 3000 --delay 50 --seed $ranks
done
run 0 2 "$build/bin/gpu_norm" --shapes 40 --most 3000 --algorithm copy_in
run 1 2 "$build/bin/gpu_norm" --shapes 40 --most 3000 --expect-wrong
expect 0 "$build/bin/norm_pair" --shapes 1x512,3x100 --calls 4 --replays 4
grep -q '^# 0 wrong elements, 0 contenders' "$work/out" || failures=$((failures + 1))
run 0 2 "$build/bin/norm_job" --shapes 1x512,3x100 --calls 4 --replays 4
expect 2 "$build/bin/norm_pair" --shapes 1
# A device with enough multiprocessors for clusters; its blocks take room together.
export FAKE_CUDA_PROCESSORS=132
run 0 2 "$build/bin/gpu_norm" --shapes 30 --most 12000 --seed 7
run 0 4 "$build/bin/gpu_norm" --shapes 20 --most 8000 --delay 50 --seed 8
FAKE_CUDA_MODEL=1 run 0 2 "$build/bin/gpu_norm" --shapes 20 --most 12000 --seed 9
expect 0 "$build/bin/norm_pair" --shapes 1x2048,2x4096 --calls 4 --replays 2
grep -q '^# 0 wrong elements, 0 contenders' "$work/out" || failures=$((failures + 1))
run 0 2 "$build/bin/norm_job" --shapes 2x4096 --calls 4 --replays 2
[ "$failures" -eq 0 ]
