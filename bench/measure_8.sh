#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# measure_8.sh - in ten minutes of a machine with several GPUs: tests, a cost table, comparisons
# with other libraries, the fused norm and the decode step.
#
#   bench/measure_8.sh [--build DIR] [--out DIR] [--ranks N] [--minutes M] [--only STEP,...]
#
# DIR holds a finished build (symm-perf, norm_benches, gpu_tests, and the Python package for `decode`);
# bench/setup_flashinfer.sh adds TensorRT-LLM's kernel, PyTorch and NCCL are used if they are there.
# N: 8, or as many GPUs as there are. Each step has a part of M minutes (10), its output in
# OUT/STEP.log, and a line here; a step that fails or takes too long does not stop the others. What
# is needed most comes first.
#
#   norm      OUT/norm_N.tsv: all_reduce_norm, TensorRT-LLM's kernel beside it
#   compare   OUT/compare.json: bench/compare.sh measure, for `compare.sh plot`
#   decode    OUT/decode_N.json: bench/decode_step.py
#   latency   OUT/latency_N.json: all_reduce of 16 B to 4 KiB, many replays
#   overlap   OUT/overlap_N.json, OUT/chain_N.json
#   tests     tests/gpu.sh, cut to a few calls
#   tune      OUT/costs.json, and OUT/regret.txt with it
#
# SYMM_CUDA_LIBRARY set: the fake driver stands in for GPUs, with small sizes: a rehearsal.
# Exit status: the number of steps that failed. Without a GPU 77.

set -uo pipefail
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/.." && pwd)
build=$root/build out=$root/build/measured ranks='' minutes=10
only=norm,compare,decode,latency,overlap,tests,tune
while [ $# -gt 1 ]; do
    case $1 in
    --build) build=$(cd "$2" && pwd) || exit 2 ;;
    --out) out=$2 ;;
    --ranks) ranks=$2 ;;
    --minutes) minutes=$2 ;;
    --only) only=$2 ;;
    *) break ;;
    esac
    shift 2
done
usage() {
    [ $# -eq 0 ] || echo "measure_8.sh: $*" >&2
    sed -n 's/^#   //p' "$0" >&2
    exit 2
}
[ $# -eq 0 ] || usage
[[ $minutes =~ ^[1-9][0-9]*$ ]] || usage "--minutes $minutes"
[[ $ranks =~ ^([1-9][0-9]*)?$ ]] || usage "--ranks $ranks"
for name in ${only//,/ }; do
    [[ ,norm,compare,decode,latency,overlap,tests,tune, == *,$name,* ]] ||
        usage "--only $only: no step is called $name"
done

# No library uses multicast: it may be out of order where machines are shared.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
rehearsal=${SYMM_CUDA_LIBRARY:-}
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
[ -z "$rehearsal" ] || gpus=8
[ "$gpus" -gt 0 ] || { echo "no GPU here"; exit 77; }
[ -n "$ranks" ] || ranks=$((gpus < 8 ? gpus : 8))
[ "$ranks" -le "$gpus" ] || export SYMM_OVERSUBSCRIBE=1
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
bin=$build/bin
sizes='' # of teams
for n in 2 4 8; do [ "$n" -gt "$ranks" ] || sizes="$sizes $n"; done
[ -n "$sizes" ] || sizes=' 2'
peer=()
[ ! -e "$build/lib/libnorm_peer.so" ] || [ -n "$rehearsal" ] || peer=(--peer "$build/lib/libnorm_peer.so")
failed=() started=$SECONDS

# step NAME PART COMMAND...: PART of 100 of all the time.
step() {
    local name=$1 seconds=$((minutes * 60 * $2 / 100)) begin=$SECONDS status
    shift 2
    [[ ,$only, == *,$name,* ]] || return 0
    ("$@") >"$out/$name.log" 2>&1 </dev/null &
    local child=$!
    while kill -0 $child 2>/dev/null; do
        [ $((SECONDS - begin)) -lt "$seconds" ] || { end_tree $child; break; }
        sleep 0.2
    done
    wait $child
    status=$?
    [ $((SECONDS - begin)) -lt "$seconds" ] || status="time (${seconds} s)"
    if [ "$status" = 0 ]; then
        printf '%-10s %-16s %4d s\n' "$name" 'done' $((SECONDS - begin))
    else
        failed+=("$name")
        printf '%-10s %-16s %4d s\n' "$name" "FAILED: $status" $((SECONDS - begin))
        tail -n 8 "$out/$name.log" | sed 's/^/    /'
    fi
}

# Ends a process of this script and those that it has started.
end_tree() {
    local child
    for child in $(ps -o pid= --ppid "$1" 2>/dev/null); do end_tree "$child"; done
    kill -TERM "$1" 2>/dev/null
}

# A command with a limit; the step goes on, and fails at its end.
result=0
try() {
    local seconds=$1
    shift
    timeout --kill-after 5 "$seconds" "$@" || { echo "FAILED ($?): $*"; result=1; }
}

perf() { try 60 "$bin/symm-perf" "$@" --backend cuda; }

if [ -n "$rehearsal" ]; then
    norm_shapes=1x512,2x256 replays=3 graph=4 most=16K calls=200
else
    norm_shapes='' replays=100 graph=50 most=64M calls=3000
fi

do_norm() {
    local n row rows shapes hidden
    [ -n "$rehearsal" ] || try 60 "$bin/norm_pair" --replays 200 "${peer[@]}" -o "$out/norm_pair.tsv"
    for n in $(printf '%s\n' $sizes | sort -rn); do
        rows='1 2 8 32 128 512' shapes=${norm_shapes:-1x512}
        [ "$n" -gt 2 ] || rows="$rows 2048"
        [ -z "$norm_shapes" ] || rows=''
        for row in $rows; do
            for hidden in 2048 4096 7168 8192; do shapes=$shapes,${row}x$hidden; done
        done
        try 90 "$bin/symmrun" -n "$n" --no-prefix -- "$bin/norm_job" --shapes "$shapes" \
            --calls $graph --replays $((1 + replays * 2 / 5)) "${peer[@]}" -o "$out/norm_$n.tsv"
    done
    return $result
}

do_compare() {
    if [ -n "$rehearsal" ]; then
        for n in $sizes; do
            perf all_reduce --ranks "$n" -d bfloat16 -b 16 -e $most -f 16 -n 2 -w 1 -G 2 \
                -J "$out/compare_$n.json"
        done
        return $result
    fi
    bash "$here/compare.sh" measure --build "$build" --ranks "${sizes# }" --quick -o "$out/compare.json"
}

do_decode() {
    local n
    [ -z "$rehearsal" ] || { echo "needs GPUs and PyTorch: not rehearsed"; return 0; }
    export PYTHONPATH=$build/python${PYTHONPATH:+:$PYTHONPATH}
    if [ "$gpus" = 1 ]; then
        try 80 python3 "$here/decode_step.py" --ranks 1 --json "$out/decode_1.json"
    else
        for n in $(printf '%s\n' $sizes | sort -rn); do
            try 60 python3 -m torch.distributed.run --standalone --nproc-per-node "$n" \
                "$here/decode_step.py" --json "$out/decode_$n.json" -n 30
        done
    fi
    return $result
}

do_latency() {
    local n
    for n in $sizes; do
        perf all_reduce --ranks "$n" -d bfloat16 -b 16 -e 4K -f 4 -n $((replays * 5)) -G $graph \
            -J "$out/latency_$n.json"
    done
    return $result
}

do_overlap() {
    perf overlap --ranks "$ranks" -b 1K -e $most -f 64 -n $((replays / 3)) -G 3 \
        -J "$out/overlap_$ranks.json"
    perf chain --ranks "$ranks" -n $calls -b 8 -e 1K -f 128 -J "$out/chain_$ranks.json"
    return $result
}

do_tests() {
    local n
    if [ -n "$rehearsal" ]; then
        for n in $sizes; do
            try 60 "$bin/symmrun" -n "$n" -- "$bin/gpu_norm" --shapes 40 --most 2000 --seconds 20
        done
        return $result
    fi
    (cd "$root" && tests/gpu.sh --build "$(realpath --relative-to "$root" "$build")" \
        --calls $calls --log "$out/tests")
}

do_tune() {
    local budget=$((minutes * 4))
    [ -z "$rehearsal" ] || budget=4
    try $((budget * 2 + 30)) "$bin/symm-perf" --tune --ranks "$ranks" --backend cuda -e $most \
        -G $((graph < 20 ? graph : 20)) --budget $budget -o "$out/costs.json"
    [ -e "$out/costs.json" ] && [ -z "$rehearsal" ] && SYMM_COSTS=$out/costs.json try 45 \
        "$bin/symm-perf" all_reduce --regret --ranks "$ranks" --backend cuda >"$out/regret.txt"
    return $result
}

{
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null
    nvidia-smi topo -m 2>/dev/null
    "$bin/symm-info" 2>&1
    git -C "$root" describe --always 2>/dev/null
    date -u
} >"$out/machine.txt"
step norm 22 do_norm
step compare 18 do_compare
step decode 18 do_decode
step latency 5 do_latency
step overlap 5 do_overlap
step tests 16 do_tests
step tune 16 do_tune
echo "$out: $((SECONDS - started)) s, failed: ${failed[*]:-none}"
exit ${#failed[@]}
