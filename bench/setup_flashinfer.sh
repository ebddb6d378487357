#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# setup_flashinfer.sh - builds TensorRT-LLM's fused all_reduce + norm, as FlashInfer carries it,
# for the programs of bench/norm: DIR/lib/libnorm_peer.so.
#
#   bench/setup_flashinfer.sh [--build DIR] [--arch sm_90] [--version V] [--wheel FILE]
#
# Takes the headers out of FlashInfer's wheel, which pip downloads (0.7.2.post1, 60 MB) unless
# --wheel names it or DIR/flashinfer has them from an earlier run with the same version. Needs nvcc,
# but no GPU and no PyTorch; takes two minutes. The library needs nothing of all that at run time.

set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build arch=sm_90 version=0.7.2.post1 wheel=
while [ $# -gt 1 ]; do
    case $1 in
    --build) build=$2 ;;
    --arch) arch=$2 ;;
    --version) version=$2 ;;
    --wheel) wheel=$2 ;;
    *) break ;;
    esac
    shift 2
done
[ $# -eq 0 ] || { sed -n 's/^#   //p' "$0" >&2; exit 2; }

nvcc=$(command -v nvcc || command -v /usr/local/cuda/bin/nvcc) ||
    { echo "setup_flashinfer.sh: no nvcc" >&2; exit 1; }
headers=$build/flashinfer
header=flashinfer/comm/trtllm_allreduce_fusion.cuh
mkdir -p "$build/lib"
if [ -n "$wheel" ] || [ ! -e "$headers/$header" ] ||
    [ "$(cat "$headers/version" 2>/dev/null)" != "$version" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    if [ -z "$wheel" ]; then
        python3 -m pip download --quiet --no-deps --only-binary=:all: -d "$work" \
            "flashinfer-python==$version"
        wheel=$(echo "$work"/*.whl)
    fi
    python3 - "$wheel" "$work" <<'PYTHON'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    for name in wheel.namelist():
        if name.startswith(("flashinfer/data/include/", "flashinfer/data/spdlog/include/")):
            wheel.extract(name, sys.argv[2])
PYTHON
    rm -rf "$headers.new" "$headers"
    mv "$work/flashinfer/data/include" "$headers.new"
    mv "$work/flashinfer/data/spdlog/include/spdlog" "$headers.new"
    basename "$wheel" | cut -d- -f2 >"$headers.new/version"
    mv "$headers.new" "$headers"
fi
echo "== $headers/$header, for $arch"
"$nvcc" -std=c++17 -O3 -arch="$arch" -shared -Xcompiler -fPIC -Xcompiler -fvisibility=default \
    -w --expt-relaxed-constexpr -I"$headers" -I"$root/bench" \
    -o "$build/lib/libnorm_peer.so.new" "$root/bench/norm/peer.cu"
mv "$build/lib/libnorm_peer.so.new" "$build/lib/libnorm_peer.so"
ls -l "$build/lib/libnorm_peer.so"
