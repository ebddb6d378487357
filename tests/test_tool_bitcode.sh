#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# libsymm_device.bc: valid bitcode that exports exactly the documented functions, imports
# none, has no initialisers, and compiles to PTX with the waits and signals of system scope
# that the protocol needs.

set -u
root=${SOURCE_DIR:-$(cd "$(dirname "$0")/.." && pwd)}
clang=$(command -v clang-14 || command -v clang) || {
    echo "clang is needed"
    exit 77
}
target="--target=nvptx64-nvidia-cuda"
if ! "$clang" $target -print-targets 2>/dev/null | grep -q nvptx64; then
    echo "$clang makes no code for NVPTX"
    exit 77
fi
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
bad=0
complain() {
    echo "$*"
    bad=1
}
# The LLVM tool of the compiler's own version; empty: there is none.
llvm() {
    local own
    own=$("$clang" -print-prog-name="$1")
    [ -x "$own" ] && echo "$own"
}

# As the build makes it; the flags are written down once, in kernels/cuda.
flags=$(sed -n '/^set(bitcode_flags/,/)/p' "$root/kernels/cuda/CMakeLists.txt" |
    sed 's/set(bitcode_flags//; s/)//; s/#.*//' | tr '\n' ' ')
if [ -z "$flags" ]; then
    echo "kernels/cuda/CMakeLists.txt does not say how the bitcode is made (bitcode_flags)"
    exit 1
fi
# shellcheck disable=SC2086
if ! "$clang" $flags -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
    -Wconversion -Werror -I"$root/include" -c "$root/kernels/cuda/device_bc.c" \
    -o "$dir/device.bc"; then
    echo "device_bc.c does not compile"
    exit 1
fi

# The names that the header declares, each at the start of a line.
sed -n 's/^[a-z].* \**\(symm_device_bc_[a-z_]*\)(.*/\1/p' "$root/include/symm/device_bitcode.h" |
    sort -u >"$dir/wanted"
[ "$(wc -l <"$dir/wanted")" -ge 7 ] || complain "fewer than 7 functions are declared"

nm=$(llvm llvm-nm)
if [ -n "$nm" ]; then
    "$nm" "$dir/device.bc" >"$dir/symbols"
    sed -n 's/.* T //p' "$dir/symbols" | sort >"$dir/exported"
    diff "$dir/wanted" "$dir/exported" || complain "what it exports is not what it documents"
    if grep -v ' [Tt] ' "$dir/symbols"; then
        complain "symbols that are no functions of its own"
    fi
fi
opt=$(llvm opt)
if [ -n "$opt" ]; then
    "$opt" -passes=verify -disable-output "$dir/device.bc" || complain "not valid"
fi
dis=$(llvm llvm-dis)
if [ -n "$dis" ]; then
    "$dis" "$dir/device.bc" -o "$dir/device.ll" || complain "cannot be disassembled"
    grep -q '^target triple = "nvptx64-nvidia-cuda"' "$dir/device.ll" || complain "triple"
    if grep -E '^@|llvm.global_ctors|^declare' "$dir/device.ll" | grep -v '@llvm\.'; then
        complain "global data, or functions that it does not define"
    fi
fi

# The bitcode alone gives PTX for the oldest processor; ptxas takes it for a newer one.
if ! "$clang" $target -O2 -Xclang -target-cpu -Xclang sm_70 -Xclang -target-feature \
    -Xclang +ptx63 -x ir -S "$dir/device.bc" -o "$dir/device.ptx"; then
    complain "no PTX from the bitcode"
fi
for text in ld.acquire.sys.global.u64 st.release.sys.global.u64 atom.relaxed.sys \
    st.release.sys.global.u32 ld.relaxed.sys.global.v2.u64 st.relaxed.sys.global.v2.u64 \
    %globaltimer; do
    grep -qF "$text" "$dir/device.ptx" || complain "the PTX has no $text"
done
while read -r name; do
    grep -q "visible .func .*$name" "$dir/device.ptx" ||
        complain "the PTX has no function $name"
done <"$dir/wanted"
for ptxas in ptxas /usr/local/cuda/bin/ptxas; do
    command -v "$ptxas" >/dev/null || continue
    "$ptxas" -arch=sm_90 -c "$dir/device.ptx" -o "$dir/device.cubin" ||
        complain "ptxas refuses the PTX"
    break
done

# What the build installs is the same.
built=${BUILD_DIR:-$root/build}/lib/libsymm_device.bc
if [ -e "$built" ] && [ -n "$nm" ]; then
    "$nm" "$built" | sed -n 's/.* T //p' | sort >"$dir/built"
    diff "$dir/wanted" "$dir/built" || complain "$built is not what the sources say"
fi
[ "$bad" = 0 ] && echo "$(wc -l <"$dir/wanted") functions, all as documented"
exit "$bad"
