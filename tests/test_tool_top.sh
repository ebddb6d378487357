#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# symm-top over a job of four: one rank is stopped, and the others wait for it at a site; a rank
# that does not come to a rendezvous, a split, a message; files that only have a page's name.

needs=(symm-top)
# shellcheck source=tests/sight_stage.sh
. "${SOURCE_DIR:-$(cd "$(dirname "$0")/.." && pwd)}/tests/sight_stage.sh"

fail() {
    echo "FAIL: $*"
    sed 's/^/    /' "$folder/out" "$folder/err" "$folder/said"
    failed=1
}

# look ARGUMENT...: what symm-top says of the job, as it is and with blanks squeezed.
look() {
    "$bin/symm-top" --once "$@" "${pids[@]}" >"$folder/out" 2>&1
    status=$?
    tr -s ' ' <"$folder/out" >"$folder/squeezed"
}

# until_seen PATTERN: looks until a line matches; for ten seconds at least.
until_seen() {
    for _ in $(seq 200); do
        look
        grep -qE -- "$1" "$folder/squeezed" && return
        sleep 0.05
    done
    fail "'$1' is not seen"
}

seen() { grep -qE -- "$1" "$folder/squeezed" || fail "'$1' is not there"; }

# ---- A rank is stopped -----------------------------------------------------------------

start loop
until_seen '^ 2 [0-9]+ .*layer '
stopped=${pids[2]}
kill -STOP "$stopped" || fail 'rank 2 cannot be stopped'
until_seen '^ 1 [0-9]+ .* ranks? (0 )?2 world '
until_seen '^ 3 [0-9]+ .* ranks? (0 )?2 world '
until_seen '^ 0 [0-9]+ .* rank 2 '
seen '^ rank 2, which is stopped, at all_reduce .layer 1. \(world\): by rank '
[ "$status" = 0 ] || fail "exit status $status"
seen 'job .*: 4 of 4 ranks are here, backend host'
seen "^ 2 $stopped STOPPED "
for rank in 1 3; do
    seen "^ $rank [0-9]+ [a-z ]+ - [0-9.]+m?s ranks? (0 )?2 world running all_reduce 'layer 1' 32 bytes \(float32 sum, [a-z_]+\)\$"
done
seen '^ 0 [0-9]+ .* rank 2 (world|team 1) running all_reduce .layer [12]. 32 bytes'
look --all -d 0.2
seen '^ 1 [0-9]+ [a-z ]+ 0 [0-9.]+m?s ranks? (0 )?2 world '
[ "$(grep -c . "$folder/out")" -gt 6 ] || fail 'too little'
# Who may not look is told so.
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null &&
    setpriv --reuid 65534 --clear-groups "$bin/symm-top" --version >/dev/null 2>&1; then
    setpriv --reuid 65534 --clear-groups "$bin/symm-top" --once "${pids[@]}" >"$folder/out" 2>&1
    [ $? = 1 ] && grep -q '^4 processes of other users could not be read' "$folder/out" ||
        fail 'another user is not told what was not read'
fi
if unshare --pid --fork --mount-proc true 2>/dev/null; then
    unshare --pid --fork --mount-proc "$bin/symm-top" --once >"$folder/out" 2>&1
    [ $? = 1 ] && grep -q "^this is a container's PID namespace" "$folder/out" ||
        fail 'in a PID namespace it is not said'
fi
kill -CONT "$stopped"
until_seen '^ 2 [0-9]+ (running|sleeping) '
look -d 0.3
seen '^ 2 [0-9]+ [a-z ]+ [1-9][0-9]* '
stop
for _ in $(seq 200); do
    look
    [ "$status" = 1 ] && break
    sleep 0.05
done
[ "$status" = 1 ] || fail "without ranks: exit status $status"
seen 'no rank was found'

# ---- A rank that does not come ---------------------------------------------------------

# hangs MODE SITE ROW: all wait in SITE for rank 2, but rank 2 itself; so their rows say.
hangs() {
    start "$1"
    until_seen "^ rank 2 at $2 \\(world\\): by rank 0, rank 1 and rank 3, for "
    for rank in 0 1 3; do
        seen "^ $rank [0-9]+ [a-z ]+ - [0-9.]+m?s rank 2 world $3\$"
    done
    stop
}

hangs rendezvous "exchange 'rendezvous'" "running exchange 'rendezvous'"
hangs split "exchange 'split'" "running exchange 'split'"
hangs create team_create 'waiting: team_create'
hangs shrink shrink 'waiting: shrink'
start receive
until_seen "^ rank 2 at recv 'message' \(world\): by rank 0, for "
seen "^ 0 [0-9]+ [a-z ]+ - [0-9.]+m?s rank 2 world running recv 'message' 32 bytes, with rank 2 \(float32\), number 2\$"
stop
start signal
until_seen "^ rank 3 at signal_wait 'flag' \(world\): by rank 1, for "
seen "^ 1 [0-9]+ [a-z ]+ - [0-9.]+m?s rank 3 world running signal_wait 'flag', signal 7, with rank 3, number 2\$"
stop

# ---- In replays of a graph, which run no code of the host ----------------------------------

if [ -e "$BUILD_DIR/lib/libfake_cuda.so" ]; then
    mkdir "$folder/kernels"
    for file in "$SOURCE_DIR"/kernels/cuda/*.cu; do # the fake driver wants modules by their looks
        printf '\x50\xed\x55\xba\1\0\0\0\0\0\0\0\0\0\0\0' \
            >"$folder/kernels/$(basename "$file" .cu).fatbin"
    done
    program=graph_program
    export SYMM_SIGHT=1 SYMM_BACKEND=cuda SYMM_CUDA_LIBRARY="$BUILD_DIR/lib/libfake_cuda.so" \
        FAKE_CUDA_DEVICES=4 SYMM_KERNELS="$folder/kernels"
    start loop
    until_seen "^ 2 [0-9]+ .*captured all_reduce 'layer 2' 32 bytes .*, the device has ended call [1-9]"
    kill -STOP "${pids[2]}" || fail 'rank 2 cannot be stopped'
    until_seen "^ rank 2, which is stopped, at all_reduce 'layer [0-2]' \\(world\\): by rank 0, rank 1 and rank 3, for "
    for rank in 0 1 3; do
        seen "^ $rank [0-9]+ [a-z ]+ - [0-9.]+m?s rank 2 world waiting: all_reduce 'layer [0-2]'"
    done
    kill -CONT "${pids[2]}"
    stop
    unset SYMM_SIGHT SYMM_BACKEND
fi

# ---- The command line ------------------------------------------------------------------

"$bin/symm-top" --nonsense >"$folder/out" 2>"$folder/err"
[ $? = 2 ] || fail 'a wrong option'
"$bin/symm-top" --help >"$folder/out" 2>"$folder/err" || fail '--help'
if [ -e /dev/full ]; then
    "$bin/symm-top" --once >/dev/full 2>"$folder/err" && fail 'output that was lost'
fi
# On a terminal: one screen, q quits, and the screen before comes back.
if command -v script >/dev/null; then
    (sleep 1 && printf q) | timeout 20 script -qec "$bin/symm-top -d 0.2" /dev/null >"$folder/out" 2>&1 ||
        fail "on a terminal: $?"
    grep -qF $'\033[?1049h' "$folder/out" && grep -qF $'\033[?1049l' "$folder/out" ||
        fail 'no screen of its own, or it was not given back'
fi
exit "$failed"
