#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# One program, unchanged, under every launcher: symmrun, mpirun of Open MPI and of MPICH, and
# torchrun's variables with MASTER_PORT bound by another process. Each run must print one
# "ok" line per rank, with the right size and source, and leave nothing in the runtime folder.
# A launcher that is not installed is skipped with a message; exit 77 if none is.

set -u
export LC_ALL=C
source_dir=${SOURCE_DIR:-$(cd "$(dirname "$0")/.." && pwd)}
build_dir=${BUILD_DIR:-$source_dir/build}
program=$build_dir/bin/rank_program
work=$(mktemp -d /tmp/symm-launchers-XXXXXX)
holder=
failed=0
ran=0

finish() {
    [ -z "$holder" ] || kill "$holder" 2>/dev/null
    rm -rf "$work"
}
trap finish EXIT

say() { printf '%s\n' "$*"; }

# What another launcher around this test has set must not decide.
for name in $(compgen -e | grep -E '^(OMPI_|PMIX_|PMI_|SLURM_|MPI_|HYDI_|TORCHELASTIC_)'); do
    unset "$name"
done
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
unset SYMM_RANK SYMM_WORLD_SIZE SYMM_LOCAL_RANK SYMM_LOCAL_WORLD_SIZE SYMM_JOB_ID SYMM_SECRET
export SYMM_HEAP_BYTES=1G SYMM_TEAM_BYTES=64M SYMM_INIT_TIMEOUT=100 SYMM_TIMEOUT=100
export SYMM_RUNTIME_DIR=$work/runtime
mkdir -m 700 "$SYMM_RUNTIME_DIR"

if [ ! -x "$program" ]; then
    say "FAILED: $program is missing"
    exit 1
fi

# judge NAME RANKS SOURCE STATUS: reads $work/out.
judge() {
    local name=$1 ranks=$2 source=$3 status=$4 rank wrong=0 left
    ran=$((ran + 1))
    [ "$status" -eq 0 ] || { say "$name: exit status $status"; wrong=1; }
    for ((rank = 0; rank < ranks; rank++)); do
        if [ "$(grep -cE "rank $rank of $ranks by ($source): ok" "$work/out")" -ne 1 ]; then
            say "$name: no line, or more than one, of rank $rank of $ranks by $source"
            wrong=1
        fi
    done
    left=$(find "$SYMM_RUNTIME_DIR" -mindepth 1)
    [ -z "$left" ] || { say "$name: left behind: $left"; wrong=1; }
    if [ "$wrong" -ne 0 ]; then
        sed 's/^/    /' "$work/out"
        failed=$((failed + 1))
        rm -rf "${SYMM_RUNTIME_DIR:?}"/*
    else
        say "$name: ok with $ranks ranks"
    fi
}

# launch NAME RANKS SOURCE COMMAND...
launch() {
    local name=$1 ranks=$2 source=$3
    shift 3
    timeout 300 "$@" >"$work/out" 2>&1 </dev/null
    judge "$name" "$ranks" "$source" $?
}

have() {
    command -v "$1" >/dev/null && return 0
    say "$1: skipped, not installed"
    return 1
}

launch "no launcher" 1 single "$program"

if [ -x "$build_dir/bin/symmrun" ]; then
    for n in 1 2 4; do
        launch symmrun "$n" 'symmrun|symm|torchrun' "$build_dir/bin/symmrun" -n "$n" -- "$program"
    done
else
    say "symmrun: skipped, not built"
fi

if have mpirun.openmpi; then
    export OMPI_MCA_rmaps_base_oversubscribe=1
    for n in 1 3; do
        # Open MPI refuses root unless told twice.
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
            launch mpirun.openmpi "$n" 'openmpi' \
            mpirun.openmpi --oversubscribe -n "$n" "$program"
    done
    unset OMPI_MCA_rmaps_base_oversubscribe
fi

if have mpirun.mpich; then
    for n in 1 3; do
        launch mpirun.mpich "$n" 'pmi|pmix' mpirun.mpich -n "$n" "$program"
    done
fi

# torchrun's agent listens on MASTER_PORT for as long as the job runs.
"$program" --hold-port >"$work/port" &
holder=$!
for ((i = 0; i < 1000; i++)); do
    [ -s "$work/port" ] && break
    sleep 0.05
done
port=$(cat "$work/port")

# torchrun RANKS RUN_ID RESTARTS PREFIX: all ranks, their lines in PREFIX.RANK.
torchrun() {
    local ranks=$1 run=$2 restarts=$3 prefix=$4 rank pids=() pid status=0
    for ((rank = 0; rank < ranks; rank++)); do
        RANK=$rank WORLD_SIZE=$ranks LOCAL_RANK=$rank LOCAL_WORLD_SIZE=$ranks \
            GROUP_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
            TORCHELASTIC_RUN_ID=$run TORCHELASTIC_RESTART_COUNT=$restarts \
            timeout 300 "$program" >"$prefix.$rank" 2>&1 </dev/null &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do
        wait "$pid" || status=1
    done
    return $status
}

for n in 1 2 4; do
    torchrun "$n" none 0 "$work/torchrun"
    status=$?
    cat "$work"/torchrun.* >"$work/out"
    rm -f "$work"/torchrun.*
    judge "torchrun's variables" "$n" torchrun "$status"
done

# Two jobs at once that differ in the run id, and a restart beside its leftover.
declare -A jobs
torchrun 2 red 0 "$work/red" &
jobs[red]=$!
torchrun 2 blue 0 "$work/blue" &
jobs[blue]=$!
torchrun 2 blue 1 "$work/again" &
jobs[again]=$!
for job in red blue again; do
    wait "${jobs[$job]}"
    echo $? >"$work/$job.status"
done
for job in red blue again; do
    cat "$work/$job".[0-9]* >"$work/out"
    judge "torchrun's variables, job $job" 2 torchrun "$(cat "$work/$job.status")"
done

# One rank alone of two: an error in time that names the one that is missing.
SYMM_INIT_TIMEOUT=1 RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 \
    MASTER_ADDR=127.0.0.1 MASTER_PORT=$port TORCHELASTIC_RUN_ID=lonely \
    timeout 300 "$program" >"$work/out" 2>&1
status=$?
if [ "$status" -ne 1 ] || ! grep -q 'SYMM_ERR_TIMEOUT.*rank 1' "$work/out"; then
    say "a rank alone: exit status $status, wanted 1 and a line that names rank 1"
    sed 's/^/    /' "$work/out"
    failed=$((failed + 1))
fi

# A partial set of variables names what is missing.
RANK=0 timeout 300 "$program" >"$work/out" 2>&1
status=$?
if [ "$status" -ne 1 ] || ! grep -q 'SYMM_ERR_JOB.*WORLD_SIZE' "$work/out"; then
    say "RANK alone: exit status $status, wanted 1 and a line that names WORLD_SIZE"
    sed 's/^/    /' "$work/out"
    failed=$((failed + 1))
fi

[ "$ran" -gt 0 ] || exit 77
[ "$failed" -eq 0 ] || { say "$failed failed"; exit 1; }
