#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The output of nvcc for kernels/cuda/*.cu: every file for every target, every kernel of the table
# exists; of the kernels that nvcc has optimized (SYMM_CUDA_OPTIMIZE): no spilled registers, an
# all-reduce kernel's stack holds only the packet or two that a call of a rare path passes;
# libsymm.so needs neither the CUDA runtime nor a C++ library.

set -u
folder=${BUILD_DIR:?}/kernels
library=$BUILD_DIR/lib/libsymm.so
sources=${SOURCE_DIR:?}/kernels/cuda
targets=$(sed -n 's/^SYMM_CUDA_ARCHITECTURES:[A-Z]*=//p' "$BUILD_DIR/CMakeCache.txt")
optimized=$(sed -n 's/^SYMM_CUDA_OPTIMIZE:[A-Z]*=//p' "$BUILD_DIR/CMakeCache.txt")
failed=0

fail() {
    echo "FAIL: $*"
    failed=1
}

for name in libcudart libstdc++ libcuda; do
    readelf -d "$library" | grep -q "NEEDED.*$name" && fail "$library needs $name"
done
ls "$folder"/*.fatbin >/dev/null 2>&1 || {
    echo "no kernels were built: there is no nvcc"
    [ $failed = 0 ] && exit 77
    exit 1
}

for source in "$sources"/*.cu; do
    name=$(basename "$source" .cu)
    log=$folder/$name.ptxas
    [ -s "$folder/$name.fatbin" ] || fail "$name.fatbin is not there"
    for target in ${targets//;/ }; do
        case $target in *-virtual) continue ;; esac
        grep -q "Compiling entry function .* for 'sm_$target'" "$log" ||
            fail "$name has not been compiled for sm_$target"
    done
    # Kernels for more than 8 ranks keep sets of members on the stack, and have run on no hardware yet.
    case $name in *_wide) continue ;; esac
    case ";$optimized;" in ";;" | *";$name;"*) ;; *) continue ;; esac
    # The line behind "Function properties for NAME" has the numbers.
    awk -v file="$name" '
        /Function properties for/ { function_name = $NF }
        /bytes stack frame/ {
            seen++
            if ($5 != 0 || $9 != 0) {
                print file ": " function_name " spills:" $0
                bad = 1
            }
            if ($1 > 32 && function_name ~ /^symm_all_reduce_.*(push|wide|pull|inplace)/) {
                print file ": " function_name " has an array on the stack:" $0
                bad = 1
            }
        }
        END { exit bad || seen == 0 }' "$log" || fail "$name: see above"
done

# Names as kernels/cuda/table.c writes them; the preprocessor makes those of the hot kernels.
strings -n 6 "$library" | grep -E '^symm_[a-z0-9][a-z0-9_]*_(any|float|bfloat16_n[248]|float16_n[248]|float32_n[248])(_by_pointer)?$|^symm_norm_(bfloat16|float16|float32)$|^symm_p2p_(put|signal|signal_wait)$' |
    sort -u >"$folder/names"
[ "$(wc -l <"$folder/names")" -ge 60 ] || fail "the table has only $(wc -l <"$folder/names") names"
while read -r kernel; do
    grep -q "Compiling entry function '$kernel'" "$folder"/*.ptxas ||
        fail "the table names $kernel, which is no kernel"
done <"$folder/names"

echo "$(cat "$folder"/*.ptxas | grep -c 'Compiling entry function') kernels for ${targets//;/ }"
exit $failed
