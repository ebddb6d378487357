#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ctest: cost 8
# ctest: load 2
#
# What measures on machines that are had for minutes: bench/measure_8.sh rehearsed over the fake
# driver; it, bench/decode_step.py and norm_job say what is wrong before they begin; and
# bench/setup_flashinfer.sh does not take the headers of another version.

set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "${SOURCE_DIR:-$here/..}" && pwd)
build=${BUILD_DIR:-$here/../build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
export SYMM_CUDA_LIBRARY=$build/lib/libfake_cuda.so FAKE_CUDA_PROCESSORS=8

for program in norm_job gpu_norm symm-perf symmrun; do
    [ -x "$build/bin/$program" ] && [ -e "$SYMM_CUDA_LIBRARY" ] ||
        { echo "$program or the fake driver was not built: skipped"; exit 77; }
done

# expect STATUS WORDS COMMAND...: WORDS: in its output.
expect() {
    local wanted=$1 words=$2 status
    shift 2
    timeout 120 "$@" >"$work/out" 2>&1 </dev/null
    status=$?
    [ "$status" = "$wanted" ] && grep -qF -- "$words" "$work/out" && return
    echo "FAILED: exit status $status instead of $wanted, or no '$words': $*"
    tail -n 5 "$work/out"
    failures=$((failures + 1))
}

# ---- Wrong arguments ----------------------------------------------------------------------

measure() { expect "$1" "$2" bash "$root/bench/measure_8.sh" --build "$build" "${@:3}"; }
measure 2 'no step is called nrom' --out "$work/m" --only norm,nrom
measure 2 '--ranks two' --out "$work/m" --ranks two
measure 2 '--minutes 0' --out "$work/m" --minutes 0
measure 2 '[--only STEP,...]' --help
: >"$work/file"
measure 2 'cannot create directory' --out "$work/file"
[ ! -e "$work/m" ] || failures=$((failures + 1))

if command -v python3 >/dev/null; then
    step() { expect 2 "$1" env -u RANK python3 "$root/bench/decode_step.py" "${@:2}"; }
    step 'by torchrun, or with --ranks 1'
    step 'no equal parts' --ranks 1 --tp 3
    step '--batch' --ranks 1 --batch 1,0
fi

# A backend that is not there, not the host's in its place.
expect 3 'symm_init: ' env SYMM_KERNELS="$work" "$build/bin/symmrun" -n 1 -- "$build/bin/norm_job"

# ---- The rehearsal ------------------------------------------------------------------------

# The fake driver looks at the form of an image alone.
for kernels in "$root"/kernels/cuda/*.cu; do
    printf '\x50\xed\x55\xba%060d' 0 > "$work/$(basename "$kernels" .cu).fatbin"
done
export SYMM_KERNELS=$work
measure 0 'failed: none' --out "$work/m" --ranks 2 --minutes 5
for made in norm_2.tsv compare_2.json latency_2.json overlap_2.json chain_2.json costs.json; do
    [ -s "$work/m/$made" ] || { echo "FAILED: no $made"; failures=$((failures + 1)); }
done

# ---- FlashInfer's headers -----------------------------------------------------------------

# peer VERSION ARGUMENT...: the headers are those of VERSION.
peer() {
    expect 0 libnorm_peer.so env PATH="$work/bin:$PATH" \
        bash "$root/bench/setup_flashinfer.sh" --build "$work/b" "${@:2}"
    grep -qx "// $1" "$work/b/flashinfer/flashinfer/comm/trtllm_allreduce_fusion.cuh" ||
        { echo "FAILED: not the headers of $1"; failures=$((failures + 1)); }
}
if command -v python3 >/dev/null; then
    mkdir "$work/bin"
    cat >"$work/bin/nvcc" <<'NVCC'
#!/bin/sh
while [ $# -gt 1 ]; do
    [ "$1" != -o ] || : >"$2"
    shift
done
NVCC
    chmod +x "$work/bin/nvcc"
    python3 - "$work" <<'PYTHON'
import sys, zipfile
for version in ("1.0", "2.0"):
    with zipfile.ZipFile(f"{sys.argv[1]}/flashinfer_python-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("flashinfer/data/include/flashinfer/comm/trtllm_allreduce_fusion.cuh",
                       f"// {version}\n")
        wheel.writestr("flashinfer/data/spdlog/include/spdlog/spdlog.h", "")
PYTHON
    peer 1.0 --wheel "$work/flashinfer_python-1.0-py3-none-any.whl"
    peer 1.0 --version 1.0 # without the wheel
    peer 2.0 --wheel "$work/flashinfer_python-2.0-py3-none-any.whl"
    peer 2.0 --version 2.0
fi
[ "$failures" -eq 0 ]
