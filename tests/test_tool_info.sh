#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# symm-info: every section as text and as JSON (read by jq), with right and wrong variables of
# launchers, with options set, bound to one PU; and the proofs of --probe.

set -u
tool=${BUILD_DIR:?}/bin/symm-info
[ -x "$tool" ] || {
    echo "$tool is not built"
    exit 77
}
command -v jq >/dev/null || {
    echo "needs jq"
    exit 77
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

# No launcher's variable of the caller, and files of jobs in a folder of our own.
clean() {
    env -i PATH="$PATH" LC_ALL=C SYMM_RUNTIME_DIR="$folder" \
        SYMM_CUDA_LIBRARY="${cuda:-$folder/none.so}" ASAN_OPTIONS="${ASAN_OPTIONS-}" "$@"
}

fail() {
    echo "FAIL: $*"
    sed 's/^/    /' "$folder/out" "$folder/err"
    failed=1
}

# expect STATUS COMMAND...: runs it; what it says goes to out and err.
expect() {
    local wanted=$1 status
    shift
    clean "$@" >"$folder/out" 2>"$folder/err"
    status=$?
    said="$*"
    [ "$status" = "$wanted" ] || fail "exit status $status, not $wanted: $said"
}

# has TEXT...: all are in the output.
has() {
    local text
    for text in "$@"; do
        grep -qF -- "$text" "$folder/out" || fail "'$text' is not in the output: $said"
    done
}

lacks() {
    ! grep -qF -- "$1" "$folder/out" || fail "'$1' is in the output: $said"
}

silent() {
    [ ! -s "$folder/err" ] || fail "something on stderr: $said"
}

# holds FILTER: the output is one JSON value for which the filter is true.
holds() {
    jq -es "length == 1 and (.[0] | ($1))" "$folder/out" >"$folder/jq" 2>&1 ||
        fail "does not hold: $1: $said"
}

# ---- Text ----------------------------------------------------------------------------

expect 0 "$tool"
silent
has "libsymm " "built with" "backend      host (no CUDA: " "this processor has:" "job" \
    "launcher     single" "rank         0 of 1" "options" "SYMM_RUNTIME_DIR" "$folder" \
    "limits" "open files" "locked memory" "overcommit" "memfd_create  works" "machine" \
    "Machine, " "PU 0" "CUDA" "not usable   "
lacks "SYMM_TIMEOUT"

expect 0 SYMM_TIMEOUT=5 SYMM_SECRET=00112233445566778899aabbccddeeff "$tool" --options
has "SYMM_TIMEOUT           5  [default 30]" "SYMM_HEAP_BYTES        (not set)" \
    "(set, not shown)"
lacks "machine"
lacks "00112233"
for json in '' --json; do # the secret's other name
    # shellcheck disable=SC2086 # no word, or one
    expect 0 SYMM_JOB_SECRET=00112233445566778899aabbccddeeff "$tool" --options $json
    has "(set, not shown)"
    lacks "00112233"
done

expect 0 "$tool" --topology
has "machine" "Package 0" "NUMA node" "core 0: PU 0" "*"
lacks "SYMM_"

# ---- JSON ----------------------------------------------------------------------------

version=$(clean "$tool" --version)
version=${version#symm-info }
expect 0 "$tool" --json
silent
holds '.format == "symm-info/1" and .usable and .error == null'
holds ".version == \"$version\""
holds '.build.compiler | test("^(gcc|clang) [0-9]")'
holds '.backend == "host" and (.isa | IN("c", "avx2", "avx512"))'
holds '.heap_bytes > 0 and .granularity > 0 and .scratch_bytes == 0'
holds '(.why_backend | startswith("no CUDA: ")) and (.cuda | .usable | not)'
holds '.cuda | (.error | length > 10) and .devices == [] and (has("probe") | not)'
holds '.job.source == "single" and .job.rank == 0 and .job.world_size == 1'
holds '.limits | .open_files > 0 and .memfd_create == "works" and has("locked_memory")'
holds '.limits.overcommit_memory | IN(-1, 0, 1, 2)'
holds '[.options[] | select(.value != null) | .name] ==
       ["SYMM_CUDA_LIBRARY", "SYMM_RUNTIME_DIR"]'
holds '[.options[] | has("kind") and has("default") and (.help | length > 5)] | all'
holds '.topology.format == "symm-topology/1" and .topology.this_machine'
holds ".topology.allowed_pus == $(nproc)"
holds '.topology | [.tree | .. | objects | select(.type == "pu")] | length > 0 and
       ([.[] | select(.allowed)] | length) > 0'
holds '.topology | .cores == ([.tree | .. | objects | select(.type == "core")] |
       length)'
holds '[.topology.tree | .. | objects | select(.type == "machine")] | length == 1'
holds 'has("probe") | not'

# A value that is neither UTF-8 nor easy to quote.
expect 0 SYMM_JOB_ID=$'a"\\\xff\t\xc3\xa9' SYMM_RANK=0 SYMM_WORLD_SIZE=1 \
    "$tool" --json --options
holds '.options[] | select(.name == "SYMM_JOB_ID").value == "a\"\\\ufffd\t\u00e9"'
holds 'keys == ["format", "options"]'

# ---- CUDA ----------------------------------------------------------------------------

expect 0 "$tool" --cuda
has "CUDA" "not usable"
lacks "machine"
expect 0 SYMM_BACKEND=host "$tool"
has "backend      host (SYMM_BACKEND)"
cuda=${BUILD_DIR:?}/lib/libfake_cuda.so
if [ -e "$cuda" ] && [ -z "${ASAN_OPTIONS-}" ]; then
    # A build without nvcc has no kernels: the fake driver takes what looks like some.
    kernels=$(mktemp -d)
    printf '\x50\xed\x55\xba\1\0\0\0\0\0\0\0\0\0\0\0' >"$kernels/some.fatbin"
    expect 0 SYMM_KERNELS="$kernels" FAKE_CUDA_DEVICES=2 "$tool"
    has "backend      cuda (each rank has a device)" "scratch" "device 0" "device 1" \
        "from $cuda" "reaches       0: . yes"
    expect 0 SYMM_KERNELS="$kernels" FAKE_CUDA_DEVICES=2 FAKE_CUDA_NO_PEER=1 "$tool" --cuda
    has "reaches       0: . NO" "1: NO ."
    expect 0 SYMM_KERNELS="$kernels" FAKE_CUDA_DEVICES=3 "$tool" --json --cuda
    holds '.cuda | .usable and .error == null and .driver > 12000 and
           [.devices[].reaches] == [[1, 2], [0, 2], [0, 1]]'
    holds '[.cuda.devices[] | .memory > 0 and .multiprocessors > 0] | all'
    # Devices where no machine has any, and one at the place of most machines' first.
    fake=(SYMM_KERNELS="$kernels" FAKE_CUDA_DEVICES=1 FAKE_CUDA_BUS=4096)
    expect 0 "${fake[@]}" "$tool" --json --cuda
    holds '.cuda.devices[0] | .numa_node == null and .pus == null'
    expect 0 "${fake[@]}" "$tool" --cuda
    has "at 0000:1000:00.0" "near       not known"
    real=/sys/bus/pci/devices/0000:00:00.0
    if [ -e $real/local_cpulist ]; then
        near=$(cat $real/local_cpulist) node=$(cat $real/numa_node 2>/dev/null || echo -1)
        for list in /sys/devices/system/node/node*/cpulist; do
            number=${list%/cpulist}
            if [ "$node" = -1 ] && [ "$(cat "$list" 2>/dev/null)" = "$near" ]; then
                node=${number##*node}
            fi
        done
        fake=(SYMM_KERNELS="$kernels" FAKE_CUDA_DEVICES=1 FAKE_CUDA_BUS=0)
        expect 0 "${fake[@]}" "$tool" --json --cuda
        holds ".cuda.devices[0] | .pus == \"$near\" and (.numa_node // -1) == $node"
        expect 0 "${fake[@]}" "$tool" --cuda
        has "PUs $near"
    fi
    expect 0 SYMM_KERNELS="$kernels" FAKE_CUDA_DEVICES=0 "$tool"
    has "backend      host (no CUDA: " "not usable"
    expect 0 SYMM_KERNELS="$kernels" FAKE_CUDA_DEVICES=3 FAKE_CUDA_CHECK=1 "$tool" --probe
    has "ok    kernels" "ok    copies" "6 ordered pairs" "ok    fabric"
    [ -e /dev/nvidia-caps-imex-channels ] ||
        has "there is no IMEX channel in /dev/nvidia-caps-imex-channels" "nvidia-modprobe"
    expect 0 SYMM_KERNELS="$kernels" FAKE_CUDA_DEVICES=2 "$tool" --probe --json
    holds '[.cuda.probe[].proof] == ["kernels", "copies", "fabric"] and
           ([.cuda.probe[].ok] | all)'
    # NVLink domains over hosts, as a stand-in for NVML has them.
    nvml=$(mktemp -d)
    ln -s "$BUILD_DIR/lib/libfake_nvml.so" "$nvml/libnvidia-ml.so.1"
    fake=(SYMM_KERNELS="$kernels" FAKE_CUDA_DEVICES=1 FAKE_CUDA_FABRIC=1
        LD_LIBRARY_PATH="$nvml")
    expect 0 "${fake[@]}" "$tool" --cuda
    has "domain     cluster 01000000000000000000000000000000, clique 7"
    expect 0 "${fake[@]}" FAKE_NVML_STATE=2 "$tool" --cuda
    has "none over hosts" "state 2 (in progress), not 3"
    expect 0 "${fake[@]}" "$tool" --cuda --json
    holds '.cuda.devices[0] | .clique == 7 and (.cluster | length) == 32'
    expect 0 "${fake[@]}" FAKE_NVML_CLUSTER=0 "$tool" --cuda --json
    holds '.cuda.devices[0] | .clique == null and (.no_clique | test("no cluster"))'
    expect 0 "${fake[@]}" FAKE_CUDA_CHECK=1 "$tool" --probe
    has "ok    fabric" "exported, imported and read back by a fabric handle"
    expect 1 "${fake[@]}" FAKE_CUDA_FABRIC_WRONG=1 "$tool" --probe
    has "FAIL  fabric" "reads as other bytes than its owner wrote"
    expect 1 "${fake[@]}" FAKE_CUDA_FABRIC_FAILS=1 "$tool" --probe
    has "FAIL  fabric" "importing and reading by a fabric handle"
    rm -r "$kernels" "$nvml"
fi
cuda=

# ---- Jobs ----------------------------------------------------------------------------

torchrun=(RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1
    MASTER_PORT=29500 TORCHELASTIC_RUN_ID=x TORCHELASTIC_RESTART_COUNT=0)
expect 0 "${torchrun[@]}" "$tool" --job
has "launcher     torchrun" "rank         3 of 4; on this host 1 of 2"
expect 0 "${torchrun[@]}" "$tool" --job --json
holds '.job | .source == "torchrun" and .rank == 3 and .local_size == 2'
holds '.job.error == null'
expect 1 RANK=3 LOCAL_RANK=1 "$tool" --job
has "WRONG" "WORLD_SIZE"
expect 1 RANK=3 LOCAL_RANK=1 "$tool" --json
holds '(.job.error | contains("WORLD_SIZE")) and .usable and .topology.cores > 0'

# An option that can't be understood makes the library unusable, and the tool says
# which.
expect 1 SYMM_HEAP_BYTES=much "$tool"
has "NOT USABLE" "SYMM_HEAP_BYTES" "machine"
expect 1 SYMM_HEAP_BYTES=much "$tool" --json
holds '(.usable | not) and (.error | contains("SYMM_HEAP_BYTES")) and .backend == null'

# ---- The machine ---------------------------------------------------------------------

allowed='[.topology.tree | .. | objects | select(.type == "pu" and .allowed).os_index]'
last=$(clean "$tool" --json --topology | jq "$allowed | max")
if command -v taskset >/dev/null; then
    expect 0 taskset -c "$last" "$tool" --json --topology
    holds ".topology.allowed_pus == 1 and .topology.allowed_cores == 1"
    holds "$allowed == [$last]"
    expect 0 taskset -c "$last" "$tool" --topology
    has "; 1 PU allowed (*)" "$last*"
fi
source=$(clean "$tool" --json --topology | jq -r .topology.source)
if [ "${source%% *}" = hwloc ]; then
    other="pack:2 numa:1 l3:2 l2:2 l1:1 core:1 pu:2"
    expect 0 HWLOC_SYNTHETIC="$other" "$tool" --topology
    has "another machine's description" "2 packages, 2 NUMA nodes, 8 cores, 16 PUs" \
        "core 7: PU 14* 15*" "|-- Package 0" "\`-- Package 1"
    [ "$(grep -c 'core .: PU' "$folder/out")" = 8 ] || fail "not one line a core: $said"
fi

# ---- The command line ----------------------------------------------------------------

expect 0 "$tool" --help
has "usage: symm-info"
expect 2 "$tool" --nonsense
expect 2 "$tool" extra
# Also where more is written before the tool looks: as JSON.
for option in '' --json; do
    clean "$tool" $option >/dev/full 2>"$folder/err" && fail "a full disk was not noticed"
    grep -q "No space" "$folder/err" || fail "no word of the full disk: $(cat "$folder/err")"
done
# /tmp may be full or read-only. The build may lie there: it is used at /mnt.
if unshare -Urm mount --bind "$BUILD_DIR" /mnt 2>/dev/null; then
    unshare -Urm sh -c 'mount --bind "$1" /mnt && mount -t tmpfs -o size=4k,nr_inodes=1 none /tmp &&
        exec /mnt/bin/symm-info --json' sh "$BUILD_DIR" >"$folder/out" ||
        fail "without room in /tmp: exit status"
    jq -e .topology <"$folder/out" >/dev/null || fail "without room in /tmp: no topology"
fi

# ---- Proofs --------------------------------------------------------------------------

proofs='["bootstrap","handles","atomics","all_reduce","put_signal","dead peer"]'
expect 0 "$tool" --probe
silent
[ "$(grep -c '^ok  ' "$folder/out")" = 6 ] || fail "not six proofs: $said"
has "SIGKILL was reported after"
lacks "machine"
cat "$folder/out"
# Launchers' variables don't matter to it.
expect 0 "${torchrun[@]}" "$tool" --probe --json
holds "[.probe[].proof] == $proofs and ([.probe[].ok] | all)"
expect 1 SYMM_RUNTIME_DIR=/nonexistent/folder "$tool" --probe
has "FAIL  bootstrap" "/nonexistent/folder" "FAIL  dead peer"
expect 1 SYMM_RUNTIME_DIR=/nonexistent/folder "$tool" --probe --json
holds "[.probe[].proof] == $proofs and ([.probe[].ok] | any | not)"
left=$(find "$folder" -mindepth 1 ! -name out ! -name err ! -name jq)
[ -z "$left" ] || fail "left behind: $left"

exit $failed
