#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ctest: cost 9
# ctest: load 2
#
# Every public header compiles alone and twice, as strict C11 and as C++17, with each
# installed compiler; device.h and device_exchange.h also for GPUs, by nvcc and by clang for
# NVPTX; every private header that other folders or files include compiles alone in the
# library's dialect.

set -u
root=${SOURCE_DIR:-$(cd "$(dirname "$0")/.." && pwd)}
build=${BUILD_DIR:-$root/build}
generated=$build/include
if [ ! -e "$generated/symm/version.h" ]; then
    echo "$generated/symm/version.h is missing: configure the build first, or set BUILD_DIR"
    exit 1
fi

tried=0 bad=0
# alone HEADER COMPILER OPTION...: a file that has this header, twice, and one declaration.
alone() {
    local header=$1
    shift
    tried=$((tried + 1))
    if ! printf '#include "%s"\n#include "%s"\ntypedef int alone;\n' "$header" "$header" |
        "$@" -fsyntax-only -Wall -Wextra -Wundef -Wshadow -Werror \
            -I"$root/include" -I"$generated" -; then
        echo "$header does not compile alone with: $*"
        bad=1
    fi
}

have() { command -v "$1" >/dev/null 2>&1; }

if ! have gcc || ! have g++; then
    echo "gcc and g++ are needed"
    exit 77
fi
for path in "$root"/include/symm/*.h "$generated"/symm/*.h; do
    header=symm/${path##*/}
    for compiler in gcc clang; do
        have $compiler || continue
        alone "$header" $compiler -std=c11 -pedantic -Wstrict-prototypes -x c
    done
    for compiler in g++ clang++; do
        have $compiler || continue
        alone "$header" $compiler -std=c++17 -pedantic -x c++
    done
done
# Code for GPUs; plain C needs nothing of a toolkit.
if have clang && clang --target=nvptx64-nvidia-cuda -print-targets | grep -q nvptx64; then
    for header in symm/device.h symm/device_exchange.h; do
        alone $header clang --target=nvptx64-nvidia-cuda -ffreestanding -std=c11 \
            -pedantic -Wstrict-prototypes -x c
        alone $header clang --target=nvptx64-nvidia-cuda -ffreestanding -std=c++17 \
            -pedantic -x c++
    done
fi
nvcc=$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc)
if [ -n "$nvcc" ]; then
    tried=$((tried + 1))
    unit=$(mktemp --suffix=.cu) || exit 1
    printf '#include "symm/device_exchange.h"\n#include "symm/device_exchange.h"\n' >"$unit"
    printf '__global__ void alone(const symm_device_team *team, int *result)\n{\n' >>"$unit"
    printf '    *result = symm_device_barrier(team, 0, 0, 1, 1) +\n' >>"$unit"
    printf '              symm_device_signal_wait(team, 1, 2, 3);\n' >>"$unit"
    printf '    symm_device_signal(team, 1, 2, 3);\n' >>"$unit"
    printf '    symm_device_exchange x = {result, 64, 0, 0, 0, 7, 0};\n' >>"$unit"
    printf '    *result = symm_device_exchange_rows<2>(team, x, 1, 64,\n' >>"$unit"
    printf '        [](uint32_t, uint32_t i) { return (uint64_t)i; },\n' >>"$unit"
    printf '        [](uint32_t, uint32_t, const uint64_t *) {});\n}\n' >>"$unit"
    if ! "$nvcc" -std=c++17 -arch=sm_80 -Xcompiler -Wall,-Wextra -Werror all-warnings \
        -I"$root/include" -ptx -o /dev/null "$unit"; then
        echo "symm/device_exchange.h does not compile with nvcc"
        bad=1
    fi
    rm -f "$unit"
fi
# Headers that include a package's are left out where that is not installed.
python=$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))' 2>/dev/null)
[ -e "$python/Python.h" ] || python=
toolkit=$(sed -n 's/^SYMM_CUDA_INCLUDE:PATH=\(.*[^D]\)$/\1/p' "$build/CMakeCache.txt")
mpi=$(sed -n 's/^MPI_C_HEADER_DIR:PATH=\(.*[^D]\)$/\1/p' "$build/CMakeCache.txt")
mapfile -t headers < <(find "$root/symm" -name '*.h')
for path in "${headers[@]}" "$root"/kernels/launch.h "$root"/kernels/reduce/reduce.h; do
    case $path in
    */symm/cuda/backend.h | */symm/cuda/report.h) ;;
    */symm/cuda/*) [ -n "$toolkit" ] || continue ;;
    */engine/mpi.h) [ -n "$mpi" ] || continue ;;
    */symm/python/*) [ -n "$python" ] || continue ;;
    esac
    alone "${path#"$root"/}" gcc ${toolkit:+-I"$toolkit"} ${mpi:+-I"$mpi"} \
        ${python:+-isystem "$python"} -std=gnu11 -D_GNU_SOURCE \
        -I"$root" -I"$root/symm" -x c
done
[ "$bad" = 0 ] && echo "$tried compilations of headers alone, all clean"
exit "$bad"
