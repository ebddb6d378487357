#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# gpu.sh - runs every test that needs GPUs on the GPUs of this machine.
#
#   tests/gpu.sh [--build DIR] [--calls N] [--log DIR] [--only REGEX]
#
# Runs the cuda_ suites with every number of ranks up to the number of GPUs, as processes and
# as threads; NCCL as the engine, by suites and with all sizes up to 64 MiB; kills ranks in all phases
# of a job; replays the shipped programs; runs the torture program under symmrun (N calls, default
# 100000), also with up to 8 ranks that share the GPUs, and with planted bugs, which it must detect;
# all_reduce_norm of random shapes; gpu_fence; exchanges of a program's own kernels; traces;
# compute-sanitizer on small runs; PyTorch and Triton if python3 has them; PyTorch's own suite of
# symmetric memory if SYMM_TORCH_SUITE is its file (tests/python/torch/symm_mem_suite.py says
# which). On a machine with one GPU ranks share it by an MPS daemon of this script's own. DIR must
# hold a build for this machine (default build). --only runs the checks whose names match. The last
# line is "N passed, N failed, N skipped". Exit status 77 without a GPU.

set -u
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
build=build calls=100000 log='' only=''
while [ $# -gt 1 ]; do
    case $1 in
    --build) build=$2 ;;
    --calls) calls=$2 ;;
    --log) log=$2 ;;
    --only) only=$2 ;;
    *) break ;;
    esac
    shift 2
done
if [ $# -gt 0 ]; then
    echo "usage: tests/gpu.sh [--build DIR] [--calls N] [--log DIR] [--only REGEX]" >&2
    exit 2
fi
gpus=$(find /dev -maxdepth 1 -name 'nvidia[0-9]*' | wc -l)
if [ "$gpus" -eq 0 ]; then
    echo "no GPU here"
    exit 77
fi
[ -n "$log" ] || log=$build/gpu
mkdir -p "$log"
bin=$build/bin
export SYMM_TEST_GPU=1 PYTHONUNBUFFERED=1
export SYMM_ENGINE=none # but where an engine is the subject
passed=0 failed=0 skipped=0

# has MODULE: whether python3 has it. Asked once: an import of torch takes seconds.
declare -A modules
has() {
    if [ -z "${modules[$1]-}" ]; then
        modules[$1]=no
        python3 -c "import $1" 2>/dev/null && modules[$1]=yes
    fi
    [ "${modules[$1]}" = yes ]
}

# check NAME SECONDS COMMAND...: one line for each; the output of a failure is shown.
check() {
    local name=$1 seconds=$2 begin status took
    shift 2
    [[ $name =~ $only ]] || return 0
    begin=$(date +%s%N)
    timeout --kill-after 5 "$seconds" "$@" >"$log/$name.log" 2>&1 </dev/null
    status=$?
    took=$((($(date +%s%N) - begin) / 1000000))
    case $status in
    0) passed=$((passed + 1)) what=passed ;;
    77) skipped=$((skipped + 1)) what=skipped ;;
    *) failed=$((failed + 1)) what="FAILED ($status)" ;;
    esac
    printf '%-28s %-12s %6d ms\n' "$name" "$what" "$took"
    case $status in 0 | 77) ;; *) tail -n 25 "$log/$name.log" | sed 's/^/    /' ;; esac
}

# By MPS ranks that are processes use one GPU at the same time. The daemon may not survive their death,
# and compute-sanitizer does not run beside it: `alone` is before commands that do without.
together=$gpus alone=()
if [ "$gpus" = 1 ]; then
    export SYMM_OVERSUBSCRIBE=1
    CUDA_MPS_PIPE_DIRECTORY=$(mktemp -d) || exit 1
    export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY=$CUDA_MPS_PIPE_DIRECTORY
    if nvidia-cuda-mps-control -d; then
        together=8 alone=(env -u CUDA_MPS_PIPE_DIRECTORY)
    else
        export SYMM_TEST_TRIALS=60 # calls take milliseconds
    fi
    trap 'echo quit | timeout 20 nvidia-cuda-mps-control; rm -rf "$CUDA_MPS_PIPE_DIRECTORY"' EXIT
fi
# queues N: MPS has one pool of hardware queues for all ranks, of which CUDA gives each two.
queues() {
    [ ${#alone[@]} -eq 0 ] || export CUDA_DEVICE_MAX_CONNECTIONS=$(($1 > 3 ? 96 / $1 : 32))
}
queues 8
sizes='' more=''
for n in 1 2 4 8; do
    if [ "$n" -gt "$together" ]; then more="$more $n"; else sizes="$sizes $n"; fi
done
algorithms='copy_in one_shot_pull two_shot_pull two_shot_inplace ll_push lamport_push two_shot_push'
echo "$gpus GPUs: $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)"

check info 60 "$bin/symm-info" --probe
for suite in "$build"/tests/test_cuda_* \
    "$build"/tests/test_driver_{agree,budget,calls,capture,capture_errors} \
    "$build"/tests/test_driver_{channel,graph,plan} \
    "$build"/tests/test_driver_{register,shrink,sight,threads,wait,work}; do
    [ -x "$suite" ] || continue
    case $suite in
    *_fault | *_shrink) check "$(basename "$suite")" 300 "${alone[@]}" "$suite" ;; # ranks die
    *) check "$(basename "$suite")" 300 "$suite" ;;
    esac
done
# Each of these makes many communicators of NCCL, which take their time. The kills are real:
# the driver cleans up after processes whose kernels run.
for suite in "$build"/tests/test_engine_nccl_{blocks,calls,p2p} "$build"/tests/test_driver_kill; do
    [ -x "$suite" ] && [ "$gpus" -gt 1 ] || continue
    check "$(basename "$suite")" 300 env SYMM_ENGINE=nccl "$suite"
done
[ "$gpus" -gt 1 ] || check test_driver_kill 300 "${alone[@]}" "$build/tests/test_driver_kill"
# NCCL in place of the kernels, from 4 bytes to what it moves without a copy; and beside them.
for n in $sizes; do
    [ "$n" -gt 1 ] && [ "$gpus" -gt 1 ] || continue # NCCL refuses ranks that share a GPU
    for operation in all_reduce reduce_scatter all_gather broadcast all_to_all; do
        check "engine_${n}_$operation" 120 env SYMM_ENGINE=nccl "$bin/symm-perf" $operation \
            --ranks "$n" --algorithm engine -T 10 -n 5 -w 1 -b 4 -e 64M -f 4
        check "engine_${n}_${operation}_graph" 120 env SYMM_ENGINE=nccl "$bin/symm-perf" \
            $operation --ranks "$n" --algorithm engine -T 10 -G 5 -n 3 -w 1 -b 4 -e 64M -f 4
    done
done
[ "$gpus" = 1 ] || check regret 300 env SYMM_ENGINE=nccl "$bin/symm-perf" --regret -T 10 \
    --ranks $((gpus < 4 ? gpus : 4))
for n in $sizes; do
    queues "$n"
    check "trace_$n" 120 tests/gpu_trace.sh "$bin" "$n"
done
for n in $sizes; do
    queues "$n"
    for algorithm in '' $algorithms; do
        each=$calls
        [ -z "$algorithm" ] || each=$((calls / 8))
        check "torture_${n}_${algorithm:-all}" 300 "$bin/symmrun" -n "$n" -- \
            "$bin/gpu_torture" --calls "$each" \
            ${algorithm:+--algorithm "$algorithm"}
    done
done
# all_reduce_norm: random shapes, options, places; by its fused kernels, and by one behind a sum.
for n in $sizes; do
    queues "$n"
    for algorithm in '' copy_in; do
        check "norm_${n}_${algorithm:-all}" 300 "$bin/symmrun" -n "$n" -- "$bin/gpu_norm" \
            --shapes $((calls / (${#algorithm} ? 50 : 5))) --seconds 120 \
            ${algorithm:+--algorithm "$algorithm"}
    done
done
# The orders between GPUs that kernels rely on; stores at peers with collectives behind them; and
# stores that nothing orders, which must be seen.
check fence 120 "$bin/gpu_fence"
for n in $sizes; do
    [ "$n" -gt 1 ] || continue
    queues "$n"
    check "stores_$n" 300 "$bin/symmrun" -n "$n" -- "$bin/gpu_torture" --stores \
        --calls $((calls / 2))
    [ "$gpus" -eq 1 ] || # one GPU orders them
        check "plant_unordered_$n" 120 "$bin/symmrun" -n "$n" -- "$bin/gpu_torture" \
            --unordered --calls 5000 --delay 20000 --deadline 3 --expect-wrong
done
# Exchanges of a program's own kernels: right, ranks that differ, one slot too few; and the
# example.
for n in $sizes; do
    queues "$n"
    check "exchange_$n" 300 "$bin/symmrun" -n "$n" -- "$bin/gpu_exchange" \
        --kernels $((calls / 2))
    check "fused_gelu_$n" 120 "$bin/symmrun" -n "$n" -- "$bin/fused_gelu" 4 8192
    [ "$n" -gt 1 ] || continue
    check "exchange_mismatch_$n" 120 "$bin/symmrun" -n "$n" -- "$bin/gpu_exchange" \
        --kernels 200 --mismatch
    check "plant_exchange_$n" 120 env SYMM_TIMEOUT=3 "$bin/symmrun" -n "$n" -- \
        "$bin/gpu_exchange_plant" --kernels 20000 --expect-wrong
done
# The kernels for more ranks than there are GPUs, which run in turns: few calls.
for n in $more; do
    check "shared_${n}_exchange" 120 env SYMM_OVERSUBSCRIBE=1 "$bin/symmrun" -n "$n" -- \
        "$bin/gpu_exchange" --kernels 200
    for algorithm in '' $algorithms; do
        check "shared_${n}_${algorithm:-all}" 120 env SYMM_OVERSUBSCRIBE=1 \
            "$bin/symmrun" -n "$n" -- "$bin/gpu_torture" --calls 200 --graphs 4 \
            ${algorithm:+--algorithm "$algorithm"}
    done
    check "shared_${n}_norm" 120 env SYMM_OVERSUBSCRIBE=1 "$bin/symmrun" -n "$n" -- \
        "$bin/gpu_norm" --shapes 2000 --seconds 20
    for operation in reduce_scatter all_gather broadcast all_to_all; do
        check "shared_${n}_$operation" 120 env SYMM_OVERSUBSCRIBE=1 "$bin/symm-perf" \
            $operation --ranks "$n" --backend cuda -G 3 -n 2 -w 1 -b 1K -e 16M -f 16
    done
done
for program in llama3-8b-tp2-decode-b1 llama3-70b-tp8-decode-b32 moe-8x-tp8 \
    ring-pipeline-4 llama3-8b-tp4-decode-b1 tp2-dp2-two-streams odd-cycle-3; do
    world=$(python3 -c "import json; print(json.load(open('bench/programs/$program.json'))['world'])")
    [ "$world" -le "$together" ] || continue
    queues "$world"
    check "replay_$program" 120 "$bin/symm-perf" replay "bench/programs/$program.json" \
        --backend cuda --iterations 5
done
queues 2
for plant in "$build"/plants/*; do # kernels with a bug each, which must be seen
    [ -d "$plant" ] && [ "$together" -gt 1 ] || continue
    case $(basename "$plant") in exit) algorithm=one_shot_pull ;; *) algorithm=lamport_push ;; esac
    check "plant_$(basename "$plant")" 120 env SYMM_KERNELS="$plant" "$bin/symmrun" -n 2 \
        -- "$bin/gpu_torture" --calls 20000 --delay 20000 --algorithm $algorithm \
        --deadline 3 --expect-wrong
done
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
        check "sanitizer_$tool" 300 "${alone[@]}" "$bin/symmrun" -n 2 -- compute-sanitizer --tool $tool \
            --error-exitcode 9 "$bin/gpu_torture" --calls 60 --graphs 2 --max-bytes 65536
        most=() # racecheck of CUDA 13.0 does not get through a launch that has clusters
        [ "$tool" = memcheck ] || most=(--most 500)
        check "sanitizer_norm_$tool" 300 "${alone[@]}" "$bin/symmrun" -n 2 -- compute-sanitizer \
            --tool $tool --error-exitcode 9 "$bin/gpu_norm" --shapes 40 --deadline 60 "${most[@]}"
    done
fi
for script in tests/gpu_*.py; do
    case $script in
    *channels*) [ "$gpus" -gt 1 ] || continue ;; # times
    *crossed*) [ "$together" -gt 1 ] || continue ;;
    esac
    [ -e "$script" ] && has torch || continue
    n=$((together > 1 ? 2 : 1))
    check "$(basename "$script" .py)" 240 env SYMM_LIBRARY="$root/$build/lib/libsymm.so" \
        torchrun --standalone --nproc-per-node "$n" "$script"
done
for what in tests/python/gpu_cupy.py tests/python/gpu_numba.py tests/python/jax/gpu_jax.py; do
    [ -e "$build/python/symm/_core.abi3.so" ] || continue
    check "$(basename "$what" .py)" 120 env PYTHONPATH="$root/$build/python" \
        "$bin/symmrun" -n 2 -- python3 "$what"
done
if [ -e "$build/python/symm/_core.abi3.so" ] && has torch; then
    for what in tests/python/torch/gpu_{against_nccl,backend,capture,engines,norm}.py \
        tests/python/torch/gpu_symmetric_memory.py \
        tests/python/torch/plan_program.py symm/python/examples/llama_decode.py; do
        case $what in *nccl*) [ "$gpus" -gt 1 ] || continue ;; esac
        check "torch_$(basename "$what" .py)" 400 env -u SYMM_ENGINE \
            PYTHONPATH="$root/$build/python" \
            torchrun --standalone --nproc-per-node 2 "$what" # sends need an engine
    done
    [ -z "${SYMM_TORCH_SUITE-}" ] ||
        check torch_symm_mem_suite 230 env PYTHONPATH="$root/$build/python" \
            python3 tests/python/torch/symm_mem_suite.py "$SYMM_TORCH_SUITE"
    check inductor_lowering 290 env PYTHONPATH="$root/$build/python" \
        python3 bench/inductor_lowering.py
    check torch_llama_compiled 300 env PYTHONPATH="$root/$build/python" \
        torchrun --standalone --nproc-per-node 2 \
        symm/python/examples/llama_decode.py --compile
    check torch_fused_norm 400 env PYTHONPATH="$root/$build/python" \
        torchrun --standalone --nproc-per-node 2 \
        symm/python/examples/fused_norm.py compile
    if [ -e "$build/lib/libsymm_device.bc" ] && has triton; then
        for what in symm/python/examples/{triton_all_reduce.py,triton_fused_gelu.py}; do
            check "$(basename "$what" .py)" 180 env PYTHONPATH="$root/$build/python" \
                torchrun --standalone \
                --nproc-per-node 2 "$what"
        done
    fi
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
