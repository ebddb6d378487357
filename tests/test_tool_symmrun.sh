#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# symmrun with tiny shell scripts as ranks: variables, output, exit statuses, failures,
# deadlines, signals, and that nothing outlives it, however it ends.

set -u
export LC_ALL=C
# symmrun leaves alone what it finds ignored, as nohup does with SIGHUP.
if [ -z "${signals_are_default-}" ]; then
    signals_are_default=1 exec env --default-signal=HUP,INT,QUIT,TERM,PIPE bash "$0" "$@"
fi
bin=${BUILD_DIR:-build}/bin
symmrun=$bin/symmrun
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
# A duration that no other sleep on this machine has: what is left over is found by it.
long=9876.$$
failed=0 checks=0

fail() {
    echo "FAILED: $*"
    failed=1
}

# run EXPECTED_STATUS ARGUMENT...: symmrun's stdout in out, stderr in err, time in took (ms).
run() {
    local expected=$1 status began
    shift
    checks=$((checks + 1))
    began=$(date +%s%N)
    "$symmrun" "$@" >out 2>err
    status=$?
    took=$((($(date +%s%N) - began) / 1000000))
    if [ "$status" -ne "$expected" ]; then
        fail "symmrun $*: exit status $status, expected $expected"
        sed 's/^/    /' err
    fi
}

# begin ARGUMENT...: the same in the background; waits until each rank has printed "up".
begin() {
    local want
    want=$1
    checks=$((checks + 1))
    shift
    rm -f out err
    "$symmrun" -n "$want" "$@" >out 2>err &
    pid=$!
    for _ in $(seq 2000); do
        [ "$(grep -c up out 2>/dev/null)" = "$want" ] && return
        sleep 0.05
    done
    fail "symmrun -n $want $*: the ranks did not start"
}

# ended EXPECTED_STATUS: of what was begun.
ended() {
    local status
    wait "$pid" 2>/dev/null
    status=$?
    [ "$status" -eq "$1" ] || fail "$2: exit status $status, expected $1"
}

# has FILE TEXT, lacks FILE TEXT, same FILE LINES
has() { grep -qF -- "$2" "$1" || { fail "'$2' is not in $1:" && head -c 600 "$1"; }; }
lacks() { ! grep -qF -- "$2" "$1" || { fail "'$2' is in $1:" && head -c 600 "$1"; }; }
same() {
    [ "$(sort "$1")" = "$(printf '%s\n' "$2" | sort)" ] ||
        { fail "$1 should be '$2', is:" && head -c 600 "$1"; }
}
# within LEAST MOST WHAT: milliseconds. What must not be waited for takes minutes.
within() {
    if [ "$took" -lt "$1" ] || [ "$took" -gt "$2" ]; then
        fail "$3: took $took ms, not $1 to $2"
    fi
}

# Nothing with our duration runs; a killed process may take a moment to be gone.
nothing_left() {
    for _ in $(seq 1200); do
        pgrep -f "sleep $long" >/dev/null || return
        sleep 0.05
    done
    fail "$1: still running: $(pgrep -af "sleep $long")"
    pgrep -f "sleep $long" | xargs -r kill -KILL
}

# ---- Command line ----------------------------------------------------------------------

run 0 --help
has out '--log-dir'
run 0 --version
has out 'symmrun '
run 2
has err '-n is missing'
run 2 -n 2
has err 'no program'
for n in 0 -1 x 1x 4097 99999999999999999999 ''; do
    run 2 -n "$n" true
    has err "'$n'"
done
run 2 -n 2 --nproc-per-node 3 true
run 0 -n 2 --nproc-per-node 2 true
run 0 --nproc-per-node=2 true
run 2 -n 2 --timeout 0 true
run 2 -n 2 --timeout nan true
run 2 -n 2 --grace -1 true
run 2 -n 2 --bind socket true
has err "--bind 'socket': must be core or none"
for place in host host: :29400 host:abc host:0 host:65536 host:99999999999 host:29400x; do
    run 2 -n 1 --nnodes 2 --node-rank 0 --rendezvous "$place" true
    has err "--rendezvous '$place': must be HOST:PORT, the port a number from 1 to 65535"
done
run 0 -n 1 --nnodes 1 --node-rank 0 --rendezvous host:29400 true
run 2 -n 2 --tee true
run 2 -n 2 --no-such-option true
has err 'symmrun --help'

# ---- Variables, streams, binding -------------------------------------------------------

RANK=7 SYMM_RANK=3 SYMM_WORLD_SIZE=9 SYMM_JOB_ID=old TORCHELASTIC_USE_AGENT_STORE=True \
    run 0 -n 2 --no-prefix -- env
for name in RANK LOCAL_RANK ROLE_RANK; do
    has out "$name=0"
    has out "$name=1"
done
for pair in WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 ROLE_WORLD_SIZE=2 GROUP_RANK=0 GROUP_WORLD_SIZE=1 \
    MASTER_ADDR=127.0.0.1 TORCHELASTIC_RESTART_COUNT=0 ROLE_NAME=default; do
    [ "$(grep -cx "$pair" out)" = 2 ] || fail "not both ranks have $pair"
done
lacks out SYMM_RANK
lacks out SYMM_WORLD_SIZE
lacks out USE_AGENT_STORE
lacks out SYMM_JOB_ID=old
for name in MASTER_PORT TORCHELASTIC_RUN_ID SYMM_JOB_ID SYMM_SECRET SYMM_STORE; do
    [ "$(grep "^$name=" out | sort -u | wc -l)" = 1 ] || fail "$name is not one for all ranks"
done
grep -qxE 'SYMM_SECRET=[0-9a-f]{32}' out || fail 'SYMM_SECRET is not 32 hex digits'
grep -qxE 'SYMM_STORE=127\.0\.0\.1:[0-9]+' out || fail 'SYMM_STORE is not an address'
one=$(grep -h -E '^SYMM_(JOB_ID|SECRET)=' out | sort -u)
run 0 -n 2 --no-prefix -- env
[ "$one" != "$(grep -h -E '^SYMM_(JOB_ID|SECRET)=' out | sort -u)" ] || fail 'one name, two jobs'

# Descriptors, signal mask and SIGPIPE are what symmrun itself was started with.
run 0 -n 1 --no-prefix -- ls /proc/self/fd
ls /proc/self/fd >plain
same out "$(cat plain)"
run 0 -n 1 --no-prefix -- cat /proc/self/status
cat /proc/self/status >plain
[ "$(grep SigBlk out)" = "$(grep SigBlk plain)" ] || fail 'the signal mask has changed'
ignored=$(awk '/SigIgn/ { print $2 }' out plain | tr '\n' ' ')
(((0x${ignored% * } & 0x1000) == (0x${ignored#* } & 0x1000))) || fail 'SIGPIPE has changed'

printf 'typed\n' >in
"$symmrun" -n 2 -- cat <in >out || fail 'stdin: exit status'
same out '[0] typed'

run 0 -n 2 -- sh -c 'echo out; echo err >&2; printf "no newline"'
same out $'[0] out\n[1] out\n[0] no newline\n[1] no newline'
same err $'[0] err\n[1] err'
run 0 -n 1 --no-prefix -- printf 'a\n\nb'
same out $'a\n\nb'

# Lines of 3 MB from three ranks at once stay whole.
# shellcheck disable=SC2016
run 0 -n 3 -- sh -c 'for i in 1 2; do head -c 3000000 /dev/zero | tr "\0" $RANK; echo; done'
[ "$(wc -l <out)" = 6 ] || fail "long lines: $(wc -l <out) lines"
awk '{ c = substr($0, 2, 1); sub(/^\[[0-9]\] /, ""); if (length($0) != 3000000) exit 1
       gsub(c, ""); if (length($0)) exit 1 }' out || fail 'long lines were mixed or cut'

# A reader that is slow, and one that goes away.
# shellcheck disable=SC2016
lines=$("$symmrun" -n 2 -- seq 100000 | { sleep 0.5 && wc -l; })
[ "$lines" = 200000 ] || fail "slow reader: $lines lines"
# The ranks of the latter end as they would without symmrun, if they write for ever, too.
timeout -s KILL 60 "$symmrun" -n 2 -- yes 2>err | head -n 1 >out
[ "${PIPESTATUS[0]}" = 141 ] || fail 'a reader that went away: the ranks have not got SIGPIPE'
grep -q '^symmrun: rank [01] was killed by SIGPIPE' err || fail 'a reader that went away: not said'
# Who does not mind SIGPIPE may go on; a rank that writes its files, too, does.
timeout -s KILL 60 "$symmrun" -n 1 -- sh -c 'trap "" PIPE; seq 100000; touch went_on; exit 3' 2>err | head -n 1 >out
[ "${PIPESTATUS[0]}" = 3 ] && [ -e went_on ] || fail 'a rank that ignores SIGPIPE did not go on'
"$symmrun" -n 1 --log-dir logs --tee -- seq 100000 | head -n 1 >out
[ "${PIPESTATUS[0]}" = 0 ] || fail '--tee: a reader that went away changed the exit status'
[ "$(tail -n 1 logs/rank0.out)" = 100000 ] || fail '--tee: a reader that went away cut the file'

# Output that cannot be written is not lost silently.
if [ -w /dev/full ]; then
    "$symmrun" -n 2 -- sh -c 'echo hi; sleep 0.2; echo hi' >/dev/full 2>err
    [ $? = 1 ] || fail 'a full stdout: not exit status 1'
    same err 'symmrun: stdout: No space left on device; what the ranks write there is lost'
    "$symmrun" -n 2 -- sh -c 'echo hi; exit 3' >/dev/full 2>err
    [ $? = 3 ] || fail 'a full stdout: not the exit status of the rank that failed'
    "$symmrun" -n 2 -- sh -c 'echo hi >&2' >out 2>/dev/full
    [ $? = 1 ] || fail 'a full stderr: not exit status 1'
fi

run 0 -n 2 -v -- true
grep -qE 'bound|binding' err || fail '--verbose does not speak of binding'
run 0 -n 2 -v --bind none -- true
lacks err bound
run 0 -n 64 -v -- true
[ "$(nproc)" -ge 64 ] || has err '64 ranks on'

# ---- Files -----------------------------------------------------------------------------

run 0 -n 2 --log-dir logs -- sh -c 'echo out; printf err >&2'
same out ''
same logs/rank0.out out
same logs/rank1.err err
run 0 -n 2 --log-dir logs --tee -- sh -c 'echo new; printf err >&2'
same out $'[0] new\n[1] new'
same err $'[0] err\n[1] err'
same logs/rank1.out new
[ "$(wc -c <logs/rank0.err)" = 3 ] || fail '--tee: the file is not what the rank wrote'
if [ -w /dev/full ]; then
    mkdir full && ln -s /dev/full full/rank1.out
    run 1 -n 2 --log-dir full --tee -- echo hi
    same out $'[0] hi\n[1] hi'
    same err 'symmrun: rank 1: full/rank1.out is incomplete: No space left on device'
    same full/rank0.out hi
fi
touch file
run 1 -n 2 --log-dir file -- true
same err 'symmrun: cannot start rank 0: file/rank0.out cannot be created: Not a directory'
run 1 -n 2 --log-dir no/such/place -- true
has err 'no/such/place'
run 3 -n 2 --log-dir logs -- sh -c 'exit 3'
has err 'see logs/rank'

# ---- Failures --------------------------------------------------------------------------

# shellcheck disable=SC2016
run 7 -n 3 --grace 0.3 -- sh -c 'test $RANK = 1 && exit 7; sleep '$long
has err 'rank 1 exited with status 7; the other ranks have 0.3 s'
within 200 60000 'grace 0.3'
nothing_left 'after a failure'
# shellcheck disable=SC2016
run 137 -n 2 --grace 0.2 -- sh -c 'test $RANK = 0 && kill -KILL $$; sleep '$long
has err 'rank 0 was killed by'
# Ranks that end in time are not disturbed, and do not change the status.
# shellcheck disable=SC2016
run 4 -n 2 --grace 60 -- sh -c 'test $RANK = 1 && exit 4; trap "echo TERM" TERM; sleep 0.5; echo bye; exit 9'
same out '[0] bye'
within 400 60000 'a rank that ends by itself'
# Those that ignore SIGTERM are killed a second later.
# shellcheck disable=SC2016
run 5 -n 2 --grace 0 -- sh -c 'trap "" TERM; touch up$RANK
    while [ ! -e up0 ]; do sleep 0.02; done; test $RANK = 1 && exit 5; sleep '$long
has err 'SIGKILL to rank 0'
within 900 60000 'SIGKILL after SIGTERM'
nothing_left 'after SIGKILL'

run 127 -n 3 -- /no/such/program
[ "$(grep -c 'no/such/program' err)" = 1 ] || fail 'no such program: not told once'
[ "$(wc -l <err)" = 1 ] || { fail 'no such program: more than one line' && cat err; }
within 0 60000 'no such program'
run 127 -n 2 -- /etc/passwd
has err 'Permission denied'

# What a rank leaves behind may still write a little, and is then ended.
# For half a second: on a busy machine that may be too short.
for _ in 1 2 3 4 5; do
    run 0 -n 1 -- sh -c '(sleep 0.2; echo late) & echo done'
    grep -q late out && break
done
same out $'[0] done\n[0] late'
run 0 -n 2 -- sh -c "sleep $long & sleep $long >/dev/null 2>&1 & echo done"
within 500 60000 'processes left behind'
nothing_left 'processes left behind'

# ---- Deadline --------------------------------------------------------------------------

run 124 -n 2 --timeout 0.3 -- sleep $long
has err 'timeout after 0.3 s: ending rank 0, rank 1'
within 300 60000 timeout
run 124 -n 2 --timeout 3 -- sh -c "trap '' TERM; sleep $long; sleep $long"
within 3900 60000 'timeout, SIGTERM ignored'
nothing_left timeout
run 0 -n 2 --timeout 120 -- true
within 0 60000 'timeout not reached'

# ---- Signals ---------------------------------------------------------------------------

for signal in INT:130 TERM:143 HUP:129; do
    begin 2 -- sh -c "echo up; sleep $long"
    kill -s "${signal%:*}" "$pid"
    ended "${signal#*:}" "${signal%:*}"
    has err "SIG${signal%:*}: passed on"
    nothing_left "${signal%:*}"
done
# Ranks that end well on SIGTERM.
begin 2 -- sh -c "trap 'echo bye; exit 0' TERM; echo up; sleep $long & wait"
kill -TERM "$pid"
ended 0 'SIGTERM, handled'
[ "$(grep -c bye out)" = 2 ] || fail 'not both ranks have got SIGTERM'
# Stubborn ones: grace, SIGTERM, SIGKILL; and a second signal does not wait.
begin 2 --grace 0.2 -- sh -c "trap '' TERM INT; echo up; sleep $long; sleep $long"
kill -INT "$pid"
ended 137 'SIGINT, ignored'
begin 2 --grace 60 -- sh -c "trap '' TERM INT; echo up; sleep $long; sleep $long"
kill -TERM "$pid"
for _ in $(seq 1200); do # two signals at once would be one
    ! grep -q 'SIGTERM: passed on' err || break
    sleep 0.05
done
kill -TERM "$pid"
ended 137 'SIGTERM twice'
has err 'again'
nothing_left 'ignored signals'

# SIGKILL of symmrun: the ranks, what they have started, and the keeper go.
begin 3 -- sh -c "echo up; sleep $long & sleep $long; sleep $long"
keeper=$(pgrep -P "$pid" symmrun-keeper) || fail 'there is no keeper'
kill -KILL "$pid"
ended 137 SIGKILL
nothing_left 'SIGKILL of symmrun'
for _ in $(seq 1200); do
    grep -q '^State:.[RSD]' "/proc/${keeper:-0}/status" 2>/dev/null || break
    sleep 0.05
done
! grep -q '^State:.[RSD]' "/proc/${keeper:-0}/status" 2>/dev/null || fail 'the keeper is left'

[ "$failed" = 0 ] || exit 1
echo "all of $checks runs went as they should"
