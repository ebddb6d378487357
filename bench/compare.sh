#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# compare.sh - compares libsymm with other libraries on this machine. The steps measure and
# plot may run on different machines.
#
#   bench/compare.sh measure [-o FILE.json] [--build DIR] [--ranks "2 4 8"] [--quick]
#   bench/compare.sh plot FILE.json [DIR]
#
# measure, with GPUs: symm-perf with NCCL, plain and by symmetric windows, and PyTorch's
# symmetric memory, in CUDA graphs of 50 calls; all_reduce of bfloat16, float32 and int32, the
# other collectives, signals. Multicast stays off for all. Without GPUs: the host backend,
# Open MPI, MPICH and the floor of bench/floor.c. A message names each library that is not
# installed. All figures go into one JSON file (default compare.json). --quick: fewer sizes.
#
# plot: DIR/compare.md and an SVG for each table's latencies and bus bandwidths (default
# docs/performance). Needs python3 and gnuplot.

set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=bench/setup.sh
. "$here/setup.sh"
# shellcheck source=bench/compare_common.sh
. "$here/compare_common.sh"
usage() { sed -n 's/^#   //p' "$0" >&2; exit 2; }
say() { setup_say "$*" >&2; }
report() { python3 -B "$here/compare_report.py" "$@"; }

graph=50 replays=30
build=$compare_root/build out=compare.json ranks='' quick=''

# A shared machine may lack multicast, so no library uses it here.
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0}
export TORCH_SYMM_MEM_DISABLE_MULTICAST=${TORCH_SYMM_MEM_DISABLE_MULTICAST:-1}
export NVSHMEM_DISABLE_NVLS=${NVSHMEM_DISABLE_NVLS:-1}

# ---- measure --------------------------------------------------------------------------

gpus() { nvidia-smi -L 2>/dev/null | grep -c '^GPU ' || true; }

# If the loader does not find NCCL, the copy that PyTorch brings is used.
find_nccl() {
    [ -z "${SYMM_NCCL_LIB:-}" ] || return 0
    ldconfig -p 2>/dev/null | grep -q 'libnccl\.so\.2' && return 0
    SYMM_NCCL_LIB=$(python3 -c 'import nvidia.nccl
print(list(nvidia.nccl.__path__)[0] + "/lib/libnccl.so.2")' 2>/dev/null) || return 1
    [ -e "$SYMM_NCCL_LIB" ] && export SYMM_NCCL_LIB
}

# machine_json BACKEND METHOD: the machine, the versions and the method of the figures.
machine_json() {
    BACKEND=$1 METHOD=$2 MACHINE=$(compare_machine) python3 - <<'PYTHON'
import datetime, json, os, subprocess
def lines(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    except OSError:
        return []
whole = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
         "backend": os.environ["BACKEND"], "machine": os.environ["MACHINE"],
         "method": os.environ["METHOD"], "versions": {}}
if whole["backend"] == "cuda":
    seen = lines("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    names = [line.rsplit(", ", 1)[0] for line in seen]
    whole["machine"] = ", ".join(f"{names.count(n)} x {n}" for n in dict.fromkeys(names)) \
        + "; " + whole["machine"]
    if seen:
        whole["versions"]["driver"] = seen[0].rsplit(", ", 1)[1]
    whole["environment"] = {name: os.environ.get(name, "") for name in (
        "NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "SYMM_MULTICAST", "SYMM_COSTS")
        if os.environ.get(name)}
print(json.dumps(whole))
PYTHON
}

number=0
# perf RANKS OP ARG...: runs symm-perf; numbers its JSON files in $work.
perf() {
    local n=$1 op=$2 json
    shift 2
    number=$((number + 1))
    json=$work/$(printf %03d "$number").json
    say "symm-perf $op, $n ranks: $*"
    timeout 90 "$compare_bin/symm-perf" "$op" --ranks "$n" --backend cuda -n "$replays" -w 5 -G "$graph" \
        -J "$json" "$@" >/dev/null || { rm -f "$json"; return 1; }
}

# beside RANKS OP ARG...: perf with --compare of NCCL, or without it if that fails.
beside() {
    { [ -n "$nccl" ] && perf "$@" --compare nccl,nccl-window; } || perf "$@" ||
        say "left out: symm-perf $*"
}

measure_torch() {
    local n=$1 torchrun=()
    if command -v torchrun >/dev/null; then torchrun=(torchrun)
    elif python3 -c 'import torch.distributed.run' 2>/dev/null; then
        torchrun=(python3 -m torch.distributed.run)
    else
        say "torchrun: not here, left out"
        return
    fi
    say "PyTorch, $n ranks"
    "${torchrun[@]}" --standalone --nproc-per-node "$n" "$here/compare_torch.py" \
        --json "$work/$(printf %03d "$number")-torch.json" -b 16 -e 64M -f "$factor" -s "$odd_sizes" \
        -n "$replays" -G "$graph" >&2 || say "left out: PyTorch on $n ranks"
}

odd_sizes=24,7168,14336,100000,3M factor=4
measure_gpus() {
    local n op many nccl=yes
    many=$(gpus)
    find_nccl || { nccl='' && say "NCCL: not here, left out"; }
    [ -n "$ranks" ] || for n in 2 4 8; do [ "$n" -gt "$many" ] || ranks+=" $n"; done
    [ -z "$quick" ] || { odd_sizes=7168 factor=64; }
    for n in $ranks; do
        beside "$n" all_reduce -d bfloat16 -b 16 -e 64M -f "$factor"
        for op in ${odd_sizes//,/ }; do
            beside "$n" all_reduce -d bfloat16 -b "$op" -e "$op"
        done
        measure_torch "$n"
        for op in float32 int32; do
            beside "$n" all_reduce -d "$op" -b 16 -e 16M -f 16
        done
        for op in reduce_scatter all_gather broadcast; do
            beside "$n" "$op" -d bfloat16 -b 1K -e 64M -f 16
        done
        # NCCL 2.28.9 has hung in graphs of larger grouped sends
        beside "$n" all_to_all -d bfloat16 -b 1K -e 1M -f 16
        nccl='' beside "$n" put_signal -d bfloat16 -b 16 -e 64M -f 64
        nccl='' beside "$n" signal
    done
    machine_json cuda "a call in a CUDA graph of $graph, $replays replays, out of place, \
symmetric memory" > "$work/machine"
}

measure_floor() {
    local bytes mode floor=$compare_bin/floor
    [ -x "$floor" ] || { say "bench/floor.c: not built, left out"; return; }
    for bytes in "${compare_sizes[@]}"; do
        for mode in copyin symm symm1 twoshot; do
            "$floor" "$mode" -r "$compare_ranks" -s "$bytes" -x "$compare_scale" |
                compare_parse | sed 's/^floor [^\t]*/floor/'
        done
    done
}

measure_host() {
    local scale=1 repetitions=3 calls=(-n auto -w auto)
    [ -z "$quick" ] || { scale=0.01 repetitions=1 compare_scale=0.01 calls=(-n 20); }
    bash "$here/compare_mpi.sh" --figures "$work/all_reduce-float32-2.tsv" --build "$build" \
        --repetitions "$repetitions" --scale "$scale" >&2
    measure_floor >> "$work/all_reduce-float32-2.tsv"
    number=0
    for op in reduce_scatter all_gather all_to_all broadcast; do
        number=$((number + 1))
        "$compare_bin/symm-perf" "$op" --ranks 2 --backend host -b 8 -e 4M -f 8 \
            "${calls[@]}" -J "$work/$number.json" >/dev/null ||
            say "left out: $op"
    done
    machine_json host "one call after another, each rank rewriting its input before, \
best of $repetitions repetitions" > "$work/machine"
}

measure() {
    while [ $# -gt 0 ]; do
        case $1 in
        --quick) quick=--quick && shift && continue ;;
        esac
        [ $# -ge 2 ] || usage
        case $1 in
        -o) out=$2 ;;
        --build) build=$2 ;;
        --ranks) ranks=$2 ;;
        *) usage ;;
        esac
        shift 2
    done
    compare_bin=$build/bin
    [ -x "$compare_bin/symm-perf" ] || {
        echo "compare.sh: $compare_bin/symm-perf is not built; see --build" >&2
        exit 2
    }
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    if [ "$(gpus)" -ge 2 ]; then measure_gpus; else measure_host; fi
    shopt -s nullglob
    report merge "$out" "$work/machine" "$work"/*.tsv "$work"/*.json
    echo "$out"
}

# ---- plot -----------------------------------------------------------------------------

plot() {
    local file=${1:-} dir=${2:-$compare_root/docs/performance} op dtype n what
    [ -n "$file" ] || usage
    mkdir -p "$dir"
    report markdown "$file" > "$dir/compare.md.new"
    mv "$dir/compare.md.new" "$dir/compare.md"
    echo "$dir/compare.md"
    report plots "$file" | while read -r op dtype n; do
        for what in latency bandwidth; do
            report figures "$file" "$op" "$dtype" "$n" "$what" |
                bash "$here/plot.sh" --"$what" "$dir/${op}_${dtype}_${n}_$what.svg" \
                    "$op, $dtype, $n ranks on one machine"
        done
    done
}

case ${1:-} in
measure) shift && measure "$@" ;;
plot) shift && plot "$@" ;;
*) usage ;;
esac
